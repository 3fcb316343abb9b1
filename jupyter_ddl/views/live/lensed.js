// A chart that is looked at through a lens, with the fields that set it.

import { Chart } from "./chart.js";
import { h } from "./dom.js";
import { through } from "./lens.js";

const SMOOTHINGS = [[0, "not smoothed"], [0.6, "smoothed a little"], [0.9, "smoothed"], [0.98, "smoothed much"]];
/** From so many on, seconds are told in a larger unit. */
const UNITS = [[7200, 3600, "hours"], [300, 60, "minutes"]];

/**
 * How much lines are smoothed: its `value` is the weight.
 * @param {import("./dom.js").Scope} scope
 * @param {() => void} onChange
 */
export function smoothingField(scope, onChange) {
  const options = SMOOTHINGS.map(([weight, text]) => h("option", { value: weight, text }));
  const field = h("select", { class: "ddl-input", "aria-label": "Smoothing of curves" }, ...options);
  scope.listen(field, "change", onChange);
  scope.listen(field, "keydown", (event) => event.stopPropagation());
  return field;
}

/**
 * @param {import("./dom.js").Scope} scope
 * @param {() => void} onClick
 */
export function wholeAxisButton(scope, onClick) {
  const button = h("button", { type: "button", class: "ddl-toggle", text: "whole axis", title: "Leave the enlarged part (Escape)" });
  scope.listen(button, "click", onClick);
  return button;
}

/** A chart of curves that can be smoothed, and a part of which can be enlarged. */
export class LensedChart {
  /**
   * @param {import("./dom.js").Scope} scope
   * @param {{onPick?: (trial: number) => void}} [link] see `Chart`
   */
  constructor(scope, link = {}) {
    this._data = null;
    this._zoom = null;
    this._chart = new Chart(scope, { ...link, onZoom: (_, range) => this._enlarge(range) });
    this.smoothing = smoothingField(scope, () => this._draw());
    this.wholeAxis = wholeAxisButton(scope, () => this._enlarge(null));
    this.wholeAxis.hidden = true;
    this.element = this._chart.element;
  }

  /** @param {import("./plot.js").ChartData} data */
  update(data) {
    // Another axis has other places.
    if (this._data !== null && this._data.xName !== data.xName) this._enlarge(null);
    this._data = data;
    this._draw();
  }

  _enlarge(range) {
    this._zoom = range;
    this.wholeAxis.hidden = range === null;
    this._chart.forget();
    this._draw();
  }

  _draw() {
    if (this._data === null) return;
    this._chart.update(through(this._data, { weight: Number(this.smoothing.value), zoom: this._zoom }));
  }
}

/**
 * Seconds in the unit in which one speaks of so many.
 * @param {{points: [number, number | null][]}[]} curves
 * @returns {{curves: any[], xName: string}}
 */
export function inUnits(curves) {
  const longest = curves.reduce((most, { points }) => Math.max(most, points.at(-1)?.[0] ?? 0), 0);
  const [, unit, xName] = UNITS.find(([least]) => longest >= least) ?? [0, 1, "seconds"];
  const placed = ({ points, ...each }) => ({ ...each, points: points.map(([x, value]) => [x / unit, value]) });
  return { curves: unit === 1 ? curves : curves.map(placed), xName };
}
