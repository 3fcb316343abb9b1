// A line chart: one SVG, one path per series, a cursor for mouse and keyboard.

import { h, repeat, s, setAttribute, setText, show } from "./dom.js";
import { number } from "./format.js";
import { calmExtent, extent, makeScale } from "./scale.js";

const HEIGHT = 172;
const TOP = 8;
const BOTTOM = 20;
const RIGHT = 10;
const CHAR = 6.3;

/**
 * @typedef {object} Series
 * @property {string} name
 * @property {string} color a CSS color or class-independent custom property
 * @property {[number, number | null][]} points by growing x
 * @property {"line" | "dots" | "step"} kind
 * @property {boolean} [faint]
 * @property {boolean} [unnamed] one of many: not in the legend
 */

/** @typedef {{title: string, xName: string, write: (value: number | null) => string, whole?: boolean, series: Series[], marked?: [number, number] | null}} ChartData */

/** One chart with its title, legend, readout and switch for a logarithmic axis. */
export class Chart {
  /** @param {import("./dom.js").Scope} scope */
  constructor(scope) {
    this._title = h("span", { class: "ddl-chart-title" });
    this._readout = h("span", { class: "ddl-readout" });
    this._log = h("button", {
      type: "button",
      class: "ddl-toggle",
      text: "log",
      title: "Logarithmic axis",
      "aria-pressed": "false",
    });
    this._legend = h("span", { class: "ddl-legend" });
    this._grid = s("g", { class: "ddl-grid" });
    this._labels = s("g", { class: "ddl-labels" });
    this._lines = s("g", {});
    this._best = s("circle", { r: 5, class: "ddl-best-mark" });
    this._cursor = s("line", { class: "ddl-cursor" });
    this._points = s("g", {});
    this._clip = s("g", {}, this._lines);
    this._svg = s(
      "svg",
      { class: "ddl-plot", height: HEIGHT, tabindex: "0", role: "img" },
      this._grid,
      this._labels,
      this._clip,
      this._best,
      this._cursor,
      this._points,
    );
    this.element = h(
      "figure",
      { class: "ddl-chart" },
      h("figcaption", {}, this._title, this._legend, this._readout, this._log),
      this._svg,
    );
    this._isLog = false;
    this._at = null;
    this._width = 0;
    this._data = null;
    scope.listen(this._log, "click", () => {
      this._isLog = !this._isLog;
      setAttribute(this._log, "aria-pressed", String(this._isLog));
      this._draw();
    });
    scope.listen(this._svg, "pointermove", (event) => this._point(event.clientX));
    scope.listen(this._svg, "pointerleave", () => this._move(null));
    scope.listen(this._svg, "blur", () => this._move(null));
    scope.listen(this._svg, "keydown", (event) => this._key(event));
    scope.watchWidth(this._svg, (width) => {
      this._width = width;
      this._draw();
    });
  }

  /** @param {ChartData} data */
  update(data) {
    this._data = data;
    this._xs = [...new Set(data.series.flatMap((each) => each.points.map((point) => point[0])))].sort((a, b) => a - b);
    setText(this._title, data.title);
    const positive = data.series.some((each) => each.points.some((point) => point[1] !== null && point[1] > 0));
    show(this._log, positive);
    this._draw();
  }

  _draw() {
    const data = this._data;
    if (data === null) return;
    if (this._width === 0) this._width = Math.round(this._svg.clientWidth) || 480;
    const isLog = this._isLog && !this._log.hidden;
    const values = data.series.flatMap((each) => each.points.map((point) => point[1]));
    const best = data.marked ?? null;
    const calm = isLog ? extent(values, true) : calmExtent(values);
    // However rare it is, the best value is what everybody looks for.
    const reached = data.series.filter((each) => each.kind === "step").map((each) => each.points.at(-1)?.[1] ?? null);
    const range = isLog || calm === null ? calm : extent([...calm, best?.[1] ?? null, ...reached]);
    const xRange = extent(this._xs);
    if (range === null || xRange === null) return;
    const y = makeScale(range[0], range[1], HEIGHT - BOTTOM, TOP, { log: isLog });
    const texts = y.labels;
    const left = Math.max(26, Math.ceil(Math.max(...texts.map((text) => text.length)) * CHAR) + 10);
    const nTicks = Math.max(2, Math.floor((this._width - left) / 64));
    const x = makeScale(xRange[0], xRange[1], left, this._width - RIGHT, {
      nTicks,
      round: false,
      whole: data.whole ?? true,
    });
    Object.assign(this, { _x: x, _y: y, _left: left });
    this._axes(x, y, texts, left);
    this._paths(x, y, isLog);
    const bestVisible = best !== null && best[1] >= y.low && best[1] <= y.high;
    show(this._best, bestVisible);
    if (bestVisible) {
      setAttribute(this._best, "cx", x.place(best[0]).toFixed(1));
      setAttribute(this._best, "cy", y.place(best[1]).toFixed(1));
    }
    setAttribute(this._svg, "viewBox", `0 0 ${this._width} ${HEIGHT}`);
    setAttribute(this._svg, "aria-label", `${data.title}: ${this._reading(null)}`);
    this._move(this._at);
  }

