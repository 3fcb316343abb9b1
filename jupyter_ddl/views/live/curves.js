// Which charts a run has: objective per trial and best so far of a search, series of a training.

import { Chart } from "./chart.js";
import { isFinal } from "./client.js";
import { clean, h, repeat, Scope, setText, show } from "./dom.js";
import { restartsOf } from "./fields.js";
import { count, number, score } from "./format.js";
import { through } from "./lens.js";
import { smoothingField, wholeAxisButton } from "./lensed.js";
import { rangesOf } from "./plot.js";
import { NUMBER } from "./selection.js";

const COLORS = ["var(--ddl-blue)", "var(--ddl-orange)", "var(--ddl-violet)", "var(--ddl-green)"];
const MAX_CHARTS = 4;
const BY_TRIAL = "trial";
const MANY_TRIALS = 1000;
const REST_MS = 1000;
const REST_FACTOR = 20;

/** The charts of one run, and which of them are shown. */
export class Curves {
  /**
   * @param {Scope} scope
   * @param {import("./selection.js").Selection} selection
   * @param {(trial: number) => void} choose
   * @param {any[] | null} [record] of a recording: all snapshots
   */
  constructor(scope, selection, choose, record = null) {
    this._scope = scope;
    this._choose = choose;
    this._selection = selection;
    this._isReplay = record !== null;
    this._nextMs = 0;
    this._whole = record === null ? null : wholeOf(record);
    this._charts = new Map();
    this._picked = new Map();
    this._snapshot = null;
    this._picks = h("div", { class: "ddl-picks", role: "group", "aria-label": "Curves that are shown" });
    this._find = h("input", { type: "search", class: "ddl-input", placeholder: "Find", "aria-label": "Find a metric" });
    this._summary = h("summary");
    this._note = h("span", { class: "ddl-muted" });
    this._picker = h("details", { class: "ddl-picker" }, this._summary, this._find, this._picks, this._note);
    this._zooms = new Map(); // what the charts' horizontal axes count, and from where to where
    this._smooth = smoothingField(scope, () => this._again());
    this._unzoom = wholeAxisButton(scope, () => this._zoom(null, null));
    this._tools = h(
      "div",
      { class: "ddl-tools ddl-curve-tools" },
      this._smooth,
      this._unzoom,
      h("span", { class: "ddl-muted ddl-small-text", text: "Drag across a curve to enlarge; by keyboard Shift+arrows, then Enter." }),
    );
    this.element = h("div", { class: "ddl-charts" }, this._picker, this._tools);
    scope.listen(this._find, "input", () => this._drawPicks(this._all));
    scope.listen(this._find, "keydown", (event) => event.stopPropagation());
  }

  /**
   * @param {any} snapshot
   * @param {import("./columns.js").Columns | null} [columns] all trials
   */
  update(snapshot, columns = this._columns ?? null) {
    this._snapshot = snapshot;
    this._columns = columns;
    const isFew = columns === null || columns.n <= MANY_TRIALS;
    const mark = `${columns?.version} ${this._selection.version}`;
    // A brush is answered at once, a chart of very many trials drawn anew when there is time.
    const nowMs = Date.now();
    if (!isFew && nowMs < this._nextMs && this._brushed === this._selection.version && snapshot.run_id === this._runId) return;
    if (!isFew && mark === this._mark && snapshot.run_id === this._runId) return;
    [this._mark, this._brushed, this._runId] = [mark, this._selection.version, snapshot.run_id];
    // One scale is right for a recording as it is told by its snapshots.
    const usable = this._isReplay || columns === null || columns.isSample || columns.n === 0 ? null : columns;
    const all = (this._all = chartsOf(snapshot, usable, this._chosen(columns)));
    const wanted = all.filter((data, index) => this._isPicked(data, index));
    for (const [key, chart] of this._charts) {
      if (wanted.some((data) => data.key === key)) continue;
      chart.element.remove();
      this._charts.delete(key);
    }
    let last = this._tools;
    for (const data of wanted) {
      if (!this._charts.has(data.key)) this._charts.set(data.key, this._chart());
      const chart = this._charts.get(data.key);
      if (last.nextSibling !== chart.element) last.after(chart.element);
      last = chart.element;
      const lens = { weight: Number(this._smooth.value), zoom: this._zoomOf(data.xName) };
      chart.update(through(data, lens), lens.zoom === null ? this._whole?.get(data.key) ?? null : null);
    }
    show(this._unzoom, this._zooms.size > 0 || this._selection.brushes.has(NUMBER));
    // With the first chart: what comes later would move what stands below.
    show(this._tools, wanted.length > 0);
    this._drawPicks(all);
    show(this.element, all.length > 0);
    if (!isFew) this._nextMs = nowMs + Math.max(REST_MS, REST_FACTOR * (Date.now() - nowMs));
  }

