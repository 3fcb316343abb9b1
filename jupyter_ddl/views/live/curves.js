// Which charts a run has: objective per trial and best so far of a search, series of a training.

import { Chart } from "./chart.js";
import { isFinal } from "./client.js";
import { clean, h, Scope, show } from "./dom.js";
import { count, number, score } from "./format.js";
import { rangesOf } from "./plot.js";

const COLORS = ["var(--ddl-blue)", "var(--ddl-orange)", "var(--ddl-violet)", "var(--ddl-green)"];
const MAX_CHARTS = 4;

/** The charts of one run. */
export class Curves {
  /**
   * @param {Scope} scope
   * @param {any[] | null} [record] of a recording: all snapshots
   */
  constructor(scope, record = null) {
    this._scope = scope;
    this._whole = record === null ? null : wholeOf(record);
    this._charts = [];
    this.element = h("div", { class: "ddl-charts" });
  }

  /** @param {any} snapshot */
  update(snapshot) {
    const wanted = chartsOf(snapshot);
    while (this._charts.length > wanted.length) this._charts.pop().element.remove();
    while (this._charts.length < wanted.length) {
      const chart = new Chart(this._scope);
      this._charts.push(chart);
      this.element.append(chart.element);
    }
    wanted.forEach((data, index) => this._charts[index].update(data, this._whole?.get(data.title) ?? null));
    show(this.element, wanted.length > 0);
  }
}

/**
 * What is to be drawn of a run.
 * @param {any} snapshot
 * @returns {import("./chart.js").ChartData[]}
 */
export function chartsOf(snapshot) {
  const isOver = isFinal(snapshot.state);
  if (snapshot.can.has_objective) return searchCharts(snapshot).map((chart) => ({ ...chart, isOver }));
  const series = Object.entries(snapshot.series ?? {}).filter(([, points]) => points.length > 0);
  // A loss first, whatever was reported first.
  series.sort(([a], [b]) => Number(/loss/i.test(b)) - Number(/loss/i.test(a)));
  return series.slice(0, MAX_CHARTS).map(([name, points], index) => ({
    title: clean(name, 40),
    xName: "step",
    write: number,
    isOver,
    rules: restartsOf(snapshot),
    series: [{ name: clean(name, 24), color: COLORS[index % COLORS.length], points, kind: "line" }],
  }));
}

/** Where rounds went on from a checkpoint. */
function restartsOf(snapshot) {
  return (snapshot.restarts ?? [])
    .filter((row) => row.is_over)
    .map((row) => ({ x: row.step ?? 0, text: `round ${row.round + 1} went on from step ${count(row.step ?? 0)}` }));
}

/** By title, what the axes of a chart have to show from the first to the last moment of a recording. */
function wholeOf(record) {
  const all = new Map();
  for (const snapshot of record) {
    for (const chart of chartsOf(snapshot)) {
      if (!all.has(chart.title)) all.set(chart.title, { xs: new Set(), points: new Map(), reached: new Set() });
      const whole = all.get(chart.title);
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
  return new Map([...all].map(([title, whole]) => [title, flat(whole)]));
}

function searchCharts(snapshot) {
  const metric = clean(snapshot.metric ?? "value", 40);
  const charts = [];
  if (snapshot.curve.length > 0) {
    const best = snapshot.best;
    charts.push({
      title: `${metric} by trial`,
      xName: "trial",
      write: score,
      series: [
        { name: "best", color: "var(--ddl-green)", points: bestByTrial(snapshot), kind: "step" },
        { name: "value", color: "var(--ddl-blue)", points: snapshot.curve, kind: "dots" },
      ],
      marked: best === null ? null : [best.number, best.value],
    });
  }
  const learning = (snapshot.learning ?? []).filter((each) => each.points.length > 0);
  if (learning.length > 0) {
    // The legend has room for two.
    const newest = Math.max(...learning.map((each) => (each.state === "running" ? each.trial : -1)));
    charts.push({
      title: `${metric} by step`,
      xName: "step",
      write: score,
      series: learning.map((each, index) => ({
        name: each.trial === snapshot.best?.number ? `best #${each.trial}` : `#${each.trial}`,
        color: each.trial === snapshot.best?.number ? "var(--ddl-green)" : COLORS[[0, 1, 2][index % 3]],
        points: each.points,
        kind: "line",
        faint: each.state !== "running" && each.trial !== snapshot.best?.number,
        unnamed: each.trial !== newest && each.trial !== snapshot.best?.number,
      })),
    });
  }
  return charts;
}

/** Best value up to each trial, by trial numbers: the curve of a search as a person reads it. */
function bestByTrial(snapshot) {
  const sign = snapshot.mode === "min" ? -1 : 1;
  const points = [];
  let best = -Infinity;
  for (const [trial, value] of snapshot.curve) {
    if (value === null || sign * value <= best) continue;
    best = sign * value;
    points.push([trial, value]);
  }
  return points;
}
