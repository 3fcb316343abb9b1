// What a persistent group has executed: its last cells, the newest first.

import { clean, h, repeat, setAttribute, setText, show } from "./dom.js";
import { duration } from "./format.js";

/** A table of cells, or a sentence where there is none. */
export class Cells {
  constructor() {
    this._body = h("tbody");
    const names = ["cell", "outcome", "time", "ranks", "code"];
    const head = h("tr", {}, ...names.map((text) => h("th", { scope: "col", text })));
    this._table = h("table", { class: "ddl-table" }, h("thead", {}, head), this._body);
    this._none = h("div", { class: "ddl-muted", text: "No cell has been executed." });
    this.element = h(
      "div",
      { class: "ddl-scroll", tabindex: "0", role: "region", "aria-label": "Cells" },
      this._table,
      this._none,
    );
  }

  /** @param {any} snapshot */
  update(snapshot) {
    const rows = [...snapshot.cells].reverse();
    show(this._table, rows.length > 0);
    show(this._none, rows.length === 0);
    repeat(this._body, rows, line, (element, row) => {
      const [number, outcome, time, ranks, code] = element.children;
      setText(number, String(row.number));
      setText(outcome.firstChild, clean(row.outcome, 14));
      setAttribute(outcome.firstChild, "class", `ddl-dot ddl-is-${clean(row.outcome, 12)}`);
      setText(time, duration(row.duration_s));
      setText(ranks, row.targets.length > 8 ? `${row.targets.slice(0, 8).join(", ")}, …` : row.targets.join(", "));
      setText(code, clean(row.failure || row.source, 160));
      setAttribute(code, "title", clean(row.source, 500));
    });
  }
}

function line() {
  return h("tr", {}, h("td", { class: "ddl-right" }), h("td", {}, h("span")), h("td", { class: "ddl-right" }), h("td"), h("td"));
}
