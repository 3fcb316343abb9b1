/** Requests that are waiting for their answers. */

import type { Denied, FromBrowser, Progress, ToBrowser } from '../protocol';

/** What ends a request, but for a refusal. */
export type Answer = Exclude<Extract<ToBrowser, { id: number }>, Progress | Denied>;
export type Request = Extract<FromBrowser, { id: number }>;
type WithoutId<T> = T extends Request ? Omit<T, 'id'> : never;
/** A request as it is written; its id is given when it is sent. */
export type Ask = WithoutId<Request>;

/** The server refused; the text is one line for people. */
export class DeniedError extends Error {
  override readonly name = 'DeniedError';
  constructor(
    readonly code: string,
    text: string
  ) {
    super(text);
  }
}

/** No answer came in time. */
export class SilenceError extends Error {
  override readonly name = 'SilenceError';
}

export interface AskOptions {
  /** Most seconds without an answer or a word of progress. */
  timeout_s?: number;
  onProgress?: (text: string) => void;
}

interface Waiting {
  request: Request;
  resolve: (answer: Answer) => void;
  reject: (error: Error) => void;
  options: AskOptions;
  timer: ReturnType<typeof setTimeout>;
}

const TIMEOUT_S = 15;

/** Keeps each request until it is answered, refused or too old. */
export class Requests {
  /** Start waiting for a request's answer. */
  add(ask: Ask, options: AskOptions): { request: Request; answer: Promise<Answer> } {
    const request = { ...ask, id: ++this._lastId } as Request;
    const answer = new Promise<Answer>((resolve, reject) => {
      const timer = this._deadline(request, options);
      this._waiting.set(request.id, { request, resolve, reject, options, timer });
    });
    return { request, answer };
  }

  /** Hand an answer to whoever asked; one that nobody waits for came too late and is dropped. */
  settle(message: Answer | Denied | Progress): void {
    const waiting = this._waiting.get(message.id);
    if (waiting === undefined) {
      return;
    }
    clearTimeout(waiting.timer);
    if (message.kind === 'progress') {
      waiting.timer = this._deadline(waiting.request, waiting.options);
      waiting.options.onProgress?.(message.text);
      return;
    }
    this._waiting.delete(message.id);
    if (message.kind === 'denied') {
      waiting.reject(new DeniedError(message.code, message.text));
    } else {
      waiting.resolve(message);
    }
  }

  /**
   * What to send again on a new connection.
   *
   * Everything may be repeated except starting a cluster, which is given up.
   */
  repeated(): Request[] {
    const again: Request[] = [];
    for (const { request } of [...this._waiting.values()]) {
      if (request.kind === 'start_cluster') {
        this._giveUp(request.id, 'the connection was lost; the list shows whether it started');
      } else {
        again.push(request);
      }
    }
    return again;
  }

  /** Refuse all that are waiting. */
  close(): void {
    for (const id of [...this._waiting.keys()]) {
      this._giveUp(id, 'the panel was closed');
    }
  }

  private _deadline(request: Request, options: AskOptions): ReturnType<typeof setTimeout> {
    const timeout_s = options.timeout_s ?? TIMEOUT_S;
    return setTimeout(
      () => this._giveUp(request.id, `no answer within ${timeout_s} s`),
      timeout_s * 1000
    );
  }

  private _giveUp(id: number, reason: string): void {
    const waiting = this._waiting.get(id);
    if (waiting !== undefined) {
      clearTimeout(waiting.timer);
      this._waiting.delete(id);
      waiting.reject(new SilenceError(`${waiting.request.kind.replace('_', ' ')}: ${reason}`));
    }
  }

  private _lastId = 0;
  private readonly _waiting = new Map<number, Waiting>();
}
