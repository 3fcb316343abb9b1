// Parallel coordinates as numbers: axes of a search, and the height of each trial on each of them.

import { param } from "./format.js";
import { extent, makeScale } from "./scale.js";
import { choiceKey } from "./selection.js";

export const LOW = 162;
export const TOP = 24;
export const SIDE = 30;
const DASH = 4;
const N_TICKS = 8;

/**
 * An axis over all values of one column; what it can't show has no place on it (NaN).
 * @param {string} name
 * @param {import("./columns.js").Column} column
 * @param {Uint32Array | number[]} rows whose values it holds
 */
export function axisOf(name, column, rows) {
  if (column.choices === null) {
    const range = extent(valuesOf(column, rows));
    if (range !== null && range[1] > range[0]) return numericAxis(name, range);
  }
  const used = new Map();
  for (const row of rows) {
    if (column.choices !== null && !(column.data[row] > 0)) continue;
    const key = column.choices === null ? column.data[row] : column.data[row] - 1;
    if (!Number.isNaN(key) && !used.has(key)) used.set(key, column.choices === null ? key : column.choices[key]);
  }
  // By their values: two long names may begin alike.
  const distinct = [...used.values()].sort((a, b) => (param(a) < param(b) ? -1 : 1));
  const step = (LOW - TOP) / Math.max(1, distinct.length);
  const places = new Map(distinct.map((value, index) => [choiceKey(value), LOW - step / 2 - index * step]));
  const place = (value) => places.get(choiceKey(value)) ?? NaN;
  const within = (from, to) => ({
    choices: new Set([...places].filter(([, y]) => y >= from && y <= to).map(([key]) => key)),
  });
  const spanOf = ({ choices = new Set() }) => {
    const ys = [...places].filter(([key]) => choices.has(key)).map(([, y]) => y);
    return ys.length === 0 ? null : [Math.min(...ys) - step / 2, Math.max(...ys) + step / 2];
  };
  const ticks = distinct.length > N_TICKS ? [] : distinct.map((value) => [place(value), param(value, 14)]);
  return { name, place, ticks, within, spanOf, step };
}

function* valuesOf(column, rows) {
  for (const row of rows) yield column.data[row];
}

function numericAxis(name, [least, most]) {
  const isLog = least > 0 && most / least >= 30;
  const scale = makeScale(least, most, LOW, TOP, { log: isLog, round: false, nTicks: 3 });
  // As the table writes them, but with three digits: there is no room for more.
  const label = (value) => param(Number.isInteger(value) ? value : Number(value.toPrecision(3)));
  const ticks = [least, most].map((value) => [scale.place(value), label(value)]);
  const place = (value) => (typeof value === "number" && scale.holds(value) ? scale.place(value) : NaN);
  const isEnd = (y, end) => Math.abs(y - end) < 0.5;
  // The ends of an axis are its values, whatever rounding makes of their places.
  const within = (from, to) => ({
    low: isEnd(to, LOW) ? least : scale.value(to),
    high: isEnd(from, TOP) ? most : scale.value(from),
  });
  const clamp = (value) => Math.min(LOW, Math.max(TOP, scale.place(value)));
  const spanOf = ({ low, high }) => (low === undefined ? null : [clamp(high), clamp(low)]);
  return { name, place, ticks, within, spanOf, step: (LOW - TOP) / 10 };
}

/**
 * Axes of a search, and the places of trials on them.
 * @param {import("./columns.js").Columns} columns
 * @param {readonly number[]} rows of trials that are drawn
 * @param {{metric: string, width: number, names: readonly string[], values: readonly [number, number] | null,
 *   known?: {columns: import("./columns.js").Columns, rows: readonly number[]}}} how
 *   `names`: parameters that have an axis; `values`: what the objective's axis is to hold; `known`: what the other
 *   axes are to hold, where it is not what is drawn
 * @returns {{axes: any[], gap: number, places: number[], heights: Float32Array, unknown: number[]}}
 *   `heights`: of each trial one after the other, NaN where it has no place
 */
export function strandsOf(columns, rows, { metric, width, names, values, known = { columns, rows } }) {
  const axes = [
    ...names.map((name) => axisOf(name, known.columns.params.get(name), known.rows)),
    objectiveAxis(metric, values),
  ];
  const gap = (width - 2 * SIDE) / Math.max(1, axes.length - 1);
  const places = axes.map((_, index) => SIDE + index * gap);
  const unknown = axes.map(() => 0);
  const heights = new Float32Array(rows.length * axes.length);
  axes.forEach((axis, i) => {
    const column = i === names.length ? columns.own("value") : (columns.params.get(names[i]) ?? null);
    // A choice has one place, whoever has it.
    const ofCode = column?.choices?.map((choice) => axis.place(choice));
    for (let r = 0; r < rows.length; r++) {
      const value = column === null ? NaN : column.data[rows[r]];
      let y = NaN;
      if (ofCode !== undefined) y = value > 0 ? ofCode[value - 1] : NaN;
      else if (!Number.isNaN(value)) y = axis.place(value);
      const isThere = ofCode !== undefined ? value > 0 : !Number.isNaN(value);
      if (isThere && Number.isNaN(y)) unknown[i]++;
      heights[r * axes.length + i] = y;
    }
  });
  return { axes, gap, places, heights, unknown };
}

function objectiveAxis(metric, values) {
  if (values !== null && values[1] > values[0]) return numericAxis(metric, values);
  const middle = (TOP + LOW) / 2;
  const only = values === null ? NaN : values[0];
  const place = (value) => (value === only ? middle : NaN);
  const within = () => ({ low: only, high: only });
  return { name: metric, place, ticks: values === null ? [] : [[middle, param(only)]], within, spanOf: () => [TOP, LOW], step: LOW - TOP };
}

/**
 * Trials whose lines would lie upon each other, once: no pixel is lost, and 100,000 lines are some
 * thousands.
 * @param {Float32Array} heights
 * @param {number} nAxes
 * @param {Float32Array} shares by trial, from 0 to 1: how it is coloured; the highest of equals is seen
 * @param {number} gap the one behind this axis
 * @returns {{from: number, to: number, share: number}[]} heights at both ends; the highest share last
 */
export function segmentsOf(heights, nAxes, shares, gap) {
  const found = new Map();
  for (let r = 0; r < shares.length; r++) {
    const [a, b] = [heights[r * nAxes + gap], heights[r * nAxes + gap + 1]];
    if (Number.isNaN(a) || Number.isNaN(b)) continue;
    const key = Math.round(a) * 1000 + Math.round(b);
    const known = found.get(key);
    if (known === undefined || shares[r] > known) found.set(key, shares[r]);
  }
  const segments = [...found].map(([key, share]) => ({ from: Math.floor(key / 1000), to: key % 1000, share }));
  return segments.sort((x, y) => x.share - y.share);
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

/** Height of a line between two axes, as `strand` draws it. */
export function heightAt(points, x) {
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
