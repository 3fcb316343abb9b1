// A recording, unpacked: what a view shows at each moment.  See recording/timeline.py for the other end.

/**
 * What a patch makes of a value; what it leaves alone is shared and not copied.
 * @param {any} old
 * @param {any} patch as recording/delta.py describes it
 * @returns {any}
 */
export function patched(old, patch) {
  if (Array.isArray(patch)) return patch[0];
  if (Array.isArray(old)) {
    const list = old.slice(patch["-"] ?? 0);
    for (const [key, change] of Object.entries(patch)) {
      if (key === "+") list.push(...change);
      else if (key !== "-") list[Number(key)] = patched(list[Number(key)], change);
    }
    return list;
  }
  // No name that comes from a run may reach an object's prototype.
  const whole = Object.assign(Object.create(null), old);
  for (const [key, change] of Object.entries(patch)) {
    if (Array.isArray(change) && change.length === 0) delete whole[key];
    else whole[key] = patched(whole[key] ?? null, change);
  }
  return whole;
}

/**
 * All pictures of a timeline, in order.
 * @param {any} timeline
 * @returns {{atS: number, picture: any}[]} seconds since the beginning
 */
export function picturesOf(timeline) {
  let picture = Object.create(null);
  return timeline.frames.map(([atS, patch]) => {
    picture = patched(picture, patch);
    return { atS, picture };
  });
}

/**
 * Number of the picture that is to be seen at a moment; the first one before all.
 * @param {{atS: number}[]} pictures
 * @param {number} atS
 * @returns {number}
 */
export function indexAt(pictures, atS) {
  let low = 0;
  let high = pictures.length - 1;
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (pictures[middle].atS <= atS) low = middle;
    else high = middle - 1;
  }
  return low;
}

/**
 * A timeline from its bytes (gzip around JSON).
 * @param {BufferSource} bytes
 * @returns {Promise<any>}
 */
export async function unpacked(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
}
