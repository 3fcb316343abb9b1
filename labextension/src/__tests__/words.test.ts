import {
  formatBytes,
  formatCount,
  formatCountdown,
  formatDuration,
  formatShare,
  formatValue
} from '../format';
import { attachCode } from '../model/attach';
import { activeRuns, matchingRuns, progressOf } from '../model/runs';
import type { RunLine } from '../protocol';
import { golden } from './golden';

test('numbers read as people say them', () => {
  expect([0, 1536, 2 ** 31, null].map(formatBytes)).toEqual(['0 B', '1.5 KiB', '2 GiB', '–']);
  expect([5, 61, 3900, 90000].map(formatDuration)).toEqual(['5 s', '1 min', '1 h 5 min', '1 d 1 h']);
  expect([-3, 59, 3661].map(formatCountdown)).toEqual(['0:00', '0:59', '1:01:01']);
  expect([0.374, null].map(formatShare)).toEqual(['37 %', '–']);
  expect([0.123456, 12345.678, null].map(formatValue)).toEqual(['0.1235', '12350', '–']);
  expect([1, 2].map(n => formatCount(n, 'run'))).toEqual(['1 run', '2 runs']);
});

const run = golden('runs').runs[0] as RunLine;

test('a filter finds runs that have all its words', () => {
  const runs = [
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
  expect(progressOf({ ...run, n_trials: 40, n_finished: 10 })).toEqual({
    share: 0.25,
    text: '10/40'
  });
  expect(progressOf({ ...run, n_trials: 1, n_finished: 0 }).share).toBeNull();
  const training = { ...run, verb: 'ddp', n_trials: 1, n_finished: 1, step: 1790, round: 1 };
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
