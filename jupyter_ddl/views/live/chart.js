// A line chart: one SVG, one path per series, a cursor for mouse and keyboard.

import { h, repeat, s, setAttribute, setText, show } from "./dom.js";
import { number } from "./format.js";
import { cellsOf, dots, Layer } from "./layer.js";
import { BOTTOM, CHAR, drawnOf, HEIGHT, outsideText, TOP } from "./plot.js";
import { Watched } from "./scale.js";

const NOTHING = "no numbers";
const REACH_PX = 14;

/** One chart with its title, legend, readout and switch for a logarithmic axis. */
export class Chart {
  /**
   * @param {import("./dom.js").Scope} scope
   * @param {{onMove?: (xName: string, at: number | null) => void, onZoom?: (xName: string, range: [number, number] | null) => void,
   *   onPick?: (trial: number) => void}} [link] what a chart is part of; `onPick`: of series that tell whose they are
   */
  constructor(scope, link = {}) {
    this._link = link;
    this._from = null; // where a part to enlarge begins
    this._isPart = false; // whether a part was chosen by the last press
    this._part = s("rect", { class: "ddl-part-mark", y: TOP, height: HEIGHT - BOTTOM - TOP });
    this._title = h("span", { class: "ddl-chart-title" });
    this._readout = h("span", { class: "ddl-readout" });
    this._log = toggle("log", "Logarithmic axis");
    this._full = toggle("full range", "");
    this._legend = h("span", { class: "ddl-legend" });
    this._grid = s("g", { class: "ddl-grid" });
    this._labels = s("g", { class: "ddl-labels" });
    this._lines = s("g", {});
    this._rules = s("g", { class: "ddl-rules" });
    this._outside = s("g", { class: "ddl-outside" });
    this._best = s("circle", { r: 5, class: "ddl-best-mark" });
    this._cursor = s("line", { class: "ddl-cursor" });
    this._points = s("g", {});
    this._svg = s(
      "svg",
      { class: "ddl-plot", height: HEIGHT, tabindex: "0", role: "img" },
      this._grid,
      this._part,
      this._labels,
      this._rules,
      this._lines,
      this._outside,
      this._best,
      this._cursor,
      this._points,
    );
    this._layer = new Layer(HEIGHT);
    this.element = h(
      "figure",
      { class: "ddl-chart" },
      h("figcaption", {}, this._title, this._legend, this._readout, this._full, this._log),
      h("div", { class: "ddl-layers" }, this._layer.element, this._svg),
    );
    this._isLog = false;
    this._isFull = false;
    this._isPointed = false;
    this._axes = { x: new Watched(), y: new Watched() };
    this._whole = null;
    this._drawn = null;
    this._at = null;
    this._width = 0;
    this._data = null;
    for (const [button, name] of [[this._log, "_isLog"], [this._full, "_isFull"]]) {
      scope.listen(button, "click", () => {
        this[name] = !this[name];
        setAttribute(button, "aria-pressed", String(this[name]));
        this._axes.y.forget();
        this._draw();
      });
    }
    scope.listen(this._svg, "pointerenter", () => (this._isPointed = true));
    scope.listen(this._svg, "pointermove", (event) => this._point(event.clientX));
    scope.listen(this._svg, "pointerdown", (event) => {
      this._isPart = false;
      if (link.onZoom !== undefined && event.button === 0 && event.pointerType !== "touch") this._from = this._at;
    });
    scope.listen(this._svg, "pointerup", () => this._enlarge());
    scope.listen(this._svg, "click", (event) => {
      if (!this._isPart) this._pick(event.clientX, event.clientY);
    });
    scope.listen(this._svg, "pointerleave", () => {
      this._isPointed = false;
      this._from = null;
      this._go(null);
    });
    scope.listen(this._svg, "blur", () => {
      this._from = null;
      this._go(null);
    });
    scope.listen(this._svg, "keydown", (event) => this._key(event));
    scope.watchWidth(this._svg, (width) => {
      this._width = width;
      this._draw();
    });
  }

