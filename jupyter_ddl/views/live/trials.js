// The table of trials: all of them, of which the page has the rows in sight.

import { isFinal } from "./client.js";
import { clean, h, repeat, setAttribute, setText, show } from "./dom.js";
import { count, duration, param, score } from "./format.js";
import { orderOf } from "./order.js";

const N_PINNED = 4;
const TYPE_MS = 250;
const UNDO_MS = 3000;
const ROW_PX = 26;
const N_ROWS = 12;
const N_SPARE = 6;
const MOST_CHARS = 28;
/** Sorting so long is not done for every snapshot. */
const LONG_MS = 15;
const REST_FACTOR = 20;

/** Sorted and filtered; the best one marked; running ones can be stopped. */
export class Trials {
  /**
   * @param {import("./dom.js").Scope} scope
   * @param {import("./client.js").Client} client
   * @param {import("./selection.js").Selection} selection
   * @param {(trial: number) => void} choose
   */
  constructor(scope, client, selection, choose) {
    this._client = client;
    this._selection = selection;
    this._sort = "";
    this._descending = false;
    this._stopping = new Set();
    // Stops that can be undone yet: trial → when it is sent, and the timer for it.
    this._pending = new Map();
    this._isHeld = false;
    this._order = [];
    this._orderKey = "";
    this._nextMs = 0;
    /** Widest text of each column so far, in characters: columns stay where they are. */
    this._widths = new Map();
    this._lines = new Map();
    this._rowPx = 0;
    this._scrollTop = 0;
    this._snapshot = null;
    this._columns = null;
    this._filter = h("input", {
      type: "search",
      class: "ddl-input",
      placeholder: "Filter",
      "aria-label": "Filter trials by state, worker, name=value or name>number",
      title: "For instance: pruned, lr>0.01, width<=64 lr>0.01",
    });
    this._head = h("tr", { "aria-rowindex": "1" });
    this._body = h("tbody");
    this._shown = h("span", { class: "ddl-muted", "aria-live": "off" });
    this._said = h("span", { class: "ddl-muted", role: "status" });
    this._table = h("table", { class: "ddl-table" }, h("thead", {}, this._head), this._body);
    // As high as all rows would be.
    this._room = h("div", {}, this._table);
    this._region = h("div", { class: "ddl-scroll ddl-rows", tabindex: "0", role: "region", "aria-label": "Trials" }, this._room);
    const finder = this._finder(scope, choose);
    this.element = h("div", {}, h("div", { class: "ddl-tools" }, this._filter, this._shown, this._said, finder), this._region);
    scope.listen(this._region, "pointerenter", () => this._hold(true));
    scope.listen(this._region, "pointerleave", () => this._hold(this._hasFocus));
    scope.listen(this._region, "focusin", () => this._hold(true));
    // Not before the focus is where it goes.
    scope.listen(this._region, "focusout", () => queueMicrotask(() => this._hold(this._hasFocus || this._region.matches(":hover"))));
    this._frame = 0;
    scope.listen(this._region, "scroll", () => {
      // Read here, where nothing has changed yet: later it would cost a layout of its own.
      this._scrollTop = this._region.scrollTop;
      if (this._frame === 0) this._frame = requestAnimationFrame(() => {
        this._frame = 0;
        if (!scope.closed && this._snapshot !== null) this._draw();
      });
    });
    scope.add(() => cancelAnimationFrame(this._frame));
    scope.add(() => {
      for (const { timer } of this._pending.values()) clearTimeout(timer);
    });
    let typing = 0;
    scope.listen(this._filter, "input", () => {
      clearTimeout(typing);
      typing = setTimeout(() => this._turn(), TYPE_MS);
    });
    scope.add(() => clearTimeout(typing));
    // Lab runs the cell again on Shift+Enter, wherever the focus is.
    scope.listen(this._filter, "keydown", (event) => event.stopPropagation());
    scope.listen(this._body, "click", (event) => {
      const line = event.target.closest("tr");
      if (event.target.closest("button") !== null || line === null) return;
      for (const [trial, each] of this._lines) if (each === line) selection.mark(selection.trial === trial ? null : trial);
    });
  }

  /** Shows a trial by its number, also one that is not in the table. */
  _finder(scope, choose) {
    const field = h("input", { type: "number", min: "0", class: "ddl-input ddl-number", placeholder: "Number", "aria-label": "Number of a trial" });
    const open = h("button", { type: "button", class: "ddl-button", text: "Show" });
    const show = () => {
      if (field.value !== "") choose(Number(field.value));
    };
    scope.listen(open, "click", show);
    // No form, which a page of a run has none of; and Lab runs the cell again on Shift+Enter.
    scope.listen(field, "keydown", (event) => {
      event.stopPropagation();
      if (event.key === "Enter") show();
    });
    return h("span", { class: "ddl-finder" }, field, open);
  }

  get _hasFocus() {
    return this._region.contains(this._region.getRootNode().activeElement);
  }

