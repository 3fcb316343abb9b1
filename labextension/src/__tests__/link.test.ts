import { Link } from '../model/link';
import type { LinkState, Socket } from '../model/link';
import { DeniedError, SilenceError } from '../model/requests';
import type { FromBrowser, ToBrowser } from '../protocol';
import { golden } from './golden';

/** The server's end of a connection. */
class FakeSocket implements Socket {
  onmessage: ((event: MessageEvent) => void) | null = null;
  onclose: ((event: CloseEvent) => void) | null = null;
  sent: FromBrowser[] = [];
  isClosed = false;

  send(text: string): void {
    this.sent.push(JSON.parse(text));
  }

  close(): void {
    this.isClosed = true;
  }

  say(message: ToBrowser | string): void {
    const data = typeof message === 'string' ? message : JSON.stringify(message);
    this.onmessage?.({ data } as MessageEvent);
  }

  die(): void {
    this.onclose?.({} as CloseEvent);
  }

  of<K extends FromBrowser['kind']>(kind: K): Extract<FromBrowser, { kind: K }>[] {
    return this.sent.filter((each): each is Extract<FromBrowser, { kind: K }> => each.kind === kind);
  }
}

const WELCOME = golden('welcome', { seq: 1 });
let sockets: FakeSocket[];
let states: LinkState[];
let heard: ToBrowser[];
let link: Link;

const last = (): FakeSocket => sockets[sockets.length - 1] as FakeSocket;

beforeEach(() => {
  jest.useFakeTimers();
  sockets = [];
  states = [];
  heard = [];
  link = new Link({
    open: () => {
      sockets.push(new FakeSocket());
      return last();
    },
    onState: state => states.push(state),
    onMessage: message => heard.push(message)
  });
});

afterEach(() => {
  link.close();
  jest.useRealTimers();
});

test('it is connected when the server has spoken, not before', () => {
  expect(link.state).toBe('connecting');
  last().say(WELCOME);
  expect(states).toEqual(['connected']);
});

test('a lost connection comes back, with what is watched and asked', async () => {
  last().say(WELCOME);
  link.watch('run', 'r1');
  const answer = link.ask({ kind: 'stop_run', run_id: 'r1', how: 'now' });
  last().die();
  expect(link.state).toBe('reconnecting');
  jest.advanceTimersByTime(1000);
  expect(sockets).toHaveLength(2);
  last().say(WELCOME);
  expect(last().of('watch').map(each => each.run_id)).toContain('r1');
  const [stop] = last().of('stop_run');
  last().say({ kind: 'done', id: stop?.id ?? -1, text: 'ended' });
  await expect(answer).resolves.toMatchObject({ text: 'ended' });
});

test('nothing is due any more once it is closed', async () => {
  last().say(WELCOME);
  link.watch('run', 'r1');
  const [asked] = last().of('watch');
  last().say({ kind: 'denied', id: asked?.id ?? -1, code: 'DDL-5003', text: 'not there yet' });
  link.watch('cluster', 'local');
  await Promise.resolve();
  link.close();
  await Promise.resolve();
  expect(jest.getTimerCount()).toBe(0);
});

test('attempts to connect become rarer, and a restarted server is found within 20 s', () => {
  const delays = [0, 1, 2, 3, 4, 5, 6, 7].map(() => {
    const nBefore = sockets.length;
    last().die();
    let passed_ms = 0;
    for (; sockets.length === nBefore && passed_ms < 30_000; passed_ms += 100) {
      jest.advanceTimersByTime(100);
    }
    return passed_ms;
  });
  expect(delays[0]).toBeLessThanOrEqual(800);
  expect(delays[7]).toBeGreaterThan(10_000);
  expect(Math.max(...delays)).toBeLessThanOrEqual(20_000);
});

test('while the page is looked at, a restarted server is found within two seconds', () => {
  link.close();
  const open = () => {
    sockets.push(new FakeSocket());
    return last();
  };
  const ignore = () => undefined;
  link = new Link({ open, onState: ignore, onMessage: ignore, isInSight: () => true });
  for (let time = 0; time < 10; time += 1) {
    const nBefore = sockets.length;
    last().die();
    jest.advanceTimersByTime(2_000);
    expect(sockets.length).toBeGreaterThan(nBefore);
  }
});

test.each([
  ['looked at', true],
  ['hidden', false]
])('a page that is %s has slept: its connection is another one as soon as it is seen', (_, seen) => {
  link.close();
  const open = () => {
    sockets.push(new FakeSocket());
    return last();
  };
  const ignore = () => undefined;
  const isInSight = () => seen;
  link = new Link({ open, onState: state => states.push(state), onMessage: ignore, isInSight });
  last().say(WELCOME);
  link.watch('run', 'r1');
  const old = last();
  jest.setSystemTime(Date.now() + 3_600_000);
  // What had come before it slept is read first.
  old.say(golden('runs', { seq: 2 }));
  if (seen) {
    jest.advanceTimersByTime(1_000);
  } else {
    jest.advanceTimersByTime(1_000);
    expect(last()).toBe(old);
    jest.setSystemTime(Date.now() + 3_600_000);
    link.retryNow();
  }
  expect(last()).not.toBe(old);
  expect(old.isClosed).toBe(true);
  expect(states.at(-1)).toBe('reconnecting');
  last().say(WELCOME);
  expect(states.at(-1)).toBe('connected');
  expect(last().of('watch').map(each => each.run_id)).toContain('r1');
  // Whoever is awake keeps what is there.
  const now = last();
  link.retryNow();
  jest.advanceTimersByTime(5_000);
  expect(last()).toBe(now);
});

