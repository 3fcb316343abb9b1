// The receiving end: correct after any loss of messages, because it asks again and believes only
// what is complete.  See views/channel.py for the other end.

const SILENCE_MS = 1500;
const GAP_MS = 300;
const HAVE_MS = 2000;
const QUIET_MS = 300;
const STAYS_MS = 2000;
const MAX_SILENCE_MS = 15000;
const RETRY_MS = 400;
const N_TRIES = 24;
const FINAL = new Set(["complete", "failed", "cancelled"]);

/**
 * Whether a run in this state has ended.
 * @param {string} state
 * @returns {boolean}
 */
export function isFinal(state) {
  return FINAL.has(state);
}

function isObject(value) {
  return value !== null && typeof value === "object";
}

/** Keeps the newest of everything from one channel, and carries requests. */
export class Client {
  /**
   * @param {{send: (message: object) => void, subscribe: (callback: (message: any) => void) => () => void}} channel
   * @param {{runId?: string, onChange: () => void, timers?: any, now?: () => number,
   *          relay?: (message: object, reply: (answer: any) => void) => boolean,
   *          clock?: () => number, isInCell?: boolean}} options
   *   `relay` may take a request over; it returns whether it has.  `clock`: of a recording, Unix
   *   seconds of the moment that is shown.
   */
  constructor(channel, options) {
    this._channel = channel;
    this._onChange = options.onChange;
    this._relay = options.relay ?? (() => false);
    this._timers = options.timers ?? globalThis;
    this._now = options.now ?? (() => Date.now());
    this._clock = options.clock;
    /** Whether what is shown is over: there is nothing to stop. */
    this.isReplay = options.clock !== undefined;
    /** Whether the view stands in the output of a cell, above its exception. */
    this.isInCell = options.isInCell === true;
    this._runId = options.runId ?? "";
    this._seq = 0;
    this._asking = null;
    this._waiting = new Map();
    this._nextId = 1 + Math.floor(Math.random() * 1e9);
    this._silenceMs = SILENCE_MS;
    this._haveSentMs = -Infinity;
    this._haveTimer = 0;
    this._heardMs = this._now();
    /** Newest `RunView`, or null. */
    this.view = null;
    /** Newest `TelemetryView`, or null. */
    this.telemetry = null;
    /** What is wrong with the run's record; empty: nothing. */
    this.trouble = "";
    this.nLost = 0;
    this._unsubscribe = channel.subscribe((message) => this._take(message));
    this._timer = this._timers.setInterval(() => this._tick(), 250);
    this._send({ kind: "again", seq: 0 });
    this._askedMs = this._now();
  }

  /** Whether nothing can be done here: it is played, or its record can't be read. */
  get isReadOnly() {
    return this.isReplay || this.trouble !== "";
  }

  /** Milliseconds since the last message of any kind. */
  get silentMs() {
    return this._now() - this._heardMs;
  }

  get ended() {
    return this.view !== null && isFinal(this.view.snapshot.state);
  }

  /** Unix seconds at the sender, as far as is known. */
  get nowS() {
    if (this._clock !== undefined) return this._clock();
    if (this.view === null) return this._now() / 1000;
    return this.view.at_s + (this._now() - this._viewMs) / 1000;
  }

  /**
   * Send a request until it is answered.
   * @param {object} message without its id
   * @param {number} [retryMs] until it is sent again
   * @returns {Promise<any>} the answer; `{kind: "denied"}` when none comes
   */
  request(message, retryMs = RETRY_MS) {
    const id = this._nextId++;
    const whole = { ...message, id };
    return new Promise((resolve) => {
      const waiting = { resolve, nTries: 0, timer: 0, isRelayed: false };
      this._waiting.set(id, waiting);
      const reply = (answer) => this._answer({ ...answer, id });
      waiting.isRelayed = this._relay(whole, reply);
      const attempt = () => {
        if (waiting.nTries++ === N_TRIES) {
          this._answer({ kind: "denied", id, code: "timeout", text: "No answer came; it may still take effect." });
          return;
        }
        // After two waits the other way is tried as well: requests are safe to repeat.
        if (!waiting.isRelayed || waiting.nTries > 2) this._send(whole);
        waiting.timer = this._timers.setTimeout(attempt, retryMs);
      };
      attempt();
    });
  }

  /** Believe what comes next, even if it is older than what is here. */
  forget() {
    this.view = null;
    this.telemetry = null;
  }

