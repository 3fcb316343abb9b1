import { EMPTY_FORM, formOf, readForm, readSize, readSpan, wordsOf } from '../model/clusterForm';

test('the form as it opens is a cluster as the host allows', () => {
  expect(readForm(EMPTY_FORM, [])).toEqual({
    ask: {
      kind: 'start_cluster',
      name: 'local',
      backend: 'local',
      n_workers: null,
      cpus_per_worker: 1,
      memory_per_worker_bytes: null,
      idle_timeout_s: 1800,
      max_age_s: 86400,
      options: []
    }
  });
});

test('every wrong field has a line of its own', () => {
  const form = {
    name: 'No Name',
    backend: 'local',
    workers: '0',
    cpus: '1.5',
    memory: '2',
    idle: 'soon',
    age: '-1h',
    own: {}
  };
  const read = readForm(form, []);
  const wrong = 'wrong' in read ? read.wrong : {};
  expect(Object.keys(wrong).sort()).toEqual(['age', 'cpus', 'idle', 'memory', 'name', 'workers']);
  expect(Object.values(wrong).every(text => text.length > 10 && !text.includes('\n'))).toBe(true);
});

test('a name that is taken is refused before the server is asked', () => {
  expect(readForm(EMPTY_FORM, ['local'])).toEqual({
    wrong: { name: 'A cluster named local is already running' }
  });
});

test.each([
  ['2GiB', 2 ** 31],
  ['1.5 gib', 1.5 * 2 ** 30],
  ['500MB', 5e8],
  ['0GiB', undefined],
  ['2', undefined],
  ['GiB', undefined],
  ['1e3MB', undefined]
])('the size %s', (text, bytes) => {
  expect(readSize(text)).toBe(bytes);
});

test.each([
  ['90s', 90],
  ['30m', 1800],
  ['1.5h', 5400],
  ['7d', 604800],
  ['0s', undefined],
  ['30', undefined],
  ['Infinityh', undefined]
])('the time %s', (text, seconds) => {
  expect(readSpan(text)).toBe(seconds);
});

const FIELDS = [
  { flag: '--env', help: '', metavar: 'IMAGE', choices: [], is_list: false },
  { flag: '--set-env', help: '', metavar: 'NAME=VALUE', choices: [], is_list: true },
  { flag: '--tls', help: '', metavar: '', choices: [], is_list: false },
  { flag: 'address', help: '', metavar: 'ADDRESS', choices: [], is_list: false }
];

test('options of a backend become the words of a terminal, the empty ones none', () => {
  expect(wordsOf(FIELDS, {})).toEqual([]);
  expect(wordsOf(FIELDS, { '--env': ' my/image ', '--tls': 'on', address: 'tls://h:1' })).toEqual([
    '--env=my/image',
    '--tls',
    'tls://h:1'
  ]);
  expect(wordsOf(FIELDS, { '--set-env': 'A=--b\n\n C=d e ' })).toEqual([
    '--set-env=A=--b',
    '--set-env=C=d e'
  ]);
});

test('options that were typed for another backend are not sent', () => {
  const kube = { name: 'kube', purpose: '', missing: '', has_size: true, fields: FIELDS };
  const form = { ...EMPTY_FORM, own: { '--env': 'x', '--other': 'y' } };
  const read = readForm(form, [], kube);
  expect('ask' in read && read.ask.options).toEqual(['--env=x']);
  expect(formOf([kube], 'kube')).toBe(kube);
  expect(formOf([kube], 'local').fields).toEqual([]);
});