test('a page that becomes visible tries at once', () => {
  last().die();
  link.retryNow();
  expect(sockets).toHaveLength(2);
});

test('a socket that never opens is given up', () => {
  jest.advanceTimersByTime(12_000);
  expect(sockets[0]?.isClosed).toBe(true);
  expect(link.state).toBe('reconnecting');
});

test('silence is questioned, and a server that stays silent is left', () => {
  last().say(WELCOME);
  jest.advanceTimersByTime(11_000);
  expect(last().of('again')).toHaveLength(1);
  jest.advanceTimersByTime(3_000);
  last().say(golden('runs', { seq: 2 }));
  jest.advanceTimersByTime(11_000);
  expect(last().of('again')).toHaveLength(2);
  expect(link.state).toBe('connected');
  jest.advanceTimersByTime(6_000);
  expect(link.state).toBe('reconnecting');
});

test('a gap in the numbers is asked about once, however many there are', () => {
  last().say(WELCOME);
  [5, 9, 13].forEach(seq => last().say(golden('runs', { seq })));
  expect(last().of('again')).toEqual([{ kind: 'again', seq: 5 }]);
  expect(heard.filter(each => each.kind === 'runs')).toHaveLength(3);
});

test('what is not a message is refused and counted, and does no harm', () => {
  last().say(WELCOME);
  last().say('{"kind":"runs"}');
  last().say('nonsense');
  expect(link.nRefused).toBe(2);
  expect(last().of('again')).toHaveLength(1);
  last().say(golden('runs', { seq: 2 }));
  expect(heard.map(each => each.kind)).toEqual(['welcome', 'runs']);
});

test('a refusal is an error with its text', async () => {
  last().say(WELCOME);
  const answer = link.ask({ kind: 'stop_cluster', cluster: 'local' });
  const [stop] = last().of('stop_cluster');
  last().say({ kind: 'denied', id: stop?.id ?? -1, code: 'DDL-1', text: 'no such cluster' });
  await expect(answer).rejects.toEqual(new DeniedError('DDL-1', 'no such cluster'));
});

test('a request that is never answered ends with a deadline', async () => {
  const answer = link.ask({ kind: 'stop_cluster', cluster: 'local' }, { timeout_s: 5 });
  jest.advanceTimersByTime(5_100);
  await expect(answer).rejects.toBeInstanceOf(SilenceError);
});

test('progress is told, and puts the deadline off', async () => {
  last().say(WELCOME);
  const words: string[] = [];
  const answer = link.ask(
    { kind: 'start_cluster', name: 'a' },
    { timeout_s: 5, onProgress: text => words.push(text) }
  );
  const id = last().of('start_cluster')[0]?.id ?? -1;
  jest.advanceTimersByTime(4_000);
  last().say({ kind: 'progress', id, text: 'workers' });
  jest.advanceTimersByTime(4_000);
  last().say({ kind: 'done', id, text: '' });
  await expect(answer).resolves.toMatchObject({ kind: 'done' });
  expect(words).toEqual(['workers']);
});

test('starting a cluster is not repeated on a new connection', async () => {
  last().say(WELCOME);
  const answer = link.ask({ kind: 'start_cluster', name: 'a' });
  last().die();
  jest.advanceTimersByTime(1000);
  last().say(WELCOME);
  await expect(answer).rejects.toThrow('connection was lost');
  expect(last().of('start_cluster')).toHaveLength(0);
});

test('two that watch the same count as one, until both have left', () => {
  last().say(WELCOME);
  const [leave, leaveToo] = [link.watch('cluster', 'a'), link.watch('cluster', 'a')];
  expect(last().of('watch_cluster')).toHaveLength(1);
  leave();
  leave();
  expect(last().of('unwatch_cluster')).toHaveLength(0);
  leaveToo();
  expect(last().of('unwatch_cluster')).toHaveLength(1);
});

test('a watch that is refused is tried again', async () => {
  last().say(WELCOME);
  link.watch('cluster', 'a');
  const id = last().of('watch_cluster')[0]?.id ?? -1;
  last().say({ kind: 'denied', id, code: 'DDL-1', text: 'not yet' });
  await jest.advanceTimersByTimeAsync(3_500);
  expect(last().of('watch_cluster')).toHaveLength(2);
});

test('all who watch hear why they are refused, also those who come later', async () => {
  last().say(WELCOME);
  const heard: string[] = [];
  link.watch('run', 'r1', text => heard.push(`1 ${text}`));
  link.watch('run', 'r1', text => heard.push(`2 ${text}`));
  const refuse = async (text: string) => {
    const id = last().of('watch').pop()?.id ?? -1;
    last().say({ kind: 'denied', id, code: 'DDL-5003', text });
    await jest.advanceTimersByTimeAsync(0);
  };
  await refuse('no such run');
  link.watch('run', 'r1', text => heard.push(`3 ${text}`));
  expect(heard).toEqual(['1 no such run', '2 no such run', '3 no such run']);
  await jest.advanceTimersByTimeAsync(3_500);
  last().say({ kind: 'done', id: last().of('watch').pop()?.id ?? -1, text: '' });
  await jest.advanceTimersByTimeAsync(0);
  link.watch('run', 'r1', text => heard.push(`4 ${text}`));
  expect(heard).toHaveLength(3);
});

test('an output that is asked for arrives', async () => {
  last().say(WELCOME);
  const answer = link.ask({ kind: 'get_output', run_id: 'r1', trial: 0, file: 'a' });
  const id = last().of('get_output')[0]?.id ?? -1;
  last().say(golden('output', { id }));
  await expect(answer).resolves.toMatchObject({ kind: 'output', id });
});
