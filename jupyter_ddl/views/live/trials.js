// The table of trials: those of the snapshot while it has all, else pages asked for by and by.

import { isFinal } from "./client.js";
import { clean, h, repeat, setAttribute, setText, show } from "./dom.js";
import { count, duration, param, score } from "./format.js";

const PAGE = 12;
const N_PINNED = 4;
const MAX_PARAMS = 8;
const ASK_MS = 2000;
const REPLAY_ASK_MS = 300;
const TYPE_MS = 250;
const UNDO_MS = 3000;

/** Sorted, filtered, paged; the best one marked; running ones can be stopped. */
export class Trials {
  /**
   * @param {import("./dom.js").Scope} scope
   * @param {import("./client.js").Client} client
   */
  constructor(scope, client) {
    this._client = client;
    this._askMs = client.isReplay ? REPLAY_ASK_MS : ASK_MS;
    this._sort = "";
    this._descending = false;
    this._offset = 0;
    this._page = null;
    this._askedMs = -Infinity;
    this._asking = false;
    this._asked = "";
    this._stopping = new Set();
    // Stops that can be undone yet: trial → when it is sent, and the timer for it.
    this._pending = new Map();
    this._isHeld = false;
    this._held = null;
    this._known = new Map();
    this._snapshot = null;
    this._filter = h("input", {
      type: "search",
      class: "ddl-input",
      placeholder: "Filter",
      "aria-label": "Filter trials by state, worker, name=value or name>number",
      title: "For instance: pruned, lr>0.01, width<=64 lr>0.01",
    });
    this._head = h("tr");
    this._pinned = h("tbody", { class: "ddl-pinned" });
    this._body = h("tbody");
    this._shown = h("span", { class: "ddl-muted", "aria-live": "off" });
    this._previous = h("button", { type: "button", class: "ddl-button", text: "‹", "aria-label": "Previous page" });
    this._next = h("button", { type: "button", class: "ddl-button", text: "›", "aria-label": "Next page" });
    this._said = h("span", { class: "ddl-muted", role: "status" });
    this._region = h(
      "div",
      { class: "ddl-scroll", tabindex: "0", role: "region", "aria-label": "Trials" },
      h("table", { class: "ddl-table" }, h("thead", {}, this._head), this._pinned, this._body),
    );
    this.element = h(
      "div",
      {},
      h("div", { class: "ddl-tools" }, this._filter, this._shown, this._previous, this._next, this._said),
      this._region,
    );
    scope.listen(this._region, "pointerenter", () => this._hold(true));
    scope.listen(this._region, "pointerleave", () => this._hold(this._hasFocus));
    scope.listen(this._region, "focusin", () => this._hold(true));
    // Not before the focus is where it goes.
    scope.listen(this._region, "focusout", () => queueMicrotask(() => this._hold(this._hasFocus || this._region.matches(":hover"))));
    scope.add(() => {
      for (const { timer } of this._pending.values()) clearTimeout(timer);
    });
    let typing = 0;
    scope.listen(this._filter, "input", () => {
      clearTimeout(typing);
      typing = setTimeout(() => this._turn(0), TYPE_MS);
    });
    scope.add(() => clearTimeout(typing));
    // Lab runs the cell again on Shift+Enter, wherever the focus is.
    scope.listen(this._filter, "keydown", (event) => event.stopPropagation());
    scope.listen(this._previous, "click", () => this._turn(this._offset - PAGE));
    scope.listen(this._next, "click", () => this._turn(this._offset + PAGE));
  }

  get _hasFocus() {
    return this._region.contains(this._region.getRootNode().activeElement);
  }

  /** Rows stay where they are while somebody points at one, or is about to press a button of one. */
  _hold(isHeld) {
    if (isHeld === this._isHeld) return;
    this._isHeld = isHeld;
    if (isHeld) return;
    this._held = null;
    if (this._snapshot !== null) this.update(this._snapshot);
  }

  /** @param {any} snapshot */
  update(snapshot) {
    if (snapshot.run_id !== this._snapshot?.run_id) [this._held, this._known] = [null, new Map()];
    this._snapshot = snapshot;
    if (this._hasAll(snapshot)) {
      this._page = null;
      this._draw(this._local(snapshot));
      return;
    }
    const isOld = this._page === null || this._page.seq !== snapshot.seq;
    if (isOld && Date.now() - this._askedMs > this._askMs) this._ask();
    this._draw(this._page ?? this._local(snapshot));
  }

  _hasAll(snapshot) {
    const total = Object.values(snapshot.counts).reduce((sum, n) => sum + n, 0);
    return snapshot.rows.length >= total;
  }

