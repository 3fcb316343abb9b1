import { checkedMessage, parseFrame, parseMessage, ProtocolError } from '../guards';
import { TO_BROWSER } from '../protocol';
import { goldens } from './golden';

const toBrowser = goldens().filter(each => each.direction === 'to_browser');

test('every kind of message to the browser has a golden one', () => {
  expect(toBrowser.map(each => each.kind).sort()).toEqual(Object.keys(TO_BROWSER).sort());
});

test.each(toBrowser)('$kind is accepted as the Python side writes it', ({ full, sparse }) => {
  expect(parseMessage(JSON.stringify(full))).toEqual(full);
  expect(parseMessage(JSON.stringify(sparse))).toEqual(sparse);
});

test.each(toBrowser)('$kind is refused without any one of its fields', ({ full }) => {
  for (const name of Object.keys(full)) {
    const { [name]: _left, ...rest } = full;
    expect(() => checkedMessage(rest)).toThrow(ProtocolError);
  }
});

test.each(toBrowser)('$kind is refused with a field of another type', ({ full }) => {
  for (const name of Object.keys(full)) {
    expect(() => checkedMessage({ ...full, [name]: { no: 'such value' } })).toThrow(ProtocolError);
  }
});

test('the error names the place', () => {
  const run = structuredClone(toBrowser.find(each => each.kind === 'run')?.full) as {
    snapshot: { rows: { number: unknown }[] };
  };
  const [row] = run.snapshot.rows;
  if (row !== undefined) {
    row.number = 'seven';
  }
  expect(() => checkedMessage(run)).toThrow('run.snapshot.rows.0.number');
});

test.each(['', '{', 'null', '[]', '7', '{}', '{"kind":"constructor"}', '{"kind":["run"]}'])(
  'nonsense is refused: %s',
  text => {
    expect(() => parseMessage(text)).toThrow(ProtocolError);
  }
);

test('20,000 damaged messages are refused or harmless, and nothing else is thrown', () => {
  const texts = toBrowser.map(each => JSON.stringify(each.full));
  let seed = 7;
  const random = (below: number) => {
    seed = (seed * 1103515245 + 12345) % 2147483648;
    return seed % below;
  };
  let nRefused = 0;
  for (let round = 0; round < 20_000; round += 1) {
    const text = texts[random(texts.length)] ?? '';
    const at = random(text.length);
    const damaged =
      text.slice(0, at) + ['', '}', '"', 'null', '-1', '\\', '[['][random(7)] + text.slice(at + random(9));
    try {
      parseMessage(damaged);
    } catch (error) {
      expect(error).toBeInstanceOf(ProtocolError);
      nRefused += 1;
    }
  }
  expect(nRefused).toBeGreaterThan(10_000);
});

test('a frame is a message with the bytes behind it, and nothing else is a frame', () => {
  const { full } = toBrowser.find(each => each.kind === 'columns') ?? {};
  const head = new TextEncoder().encode(JSON.stringify(full));
  const frame = new Uint8Array([0, 68, 68, 76, head.length, head.length >> 8, 0, 0, ...head, 7, 8]);
  const message = parseFrame(frame.buffer) as unknown as { data: ArrayBuffer };
  expect(message).toEqual({ ...full, data: message.data });
  expect([...new Uint8Array(message.data)]).toEqual([7, 8]);
  for (const bad of [[], [...frame.slice(0, 30)], [1, ...frame.slice(1)]]) {
    expect(() => parseFrame(new Uint8Array(bad).buffer)).toThrow(ProtocolError);
  }
});
