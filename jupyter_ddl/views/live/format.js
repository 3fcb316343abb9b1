// Numbers, durations and sizes as the static view writes them.

import { clean } from "./dom.js";

/**
 * Four significant digits; whole numbers up to ten million in full.
 * @param {number | null | undefined} value
 * @returns {string}
 */
export function number(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e7) return minus(value.toLocaleString("en-US"));
  if (size >= 9999.5 && size < 1e7) return minus(Math.round(value).toLocaleString("en-US"));
  if (size !== 0 && (size < 1e-4 || size >= 1e7)) {
    const [mantissa, exponent] = value.toExponential(3).split("e");
    return minus(`${mantissa.replace(/\.?0+$/, "")}e${Number(exponent)}`);
  }
  return minus(String(Number(value.toPrecision(4))));
}

/**
 * Like `number`, with zeros at the end so that a column lines up.
 * @param {number | null | undefined} value
 * @returns {string}
 */
export function score(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return number(value);
  const size = Math.abs(value);
  return size >= 1e-3 && size < 9999.5 ? minus(value.toPrecision(4)) : number(value);
}

function minus(text) {
  return text.replace("-", "−").replace("e−", "e-");
}

/**
 * A count with separators.
 * @param {number} value
 * @returns {string}
 */
export function count(value) {
  return Number(value).toLocaleString("en-US");
}

/**
 * A hyper-parameter's value.
 * @param {unknown} value
 * @param {number} [limit]
 * @returns {string}
 */
export function param(value, limit = 28) {
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value === "number") return number(value).replace(/,/g, "");
  return clean(value, limit);
}

/**
 * Parameters in one line.
 * @param {Record<string, unknown>} params
 * @param {number} [nShown]
 * @returns {string}
 */
export function params(params, nShown = 8) {
  const all = Object.entries(params);
  const parts = all.slice(0, nShown).map(([name, value]) => `${clean(name, 28)} ${param(value)}`);
  if (all.length > nShown) parts.push(`+${all.length - nShown} more`);
  return parts.join(" · ");
}

/**
 * A length of time in at most two units.
 * @param {number | null | undefined} seconds
 * @returns {string}
 */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds) || seconds < 0) return "–";
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return twoUnits(Math.floor(whole / 60), "min", whole % 60, "s");
  if (whole < 86400) return twoUnits(Math.floor(whole / 3600), "h", Math.floor((whole % 3600) / 60), "min");
  return twoUnits(Math.floor(whole / 86400), "d", Math.floor((whole % 86400) / 3600), "h");
}

function twoUnits(large, unit, small, smallUnit) {
  return small ? `${count(large)} ${unit} ${String(small).padStart(2, "0")} ${smallUnit}` : `${count(large)} ${unit}`;
}

/**
 * A size in binary units.
 * @param {number | null | undefined} size
 * @returns {string}
 */
export function bytes(size) {
  if (size === null || size === undefined || !Number.isFinite(size)) return "–";
  let value = size;
  for (const unit of ["B", "KiB", "MiB", "GiB", "TiB"]) {
    if (Math.abs(value) < 1023.95) {
      return unit === "B" ? `${Math.round(value)} B` : `${value.toFixed(1).replace(/\.0$/, "")} ${unit}`;
    }
    value /= 1024;
  }
  return `${count(Math.round(value))} PiB`;
}

/**
 * A share as a percentage.
 * @param {number | null | undefined} share 0 to 1
 * @returns {string}
 */
export function percent(share) {
  return share === null || share === undefined || !Number.isFinite(share) ? "–" : `${Math.round(share * 100)} %`;
}

/**
 * A rate in the unit that gives a number near one; empty when unknown.
 * @param {number | null | undefined} perS
 * @param {string} noun
 * @returns {string}
 */
export function rate(perS, noun) {
  if (perS === null || perS === undefined || !Number.isFinite(perS) || perS <= 0) return "";
  if (perS >= 1) return `${perS >= 10 ? count(Math.round(perS)) : perS.toFixed(1)} ${noun}/s`;
  if (perS * 60 >= 1) return `${Math.round(perS * 60)} ${noun}/min`;
  return `${(perS * 3600).toFixed(1)} ${noun}/h`;
}