  /** All charts with the same axis have one cursor, and one enlarged part. */
  _chart() {
    const chart = new Chart(this._scope, {
      onMove: (xName, at) => {
        for (const other of this._charts.values()) if (other !== chart) other.follow(xName, at);
      },
      onZoom: (xName, range) => this._zoom(xName, range),
      onPick: this._choose,
    });
    return chart;
  }

  /** Whether a trial is within all brushes, by its number; null: nothing is brushed. */
  _chosen(columns) {
    const mask = columns === null ? null : this._selection.mask(columns);
    return mask === null ? null : (number) => mask[columns.rowOf(number)] === 1;
  }

  /** The part of the trials that is enlarged is a choice among them, for all parts of the view. */
  _zoomOf(xName) {
    const brush = xName === BY_TRIAL ? this._selection.brushes.get(NUMBER) : undefined;
    return brush === undefined ? (this._zooms.get(xName) ?? null) : [brush.low, brush.high];
  }

  _zoom(xName, range) {
    if (range === null) {
      this._zooms.clear();
      this._selection.brush(NUMBER, null);
    } else if (xName === BY_TRIAL) this._selection.brush(NUMBER, { low: range[0], high: range[1] });
    else this._zooms.set(xName, range);
    for (const chart of this._charts.values()) chart.forget();
    this._again();
  }

  /** At once, however many trials there are. */
  _again() {
    this._mark = "";
    this._nextMs = 0;
    this.update(this._snapshot);
  }

  _isPicked(data, index) {
    return this._picked.get(data.key) ?? index < MAX_CHARTS;
  }

  _drawPicks(all) {
    const nShown = all.filter((data, index) => this._isPicked(data, index)).length;
    const nMetrics = Math.max(all.length, this._snapshot.n_metrics ?? 0);
    show(this._picker, !this._snapshot.can.has_objective && nMetrics > 1);
    setText(this._summary, `Metrics: ${count(nShown)} of ${count(nMetrics)}`);
    setText(this._note, nMetrics > all.length ? `${count(nMetrics - all.length)} more have no curve` : "");
    show(this._find, all.length > 8);
    const wanted = this._find.value.trim().toLowerCase();
    const found = all.map((data, index) => [data, index]).filter(([data]) => data.title.toLowerCase().includes(wanted));
    repeat(
      this._picks,
      found,
      () => this._pick(),
      (label, [data, index]) => {
        label.ddlKey = data.key;
        const isShown = this._isPicked(data, index);
        if (label.firstChild.checked !== isShown) label.firstChild.checked = isShown;
        setText(label.lastChild, data.title);
      },
    );
  }

  _pick() {
    const box = h("input", { type: "checkbox" });
    const label = h("label", {}, box, h("span"));
    box.addEventListener("change", () => {
      this._picked.set(label.ddlKey, box.checked);
      this._again();
    });
    return label;
  }
}

/**
 * What is to be drawn of a run.
 * @param {any} snapshot
 * @param {import("./columns.js").Columns | null} [columns] all trials, where they are known
 * @param {((trial: number) => boolean) | null} [isChosen] whether a trial is; null: all are
 * @returns {(import("./plot.js").ChartData & {key: string})[]} the most important ones first
 */
export function chartsOf(snapshot, columns = null, isChosen = null) {
  const isOver = isFinal(snapshot.state);
  if (snapshot.can.has_objective) return searchCharts(snapshot, columns, isChosen).map((chart) => ({ ...chart, isOver }));
  const series = (snapshot.metrics ?? []).map((name) => [name, snapshot.series[name] ?? []]);
  return series.filter(([, points]) => points.length > 0).map(([name, points], index) => ({
    key: `metric ${name}`,
    title: clean(name, 40),
    xName: "step",
    write: number,
    isOver,
    rules: restartsOf(snapshot.restarts),
    series: [{ name: clean(name, 24), color: COLORS[index % COLORS.length], points, kind: "line" }],
  }));
}

