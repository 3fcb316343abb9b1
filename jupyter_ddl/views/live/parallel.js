// Parallel coordinates of a search: one line per trial through its parameters to its objective.

import { clean, h, repeat, s, setAttribute, setText, show } from "./dom.js";
import { count, params, score } from "./format.js";
import { dots, Layer } from "./layer.js";
import { extent } from "./scale.js";
import { heightAt, LOW, segmentsOf, SIDE, strand, strandsOf, TOP } from "./strands.js";

const HEIGHT = 180;
const CHAR = 6.3;
const TICK_PX = 11;
const LEAST_GAP = 58;
const MAX_AXES = 16;
/** More marks than these are painted, and not made of elements. */
const MOST_MARKS = 2000;
const N_SHADES = 12;
const REST_MS = 1000;
const REST_FACTOR = 20;
const NEAR = 14;
const CLICK = 3;

/** The parameters of a search's trials, brushed and put in order by who looks at them. */
export class Parallel {
  /**
   * @param {import("./dom.js").Scope} scope
   * @param {import("./selection.js").Selection} selection
   * @param {readonly any[] | null} [record] of a recording: all snapshots
   */
  constructor(scope, selection, record = null) {
    this._selection = selection;
    this._whole = wholeOf(record);
    this._values = this._whole?.values ?? null;
    this._runId = "";
    /** Parameters that somebody has put in order; the others follow. */
    this._order = [];
    this._readout = h("span", { class: "ddl-readout ddl-readout-wide" });
    this._more = h("select", { class: "ddl-input ddl-more", "aria-label": "Show another parameter" });
    this._clear = h("button", { type: "button", class: "ddl-toggle", text: "clear", title: "Take all brushes away" });
    this._lines = s("g", {});
    // Beside the axes: what a button is called holds all that is written in it.
    this._ticks = s("g", {});
    this._axes = s("g", {});
    this._svg = s("svg", { class: "ddl-plot", height: HEIGHT, tabindex: "0", role: "group" }, this._lines, this._ticks, this._axes);
    this._layer = new Layer(HEIGHT);
    this.element = h(
      "figure",
      { class: "ddl-chart ddl-wide" },
      h(
        "figcaption",
        {},
        h("span", { class: "ddl-chart-title", text: "Parameters" }),
        h("span", { class: "ddl-ramp", "aria-hidden": "true" }),
        this._readout,
        this._clear,
        this._more,
      ),
      h("div", { class: "ddl-layers" }, this._layer.element, this._svg),
    );
    this._rows = [];
    this._at = null;
    this._width = 0;
    this._snapshot = null;
    this._columns = null;
    this._drag = null;
    this._nextMs = 0;
    scope.listen(this._svg, "pointermove", (event) => this._point(event));
    scope.listen(this._svg, "pointerdown", (event) => this._press(event));
    scope.listen(this._svg, "pointerup", (event) => this._release(event));
    scope.listen(this._svg, "pointercancel", () => (this._drag = null));
    scope.listen(this._svg, "pointerleave", () => this._mark(null));
    scope.listen(this._svg, "blur", () => this._mark(null));
    scope.listen(this._svg, "keydown", (event) => this._key(event));
    scope.listen(this._clear, "click", () => selection.clear());
    scope.listen(this._more, "change", () => this._bring(this._more.value));
    scope.watchWidth(this._svg, (width) => {
      this._width = width;
      if (this._rows.length > 1) this._draw();
    });
  }

  /**
   * @param {any} snapshot
   * @param {import("./columns.js").Columns} columns all trials
   */
  update(snapshot, columns) {
    if (snapshot.run_id !== this._runId) {
      [this._values, this._order] = [this._whole?.values ?? null, []];
      this._nextMs = 0;
    }
    this._runId = snapshot.run_id;
    this._snapshot = snapshot;
    show(this.element, this._rows.length > 1);
    const mark = `${columns.version} ${this._selection.version}`;
    if (this._columns === columns && mark === this._drawn) return;
    // A brush is answered at once, what has come of itself when there is time.
    const isPulled = this._selection.version !== this._brushed;
    const nowMs = Date.now();
    if (!isPulled && this._columns === columns && nowMs < this._nextMs) return;
    [this._columns, this._drawn, this._brushed] = [columns, mark, this._selection.version];
    this._rows = drawnRows(columns);
    show(this.element, this._rows.length > 1);
    if (this._rows.length > 1) this._draw();
    const tookMs = Date.now() - nowMs;
    const isMany = this._rows.length * columns.params.size > MOST_MARKS;
    this._nextMs = isMany ? nowMs + Math.max(REST_MS, REST_FACTOR * tookMs) : 0;
  }

