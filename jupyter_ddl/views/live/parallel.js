// Parallel coordinates of a search: one line per trial through its parameters to its objective.

import { clean, h, repeat, s, setAttribute, setText, show } from "./dom.js";
import { count, param, params, score } from "./format.js";
import { extent, makeScale } from "./scale.js";

const HEIGHT = 180;
const TOP = 24;
const LOW = 162;
const SIDE = 30;
const MAX_AXES = 7;
const MAX_LINES = 160;
const DASH = 4;
const CHAR = 6.3;

/** The parameters of a search's trials. */
export class Parallel {
  /**
   * @param {import("./dom.js").Scope} scope
   * @param {readonly any[] | null} [record] of a recording: all snapshots
   */
  constructor(scope, record = null) {
    // By number, and of all objectives on their way: the axes hold whatever was ever shown.
    this._known = new Map();
    this._values = null;
    this._runId = "";
    this._isWhole = record !== null;
    for (const snapshot of record ?? []) this._learn(snapshot.rows);
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
    if (snapshot.run_id !== this._runId && !this._isWhole) [this._known, this._values] = [new Map(), null];
    this._runId = snapshot.run_id;
    this._rows = rows.filter(isDrawn).slice(-MAX_LINES);
    if (!this._isWhole) this._learn(this._rows);
    show(this.element, this._rows.length > 1);
    if (this._rows.length > 1) this._draw();
  }

  _summary(nShown) {
    const { complete = 0, pruned = 0, running = 0 } = this._snapshot?.counts ?? {};
    const nAll = Math.max(nShown, complete + pruned + running);
    const parts = [nAll > nShown ? `${count(nShown)} of ${count(nAll)} trials` : `${count(nShown)} trials`];
    if (this._nLeftOut > 0) parts.push(`${this._nLeftOut} more parameters`);
    return parts.join(" · ");
  }

  _learn(rows) {
    const drawn = rows.filter(isDrawn);
    for (const row of drawn) this._known.set(row.number, row);
    this._values = extent([...(this._values ?? []), ...drawn.map((row) => row.value)]);
  }

  _draw() {
    if (this._width === 0) this._width = Math.round(this._svg.clientWidth) || 480;
    const snapshot = this._snapshot;
    const metric = snapshot.metric ?? "value";
    const best = snapshot.best?.number ?? -1;
    const range = this._values ?? [0, 1];
    const sign = snapshot.mode === "min" ? -1 : 1;
    const goodness = (value) => {
      const share = range[1] > range[0] ? (value - range[0]) / (range[1] - range[0]) : 1;
      return sign > 0 ? share : 1 - share;
    };
    this._ordered = [...this._rows].sort(
      (a, b) => Number(a.number === best) - Number(b.number === best) || goodness(a.value) - goodness(b.value),
    );
    const how = { metric, width: this._width, known: [...this._known.values()], values: range };
    const { axes, gap, places, lines, unknown, nLeftOut } = strandsOf(this._ordered, how);
    Object.assign(this, { _columns: axes, _gap: gap, _places: places, _polylines: lines, _unknown: unknown, _nLeftOut: nLeftOut });
    repeat(
      this._lines,
      this._ordered,
      () => s("path", { fill: "none" }),
      (path, row, index) => {
        setAttribute(path, "d", strand(this._polylines[index]));
        const isBest = row.number === best;
        setAttribute(path, "class", `ddl-strand${isBest ? " ddl-strand-best" : row.state === "pruned" ? " ddl-strand-pruned" : ""}`);
        path.style.stroke = isBest ? "var(--ddl-green)" : ramp(goodness(row.value));
      },
    );
    this._drawAxes();
    setAttribute(this._svg, "viewBox", `0 0 ${this._width} ${HEIGHT}`);
    this._mark(this._at);
  }

