// Points of two values of each trial; one can be pointed at, moved to by keys, and chosen.

import { clean, h, repeat, s, setAttribute, setText, show } from "./dom.js";
import { count, param, score } from "./format.js";
import { brushOf, dotsOf, pointsOf } from "./spread.js";

const HEIGHT = 170;
const TOP = 12;
const LOW = 136;
const RIGHT = 12;
const CHAR = 6.3;
const REACH_PX = 14;
/** "out": beside what is chosen; drawn first, and nobody's to point at. */
const STATES = ["out", "complete", "pruned", "running"];
const LEAST_BRUSH_PX = 6;

/** One pair of axes. */
export class Scatter {
  /**
   * @param {import("./dom.js").Scope} scope
   * @param {(trial: number) => void} choose
   * @param {((xName: string, brush: import("./selection.js").Brush | null) => void) | null} [onBrush] a part of the horizontal
   *   axis was chosen; null: taken back
   */
  constructor(scope, choose, onBrush = null) {
    this._choose = choose;
    this._onBrush = onBrush;
    this._from = null; // where a brush begins, in px
    this._part = s("rect", { class: "ddl-part-mark", y: TOP, height: LOW - TOP });
    this._title = h("span", { class: "ddl-chart-title" });
    this._readout = h("span", { class: "ddl-readout ddl-readout-wide" });
    this._grid = s("g", { class: "ddl-grid" });
    this._labels = s("g", { class: "ddl-labels" });
    this._front = s("path", { class: "ddl-front", fill: "none" });
    this._dots = Object.fromEntries(STATES.map((state) => [state, s("path", { class: `ddl-spot ddl-spot-${state}`, fill: "none" })]));
    this._best = s("circle", { r: 5, class: "ddl-best-mark" });
    this._mark = s("circle", { r: 6, class: "ddl-spot-mark", fill: "none" });
    this._svg = s("svg", { class: "ddl-plot", height: HEIGHT, tabindex: "0", role: "img" }, this._grid, this._part, this._labels, this._front, ...Object.values(this._dots), this._best, this._mark);
    this.element = h("figure", { class: "ddl-chart ddl-spread" }, h("figcaption", {}, this._title, this._readout), this._svg);
    this._width = 0;
    this._data = null;
    this._at = null;
    const listen = (kind, act) => this._svg.addEventListener(kind, act);
    listen("pointermove", (event) => {
      this._move(this._nearest(event));
      this._showPart(this._from, this._place(event)[0]);
    });
    listen("pointerdown", (event) => {
      if (this._onBrush !== null && event.button === 0 && event.pointerType !== "touch") this._from = this._place(event)[0];
    });
    listen("pointerleave", () => this._leave());
    listen("blur", () => this._leave());
    listen("click", (event) => {
      if (!this._brush(this._place(event)[0])) this._pick(this._nearest(event));
    });
    listen("keydown", (event) => this._key(event));
    scope.watchWidth(this._svg, (width) => {
      this._width = width;
      this._draw();
    });
  }

  destroy() {
    this._data = null;
    this.element.remove();
  }

  /** @param {{xName: string, yName: string, xs: any[], ys: number[], states: string[], numbers: number[], best: number, front?: number[]}} data */
  update(data) {
    this._data = data;
    this._draw();
  }

  _draw() {
    const data = this._data;
    if (data === null) return;
    if (this._width === 0) this._width = Math.round(this._svg.clientWidth) || 300;
    const placed = placedOf(data, this._width);
    this._placed = placed;
    const title = `${clean(data.yName, 24)} · ${clean(data.xName, 24)}`;
    setText(this._title, title);
    setAttribute(this._title, "title", `${clean(data.yName, 200)} against ${clean(data.xName, 200)}`);
    setAttribute(this._svg, "viewBox", `0 0 ${this._width} ${HEIGHT}`);
    this._drawAxes(placed);
    for (const state of STATES) setAttribute(this._dots[state], "d", dotsOf(placed.points.filter((point, i) => point !== null && data.states[i] === state)));
    setAttribute(this._front, "d", frontPath(data, placed));
    const best = data.numbers.indexOf(data.best);
    const point = best < 0 ? null : placed.points[best];
    show(this._best, point !== null);
    if (point !== null) {
      setAttribute(this._best, "cx", point[0].toFixed(1));
      setAttribute(this._best, "cy", point[1].toFixed(1));
    }
    // By place, so that keys go from left to right.
    this._order = placed.points.map((_, i) => i).filter((i) => placed.points[i] !== null && data.states[i] !== "out");
    this._order.sort((a, b) => placed.points[a][0] - placed.points[b][0] || placed.points[a][1] - placed.points[b][1]);
    const unknown = placed.nUnknown > 0 ? `, ${count(placed.nUnknown)} without a place` : "";
    const told = best < 0 || point === null ? "" : `; best ${score(data.ys[best])} at ${clean(param(data.xs[best], 24), 24)}`;
    setAttribute(this._svg, "aria-label", `${clean(data.yName, 60)} against ${clean(data.xName, 60)}: ${count(this._order.length)} trials${unknown}${told}. Arrow keys move, Enter shows a trial.${this._onBrush === null ? "" : " With Shift they choose a part, Enter keeps it, Escape takes it back."}`);
    this._rest = placed.nUnknown > 0 ? `× ${count(placed.nUnknown)} without a place` : "";
    if (this._at !== null && !this._order.includes(this._at)) this._at = null;
    this._move(this._at);
  }