  /**
   * @param {import("./plot.js").ChartData} data
   * @param {ReturnType<typeof import("./plot.js").rangesOf> | null} [whole] of a recording
   */
  update(data, whole = null) {
    if (this._data?.title !== data.title) for (const axis of Object.values(this._axes)) axis.forget();
    this._data = data;
    this._whole = whole;
    this._xs = Float64Array.from(new Set(data.series.flatMap((each) => each.points.map((point) => point[0])))).sort();
    setText(this._title, data.title);
    setAttribute(this._title, "title", data.title);
    const positive = data.series.some((each) => each.points.some((point) => point[1] !== null && point[1] > 0));
    show(this._log, positive);
    this._draw();
  }

  _draw() {
    const data = this._data;
    if (data === null) return;
    if (this._width === 0) this._width = Math.round(this._svg.clientWidth) || 480;
    const how = {
      width: this._width,
      isLog: this._isLog && !this._log.hidden,
      isFull: this._isFull,
      isWatched: this._isPointed || this._svg === this._svg.getRootNode().activeElement,
    };
    const drawn = (this._drawn = drawnOf(data, how, this._axes, this._whole));
    for (const part of this._svg.children) show(part, drawn !== null);
    const outside = drawn === null ? "" : outsideText(drawn.counts);
    show(this._full, drawn !== null && !how.isLog && (drawn.isCut || this._isFull));
    setAttribute(this._full, "title", outside === "" ? "Leave out what lies far away" : outside);
    setAttribute(this._svg, "viewBox", `0 0 ${this._width} ${HEIGHT}`);
    if (drawn !== null) this._place(drawn);
    if (drawn === null || drawn.clouds.length === 0) this._layer.hide();
    else this._paint(drawn.clouds);
    const reading = drawn === null ? NOTHING : [this._reading(null), outside].filter(Boolean).join(" · ");
    setAttribute(this._svg, "aria-label", `${data.title}: ${reading}`);
    this._move(this._at);
    if (drawn === null) setText(this._readout, NOTHING);
  }

  _place(drawn) {
    this._placeAxes(drawn);
    repeat(
      this._lines,
      drawn.paths,
      () => s("path", { fill: "none" }),
      (path, { d, kind, faint, color, series }) => {
        setAttribute(path, "d", d);
        const shape = series.isSquare === true ? " ddl-square" : "";
        setAttribute(path, "class", `ddl-${kind}${shape}${faint ? " ddl-faint" : ""}`);
        path.style.stroke = color;
      },
    );
    repeat(
      this._outside,
      drawn.outside,
      () => s("text", { "text-anchor": "middle" }),
      (text, mark) => {
        setAttribute(text, "x", mark.x.toFixed(1));
        setAttribute(text, "y", mark.y);
        setText(text, mark.text);
      },
    );
    repeat(
      this._rules,
      drawn.rules,
      () => s("line", {}, s("title")),
      (line, rule) => {
        const place = rule.at.toFixed(1);
        for (const [name, value] of [["x1", place], ["x2", place], ["y1", TOP], ["y2", HEIGHT - BOTTOM]]) {
          setAttribute(line, name, value);
        }
        setText(line.firstChild, rule.text);
      },
    );
    show(this._best, drawn.best !== null);
    if (drawn.best !== null) {
      setAttribute(this._best, "cx", drawn.best[0].toFixed(1));
      setAttribute(this._best, "cy", drawn.best[1].toFixed(1));
    }
  }

  _paint(clouds) {
    const pieces = clouds.map(({ places, color, faint }) => dots(cellsOf(places), this._layer.color(color), faint ? 0.35 : 0.6));
    this._layer.paint(this._width, [(pen) => pieces.forEach((piece) => piece(pen))]);
  }

