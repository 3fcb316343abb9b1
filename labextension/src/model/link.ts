/** The connection to the server extension: it reconnects by itself and notices when it hears nothing. */

import { parseFrame, parseMessage, ProtocolError } from '../guards';
import type { FromBrowser, ToBrowser } from '../protocol';
import { DeniedError, Requests } from './requests';
import type { Answer, Ask, AskOptions } from './requests';

export type LinkState = 'connecting' | 'connected' | 'reconnecting';

type Refused = (text: string) => void;

/** The part of a WebSocket that is used. */
export interface Socket {
  binaryType?: BinaryType;
  onmessage: ((event: MessageEvent) => void) | null;
  onclose: ((event: CloseEvent) => void) | null;
  send(text: string): void;
  close(): void;
}

export interface LinkOptions {
  open: () => Socket;
  onState: (state: LinkState) => void;
  onMessage: (message: ToBrowser) => void;
  /** Whether somebody looks at the page: then a lost connection is soon tried again. */
  isInSight?: () => boolean;
}

/** Longest silence before the server is asked, and longest wait for what it then says. */
const SILENCE_MS = 10_000;
const ANSWER_MS = 5_000;
const OPENING_MS = 10_000;
const FIRST_DELAY_MS = 500;
const LAST_DELAY_MS = 15_000;
const LAST_DELAY_IN_SIGHT_MS = 1_000;
/** Gaps come in bursts: ask once for all of them. */
const ASK_PAUSE_MS = 500;
const LOOK_MS = 1_000;
const WATCH_AGAIN_MS = 3_000;

export class Link {
  constructor(options: LinkOptions) {
    this._options = options;
    this._look = setInterval(() => this._watchSilence(), LOOK_MS);
    this._connect();
  }

  get state(): LinkState {
    return this._state;
  }

  /** How many messages were refused because they were malformed. */
  nRefused = 0;

  /** Send a request; the promise ends with its answer, its refusal or a deadline. */
  ask(ask: Ask, options: AskOptions = {}): Promise<Answer> {
    const { request, answer } = this._requests.add(ask, options);
    this._send(request);
    return answer;
  }

  /** Send what has no answer; without a connection it is lost, which is harmless: it is sent again. */
  tell(message: Extract<FromBrowser, { kind: 'again' | 'seen' }>): void {
    this._send(message);
  }

  /**
   * Receive the messages about a run or a cluster, until the returned function is called.
   *
   * @param onRefused hears why there are none, each time that they were asked for in vain
   */
  watch(kind: 'run' | 'cluster', name: string, onRefused?: Refused): () => void {
    const key = `${kind} ${name}`;
    const known = this._watched.get(key);
    const watcher = { onRefused };
    if (known === undefined) {
      this._watched.set(key, { kind, name, refusal: '', watchers: new Set([watcher]) });
      this._sendWatch(kind, name, true);
    } else {
      known.watchers.add(watcher);
      if (known.refusal) {
        onRefused?.(known.refusal);
      }
    }
    let isOver = false;
    return () => {
      const watched = this._watched.get(key);
      if (isOver || watched === undefined) {
        return;
      }
      isOver = true;
      watched.watchers.delete(watcher);
      if (watched.watchers.size === 0) {
        this._watched.delete(key);
        this._sendWatch(kind, name, false);
      }
    };
  }

  /** Try now, for instance because the page has become visible. */
  retryNow(): void {
    const nowMs = Date.now();
    const longestMs = Math.max(nowMs - this._heardAt, nowMs - this._lookedAt);
    if (this._retry !== null) {
      this._connect();
    } else if (this._isGreeted && longestMs > SILENCE_MS) {
      this._renew();
    }
  }

  close(): void {
    this._isClosed = true;
    clearInterval(this._look);
    this._later.forEach(timer => clearTimeout(timer));
    this._leave();
    this._requests.close();
  }

  private _connect(): void {
    this._leave();
    const socket = this._options.open();
    socket.binaryType = 'arraybuffer';
    this._socket = socket;
    this._openedAt = Date.now();
    socket.onmessage = event => this._hear(event.data);
    socket.onclose = () => this._lose();
  }

  /** Drop the socket without telling the server, which may be gone. */
  private _leave(): void {
    if (this._retry !== null) {
      clearTimeout(this._retry);
      this._retry = null;
    }
    const socket = this._socket;
    this._socket = null;
    this._isGreeted = false;
    if (socket !== null) {
      socket.onmessage = null;
      socket.onclose = null;
      socket.close();
    }
  }

  private _lose(): void {
    this._leave();
    if (this._isClosed) {
      return;
    }
    this._setState('reconnecting');
    // Spread out, so that after a restart not all pages reconnect at once.
    const limit = this._options.isInSight?.() ? LAST_DELAY_IN_SIGHT_MS : LAST_DELAY_MS;
    const delay = Math.min(this._delay, limit) * (0.75 + Math.random() / 2);
    this._delay = Math.min(this._delay * 2, LAST_DELAY_MS);
    this._retry = setTimeout(() => this._connect(), delay);
  }

