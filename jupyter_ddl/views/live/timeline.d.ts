/** A timeline from its bytes (gzip around JSON). */
export function unpacked(bytes: BufferSource): Promise<object>;
