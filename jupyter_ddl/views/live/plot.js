// What a line chart draws, as numbers: nothing stands where its value is not.  What lies outside of
// the axes is broken off at their edge, and told by a mark with a count.

import { calmExtent, extent, makeScale } from "./scale.js";

export const HEIGHT = 180;
export const TOP = 14;
export const BOTTOM = 26;
export const RIGHT = 10;
export const CHAR = 6.3;
const LOW = HEIGHT - BOTTOM;
const APART = 16;
/** More dots than these are painted: they are places, and no path. */
const MOST_DOTS = 2000;
const GLYPHS = { above: "▲", below: "▼", unknown: "×" };

/**
 * @typedef {object} Series
 * @property {string} name
 * @property {string} color a CSS color or class-independent custom property
 * @property {[number, number | null][]} points by growing x
 * @property {"line" | "dots" | "step"} kind
 * @property {boolean} [faint]
 * @property {boolean} [unnamed] one of many: not in the legend
 * @property {number} [trial] whose it is
 * @property {boolean} [isSquare] whether its dots are squares: told apart without colour, too
 * @property {boolean} [isTrials] whether each point's x is the number of its trial
 */

/** @typedef {{title: string, xName: string, write: (value: number | null) => string, whole?: boolean, series: Series[], marked?: [number, number] | null, isOver?: boolean, rules?: {x: number, text: string}[]}} ChartData */

/**
 * Values and places of a chart on both axes, of all its series.
 * @param {ChartData} data
 */
export function rangesOf(data) {
  const xs = data.series.flatMap((each) => each.points.map((point) => point[0]));
  const values = data.series.flatMap((each) => each.points.map((point) => point[1]));
  // However rare it is, the best value is what everybody looks for.
  const reached = data.series.filter((each) => each.kind === "step").map((each) => each.points.at(-1)?.[1] ?? null);
  return { xs, values, reached: [data.marked?.[1] ?? null, ...reached] };
}

/**
 * The values that the vertical axis must show; null where there is none to show.
 * @param {{values: (number | null)[], reached: (number | null)[]}} ranges
 * @param {{isLog: boolean, isFull: boolean}} how
 */
export function wantedRange({ values, reached }, { isLog, isFull }) {
  if (isLog) return extent(values, true);
  const calm = isFull ? extent(values) : calmExtent(values);
  return calm === null ? null : extent([...calm, ...reached]);
}

/**
 * Everything that stands in a chart, placed.
 * @param {ChartData} data
 * @param {{width: number, isLog: boolean, isFull: boolean, isWatched: boolean}} how
 * @param {{x: import("./scale.js").Watched, y: import("./scale.js").Watched}} axes what they show so far
 * @param {ReturnType<typeof rangesOf> | null} whole of a recording: all that there ever is to see
 */
export function drawnOf(data, how, axes, whole = null) {
  const ranges = whole ?? rangesOf(data);
  const yRange = wantedRange(ranges, how);
  const xRange = extent(ranges.xs);
  if (yRange === null || xRange === null) return null;
  const watched = { isWatched: how.isWatched, isOver: whole !== null || data.isOver === true };
  const y = axes.y.fit(yRange, (range) => makeScale(range[0], range[1], LOW, TOP, { log: how.isLog }), watched);
  const left = Math.max(26, Math.ceil(Math.max(...y.labels.map((text) => text.length)) * CHAR) + 10);
  const right = how.width - RIGHT;
  const x = axes.x.fit(
    xRange,
    (range) =>
      makeScale(range[0], range[1], left, right, {
        nTicks: Math.max(2, Math.floor((how.width - left) / 64)),
        round: false,
        whole: data.whole ?? true,
      }),
    watched,
  );
  const lastX = extent(rangesOf(data).xs)?.[1] ?? xRange[1];
  const outside = [];
  const clouds = [];
  const paths = data.series.flatMap((series) => {
    if (series.kind === "dots" && series.points.length > MOST_DOTS) {
      clouds.push({ places: placesOf(series, x, y, outside), color: series.color, faint: series.faint, series });
      return [];
    }
    const { line, lone } = pathOf(series, x, y, lastX, outside);
    const path = { d: line, kind: series.kind, color: series.color, faint: series.faint, series };
    return lone === "" ? [path] : [path, { ...path, d: lone, kind: "dots" }];
  });
  const best = data.marked ?? null;
  return {
    x,
    y,
    left,
    right,
    paths,
    clouds,
    best: best !== null && y.holds(best[1]) && x.holds(best[0]) ? [x.place(best[0]), y.place(best[1])] : null,
    outside: groupedMarks(outside),
    counts: countsOf(outside),
    // Whether more of the values could be seen.
    isCut: !how.isLog && outside.some(([, side, value]) => side !== "unknown" && extent([value]) !== null),
    rules: (data.rules ?? []).filter((rule) => x.holds(rule.x)).map((rule) => ({ ...rule, at: x.place(rule.x) })),
  };
}

