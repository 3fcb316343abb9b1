// What a run is, how far it has come, and what is wrong with it.

import { isFinal } from "./client.js";
import { spentOf } from "./costs.js";
import { clean, h, repeat, setAttribute, setText, show } from "./dom.js";
import { capitalized, count, counted, duration, param, rate, score } from "./format.js";
import { forHang, forWaiting, Remedies, withoutAdvice } from "./remedies.js";

const SEGMENTS = ["complete", "pruned", "failed", "cancelled", "running"];
const QUIET_MS = 4000;

/** State, title, progress, counts, times, best trial, trouble, notices. */
export class Header {
  /**
   * @param {Node} actions shown beside the title
   * @param {import("./client.js").Client} client
   * @param {import("./remedies.js").Host} [host]
   */
  constructor(actions, client, host = {}) {
    this._client = client;
    this._host = host;
    this._remedies = new WeakMap();
    this._state = h("span", { class: "ddl-pill" });
    this._title = h("bdi", { class: "ddl-title" });
    this._facts = h("span", { class: "ddl-muted ddl-facts" });
    this._bar = h("div", { class: "ddl-bar", role: "progressbar", "aria-valuemin": "0" });
    this._counts = h("div", { class: "ddl-counts" });
    this._times = h("div", { class: "ddl-muted ddl-times" });
    this._best = h("div", { class: "ddl-best" });
    this._trouble = h("div", { class: "ddl-trouble" });
    this._notices = h("ul", { class: "ddl-notices ddl-muted", "aria-label": "Notices" });
    this._live = h("div", { class: "ddl-hidden-text", role: "status", "aria-live": "polite" });
    this._saidMs = -Infinity;
    this._said = "";
    this.element = h(
      "header",
      {},
      h("div", { class: "ddl-head" }, this._state, this._title, this._facts, actions),
      this._bar,
      h("div", { class: "ddl-caption" }, this._counts, this._times),
      this._trouble,
      this._best,
      this._live,
    );
    this.notices = this._notices;
  }

  /**
   * @param {any} snapshot
   * @param {{nowS: number, silentMs: number, trouble: string}} client
   */
  update(snapshot, client) {
    const ended = isFinal(snapshot.state);
    const word = stateWord(snapshot);
    setText(this._state, word);
    const tone = word === "waiting" || word === "recovering" ? "paused" : snapshot.state;
    setAttribute(this._state, "class", `ddl-pill ddl-is-${clean(tone, 12)}`);
    setText(this._title, clean(snapshot.name || snapshot.run_id, 120));
    setText(this._facts, factsOf(snapshot).join(" · "));
    this._progress(snapshot);
    setText(this._times, timesOf(snapshot, client, ended).join(" · "));
    this._showBest(snapshot, ended);
    this._showTrouble(snapshot, client, ended);
    repeat(
      this._notices,
      snapshot.notices,
      () => h("li"),
      (item, text) => setText(item, clean(text, 300)),
    );
    show(this._notices, snapshot.notices.length > 0);
    this._say(snapshot, word, ended);
  }

  _progress(snapshot) {
    const parts = segments(snapshot);
    const isGroup = snapshot.can.has_ranks || snapshot.can.has_cells;
    show(this._bar, !isGroup);
    const done = finished(snapshot.counts);
    setAttribute(this._bar, "aria-valuemax", snapshot.n_trials);
    setAttribute(this._bar, "aria-valuenow", done);
    setAttribute(this._bar, "aria-label", `${done} of ${snapshot.n_trials} ${noun(snapshot)} finished`);
    repeat(
      this._bar,
      isGroup ? [] : parts,
      () => h("i"),
      (segment, part) => {
        setAttribute(segment, "class", `ddl-fill-${part.state}`);
        segment.style.width = `${(100 * part.share).toFixed(3)}%`;
      },
    );
    const items = isGroup ? groupCounts(snapshot) : [
      { text: `${count(done)} of ${count(snapshot.n_trials)} ${noun(snapshot)}`, state: "" },
      ...parts.map((part) => ({ text: `${count(part.n)} ${part.state}`, state: part.state })),
      ...(snapshot.n_evictions > 0 ? [{ text: `${count(snapshot.n_evictions)} evicted and tried again`, state: "evicted" }] : []),
    ];
    repeat(
      this._counts,
      items,
      () => h("span"),
      (item, { text, state }) => {
        setAttribute(item, "class", state ? `ddl-dot ddl-is-${state}` : "ddl-strong");
        setText(item, text);
      },
    );
  }

