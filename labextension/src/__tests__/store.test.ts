import { Store } from '../model/store';
import { VERSION } from '../protocol';
import { golden } from './golden';

let store: Store;

beforeEach(() => {
  jest.useFakeTimers();
  store = new Store();
  store.refreshPerSecond = 2;
});

afterEach(() => {
  store.dispose();
  jest.useRealTimers();
});

test('many messages are few drawings, and the last one is drawn', () => {
  const drawn: number[] = [];
  store.subscribe(() => drawn.push(store.known.runs.length));
  const { runs } = golden('runs');
  for (let round = 0; round < 100; round += 1) {
    store.hear(golden('runs', { runs: runs.slice(0, 1) }));
    jest.advanceTimersByTime(10);
  }
  store.hear(golden('runs', { runs: [] }));
  jest.advanceTimersByTime(1000);
  expect(drawn.length).toBeLessThanOrEqual(5);
  expect(drawn[drawn.length - 1]).toBe(0);
});

test('a lost connection is drawn at once', () => {
  store.hear(golden('runs'));
  store.hear(golden('runs'));
  store.setState('reconnecting');
  expect(store.known.state).toBe('reconnecting');
});

test('telemetry of a cluster that has ended is forgotten', () => {
  const clusters = golden('clusters');
  const name = clusters.clusters[0]?.name ?? '';
  store.hear(clusters);
  store.hear(golden('telemetry', { cluster: name, run_id: '' }));
  jest.advanceTimersByTime(1000);
  expect([...store.known.telemetry.keys()]).toEqual([name]);
  store.hear({ ...clusters, clusters: [] });
  jest.advanceTimersByTime(1000);
  expect(store.known.telemetry.size).toBe(0);
});

test('messages about a run reach who listens to it, and nobody else', () => {
  const heard: string[] = [];
  const view = golden('run');
  const stop = store.onRun(view.snapshot.run_id, message => heard.push(message.kind));
  store.onRun('another', () => heard.push('wrong'));
  store.hear(view);
  store.hear(golden('telemetry', { run_id: view.snapshot.run_id }));
  stop();
  store.hear(view);
  expect(heard).toEqual(['run', 'telemetry']);
});

test('who looks at a run that is looked at already has its newest messages at once', () => {
  const view = golden('run');
  const runId = view.snapshot.run_id;
  const stop = store.onRun(runId, () => undefined);
  store.hear({ ...view, at_s: 1 });
  store.hear({ ...view, at_s: 2 });
  const heard: (number | null)[] = [];
  const stopToo = store.onRun(runId, message => 'at_s' in message && heard.push(message.at_s));
  expect(heard).toEqual([2]);
  stop();
  stopToo();
  store.onRun(runId, () => heard.push(99));
  expect(heard).toEqual([2]);
});

test('a server of another version is told', () => {
  store.hear(golden('welcome', { version: VERSION }));
  jest.advanceTimersByTime(1000);
  expect(store.known.otherVersion).toBe('');
  store.hear(golden('welcome', { version: '99.0' }));
  jest.advanceTimersByTime(1000);
  expect(store.known.otherVersion).toBe('99.0');
});
