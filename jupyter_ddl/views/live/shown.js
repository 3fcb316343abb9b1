// Figures and tables of a trial, or of a run: pictures and text, nothing that could be executed.

import { clean, h, repeat } from "./dom.js";

const PICTURES = new Set(["image/png", "image/jpeg", "image/gif"]);
const BASE64 = /^[A-Za-z0-9+/]*={0,2}$/;
const MAX_LINES = 60;
const MAX_LINE = 300;

/** Asks for each output once, and again when it has been replaced. */
export class Shown {
  /** @param {import("./client.js").Client} client */
  constructor(client) {
    this._client = client;
    this._known = new Map();
    this._keys = [];
    this.element = h("div", { class: "ddl-shown" });
  }

  /**
   * @param {string} runId
   * @param {{trial: number, file: string, at_s: number}[]} rows in order
   */
  update(runId, rows) {
    this._keys = rows.map((row) => `${row.file} ${row.at_s}`);
    for (const key of [...this._known.keys()]) if (!this._keys.includes(key)) this._known.delete(key);
    rows.forEach((row, n) => this._ask(runId, row, this._keys[n]));
    this._draw();
  }

  async _ask(runId, row, key) {
    if (this._known.has(key)) return;
    this._known.set(key, null);
    const answer = await this._client.request({ kind: "get_output", run_id: runId, trial: row.trial, file: row.file });
    if (!this._known.has(key)) return;
    if (answer.kind === "output") this._known.set(key, answer);
    else this._known.delete(key); // it may have been replaced: the next list tells
    this._draw();
  }

  _draw() {
    const there = this._keys.map((key) => [key, this._known.get(key)]).filter(([, answer]) => answer);
    repeat(this.element, there, () => h("div"), (place, [key, answer]) => {
      if (place.dataset.key === key) return;
      place.dataset.key = key;
      place.replaceChildren(drawn(answer));
    });
  }
}

function drawn({ mime, content }) {
  if (PICTURES.has(mime) && BASE64.test(content)) {
    return h("img", { src: `data:${mime};base64,${content}`, alt: "Figure" });
  }
  const lines = String(content).split("\n").slice(0, MAX_LINES);
  return h("pre", { text: lines.map((line) => indented(line)).join("\n") });
}

function indented(line) {
  const space = line.match(/^ */)[0].slice(0, 80);
  return space + clean(line.trimStart(), MAX_LINE);
}
