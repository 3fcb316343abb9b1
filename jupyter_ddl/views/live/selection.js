// Which trials one has chosen in a chart, for all parts of a view: brushes on the axes of the
// parameters, and the one trial that is looked at.

/**
 * @typedef {{low: number, high: number} | {choices: Set<string>}} Brush values of a numeric axis, or choices
 *   as `choiceKey` names them
 */

/** The brush on the numbers of trials, which no parameter is called. */
export const NUMBER = Symbol("number");

/** One for each view. */
export class Selection {
  /** @param {() => void} onChange */
  constructor(onChange = () => {}) {
    this._onChange = onChange;
    /** By the name of a parameter; "" is the objective. @type {Map<string | symbol, Brush>} */
    this.brushes = new Map();
    /** Number of the trial that is looked at; null: none. */
    this.trial = null;
    /** Grows with every change. */
    this.version = 0;
    this._mask = null;
    this._key = "";
  }

  /** @param {string | symbol} name @param {Brush | null} brush */
  brush(name, brush) {
    if (brush === null && !this.brushes.has(name)) return;
    if (brush === null) this.brushes.delete(name);
    else this.brushes.set(name, brush);
    this._changed();
  }

  clear() {
    if (this.brushes.size === 0) return;
    this.brushes.clear();
    this._changed();
  }

  /** @param {number | null} trial */
  mark(trial) {
    if (trial === this.trial) return;
    this.trial = trial;
    this._changed();
  }

  _changed() {
    this.version++;
    this._onChange();
  }

  /**
   * By row, 1 where a trial is within all brushes; null: nothing is brushed.
   * @param {import("./columns.js").Columns} columns
   * @returns {Uint8Array | null}
   */
  mask(columns) {
    if (this.brushes.size === 0) return null;
    const key = `${columns.version} ${this.version}`;
    if (this._mask === null || this._key !== key || this._mask.length !== columns.n) {
      this._mask = maskOf(columns, this.brushes);
      this._key = key;
    }
    return this._mask;
  }
}

function maskOf(columns, brushes) {
  const mask = new Uint8Array(columns.n).fill(1);
  for (const [name, brush] of brushes) {
    if (name === NUMBER) {
      for (let row = 0; row < mask.length; row++) {
        const number = columns.number(row);
        if (number < brush.low || number > brush.high) mask[row] = 0;
      }
      continue;
    }
    const column = name === "" ? columns.own("value") : (columns.params.get(name) ?? null);
    const choices = column?.choices ?? null;
    const isIn = choices?.map((choice) => "choices" in brush && brush.choices.has(choiceKey(choice)));
    for (let row = 0; row < mask.length; row++) {
      if (mask[row] === 0) continue;
      const value = column === null ? NaN : column.data[row];
      if (isIn !== undefined) mask[row] = value > 0 && isIn[value - 1] ? 1 : 0;
      else if ("choices" in brush) mask[row] = brush.choices.has(choiceKey(column?.at(row))) ? 1 : 0;
      else mask[row] = value >= brush.low && value <= brush.high ? 1 : 0;
    }
  }
  return mask;
}

/** What tells two choices apart: 1 and "1" are not the same. */
export function choiceKey(choice) {
  return `${typeof choice} ${choice}`;
}
