// Damaged messages to the page's real client: one line out for each case that broke it, then how
// many were played.  Arguments: client.js, the folder of golden messages, a seed, how many cases.

import { readFileSync, readdirSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [, , path, folder, seedText, countText] = process.argv;
const { Client } = await import(pathToFileURL(path).href);

let state = Number(seedText);
function random(below) {
  state = (state + 0x6d2b79f5) | 0;
  let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
  mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
  return ((mixed ^ (mixed >>> 14)) >>> 0) % below;
}
const oneOf = (list) => list[random(list.length)];

const goldens = readdirSync(folder)
  .map((name) => JSON.parse(readFileSync(`${folder}/${name}`, "utf-8")))
  .filter((each) => each.direction === "to_browser")
  .flatMap((each) => [each.full, each.sparse]);
const run = goldens.find((each) => each.kind === "run");
const junk = [null, true, -1, 0, 0.5, 1e9, "", "run", "constructor", "__proto__", [], {}, [[]], { seq: 1 }];

/** A copy in which one to four things are replaced, taken away or put elsewhere. */
function damaged(message) {
  const copy = structuredClone(message);
  for (let n = 1 + random(4); n > 0; n--) {
    let at = copy;
    for (let depth = random(4); depth > 0; depth--) {
      const below = Object.values(at).filter((each) => each !== null && typeof each === "object");
      if (below.length > 0) at = oneOf(below);
    }
    const names = Object.keys(at);
    const name = names.length > 0 ? oneOf(names) : "kind";
    if (random(4) === 0) delete at[name];
    else at[name] = random(4) === 0 ? structuredClone(oneOf(goldens)) : structuredClone(oneOf(junk));
  }
  return random(50) === 0 ? oneOf(junk) : copy;
}

const timers = { setTimeout: () => 1, setInterval: () => 1, clearTimeout() {}, clearInterval() {} };
const counts = { taken: 0 };
for (let n = 0; n < Number(countText); n++) {
  let listener;
  const channel = { send() {}, subscribe: (callback) => ((listener = callback), () => {}) };
  const client = new Client(channel, { onChange() {}, timers, now: () => 0 });
  const messages = Array.from({ length: 3 }, () => damaged(oneOf(goldens)));
  try {
    for (const message of messages) listener(message);
    counts.taken += client.view !== null;
    const whole = { ...run, at_s: 3e9, snapshot: { ...run.snapshot, seq: 2e9 } };
    listener(whole);
    if (client.view !== whole) throw new Error("a whole message was not taken behind damaged ones");
  } catch (error) {
    console.log(JSON.stringify({ n, error: String(error.stack).slice(0, 300), messages }));
  }
  client.close();
}
console.log(JSON.stringify({ played: Number(countText), ...counts }));
