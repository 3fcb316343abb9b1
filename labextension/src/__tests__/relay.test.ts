import { wishIn } from '../plugins/relay';

const RUN = { kind: 'stop_run', id: 1, run_id: 'r1' };

test('stops are let through, reduced to what they are', () => {
  expect(wishIn({ ...RUN, how: 'now', more: 'x' })).toEqual({ ...RUN, how: 'now' });
  expect(wishIn(RUN)).toEqual({ ...RUN, how: 'next_report' });
  expect(wishIn({ ...RUN, kind: 'stop_trial', trial: 3 })).toEqual({
    ...RUN,
    kind: 'stop_trial',
    trial: 3
  });
});

test.each(['resume_run', 'get_stacks'])('so is %s', kind => {
  expect(wishIn({ ...RUN, kind, how: 'now' })).toEqual({ ...RUN, kind });
});

test.each([
  null,
  'stop_run',
  { kind: 'stop_cluster', id: 1, cluster: 'local' },
  { ...RUN, how: 'never' },
  { ...RUN, id: 'one' },
  { ...RUN, run_id: ['r1'] },
  { ...RUN, kind: 'stop_trial', trial: '3' }
])('anything else is not: %j', detail => {
  expect(wishIn(detail)).toBeNull();
});