  _placeAxes({ x, y, left, right }) {
    repeat(
      this._grid,
      y.ticks,
      () => s("line", {}),
      (line, tick) => {
        const at = y.place(tick).toFixed(1);
        for (const [name, value] of [["x1", left], ["x2", right], ["y1", at], ["y2", at]]) {
          setAttribute(line, name, value);
        }
      },
    );
    const nameFrom = right - this._data.xName.length * CHAR - 14;
    const marks = [
      ...y.ticks.map((tick, i) => [left - 6, y.place(tick) + 4, y.labels[i], "end"]),
      ...x.ticks.map((tick, i) => [
        x.place(tick) < left + 14 ? Math.max(left, x.place(tick) - 3) : x.place(tick),
        HEIGHT - 3,
        x.labels[i],
        x.place(tick) < left + 14 ? "start" : x.place(tick) > this._width - 30 ? "end" : "middle",
      ]).filter(([place]) => place < nameFrom),
      [right, HEIGHT - 3, this._data.xName, "end"],
    ];
    repeat(
      this._labels,
      marks,
      () => s("text", {}),
      (text, [atX, atY, label, anchor]) => {
        setAttribute(text, "x", Math.min(atX, this._width - 2).toFixed(1));
        setAttribute(text, "y", atY.toFixed(1));
        setAttribute(text, "text-anchor", anchor);
        setText(text, label);
      },
    );
  }

  _point(clientX) {
    if (this._drawn === null) return;
    this._isPointed = true;
    const box = this._svg.getBoundingClientRect();
    const wanted = this._drawn.x.value((clientX - box.left) * (this._width / Math.max(1, box.width)));
    this._go(nearest(this._xs, wanted));
  }

  /** Scales fit what is shown next, however it was before. */
  forget() {
    this._from = null;
    for (const axis of Object.values(this._axes)) axis.forget();
  }

  /** Move the cursor as another chart's has been moved. */
  follow(xName, at) {
    if (this._data !== null && this._data.xName === xName) this._move(at);
  }

  _go(at) {
    this._move(at);
    if (this._data !== null) this._link.onMove?.(this._data.xName, at);
  }

  /** Open the trial whose mark is nearest to a place, if one is near. */
  _pick(clientX, clientY) {
    const { _drawn: drawn, _link: link } = this;
    if (drawn === null || link.onPick === undefined) return;
    const box = this._svg.getBoundingClientRect();
    const [px, py] = [(clientX - box.left) * (this._width / Math.max(1, box.width)), clientY - box.top];
    const trial = nearestTrial(this._data.series, drawn, px, py);
    if (trial !== null) link.onPick(trial);
  }

  /** Open the trial of the last series that has a point at the cursor. */
  _pickAt(at) {
    const trials = at === null ? [] : this._found(at).map(([series, point]) => trialOf(series, point));
    const trial = trials.findLast((each) => each !== null);
    if (trial !== undefined) this._link.onPick?.(trial);
  }

  /** Whether there was a part to enlarge. */
  _enlarge() {
    const [from, to] = [this._from, this._at];
    this._from = null;
    this._move(this._at);
    this._isPart = from !== null && to !== null && from !== to;
    if (this._isPart) this._link.onZoom?.(this._data.xName, [Math.min(from, to), Math.max(from, to)]);
    return this._isPart;
  }

