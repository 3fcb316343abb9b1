// A run over time: lanes of trials or ranks, marks of what happened, and below them what machines did.

import { clean, h, repeat, s, setAttribute, setText, show } from "./dom.js";
import { clock, count, counted, duration, percent } from "./format.js";

export const LEFT = 78;
export const RIGHT = 10;
const TOP = 12;
const LANES_PX = 240;
const [LEAST_LANE, MOST_LANE] = [3, 12];
const APART = 9;
const STRIP = 22;
const GAP = 5;
const LABEL = 12;
const LEAST_PX = 1;
const USAGES = [["cpu", "CPU"], ["gpu", "GPU"], ["memory", "memory"]];
const GLYPHS = { hang: "!", failed: "×", evicted: "▾", restart: "↻", pruned: "✂", checkpoint: "◆" };
const NAMES = { hang: "hang", failed: "failure", evicted: "eviction", restart: "restart", pruned: "pruned trial", checkpoint: "checkpoint" };
const STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 43200, 86400];

/**
 * Where everything of a history stands.  Pure.
 * @param {any} history a `RunHistory`
 * @param {number} width
 */
export function placesOf(history, width) {
  const span = Math.max(1, width - LEFT - RIGHT);
  const x = (atS) => LEFT + (Math.min(history.length_s, Math.max(0, atS)) / history.length_s) * span;
  const lane = Math.min(MOST_LANE, Math.max(LEAST_LANE, Math.floor(LANES_PX / Math.max(1, history.lanes.length))));
  const bars = history.bars.map(([at, from, to, state, trial, n]) => ({
    x: x(from),
    // The shortest can be seen; it is never longer than to the end.
    width: Math.min(Math.max(LEAST_PX, x(to) - x(from)), LEFT + span - x(from) + LEAST_PX),
    y: TOP + at * lane,
    height: lane - (lane > 5 ? 2 : 1),
    lane: at,
    state,
    trial,
    n,
    from,
    to,
  }));
  const low = TOP + history.lanes.length * lane;
  const marks = groupsOf(history.marks.map(([at, kind, , text]) => ({ x: x(at), at, kind, text })));
  const strips = USAGES.filter(([name]) => history[name].some((share) => share !== null)).map(([name, title], number) => {
    const top = low + GAP + number * (STRIP + GAP);
    const most = Math.max(1, ...history[name].filter((share) => share !== null));
    const points = history[name].map((share, i) =>
      share === null ? null : [x(history.usage_at_s[i]), top + STRIP - (share / most) * STRIP],
    );
    return { name, title, top, most, points };
  });
  const bottom = low + strips.length * (STRIP + GAP) + GAP;
  const stepS = STEPS_S.find((step) => history.length_s / step <= span / 70) ?? Math.ceil(history.length_s / 4 / 86400) * 86400;
  const ticks = [];
  for (let at = 0; at <= history.length_s; at += stepS) ticks.push({ at, x: x(at) });
  return { x, value: (px) => ((px - LEFT) / span) * history.length_s, bars, marks, strips, ticks, lane, low, bottom, height: bottom + LABEL };
}

/** One glyph for marks that would hide each other: the gravest of them, where that one stands. */
function groupsOf(marks) {
  const kinds = Object.keys(GLYPHS);
  const groups = [];
  for (const mark of [...marks].sort((a, b) => a.x - b.x)) {
    const last = groups.at(-1);
    if (last !== undefined && mark.x - last.from < APART) {
      last.to = mark.x;
      last.all.push(mark);
    } else groups.push({ from: mark.x, to: mark.x, all: [mark] });
  }
  return groups.map(({ from, to, all }) => {
    const gravest = all.reduce((a, b) => (kinds.indexOf(b.kind) < kinds.indexOf(a.kind) ? b : a));
    return { x: gravest.x, y: TOP - 3, from, to, kind: gravest.kind, all };
  });
}

