// A recording in a page of its own: no kernel, no server, nothing is fetched.

import { unpacked } from "./film.js";
import { play } from "./player.js";

function bytesOf(text) {
  return Uint8Array.from(atob(text.trim()), (letter) => letter.charCodeAt(0));
}

/** Replace the still picture by the player. */
export default async function start() {
  const stage = document.getElementById("replay");
  const film = await unpacked(bytesOf(document.getElementById("film").textContent));
  stage.replaceChildren();
  play(stage, film, {
    speed: Number(stage.dataset.speed),
    isPaused: matchMedia("(prefers-reduced-motion: reduce)").matches,
  });
}
