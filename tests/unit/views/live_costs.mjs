// The live view's words on what runs cost: [snapshot, row, now, ended], … in, texts out.

import fs from "node:fs";
import { pathToFileURL } from "node:url";

const { spentOf } = await import(pathToFileURL(process.argv[2]).href);

console.log(JSON.stringify(JSON.parse(fs.readFileSync(0, "utf8")).map((each) => spentOf(...each))));