  /** Rows stay where they are while somebody points at one, or is about to press a button of one. */
  _hold(isHeld) {
    if (isHeld === this._isHeld) return;
    this._isHeld = isHeld;
    if (isHeld) return;
    if (this._snapshot !== null) this.update(this._snapshot);
  }

  /**
   * @param {any} snapshot
   * @param {import("./columns.js").Columns} [columns] all trials
   */
  update(snapshot, columns = this._columns) {
    if (snapshot.run_id !== this._snapshot?.run_id) {
      this._orderKey = "";
      this._lines.clear();
      this._body.replaceChildren();
    }
    this._snapshot = snapshot;
    this._columns = columns;
    this._sorted();
    this._draw();
  }

  /** Sorted or filtered anew, from the first row on. */
  _turn() {
    if (this._snapshot === null) return;
    this._orderKey = "";
    this._region.scrollTop = this._scrollTop = 0;
    this.update(this._snapshot);
  }

  _howSorted(snapshot) {
    // A search begins with its best trials, anything else with the newest.
    if (this._sort !== "") return [this._sort, this._descending];
    return snapshot.can.has_objective ? ["value", snapshot.mode !== "min"] : ["number", true];
  }

  /**
   * Rows keep their places while one points at them, and new ones come below them; all stay as they are while sorting
   * them would take too long.
   */
  _sorted() {
    const { _snapshot: snapshot, _columns: columns } = this;
    const pulled = `${snapshot.run_id} ${this._selection.version}`;
    const key = `${pulled} ${columns.version}`;
    const isPulled = !this._orderKey.startsWith(`${pulled} `);
    const nowMs = Date.now();
    if (key === this._orderKey || (!isPulled && nowMs < this._nextMs)) return;
    const [sort, descending] = this._howSorted(snapshot);
    const wanted = this._filter.value;
    const order = orderOf(columns, { sort, descending, wanted, metric: snapshot.metric, mask: this._selection.mask(columns) });
    const pinned = new Set(wanted.trim() === "" ? this._running(order) : []);
    const anew = pinned.size === 0 ? order : [...pinned, ...order.filter((row) => !pinned.has(row))];
    if (this._isHeld && !isPulled) {
      const known = new Set(this._order);
      this._order = this._order.concat(anew.filter((row) => !known.has(row)));
    } else {
      this._order = anew;
      this._orderKey = key;
    }
    const tookMs = Date.now() - nowMs;
    this._nextMs = tookMs > LONG_MS ? nowMs + REST_FACTOR * tookMs : 0;
  }

  /** Running trials stand above the others, where they can be stopped. */
  _running(order) {
    const { _columns: columns, _selection: selection } = this;
    const rows = this._snapshot.rows.filter((row) => row.state === "running").map((row) => columns.rowOf(row.number));
    const mask = selection.mask(columns);
    return order.length === 0 ? [] : rows.filter((row) => row >= 0 && (mask === null || mask[row] === 1)).slice(0, N_PINNED);
  }

  _draw() {
    const { _snapshot: snapshot, _columns: all, _order: order } = this;
    // Where one has scrolled is drawn with it.
    cancelAnimationFrame(this._frame);
    this._frame = 0;
    // Once: fonts and themes differ.
    if (this._rowPx === 0) this._rowPx = this._body.firstChild?.getBoundingClientRect().height || 0;
    const rowPx = this._rowPx || ROW_PX;
    const first = Math.max(0, Math.min(Math.floor(this._scrollTop / rowPx) - N_SPARE, order.length - N_ROWS - 2 * N_SPARE));
    const shown = order.slice(first, first + N_ROWS + 2 * N_SPARE).map((row) => all.row(row));
    this._failures = new Map(snapshot.rows.filter((row) => row.failure !== null).map((row) => [row.number, row.failure]));
    this._settle();
    const columns = this._shownColumns(snapshot, all);
    this._drawHead(columns, this._howSorted(snapshot));
    this._drawLines(shown, columns, first);
    this._room.style.paddingTop = `${first * rowPx}px`;
    this._room.style.paddingBottom = `${(order.length - first - shown.length) * rowPx}px`;
    setAttribute(this._table, "aria-rowcount", order.length + 1);
    const nAll = all.isSample ? Object.values(snapshot.counts).reduce((sum, n) => sum + n, 0) : all.n;
    const missing = all.nParams > all.params.size ? `; ${all.params.size} of ${all.nParams} parameters, all where a trial is shown` : "";
    setText(this._shown, (order.length === nAll ? count(nAll) : `${count(order.length)} of ${count(nAll)}`) + missing);
  }

  _drawHead(columns, [sort, descending]) {
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
  }

