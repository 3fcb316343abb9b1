// Axes: from numbers to places, and the numbers that are written beside them.

import { number, ticks as labelsOf } from "./format.js";

// Beyond these, sums and products of values are no numbers any more: what lies there is outside of every axis.
const HUGE = 1e300;
const TINY = 1e-300;
const LEAST_SPAN = 1e-12;
/** How much room an axis that grows leaves for what comes next. */
const ROOM = 0.25;

/**
 * @typedef {{place: (value: number) => number, holds: (value: number) => boolean, value: (place: number) => number,
 *   ticks: number[], labels: string[], low: number, high: number, log: boolean}} Scale
 *   `holds`: whether a value lies on the axis, up to rounding
 */

/**
 * A scale over the values' range, widened to round numbers.
 * @param {number} low
 * @param {number} high
 * @param {number} from place of `low`
 * @param {number} to place of `high`
 * @param {{log?: boolean, nTicks?: number, round?: boolean, whole?: boolean}} [options]
 * @returns {Scale}
 */
export function makeScale(low, high, from, to, options = {}) {
  const { log = false, nTicks = 4, round = true, whole = false } = options;
  if (log) return logScale(low, high, from, to, round);
  let [a, b] = [low, high];
  if (!(b - a > Math.max(Math.abs(a), Math.abs(b), TINY) * LEAST_SPAN)) {
    const room = Math.abs(a) > TINY ? Math.abs(a) * 0.05 : whole ? 1 : 0.5;
    [a, b] = [whole ? a : a - room, whole ? a + 1 : b + room];
  }
  const step = niceStep((b - a) / Math.max(1, nTicks), whole);
  if (round) [a, b] = [Math.floor(a / step + 1e-9) * step, Math.ceil(b / step - 1e-9) * step];
  const ticks = [];
  for (let i = Math.ceil(a / step - 1e-9); i * step <= b + step * 1e-9; i++) ticks.push(tidy(i * step, step));
  const width = b - a;
  const place = (value) => from + ((value - a) / width) * (to - from);
  return {
    place,
    holds: (value) => isBetween(place(value), from, to),
    value: (place) => a + ((place - from) / (to - from)) * width,
    ticks,
    labels: labelsOf(ticks, step),
    low: a,
    high: b,
    log: false,
  };
}

function logScale(low, high, from, to, round) {
  let [a, b] = [Math.log10(low), Math.log10(high)];
  if (!(b - a > 1e-9)) [a, b] = [a - 0.5, b + 0.5];
  if (round && b - a > 1.2) [a, b] = [Math.floor(a + 1e-9), Math.ceil(b - 1e-9)];
  const ticks = [];
  const step = Math.max(1, Math.ceil((b - a) / 5));
  for (let i = Math.ceil(a - 1e-9); i <= b + 1e-9; i += step) ticks.push(10 ** i);
  if (ticks.length < 2) {
    ticks.length = 0;
    for (let i = Math.floor(a); i <= b; i++) {
      for (const k of [1, 2, 5]) {
        const tick = k * 10 ** i;
        if (Math.log10(tick) >= a - 1e-9 && Math.log10(tick) <= b + 1e-9) ticks.push(tick);
      }
    }
  }
  const place = (value) => (value > 0 ? from + ((Math.log10(value) - a) / (b - a)) * (to - from) : NaN);
  if (ticks.length < 2) ticks.splice(0, Infinity, ...makeScale(10 ** a, 10 ** b, from, to, { round: false }).ticks);
  return {
    place,
    holds: (value) => isBetween(place(value), from, to),
    value: (place) => 10 ** (a + ((place - from) / (to - from)) * (b - a)),
    ticks,
    labels: ticks.map(number),
    low: 10 ** a,
    high: 10 ** b,
    log: true,
  };
}

function isBetween(place, from, to) {
  return place >= Math.min(from, to) - 0.05 && place <= Math.max(from, to) + 0.05;
}

function niceStep(rough, whole) {
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].find((factor) => factor * power >= rough * 0.999) * power;
  return whole ? Math.max(1, Math.round(step)) : step;
}

function tidy(value, step) {
  const digits = Math.max(0, 2 - Math.floor(Math.log10(step)));
  return digits > 15 ? value : Number(value.toFixed(Math.min(20, digits)));
}

/**
 * Smallest and largest value that an axis can show; null when there is none.
 * @param {Iterable<number | null>} values
 * @param {boolean} [positive] only those above 0
 * @returns {[number, number] | null}
 */
export function extent(values, positive = false) {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (!isShowable(value) || (positive && value < TINY)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return low <= high ? [low, high] : null;
}

function isShowable(value) {
  return typeof value === "number" && Math.abs(value) <= HUGE;
}

/**
 * A range that leaves out the few values far away from the rest, so that one wild value does not
 * press all others flat.
 * @param {number[]} values
 * @returns {[number, number] | null}
 */
export function calmExtent(values) {
  const sorted = Float64Array.from(values.filter(isShowable)).sort();
  if (sorted.length === 0) return null;
  const at = (share) => sorted[Math.round(share * (sorted.length - 1))];
  const room = 4 * (at(0.75) - at(0.25));
  if (!(room > 0) || sorted.length < 8) return [sorted[0], sorted[sorted.length - 1]];
  const low = sorted.find((value) => value >= at(0.25) - room);
  const high = sorted.findLast((value) => value <= at(0.75) + room);
  return [low, high];
}

/** The range of an axis during a run: it grows by steps, and fits what there is at the end, where nobody points. */
export class Watched {
  constructor() {
    this._range = null;
  }

  forget() {
    this._range = null;
  }

  /**
   * @param {[number, number]} wanted what must be on the axis
   * @param {(range: [number, number]) => Scale} make
   * @param {{isWatched: boolean, isOver: boolean}} how `isOver`: nothing more is expected
   * @returns {Scale}
   */
  fit(wanted, make, { isWatched, isOver }) {
    const [low, high] = wanted;
    if (this._range === null || (isOver && !isWatched)) this._range = wanted;
    const scale = make(this._range);
    const [isLow, isHigh] = [scale.holds(low), scale.holds(high)];
    if (isLow && isHigh) return scale;
    const [least, most] = [Math.min(low, scale.low), Math.max(high, scale.high)];
    const room = scale.log ? (most / least) ** ROOM : (most - least) * ROOM;
    const below = scale.log ? Math.max(least / room, Math.min(least, TINY)) : Math.max(least - room, Math.min(least, -HUGE));
    const above = Math.min(scale.log ? most * room : most + room, Math.max(most, HUGE));
    this._range = [isLow ? least : below, isHigh ? most : above];
    return make(this._range);
  }
}
