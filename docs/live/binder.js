// Asks a BinderHub for a server; its answer is a stream of events that ends in an address.

import { within } from "./kernel.js";

const SILENCE_MS = 180_000;

/**
 * @param {string} address of the hub's build, `https://HUB/build/gh/OWNER/REPOSITORY/REF`
 * @param {(phase: string) => void} onPhase
 * @param {number} [silenceMs] how long the hub may say nothing
 * @returns {Promise<{ baseUrl: string, token: string }>}
 */
export async function launch(address, onPhase, silenceMs = SILENCE_MS) {
  const events = new EventSource(address);
  try {
    for (;;) {
      const event = await next(events, silenceMs);
      if (event.phase === "ready") return { baseUrl: event.url, token: event.token };
      if (event.phase === "failed") throw new Error(event.message || "Binder has failed");
      if (event.phase) onPhase(event.phase);
    }
  } finally {
    events.close();
  }
}

function next(events, silenceMs) {
  return within(silenceMs, "Binder's next word", (resolve, reject) => {
    events.onmessage = (message) => resolve(JSON.parse(message.data));
    events.onerror = () => reject(new Error("Binder can't be reached"));
  });
}
