// Calls exported functions of a module: [[name, argument, …], …] in, [result, …] out.

import fs from "node:fs";
import { pathToFileURL } from "node:url";

const found = await import(pathToFileURL(process.argv[2]).href);
const calls = JSON.parse(fs.readFileSync(0, "utf8"));
console.log(JSON.stringify(calls.map(([name, ...given]) => found[name](...given))));
