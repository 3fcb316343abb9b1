// Parallel coordinates of a search: one line per trial through its parameters to its objective.

import { clean, h, repeat, s, setAttribute, setText, show } from "./dom.js";
import { param, params, score } from "./format.js";
import { extent, makeScale } from "./scale.js";

const HEIGHT = 172;
const TOP = 24;
const BOTTOM = 18;
const SIDE = 30;
const MAX_AXES = 7;
const MAX_LINES = 160;
const DASH = 4;

/** The parameters of a search's trials. */
export class Parallel {
  /** @param {import("./dom.js").Scope} scope */
  constructor(scope) {
    this._readout = h("span", { class: "ddl-readout ddl-readout-wide" });
    this._lines = s("g", {});
    this._axes = s("g", {});
    this._svg = s(
      "svg",
      { class: "ddl-plot", height: HEIGHT, tabindex: "0", role: "img" },
      this._lines,
      this._axes,
    );
    this.element = h(
      "figure",
      { class: "ddl-chart" },
      h(
        "figcaption",
        {},
        h("span", { class: "ddl-chart-title", text: "Parameters" }),
        h("span", { class: "ddl-ramp", "aria-hidden": "true" }),
        this._readout,
      ),
      this._svg,
    );
    this._rows = [];
    this._at = null;
    this._width = 0;
    this._snapshot = null;
    scope.listen(this._svg, "pointermove", (event) => this._point(event));
    scope.listen(this._svg, "pointerleave", () => this._mark(null));
    scope.listen(this._svg, "blur", () => this._mark(null));
    scope.listen(this._svg, "keydown", (event) => this._key(event));
    scope.watchWidth(this._svg, (width) => {
      this._width = width;
      if (this._rows.length > 1) this._draw();
    });
  }

  /**
   * @param {any} snapshot
   * @param {readonly any[]} [rows] of trials; by default those of the snapshot
   */
  update(snapshot, rows = snapshot.rows) {
    this._snapshot = snapshot;
    this._rows = rows
      .filter((row) => row.value !== null && Object.keys(row.params).length > 0)
      .slice(-MAX_LINES);
    show(this.element, this._rows.length > 1);
    if (this._rows.length > 1) this._draw();
  }

  _draw() {
    if (this._width === 0) this._width = Math.round(this._svg.clientWidth) || 480;
    const snapshot = this._snapshot;
    const metric = clean(snapshot.metric ?? "value", 18);
    const names = paramNames(this._rows).slice(0, MAX_AXES - 1);
    const low = HEIGHT - BOTTOM;
    this._columns = [
      ...names.map((name) => axisOf(clean(name, 18), this._rows.map((row) => row.params[name]), low)),
      axisOf(metric, this._rows.map((row) => row.value), low),
    ];
    const gap = (this._width - 2 * SIDE) / Math.max(1, this._columns.length - 1);
    this._places = this._columns.map((_, index) => SIDE + index * gap);
    const best = snapshot.best?.number ?? -1;
    const range = extent(this._rows.map((row) => row.value)) ?? [0, 1];
    const sign = snapshot.mode === "min" ? -1 : 1;
    const goodness = (value) => {
      const share = range[1] > range[0] ? (value - range[0]) / (range[1] - range[0]) : 1;
      return sign > 0 ? share : 1 - share;
    };
    this._ordered = [...this._rows].sort(
      (a, b) => Number(a.number === best) - Number(b.number === best) || goodness(a.value) - goodness(b.value),
    );
    this._polylines = this._ordered.map((row) =>
      this._columns.map((axis, i) => {
        const isLast = i === this._columns.length - 1;
        if (!isLast && !(names[i] in row.params)) return null;
        return [this._places[i], axis.place(isLast ? row.value : row.params[names[i]])];
      }),
    );
    repeat(
      this._lines,
      this._ordered,
      () => s("path", { fill: "none" }),
      (path, row, index) => {
        setAttribute(path, "d", strand(this._polylines[index]));
        const isBest = row.number === best;
        setAttribute(path, "class", `ddl-strand${isBest ? " ddl-strand-best" : ""}`);
        path.style.stroke = isBest ? "var(--ddl-green)" : ramp(goodness(row.value));
      },
    );
    this._drawAxes(low);
    setAttribute(this._svg, "viewBox", `0 0 ${this._width} ${HEIGHT}`);
    this._mark(this._at);
  }

  _drawAxes(low) {
    repeat(
      this._axes,
      this._columns,
      () => s("g", {}, s("line", { class: "ddl-axis" }), s("text", { class: "ddl-axis-name" }), s("g", {})),
      (group, axis, index) => {
        const [line, name, ticks] = group.children;
        const x = this._places[index].toFixed(1);
        const last = index === this._columns.length - 1;
        const anchor = index === 0 ? "start" : last ? "end" : "middle";
        for (const [key, value] of [["x1", x], ["x2", x], ["y1", TOP], ["y2", low]]) setAttribute(line, key, value);
        setAttribute(name, "x", index === 0 ? 4 : last ? this._width - 4 : x);
        setAttribute(name, "y", 12);
        setAttribute(name, "text-anchor", anchor);
        setText(name, axis.name);
        repeat(
          ticks,
          axis.ticks,
          () => s("text", { class: "ddl-axis-tick" }),
          (text, [y, label]) => {
            setAttribute(text, "x", last ? (this._places[index] - 5).toFixed(1) : (this._places[index] + 5).toFixed(1));
            setAttribute(text, "y", Math.min(low, Math.max(TOP + 8, y + 3)).toFixed(1));
            setAttribute(text, "text-anchor", last ? "end" : "start");
            setText(text, label);
          },
        );
      },
    );
  }

