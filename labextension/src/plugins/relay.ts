/**
 * Carries requests of the in-cell view over the panel's connection, which a busy kernel does not
 * block.
 */

import type { Link } from '../model/link';
import { answerOf } from '../model/runChannel';
import type { GetStacks, ResumeRun, StopRun, StopTrial } from '../protocol';

/**
 * Raised by `views/live` on its element: `detail` is a message from a browser, `reply` takes the
 * answer.
 */
const SEND = 'jupyter-ddl:send';

export function relayRequests(link: Link): void {
  document.addEventListener(SEND, event => {
    const message = event instanceof CustomEvent ? wishIn(event.detail) : null;
    if (message === null || link.state !== 'connected') {
      return;
    }
    // Taken: the view need not send it through the kernel.
    event.preventDefault();
    const { id, ...ask } = message;
    const reply: unknown = Reflect.get(event, 'reply');
    void answerOf(link, ask).then(answer => {
      if (typeof reply === 'function') {
        reply({ ...answer, id });
      }
    });
  });
}

/** Any script of the page can raise the event, so its detail is checked. */
export function wishIn(detail: unknown): StopRun | StopTrial | ResumeRun | GetStacks | null {
  if (typeof detail !== 'object' || detail === null) {
    return null;
  }
  const { kind, id, run_id, trial, how } = detail as Record<string, unknown>;
  if (!Number.isInteger(id) || typeof run_id !== 'string') {
    return null;
  }
  if (kind === 'stop_trial' && Number.isInteger(trial)) {
    return { kind, id: id as number, run_id, trial: trial as number };
  }
  if (kind === 'resume_run' || kind === 'get_stacks') {
    return { kind, id: id as number, run_id };
  }
  if (kind === 'stop_run') {
    const found = HOW.find(each => each === (how ?? 'next_report'));
    return found === undefined ? null : { kind, id: id as number, run_id, how: found };
  }
  return null;
}

const HOW = ['next_report', 'now', 'epoch', 'keep_best'] as const;