  /** Running trials stand above the others, where they can be stopped. */
  _running(snapshot) {
    if (this._filter.value.trim() !== "" || this._offset > 0) return [];
    return snapshot.rows.filter((row) => row.state === "running").slice(0, N_PINNED);
  }

  _turn(offset) {
    this._offset = Math.max(0, offset);
    this._held = null;
    if (this._snapshot === null) return;
    // What is there until the answer comes may be held; the answer itself is not what was there.
    this._isAsked = !this._hasAll(this._snapshot);
    if (this._isAsked) this._ask();
    this.update(this._snapshot);
  }

  _order(snapshot) {
    // A search begins with its best trials, anything else with the newest.
    if (this._sort !== "") return [this._sort, this._descending];
    return snapshot.can.has_objective ? ["value", snapshot.mode !== "min"] : ["number", true];
  }

  _local(snapshot) {
    const [sort, descending] = this._order(snapshot);
    const wanted = this._filter.value;
    const rows = ordered(snapshot.rows, sort, descending, wanted, snapshot.metric);
    if (this._offset >= rows.length) this._offset = Math.max(0, (Math.ceil(rows.length / PAGE) - 1) * PAGE);
    return { rows: rows.slice(this._offset, this._offset + PAGE), nMatching: rows.length };
  }

  async _ask() {
    const snapshot = this._snapshot;
    const [sort, descending] = this._order(snapshot);
    const contains = this._filter.value.trim();
    const key = JSON.stringify([sort, descending, contains, this._offset]);
    if (this._asking && key === this._asked) return;
    this._asking = true;
    this._asked = key;
    this._askedMs = Date.now();
    const { seq } = snapshot;
    const answer = await this._client.request({
      kind: "get_trials",
      run_id: snapshot.run_id,
      sort,
      descending,
      contains,
      offset: this._offset,
      limit: PAGE,
    });
    if (key !== this._asked) return;
    this._asking = false;
    if (answer.kind !== "trials") return;
    this._page = { rows: answer.rows, nMatching: answer.n_matching, seq };
    if (this._isAsked) [this._isAsked, this._held] = [false, null];
    this._draw(this._page);
  }

  /** What stands in the table: as it was while it is held, with what is known of each row now. */
  _standing({ rows: page, nMatching }) {
    const snapshot = this._snapshot;
    const pinned = this._running(snapshot);
    // A page that was asked for may hold those above it, too.
    const above = new Set(pinned.map((row) => row.number));
    const rows = page.filter((row) => !above.has(row.number));
    const newest = new Map([...page, ...snapshot.rows].map((row) => [row.number, row]));
    if (!this._isHeld || this._held === null) {
      this._known = new Map([...pinned, ...rows].map((row) => [row.number, row]));
      this._held = { pinned: pinned.map((row) => row.number), rows: rows.map((row) => row.number), nMatching, nPage: page.length };
    }
    const rowOf = (number) => {
      if (newest.has(number)) this._known.set(number, newest.get(number));
      return this._known.get(number);
    };
    const { pinned: above_, rows: below, nMatching: n, nPage } = this._held;
    return { pinned: above_.map(rowOf), rows: below.map(rowOf), nMatching: n, nPage };
  }

  _draw(page) {
    const snapshot = this._snapshot;
    const { pinned, rows, nMatching, nPage } = this._standing(page);
    this._settle([...pinned, ...rows]);
    const columns = this._columns(snapshot, [...pinned, ...rows]);
    const [sort, descending] = this._order(snapshot);
    repeat(
      this._head,
      columns,
      () => this._headCell(),
      (cell, column) => {
        const isSorted = column.sort === sort;
        const button = cell.firstChild;
        cell.dataset.sort = column.sort;
        setText(button, column.title + (isSorted ? (descending ? " ↓" : " ↑") : ""));
        show(button, column.title !== "");
        setAttribute(cell, "aria-sort", isSorted ? (descending ? "descending" : "ascending") : null);
        setAttribute(cell, "class", column.numeric ? "ddl-right" : null);
      },
    );
    const best = snapshot.best?.number ?? -1;
    for (const [body, shown] of [[this._pinned, pinned], [this._body, rows]]) {
      repeat(
        body,
        shown,
        () => h("tr"),
        (line, row) => {
          setAttribute(line, "class", row.number === best ? "ddl-is-best" : null);
          repeat(line, columns, () => h("td", {}, h("span")), (cell, column) => this._cell(cell, column, row, best));
        },
      );
    }
    show(this._pinned, pinned.length > 0);
    const last = Math.min(nMatching, this._offset + nPage);
    setText(this._shown, nMatching === 0 ? "none" : `${count(this._offset + 1)}–${count(last)} of ${count(nMatching)}`);
    setAttribute(this._previous, "disabled", this._offset === 0);
    setAttribute(this._next, "disabled", last >= nMatching);
    show(this._previous, nMatching > PAGE);
    show(this._next, nMatching > PAGE);
  }