  _point(event) {
    if (this._polylines === undefined) return;
    const box = this._svg.getBoundingClientRect();
    const x = (event.clientX - box.left) * (this._width / Math.max(1, box.width));
    const y = event.clientY - box.top;
    let found = null;
    let least = 14;
    this._polylines.forEach((line, index) => {
      const distance = Math.abs(heightAt(line, x) - y);
      if (distance <= least) [least, found] = [distance, this._ordered[index].number];
    });
    this._mark(found);
  }

  _key(event) {
    const step = { ArrowUp: 1, ArrowDown: -1 }[event.key];
    if (event.key === "Escape") this._mark(null);
    if (step === undefined || this._ordered === undefined) return;
    event.preventDefault();
    const numbers = this._ordered.map((row) => row.number);
    const at = this._at === null ? numbers.length - 1 - step : numbers.indexOf(this._at);
    this._mark(numbers[Math.min(numbers.length - 1, Math.max(0, at + step))]);
  }

  _mark(number_) {
    this._at = number_;
    const ordered = this._ordered ?? [];
    let row = null;
    ordered.forEach((each, index) => {
      const path = this._lines.children[index];
      const isMarked = each.number === number_;
      if (isMarked) row = each;
      path.classList.toggle("ddl-strand-marked", isMarked);
    });
    const metric = clean(this._snapshot?.metric ?? "value", 24);
    const text = row === null
      ? `${ordered.length} trials`
      : `#${row.number} · ${params(row.params, 24, 6)} · ${metric} ${score(row.value)}`;
    setText(this._readout, text);
    setAttribute(this._svg, "aria-label", `Parameters of ${ordered.length} trials. ${text}`);
  }
}

/** From muted to strong. */
function ramp(share) {
  const amount = Math.round(18 + 82 * Math.min(1, Math.max(0, share)));
  return `color-mix(in srgb, var(--ddl-blue) ${amount}%, var(--ddl-dim))`;
}

function axisOf(name, values, low) {
  const known = values.filter((value) => value !== null && value !== undefined);
  const isNumeric = known.length > 0 && known.every((value) => typeof value === "number" && Number.isFinite(value));
  const distinct = new Set(known);
  if (isNumeric && distinct.size > 1) return numericAxis(name, known, low);
  const labels = [...new Set(known.map((value) => param(value, 14)))].sort();
  const step = (low - TOP) / Math.max(1, labels.length);
  const place = (value) => low - step / 2 - Math.max(0, labels.indexOf(param(value, 14))) * step;
  const shown = labels.length > 8 ? [] : labels.map((label, index) => [low - step / 2 - index * step, label]);
  return { name, place, ticks: shown };
}

function numericAxis(name, known, low) {
  const [least, most] = extent(known);
  const isLog = least > 0 && most / least >= 30;
  const scale = makeScale(least, most, low, TOP, { log: isLog, round: false, nTicks: 3 });
  // As the table writes them, but with three digits: there is no room for more.
  const label = (value) => param(Number.isInteger(value) ? value : Number(value.toPrecision(3)));
  const ends = [least, most].map((value) => [scale.place(value), label(value)]);
  const place = (value) =>
    typeof value === "number" && Number.isFinite(value) ? scale.place(value) : low;
  return { name, place, ticks: ends };
}

/** Names of all parameters: a trial has only those of its branch. */
export function paramNames(rows) {
  const most = [...rows].sort((a, b) => Object.keys(b.params).length - Object.keys(a.params).length);
  return [...new Set(most.flatMap((row) => Object.keys(row.params)))];
}

/**
 * The path of a trial, with a gap at each axis that it does not have (null).  A place between two
 * gaps is a dash on its axis.
 * @param {readonly (readonly [number, number] | null)[]} points
 */
export function strand(points) {
  let d = "";
  points.forEach((point, i) => {
    if (point === null) return;
    const [x, y] = point.map((each) => each.toFixed(1));
    const before = points[i - 1] ?? null;
    if (before !== null) {
      const middle = ((before[0] + point[0]) / 2).toFixed(1);
      d += `C${middle} ${before[1].toFixed(1)} ${middle} ${y} ${x} ${y}`;
    } else if ((points[i + 1] ?? null) === null) {
      d += `M${(point[0] - DASH).toFixed(1)} ${y}H${(point[0] + DASH).toFixed(1)}`;
    } else {
      d += `M${x} ${y}`;
    }
  });
  return d;
}

function heightAt(points, x) {
  for (let i = 1; i < points.length; i++) {
    if (points[i - 1] === null || points[i] === null) continue;
    const [x0, y0] = points[i - 1];
    const [x1, y1] = points[i];
    if (x < x0 || x > x1) continue;
    const t = (x - x0) / (x1 - x0 || 1);
    const ease = t * t * (3 - 2 * t);
    return y0 + (y1 - y0) * ease;
  }
  return Infinity;
}
