// A recording in a notebook: the timeline travels as the widget's state, and plays without the kernel.

import { h } from "./dom.js";
import { unpacked } from "./timeline.js";
import { play } from "./player.js";

const REST_MS = 4000;

export default {
  initialize({ model }) {
    model.send({ kind: "have", seq: 0 });
  },
  render({ model, el }) {
    let player = null;
    let isGone = false;
    let timer = 0;
    // Whoever replays it, or looks at another moment, has not finished with it.
    const stay = () => clearTimeout(timer);
    el.addEventListener("pointerdown", stay);
    el.addEventListener("keydown", stay);
    const options = {
      speed: model.get("speed"),
      onEnd: () => {
        timer = setTimeout(() => model.send({ kind: "seen", run_id: model.get("run_id") }), REST_MS);
      },
    };
    unpacked(model.get("timeline")).then(
      (timeline) => {
        if (!isGone) player = play(el, timeline, options);
      },
      () => el.append(h("div", { class: "ddl-live", text: "This browser can't decompress the recording." })),
    );
    return () => {
      isGone = true;
      stay();
      player?.destroy();
    };
  },
};