  _names() {
    const all = [...(this._whole?.columns ?? this._columns).params.keys()];
    const known = this._order.filter((name) => all.includes(name));
    return [...known, ...all.filter((name) => !known.includes(name))];
  }

  _draw() {
    if (this._width === 0) this._width = Math.round(this._svg.clientWidth) || 480;
    const { _columns: columns, _snapshot: snapshot, _rows: rows } = this;
    const value = columns.own("value");
    this._values = extent([...(this._values ?? []), ...(extent(rows.map((row) => value.data[row])) ?? [])]);
    const all = this._names();
    const nAxes = Math.min(MAX_AXES, Math.max(4, Math.floor((this._width - 2 * SIDE) / LEAST_GAP) + 1));
    const names = all.slice(0, nAxes - 1);
    const how = { metric: snapshot.metric ?? "value", width: this._width, names, values: this._values };
    const known = this._whole === null ? {} : { known: this._whole };
    Object.assign(this, strandsOf(columns, rows, { ...how, ...known }), { _hidden: all.slice(nAxes - 1) });
    this._mask = this._selection.mask(columns);
    this._shares = this._goodness(value);
    const isMany = rows.length * this.axes.length > MOST_MARKS;
    this._isPainted = isMany;
    if (isMany) this._paint();
    else this._layer.hide();
    this._drawLines(isMany);
    this._drawTicks();
    this._drawAxes();
    this._drawHidden();
    setAttribute(this._svg, "viewBox", `0 0 ${this._width} ${HEIGHT}`);
    show(this._clear, this._selection.brushes.size > 0);
    this._mark(this._at);
  }

  /** From 0 to 1 the better; what is not chosen is less than 0. */
  _goodness(value) {
    const [low, high] = this._values ?? [0, 1];
    const isMin = this._snapshot.mode === "min";
    return Float32Array.from(this._rows, (row) => {
      if (this._mask !== null && this._mask[row] === 0) return -1;
      const share = high > low ? (value.data[row] - low) / (high - low) : 1;
      return Math.min(1, Math.max(0, isMin ? 1 - share : share));
    });
  }

  _paint() {
    const { axes, places, heights, _shares: shares } = this;
    const shades = Array.from({ length: N_SHADES + 1 }, (_, n) => this._layer.color(ramp(n / N_SHADES)));
    const dim = this._layer.color("var(--ddl-dim)");
    const pieces = places.slice(0, -1).map((x, gap) => (pen) => {
      const segments = segmentsOf(heights, axes.length, shares, gap);
      const next = places[gap + 1];
      pen.lineWidth = 1;
      let shade = null;
      const end = () => shade !== null && pen.stroke();
      for (const { from, to, share } of segments) {
        const wanted = share < 0 ? -1 : Math.round(share * N_SHADES);
        if (wanted !== shade) {
          end();
          shade = wanted;
          pen.beginPath();
          pen.strokeStyle = shade < 0 ? dim : shades[shade];
          pen.globalAlpha = shade < 0 ? 0.12 : 0.25 + (0.5 * shade) / N_SHADES;
        }
        pen.moveTo(x, from);
        pen.lineTo(next, to);
      }
      end();
    });
    this._layer.paint(this._width, [...pieces, this._lonely()]);
  }

  /** Places that nothing leads to or from. */
  _lonely() {
    const { heights, places, axes } = this;
    const found = new Set();
    for (let r = 0; r < this._rows.length; r++) {
      for (let i = 0; i < axes.length; i++) {
        const y = heights[r * axes.length + i];
        const before = i > 0 ? heights[r * axes.length + i - 1] : NaN;
        const after = i + 1 < axes.length ? heights[r * axes.length + i + 1] : NaN;
        if (!Number.isNaN(y) && Number.isNaN(before) && Number.isNaN(after)) found.add(i * 1000 + Math.round(y));
      }
    }
    const cells = Float32Array.from([...found].flatMap((key) => [places[Math.floor(key / 1000)], key % 1000]));
    return dots(cells, this._layer.color("var(--ddl-blue)"), 0.7);
  }

  _pointsOf(index) {
    const n = this.axes.length;
    return this.places.map((x, i) => {
      const y = this.heights[index * n + i];
      return Number.isNaN(y) ? null : [x, y];
    });
  }