  close() {
    this._unsubscribe();
    this._timers.clearInterval(this._timer);
    this._timers.clearTimeout(this._asking);
    this._timers.clearTimeout(this._haveTimer);
    this._timers.clearTimeout(this._lastSeen);
    for (const waiting of this._waiting.values()) this._timers.clearTimeout(waiting.timer);
    this._waiting.clear();
  }

  _take(message) {
    if (!isObject(message)) return;
    const nowMs = this._now();
    this._heardMs = nowMs;
    this._silenceMs = SILENCE_MS;
    if (message.kind === "welcome") this._seq = 0;
    if (typeof message.seq === "number") this._count(message.seq);
    if (message.kind === "run") this._takeRun(message, nowMs);
    else if (message.kind === "telemetry") this._takeTelemetry(message);
    else if (message.kind === "record") this._takeTrouble(message);
    else if (typeof message.id === "number" && message.kind !== "progress") this._answer(message);
    if (nowMs - this._haveSentMs >= HAVE_MS) this._have();
  }

  /** Acknowledge what is here: the other end repeats what was not acknowledged. */
  _have() {
    this._haveSentMs = this._now();
    this._timers.clearTimeout(this._haveTimer);
    this._send({ kind: "have", seq: this.view?.seq ?? 0 });
  }

  _takeRun(message, nowMs) {
    const snapshot = message.snapshot;
    if (!isObject(snapshot) || typeof snapshot.seq !== "number") return;
    if (this._runId !== "" && snapshot.run_id !== this._runId) return;
    if (this.view !== null) {
      const old = this.view.snapshot;
      if (snapshot.run_id === old.run_id && snapshot.seq < old.seq) return;
      if (snapshot.run_id === old.run_id && snapshot.seq === old.seq && message.at_s < this.view.at_s) return;
    }
    this.view = message;
    this._viewMs = nowMs;
    this._onChange();
    this._timers.clearTimeout(this._haveTimer);
    this._haveTimer = this._timers.setTimeout(() => this._have(), QUIET_MS);
    // Every time: the first acknowledgement may have been lost.
    if (this.ended) this._seen(snapshot.run_id);
  }

  /** Twice: the second one says that this view was not replaced by the static one. */
  _seen(runId) {
    this._send({ kind: "seen", run_id: runId });
    if (this._lastSeen !== undefined) return;
    this._lastSeen = this._timers.setTimeout(() => this._send({ kind: "seen", run_id: runId }), STAYS_MS);
  }

  _takeTelemetry(message) {
    if (!isObject(message.telemetry)) return;
    if (this._runId !== "" && message.run_id !== "" && message.run_id !== this._runId) return;
    if (this.telemetry !== null && message.telemetry.seq < this.telemetry.telemetry.seq &&
        message.telemetry.at_s <= this.telemetry.telemetry.at_s) return;
    this.telemetry = message;
    this._onChange();
  }

  _takeTrouble(message) {
    if (this._runId !== "" && message.run_id !== this._runId) return;
    this.trouble = String(message.text);
    this._onChange();
  }

  _count(seq) {
    if (seq > this._seq + 1 && this._seq > 0) {
      this.nLost += seq - this._seq - 1;
      // Not at once: the next message is complete in itself and may make the question needless.
      if (this._asking === null && !this.ended) {
        this._asking = this._timers.setTimeout(() => {
          this._asking = null;
          this._ask();
        }, GAP_MS);
      }
    }
    this._seq = Math.max(this._seq, seq);
  }

  _ask() {
    this._askedMs = this._now();
    this._send({ kind: "again", seq: this._seq });
  }

  _tick() {
    if (this.ended) return;
    const nowMs = this._now();
    if (nowMs - this._heardMs < this._silenceMs || nowMs - this._askedMs < this._silenceMs) return;
    this._ask();
    if (this.silentMs > 10 * SILENCE_MS) this._silenceMs = Math.min(MAX_SILENCE_MS, 2 * this._silenceMs);
  }

  _answer(message) {
    const waiting = this._waiting.get(message.id);
    if (waiting === undefined) return;
    this._waiting.delete(message.id);
    this._timers.clearTimeout(waiting.timer);
    waiting.resolve(message);
  }

  _send(message) {
    try {
      this._channel.send(message);
    } catch {
      // A lost connection comes back, or the view says that there is no news.
    }
  }
}
