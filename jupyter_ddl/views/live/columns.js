// All trials of a run as columns of numbers; views/columns.py writes them.  What draws many trials
// reads these, and makes no object of each.

export const STATES = ["waiting", "running", "complete", "pruned", "failed", "cancelled"];
const NO_INT = -(2 ** 31);
const FRAME = [0, 0x44, 0x44, 0x4c];
const ARRAYS = { f4: Float32Array, f8: Float64Array, i4: Int32Array, u1: Uint8Array, u2: Uint16Array, u4: Uint32Array };
const decoder = new TextDecoder();

/**
 * The message that a binary frame holds, its bytes as `data`; null where it holds none.
 * @param {ArrayBuffer | ArrayBufferView} frame
 */
export function framed(frame) {
  const bytes = ArrayBuffer.isView(frame)
    ? new Uint8Array(frame.buffer, frame.byteOffset, frame.byteLength)
    : new Uint8Array(frame);
  if (bytes.length < 8 || FRAME.some((each, i) => bytes[i] !== each)) return null;
  const end = 8 + new DataView(bytes.buffer, bytes.byteOffset).getUint32(4, true);
  // From where columns are aligned.
  return { ...JSON.parse(decoder.decode(bytes.subarray(8, end))), data: bytes.slice(end).buffer };
}

/** One value of each trial: a number (NaN: none), or the code of a choice (0: none). */
export class Column {
  /** @param {string} name */
  constructor(name, length) {
    this.name = name;
    /** By row. */
    this.data = new Float64Array(length).fill(NaN);
    /** Of codes, from 1; null: `data` are the values. */
    this.choices = null;
    this._codes = null;
    this._isRough = false;
  }

  /** The value of a row; undefined where there is none. */
  at(row) {
    const value = this.data[row];
    if (this.choices !== null) return value > 0 ? this.choices[value - 1] : undefined;
    if (Number.isNaN(value) || value === undefined) return undefined;
    // Of four bytes only what they can hold: a value of eight bytes is told as it is.
    const isRough = this._isRough && Math.fround(value) === value && !Number.isInteger(value);
    return isRough ? Number(value.toPrecision(7)) : value;
  }

  /** Values of some rows, or of all of them (null). */
  set(rows, { kind, choices }, values) {
    const isCoded = Array.isArray(choices);
    if (rows === null) [this.choices, this._codes, this._isRough] = [isCoded ? [] : null, isCoded ? new Map() : null, false];
    if (isCoded && this.choices === null) this._recode();
    this._isRough ||= kind === "f4";
    const map = isCoded ? [0, ...choices.map((choice) => this._codeOf(choice))] : null;
    const { data } = this;
    for (let i = 0; i < values.length; i++) {
      const row = rows === null ? i : rows[i];
      if (map !== null) data[row] = map[values[i]];
      else if (kind === "i4" && values[i] === NO_INT) data[row] = this.choices === null ? NaN : 0;
      else if (this.choices === null) data[row] = values[i];
      else data[row] = Number.isNaN(values[i]) ? 0 : this._codeOf(values[i]);
    }
  }

  /** One value; undefined: none. */
  put(row, value) {
    if (value !== undefined && typeof value !== "number" && this.choices === null) this._recode();
    if (this.choices !== null) this.data[row] = value === undefined ? 0 : this._codeOf(value);
    else this.data[row] = value ?? NaN;
  }

  grow(length) {
    if (length <= this.data.length) return;
    const data = new Float64Array(length).fill(this.choices === null ? NaN : 0);
    data.set(this.data);
    this.data = data;
  }

  /** A choice among numbers makes choices of all of them. */
  _recode() {
    const before = Array.from(this.data, (_, row) => this.at(row));
    [this.choices, this._codes] = [[], new Map()];
    before.forEach((value, row) => (this.data[row] = value === undefined ? 0 : this._codeOf(value)));
  }

  _codeOf(choice) {
    const key = `${typeof choice} ${choice}`;
    let code = this._codes.get(key);
    if (code === undefined) {
      code = this.choices.push(choice);
      this._codes.set(key, code);
    }
    return code;
  }
}

/** The trials of one run, by row; rows are never taken away. */
export class Columns {
  constructor() {
    /** Trials. */
    this.n = 0;
    /** Grows with every change. */
    this.version = 0;
    /** Of the run, up to which all is here. */
    this.seq = 0;
    /** Whether every column is here. */
    this.isWhole = false;
    /** Whether these are some of the trials only, until all of them come. */
    this.isSample = false;
    /** Parameters, and metrics, that trials have, also those that have no column here. */
    this.nParams = this.nMetrics = 0;
    this._groups = { trial: new Map(), param: new Map(), last: new Map(), least: new Map(), most: new Map() };
  }

  /** @param {string} name as ColumnHead in protocol/view_messages.py has them */
  own(name) {
    return this._groups.trial.get(name) ?? null;
  }

  /** Parameters by name, in order. */
  get params() {
    return this._groups.param;
  }

  /** By the name of a metric. @param {"last" | "least" | "most"} which */
  metrics(which) {
    return this._groups[which];
  }