  _key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    if (event.key === "Escape") {
      this._from = null;
      this._go(null);
      this._link.onZoom?.(this._data.xName, null);
    }
    if (event.key === "Enter" && !this._enlarge()) this._pickAt(this._at);
    if (step === undefined || this._xs.length === 0) return;
    event.preventDefault();
    const at = this._at === null ? this._xs.length - (step > 0 ? 1 : 0) : this._xs.indexOf(this._at);
    if (!event.shiftKey) this._from = null;
    else if (this._link.onZoom !== undefined) this._from ??= this._xs[at] ?? null;
    this._go(this._xs[Math.min(this._xs.length - 1, Math.max(0, at + step))]);
  }

  _move(at) {
    this._at = at;
    if (this._data === null) return;
    this._read(at);
    const drawn = this._drawn;
    const visible = drawn !== null && at !== null && at >= this._xs[0] && drawn.x.holds(at);
    show(this._cursor, visible);
    const isPart = visible && this._from !== null && drawn.x.holds(this._from);
    show(this._part, isPart);
    if (isPart) {
      const [a, b] = [drawn.x.place(this._from), drawn.x.place(at)];
      setAttribute(this._part, "x", Math.min(a, b).toFixed(1));
      setAttribute(this._part, "width", Math.abs(b - a).toFixed(1));
    }
    const found = visible ? this._found(at) : [];
    if (visible) {
      const place = drawn.x.place(at).toFixed(1);
      for (const [name, value] of [["x1", place], ["x2", place], ["y1", TOP], ["y2", HEIGHT - BOTTOM]]) {
        setAttribute(this._cursor, name, value);
      }
    }
    repeat(
      this._points,
      found.filter(([, point]) => point[1] !== null && drawn.y.holds(point[1])),
      () => s("circle", { r: 3.5 }),
      (dot, [series, point]) => {
        setAttribute(dot, "cx", drawn.x.place(series.kind === "step" ? at : point[0]).toFixed(1));
        setAttribute(dot, "cy", drawn.y.place(point[1]).toFixed(1));
        dot.style.fill = series.color;
      },
    );
  }

  /** Series and their points at one x. */
  _found(at) {
    const found = [];
    for (const series of this._data.series) {
      const index = lastUpTo(series.points, at);
      if (index < 0) continue;
      const point = series.points[index];
      if (series.kind === "dots" && point[0] !== at) continue;
      found.push([series, point]);
    }
    return found;
  }

  /** The legend tells the values: at the cursor, else the newest. */
  _read(at) {
    const data = this._data;
    const found = new Map(this._found(at ?? this._xs[this._xs.length - 1] ?? 0));
    repeat(
      this._legend,
      data.series.filter((each) => !each.unnamed),
      () => h("span", {}, h("i", { "aria-hidden": "true" }), h("span"), h("b")),
      (child, series) => {
        const [key, name, value] = child.children;
        key.style.background = series.color;
        setAttribute(key, "class", `ddl-key ddl-key-${series.isSquare === true ? "squares" : series.kind}`);
        setText(name, data.series.length > 1 ? series.name : "");
        const point = found.get(series) ?? (at === null ? series.points[series.points.length - 1] : undefined);
        setText(value, point === undefined ? "–" : data.write(point[1]));
      },
    );
    setText(this._readout, at === null ? "" : `${data.xName} ${number(at)}`);
  }

  _reading(at) {
    const data = this._data;
    if (this._xs.length === 0) return "";
    const where = at ?? this._xs[this._xs.length - 1];
    const parts = this._found(where).map(([series, point]) => `${series.name} ${data.write(point[1])}`);
    return [`${data.xName} ${number(where)}`, ...parts].join(" · ");
  }
}

function toggle(text, title) {
  return h("button", { type: "button", class: "ddl-toggle", text, title, "aria-pressed": "false" });
}

/** Whose a point is; null: nobody's. */
function trialOf(series, point) {
  if (series.isTrials === true) return point[0];
  return series.trial ?? null;
}

/**
 * The trial whose mark is nearest to a place.
 * @param {import("./plot.js").Series[]} series
 * @param {{x: import("./scale.js").Scale, y: import("./scale.js").Scale}} drawn
 * @returns {number | null} null: none is within reach
 */
export function nearestTrial(series, { x, y }, px, py) {
  let [found, least] = [null, REACH_PX];
  for (const each of series) {
    if (each.isTrials !== true && each.trial === undefined) continue;
    let before = null;
    for (const point of each.points) {
      const place = typeof point[1] === "number" && y.holds(point[1]) && x.holds(point[0]) ? [x.place(point[0]), y.place(point[1])] : null;
      if (place !== null) {
        const distance = each.kind === "line" && before !== null ? toSegment(before, place, px, py) : Math.hypot(place[0] - px, place[1] - py);
        if (distance < least) [found, least] = [trialOf(each, point), distance];
      }
      before = place;
    }
  }
  return found;
}

function toSegment([ax, ay], [bx, by], px, py) {
  const length = (bx - ax) ** 2 + (by - ay) ** 2;
  const share = length === 0 ? 0 : Math.min(1, Math.max(0, ((px - ax) * (bx - ax) + (py - ay) * (by - ay)) / length));
  return Math.hypot(ax + share * (bx - ax) - px, ay + share * (by - ay) - py);
}

function lastUpTo(points, at) {
  let low = 0;
  let high = points.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (points[middle][0] <= at) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

function nearest(xs, wanted) {
  let best = null;
  for (const x of xs) if (best === null || Math.abs(x - wanted) < Math.abs(best - wanted)) best = x;
  return best;
}
