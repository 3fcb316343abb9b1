/** From text that arrived to a message that may be trusted to have its type. */

import { STRUCTS, TO_BROWSER } from './protocol';
import type { Shape, ToBrowser } from './protocol';

/** What arrived is not a message of this protocol; the text says where it differs. */
export class ProtocolError extends Error {
  override readonly name = 'ProtocolError';
}

/** @throws ProtocolError when the text is not a message. */
export function parseMessage(text: string): ToBrowser {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new ProtocolError('a message is not JSON');
  }
  return checkedMessage(value);
}

/** What precedes columns of trials: four bytes, and the length of the message in four more. */
const FRAME = '\0DDL';

/**
 * A message with the bytes of its columns behind it, as `data`.
 *
 * @throws ProtocolError when the frame holds none.
 */
export function parseFrame(frame: ArrayBuffer): ToBrowser {
  const bytes = new Uint8Array(frame);
  if (bytes.length < 8 || [...FRAME].some((each, n) => each.charCodeAt(0) !== bytes[n])) {
    throw new ProtocolError('a binary message holds no columns');
  }
  const end = 8 + new DataView(frame).getUint32(4, true);
  const message = parseMessage(new TextDecoder().decode(bytes.subarray(8, end)));
  return Object.assign(message, { data: frame.slice(end) });
}

/** @throws ProtocolError when the value is not a message. */
export function checkedMessage(value: unknown): ToBrowser {
  const kind = isRecord(value) ? value['kind'] : undefined;
  const struct = typeof kind === 'string' && own(TO_BROWSER, kind);
  if (!struct) {
    throw new ProtocolError(`${String(kind)} is not a kind of message`);
  }
  const wrong = differsAt(value, { struct }, String(kind));
  if (wrong !== null) {
    throw new ProtocolError(`a message is malformed at ${wrong}`);
  }
  return value as ToBrowser;
}

/** Where a value differs from a shape; null: nowhere. */
function differsAt(value: unknown, shape: Shape, path: string): string | null {
  if (typeof shape === 'string') {
    return isPlain(value, shape) ? null : path;
  }
  if ('struct' in shape) {
    return structDiffersAt(value, own(STRUCTS, shape.struct), path);
  }
  if ('any' in shape) {
    return shape.any.some(item => differsAt(value, item, path) === null) ? null : path;
  }
  if ('one' in shape) {
    return shape.one.includes(value as string) ? null : path;
  }
  if ('map' in shape) {
    return isRecord(value) ? firstOf(Object.entries(value), () => shape.map, path) : path;
  }
  if (!Array.isArray(value)) {
    return path;
  }
  if ('list' in shape) {
    return firstOf(Object.entries(value), () => shape.list, path);
  }
  const { tuple } = shape;
  return value.length === tuple.length
    ? firstOf(Object.entries(value), key => tuple[Number(key)] ?? 'null', path)
    : path;
}

function structDiffersAt(
  value: unknown,
  fields: Record<string, Shape> | undefined,
  path: string
): string | null {
  if (!isRecord(value) || fields === undefined) {
    return path;
  }
  for (const [name, shape] of Object.entries(fields)) {
    const wrong = differsAt(own(value, name), shape, `${path}.${name}`);
    if (wrong !== null) {
      return wrong;
    }
  }
  return null;
}

function firstOf(
  entries: [string, unknown][],
  shapeOf: (key: string) => Shape,
  path: string
): string | null {
  for (const [key, item] of entries) {
    const wrong = differsAt(item, shapeOf(key), `${path}.${key}`);
    if (wrong !== null) {
      return wrong;
    }
  }
  return null;
}

function isPlain(value: unknown, name: string): boolean {
  switch (name) {
    case 'null':
      return value === null;
    case 'int':
      return Number.isInteger(value);
    case 'number':
      return typeof value === 'number' || value === null;
    default:
      return typeof value === name;
  }
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** A property of the object itself: `constructor` and the like are not fields. */
function own<T>(record: Record<string, T>, name: string): T | undefined {
  return Object.prototype.hasOwnProperty.call(record, name) ? record[name] : undefined;
}
