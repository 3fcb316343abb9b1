// The end of what a run, a trial or a rank has printed; asked for only while it is looked at.

import { isFinal } from "./client.js";
import { clean, h, repeat, setAttribute, setText } from "./dom.js";
import { bytes } from "./format.js";
import { Shown } from "./shown.js";

const ASK_MS = 1000;
const TYPE_MS = 300;
const N_LINES = 200;
const MAX_LINE = 2000;

/** A tail with a filter (where the log lies) and a search (in what is shown). */
export class LogTail {
  /**
   * @param {import("./dom.js").Scope} scope
   * @param {import("./client.js").Client} client
   */
  constructor(scope, client) {
    this._client = client;
    this._asking = false;
    this._askedMs = -Infinity;
    this._isOpen = false;
    this._isLast = false;
    this._lines = [];
    this._runId = "";
    this._source = h("select", { class: "ddl-input", "aria-label": "Whose output" });
    this._filter = input("Filter", "Show only lines with this text");
    this._find = input("Find", "Mark this text in the lines shown");
    this._size = h("span", { class: "ddl-muted" });
    this._shown = new Shown(client);
    this._text = h("div", { class: "ddl-log", tabindex: "0", role: "log", "aria-live": "off", "aria-label": "Output" });
    this.element = h(
      "div",
      {},
      h("div", { class: "ddl-tools" }, this._source, this._filter, this._find, this._size),
      this._text,
      this._shown.element,
    );
    let typing = 0;
    scope.add(() => clearTimeout(typing));
    for (const field of [this._filter, this._find]) {
      scope.listen(field, "keydown", (event) => event.stopPropagation());
    }
    scope.listen(this._filter, "input", () => {
      clearTimeout(typing);
      typing = setTimeout(() => this._ask(true), TYPE_MS);
    });
    scope.listen(this._source, "change", () => this._ask(true));
    scope.listen(this._find, "input", () => this._draw());
    scope.every(() => {
      if (this._isOpen && !this._isLast && Date.now() - this._askedMs >= ASK_MS) this._ask(false);
    }, ASK_MS);
  }

  /** @param {boolean} isOpen */
  open(isOpen) {
    this._isOpen = isOpen;
    if (isOpen) this._ask(true);
  }

  /** @param {any} snapshot */
  update(snapshot) {
    this._runId = snapshot.run_id;
    this._isEnding = isFinal(snapshot.state);
    if (!this._isEnding) this._isLast = false;
    const wanted = sources(snapshot);
    const key = wanted.map((each) => each.value).join();
    if (key === this._key) return;
    this._key = key;
    const chosen = this._source.value;
    repeat(this._source, wanted, () => h("option"), (option, { value, label }) => {
      option.value = value;
      setText(option, label);
    });
    if (wanted.some((each) => each.value === chosen)) this._source.value = chosen;
  }

  async _ask(isNew) {
    if ((this._asking && !isNew) || this._runId === "") return;
    this._asking = true;
    this._askedMs = Date.now();
    const isLast = this._isEnding;
    const [kind, which] = this._source.value.split(" ");
    const wanted = { kind: "get_log", run_id: this._runId, contains: this._filter.value, n_lines: N_LINES };
    if (kind === "trial") wanted.trial = Number(which);
    if (kind === "rank") wanted.rank = Number(which);
    const key = JSON.stringify(wanted);
    this._wanted = key;
    const answer = await this._client.request(wanted);
    this._asking = false;
    if (this._wanted !== key) return;
    if (answer.kind === "log") {
      this._lines = answer.lines.map((line) => indented(line));
      setText(this._size, answer.n_bytes > 0 ? `${bytes(answer.n_bytes)} on disk` : "");
      setAttribute(this._size, "title", clean(answer.path, 300));
      this._isLast = isLast;
      this._shown.update(this._runId, answer.outputs ?? []);
    } else setText(this._size, clean(answer.text, 200));
    this._draw();
  }

  _draw() {
    const atEnd = this._text.scrollTop + this._text.clientHeight >= this._text.scrollHeight - 8;
    const wanted = this._find.value;
    const lines = this._lines.length > 0 ? this._lines : ["Nothing was printed."];
    repeat(this._text, lines, () => h("div"), (element, line) => marked(element, line, wanted));
    if (atEnd) this._text.scrollTop = this._text.scrollHeight;
    else if (wanted !== "" && wanted !== this._found) {
      this._text.querySelector("mark")?.scrollIntoView({ block: "nearest" });
    }
    this._found = wanted;
  }
}

function input(placeholder, label) {
  return h("input", { type: "search", class: "ddl-input", placeholder, "aria-label": label });
}

function sources(snapshot) {
  const all = [{ value: "run", label: "all output" }];
  if (snapshot.can.has_ranks) {
    for (const row of snapshot.ranks) all.push({ value: `rank ${row.rank}`, label: `rank ${row.rank}` });
    return all;
  }
  const noun = snapshot.nouns.trial;
  const numbers = new Set();
  if (snapshot.best !== null) numbers.add(snapshot.best.number);
  for (const row of snapshot.rows) if (row.state === "running" || row.state === "failed") numbers.add(row.number);
  for (const row of [...snapshot.rows].reverse()) if (numbers.size < 24) numbers.add(row.number);
  for (const number of numbers) {
    const suffix = number === snapshot.best?.number ? " (best)" : "";
    all.push({ value: `trial ${number}`, label: `${noun} ${number}${suffix}` });
  }
  return all;
}

function indented(line) {
  const text = String(line);
  const space = text.match(/^[ \t]*/)[0].replace(/\t/g, "    ").slice(0, 80);
  return space + clean(text.trimStart(), MAX_LINE);
}

/** The line with what was found in it in elements of its own; never as markup. */
function marked(element, line, wanted) {
  if (wanted === "") {
    if (element.childElementCount > 0 || element.textContent !== line) element.textContent = line;
    return;
  }
  const low = line.toLowerCase();
  const find = wanted.toLowerCase();
  const parts = [];
  let from = 0;
  for (let at = low.indexOf(find); at >= 0 && parts.length < 50; at = low.indexOf(find, from)) {
    parts.push(document.createTextNode(line.slice(from, at)), h("mark", { text: line.slice(at, at + find.length) }));
    from = at + find.length;
  }
  element.replaceChildren(...parts, document.createTextNode(line.slice(from)));
}