  number(row) {
    return this.own("number")?.data[row] ?? row;
  }

  state(row) {
    return this.own("state")?.at(row) ?? "waiting";
  }

  /** The row of a trial; -1: it is not here. */
  rowOf(number) {
    const column = this.own("number");
    if (column !== null) return column.data.indexOf(number);
    return Number.isInteger(number) && number >= 0 && number < this.n ? number : -1;
  }

  /**
   * A trial as snapshots have it.
   * @param {number} row
   */
  row(row) {
    const own = (name) => this._groups.trial.get(name)?.at(row) ?? null;
    const failure = own("failure");
    return {
      number: this.number(row),
      state: this.state(row),
      params: objectOf(this.params, row),
      value: own("value"),
      step: own("step"),
      metrics: objectOf(this._groups.last, row),
      attempts: own("attempts") ?? 1,
      worker: own("worker") ?? "",
      started_at_s: own("started_at_s"),
      duration_s: own("duration_s"),
      failure: failure === null ? null : { type_name: failure, message: "" },
    };
  }

  /** Take in a `ColumnsPart`; one that is malformed throws. */
  take({ n_rows: nRows, n_trials: nTrials, n_params: nParams, n_metrics: nMetrics, columns, data }) {
    const valuesOf = ({ kind, at }) => new ARRAYS[kind](data, at, nRows);
    const rowHead = columns.find((head) => head.group === "trial" && head.name === "row");
    const rows = rowHead === undefined ? null : valuesOf(rowHead);
    if (rows === null && nRows !== nTrials) throw new RangeError("columns without rows");
    if (rows !== null && rows.some((row) => !(row >= 0 && row < nTrials))) throw new RangeError("a row that is not there");
    this._grow(nTrials);
    this.nParams = Math.max(this.nParams, nParams ?? 0);
    this.nMetrics = nMetrics ?? 0;
    const hasNumbers = columns.some((head) => head.group === "trial" && head.name === "number");
    if (hasNumbers && this.own("number") === null) this._ofNumbers();
    for (const head of columns) {
      if (head === rowHead) continue;
      const group = this._groups[head.group];
      const values = valuesOf(head);
      if (!group.has(head.name)) {
        // What no trial has is no column of a table.
        if (rows !== null && isEmpty(head, values)) continue;
        group.set(head.name, new Column(head.name, this._room));
      }
      group.get(head.name).set(rows, head, values);
    }
    this.version++;
  }

  /** What a snapshot's row says of a trial; a new one only where the last one was before it. */
  overlay(row) {
    let at = this.rowOf(row.number);
    const isNew = at < 0;
    if (isNew && (row.number !== this.n || this.own("number") !== null)) return;
    if (isNew) this._grow((at = this.n) + 1);
    const set = (group, name, value) => {
      const columns = this._groups[group];
      const missing = value === null || value === undefined || value === "";
      if (!columns.has(name)) {
        if (missing) return;
        columns.set(name, new Column(name, this._room));
        if (typeof value !== "number") columns.get(name)._recode();
      }
      columns.get(name).put(at, missing ? undefined : value);
    };
    for (const name of OVERLAID) set("trial", name, row[name]);
    set("trial", "failure", row.failure?.type_name);
    for (const [name, value] of Object.entries(row.metrics)) set("last", name, value);
    if (isNew) for (const [name, value] of Object.entries(row.params)) set("param", name, value);
    this.version++;
  }

  _ofNumbers() {
    const column = new Column("number", this._room);
    for (let row = 0; row < this._room; row++) column.data[row] = row;
    this._groups.trial.set("number", column);
  }

  /** Room for more than is there, so that a growing search is not copied each time. */
  _grow(n) {
    const before = this._room ?? 0;
    if (n > before) {
      this._room = before === 0 ? n : Math.max(n, Math.ceil(before * 1.5));
      for (const group of Object.values(this._groups)) for (const column of group.values()) column.grow(this._room);
      const numbers = this.own("number");
      if (numbers !== null) for (let row = before; row < this._room; row++) numbers.data[row] = row;
    }
    this.n = Math.max(this.n, n);
  }
}

function isEmpty({ kind, choices }, values) {
  if (Array.isArray(choices)) return values.every((code) => code === 0);
  return values.every(kind === "i4" ? (value) => value === NO_INT : Number.isNaN);
}

function objectOf(columns, row) {
  // No name that comes from a run may reach an object's prototype.
  const values = Object.create(null);
  for (const [name, column] of columns) {
    const value = column.at(row);
    if (value !== undefined) values[name] = value;
  }
  return values;
}

/**
 * The same of rows as snapshots have them.
 * @param {readonly any[]} rows all trials
 * @returns {Columns}
 */
