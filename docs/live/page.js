// The page with live cells: its code blocks become cells, a kernel comes from Binder or from a
// server that the reader names, and a recorded run plays where none comes.

import { launch } from "./binder.js";
import { Kernel } from "./kernel.js";
import { Output } from "./output.js";

const board = document.querySelector("#ddl-live");
/** `starting` is the promise of a kernel that is on its way. */
const state = { kernel: null, starting: null, button: null, said: null };

function begin() {
  for (const block of document.querySelectorAll(".ddl-cell")) makeCell(block);
  state.button = button("Start a kernel", connect);
  state.button.className = "md-button md-button--primary";
  state.said = make("span", { className: "ddl-said", role: "status" });
  board.append(state.button, state.said, ownServer());
  const given = new URLSearchParams(location.hash.slice(1));
  if (given.has("server")) {
    board.querySelector("[name=server]").value = given.get("server");
    board.querySelector("[name=token]").value = given.get("token") ?? "";
    // A token must not stay where a link to this page is copied from.
    history.replaceState(null, "", location.pathname + location.search);
  }
}

/** One block of code: editable, with buttons and a place for what it shows. */
function makeCell(block) {
  const source = block.querySelector("code").textContent.trimEnd();
  const code = make("textarea", { spellcheck: false, value: source });
  code.setAttribute("aria-label", "Code of the cell");
  const fit = () => {
    code.style.height = "auto";
    code.style.height = `${code.scrollHeight}px`;
  };
  code.addEventListener("input", fit);
  const output = make("div", { className: "ddl-output" });
  const frame = make("section", { className: "ddl-live-cell" });
  const cell = { code, frame, output: new Output(output) };
  cell.run = button("Run", () => runCell(cell));
  cell.stop = button("Interrupt", () => state.kernel?.interrupt());
  cell.stop.hidden = true;
  code.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && event.shiftKey) {
      event.preventDefault();
      runCell(cell);
    }
  });
  frame.append(code, cell.run, cell.stop, output);
  block.replaceWith(frame);
  fit();
}

async function runCell(cell) {
  if (cell.run.disabled) return;
  cell.run.disabled = true;
  cell.frame.dataset.state = "running";
  const kernel = await connect();
  cell.stop.hidden = kernel === null;
  try {
    cell.output.clear();
    await kernel?.execute(cell.code.value, (kind, content) => cell.output.take(kind, content));
  } catch (error) {
    cell.output.print(`${error.message}\n`, "stderr");
  } finally {
    cell.run.disabled = false;
    cell.stop.hidden = true;
    cell.frame.dataset.state = "done";
  }
}

/** The kernel, or null: then the recorded run plays. */
function connect() {
  state.starting ??= start().finally(() => {
    state.starting = null;
  });
  return state.starting;
}

async function start() {
  if (state.kernel) return state.kernel;
  state.button.disabled = true;
  try {
    say("Starting a kernel …");
    state.kernel = await Kernel.start(await findServer());
    state.kernel.onLost = lose;
    addEventListener("pagehide", () => state.kernel?.close());
    say("The kernel is ready: Shift-Enter runs a cell.");
    board.dataset.state = "ready";
  } catch (error) {
    state.button.disabled = false;
    fallBack(error);
  }
  return state.kernel;
}

function findServer() {
  const baseUrl = board.querySelector("[name=server]").value.trim();
  if (baseUrl) return { baseUrl, token: board.querySelector("[name=token]").value.trim() };
  if (!board.dataset.binder) throw new Error("This copy of the page knows no Binder");
  return launch(board.dataset.binder, (phase) => say(`Binder: ${phase} …`));
}

function lose() {
  state.kernel = null;
  state.button.disabled = false;
  say("The kernel is gone; its runs go on where their cluster is.");
  board.dataset.state = "lost";
}

function fallBack(error) {
  say(`No kernel: ${error.message}. Below plays a recorded run instead.`);
  board.dataset.state = "replay";
  if (board.querySelector("iframe")) return;
  const frame = make("iframe", { src: board.dataset.replay, title: "A recorded run" });
  frame.className = "ddl-replay";
  board.append(frame);
}

function ownServer() {
  const details = make("details", {});
  details.append(make("summary", { textContent: "Use a Jupyter server of my own" }));
  for (const [name, hint] of [["server", "http://localhost:8888/"], ["token", "its token"]]) {
    const field = make("input", { name, placeholder: hint, autocomplete: "off" });
    field.type = name === "token" ? "password" : "url";
    details.append(field);
  }
  return details;
}

function say(words) {
  state.said.textContent = words;
}

function button(label, action) {
  const made = make("button", { type: "button", textContent: label });
  made.addEventListener("click", action);
  return made;
}

function make(tag, properties) {
  return Object.assign(document.createElement(tag), properties);
}

begin();