/** Places of dots, x and y one after the other; what the axes don't hold is added to `outside`. */
function placesOf(series, x, y, outside) {
  const places = new Float32Array(2 * series.points.length);
  let n = 0;
  for (const [atX, value] of series.points) {
    const side = sideOf(value, y);
    if (side !== "inside") {
      outside.push([x.place(atX), side, value]);
      continue;
    }
    places[n++] = x.place(atX);
    places[n++] = y.place(value);
  }
  return places.subarray(0, n);
}

/** The path of a series, and that of points which nothing leads to; what it can not show is added to `outside` as place, side and value. */
function pathOf(series, x, y, lastX, outside) {
  const [parts, lone] = [[], []];
  let last = null; // the point before: its place, and where it lies
  let isLone = false;
  const move = (px, py) => parts.push(`M${at(px)} ${at(py)}`);
  // A point without a line to it or from it is a dot.
  const end = () => {
    if (isLone) lone.push(`M${at(last.px)} ${at(last.py)}h0`);
    isLone = false;
  };
  for (const [atX, value] of series.points) {
    const side = sideOf(value, y);
    const px = x.place(atX);
    const py = side === "unknown" ? NaN : y.place(value);
    if (side !== "inside") outside.push([px, side, value]);
    if (series.kind === "dots") {
      if (side === "inside") parts.push(`M${at(px)} ${at(py)}h0`);
      continue;
    }
    if (side === "inside") {
      if (last?.side === "inside") {
        parts.push(series.kind === "step" ? `H${at(px)}V${at(py)}` : `L${at(px)} ${at(py)}`);
        isLone = false;
      } else {
        const edge = crossing(series.kind, { px, py }, last, true);
        if (edge === null) move(px, py);
        else {
          move(...edge);
          parts.push(`L${at(px)} ${at(py)}`);
        }
        isLone = edge === null;
      }
    } else {
      const edge = last?.side === "inside" ? crossing(series.kind, last, { px, py, side }, false) : null;
      if (edge !== null) {
        if (series.kind === "step") parts.push(`H${at(edge[0])}V${at(edge[1])}`);
        else parts.push(`L${at(edge[0])} ${at(edge[1])}`);
        isLone = false;
      }
      end();
    }
    last = { px, py, side };
  }
  if (series.kind === "step" && last?.side === "inside") {
    parts.push(`H${at(x.place(lastX))}`);
    isLone &&= x.place(lastX) - last.px < 0.05;
  }
  end();
  return { line: parts.join(""), lone: lone.join("") };
}

/** Where the line between a point on the axis and one outside of it leaves the axis; null: nobody knows. */
function crossing(kind, inside, outer, isBack) {
  if (outer === null || outer === undefined || !Number.isFinite(outer.py)) return null;
  const edge = outer.py < TOP ? TOP : LOW;
  // A step is taken at the later point.
  if (kind === "step") return [isBack ? inside.px : outer.px, edge];
  // A point that counts as inside may lie a rounding beyond the edge: the line ends there, and not before it.
  const share = Math.max(0, (edge - inside.py) / (outer.py - inside.py));
  return [inside.px + share * (outer.px - inside.px), edge];
}

function sideOf(value, y) {
  if (typeof value !== "number" || Number.isNaN(value)) return "unknown";
  if (y.holds(value)) return "inside";
  return value > y.low ? "above" : "below";
}

/** One mark for neighbours, which would hide each other. */
function groupedMarks(outside) {
  const groups = [];
  for (const [px, side] of [...outside].sort((a, b) => a[0] - b[0])) {
    const row = side === "above" ? side : "below";
    const near = groups.findLast((group) => group.row === row);
    if (near !== undefined && near.side === side && px - near.from < APART) {
      near.n++;
      near.to = px;
    } else groups.push({ row, side, from: px, to: px, n: 1 });
  }
  return groups.map(({ row, side, from, to, n }) => ({
    x: (from + to) / 2,
    y: row === "above" ? TOP - 3 : LOW + 10,
    from,
    to,
    side,
    n,
    text: GLYPHS[side] + (n > 1 ? String(n) : ""),
  }));
}

function countsOf(outside) {
  const counts = { above: 0, below: 0, unknown: 0 };
  for (const [, side] of outside) counts[side]++;
  return counts;
}

/**
 * The counts as words; empty where everything is shown.
 * @param {{above: number, below: number, unknown: number}} counts
 */
export function outsideText({ above, below, unknown }) {
  const parts = [];
  if (above > 0) parts.push(`▲ ${above} above the axis`);
  if (below > 0) parts.push(`▼ ${below} below the axis`);
  if (unknown > 0) parts.push(`× ${unknown} not a number`);
  return parts.join(" · ");
}

function at(place) {
  return place.toFixed(1);
}
