// Frames of columns through the page's real modules: one line out per frame, all trials as rows.
// In: {steps: [{frame: base64, isWhole}]} on standard input.

import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const { Columns, framed } = await import(pathToFileURL(`${process.argv[2]}/columns.js`).href);
const { steps } = JSON.parse(readFileSync(0, "utf-8"));
let columns = new Columns();
for (const { frame, isWhole } of steps) {
  if (isWhole) columns = new Columns();
  columns.take(framed(Buffer.from(frame, "base64")));
  const rows = Array.from({ length: columns.n }, (_, row) => columns.row(row));
  const least = Object.fromEntries([...columns.metrics("least")].map(([name, column]) => [name, rows.map((_, row) => column.at(row) ?? null)]));
  const most = Object.fromEntries([...columns.metrics("most")].map(([name, column]) => [name, rows.map((_, row) => column.at(row) ?? null)]));
  const text = (key, value) => (value === Infinity ? "inf" : value === -Infinity ? "-inf" : value);
  const own = ["value", "step", "started_at_s"].filter((name) => columns.own(name) !== null);
  console.log(JSON.stringify({ rows, least, most, own, nParams: columns.nParams, nMetrics: columns.nMetrics }, text));
}
