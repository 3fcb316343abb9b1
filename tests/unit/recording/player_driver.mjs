// Runs the real modules of the player: one JSON request per line in, one answer per line out.

import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";
import { gunzipSync } from "node:zlib";

const folder = pathToFileURL(process.argv[2] + "/");
const { patched } = await import(new URL("timeline.js", folder).href);
const { Projector } = await import(new URL("projector.js", folder).href);

let projector = null;
let said = [];

for await (const line of createInterface({ input: process.stdin })) {
  const ask = JSON.parse(line);
  let answer = null;
  if (ask.patch) answer = ask.patch.map(([old, patch]) => (patch === null ? old : patched(old, patch)));
  if (ask.timeline) {
    const timeline = JSON.parse(gunzipSync(Buffer.from(ask.timeline, "base64")).toString());
    projector = new Projector(timeline);
    projector.channel.subscribe((message) => said.push(message));
    answer = timeline.length_s;
  }
  if (ask.at !== undefined) {
    const isBack = projector.go(ask.at);
    projector.show();
    answer = { isBack, said: said.splice(0) };
  }
  if (ask.request) {
    projector.channel.send(ask.request);
    await new Promise((done) => setImmediate(done));
    answer = said.splice(0);
  }
  console.log(JSON.stringify(answer));
}
