/** What lists show of runs, and the line that follows one. */

import { count } from '../format';
import type { RunLine } from '../protocol';

/** Runs that contain every word of a filter in name, id, state, verb or cluster. */
export function matchingRuns(runs: readonly RunLine[], filter: string): readonly RunLine[] {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) {
    return runs;
  }
  return runs.filter(({ name, run_id, state, verb, cluster }) => {
    const text = [name, run_id, state, verb, cluster].join('\n').toLowerCase();
    return words.every(word => text.includes(word));
  });
}

/** Runs that a controller drives now. */
export function activeRuns(runs: readonly RunLine[]): readonly RunLine[] {
  return runs.filter(run => run.live && run.finished_at_s === null);
}

/** How far a run is; the share is null where its length is not known. */
export function progressOf(run: RunLine): { share: number | null; text: string } {
  if (run.can.has_ranks) {
    const step = run.step === null ? '' : `step ${count(run.step)}`;
    const round = run.round > 1 ? `round ${run.round}` : '';
    return { share: null, text: [step, round].filter(Boolean).join(', ') };
  }
  if (run.n_trials <= 1) {
    return { share: null, text: '' };
  }
  const { n_finished, n_trials } = run;
  return {
    share: n_finished === null ? null : n_finished / n_trials,
    text: `${count(n_finished)}/${count(n_trials)}`
  };
}

/** The lines that follow a run. */
export function attachCode(runId: string, sources: readonly string[]): string {
  return withExtension(`%runs attach ${runId}`, sources);
}

/** Lines with our magics: the extension is loaded where the notebook does not do so. */
export function withExtension(lines: string, sources: readonly string[]): string {
  const isLoaded = sources.some(source => /^\s*%(re)?load_ext\s+jupyter_ddl\b/m.test(source));
  return `${isLoaded ? '' : '%load_ext jupyter_ddl\n'}${lines}`;
}

/** The state of a run in one word. */
export function stateOf(run: RunLine): string {
  if (run.is_damaged) {
    return 'damaged';
  }
  if (run.finished_at_s !== null) {
    return run.state;
  }
  if (run.live) {
    return run.waits ? 'waiting' : run.state;
  }
  return run.recovering ? 'recovering' : 'stopped';
}

export const MOST_COMPARED = 6;

/** Ticked runs, to be compared; one too many takes the place of the first. */
export function ticked(before: readonly string[], runId: string): readonly string[] {
  return before.includes(runId)
    ? before.filter(each => each !== runId)
    : [...before, runId].slice(-MOST_COMPARED);
}
