// A recording in a page of its own: no kernel, no server, nothing is fetched.

import { unpacked } from "./timeline.js";
import { play } from "./player.js";

function bytesOf(text) {
  return Uint8Array.from(atob(text.trim()), (letter) => letter.charCodeAt(0));
}

/** Replace the still picture by the player. */
export default async function start() {
  const stage = document.getElementById("replay");
  const timeline = await unpacked(bytesOf(document.getElementById("timeline").textContent));
  stage.replaceChildren();
  play(stage, timeline, {
    speed: Number(stage.dataset.speed),
    isPaused: matchMedia("(prefers-reduced-motion: reduce)").matches,
  });
}