  _headCell() {
    const button = h("button", { type: "button", class: "ddl-sort" });
    const cell = h("th", { scope: "col" }, button);
    button.addEventListener("click", () => {
      const [sort, descending] = this._order(this._snapshot);
      const wanted = cell.dataset.sort;
      this._descending = wanted === sort ? !descending : wanted === "value" && this._snapshot.mode !== "min";
      this._sort = wanted;
      this._turn(0);
    });
    return cell;
  }

  _columns(snapshot, rows) {
    const names = [...new Set(rows.flatMap((row) => Object.keys(row.params)))].slice(0, MAX_PARAMS);
    const hasSteps = rows.some((row) => row.step !== null);
    const canStop = !this._client.isReplay && !isFinal(snapshot.state) && rows.some((row) => row.state === "running");
    return [
      { title: "#", sort: "number", numeric: true, text: (row) => String(row.number) },
      { title: "state", sort: "state", state: true, text: (row) => clean(row.state, 12) },
      ...(snapshot.can.has_objective
        ? [{ title: clean(snapshot.metric ?? "value", 24), sort: "value", numeric: true, strong: true, text: (row) => score(row.value) }]
        : []),
      ...names.map((name) => ({
        title: clean(name, 24),
        sort: name,
        numeric: rows.some((row) => typeof row.params[name] === "number"),
        text: (row) => (name in row.params ? param(row.params[name], 24) : ""),
      })),
      ...(hasSteps ? [{ title: snapshot.nouns.step, sort: "step", numeric: true, text: (row) => steps(row, snapshot.nouns.total) }] : []),
      { title: "time", sort: "duration_s", numeric: true, text: (row) => duration(elapsedS(row, this._client.nowS)) },
      { title: "worker", sort: "worker", muted: true, text: (row) => noteOf(row) },
      ...(canStop ? [{ title: "", sort: "", stop: true, text: () => "" }] : []),
    ];
  }

  _cell(cell, column, row, best) {
    const span = cell.firstChild;
    const tone = column.state ? `ddl-dot ddl-is-${clean(row.state, 12)}` : column.strong ? "ddl-strong" : column.muted ? "ddl-muted" : null;
    setAttribute(cell, "class", column.numeric ? "ddl-right" : null);
    setAttribute(span, "class", tone);
    const text = column.text(row);
    setText(span, column.sort === "number" && row.number === best ? `★ ${text}` : text);
    setAttribute(cell, "title", column.muted && row.failure !== null ? clean(row.failure.message, 300) : null);
    this._stopButton(cell, column.stop === true && row.state === "running" ? row.number : null);
  }

  _stopButton(cell, trial) {
    let button = cell.querySelector("button");
    if (trial === null) {
      if (button === null) return;
      // Whoever stands on it stays in the table.
      const isFocused = button === button.getRootNode().activeElement;
      button.remove();
      if (isFocused) this._region.focus({ preventScroll: true });
      return;
    }
    if (button === null) {
      button = h("button", { type: "button", class: "ddl-button ddl-small" });
      // What is meant is what stood there when the button went down.
      let meant = null;
      button.addEventListener("pointerdown", () => (meant = Number(button.dataset.trial)));
      button.addEventListener("click", () => {
        this._press(meant ?? Number(button.dataset.trial));
        meant = null;
      });
      cell.append(button);
    }
    button.dataset.trial = String(trial);
    const pending = this._pending.get(trial);
    const isStopping = this._stopping.has(trial);
    const leftS = pending === undefined ? 0 : Math.max(1, Math.ceil((pending.atMs - Date.now()) / 1000));
    setText(button, pending !== undefined ? `undo ${leftS}` : isStopping ? "stopping…" : "stop");
    setAttribute(button, "aria-label", pending === undefined ? `Stop trial ${trial}` : `Undo stopping trial ${trial}`);
    // Not disabled: that would take the focus away.
    setAttribute(button, "aria-disabled", isStopping ? "true" : null);
  }

  /** The first press stops a trial after a while, a second one before that does not. */
  _press(trial) {
    const pending = this._pending.get(trial);
    if (pending !== undefined) {
      this._forget(trial);
      setText(this._said, `Trial ${trial} goes on.`);
    } else if (!this._stopping.has(trial)) {
      const timer = setTimeout(() => this._stop(trial), UNDO_MS);
      this._pending.set(trial, { atMs: Date.now() + UNDO_MS, timer });
      setText(this._said, `Trial ${trial} is stopped in ${UNDO_MS / 1000} seconds; press again to undo.`);
    }
    this.update(this._snapshot);
  }