  /** A line of the table stays its trial's for as long as it is in sight. */
  _drawLines(shown, columns, first) {
    const best = this._snapshot.best?.number ?? -1;
    const known = this._lines;
    this._lines = new Map();
    const active = this._region.getRootNode().activeElement;
    const stay = new Set(shown.map((row) => row.number));
    // Lines of trials that went out of sight serve others, but for the one that has the focus.
    const free = [...known].filter(([number, line]) => !stay.has(number) && !line.contains(active));
    shown.forEach((row, n) => {
      let line = known.get(row.number);
      if (line === undefined && free.length > 0) {
        // In their order: where all rows are others now, none has to be moved.
        const [number, other] = free.shift();
        known.delete(number);
        line = other;
      }
      line ??= h("tr");
      known.delete(row.number);
      this._lines.set(row.number, line);
      const isMarked = row.number === this._selection.trial;
      setAttribute(line, "class", [row.number === best && "ddl-is-best", isMarked && "ddl-is-marked"].filter(Boolean).join(" ") || null);
      setAttribute(line, "aria-rowindex", first + n + 2);
      repeat(line, columns, () => h("td", {}, h("span")), (cell, column) => this._cell(cell, column, row, best));
    });
    for (const line of known.values()) {
      const hasFocus = line.contains(active);
      line.remove();
      if (hasFocus) this._region.focus({ preventScroll: true });
    }
    this._inPlace(shown);
    const nChars = columns.reduce((sum, column, n) => sum + this._widen(column, this._head.children[n]), 0);
    setAttribute(this._table, "style", `min-width: calc(${nChars}ch + ${14 * columns.length}px)`);
  }

  /** Only what is not in its place is moved: moving takes the focus away. */
  _inPlace(shown) {
    let place = this._body.firstChild;
    for (const { number } of shown) {
      const line = this._lines.get(number);
      if (line === place) place = place.nextSibling;
      else this._body.insertBefore(line, place);
    }
  }

  /** Widths are told: a browser need not look for them in all cells again. */
  _widen(column, cell) {
    const width = Math.min(MOST_CHARS, Math.max(column.title.length + 2, (column.width ?? 0) + (column.state ? 2 : 0) + (column.sort === "number" ? 3 : 0), column.stop ? 11 : 3));
    setAttribute(cell, "style", `width: calc(${width}ch + 14px)`);
    return width;
  }

  _headCell() {
    const button = h("button", { type: "button", class: "ddl-sort" });
    const cell = h("th", { scope: "col" }, button);
    button.addEventListener("click", () => {
      const [sort, descending] = this._howSorted(this._snapshot);
      const wanted = cell.dataset.sort;
      this._descending = wanted === sort ? !descending : wanted === "value" && this._snapshot.mode !== "min";
      this._sort = wanted;
      this._turn();
    });
    return cell;
  }

  _shownColumns(snapshot, all) {
    const canStop = !this._client.isReadOnly && !isFinal(snapshot.state) && snapshot.counts.running > 0;
    return [
      { title: "#", sort: "number", numeric: true, text: (row) => String(row.number) },
      { title: "state", sort: "state", state: true, text: (row) => clean(row.state, 12) },
      ...(snapshot.can.has_objective
        ? [{ title: clean(snapshot.metric ?? "value", 24), sort: "value", numeric: true, strong: true, text: (row) => score(row.value) }]
        : []),
      ...[...all.params].map(([name, { choices }]) => ({
        title: clean(name, 24),
        sort: name,
        numeric: choices === null,
        text: (row) => (name in row.params ? param(row.params[name], 24) : ""),
      })),
      ...(all.own("step") !== null
        ? [{ title: snapshot.nouns.step, sort: "step", numeric: true, text: (row) => steps(row, snapshot.nouns.total) }]
        : []),
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
    const key = `${column.sort} ${column.title}`;
    if (text.length > (this._widths.get(key) ?? 0)) this._widths.set(key, text.length);
    column.width = this._widths.get(key);
    setText(span, column.sort === "number" && row.number === best ? `★ ${text}` : text);
    const failure = column.muted && row.failure !== null ? this._failures.get(row.number) : undefined;
    const whole = column.muted ? clean(row.worker, 120) || null : null;
    setAttribute(cell, "title", failure === undefined ? whole : clean(failure.message, 300));
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
  _settle() {
    for (const trial of [...this._pending.keys()]) {
      const isOver = this._columns.state(this._columns.rowOf(trial)) !== "running";
      if (!isOver && !isFinal(this._snapshot.state)) continue;
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

/** `total` names the metric that says how many steps there are, if any does. */
function steps(row, total) {
  if (row.step === null) return "–";
  const all = total === "" ? undefined : row.metrics[total];
  return count(row.step) + (all === undefined ? "" : ` / ${count(all)}`);
}

function noteOf(row) {
  if (row.failure !== null && row.state === "failed") return `${clean(row.failure.type_name, 40)}`;
  const again = row.attempts > 1 ? ` · attempt ${row.attempts}` : "";
  return shortened(row.worker) + again;
}

/** The end of a long name: what it begins with, all workers of a cluster have. */
function shortened(worker) {
  const text = clean(worker, 120);
  return text.length > 20 ? `…${text.slice(-12)}` : text;
}