  /** Lines as elements: all of few, of many the best and the marked one. */
  _drawLines(isMany) {
    const best = this._columns.rowOf(this._snapshot.best?.number ?? -1);
    const marked = this._columns.rowOf(this._at ?? this._selection.trial ?? -1);
    const wanted = isMany
      ? this._rows.map((row, index) => index).filter((index) => [best, marked].includes(this._rows[index]))
      : [...this._rows.keys()].sort(
          (a, b) => Number(this._rows[a] === best) - Number(this._rows[b] === best) || this._shares[a] - this._shares[b],
        );
    this._drawnRows = wanted.map((index) => this._rows[index]);
    repeat(
      this._lines,
      wanted,
      () => s("path", { fill: "none" }),
      (path, index) => {
        const row = this._rows[index];
        setAttribute(path, "d", strand(this._pointsOf(index)));
        const share = this._shares[index];
        const kind = share < 0 ? "out" : row === best ? "best" : this._columns.state(row) === "pruned" ? "pruned" : "";
        const isMarked = row === marked;
        setAttribute(path, "class", `ddl-strand${kind && ` ddl-strand-${kind}`}${isMarked ? " ddl-strand-marked" : ""}`);
        path.style.stroke = share < 0 ? "" : row === best ? "var(--ddl-green)" : ramp(share);
      },
    );
  }

  _drawAxes() {
    repeat(
      this._axes,
      this.axes,
      () => this._axis(),
      (group, axis, index) => {
        const [line, name, brush] = group.children;
        const x = this.places[index];
        const last = index === this.axes.length - 1;
        const place = x.toFixed(1);
        group.dataset.index = String(index);
        for (const [key, value] of [["x1", place], ["x2", place], ["y1", TOP], ["y2", LOW]]) setAttribute(line, key, value);
        setAttribute(name, "x", index === 0 ? 4 : last ? this._width - 4 : place);
        setAttribute(name, "y", 12);
        setAttribute(name, "text-anchor", index === 0 ? "start" : last ? "end" : "middle");
        // Names give way to each other; hovering tells them in full.
        const nChars = Math.max(3, Math.floor(this.gap / CHAR) - 1);
        const [cut, full] = [clean(axis.name, Math.min(18, nChars)), clean(axis.name, 200)];
        setText(name.firstChild, cut);
        setText(name.lastChild, cut === full ? "" : full);
        const span = this._spanOf(index);
        show(brush, span !== null);
        if (span !== null) {
          for (const [key, value] of [["x", x - 6], ["y", span[0]], ["width", 12], ["height", Math.max(2, span[1] - span[0])]]) {
            setAttribute(brush, key, value.toFixed(1));
          }
        }
        const told = span === null ? "not brushed" : `${this._chosenText()} in the brush`;
        setAttribute(group, "aria-label", `Axis ${clean(axis.name, 60)}, ${told}`);
        setAttribute(group, "aria-pressed", String(span !== null));
      },
    );
  }

  _drawTicks() {
    const last = this.axes.length - 1;
    const nChars = Math.max(3, Math.floor(this.gap / CHAR) - 1);
    const marks = this.axes.flatMap(({ ticks }, index) => {
      const unknown = this.unknown[index] > 0 ? [[LOW + 12, `× ${this.unknown[index]}`]] : [];
      return [...ticks, ...unknown].map(([y, label]) => {
        const inside = Math.min(LOW, Math.max(TOP + 8, y + 3));
        return { index, y: y > LOW ? y : inside, label: clean(label, nChars) };
      });
    });
    this._giveWay(marks);
    repeat(
      this._ticks,
      marks,
      () => s("text", { class: "ddl-axis-tick" }),
      (text, { index, y, label }) => {
        setAttribute(text, "x", (this.places[index] + (index === last ? -5 : 5)).toFixed(1));
        setAttribute(text, "y", y.toFixed(1));
        setAttribute(text, "text-anchor", index === last ? "end" : "start");
        setText(text, label);
      },
    );
  }

  /** Labels of the last axis stand on the side of those before it: where both lack room, theirs go inwards. */
  _giveWay(marks) {
    const last = this.axes.length - 1;
    const others = marks.filter((mark) => mark.index === last - 1);
    for (const mark of marks) {
      if (mark.index !== last || mark.y > LOW) continue;
      const isHit = others.some((other) => Math.abs(other.y - mark.y) < TICK_PX && (other.label.length + mark.label.length) * CHAR + 10 > this.gap);
      if (isHit) mark.y += mark.y < (TOP + LOW) / 2 ? TICK_PX : -TICK_PX;
    }
  }