export function columnsOf(rows) {
  const columns = new Columns();
  const heads = [];
  const add = (group, name, read) => heads.push({ group, name, values: rows.map(read) });
  const isDense = rows.every((row, n) => row.number === n);
  for (const name of [...(isDense ? [] : ["number"]), "state", "value", "duration_s", "worker", "step", "attempts", "started_at_s"]) {
    add("trial", name, (row) => (row[name] === "" ? null : row[name]) ?? undefined);
  }
  add("trial", "failure", (row) => row.failure?.type_name);
  for (const name of paramNames(rows)) add("param", name, (row) => (Object.hasOwn(row.params, name) ? row.params[name] : undefined));
  const metrics = new Set(rows.flatMap((row) => Object.keys(row.metrics ?? {})));
  for (const name of metrics) add("last", name, (row) => row.metrics?.[name] ?? undefined);
  columns._grow(rows.length);
  for (const { group, name, values } of heads) {
    const column = new Column(name, rows.length);
    if (name === "state" || values.some((value) => value !== undefined && typeof value !== "number")) column._recode();
    values.forEach((value, row) => column.put(row, value));
    columns._groups[group].set(name, column);
  }
  columns.isWhole = true;
  return columns;
}

/** Names of all parameters: a trial has only those of its branch. */
export function paramNames(rows) {
  const most = [...rows].sort((a, b) => Object.keys(b.params).length - Object.keys(a.params).length);
  return [...new Set(most.flatMap((row) => Object.keys(row.params)))];
}

const ASK_MS = 1000;
const REPLAY_ASK_MS = 300;
const AGAIN_MS = 5000;
const PATIENCE_MS = 5000;
const OVERLAID = ["state", "value", "step", "duration_s", "worker", "attempts", "started_at_s"];

/** Keeps the columns of a run up to date: all of them once, then what has changed. */
export class AllTrials {
  /**
   * @param {import("./client.js").Client} client
   * @param {() => void} onChange
   * @param {() => number} [now] milliseconds
   */
  constructor(client, onChange, now = () => Date.now()) {
    this._client = client;
    this._onChange = onChange;
    this._now = now;
    this._askMs = client.isReplay ? REPLAY_ASK_MS : ASK_MS;
    this._isAsking = false;
    this._notBeforeMs = -Infinity;
    this._runId = "";
    this._snapshot = null;
    this.columns = new Columns();
  }

  /** @param {any} snapshot */
  update(snapshot) {
    if (snapshot.run_id !== this._runId) {
      this.columns = new Columns();
      this._notBeforeMs = -Infinity;
    }
    this._runId = snapshot.run_id;
    const isNews = this._snapshot !== snapshot;
    this._snapshot = snapshot;
    if (isNews) this._overlay();
    const { columns } = this;
    const isBehind = columns.seq !== snapshot.seq || !columns.isWhole;
    const isOver = FINAL.has(snapshot.state);
    // A few trials are in the snapshot; their metrics may not be.
    const isWanted = snapshot.can.has_objective || snapshot.rows.length < numberOf(snapshot.counts);
    if (isWanted && isBehind && !this._isAsking && (this._now() >= this._notBeforeMs || (isOver && columns.isWhole))) this._ask();
  }

  /** What a snapshot tells of trials is newer. */
  _overlay() {
    const { columns, _snapshot: { rows, counts } } = this;
    const isAll = rows.length >= numberOf(counts);
    // Of a recording one may have gone back in time.
    if (this._client.isReplay ? isAll || columns.n === 0 : columns.isSample || columns.n === 0) {
      this.columns = newer(columnsOf(rows), columns);
      this.columns.isWhole = false;
      this.columns.isSample = !isAll;
    } else if (!this._client.isReplay) for (const row of rows) columns.overlay(row);
  }

  async _ask() {
    this._isAsking = true;
    const runId = this._runId;
    const since = this.columns.isWhole ? this.columns.seq : 0;
    let [part, nParts, seq] = [0, 1, Infinity];
    try {
      while (part < nParts) {
        const ask = { kind: "get_columns", run_id: runId, since, part };
        const answer = await this._client.request(ask, PATIENCE_MS);
        if (this._runId !== runId) return;
        if (answer.kind !== "columns") throw new RangeError(answer.text);
        this._take(answer, since);
        [nParts, seq, part] = [answer.n_parts ?? 1, Math.min(seq, answer.seq), part + 1];
      }
      this.columns.seq = seq;
      this.columns.isWhole = true;
      this._notBeforeMs = this._now() + this._askMs;
    } catch {
      // What was not understood is asked for as a whole, when there is time.
      this.columns.isWhole = false;
      this._notBeforeMs = this._now() + AGAIN_MS;
    } finally {
      this._isAsking = false;
    }
    this._onChange();
  }

  _take(answer, since) {
    if (answer.rows !== undefined) {
      this.columns = newer(columnsOf(answer.rows), this.columns);
    } else {
      if (since === 0 && answer.part === 0) this.columns = newer(new Columns(), this.columns);
      this.columns.take(answer);
      if (answer.seq < this._snapshot.seq) for (const row of this._snapshot.rows) this.columns.overlay(row);
    }
    this._onChange();
  }
}

const FINAL = new Set(["complete", "failed", "cancelled"]);

function numberOf(counts) {
  return Object.values(counts).reduce((sum, n) => sum + n, 0);
}

function newer(columns, before) {
  columns.version = before.version + 1;
  return columns;
}
