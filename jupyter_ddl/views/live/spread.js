// What charts of all trials draw, as numbers: slices, a grid of two parameters, the distribution of the
// objective, and the front of two metrics.  Whatever has no place is counted.

import { count, number, param } from "./format.js";
import { extent, makeScale } from "./scale.js";

export const MAX_POINTS = 5000;
const LOG_FROM = 30;
const MAX_CELLS = 8;
const MAX_STEPS = 400;
const RESULTS = new Set(["complete", "pruned", "running"]);

/**
 * Rows of the trials that have a result, in order.
 * @param {import("./columns.js").Columns} columns
 * @param {Uint8Array | null} [mask] 1 for rows that are chosen; null: all are
 * @returns {number[]}
 */
export function resultRows(columns, mask = null) {
  const value = columns.own("value");
  const rows = [];
  if (value === null) return rows;
  for (let row = 0; row < columns.n; row++) {
    if (mask !== null && mask[row] === 0) continue;
    if (isNumber(value.at(row)) && RESULTS.has(columns.state(row))) rows.push(row);
  }
  return rows;
}

/** At most so many of a list, evenly, the last one included. */
export function thinned(list, most = MAX_POINTS) {
  if (list.length <= most) return list;
  return Array.from({ length: most }, (_, i) => list[Math.floor((i * (list.length - 1)) / (most - 1))]);
}

function isNumber(value) {
  return typeof value === "number" && Math.abs(value) <= 1e300;
}

/**
 * An axis of a column's values: of numbers, logarithmic where they span a lot, or of choices.
 * @param {any[]} values undefined: there is none
 * @param {number} from place of the smallest
 * @param {number} to
 * @param {{round?: boolean, nTicks?: number, isLog?: boolean}} [options] `isLog`: by default as the values are
 */
export function axisOf(values, from, to, options = {}) {
  const known = values.filter((value) => value !== undefined);
  if (known.length > 0 && known.every((value) => typeof value === "number")) {
    const range = extent(known);
    if (range === null) return { kind: "number", scale: null, place: () => null, ticks: [] };
    const log = options.isLog ?? (range[0] > 0 && range[1] / range[0] >= LOG_FROM);
    const scale = makeScale(range[0], range[1], from, to, { log, round: options.round ?? true, nTicks: options.nTicks ?? 4 });
    const place = (value) => (isNumber(value) && scale.holds(value) ? scale.place(value) : null);
    return { kind: "number", scale, place, ticks: scale.ticks.map((tick, i) => [scale.place(tick), scale.labels[i]]) };
  }
  const names = choicesOf(known);
  const index = new Map(names.map((value, i) => [keyOf(value), i]));
  const step = (to - from) / Math.max(1, names.length);
  const place = (value) => (index.has(keyOf(value)) ? from + step * (index.get(keyOf(value)) + 0.5) : null);
  return { kind: "choice", scale: null, names, place, ticks: names.map((value) => [place(value), param(value, 40)]) };
}

/** Different values, numbers first and in order. */
function choicesOf(values) {
  const found = new Map(values.map((value) => [keyOf(value), value]));
  return [...found.values()].sort((a, b) => {
    if (typeof a === "number" && typeof b === "number") return a - b;
    if (typeof a === "number" || typeof b === "number") return typeof a === "number" ? -1 : 1;
    return String(a) < String(b) ? -1 : String(a) > String(b) ? 1 : 0;
  });
}

/**
 * What a part of an axis chooses, as a selection has it; null: nothing is there.
 * @param {ReturnType<typeof axisOf>} axis
 * @param {number} from place
 * @param {number} to
 * @returns {import("./selection.js").Brush | null}
 */
export function brushOf(axis, from, to) {
  const [low, high] = [Math.min(from, to), Math.max(from, to)];
  if (axis.kind === "choice") {
    const chosen = axis.names.filter((name) => axis.place(name) >= low && axis.place(name) <= high);
    return chosen.length === 0 ? null : { choices: new Set(chosen.map(keyOf)) };
  }
  if (axis.scale === null) return null;
  const values = [axis.scale.value(low), axis.scale.value(high)];
  return { low: Math.min(...values), high: Math.max(...values) };
}

function keyOf(value) {
  return `${typeof value} ${value}`;
}

/**
 * Points of two columns.
 * @param {any[]} xs
 * @param {any[]} ys
 * @param {{left: number, right: number, top: number, low: number}} box
 * @returns {{x: any, y: any, points: ([number, number] | null)[], nUnknown: number}} a place for each row; null: it has none
 */
export function pointsOf(xs, ys, { left, right, top, low }) {
  const x = axisOf(xs, left, right, { nTicks: Math.max(2, Math.floor((right - left) / 64)), round: false });
  const y = axisOf(ys, low, top, { isLog: false });
  let nUnknown = 0;
  const points = xs.map((value, i) => {
    const [px, py] = [x.place(value), y.place(ys[i])];
    if (px !== null && py !== null && value !== undefined) return [px, py];
    nUnknown++;
    return null;
  });
  return { x, y, points, nUnknown };
}