  _axis() {
    const keys = "Arrow up and down brush, with Shift the brush grows or shrinks, left and right move the axis, Escape takes the brush away";
    return s(
      "g",
      { class: "ddl-axis-handle", tabindex: "0", role: "button", "aria-description": keys },
      s("line", { class: "ddl-axis" }),
      s("text", { class: "ddl-axis-name" }, s("tspan"), s("title")),
      s("rect", { class: "ddl-brush", rx: 2 }),
    );
  }

  _drawHidden() {
    show(this._more, this._hidden.length > 0);
    const options = ["", ...this._hidden];
    repeat(
      this._more,
      options,
      () => h("option", {}),
      (option, name, n) => {
        option.value = name;
        setText(option, n === 0 ? `${count(this._hidden.length)} more…` : clean(name, 40));
      },
    );
    if (this._more.value !== "") this._more.value = "";
  }

  _nameOf(index) {
    return index === this.axes.length - 1 ? "" : this.axes[index].name;
  }

  _spanOf(index) {
    const brush = this._selection.brushes.get(this._nameOf(index));
    return brush === undefined ? null : this.axes[index].spanOf(brush);
  }

  /** Put a hidden parameter's axis first. */
  _bring(name) {
    if (name === "") return;
    this._order = [name, ...this._names().filter((each) => each !== name)];
    this._draw();
  }

  _move(index, to) {
    const names = this._names();
    if (index >= this.axes.length - 1) return; // the objective stands last
    const [name] = names.splice(index, 1);
    const at = Math.min(this.axes.length - 2, Math.max(0, to));
    names.splice(at, 0, name);
    this._order = names;
    this._draw();
    if (this._axes.children[index] === this._svg.getRootNode().activeElement) this._axes.children[at].focus();
  }

  // -- pointer ---------------------------------------------------------------------------------

  _place(event) {
    const box = this._svg.getBoundingClientRect();
    return [(event.clientX - box.left) * (this._width / Math.max(1, box.width)), event.clientY - box.top];
  }

  _press(event) {
    if (this.places === undefined || event.button !== 0) return;
    const [x, y] = this._place(event);
    const index = this._nearest(x);
    const isName = y < TOP - 6;
    if (Math.abs(this.places[index] - x) > (isName ? this.gap / 2 : NEAR)) {
      this._drag = { kind: "click", x, y };
      return;
    }
    this._drag = { kind: isName ? "move" : "brush", index, x, y, isMoved: false };
    this._svg.setPointerCapture(event.pointerId);
  }

  _release(event) {
    const drag = this._drag;
    this._drag = null;
    if (drag === null) return;
    const [x, y] = this._place(event);
    if (drag.kind === "move") this._move(drag.index, this._nearest(x));
    else if (drag.kind === "brush") {
      // A click upon an axis takes its brush away.
      if (Math.abs(y - drag.y) < CLICK) this._brush(drag.index, null);
    } else if (Math.hypot(x - drag.x, y - drag.y) < CLICK && this._at !== null) this._selection.mark(this._at);
  }

  _point(event) {
    if (this.places === undefined) return;
    const [x, y] = this._place(event);
    const drag = this._drag;
    if (drag?.kind === "brush") {
      if (drag.isMoved || Math.abs(y - drag.y) >= CLICK) {
        drag.isMoved = true;
        const inside = (each) => Math.min(LOW, Math.max(TOP, each));
        this._brush(drag.index, [Math.min(inside(y), inside(drag.y)), Math.max(inside(y), inside(drag.y))]);
      }
      return;
    }
    if (drag?.kind === "move") return;
    this._mark(this._found(x, y));
  }

  _nearest(x) {
    return this.places.reduce((best, place, i) => (Math.abs(place - x) < Math.abs(this.places[best] - x) ? i : best), 0);
  }

  /** The trial whose line is nearest to a place; null: none is near. */
  _found(x, y) {
    const n = this.axes.length;
    const i = Math.min(n - 2, Math.max(0, Math.floor((x - SIDE) / this.gap)));
    let [found, least] = [null, NEAR];
    for (let r = 0; r < this._rows.length; r++) {
      const [a, b] = [this.heights[r * n + i], this.heights[r * n + i + 1]];
      if (Number.isNaN(a) || Number.isNaN(b) || this._shares[r] < 0) continue;
      const share = (x - this.places[i]) / (this.gap || 1);
      const there = this._isPainted ? a + (b - a) * share : heightAt([[this.places[i], a], [this.places[i + 1], b]], x);
      const distance = Math.abs(there - y);
      if (distance < least) [least, found] = [distance, r];
    }
    return found === null ? null : this._columns.number(this._rows[found]);
  }

  _brush(index, span) {
    const name = this._nameOf(index);
    this._selection.brush(name, span === null ? null : this.axes[index].within(span[0], span[1]));
  }

