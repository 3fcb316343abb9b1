// Lanes of a rank group: where each rank is, how far, what its steps are made of, and when it last moved.

import { clean, h, repeat, setAttribute, setText, show } from "./dom.js";
import { bytes, count, duration, number, percent } from "./format.js";
import { Shown } from "./shown.js";

const PHASES = { loading: "loading", rendezvous: "meeting", cell: "running", leaving: "leaving" };
const SLOW_S = 5;
const LATE_S = 20;
const KINDS = [
  ["data", "data_s", "waits for data"],
  ["waiting", "waiting_s", "waits for slower ranks"],
  ["exchange", "exchange_s", "exchanges gradients"],
  ["compute", "compute_s", "compute, and all else"],
];

/**
 * The pieces of a rank's step as shares of it; of what is not measured there is none.
 * @param {any} parts a `StepParts`
 * @returns {{kind: string, name: string, share: number}[]}
 */
export function piecesOf(parts) {
  return KINDS.map(([kind, field, name]) => ({ kind, name, share: (parts[field] ?? 0) / parts.step_s })).filter(
    ({ share }) => Number.isFinite(share) && share > 0,
  );
}

/** One lane per rank of the latest round. */
export class Ranks {
  /** @param {import("./client.js").Client} client */
  constructor(client) {
    this._charts = new Shown(client);
    this._body = h("tbody");
    this._more = h("div", { class: "ddl-muted ddl-small-text" });
    const names = ["rank", "state", "step", "", "one step", "last step", "metrics", "place"];
    this._verdict = h("div", { class: "ddl-verdict", role: "status" });
    this._key = h(
      "div",
      { class: "ddl-muted ddl-small-text ddl-piece-key" },
      ...KINDS.map(([kind, , name]) => h("span", {}, h("i", { class: `ddl-piece-${kind}`, "aria-hidden": "true" }), h("span", { text: name }))),
    );
    this.element = h(
      "div",
      {},
      this._verdict,
      h(
        "div",
        { class: "ddl-scroll ddl-lanes", tabindex: "0", role: "region", "aria-label": "Ranks" },
        h(
          "table",
          { class: "ddl-table" },
          h("thead", {}, h("tr", {}, ...names.map((text, i) => h("th", { scope: "col", text, class: i === 0 ? "ddl-right" : null })))),
          this._body,
        ),
      ),
      this._key,
      this._more,
      this._charts.element,
    );
    this._heads = [...this.element.querySelectorAll("th")];
  }

  /**
   * @param {any} snapshot
   * @param {number} nowS Unix seconds at the sender
   */
  update(snapshot, nowS) {
    const isMeasured = snapshot.ranks.some((row) => (row.parts ?? null) !== null);
    const sent = snapshot.bytes_sent ?? null;
    const told = [clean(snapshot.step_verdict, 300), sent === null ? "" : `${bytes(sent)} sent`];
    const verdict = told.filter(Boolean).join("; ");
    setText(this._verdict, verdict);
    show(this._verdict, verdict !== "");
    show(this._key, isMeasured);
    show(this._heads[4], isMeasured);
    this._charts.update(snapshot.run_id, snapshot.charts ?? []);
    const furthest = Math.max(1, ...snapshot.ranks.map((row) => row.step ?? 0));
    repeat(
      this._body,
      snapshot.ranks,
      lane,
      (line, row) => this._update(line, row, furthest, nowS),
    );
    const hidden = snapshot.world_size - snapshot.n_to_come - snapshot.ranks.length;
    setText(this._more, hidden > 0 ? `and ${count(hidden)} more ranks` : "");
    show(this._more, hidden > 0);
  }

  _update(line, row, furthest, nowS) {
    const [rank, state, step, bar, parts, age, metrics, place] = line.children;
    const running = row.state === "running";
    setText(rank, String(row.rank));
    setText(state.firstChild, running ? PHASES[row.phase] ?? "running" : clean(row.state, 14));
    setAttribute(state.firstChild, "class", `ddl-dot ddl-is-${clean(row.state, 12)}`);
    setText(step, count(row.step));
    bar.firstChild.firstChild.style.width = `${Math.max(0, Math.min(100, (100 * (row.step ?? 0)) / furthest)).toFixed(1)}%`;
    setAttribute(bar.firstChild.firstChild, "class", `ddl-fill-${clean(row.state, 12)}`);
    show(parts, !this._heads[4].hidden);
    updateParts(parts, row.parts ?? null, row);
    const since = running && typeof row.heard_at_s === "number" ? Math.max(0, nowS - row.heard_at_s) : null;
    setText(age, since === null ? "–" : row.step === null ? `none for ${duration(since)}` : `${duration(since)} ago`);
    setAttribute(age, "class", since === null || since < SLOW_S ? "ddl-muted" : since < LATE_S ? "ddl-warm" : "ddl-hot");
    const pairs = Object.entries(row.metrics).slice(0, 3);
    setText(metrics, pairs.map(([name, value]) => `${clean(name, 20)} ${number(value)}`).join(" · "));
    setText(place, [row.host, row.worker, row.device].filter(Boolean).map((text) => clean(text, 28)).join(" → "));
    setAttribute(place, "title", `pid ${row.pid}`);
  }
}

function lane() {
  return h(
    "tr",
    {},
    h("td", { class: "ddl-right" }),
    h("td", {}, h("span")),
    h("td", { class: "ddl-right" }),
    h("td", { class: "ddl-lane-cell" }, h("div", { class: "ddl-lane", "aria-hidden": "true" }, h("i"))),
    h("td", {}, h("div", { class: "ddl-step" }, h("div", { class: "ddl-pieces", role: "img" }), h("span", { class: "ddl-muted" }))),
    h("td"),
    h("td"),
    h("td", { class: "ddl-muted" }),
  );
}

function updateParts(cell, parts, row) {
  const [bar, text] = cell.firstChild.children;
  const pieces = parts === null ? [] : piecesOf(parts);
  show(bar, pieces.length > 0);
  repeat(
    bar,
    pieces,
    () => h("i"),
    (piece, { kind, share }) => {
      setAttribute(piece, "class", `ddl-piece-${kind}`);
      piece.style.width = `${(100 * share).toFixed(2)}%`;
    },
  );
  const told = pieces.map(({ name, share }) => `${percent(share)} ${name}`).join(" · ");
  const facts = parts === null ? [] : [duration(parts.step_s)];
  if (typeof parts?.samples_s === "number") facts.push(`${number(Math.round(parts.samples_s))} samples/s`);
  if (typeof parts?.gradient_norm === "number") facts.push(`gradient ${number(parts.gradient_norm)}`);
  if (typeof row.bytes_per_step === "number") facts.push(`${bytes(row.bytes_per_step)} a step`);
  if (typeof row.peak_memory_bytes === "number") facts.push(`${bytes(row.peak_memory_bytes)} at most`);
  setAttribute(bar, "aria-label", told);
  setAttribute(cell, "title", [told, ...facts, parts?.exchange_s === null ? "exchange not measured" : ""].filter(Boolean).join(" · "));
  setText(text, facts.join(" · "));
}
