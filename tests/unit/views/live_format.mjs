// Calls the live view's formatters: {name: [arguments, …]} in, {name: [text, …]} out.

import fs from "node:fs";
import { pathToFileURL } from "node:url";

const formats = await import(pathToFileURL(process.argv[2]).href);
const NOT_FINITE = { nan: NaN, inf: Infinity, "-inf": -Infinity };

const calls = JSON.parse(fs.readFileSync(0, "utf8"));
const texts = Object.entries(calls).map(([name, rows]) => [
  name,
  rows.map((row) => formats[name](...row.map((each) => NOT_FINITE[each] ?? each))),
]);
console.log(JSON.stringify(Object.fromEntries(texts)));
