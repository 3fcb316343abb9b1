/** One run's part of the link, in the form that the live view wants. */

import type { FromBrowser } from '../protocol';
import type { Link } from './link';
import { DeniedError } from './requests';
import type { Answer, Ask, Request } from './requests';
import type { RunNews, Store } from './store';

/** What the live view is given; see `views/live/index.js`. */
export interface Channel {
  send: (message: FromBrowser) => void;
  subscribe: (callback: (message: unknown) => void) => () => void;
}

const START_TIMEOUT_S = 180;

type Refusal = { kind: 'denied'; code: string; text: string };

/**
 * A channel for one run.
 *
 * The link numbers everything the page receives, the view only what belongs to its run: so messages
 * are renumbered here. The link fills gaps; a view that asks again gets the newest there is.
 * `onRefused` hears why the server can't show the run, each time that it was asked in vain.
 */
export class RunChannel implements Channel {
  constructor(
    private readonly _link: Link,
    store: Store,
    private readonly _runId: string,
    private readonly _onRefused: (text: string) => void = () => undefined
  ) {
    this._unsubscribe = store.onRun(_runId, message => this._hear(message));
  }

  readonly send = (message: FromBrowser): void => {
    if ('id' in message) {
      void this._ask(message);
    } else if (message.kind === 'seen') {
      this._link.tell(message);
    } else if (message.kind === 'again' && this._link.state === 'connected') {
      this._newest.forEach(newest => this._tell(newest));
    }
  };

  readonly subscribe = (callback: (message: unknown) => void): (() => void) => {
    this._callbacks.add(callback);
    return () => this._callbacks.delete(callback);
  };

  /** Out of sight, the run is not watched; the view keeps what it has. */
  setVisible(isVisible: boolean): void {
    this._unwatch();
    this._unwatch = isVisible
      ? this._link.watch('run', this._runId, this._onRefused)
      : () => undefined;
  }

  dispose(): void {
    this._unsubscribe();
    this.setVisible(false);
    this._callbacks.clear();
  }

  /** The view repeats a request until it is answered; the link needs it once. */
  private async _ask(request: Request): Promise<void> {
    const { id, ...ask } = request;
    if (this._asked.has(id)) {
      return;
    }
    this._asked.add(id);
    const answer = await answerOf(this._link, ask as Ask);
    this._asked.delete(id);
    this._callbacks.forEach(callback => callback({ ...answer, id }));
  }

  private _hear(message: RunNews): void {
    this._newest.set(message.kind, message);
    this._tell(message);
  }

  private _tell(message: RunNews): void {
    const numbered = { ...message, seq: ++this._seq };
    this._callbacks.forEach(callback => callback(numbered));
  }

  private _seq = 0;
  private readonly _asked = new Set<number>();
  private readonly _newest = new Map<string, RunNews>();
  private readonly _callbacks = new Set<(message: unknown) => void>();
  private _unwatch: () => void = () => undefined;
  private readonly _unsubscribe: () => void;
}

/** The answer to a request; a refusal is one, too. */
export async function answerOf(link: Link, ask: Ask): Promise<Answer | Refusal> {
  try {
    // A cluster may have to be started first.
    return await link.ask(ask, ask.kind === 'resume_run' ? { timeout_s: START_TIMEOUT_S } : {});
  } catch (error) {
    const code = error instanceof DeniedError ? error.code : 'timeout';
    return { kind: 'denied', code, text: error instanceof Error ? error.message : String(error) };
  }
}