/** Dots as one path. */
export function dotsOf(points) {
  return points.map(([x, y]) => `M${x.toFixed(1)} ${y.toFixed(1)}h0`).join("");
}

/**
 * Bins of a column: each choice, or ranges of numbers of which each holds about as many trials.
 * @param {any[]} values
 * @returns {{names: string[], of: (value: any) => number}} `of`: the bin of a value; -1: none
 */
export function binsOf(values) {
  const known = values.filter((value) => value !== undefined);
  if (!(known.length > 0 && known.every((value) => typeof value === "number"))) {
    const names = choicesOf(known);
    const kept = names.slice(0, names.length > MAX_CELLS ? MAX_CELLS - 1 : MAX_CELLS);
    const index = new Map(kept.map((value, i) => [keyOf(value), i]));
    const hasRest = kept.length < names.length;
    const isOne = new Set(names.map(keyOf));
    return {
      names: [...kept.map((value) => param(value, 24)), ...(hasRest ? [`${count(names.length - kept.length)} more`] : [])],
      of: (value) => index.get(keyOf(value)) ?? (hasRest && isOne.has(keyOf(value)) ? kept.length : -1),
    };
  }
  const numbers = known.filter(isNumber).sort((a, b) => a - b);
  const different = [...new Set(numbers)];
  if (different.length <= MAX_CELLS) {
    return { names: different.map((value) => number(value)), of: (value) => different.indexOf(value) };
  }
  // Lower bounds; the last bin is closed.
  const bounds = [...new Set(Array.from({ length: MAX_CELLS }, (_, i) => numbers[Math.floor((i * numbers.length) / MAX_CELLS)]))];
  const most = numbers[numbers.length - 1];
  // Three digits where they tell the bounds apart: narrow columns, which need no scrolling.
  const brief = [...bounds, most].map((value) => number(Number(value.toPrecision(3))));
  const ends = new Set(brief).size === brief.length ? brief : [...bounds, most].map((value) => number(value));
  return {
    names: bounds.map((_, i) => `${ends[i]} – ${ends[i + 1]}`),
    of: (value) => (isNumber(value) && value >= bounds[0] && value <= most ? bounds.findLastIndex((low) => low <= value) : -1),
  };
}

/**
 * The mean of a value over two columns.
 * @param {any[]} xs
 * @param {any[]} ys
 * @param {number[]} values
 * @returns {{x: string[], y: string[], cells: {n: number, mean: number, rows: number[]}[][], nUnknown: number}} by y, then x
 */
export function gridOf(xs, ys, values) {
  const [x, y] = [binsOf(xs), binsOf(ys)];
  const cells = y.names.map(() => x.names.map(() => ({ n: 0, mean: NaN, rows: [] })));
  let nUnknown = 0;
  values.forEach((value, i) => {
    const [column, line] = [x.of(xs[i]), y.of(ys[i])];
    if (column < 0 || line < 0 || !isNumber(value)) {
      nUnknown++;
      return;
    }
    const cell = cells[line][column];
    cell.rows.push(i);
    cell.n++;
    // So that no sum is too large to be a number.
    cell.mean = cell.n === 1 ? value : cell.mean + (value / cell.n - cell.mean / cell.n);
  });
  return { x: x.names, y: y.names, cells, nUnknown };
}

/**
 * The share of trials with at most each value, as points of a line of steps.
 * @param {number[]} values
 * @returns {[number, number][]}
 */
export function distributionOf(values) {
  const sorted = values.filter(isNumber).sort((a, b) => a - b);
  const points = [];
  sorted.forEach((value, i) => {
    const share = (i + 1) / sorted.length;
    if (points.length > 0 && points[points.length - 1][0] === value) points[points.length - 1][1] = share;
    else points.push([value, share]);
  });
  return points.length === 0 ? [] : [[points[0][0], 0], ...thinned(points, MAX_STEPS)];
}

/**
 * Which points no other one is better than in both.
 * @param {number[]} xs
 * @param {number[]} ys
 * @param {{x: "max" | "min", y: "max" | "min"}} modes
 * @returns {number[]} indices, by x from the best; of equal points the first
 */
export function frontOf(xs, ys, modes) {
  const sign = { x: modes.x === "max" ? -1 : 1, y: modes.y === "max" ? -1 : 1 };
  const ordered = xs.map((_, i) => i).filter((i) => isNumber(xs[i]) && isNumber(ys[i]));
  ordered.sort((a, b) => sign.x * (xs[a] - xs[b]) || sign.y * (ys[a] - ys[b]) || a - b);
  const front = [];
  let best = Infinity;
  for (const i of ordered) {
    const value = sign.y * ys[i];
    if (value < best) {
      best = value;
      front.push(i);
    }
  }
  return front;
}

/** Whether less of a metric is taken to be better, from its name. */
export function modeOf(metric, snapshot) {
  if (metric === snapshot.metric) return snapshot.mode === "min" ? "min" : "max";
  return /loss|err|mse|mae|perplexity|latency|time|size|params/i.test(metric) ? "min" : "max";
}