  // -- keyboard --------------------------------------------------------------------------------

  _key(event) {
    const group = event.target.closest?.(".ddl-axis-handle");
    if (group !== null && group !== undefined) this._axisKey(event, Number(group.dataset.index));
    else this._lineKey(event);
  }

  _axisKey(event, index) {
    const { key, shiftKey } = event;
    if (key === "ArrowLeft" || key === "ArrowRight") this._move(index, index + (key === "ArrowLeft" ? -1 : 1));
    else if (key === "ArrowUp" || key === "ArrowDown") this._stepBrush(index, key === "ArrowUp" ? -1 : 1, shiftKey);
    else if (key === "Escape" || key === "Delete") this._brush(index, null);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** A brush begins with a tenth of the axis, or one choice, and moves by as much. */
  _stepBrush(index, direction, isGrowing) {
    const { step } = this.axes[index];
    const span = this._spanOf(index);
    let [from, to] = span ?? (direction < 0 ? [LOW - step, LOW] : [TOP, TOP + step]);
    if (span !== null && isGrowing) from += direction * step;
    else if (span !== null) [from, to] = [from + direction * step, to + direction * step];
    if (from < TOP - 0.5 || to > LOW + 0.5 || to - from < step / 2) return;
    this._brush(index, [from, to]);
  }

  _lineKey(event) {
    const step = { ArrowUp: 1, ArrowDown: -1 }[event.key];
    if (event.key === "Escape") this._mark(null);
    if (event.key === "Enter" && this._at !== null) this._selection.mark(this._at);
    if (step === undefined || this._rows.length === 0) return;
    event.preventDefault();
    if (this._ranked === undefined || this._rankedOf !== this._shares) {
      this._rankedOf = this._shares;
      this._ranked = [...this._rows.keys()].filter((r) => this._shares[r] >= 0).sort((a, b) => this._shares[a] - this._shares[b]);
    }
    const numbers = this._ranked.map((r) => this._columns.number(this._rows[r]));
    const at = this._at === null ? numbers.length - 1 - step : numbers.indexOf(this._at);
    this._mark(numbers[Math.min(numbers.length - 1, Math.max(0, at + step))] ?? null);
  }

  // -- what is told ----------------------------------------------------------------------------

  _chosenText() {
    const nAll = this._rows.length;
    const nChosen = this._mask === null ? nAll : this._rows.reduce((n, row) => n + this._mask[row], 0);
    return nChosen < nAll || this._mask !== null ? `${count(nChosen)} of ${count(nAll)} trials` : `${count(nAll)} trials`;
  }

  _drawMarked() {
    if (this._isPainted) {
      this._drawLines(true);
      return;
    }
    const marked = this._columns.rowOf(this._at ?? this._selection.trial ?? -1);
    this._drawnRows.forEach((row, n) => this._lines.children[n].classList.toggle("ddl-strand-marked", row === marked));
  }

  _mark(number_) {
    const isOther = number_ !== this._at;
    this._at = number_;
    if (this.axes === undefined) return;
    if (isOther) this._drawMarked();
    const at = this._columns.rowOf(number_ ?? this._selection.trial ?? -1);
    const metric = clean(this._snapshot?.metric ?? "value", 24);
    const row = at < 0 ? null : this._columns.row(at);
    const text = row === null ? this._chosenText() : `#${row.number} · ${params(row.params, 24, 6)} · ${metric} ${score(row.value)}`;
    setText(this._readout, text);
    setAttribute(this._readout, "title", text);
    setAttribute(this._svg, "aria-label", `Parameters of ${count(this._rows.length)} trials. ${text}`);
  }
}

/** Rows of trials that have parameters and a value. */
function drawnRows(columns) {
  const value = columns.own("value");
  if (value === null || columns.params.size === 0) return [];
  const rows = [];
  for (let row = 0; row < columns.n; row++) if (Number.isFinite(value.data[row])) rows.push(row);
  return rows;
}

/** Of a recording: all that the axes have to show from its first to its last moment. */
function wholeOf(record) {
  if (record === null) return null;
  const values = extent(record.flatMap((snapshot) => snapshot.rows.map((row) => row.value)));
  const { columns } = record.at(-1) ?? {};
  return columns === undefined ? null : { values, columns, rows: Array.from({ length: columns.n }, (_, row) => row) };
}

/** From muted to strong. */
function ramp(share) {
  const amount = Math.round(18 + 82 * Math.min(1, Math.max(0, share)));
  return `color-mix(in srgb, var(--ddl-blue) ${amount}%, var(--ddl-dim))`;
}