  /** What was open while the machine slept is dead as a rule, and nobody tells: no answer is awaited. */
  private _renew(): void {
    this._lookedAt = Date.now();
    this._setState('reconnecting');
    this._connect();
  }

  private _hear(data: unknown): void {
    this._heardAt = Date.now();
    let message: ToBrowser;
    try {
      message = data instanceof ArrayBuffer ? parseFrame(data) : parseMessage(String(data));
    } catch (error) {
      if (!(error instanceof ProtocolError)) {
        throw error;
      }
      this.nRefused += 1;
      this._askAgain();
      return;
    }
    if ('seq' in message) {
      this._count(message);
    }
    if ('id' in message) {
      this._requests.settle(message);
    } else {
      this._options.onMessage(message);
    }
  }

  private _count(message: Extract<ToBrowser, { seq: number }>): void {
    if (message.kind === 'welcome' && !this._isGreeted) {
      this._seq = message.seq;
      this._greet();
      return;
    }
    const isGap = message.seq > this._seq + 1;
    this._seq = Math.max(this._seq, message.seq);
    if (isGap) {
      this._askAgain();
    }
  }

  private _greet(): void {
    this._isGreeted = true;
    this._delay = FIRST_DELAY_MS;
    this._setState('connected');
    for (const { kind, name } of this._watched.values()) {
      this._sendWatch(kind, name, true);
    }
    this._requests.repeated().forEach(request => this._send(request));
  }

  private _sendWatch(kind: 'run' | 'cluster', name: string, isOn: boolean): void {
    // A watch is renewed on every connection; without one there is nothing to say.
    if (!this._isGreeted) {
      return;
    }
    const ask: Ask =
      kind === 'run'
        ? { kind: isOn ? 'watch' : 'unwatch', run_id: name }
        : { kind: isOn ? 'watch_cluster' : 'unwatch_cluster', cluster: name };
    const settled = (refusal: string) => {
      const watched = this._watched.get(`${kind} ${name}`);
      if (watched !== undefined) {
        watched.refusal = refusal;
      }
    };
    this.ask(ask).then(
      () => settled(''),
      error => {
        if (error instanceof DeniedError) {
          settled(error.message);
          const watchers = this._watched.get(`${kind} ${name}`)?.watchers ?? [];
          [...watchers].forEach(each => each.onRefused?.(error.message));
        }
        this._watchLater(kind, name);
      }
    );
  }

  /** A cluster that is starting, or a run that is being written, can be watched a moment later. */
  private _watchLater(kind: 'run' | 'cluster', name: string): void {
    if (this._isClosed) {
      return;
    }
    const timer = setTimeout(() => {
      this._later.delete(timer);
      if (this._watched.has(`${kind} ${name}`)) {
        this._sendWatch(kind, name, true);
      }
    }, WATCH_AGAIN_MS);
    this._later.add(timer);
  }

  private _askAgain(): void {
    if (Date.now() - this._askedAt >= ASK_PAUSE_MS) {
      this._askedAt = Date.now();
      this._send({ kind: 'again', seq: this._seq });
    }
  }

  private _watchSilence(): void {
    const now = Date.now();
    // Timers of a page that is looked at stand still only while its machine does.
    const wasAsleep = now - this._lookedAt > SILENCE_MS && this._options.isInSight?.() === true;
    this._lookedAt = now;
    if (this._socket === null) {
      return;
    }
    if (wasAsleep && this._isGreeted) {
      this._renew();
    } else if (!this._isGreeted) {
      if (now - this._openedAt > OPENING_MS) {
        this._lose();
      }
    } else if (now - this._heardAt > SILENCE_MS) {
      if (this._askedAt <= this._heardAt) {
        this._askAgain();
      } else if (now - this._askedAt > ANSWER_MS) {
        this._lose();
      }
    }
  }

  private _send(message: FromBrowser): void {
    if (this._isGreeted) {
      this._socket?.send(JSON.stringify(message));
    }
  }

  private _setState(state: LinkState): void {
    if (state !== this._state) {
      this._state = state;
      this._options.onState(state);
    }
  }

  private readonly _options: LinkOptions;
  private readonly _requests = new Requests();
  private readonly _watched = new Map<
    string,
    {
      kind: 'run' | 'cluster';
      name: string;
      refusal: string;
      watchers: Set<{ onRefused?: Refused | undefined }>;
    }
  >();
  private readonly _look: ReturnType<typeof setInterval>;
  private _retry: ReturnType<typeof setTimeout> | null = null;
  /** What will be watched again in a moment. */
  private readonly _later = new Set<ReturnType<typeof setTimeout>>();
  private _socket: Socket | null = null;
  private _state: LinkState = 'connecting';
  private _isGreeted = false;
  private _isClosed = false;
  private _delay = FIRST_DELAY_MS;
  private _openedAt = 0;
  private _heardAt = 0;
  /** When the silence was looked at last. */
  private _lookedAt = Date.now();
  private _askedAt = -Infinity;
  private _seq = 0;
}
