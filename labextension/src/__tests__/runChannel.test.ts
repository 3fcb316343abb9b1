import type { Link } from '../model/link';
import { DeniedError } from '../model/requests';
import type { Answer, Ask } from '../model/requests';
import { RunChannel } from '../model/runChannel';
import { Store } from '../model/store';
import type { FromBrowser } from '../protocol';
import { golden } from './golden';

/** What the channel uses of a link, with answers given by hand. */
class HandLink {
  state = 'connected';
  watched = 0;
  told: FromBrowser[] = [];
  asked: { ask: Ask; settle: (answer: Answer) => void; refuse: (error: Error) => void }[] = [];

  ask(ask: Ask): Promise<Answer> {
    return new Promise((settle, refuse) => this.asked.push({ ask, settle, refuse }));
  }

  tell(message: FromBrowser): void {
    this.told.push(message);
  }

  watch(): () => void {
    this.watched += 1;
    return () => (this.watched -= 1);
  }
}

const view = golden('run');
const runId = view.snapshot.run_id;
let link: HandLink;
let store: Store;
let channel: RunChannel;
let heard: Record<string, unknown>[];

beforeEach(() => {
  link = new HandLink();
  store = new Store();
  channel = new RunChannel(link as unknown as Link, store, runId);
  heard = [];
  channel.subscribe(message => heard.push(message as Record<string, unknown>));
});

test('messages are numbered anew, so that those of other runs leave no gap', () => {
  store.hear({ ...view, seq: 4 });
  store.hear({ ...view, seq: 19 });
  expect(heard.map(each => each['seq'])).toEqual([1, 2]);
});

test('a view that asks again gets the newest without asking the server', () => {
  store.hear({ ...view, at_s: 1 });
  store.hear({ ...view, at_s: 2 });
  heard.length = 0;
  channel.send({ kind: 'again', seq: 0 });
  expect(heard).toMatchObject([{ kind: 'run', at_s: 2 }]);
  expect(link.told).toEqual([]);
});

test('without a connection a view that asks again hears nothing, and can say so', () => {
  store.hear(view);
  heard.length = 0;
  link.state = 'reconnecting';
  channel.send({ kind: 'again', seq: 0 });
  expect(heard).toEqual([]);
});

test('a repeated request is asked once, and answered under its own id', async () => {
  const request = { kind: 'stop_trial', id: 77, run_id: runId, trial: 3 } as const;
  channel.send(request);
  channel.send(request);
  expect(link.asked.map(each => each.ask)).toEqual([
    { kind: 'stop_trial', run_id: runId, trial: 3 }
  ]);
  link.asked[0]?.settle({ kind: 'done', id: 5, text: 'ok' });
  await Promise.resolve();
  await Promise.resolve();
  expect(heard).toEqual([{ kind: 'done', id: 77, text: 'ok' }]);
});

test('a refusal arrives as one', async () => {
  channel.send({ kind: 'stop_run', id: 8, run_id: runId, how: 'now' });
  link.asked[0]?.refuse(new DeniedError('DDL-9', 'no'));
  await Promise.resolve();
  await Promise.resolve();
  expect(heard).toEqual([{ kind: 'denied', id: 8, code: 'DDL-9', text: 'no' }]);
});

test('a run is watched while it is in sight', () => {
  channel.setVisible(true);
  channel.setVisible(true);
  expect(link.watched).toBe(1);
  channel.setVisible(false);
  expect(link.watched).toBe(0);
  channel.setVisible(true);
  channel.dispose();
  expect(link.watched).toBe(0);
});

test('what is wrong with the record of the run reaches its view, also one that comes later', () => {
  const trouble = golden('record', { run_id: runId, text: 'it was removed' });
  store.hear(trouble);
  store.hear(golden('record', { run_id: 'another' }));
  expect(heard).toMatchObject([{ kind: 'record', text: 'it was removed' }]);
  const late: unknown[] = [];
  const other = new RunChannel(link as unknown as Link, store, runId);
  other.subscribe(message => late.push(message));
  other.send({ kind: 'again', seq: 0 });
  expect(late).toMatchObject([{ kind: 'record', text: 'it was removed' }]);
});