  _showBest(snapshot, ended) {
    const best = snapshot.best;
    show(this._best, best !== null);
    if (best === null) return;
    const all = Object.entries(best.params);
    const items = [
      { label: `${ended ? "Best" : "Best so far"}, ${snapshot.nouns.trial} ${best.number}`, value: "" },
      { label: clean(snapshot.metric ?? "value", 40), value: score(best.value), large: true },
      ...all.slice(0, 10).map(([name, value]) => ({ label: clean(name, 28), value: param(value) })),
      ...(all.length > 10 ? [{ label: `+${all.length - 10} more`, value: "" }] : []),
    ];
    repeat(
      this._best,
      items,
      () => h("span", {}, h("span", { class: "ddl-muted" }), h("b")),
      (item, { label, value, large }) => {
        setText(item.firstChild, label);
        setText(item.lastChild, value);
        setAttribute(item, "class", large ? "ddl-large" : null);
      },
    );
  }

  _showTrouble(snapshot, client, ended) {
    // Of a record that can't be read, what it says of a run's wants is not to be acted upon.
    const cards = client.trouble
      ? [{ tone: "failed", title: "The record can't be read: ", text: clean(client.trouble, 500) }]
      : troubles(snapshot, ended, client.isReplay ? null : this._host);
    repeat(
      this._trouble,
      cards,
      () => {
        const remedies = new Remedies(this._client, this._host);
        const traceback = h("details", {}, h("summary", { text: "Traceback" }), h("pre"));
        const card = h("div", {}, h("b"), h("span"), traceback, remedies.element);
        this._remedies.set(card, remedies);
        return card;
      },
      (card, { tone, title, text, traceback, remedies = [] }) => {
        setAttribute(card, "class", `ddl-card ddl-is-${tone}`);
        setAttribute(card, "role", tone === "failed" ? "alert" : "note");
        const [head, body, details] = card.children;
        setText(head, title);
        setText(body, text);
        show(details, Boolean(traceback) && !client.isInCell);
        setText(details.lastChild, traceback ?? "");
        this._remedies.get(card).update(snapshot, remedies);
      },
    );
  }

  /** For screen readers: what changed, at most every ten seconds. */
  _say(snapshot, word, ended) {
    const best = snapshot.best === null ? "" : `, best ${score(snapshot.best.value)}`;
    const told = snapshot.can.has_ranks || snapshot.can.has_cells
      ? groupCounts(snapshot).map(({ text }) => text).join(", ")
      : `${finished(snapshot.counts)} of ${snapshot.n_trials} ${noun(snapshot)} finished`;
    const text = `${word}: ${told}${best}`;
    const nowMs = Date.now();
    if (text === this._said || (nowMs - this._saidMs < 10_000 && !ended)) return;
    this._said = text;
    this._saidMs = nowMs;
    setText(this._live, text);
  }
}

/**
 * @param {any} counts
 * @returns {number}
 */
export function finished(counts) {
  return counts.complete + counts.pruned + counts.failed + counts.cancelled;
}

/**
 * @param {any} snapshot
 * @returns {string}
 */
export function noun(snapshot) {
  return snapshot.n_trials === 1 ? snapshot.nouns.trial : snapshot.nouns.trials;
}

function stateWord(snapshot) {
  if (isFinal(snapshot.state)) return clean(snapshot.state, 12);
  if (snapshot.driver === "recovering") return "recovering";
  if (snapshot.stopping) return "stopping…";
  return snapshot.paused ? "waiting" : clean(snapshot.state, 12);
}

function factsOf(snapshot) {
  const facts = [clean(snapshot.verb, 12), `cluster ${clean(snapshot.cluster, 40)}`];
  if (snapshot.name) facts.unshift(clean(snapshot.run_id, 60));
  if (snapshot.sampler) facts.push(`${clean(snapshot.sampler, 24)} sampler`);
  if (snapshot.pruner && snapshot.pruner !== "none") facts.push(`${clean(snapshot.pruner, 24)} pruner`);
  return facts;
}

function segments(snapshot) {
  const total = SEGMENTS.reduce((sum, state) => sum + snapshot.counts[state], 0);
  const whole = Math.max(1, snapshot.n_trials, total);
  return SEGMENTS.filter((state) => snapshot.counts[state] > 0).map((state) => ({
    state,
    n: snapshot.counts[state],
    share: snapshot.counts[state] / whole,
  }));
}

