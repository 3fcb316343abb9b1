/** What people type to start a cluster, and what it means. */

import { MAX_WORKERS } from '../protocol';
import type { FormField, FormOfBackend, StartCluster } from '../protocol';

/** The fields as typed; an empty one takes what the host allows. */
export interface ClusterForm {
  name: string;
  backend: string;
  workers: string;
  cpus: string;
  memory: string;
  idle: string;
  age: string;
  /** The backend's own options by flag; of a list one each line, of a switch `on`. */
  own: Readonly<Record<string, string>>;
}

type Plain = Exclude<keyof ClusterForm, 'own'>;
export type Wrong = Partial<Record<Plain, string>>;
export type StartAsk = Omit<StartCluster, 'id'>;

export const EMPTY_FORM: ClusterForm = {
  name: 'local',
  backend: 'local',
  workers: '',
  cpus: '1',
  memory: '',
  idle: '30m',
  age: '24h',
  own: {}
};

/** What is known before the server has told. */
const UNKNOWN: FormOfBackend = { name: 'local', purpose: '', missing: '', has_size: true, fields: [] };

export function formOf(backends: readonly FormOfBackend[], name: string): FormOfBackend {
  return backends.find(each => each.name === name) ?? { ...UNKNOWN, name };
}

/** The words that a terminal would be given. */
export function wordsOf(fields: readonly FormField[], own: Readonly<Record<string, string>>): string[] {
  return fields.flatMap(({ flag, metavar, is_list }) => {
    const text = (own[flag] ?? '').trim();
    if (text === '') {
      return [];
    }
    if (metavar === '') {
      return [flag];
    }
    const values = is_list ? text.split('\n').map(each => each.trim()) : [text];
    // Joined, so that a value that begins with a hyphen is none of the options.
    return values.filter(Boolean).map(value => (flag.startsWith('-') ? `${flag}=${value}` : value));
  });
}

const NAME = /^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$/;
const SIZES: Record<string, number> = {
  kib: 2 ** 10,
  mib: 2 ** 20,
  gib: 2 ** 30,
  tib: 2 ** 40,
  kb: 1e3,
  mb: 1e6,
  gb: 1e9,
  tb: 1e12
};
const SPANS: Record<string, number> = { s: 1, m: 60, min: 60, h: 3600, d: 86400 };

/** Either what to send, or one line per field that is wrong. */
export function readForm(
  form: ClusterForm,
  taken: readonly string[],
  backend: FormOfBackend = UNKNOWN
): { ask: StartAsk } | { wrong: Wrong } {
  const wrong: Wrong = {};
  const name = form.name.trim();
  if (!NAME.test(name)) {
    wrong.name = 'Up to 40 of a–z, 0–9 and -, beginning and ending with a letter or digit';
  } else if (taken.includes(name)) {
    wrong.name = `A cluster named ${name} is already running`;
  }
  const n_workers = readOptional(form.workers, text => readCount(text, 1, MAX_WORKERS));
  if (n_workers === undefined) {
    wrong.workers = `A whole number from 1 to ${MAX_WORKERS}, or empty`;
  }
  const cpus = readCount(form.cpus, 1, 1024);
  if (cpus === undefined) {
    wrong.cpus = 'A whole number from 1 to 1024';
  }
  const memory = readOptional(form.memory, readSize);
  if (memory === undefined) {
    wrong.memory = 'A size such as 2GiB or 500MB, or empty';
  }
  const idle = readSpan(form.idle);
  if (idle === undefined) {
    wrong.idle = 'A time such as 90s, 30m or 2h';
  }
  const age = readSpan(form.age);
  if (age === undefined) {
    wrong.age = 'A time such as 30m, 24h or 7d';
  }
  if (
    Object.keys(wrong).length > 0 ||
    n_workers === undefined ||
    cpus === undefined ||
    memory === undefined ||
    idle === undefined ||
    age === undefined
  ) {
    return { wrong };
  }
  return {
    ask: {
      kind: 'start_cluster',
      name,
      backend: form.backend,
      n_workers,
      cpus_per_worker: cpus,
      memory_per_worker_bytes: memory,
      idle_timeout_s: idle,
      max_age_s: age,
      options: wordsOf(backend.fields, form.own)
    }
  };
}

/** Bytes of `2GiB` or `500 MB`; undefined: it is not a size. */
export function readSize(text: string): number | undefined {
  const match = /^([0-9]+(?:\.[0-9]+)?)\s*([kmgt]i?b)$/i.exec(text.trim());
  const unit = SIZES[match?.[2]?.toLowerCase() ?? ''];
  const bytes = match && unit !== undefined ? Math.round(Number(match[1]) * unit) : 0;
  return bytes > 0 ? bytes : undefined;
}

/** Seconds of `90s`, `30m`, `24h` or `7d`; undefined: it is not a time. */
export function readSpan(text: string): number | undefined {
  const match = /^([0-9]+(?:\.[0-9]+)?)\s*(s|m|min|h|d)$/i.exec(text.trim());
  const unit = SPANS[match?.[2]?.toLowerCase() ?? ''];
  const seconds = match && unit !== undefined ? Number(match[1]) * unit : 0;
  return seconds > 0 ? seconds : undefined;
}

/** A whole number between two others; undefined: it is not one. */
export function readCount(text: string, low: number, high: number): number | undefined {
  const value = /^[0-9]+$/.test(text.trim()) ? Number(text) : NaN;
  return value >= low && value <= high ? value : undefined;
}

/** An empty field is null. */
function readOptional(
  text: string,
  read: (text: string) => number | undefined
): number | null | undefined {
  return text.trim() === '' ? null : read(text);
}
