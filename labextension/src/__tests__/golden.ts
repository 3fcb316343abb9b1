/** The messages that pytest reads too: one full and one sparse example of each. */

import * as fs from 'fs';
import * as path from 'path';

import type { ToBrowser } from '../protocol';

const FOLDER = path.join(process.cwd(), '..', 'tests', 'golden');

export interface Golden {
  kind: string;
  direction: 'to_browser' | 'from_browser';
  full: Record<string, unknown>;
  sparse: Record<string, unknown>;
}

export function goldens(): Golden[] {
  return fs
    .readdirSync(FOLDER)
    .filter(name => name.endsWith('.json'))
    .map(name => ({
      kind: name.replace('.json', ''),
      ...JSON.parse(fs.readFileSync(path.join(FOLDER, name), 'utf8'))
    }));
}

/** A message to the browser, with some fields replaced. */
export function golden<K extends ToBrowser['kind']>(
  kind: K,
  fields: Partial<Extract<ToBrowser, { kind: K }>> = {}
): Extract<ToBrowser, { kind: K }> {
  const found = goldens().find(each => each.kind === kind);
  if (found === undefined) {
    throw new Error(`no golden message is of kind ${kind}`);
  }
  return { ...found.full, ...fields } as unknown as Extract<ToBrowser, { kind: K }>;
}
