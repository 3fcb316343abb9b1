// The sending end of a view that plays a recording: it sends what a run's own channel would send.

import { columnsOf } from "./columns.js";
import { picturesOf, indexAt } from "./timeline.js";

const MAX_LINES = 500;

/** Tells what there is to see at a moment, and answers questions about that moment. */
export class Projector {
  /** @param {any} timeline */
  constructor(timeline) {
    this._timeline = timeline;
    this._pictures = picturesOf(timeline);
    this._callbacks = new Set();
    this._seq = 0;
    this._index = 0;
    /** Seconds since the beginning. */
    this.atS = 0;
    this.channel = {
      send: (message) => this._take(message),
      subscribe: (callback) => {
        this._callbacks.add(callback);
        return () => this._callbacks.delete(callback);
      },
    };
  }

  /** Unix seconds of the moment that is shown. */
  get nowS() {
    return this._timeline.began_s + this.atS;
  }

  /**
   * Go to a moment.
   * @param {number} atS
   * @returns {boolean} whether it lies before the one that was shown last
   */
  go(atS) {
    this.atS = atS;
    const index = indexAt(this._pictures, atS);
    const isBack = index < this._index;
    this._index = index;
    return isBack;
  }

  /** What there is to be seen at all moments, in order. */
  record() {
    const snapshots = this._pictures.map(({ picture }) => snapshotOf(picture));
    // Trials only become more.
    const { trials } = this._pictures.at(-1).picture;
    snapshots.at(-1).columns = columnsOf(Object.values(trials));
    return snapshots;
  }

  /** Say what is to be seen now; complete in itself, as every message is. */
  show() {
    const { telemetry } = this._picture;
    this._say({ kind: "run", seq: ++this._seq, at_s: this.nowS, snapshot: snapshotOf(this._picture) });
    if (telemetry !== null) {
      const cluster = this._picture.snapshot.cluster;
      this._say({ kind: "telemetry", seq: ++this._seq, cluster, telemetry, run_id: this._timeline.run_id });
    }
  }

  get _picture() {
    return this._pictures[this._index].picture;
  }

  _take(message) {
    if (typeof message.id !== "number") return;
    // Asynchronously, as an answer over a network comes.
    queueMicrotask(() => this._say(this._answer(message)));
  }

  _answer(message) {
    const { id, run_id } = message;
    if (message.kind === "get_columns") {
      const { seq } = this._picture.snapshot;
      return { kind: "columns", id, run_id, seq, rows: Object.values(this._picture.trials) };
    }
    if (message.kind === "get_log") return { kind: "log", id, run_id, ...this._log(message) };
    if (message.kind === "get_output" && Object.hasOwn(this._timeline.contents, message.file)) {
      const [mime, content] = this._timeline.contents[message.file];
      return { kind: "output", id, run_id, file: message.file, mime, content };
    }
    const found = this._analysis(message);
    if (found !== null) return { ...found, id, run_id };
    return { kind: "denied", id, code: "replay", text: "A recording can only be watched." };
  }

  /** What was worked out of the whole recording; of trials, those that are there at this moment. */
  _analysis({ kind, metric, axis = "step", trial }) {
    const { answers } = this._timeline;
    const { trials } = this._picture;
    if (!answers) return null;
    const { importance, curves, n_metrics: nMetrics, cells = {} } = answers;
    const names = Object.keys(curves.step ?? {});
    const seriesOf = (name, over) =>
      curves[over][name]
        .filter(([number]) => number in trials)
        .map(([number, places, values]) => ({
          trial: number,
          state: trials[number].state,
          metric: name,
          points: places.map((place, i) => [place, values[i]]),
        }));
    if (kind === "get_importance" && importance) return { kind: "importance", ...importance, note: join([importance.note, "of the whole recording"]) };
    if (kind === "get_curves") {
      const wanted = metric || names[0] || "";
      const isThere = Object.hasOwn(curves, axis) && Object.hasOwn(curves[axis], wanted);
      const drawn = isThere ? seriesOf(wanted, axis) : [];
      const more = nMetrics > names.length ? `${nMetrics - names.length} more metrics are not in the recording` : "";
      const none = drawn.length === 0 ? "nothing was reported yet" : "";
      return { kind: "curves", metric: wanted, metrics: names, curves: drawn, note: join([none, more]) };
    }
    if (kind !== "get_trial") return null;
    if (!(trial in trials)) return { kind: "denied", code: "replay", text: `Trial ${trial} is not there at this moment.` };
    const own = names.flatMap((name) => seriesOf(name, "step").filter((each) => each.trial === trial));
    const cell = cells[trial] ?? "";
    const notes = [own.length === 0 ? "its curves are not in the recording" : "", cell === "" ? "only the best trials have their cell in it" : ""];
    return { kind: "trial", row: trials[trial], curves: own, cell, note: join(notes) };
  }

  _log({ trial, rank, contains, n_lines }) {
    const wanted = contains.toLowerCase();
    const chosen = this._picture.printed.filter(
      ([ofTrial, ofRank, line]) =>
        (trial === undefined || trial === ofTrial) &&
        (rank === undefined || rank === ofRank) &&
        line.toLowerCase().includes(wanted),
    );
    const lines = chosen.slice(-Math.min(n_lines, MAX_LINES)).map(([, , line]) => line);
    const { outputs, snapshot } = this._picture;
    const shown = rank ? [] : trial === undefined ? snapshot.outputs.flatMap((row) => named(outputs, row)) : (outputs[trial] ?? []);
    return { lines, n_bytes: 0, path: "", outputs: shown };
  }

  _say(message) {
    for (const callback of this._callbacks) callback(message);
  }
}

function join(notes) {
  return notes.filter(Boolean).join("; ");
}

function snapshotOf({ snapshot, trials, heard }) {
  const ranks = snapshot.ranks.map((row) => ({ ...row, heard_at_s: heard[row.rank] ?? null }));
  const rows = snapshot.rows.map((number) => trials[number]);
  // Keys that are numbers are in order.
  const curve = Object.entries(snapshot.curve).map(([trial, value]) => [Number(trial), value]);
  const pruned = Object.keys(snapshot.pruned).map(Number);
  return { ...snapshot, rows, ranks, curve, pruned, learning: Object.values(snapshot.learning) };
}

function named(outputs, { trial, file }) {
  return (outputs[trial] ?? []).filter((each) => each.file === file);
}
