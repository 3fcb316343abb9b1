import * as fs from 'fs';
import * as path from 'path';

import * as formats from '../format';
import { activeRuns, attachCode, matchingRuns, progressOf, stateOf, ticked } from '../model/runs';
import type { RunLine } from '../protocol';
import { golden } from './golden';

// The table of texts that pytest holds the cell's views to.
const TABLE: Record<string, unknown[][]> = JSON.parse(
  fs.readFileSync(path.join(process.cwd(), '../tests/unit/views/formats.json'), 'utf8')
);
const NOT_FINITE = new Map<unknown, number>([
  ['nan', NaN],
  ['inf', Infinity],
  ['-inf', -Infinity]
]);

test.each(Object.entries(formats))('%s writes what the views in the cell write', (name, format) => {
  const rows = TABLE[name] ?? [];
  const write = format as (...values: unknown[]) => string;
  const texts = rows.map(row => write(...row.slice(0, -1).map(each => NOT_FINITE.get(each) ?? each)));
  expect(texts).toEqual(rows.map(row => row.at(-1)));
  expect(rows).not.toHaveLength(0);
});

const run = golden('runs').runs[0] as RunLine;

test('a filter finds runs that have all its words', () => {
  const runs: RunLine[] = [
    { ...run, name: 'Width sweep', verb: 'search', state: 'running' },
    { ...run, name: 'training', verb: 'ddp', state: 'running' }
  ];
  expect(matchingRuns(runs, 'SWEEP running')).toEqual([runs[0]]);
  expect(matchingRuns(runs, ' ')).toHaveLength(2);
  expect(matchingRuns(runs, 'sweep failed')).toHaveLength(0);
});

test('a run is active while a controller drives it', () => {
  const lost = { ...run, live: false, finished_at_s: null };
  const over = { ...run, live: true, finished_at_s: 5 };
  const live = { ...run, live: true, finished_at_s: null };
  expect(activeRuns([lost, over, live])).toEqual([live]);
});

test('progress of a training is not counted in trials', () => {
  const trials = { ...run.can, has_ranks: false };
  expect(progressOf({ ...run, can: trials, n_trials: 40, n_finished: 10 })).toEqual({
    share: 0.25,
    text: '10/40'
  });
  expect(progressOf({ ...run, can: trials, n_trials: 1, n_finished: 0 }).share).toBeNull();
  // Of a run whose whole ledger would have to be read, it is not known.
  expect(progressOf({ ...run, can: trials, n_trials: 40, n_finished: null })).toEqual({
    share: null,
    text: '–/40'
  });
  const can = { ...run.can, has_ranks: true };
  const training = { ...run, can, n_trials: 1, n_finished: 1, step: 1790, round: 1 };
  expect(progressOf(training)).toEqual({ share: null, text: 'step 1,790' });
  expect(progressOf({ ...training, round: 3 }).text).toBe('step 1,790, round 3');
  expect(progressOf({ ...training, step: null }).text).toBe('');
});

test('the code that attaches loads the extension where the notebook does not', () => {
  expect(attachCode('r1', ['%load_ext jupyter_ddl'])).toBe('%runs attach r1');
  expect(attachCode('r1', ['# no %load_ext jupyter_ddl'])).toBe(
    '%load_ext jupyter_ddl\n%runs attach r1'
  );
});

test('a run whose controller was lost recovers before it counts as stopped', () => {
  const lost = { ...run, is_damaged: false, live: false, finished_at_s: null };
  expect(stateOf({ ...lost, recovering: true })).toBe('recovering');
  expect(stateOf({ ...lost, recovering: false })).toBe('stopped');
  const live: RunLine = { ...lost, live: true, state: 'running', waits: false };
  expect(stateOf(live)).toBe('running');
  expect(stateOf({ ...live, waits: true })).toBe('waiting');
  expect(stateOf({ ...live, waits: true, finished_at_s: 5, state: 'complete' })).toBe('complete');
  expect(stateOf({ ...lost, finished_at_s: 5, state: 'failed', recovering: true })).toBe('failed');
  expect(stateOf({ ...lost, is_damaged: true })).toBe('damaged');
});

test('six runs can be ticked: one more takes the place of the first', () => {
  expect(ticked([], 'a')).toEqual(['a']);
  expect(ticked(['a'], 'a')).toEqual([]);
  expect(ticked(['a', 'b'], 'c')).toEqual(['a', 'b', 'c']);
  expect(ticked(['a', 'b', 'c', 'd', 'e', 'f'], 'g')).toEqual(['b', 'c', 'd', 'e', 'f', 'g']);
});
