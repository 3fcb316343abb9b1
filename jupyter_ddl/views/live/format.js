// Numbers, sizes, times and shares as people read them: in the cell, in the panel, and to the digit
// as formats.py writes them. Both round halves away from zero, and do the same arithmetic.

import { clean } from "./dom.js";

const UNKNOWN = "–";
const MINUTE_S = 60;
const HOUR_S = 3600;
const DAY_S = 86400;

/**
 * Four significant digits; whole numbers up to ten million in full.
 * @param {number | null | undefined} value
 * @returns {string}
 */
export function number(value) {
  if (value === null || value === undefined) return UNKNOWN;
  if (Number.isNaN(value)) return "nan";
  const sign = value < 0 ? "-" : "";
  const size = Math.abs(value);
  if (size === Infinity) return `${sign}inf`;
  if (size < 1e7 && (Number.isInteger(size) || size >= 9999.5)) return sign + grouped(String(rounded(size)));
  const text = scientific(size, 3);
  const power = powerOf(Number(text));
  if (power >= -4 && power < 4) return sign + grouped(String(Number(text)));
  return sign + text;
}

/**
 * Like `number`, with zeros at the end so that a column lines up.
 * @param {number | null | undefined} value
 * @returns {string}
 */
export function score(value) {
  const size = Math.abs(value ?? NaN);
  if (!(size >= 1e-3 && size < 9999.5)) return number(value);
  return (value < 0 ? "-" : "") + grouped(size.toPrecision(4));
}

/**
 * Numbers beside an axis: each with as many digits as tell neighbours apart.
 * @param {number[]} values multiples of `step`
 * @param {number} step
 * @returns {string[]}
 */
export function ticks(values, step) {
  const [mantissa, exponent] = step.toExponential(1).split("e");
  // The place of the last digit that counts: of 2.5, the one behind the point.
  const power = Number(exponent) - (mantissa.endsWith("0") ? 0 : 1);
  const largest = Math.max(...values.map(Math.abs));
  const isShort = largest < 1e7 && step >= 1e-4;
  const nDigits = isShort ? Math.max(0, -power) : Math.min(17, Math.max(0, powerOf(largest) - power));
  return values.map((value) => {
    const size = Math.abs(value);
    const text = isShort ? grouped(size.toFixed(nDigits)) : scientific(size, nDigits);
    return value < 0 && /[1-9]/.test(text) ? `-${text}` : text;
  });
}

/**
 * A whole number with separators.
 * @param {number | null | undefined} n
 * @returns {string}
 */
export function count(n) {
  return n === null || n === undefined ? UNKNOWN : grouped(String(n));
}

/**
 * A count and what is counted: `1 run`, `2 runs`.
 * @param {number} n
 * @param {string} one
 * @param {string} [many]
 * @returns {string}
 */
export function counted(n, one, many = `${one}s`) {
  return `${count(n)} ${n === 1 ? one : many}`;
}

/**
 * A word as it begins a line.
 * @param {string} word
 * @returns {string}
 */
export function capitalized(word) {
  return word.charAt(0).toUpperCase() + word.slice(1);
}

/**
 * A hyper-parameter's value; a whole number in full, as far as numbers here are exact.
 * @param {unknown} value
 * @param {number} [limit] longest text
 * @returns {string}
 */
export function param(value, limit = 24) {
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Number.isSafeInteger(value)) return String(value);
  if (typeof value === "number") return number(value).replace(/,/g, "");
  return clean(value, limit);
}

/**
 * Parameters in one line, `lr=0.01, width=128`; those past `nShown` as a count.
 * @param {Record<string, unknown>} params
 * @param {number} [limit] longest name and longest value
 * @param {number} [nShown]
 * @returns {string}
 */
export function params(params, limit = 24, nShown = 8) {
  const all = Object.entries(params);
  const parts = all.slice(0, nShown).map(([name, value]) => `${clean(name, limit)}=${param(value, limit)}`);
  if (all.length > nShown) parts.push(`+${all.length - nShown} more`);
  return parts.join(", ");
}

/**
 * A length of time in at most two units.
 * @param {number | null | undefined} seconds
 * @returns {string}
 */
export function duration(seconds) {
  if (!isKnown(seconds)) return UNKNOWN;
  if (seconds < 0.9995) return `${rounded(seconds * 1000)} ms`;
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  const whole = rounded(seconds);
  if (whole < MINUTE_S) return `${whole} s`;
  if (whole < HOUR_S) return twoUnits(Math.floor(whole / MINUTE_S), "min", whole % MINUTE_S, "s");
  if (whole < DAY_S) return twoUnits(Math.floor(whole / HOUR_S), "h", Math.floor((whole % HOUR_S) / MINUTE_S), "min");
  return twoUnits(Math.floor(whole / DAY_S), "d", Math.floor((whole % DAY_S) / HOUR_S), "h");
}