/** By key, what the axes of a chart have to show from the first to the last moment of a recording. */
function wholeOf(record) {
  const all = new Map();
  for (const snapshot of record) {
    for (const chart of chartsOf(snapshot)) {
      if (!all.has(chart.key)) all.set(chart.key, { xs: new Set(), points: new Map(), reached: new Set() });
      const whole = all.get(chart.key);
      for (const series of chart.series) {
        for (const [x, value] of series.points) {
          whole.xs.add(x);
          whole.points.set(`${series.name} ${x} ${value}`, value);
        }
      }
      for (const value of rangesOf(chart).reached) whole.reached.add(value);
    }
  }
  const flat = ({ xs, points, reached }) => ({ xs: [...xs], values: [...points.values()], reached: [...reached] });
  return new Map([...all].map(([key, whole]) => [key, flat(whole)]));
}

/** Trials that have ended with a value, by what is drawn of them. */
function endedOf(snapshot, columns, isChosen) {
  const parts = { ended: [], pruned: [], others: [], best: [] };
  const add = (point, isComplete) => {
    if (isComplete) parts.best.push(point);
    parts[isChosen !== null && !isChosen(point[0]) ? "others" : isComplete ? "ended" : "pruned"].push(point);
  };
  if (columns === null) {
    const pruned = new Set(snapshot.pruned);
    for (const point of snapshot.curve) add(point, !pruned.has(point[0]));
    return parts;
  }
  const value = columns.own("value");
  for (let row = 0; row < columns.n; row++) {
    const state = columns.state(row);
    if ((state !== "complete" && state !== "pruned") || value === null || !Number.isFinite(value.data[row])) continue;
    add([columns.number(row), value.data[row]], state === "complete");
  }
  return parts;
}

function searchCharts(snapshot, columns, isChosen) {
  const metric = clean(snapshot.metric ?? "value", 40);
  const charts = [];
  const parts = endedOf(snapshot, columns, isChosen);
  if (parts.best.length + parts.pruned.length + parts.others.length > 0) {
    const best = snapshot.best;
    const dots = (name, color, points, faint) => ({
      name,
      color,
      points,
      kind: "dots",
      faint,
      unnamed: name === "others",
      isTrials: true,
      isSquare: name === "pruned",
    });
    charts.push({
      key: "by trial",
      title: `${metric} by trial`,
      xName: BY_TRIAL,
      write: score,
      series: [
        ...(parts.others.length > 0 ? [dots("others", "var(--ddl-dim)", parts.others, true)] : []),
        { name: "best", color: "var(--ddl-green)", points: bestByTrial(snapshot.mode, parts.best), kind: "step" },
        dots("value", "var(--ddl-blue)", parts.ended, false),
        ...(parts.pruned.length > 0 ? [dots("pruned", "var(--ddl-amber)", parts.pruned, false)] : []),
      ],
      marked: best === null ? null : [best.number, best.value],
    });
  }
  const isShown = ({ points, trial }) => points.length > 0 && (isChosen === null || isChosen(trial));
  const learning = (snapshot.learning ?? []).filter(isShown);
  if (learning.length > 0) {
    // The legend has room for two.
    const newest = Math.max(...learning.map((each) => (each.state === "running" ? each.trial : -1)));
    charts.push({
      key: "by step",
      title: `${metric} by step`,
      xName: "step",
      write: score,
      series: learning.map((each, index) => ({
        name: each.trial === snapshot.best?.number ? `best #${each.trial}` : `#${each.trial}`,
        color: each.trial === snapshot.best?.number ? "var(--ddl-green)" : COLORS[[0, 1, 2][index % 3]],
        points: each.points,
        trial: each.trial,
        kind: "line",
        faint: each.state !== "running" && each.trial !== snapshot.best?.number,
        unnamed: each.trial !== newest && each.trial !== snapshot.best?.number,
      })),
    });
  }
  return charts;
}

/** Best value up to each trial, by trial numbers: the curve of a search as a person reads it. */
function bestByTrial(mode, ended) {
  const sign = mode === "min" ? -1 : 1;
  const points = [];
  let best = -Infinity;
  for (const [trial, value] of ended) {
    if (value === null || sign * value <= best) continue;
    best = sign * value;
    points.push([trial, value]);
  }
  return points;
}