/** The chart; a bar of a trial opens it, and with `onSeek` a click goes to that moment. */
export class History {
  /**
   * @param {import("./dom.js").Scope} scope
   * @param {(trial: number) => void} choose
   * @param {((atS: number) => void) | null} [onSeek]
   */
  constructor(scope, choose, onSeek = null) {
    this._choose = choose;
    this._bar = null; // the one that keys have gone to
    this._history = null;
    this._width = 0;
    this._places = null;
    this._atS = null;
    this._grid = s("g", { class: "ddl-grid" });
    this._labels = s("g", { class: "ddl-labels" });
    this._bars = s("g");
    this._strips = s("g");
    this._marks = s("g", { class: "ddl-marks" });
    this._cursor = s("line", { class: "ddl-cursor" });
    this._svg = s("svg", { class: "ddl-history", role: "img", tabindex: "0" }, this._grid, this._strips, this._bars, this._marks, this._labels, this._cursor);
    this._readout = h("div", { class: "ddl-muted ddl-small-text ddl-history-text" });
    this.element = h("div", { class: "ddl-history-part" }, this._svg, this._readout);
    this._svg.style.cursor = "pointer";
    scope.listen(this._svg, "pointermove", (event) => this._read(event));
    scope.listen(this._svg, "pointerleave", () => setText(this._readout, this._summary()));
    scope.listen(this._svg, "click", (event) => {
      if (this._places === null) return;
      onSeek?.(this._places.value(this._px(event)));
      this._open(this._places.bars[[...this._bars.children].indexOf(event.target)]);
    });
    scope.listen(this._svg, "keydown", (event) => this._key(event));
    scope.listen(this._svg, "blur", () => this._goTo(null));
    scope.watchWidth(this._svg, (width) => {
      this._width = width;
      this._draw();
    });
  }

  /** @param {any} history a `RunHistory`, or null: nothing is known @param {string} [note] */
  update(history, note = "") {
    this._history = history !== null && history.length_s > 0 ? history : null;
    this._note = note;
    this._draw();
  }

  /** Show a moment. @param {number | null} atS */
  at(atS) {
    this._atS = atS;
    this._place();
  }

  /** Lanes of ranks have no trials of their own. */
  _open(bar) {
    if (bar !== undefined && bar !== null && clean(this._history.noun, 20) !== "") this._choose(bar.trial);
  }

  /** Bars in the order in which they began. */
  _key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    const bars = this._places?.bars ?? [];
    if (event.key === "Enter" && !event.shiftKey) this._open(this._bar);
    if (event.key === "Escape") this._goTo(null);
    if (step === undefined || bars.length === 0) return;
    event.preventDefault();
    event.stopPropagation();
    const ordered = [...bars].sort((a, b) => a.from - b.from || a.lane - b.lane);
    const isThis = (bar) => bar.lane === this._bar?.lane && bar.from === this._bar.from;
    const now = this._bar === null ? (step > 0 ? -1 : bars.length) : ordered.findIndex(isThis);
    this._goTo(ordered[Math.min(bars.length - 1, Math.max(0, now + step))]);
  }

  _goTo(bar) {
    this._bar = bar;
    [...this._bars.children].forEach((rect, i) => {
      const { lane, from } = this._places.bars[i];
      rect.classList.toggle("ddl-bar-marked", bar !== null && lane === bar.lane && from === bar.from);
    });
    setText(this._readout, bar === null ? this._summary() : titleOf(bar, this._history));
  }

  _px(event) {
    const box = this._svg.getBoundingClientRect();
    return (event.clientX - box.left) * (this._width / Math.max(1, box.width));
  }

  _draw() {
    const history = this._history;
    show(this._svg, history !== null);
    setText(this._readout, history === null ? this._note || "Nothing has run yet." : this._summary());
    if (history === null) return;
    if (this._width === 0) this._width = Math.round(this._svg.clientWidth) || 480;
    const places = (this._places = placesOf(history, this._width));
    setAttribute(this._svg, "viewBox", `0 0 ${this._width} ${places.height}`);
    setAttribute(this._svg, "height", places.height);
    setAttribute(this._svg, "aria-label", `Timeline: ${this._summary()}`);
    repeat(this._grid, places.ticks, () => s("line"), (line, tick) => between(line, tick.x, TOP - 2, places.bottom));
    repeat(
      this._bars,
      places.bars,
      () => s("rect", {}, s("title")),
      (rect, bar) => {
        for (const name of ["x", "y", "width", "height"]) setAttribute(rect, name, bar[name].toFixed(2));
        setAttribute(rect, "class", `ddl-bar-${clean(bar.state, 12)}`);
        setText(rect.firstChild, titleOf(bar, history));
      },
    );
    repeat(
      this._marks,
      places.marks,
      () => s("text", { "text-anchor": "middle" }, s("tspan"), s("title")),
      (text, mark) => {
        setAttribute(text, "x", mark.x.toFixed(2));
        setAttribute(text, "y", mark.y);
        setAttribute(text, "class", `ddl-mark-${clean(mark.kind, 12)}`);
        setText(text.firstChild, GLYPHS[mark.kind] ?? "•");
        setText(text.lastChild, told(mark.all, 5).join("\n"));
      },
    );
    repeat(
      this._strips,
      places.strips,
      () => s("path", { fill: "none" }),
      (path, strip) => {
        setAttribute(path, "class", `ddl-usage-${strip.name}`);
        setAttribute(path, "d", pathOf(strip.points));
      },
    );
    this._label(places, history);
    this._place();
  }

  _label(places, history) {
    const every = Math.max(1, Math.ceil(11 / places.lane));
    const lanes = history.lanes
      .map((name, number) => [LEFT - 6, TOP + number * places.lane + Math.min(9, places.lane), clean(name, 12), "end", number])
      .filter(([, , , , number]) => number % every === 0);
    const texts = [
      ...lanes,
      ...places.strips.map((strip) => [LEFT - 6, strip.top + STRIP / 2 + 4, strip.title, "end"]),
      ...places.ticks.filter((tick) => tick.x < this._width - 26).map((tick) => [tick.x, places.height - 1, clock(tick.at), "middle"]),
    ];
    repeat(
      this._labels,
      texts,
      () => s("text"),
      (text, [x, y, label, anchor]) => {
        setAttribute(text, "x", x.toFixed(1));
        setAttribute(text, "y", y.toFixed(1));
        setAttribute(text, "text-anchor", anchor);
        setText(text, label);
      },
    );
  }

  _place() {
    const places = this._places;
    show(this._cursor, places !== null && this._atS !== null);
    if (places !== null && this._atS !== null) between(this._cursor, places.x(this._atS), TOP - 2, places.bottom);
  }

  _read(event) {
    const places = this._places;
    if (places === null) return;
    const atS = Math.min(this._history.length_s, Math.max(0, places.value(this._px(event))));
    const nearest = Math.abs(places.value(LEFT + 4) - places.value(LEFT));
    const running = places.bars.filter((bar) => bar.from <= atS && atS <= bar.to).length;
    const marks = told(places.marks.flatMap((group) => group.all).filter((mark) => Math.abs(mark.at - atS) <= nearest), 3);
    const strips = places.strips.map((strip) => {
      const at = indexNear(this._history.usage_at_s, atS);
      return `${strip.title} ${percent(this._history[strip.name][at])}`;
    });
    setText(this._readout, [clock(atS), `${count(running)} running`, ...strips, ...marks].join(" · "));
  }

  /** The whole in a sentence: also for who can't see the chart. */
  _summary() {
    const history = this._history;
    if (history === null) return "";
    const kinds = new Map();
    for (const [, kind] of history.marks) kinds.set(kind, (kinds.get(kind) ?? 0) + 1);
    const parts = [`${duration(history.length_s)}, ${counted(history.n_bars, "attempt")} in ${counted(history.lanes.length, "lane")}`];
    for (const [kind, n] of kinds) parts.push(`${GLYPHS[kind] ?? "•"} ${counted(n, NAMES[kind] ?? "mark")}`);
    if (history.n_marks > history.marks.length) parts.push(`${count(history.marks.length)} of ${count(history.n_marks)} marks are shown`);
    if (history.n_hidden > 0) parts.push(`${counted(history.n_hidden, "attempt")} without a lane here`);
    if (this._note) parts.push(this._note);
    return parts.join(" · ");
  }
}