/**
 * How long ago, in one unit.
 * @param {number | null | undefined} seconds
 * @returns {string}
 */
export function age(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return UNKNOWN;
  if (seconds < 10) return "just now";
  if (seconds < MINUTE_S) return `${Math.floor(seconds)} s ago`;
  if (seconds < HOUR_S) return `${Math.floor(seconds / MINUTE_S)} min ago`;
  if (seconds < DAY_S) return `${Math.floor(seconds / HOUR_S)} h ago`;
  return `${number(Math.floor(seconds / DAY_S))} d ago`;
}

/**
 * What is left of something that ticks: `29:58`, `1:02:03`.
 * @param {number} seconds
 * @returns {string}
 */
export function clock(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  const minutes = Math.floor(whole / MINUTE_S);
  const tail = two(whole % MINUTE_S);
  return minutes < 60 ? `${minutes}:${tail}` : `${Math.floor(minutes / 60)}:${two(minutes % 60)}:${tail}`;
}

/**
 * A size in binary units.
 * @param {number | null | undefined} size
 * @returns {string}
 */
export function bytes(size) {
  if (!isKnown(size)) return UNKNOWN;
  if (size < 1023.5) return `${rounded(size)} B`;
  let value = size / 1024;
  for (const unit of ["KiB", "MiB", "GiB", "TiB"]) {
    if (value < 1023.95) return `${Number(value.toFixed(1))} ${unit}`;
    value /= 1024;
  }
  return `${number(rounded(value))} PiB`;
}

/**
 * A share as a percentage.
 * @param {number | null | undefined} share 0 to 1
 * @returns {string}
 */
export function percent(share) {
  return isKnown(share) && isKnown(share * 100) ? `${number(rounded(share * 100))} %` : UNKNOWN;
}

/**
 * A rate in the unit that gives a number near one; empty when unknown or zero.
 * @param {number | null | undefined} perS
 * @param {string} noun
 * @returns {string}
 */
export function rate(perS, noun) {
  if (!isKnown(perS) || perS === 0) return "";
  if (perS >= 9.95) return `${number(rounded(perS))} ${noun}/s`;
  if (perS >= 1) return `${perS.toFixed(1)} ${noun}/s`;
  if (perS * 60 >= 1) return `${rounded(perS * 60)} ${noun}/min`;
  return `${number(perS * 3600)} ${noun}/h`;
}

/**
 * What a run has held of the machines: `3.2 GPU-hours`, below a tenth `86 GPU-seconds`.
 * @param {number} hours
 * @param {string} unit
 * @returns {string}
 */
export function held(hours, unit) {
  const [value, span] = hours >= 0.1 ? [hours, "hours"] : [hours * HOUR_S, "seconds"];
  return `${number(Number(value.toPrecision(3)))} ${unit}-${span}`;
}

const SYMBOLS = new Map([["EUR", "€"], ["USD", "$"], ["GBP", "£"], ["JPY", "¥"]]);
const LEAST_SHOWN = 1e-4;

/**
 * An amount of money, rough where it is a guess: `€ 1.84`, `€ 7.3`.
 * @param {number} amount
 * @param {string} currency
 * @param {boolean} [rough]
 * @returns {string}
 */
export function money(amount, currency, rough = false) {
  const sign = SYMBOLS.get(currency) ?? currency;
  if (!isKnown(amount)) return `${sign} ${UNKNOWN}`;
  if (amount > 0 && amount < LEAST_SHOWN) return `${sign} <0.0001`;
  if (rough || (amount > 0 && amount < 0.095)) return `${sign} ${number(Number(amount.toPrecision(2)))}`;
  if (amount < 9999.5) return `${sign} ${grouped(amount.toFixed(2))}`;
  return `${sign} ${number(rounded(amount))}`;
}

function isKnown(value) {
  return value !== null && value !== undefined && Number.isFinite(value) && value >= 0;
}

function scientific(size, nDigits) {
  if (size === 0) return "0";
  const [mantissa, exponent] = size.toExponential(nDigits).split("e");
  return `${Number(mantissa)}e${Number(exponent)}`;
}

function powerOf(size) {
  return Number(size.toExponential().split("e")[1]);
}

function rounded(size) {
  return Math.floor(size + 0.5);
}

function grouped(digits) {
  const [whole, part] = digits.split(".");
  const text = whole.replace(/\B(?=(\d{3})+$)/g, ",");
  return part === undefined ? text : `${text}.${part}`;
}

function twoUnits(large, unit, small, smallUnit) {
  // Beside thousands of days, hours say nothing.
  const isWhole = small === 0 || large >= 1000;
  return isWhole ? `${number(large)} ${unit}` : `${large} ${unit} ${two(small)} ${smallUnit}`;
}

function two(value) {
  return String(value).padStart(2, "0");
}