  _axes(x, y, texts, left) {
    repeat(
      this._grid,
      y.ticks,
      () => s("line", {}),
      (line, tick) => {
        const at = y.place(tick).toFixed(1);
        for (const [name, value] of [["x1", left], ["x2", this._width - RIGHT], ["y1", at], ["y2", at]]) {
          setAttribute(line, name, value);
        }
      },
    );
    const nameFrom = this._width - RIGHT - this._data.xName.length * CHAR - 14;
    const marks = [
      ...y.ticks.map((tick, i) => [left - 6, y.place(tick) + 4, texts[i], "end"]),
      ...x.ticks.map((tick, i) => [
        i === 0 ? Math.max(left, x.place(tick) - 3) : x.place(tick),
        HEIGHT - 5,
        x.labels[i],
        i === 0 ? "start" : x.place(tick) > this._width - 30 ? "end" : "middle",
      ]).filter(([place]) => place < nameFrom),
      [this._width - RIGHT, HEIGHT - 5, this._data.xName, "end"],
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

  _paths(x, y, isLog) {
    repeat(
      this._lines,
      this._data.series,
      () => s("path", { fill: "none" }),
      (path, series) => {
        setAttribute(path, "d", pathOf(series, x, y, isLog));
        setAttribute(path, "class", `ddl-${series.kind}${series.faint ? " ddl-faint" : ""}`);
        path.style.stroke = series.color;
      },
    );
  }

  _point(clientX) {
    if (this._x === undefined) return;
    const box = this._svg.getBoundingClientRect();
    const wanted = this._x.value((clientX - box.left) * (this._width / Math.max(1, box.width)));
    this._move(nearest(this._xs, wanted));
  }

  _key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    if (event.key === "Escape") this._move(null);
    if (step === undefined || this._xs.length === 0) return;
    event.preventDefault();
    const at = this._at === null ? this._xs.length - (step > 0 ? 1 : 0) : this._xs.indexOf(this._at);
    this._move(this._xs[Math.min(this._xs.length - 1, Math.max(0, at + step))]);
  }

  _move(at) {
    this._at = at;
    if (this._data === null) return;
    this._read(at);
    const visible = at !== null && this._x !== undefined && at >= this._xs[0];
    show(this._cursor, visible);
    const found = visible ? this._found(at) : [];
    if (visible) {
      const place = this._x.place(at).toFixed(1);
      for (const [name, value] of [["x1", place], ["x2", place], ["y1", TOP], ["y2", HEIGHT - BOTTOM]]) {
        setAttribute(this._cursor, name, value);
      }
    }
    const dots = found.filter(([, point]) => point[1] !== null && point[1] >= this._y.low && point[1] <= this._y.high);
    repeat(
      this._points,
      dots,
      () => s("circle", { r: 3.5 }),
      (dot, [series, point]) => {
        setAttribute(dot, "cx", this._x.place(series.kind === "step" ? at : point[0]).toFixed(1));
        setAttribute(dot, "cy", this._y.place(point[1]).toFixed(1));
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
        setAttribute(key, "class", `ddl-key ddl-key-${series.kind}`);
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

function pathOf(series, x, y, isLog) {
  const parts = [];
  let open = false;
  let lastY = 0;
  for (const [atX, value] of series.points) {
    if (value === null || !Number.isFinite(value) || (isLog && value <= 0)) {
      open = false;
      continue;
    }
    const px = x.place(atX);
    const py = Math.min(HEIGHT - BOTTOM + 4, Math.max(TOP - 4, y.place(value)));
    if (series.kind === "dots") parts.push(`M${px.toFixed(1)} ${py.toFixed(1)}h0`);
    else if (!open) parts.push(`M${px.toFixed(1)} ${py.toFixed(1)}`);
    else if (series.kind === "step") parts.push(`L${px.toFixed(1)} ${lastY.toFixed(1)}V${py.toFixed(1)}`);
    else parts.push(`L${px.toFixed(1)} ${py.toFixed(1)}`);
    open = true;
    lastY = py;
  }
  if (series.kind === "step" && open) parts.push(`H${x.place(x.high).toFixed(1)}`);
  // A single point has no line: a dot shows it.
  if (series.kind === "line" && parts.length === 1) parts.push("h0");
  return parts.join("");
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