function groupCounts(snapshot) {
  const items = [];
  const step = lastStep(snapshot.ranks);
  const { world_size: n, n_to_come: toCome } = snapshot;
  if (n) items.push({ text: (toCome ? `${count(n - toCome)} of ` : "") + counted(n, "rank"), state: "" });
  if (snapshot.can.has_cells) {
    items.push({ text: counted(snapshot.cells.at(-1)?.number ?? 0, "cell"), state: "" });
  }
  if (step !== null) items.push({ text: `step ${count(step)}`, state: "" });
  if (snapshot.round > 1) {
    const of = snapshot.round <= snapshot.max_rounds ? ` of ${snapshot.max_rounds}` : "";
    items.push({ text: `round ${snapshot.round}${of}`, state: "" });
  }
  if (snapshot.checkpoint_step !== null) {
    items.push({ text: `checkpoint at step ${count(snapshot.checkpoint_step)}`, state: "complete" });
  }
  return items;
}

/** Rank 0's step, else the furthest of any rank. */
function lastStep(ranks) {
  if (ranks[0]?.rank === 0 && ranks[0].step !== null) return ranks[0].step;
  const steps = ranks.map((row) => row.step).filter((step) => step !== null);
  return steps.length ? Math.max(...steps) : null;
}

function timesOf(snapshot, client, ended) {
  const start = snapshot.started_at_s ?? snapshot.created_at_s;
  const end = snapshot.finished_at_s ?? client.nowS;
  const elapsed = Math.max(0, end - start);
  const parts = [duration(elapsed)];
  const perS = ended
    ? finished(snapshot.counts) > 1 && elapsed > 0 ? finished(snapshot.counts) / elapsed : null
    : snapshot.trials_per_s;
  if (!snapshot.can.has_ranks && !snapshot.can.has_cells) parts.push(rate(perS, snapshot.nouns.trials));
  const leftS = snapshot.ends_at_s === null ? -1 : snapshot.ends_at_s - client.nowS;
  if (!ended && leftS >= 0 && !snapshot.paused) parts.push(`about ${duration(Math.max(1, leftS))} left`);
  for (const row of snapshot.spending ?? []) parts.push(spentOf(snapshot, row, client.nowS, ended));
  if (!ended && client.silentMs > QUIET_MS) parts.push(`no news for ${duration(client.silentMs / 1000)}`);
  return parts.filter(Boolean);
}

/** What is wrong, each with what can be done; `host` is null where nothing can. */
function troubles(snapshot, ended, host) {
  const cards = [];
  if (snapshot.paused && !ended) {
    const remedies = host === null ? [] : forWaiting(snapshot, host);
    const title = snapshot.driver === "recovering" ? "Recovering. " : "Waiting. ";
    cards.push({ tone: "paused", title, text: capitalized(clean(withoutAdvice(snapshot.paused, remedies), 500)), remedies });
  }
  const hung = snapshot.hang ?? null;
  const stacks = host === null || hung === null ? [] : forHang(hung);
  const failure = snapshot.failure;
  if (failure !== null) {
    const where = snapshot.can.has_ranks
      ? failure.rank === null ? "" : `Rank ${failure.rank}: `
      : snapshot.failed_trial === null ? "" : `${capitalized(snapshot.nouns.trial)} ${snapshot.failed_trial} failed: `;
    const line = failure.line === null ? "" : ` (cell line ${failure.line})`;
    cards.push({
      tone: "failed",
      title: `${where}${clean(failure.type_name, 80)}${line} `,
      text: clean(failure.message, 600),
      traceback: lines(failure.traceback),
      remedies: failure.kind === "hang" ? stacks : [],
    });
  }
  if (hung !== null && snapshot.state !== "complete" && failure?.kind !== "hang") {
    cards.push({ tone: "failed", title: "Hang. ", text: clean(hung.text, 600), remedies: stacks });
  }
  for (const row of snapshot.restarts ?? []) {
    const who = row.rank === null ? "the group" : `rank ${row.rank}`;
    const next = `round ${row.round + 1}`;
    const went = !row.is_over ? (ended ? "" : "; the next round is being prepared")
      : row.step === null ? `; ${next} started over` : `; ${next} resumed from step ${count(row.step)}`;
    cards.push({ tone: "paused", title: `Round ${row.round}: `, text: `${who} ${clean(row.cause, 200)}${went}` });
  }
  if (snapshot.reason && failure === null) {
    cards.push({ tone: snapshot.state === "failed" ? "failed" : "cancelled", title: "", text: clean(snapshot.reason, 500) });
  }
  return cards;
}

function lines(text) {
  return String(text ?? "").split("\n").map((line) => clean(line, 400)).join("\n").trim();
}
