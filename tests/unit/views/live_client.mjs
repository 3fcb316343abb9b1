// Runs the real client in virtual time: each line in is one step, each line out what it did.

import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const { Client } = await import(pathToFileURL(process.argv[2]).href);

let nowMs = 0;
let timers = [];
let nextTimer = 1;
const timerApi = {
  setTimeout: (action, ms) => add(action, ms, 0),
  setInterval: (action, ms) => add(action, ms, ms),
  clearTimeout: (id) => (timers = timers.filter((each) => each.id !== id)),
  clearInterval: (id) => (timers = timers.filter((each) => each.id !== id)),
};

function add(action, ms, every) {
  timers.push({ id: nextTimer, at: nowMs + ms, every, action });
  return nextTimer++;
}

function advance(toMs) {
  for (;;) {
    const next = timers.filter((each) => each.at <= toMs).sort((a, b) => a.at - b.at)[0];
    if (next === undefined) break;
    nowMs = next.at;
    if (next.every > 0) next.at += next.every;
    else timers = timers.filter((each) => each !== next);
    next.action();
  }
  nowMs = toMs;
}

let client = null;
let out = [];
let answers = [];
let listener = null;

function begin() {
  timers = [];
  nowMs = 0;
  out = [];
  answers = [];
  client = new Client(
    { send: (message) => out.push(message), subscribe: (callback) => ((listener = callback), () => {}) },
    { onChange: () => {}, timers: timerApi, now: () => nowMs },
  );
}

for await (const line of createInterface({ input: process.stdin })) {
  const step = JSON.parse(line);
  if (step.begin) begin();
  advance(step.t);
  for (const message of step.messages) listener(message);
  if (step.request) client.request(step.request).then((answer) => answers.push(answer));
  await null;
  console.log(
    JSON.stringify({
      out: out.splice(0),
      answers: answers.splice(0),
      seq: client.view?.snapshot.seq ?? null,
      state: client.view?.snapshot.state ?? null,
      nLost: client.nLost,
    }),
  );
}
