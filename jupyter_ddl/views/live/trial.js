// One trial in full: values, machine, curves, output, and the cell that it was.

import { Chart } from "./chart.js";
import { clean, h, repeat, setAttribute, setText, show } from "./dom.js";
import { count, duration, param, score } from "./format.js";

const MAX_CHARTS = 6;
const AGAIN_MS = 5000;
const N_LINES = 40;
const MAX_LINE = 1000;
const SAID_MS = 4000;

/** Stands below the charts once a trial was chosen. */
export class TrialCard {
  /**
   * @param {import("./dom.js").Scope} scope
   * @param {import("./client.js").Client} client
   */
  constructor(scope, client) {
    this._scope = scope;
    this._client = client;
    this._number = null;
    this._cell = "";
    this._charts = [];
    this._title = h("h3", { class: "ddl-card-title", tabindex: "-1" });
    this._copy = h("button", { type: "button", class: "ddl-button", text: "Copy as cell" });
    this._close = h("button", { type: "button", class: "ddl-button", text: "Close" });
    this._said = h("span", { class: "ddl-muted", role: "status" });
    this._facts = h("dl", { class: "ddl-trial-facts" });
    this._note = h("p", { class: "ddl-muted ddl-note" });
    this._plots = h("div", { class: "ddl-charts" });
    this._code = h("pre", { class: "ddl-code", tabindex: "0" });
    this._codePart = h("details", {}, h("summary", { text: "The cell" }), this._code);
    this._log = h("pre", { class: "ddl-trial-log", tabindex: "0", "aria-label": "Output of the trial" });
    this.element = h(
      "section",
      { class: "ddl-card", "aria-label": "Trial", hidden: true },
      h("div", { class: "ddl-tools" }, this._title, this._copy, this._close, this._said),
      this._facts,
      this._note,
      this._plots,
      this._codePart,
      this._log,
    );
    scope.listen(this._copy, "click", () => this._copyCell());
    scope.listen(this._close, "click", () => this.close());
    scope.listen(this.element, "keydown", (event) => {
      if (event.key === "Escape") this.close();
    });
    scope.add(() => clearTimeout(this._saying));
  }

  /**
   * Show a trial; where the focus was is where it goes back to.
   * @param {number} number
   * @param {any} snapshot
   * @param {any} row what is known of it already, or null
   */
  open(number, snapshot, row) {
    if (this.element.hidden) this._before = this.element.getRootNode().activeElement;
    [this._number, this._snapshot, this._cell] = [number, snapshot, ""];
    show(this.element, true);
    this._draw(row, []);
    setText(this._note, "Reading the record…");
    setText(this._log, "");
    setText(this._said, "");
    this._offerCell("");
    this._title.focus({ preventScroll: true });
    this.element.scrollIntoView({ block: "nearest" });
    this._ask(number, snapshot, row);
  }

  close() {
    this._number = null;
    show(this.element, false);
    this._before?.focus?.({ preventScroll: true });
  }

  /** Another run, or an earlier moment of a recording. */
  update(snapshot) {
    if (this._number !== null && snapshot.run_id !== this._snapshot.run_id) this.close();
  }

  async _ask(number, snapshot, row) {
    const run = { run_id: snapshot.run_id, trial: number };
    const [answer, log] = await Promise.all([
      this._client.request({ kind: "get_trial", ...run }, AGAIN_MS),
      this._client.request({ kind: "get_log", ...run, contains: "", n_lines: N_LINES }),
    ]);
    if (this._number !== number || this._snapshot !== snapshot) return;
    if (answer.kind === "trial") {
      this._draw(answer.row, answer.curves, answer.steps);
      this._offerCell(answer.cell);
    } else if (row === null) this._draw(null, []);
    setText(this._note, clean(answer.kind === "trial" ? answer.note : answer.text, 400));
    show(this._note, this._note.textContent !== "");
    const lines = log.kind === "log" ? log.lines.map((line) => lineOf(line)) : [clean(log.text, 300)];
    setText(this._log, lines.length > 0 ? lines.join("\n") : "Nothing was printed.");
  }

  _draw(row, curves, steps) {
    const noun = this._snapshot.nouns.trial;
    const state = row === null ? "" : ` · ${clean(row.state, 12)}`;
    setText(this._title, `${noun[0].toUpperCase()}${noun.slice(1)} ${this._number}${state}`);
    setAttribute(this.element, "aria-label", `${noun} ${this._number}`);
    repeat(this._facts, row === null ? [] : factsOf(row, this._snapshot, steps), () => h("div", {}, h("dt"), h("dd")), (pair, [name, text]) => {
      setText(pair.firstChild, clean(name, 40));
      setAttribute(pair.firstChild, "title", clean(name, 200));
      setText(pair.lastChild, clean(text, 200));
    });
    const shown = curves.filter((curve) => curve.points.length > 1).slice(0, MAX_CHARTS);
    while (this._charts.length < shown.length) {
      const chart = new Chart(this._scope);
      this._charts.push(chart);
      this._plots.append(chart.element);
    }
    this._charts.forEach((chart, i) => {
      show(chart.element, i < shown.length);
      if (i < shown.length) chart.update(chartOf(shown[i], this._snapshot));
    });
  }

  _offerCell(cell) {
    this._cell = cell;
    show(this._copy, cell !== "");
    show(this._codePart, cell !== "");
    setText(this._code, cell);
  }

  async _copyCell() {
    let isCopied = false;
    try {
      await navigator.clipboard.writeText(this._cell);
      isCopied = true;
    } catch {
      // No permission, or a page without TLS: then it is marked, to be copied the older way or by hand.
      this._codePart.open = true;
      const range = document.createRange();
      range.selectNodeContents(this._code);
      const selection = document.getSelection();
      selection?.removeAllRanges();
      selection?.addRange(range);
      isCopied = document.execCommand("copy");
    }
    setText(this._said, isCopied ? "Copied: paste it into a cell." : "Marked below: copy it from there.");
    clearTimeout(this._saying);
    this._saying = setTimeout(() => setText(this._said, ""), SAID_MS);
  }
}

/** Names and texts of what a trial was. */
export function factsOf(row, snapshot, steps) {
  const facts = Object.entries(row.params).map(([name, value]) => [name, param(value, 60)]);
  if (snapshot.can.has_objective) facts.push([snapshot.metric ?? "value", score(row.value)]);
  if (row.step !== null && row.step !== undefined) facts.push([snapshot.nouns.step, count(row.step)]);
  if (row.worker) facts.push(["machine", row.worker]);
  if (row.duration_s !== null && row.duration_s !== undefined) facts.push(["time", duration(row.duration_s)]);
  if (row.attempts > 1) facts.push(["attempts", count(row.attempts)]);
  if (row.failure) facts.push([row.failure.type_name, row.failure.message]);
  if (steps) facts.push(["steps", steps]);
  return facts;
}

function chartOf({ metric, points }, snapshot) {
  return {
    title: clean(metric, 60),
    xName: snapshot.nouns.step,
    write: score,
    series: [{ name: clean(metric, 40), color: "var(--ddl-blue)", points, kind: "line" }],
  };
}

function lineOf(line) {
  const text = String(line);
  const space = text.match(/^ */)[0].slice(0, 80);
  return space + clean(text.trimStart(), MAX_LINE);
}
