// Figures and tables of a trial, or of a run: pictures and text, nothing that could be executed; scripts in an SVG do
// not run in an image.

import { clean, h, repeat, setAttribute } from "./dom.js";

const PICTURES = new Set(["image/png", "image/jpeg", "image/gif", "image/svg+xml"]);
const BASE64 = /^[A-Za-z0-9+/]*={0,2}$/;
const MAX_LINES = 60;
const MAX_LINE = 300;

/** Asks for each output once, and again when it has been replaced; until then the former one stays. */
export class Shown {
  /** @param {import("./client.js").Client} client */
  constructor(client) {
    this._client = client;
    this._known = new Map();
    this._rows = [];
    this.element = h("div", { class: "ddl-shown" });
  }

  /**
   * @param {string} runId
   * @param {{trial: number, file: string, at_s: number}[]} rows in order
   */
  update(runId, rows) {
    this._rows = rows;
    for (const file of [...this._known.keys()]) {
      if (!rows.some((row) => row.file === file)) this._known.delete(file);
    }
    for (const row of rows) this._ask(runId, row);
    this._draw();
  }

  async _ask(runId, { trial, file, at_s: atS }) {
    const known = this._known.get(file) ?? {};
    if (known.atS === atS) return;
    known.atS = atS;
    this._known.set(file, known);
    const answer = await this._client.request({ kind: "get_output", run_id: runId, trial, file });
    if (known.atS !== atS) return;
    if (answer.kind === "output") known.answer = answer;
    else known.atS = null; // it may have been replaced: the next list tells
    this._draw();
  }

  _draw() {
    const there = this._rows.map(({ file }) => this._known.get(file)?.answer).filter(Boolean);
    repeat(this.element, there, () => h("div"), (place, answer) => {
      if (place.drawn === answer) return;
      place.drawn = answer;
      draw(place, answer);
    });
  }
}

function draw(place, { mime, content, alt }) {
  if (!PICTURES.has(mime) || !BASE64.test(content)) {
    const lines = String(content).split("\n").slice(0, MAX_LINES);
    place.replaceChildren(h("pre", { text: lines.map((line) => indented(line)).join("\n") }));
    return;
  }
  // A picture that gets another source shows the former one until the new one is decoded.
  if (place.firstChild?.localName !== "img") place.replaceChildren(h("img"));
  setAttribute(place.firstChild, "src", `data:${mime};base64,${content}`);
  setAttribute(place.firstChild, "alt", clean(alt, 300) || "Figure");
}

function indented(line) {
  const space = line.match(/^ */)[0].slice(0, 80);
  return space + clean(line.trimStart(), MAX_LINE);
}
