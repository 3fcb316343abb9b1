// The live view of one run, the same in a cell and in the panel.

import { Actions } from "./actions.js";
import { Cells } from "./cells.js";
import { Client, isFinal } from "./client.js";
import { AllTrials } from "./columns.js";
import { Curves } from "./curves.js";
import { h, Scope, setAttribute, setText, show } from "./dom.js";
import { capitalized } from "./format.js";
import { Header } from "./header.js";
import { History } from "./history.js";
import { LogTail } from "./log.js";
import { Machines } from "./machines.js";
import { Parallel } from "./parallel.js";
import { Profile } from "./profile.js";
import { Ranks } from "./ranks.js";
import { Selection } from "./selection.js";
import { TrialCard } from "./trial.js";
import { Trials } from "./trials.js";
import { Why } from "./why.js";

const RELAYED = new Set(["stop_run", "stop_trial", "resume_run", "get_stacks"]);
const EVENT = "jupyter-ddl:send";
const TICK_MS = 1000;
const HISTORY_MS = 5000;
const MANY_TRIALS = 1000;

/**
 * Show a run in an element.
 * @param {HTMLElement} element its content is this view's until `destroy`
 * @param {{send: (message: object) => void, subscribe: (callback: (message: any) => void) => () => void}} channel
 *   JSON objects as protocol/view_messages.py describes them
 * @param {{runId?: string, waiting?: string, clock?: () => number, isInCell?: boolean, record?: any[],
 *   host?: import("./remedies.js").Host}} [options]
 *   `waiting`: what is said before the first news; `clock`: of a recording, Unix seconds of the
 *   moment that is shown: then nothing can be stopped; `record`: of a recording, all snapshots;
 *   `isInCell`: tracebacks stand below the view; `host`: what the page around can do
 * @returns {{destroy: () => void, forget: () => void, choose: (trial: number) => void}} `forget`: older news count
 *   again; `choose`: show this trial in full
 */
export function mount(element, channel, options = {}) {
  const scope = new Scope();
  const root = h("div", { class: "ddl-live", role: "group", "aria-label": "Run" });
  const waiting = h("div", { class: "ddl-muted ddl-waiting", text: options.waiting ?? "Waiting for the run…" });
  root.append(waiting);
  element.append(root);
  let frame = 0;
  const draw = () => {
    frame = 0;
    if (!scope.closed) view.update();
  };
  const schedule = () => {
    if (frame === 0) frame = requestAnimationFrame(draw);
  };
  const client = new Client(channel, {
    runId: options.runId,
    onChange: schedule,
    relay: (message, reply) => relayed(root, message, reply),
    clock: options.clock,
    isInCell: options.isInCell,
  });
  const view = new View(root, waiting, scope, client, options.record ?? null, {
    host: options.host ?? {},
    schedule,
  });
  scope.every(schedule, TICK_MS);
  scope.add(() => cancelAnimationFrame(frame));
  scope.add(() => client.close());
  return {
    forget: () => client.forget(),
    choose: (trial) => view.choose(trial),
    destroy: () => {
      scope.close();
      root.remove();
    },
  };
}

/** Offer a request to an extension of the page, which can reach the run past a busy kernel. */
function relayed(root, message, reply) {
  if (!RELAYED.has(message.kind)) return false;
  const event = new CustomEvent(EVENT, { bubbles: true, cancelable: true, composed: true, detail: message });
  Object.defineProperty(event, "reply", { value: reply });
  root.dispatchEvent(event);
  return event.defaultPrevented;
}

class View {
  constructor(root, waiting, scope, client, record, { host, schedule }) {
    this._host = host;
    this._all = new AllTrials(client, schedule);
    this._selection = new Selection(schedule);
    this._record = record;
    this._root = root;
    this._waiting = waiting;
    this._client = client;
    this._scope = scope;
    this._drawn = { view: null, telemetry: null };
    this._isBuilt = false;
    this._charts = []; // that are still to be drawn
    this._chartFrame = 0;
  }

  _build() {
    const { _scope: scope, _client: client, _root: root } = this;
    this._actions = new Actions(scope, client, this._host);
    this._header = new Header(this._actions.element, client, this._host);
    this._cells = new Cells();
    const choose = (trial) => this.choose(trial);
    this._curves = new Curves(scope, this._selection, choose, this._record);
    this._parallel = new Parallel(scope, this._selection, this._record);
    this._ranks = new Ranks(client);
    this._machines = new Machines();
    this._trials = new Trials(scope, client, this._selection, choose);
    this._log = new LogTail(scope, client);
    this._plots = h("div", { class: "ddl-plots" }, this._curves.element, this._parallel.element);
    this._card = new TrialCard(scope, client);
    this._why = new Why(scope, client, choose, this._selection);
    this._ranksPart = section("Ranks", this._ranks.element, true);
    this._cellsPart = section("Cells", this._cells.element, true);
    this._profile = new Profile(scope, this._host);
    this._profilePart = section("Operations", this._profile.element, true);
    this._machinesPart = section("Machines", this._machines.element, true);
    this._trialsPart = section("Trials", this._trials.element, true);
    this._history = new History(scope, choose);
    this._historyPart = section("Timeline", this._history.element, false);
    this._askedMs = -Infinity;
    scope.listen(this._historyPart, "toggle", () => {
      this._askedMs = -Infinity;
      this._updateHistory();
    });
    // A recording has it above, as the axis of its slider.
    show(this._historyPart, this._record === null);
    this._logPart = section("Output", this._log.element, false);
    scope.listen(this._logPart, "toggle", () => this._log.open(this._logPart.open));
    root.append(
      this._header.element,
      this._plots,
      this._card.element,
      this._why.element,
      this._cellsPart,
      this._ranksPart,
      this._profilePart,
      this._machinesPart,
      this._historyPart,
      this._trialsPart,
      this._logPart,
      this._header.notices,
    );
    this._waiting.remove();
    this._isBuilt = true;
  }

