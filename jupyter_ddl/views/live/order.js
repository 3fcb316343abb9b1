// Which trials a table shows, in which order: all of them are filtered and sorted here.

const RESULTS = new Set(["complete", "pruned", "running"]);
const COMPARED = {
  "<": (a, b) => a < b,
  ">": (a, b) => a > b,
  "<=": (a, b) => a <= b,
  ">=": (a, b) => a >= b,
};

/**
 * Rows of the trials that contain a text, in order; what has no value stands at the end in either
 * direction.
 * @param {import("./columns.js").Columns} columns
 * @param {{sort: string, descending: boolean, wanted?: string, metric?: string | null, mask?: Uint8Array | null}} how
 *   `wanted`: words, and comparisons such as `lr>0.01`; `metric`: name of the objective; `mask`: 1 for rows to keep
 * @returns {number[]}
 */
export function orderOf(columns, { sort, descending, wanted = "", metric = null, mask = null }) {
  const tests = testsOf(columns, wanted, metric);
  const keyAt = keysOf(columns, sort);
  const keys = new Float64Array(columns.n);
  const [known, unknown] = [[], []];
  for (let row = 0; row < columns.n; row++) {
    if ((mask !== null && mask[row] === 0) || !tests.every((test) => test(row))) continue;
    keys[row] = keyAt(row);
    (Number.isNaN(keys[row]) ? unknown : known).push(row);
  }
  const sign = descending ? -1 : 1;
  known.sort((a, b) => sign * (keys[a] - keys[b] || (keys[a] === keys[b] ? a - b : keys[a] < keys[b] ? -1 : 1)));
  return known.concat(unknown);
}

/** A number to sort each row by; NaN: it has none. */
function keysOf(columns, sort) {
  if (sort === "number") return (row) => columns.number(row);
  const column = columns.own(sort) ?? columns.params.get(sort) ?? null;
  if (column === null) return () => NaN;
  if (sort === "value") {
    // What a trial had when it was cancelled is not a result.
    return (row) => (RESULTS.has(columns.state(row)) && Number.isFinite(column.data[row]) ? column.data[row] : NaN);
  }
  if (column.choices === null) return (row) => column.data[row];
  const byRank = [...column.choices.keys()].sort((a, b) => compared(column.choices[a], column.choices[b]));
  const ranks = new Float64Array(byRank.length + 1).fill(NaN);
  byRank.forEach((code, rank) => (ranks[code + 1] = rank));
  return (row) => ranks[column.data[row]] ?? NaN;
}

function compared(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  if (typeof a === typeof b) return String(a) < String(b) ? -1 : String(a) > String(b) ? 1 : 0;
  return typeof a === "number" ? -1 : 1;
}

/** One test for each word. */
function testsOf(columns, wanted, metric) {
  const words = wanted.toLowerCase().replace(/\s*(<=|>=|<|>)\s*/g, "$1").split(/\s+/).filter(Boolean);
  return words.map((word) => {
    const [, name, sign, limit] = /^([^<>]+?)(<=|>=|<|>)([^<>=]+)$/.exec(word) ?? [];
    if (name === undefined || !Number.isFinite(Number(limit))) return containing(columns, word);
    const valueAt = named(columns, name, metric);
    return (row) => {
      const value = valueAt(row);
      return typeof value === "number" && COMPARED[sign](value, Number(limit));
    };
  });
}

function containing(columns, word) {
  const tests = [columns.own("state"), columns.own("worker")].map((column) => among(column, (text) => text));
  for (const [name, column] of columns.params) tests.push(among(column, (text) => `${name}=${text}`));
  const found = tests.filter((test) => test !== null).map((test) => test(word));
  const digits = /^#?\d+$/.test(word) || word === "#";
  return (row) => (digits && `#${columns.number(row)}`.includes(word)) || found.some((test) => test(row));
}

/** A test of one column for a word; its choices are looked at once and not for each trial. */
function among(column, written) {
  if (column === null) return null;
  return (word) => {
    if (column.choices === null) {
      const isAll = written("").toLowerCase().includes(word);
      return (row) => {
        const value = column.at(row);
        return value !== undefined && (isAll || written(String(value)).toLowerCase().includes(word));
      };
    }
    const isIn = column.choices.map((choice) => written(String(choice)).toLowerCase().includes(word));
    return (row) => isIn[column.data[row] - 1] === true;
  };
}

/** What a lowercase name stands for: a parameter before anything else. */
function named(columns, name, metric) {
  const known = [...columns.params].filter(([each]) => each.toLowerCase() === name).map(([, column]) => column);
  const isValue = name === "value" || name === metric?.toLowerCase();
  const own = { number: (row) => columns.number(row), step: at(columns.own("step")), time: at(columns.own("duration_s")) };
  const otherwise = isValue ? keysOf(columns, "value") : Object.hasOwn(own, name) ? own[name] : () => undefined;
  return (row) => {
    for (const column of known) {
      const value = column.at(row);
      if (value !== undefined) return value;
    }
    return otherwise(row);
  };
}

function at(column) {
  return (row) => column?.at(row);
}