  _drawAxes() {
    repeat(
      this._axes,
      this._columns,
      () => s("g", {}, s("line", { class: "ddl-axis" }), s("text", { class: "ddl-axis-name" }, s("tspan"), s("title")), s("g", {})),
      (group, axis, index) => {
        const [line, name, ticks] = group.children;
        const x = this._places[index].toFixed(1);
        const last = index === this._columns.length - 1;
        const anchor = index === 0 ? "start" : last ? "end" : "middle";
        for (const [key, value] of [["x1", x], ["x2", x], ["y1", TOP], ["y2", LOW]]) setAttribute(line, key, value);
        setAttribute(name, "x", index === 0 ? 4 : last ? this._width - 4 : x);
        setAttribute(name, "y", 12);
        setAttribute(name, "text-anchor", anchor);
        // Names give way to each other; hovering tells them in full.
        const nChars = Math.max(3, Math.floor(this._gap / CHAR) - 1);
        setText(name.firstChild, clean(axis.name, Math.min(18, nChars)));
        setText(name.lastChild, clean(axis.name, 200));
        repeat(
          ticks,
          this._unknown[index] > 0 ? [...axis.ticks, [LOW + 12, `× ${this._unknown[index]}`]] : axis.ticks,
          () => s("text", { class: "ddl-axis-tick" }),
          (text, [y, label]) => {
            setAttribute(text, "x", last ? (this._places[index] - 5).toFixed(1) : (this._places[index] + 5).toFixed(1));
            setAttribute(text, "y", (y > LOW ? y : Math.min(LOW, Math.max(TOP + 8, y + 3))).toFixed(1));
            setAttribute(text, "text-anchor", last ? "end" : "start");
            setText(text, clean(label, nChars));
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
      ? this._summary(ordered.length)
      : `#${row.number} · ${params(row.params, 24, 6)} · ${metric} ${score(row.value)}`;
    setText(this._readout, text);
    setAttribute(this._svg, "aria-label", `Parameters of ${ordered.length} trials. ${text}`);
  }
}

function isDrawn(row) {
  return Number.isFinite(row.value) && Object.keys(row.params).length > 0;
}

/** From muted to strong. */
function ramp(share) {
  const amount = Math.round(18 + 82 * Math.min(1, Math.max(0, share)));
  return `color-mix(in srgb, var(--ddl-blue) ${amount}%, var(--ddl-dim))`;
}

/**
 * An axis over all values of one name; what it can't show has no place on it (null).
 * @param {string} name
 * @param {unknown[]} values
 */
export function axisOf(name, values) {
  const known = values.filter((value) => value !== null && value !== undefined);
  const range = extent(known);
  const isNumeric = known.every((value) => typeof value === "number");
  if (isNumeric && range !== null && range[1] > range[0]) return numericAxis(name, range);
  // By their values: two long names may begin alike.
  const distinct = [...new Map(known.map((value) => [keyOf(value), value])).values()];
  distinct.sort((a, b) => (param(a) < param(b) ? -1 : 1));
  const step = (LOW - TOP) / Math.max(1, distinct.length);
  const placeAt = (index) => LOW - step / 2 - index * step;
  const indices = new Map(distinct.map((value, index) => [keyOf(value), index]));
  const place = (value) => (indices.has(keyOf(value)) ? placeAt(indices.get(keyOf(value))) : null);
  const shown = distinct.length > 8 ? [] : distinct.map((value, index) => [placeAt(index), param(value, 14)]);
  return { name, place, ticks: shown };
}

function keyOf(value) {
  return `${typeof value} ${value}`;
}

function numericAxis(name, [least, most]) {
  const isLog = least > 0 && most / least >= 30;
  const scale = makeScale(least, most, LOW, TOP, { log: isLog, round: false, nTicks: 3 });
  // As the table writes them, but with three digits: there is no room for more.
  const label = (value) => param(Number.isInteger(value) ? value : Number(value.toPrecision(3)));
  const ends = [least, most].map((value) => [scale.place(value), label(value)]);
  const place = (value) => (typeof value === "number" && scale.holds(value) ? scale.place(value) : null);
  return { name, place, ticks: ends };
}

/**
 * Axes of a search, and the places of each trial on them.
 * @param {readonly any[]} rows
 * @param {{metric: string, width: number, known: readonly any[], values: readonly number[]}} how
 *   `known`, `values`: rows and objectives that the axes are to hold, so that they stay what they are
 */
export function strandsOf(rows, { metric, width, known, values }) {
  const all = paramNames(known);
  const names = all.slice(0, MAX_AXES - 1);
  const axes = [
    ...names.map((name) => axisOf(name, known.map((row) => row.params[name]))),
    axisOf(metric, values),
  ];
  const gap = (width - 2 * SIDE) / Math.max(1, axes.length - 1);
  const places = axes.map((_, index) => SIDE + index * gap);
  const unknown = axes.map(() => 0);
  const lines = rows.map((row) =>
    axes.map((axis, i) => {
      const isLast = i === names.length;
      if (!isLast && !(names[i] in row.params)) return null;
      const y = axis.place(isLast ? row.value : row.params[names[i]]);
      if (y === null) unknown[i]++;
      return y === null ? null : [places[i], y];
    }),
  );
  return { axes, gap, places, lines, unknown, nLeftOut: all.length - names.length };
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