  update() {
    const { view, telemetry } = this._client;
    if (view === null) return;
    if (!this._isBuilt) this._build();
    const { snapshot } = view;
    this._all.update(snapshot);
    this._header.update(snapshot, this._client);
    const { trial } = this._selection;
    if (trial !== null && trial !== this._lookedAt) this.choose(trial);
    this._lookedAt = trial;
    const chosen = `${this._all.columns.version} ${this._selection.version}`;
    if (view !== this._drawn.view) this._updateRun(snapshot);
    else if (chosen !== this._chosen) this._updateTrials(snapshot);
    else if (!isFinal(snapshot.state)) this._updateAges(snapshot);
    if (telemetry !== this._drawn.telemetry || !this._drawn.view) this._updateMachines(telemetry, snapshot);
    this._why.update(snapshot, this._all.columns);
    this._drawn = { view, telemetry };
    this._chosen = chosen;
    this._updateHistory();
  }

  /** While it is open: now and then, and once more at the end. */
  async _updateHistory() {
    const snapshot = this._client.view?.snapshot;
    const isOver = snapshot !== undefined && isFinal(snapshot.state);
    const nowMs = performance.now();
    if (snapshot === undefined || !this._historyPart.open || this._record !== null) return;
    if (this._askedMs === Infinity || nowMs - this._askedMs < HISTORY_MS) return;
    this._askedMs = isOver ? Infinity : nowMs;
    const answer = await this._client.request({ kind: "get_history", run_id: snapshot.run_id });
    if (this._scope.closed) return;
    const isThere = answer.kind === "history";
    this._history.update(isThere ? answer.history : null, isThere ? answer.note : answer.text);
  }

  /** Show one trial in full. */
  choose(number) {
    if (this._client.view === null || !this._isBuilt) return;
    const { columns } = this._all;
    const { snapshot } = this._client.view;
    this._lookedAt = number;
    this._selection.mark(number);
    const row = columns.rowOf(number);
    const shown = snapshot.rows.find((each) => each.number === number);
    this._card.open(number, snapshot, shown ?? (row < 0 ? null : columns.row(row)));
  }

  _updateRun(snapshot) {
    const { has_objective: hasObjective, has_ranks: hasRanks } = snapshot.can;
    setAttribute(this._root, "aria-label", `Run ${snapshot.run_id}`);
    setAttribute(this._root, "data-run", snapshot.run_id);
    setAttribute(this._root, "data-state", snapshot.state);
    setAttribute(this._root, "data-seq", snapshot.seq);
    this._actions.update(snapshot);
    this._card.update(snapshot);
    this._updateTrials(snapshot);
    // Otherwise it knows itself whether there is something to draw.
    if (!hasObjective) show(this._parallel.element, false);
    show(this._ranksPart, snapshot.ranks.length > 0);
    show(this._profilePart, (snapshot.operations ?? []).length > 0);
    this._profile.update(snapshot);
    show(this._cellsPart, snapshot.can.has_cells);
    this._cells.update(snapshot);
    setText(this._trialsPart.firstChild.firstChild, capitalized(snapshot.nouns.trials));
    show(this._trialsPart, !hasRanks && snapshot.rows.length > 0);
    this._ranks.update(snapshot, this._client.nowS);
    this._log.update(snapshot);
  }

  /** What is drawn of all trials: they come after the snapshot, and one chooses among them. */
  _updateTrials(snapshot) {
    const { columns } = this._all;
    if (!snapshot.can.has_ranks) this._trials.update(snapshot, columns);
    const charts = [this._curves, ...(snapshot.can.has_objective ? [this._parallel] : [])];
    // What still waits for its turn keeps it.
    this._charts.push(...charts.filter((chart) => !this._charts.includes(chart)));
    if (columns.n <= MANY_TRIALS) for (const chart of this._charts.splice(0)) chart.update(snapshot, columns);
    else if (this._chartFrame === 0) this._nextChart();
  }

  /** Of many trials one chart in each of the next frames: together they would hold the page up. */
  _nextChart() {
    this._chartFrame = requestAnimationFrame(() => {
      this._chartFrame = 0;
      const { view } = this._client;
      if (this._scope.closed || view === null) return;
      this._charts.shift()?.update(view.snapshot, this._all.columns);
      if (this._charts.length > 0) this._nextChart();
    });
  }

  /** What grows by itself: nothing is sent while nothing happens. */
  _updateAges(snapshot) {
    this._ranks.update(snapshot, this._client.nowS);
    if (!snapshot.can.has_ranks) this._trials.update(snapshot, this._all.columns);
  }

  _updateMachines(telemetry, snapshot) {
    // Once a run has ended, its machines work for others.
    show(this._machinesPart, telemetry !== null || !isFinal(snapshot.state));
    this._machines.update(telemetry);
    setText(this._machinesPart.firstChild.lastChild, this._machines.summary(telemetry));
  }
}

function section(title, content, isOpen) {
  return h(
    "details",
    { class: "ddl-section", open: isOpen },
    h("summary", {}, h("span", { class: "ddl-section-title", text: title }), h("span", { class: "ddl-muted" })),
    content,
  );
}
