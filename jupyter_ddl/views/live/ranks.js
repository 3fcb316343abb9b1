// Lanes of a rank group: where each rank is, how far, in which phase, and when it last moved.

import { clean, h, repeat, setAttribute, setText, show } from "./dom.js";
import { count, duration, number } from "./format.js";

const PHASES = { loading: "loading", rendezvous: "meeting", cell: "running", leaving: "leaving" };
const SLOW_S = 5;
const LATE_S = 20;

/** One lane per rank of the latest round. */
export class Ranks {
  constructor() {
    this._body = h("tbody");
    this._more = h("div", { class: "ddl-muted ddl-small-text" });
    const names = ["rank", "state", "step", "", "last step", "metrics", "place"];
    this.element = h(
      "div",
      {},
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
      this._more,
    );
  }

  /**
   * @param {any} snapshot
   * @param {number} nowS Unix seconds at the sender
   */
  update(snapshot, nowS) {
    const furthest = Math.max(1, ...snapshot.ranks.map((row) => row.step ?? 0));
    repeat(
      this._body,
      snapshot.ranks,
      lane,
      (line, row) => this._update(line, row, furthest, nowS),
    );
    const hidden = snapshot.world_size - snapshot.ranks.length;
    setText(this._more, hidden > 0 ? `and ${count(hidden)} more ranks` : "");
    show(this._more, hidden > 0);
  }

  _update(line, row, furthest, nowS) {
    const [rank, state, step, bar, age, metrics, place] = line.children;
    const running = row.state === "running";
    setText(rank, String(row.rank));
    setText(state.firstChild, running ? PHASES[row.phase] ?? "running" : clean(row.state, 14));
    setAttribute(state.firstChild, "class", `ddl-dot ddl-is-${clean(row.state, 12)}`);
    setText(step, count(row.step));
    bar.firstChild.firstChild.style.width = `${Math.max(0, Math.min(100, (100 * (row.step ?? 0)) / furthest)).toFixed(1)}%`;
    setAttribute(bar.firstChild.firstChild, "class", `ddl-fill-${clean(row.state, 12)}`);
    const since = running && typeof row.heard_at_s === "number" ? Math.max(0, nowS - row.heard_at_s) : null;
    setText(age, since === null ? "–" : `${duration(since)} ago`);
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
    h("td"),
    h("td"),
    h("td", { class: "ddl-muted" }),
  );
}