  _drawAxes({ x, y, left, right }) {
    repeat(this._grid, y.ticks, () => s("line", {}), (line, [at]) => {
      for (const [name, value] of [["x1", left], ["x2", right], ["y1", at.toFixed(1)], ["y2", at.toFixed(1)]]) setAttribute(line, name, value);
    });
    const marks = [...y.ticks.map(([at, label]) => [left - 5, at + 4, label, "end"]), ...apart(x.ticks, left, right)];
    marks.push([(left + right) / 2, HEIGHT - 4, clean(this._data.xName, Math.max(4, Math.floor((right - left) / CHAR))), "middle"]);
    repeat(this._labels, marks, () => s("text", {}), (text, [atX, atY, label, anchor]) => {
      setAttribute(text, "x", atX.toFixed(1));
      setAttribute(text, "y", atY.toFixed(1));
      setAttribute(text, "text-anchor", anchor);
      setText(text, label);
    });
  }

  _place(event) {
    const box = this._svg.getBoundingClientRect();
    const scale = this._width / Math.max(1, box.width);
    return [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
  }

  _leave() {
    this._from = null;
    this._move(null);
    this._showPart(null, 0);
  }

  _showPart(from, to) {
    show(this._part, from !== null && Math.abs(to - from) >= 1);
    if (from === null) return;
    setAttribute(this._part, "x", Math.min(from, to).toFixed(1));
    setAttribute(this._part, "width", Math.abs(to - from).toFixed(1));
  }

  /** Choose what lies between where a brush began and here; whether it did. */
  _brush(to) {
    const from = this._from;
    this._from = null;
    this._showPart(null, 0);
    if (from === null || this._data === null || Math.abs(to - from) < LEAST_BRUSH_PX) return false;
    this._onBrush(this._data.xName, brushOf(this._placed.x, from, to));
    return true;
  }

  _nearest(event) {
    if (this._data === null) return null;
    const [px, py] = this._place(event);
    let [best, least] = [null, REACH_PX ** 2];
    for (const i of this._order) {
      const [x, y] = this._placed.points[i];
      const distance = (x - px) ** 2 + (y - py) ** 2;
      if (distance <= least) [best, least] = [i, distance];
    }
    return best;
  }

  _key(event) {
    if (this._data === null || this._order.length === 0) return;
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    if (event.key === "Escape") {
      this._leave();
      this._onBrush?.(this._data.xName, null);
    }
    if (event.key === "Enter" && this._at !== null && !event.shiftKey) {
      event.preventDefault();
      event.stopPropagation();
      // A point at the edge of a brush is in it.
      const [x] = this._placed.points[this._at];
      if (!this._brush(this._from !== null && x < this._from ? x - 1 : x + 1)) this._pick(this._at);
    }
    if (step === undefined) return;
    event.preventDefault();
    if (!event.shiftKey) this._from = null;
    else if (this._onBrush !== null && this._at !== null) this._from ??= this._placed.points[this._at][0] - Math.sign(step);
    const now = this._at === null ? (step > 0 ? -1 : this._order.length) : this._order.indexOf(this._at);
    this._move(this._order[Math.min(this._order.length - 1, Math.max(0, now + step))]);
    this._showPart(this._from, this._placed.points[this._at][0]);
  }

  _move(at) {
    this._at = at;
    const point = at === null ? null : this._placed.points[at];
    show(this._mark, point !== null);
    if (point === null) {
      setText(this._readout, this._rest ?? "");
      return;
    }
    setAttribute(this._mark, "cx", point[0].toFixed(1));
    setAttribute(this._mark, "cy", point[1].toFixed(1));
    const { numbers, states, xs, ys } = this._data;
    const state = states[at] === "complete" ? "" : ` (${states[at]})`;
    setText(this._readout, `trial ${numbers[at]}${state}: ${clean(param(xs[at], 24), 24)} → ${score(ys[at])}`);
  }

  _pick(at) {
    if (at !== null) this._choose(this._data.numbers[at]);
  }
}

/** Axes and points of a scatter of this width. */
export function placedOf({ xs, ys }, width) {
  const rough = pointsOf(xs, ys, { left: 0, right: width, top: TOP, low: LOW });
  const left = Math.max(26, Math.ceil(Math.max(0, ...rough.y.ticks.map(([, label]) => label.length)) * CHAR) + 9);
  const right = width - RIGHT;
  return { ...pointsOf(xs, ys, { left, right, top: TOP, low: LOW }), left, right };
}

function frontPath({ front = [] }, { points }) {
  const known = front.map((i) => points[i]).filter((point) => point !== null);
  // Between two points of the front nothing is known to be as good as both.
  return known.map(([x, y], i) => (i === 0 ? `M${x.toFixed(1)} ${y.toFixed(1)}h0` : `V${y.toFixed(1)}H${x.toFixed(1)}`)).join("");
}

/** Labels that do not overprint each other: cut where they are long, left out where there is no room. */
function apart(ticks, left, right) {
  const room = (right - left) / Math.max(1, ticks.length);
  const limit = Math.max(3, Math.floor(room / CHAR) - 1);
  const marks = [];
  let free = -Infinity;
  for (const [at, label] of ticks) {
    const text = clean(label, Math.max(limit, 6));
    const half = (text.length * CHAR) / 2;
    const middle = Math.min(right + RIGHT - half - 1, Math.max(half, at));
    if (middle - half < free) continue;
    free = middle + half + 4;
    marks.push([middle, LOW + 14, text, "middle"]);
  }
  return marks;
}