  _forget(trial) {
    clearTimeout(this._pending.get(trial)?.timer);
    this._pending.delete(trial);
  }

  /** There is nothing to stop where a trial, or the run, has ended meanwhile. */
  _settle(rows) {
    const over = new Set(rows.filter((row) => row.state !== "running").map((row) => row.number));
    for (const trial of [...this._pending.keys()]) {
      if (!over.has(trial) && !isFinal(this._snapshot.state)) continue;
      this._forget(trial);
      setText(this._said, `Trial ${trial} has ended by itself.`);
    }
  }

  async _stop(trial) {
    this._forget(trial);
    this._stopping.add(trial);
    setText(this._said, `Stopping trial ${trial}…`);
    this.update(this._snapshot);
    const answer = await this._client.request({ kind: "stop_trial", run_id: this._snapshot.run_id, trial });
    setText(this._said, answer.kind === "done" ? `Trial ${trial} is asked to stop.` : clean(answer.text, 200));
    if (answer.kind !== "done") this._stopping.delete(trial);
  }
}

/** Seconds of the last attempt; those so far of a running one. */
function elapsedS(row, nowS) {
  if (row.state !== "running" || row.started_at_s === null) return row.duration_s;
  return Math.max(0, nowS - row.started_at_s);
}

/**
 * The rows that contain a text, in order; what has no value stands at the end in either direction.
 * @param {any[]} rows
 * @param {string} sort
 * @param {boolean} descending
 * @param {string} wanted words, and comparisons such as `lr>0.01`
 * @param {string | null} [metric] name of the objective
 * @returns {any[]}
 */
export function ordered(rows, sort, descending, wanted, metric = null) {
  const tests = testsOf(wanted, metric);
  const matching = rows.filter((row) => tests.every((test) => test(row)));
  const known = matching.filter((row) => keyOf(row, sort) !== null);
  const unknown = matching.filter((row) => keyOf(row, sort) === null);
  known.sort((a, b) => compare(keyOf(a, sort), keyOf(b, sort)) || a.number - b.number);
  if (descending) known.reverse();
  return [...known, ...unknown];
}

/** `total` names the metric that says how many steps there are, if any does. */
function steps(row, total) {
  if (row.step === null) return "–";
  const all = total === "" ? undefined : row.metrics[total];
  return count(row.step) + (all === undefined ? "" : ` / ${count(all)}`);
}

function noteOf(row) {
  if (row.failure !== null && row.state === "failed") return `${clean(row.failure.type_name, 40)}`;
  const again = row.attempts > 1 ? ` · attempt ${row.attempts}` : "";
  return clean(row.worker, 32) + again;
}

const COMPARED = {
  "<": (a, b) => a < b,
  ">": (a, b) => a > b,
  "<=": (a, b) => a <= b,
  ">=": (a, b) => a >= b,
};

/** One test for each word; views/answers.py has the same ones. */
function testsOf(wanted, metric) {
  const words = wanted.toLowerCase().replace(/\s*(<=|>=|<|>)\s*/g, "$1").split(/\s+/).filter(Boolean);
  return words.map((word) => {
    const [, name, sign, limit] = /^([^<>]+?)(<=|>=|<|>)([^<>=]+)$/.exec(word) ?? [];
    if (name === undefined || !Number.isFinite(Number(limit))) return (row) => contains(row, word);
    return (row) => {
      const value = numberOf(row, name, metric);
      return typeof value === "number" && COMPARED[sign](value, Number(limit));
    };
  });
}

function contains(row, word) {
  const texts = [row.state, row.worker, `#${row.number}`];
  for (const [name, value] of Object.entries(row.params)) texts.push(`${name}=${value}`);
  return texts.some((text) => String(text).toLowerCase().includes(word));
}

/** What a lowercase name stands for: a parameter before anything else. */
function numberOf(row, name, metric) {
  const known = Object.entries(row.params).find(([each]) => each.toLowerCase() === name);
  if (known !== undefined) return known[1];
  if (name === "value" || name === metric?.toLowerCase()) return keyOf(row, "value");
  return { number: row.number, step: row.step, time: row.duration_s }[name] ?? null;
}

function keyOf(row, sort) {
  // What a trial had when it was cancelled is not a result.
  const counts = ["complete", "pruned", "running"].includes(row.state);
  const own = { number: row.number, state: row.state, value: counts ? row.value : null, duration_s: row.duration_s, worker: row.worker, step: row.step };
  const value = sort in own ? own[sort] : row.params[sort];
  return value === undefined || value === "" ? null : value;
}

function compare(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  if (typeof a === typeof b) return String(a) < String(b) ? -1 : String(a) > String(b) ? 1 : 0;
  return typeof a === "number" ? -1 : 1;
}