/** Some marks in words, and how many more there are. */
function told(marks, limit) {
  const lines = marks.slice(0, limit).map((mark) => `${clock(mark.at)} ${clean(mark.text, 160)}`);
  return marks.length > limit ? [...lines, `and ${count(marks.length - limit)} more`] : lines;
}

function titleOf(bar, history) {
  const noun = clean(history.noun, 20);
  const one = noun === "" ? clean(history.lanes[bar.lane], 60) : `${noun} ${count(bar.trial)}`;
  const what = bar.n > 1 ? `${count(bar.n)} attempts, ${one} among them` : one;
  return `${what} · ${clean(bar.state, 12)} · ${duration(bar.to - bar.from)} from ${clock(bar.from)}`;
}

function between(line, x, from, to) {
  for (const [name, value] of [["x1", x.toFixed(2)], ["x2", x.toFixed(2)], ["y1", from], ["y2", to]]) setAttribute(line, name, value);
}

/** A line through what was measured, broken where nothing was. */
export function pathOf(points) {
  let isOpen = false;
  return points
    .map((point, i) => {
      if (point === null) {
        isOpen = false;
        return "";
      }
      const command = isOpen ? "L" : "M";
      const isLone = !isOpen && (points[i + 1] ?? null) === null;
      isOpen = true;
      return `${command}${point[0].toFixed(2)} ${point[1].toFixed(2)}${isLone ? "h0" : ""}`;
    })
    .join("");
}

function indexNear(values, wanted) {
  let best = 0;
  values.forEach((value, i) => {
    if (Math.abs(value - wanted) < Math.abs(values[best] - wanted)) best = i;
  });
  return best;
}
