// Plays a recording in the same view that shows a run: play, pause, seek, speed.

import { h, Scope, setAttribute, setText } from "./dom.js";
import { clock } from "./format.js";
import { History } from "./history.js";
import { mount } from "./index.js";
import { Projector } from "./projector.js";

const TICK_MS = 100;
const SHOW_MS = 500;
const SPEEDS = [0.5, 1, 2, 4, 8, 16, 32];

/**
 * Play a timeline in an element.
 * @param {HTMLElement} element its content is the player's until `destroy`
 * @param {any} timeline as recording/timeline.py makes it, unpacked
 * @param {{speed?: number, isPaused?: boolean, onEnd?: () => void}} [options]
 *   `onEnd`: called when the end was reached by playing
 * @returns {{destroy: () => void}}
 */
export function play(element, timeline, options = {}) {
  const player = new Player(element, timeline, options);
  return { destroy: () => player.destroy() };
}

class Player {
  constructor(element, timeline, options) {
    this._scope = new Scope();
    this._timeline = timeline;
    this._onEnd = options.onEnd ?? (() => {});
    this._speed = options.speed ?? 1;
    this._isPlaying = options.isPaused !== true;
    this._tickedMs = performance.now();
    this._shownMs = -Infinity;
    this._projector = new Projector(timeline);
    this._history = new History(
      this._scope,
      (trial) => this._view.choose(trial),
      (atS) => this._seek(atS),
    );
    this._bar = this._controls();
    this._stage = h("div");
    this._root = h("div", {}, this._bar, this._stage);
    element.append(this._root);
    this._history.update(timeline.history ?? null);
    this._view = mount(this._stage, this._projector.channel, {
      runId: timeline.run_id,
      clock: () => this._projector.nowS,
      record: this._projector.record(),
    });
    this._scope.every(() => this._tick(), TICK_MS);
    this._projector.show();
    this._draw();
  }

  destroy() {
    this._scope.close();
    this._view.destroy();
    this._root.remove();
  }

  _controls() {
    const isSimulated = this._timeline.origin === "simulated";
    const title = isSimulated ? "No such run has taken place: a simulation wrote it" : "A run as it was recorded";
    this._button = h("button", { type: "button", class: "ddl-button ddl-play" });
    this._place = h("input", {
      type: "range", class: "ddl-place", min: 0, max: this._timeline.length_s, step: "any", "aria-label": "Moment of the run",
    });
    this._place.value = "0";
    this._time = h("span", { class: "ddl-muted ddl-place-text" });
    const speeds = [...new Set([...SPEEDS, this._speed])].sort((a, b) => a - b);
    this._rate = h(
      "select",
      { class: "ddl-input", "aria-label": "Speed" },
      ...speeds.map((speed) => h("option", { value: speed, text: `${speed}×` })),
    );
    this._rate.value = String(this._speed);
    this._scope.listen(this._button, "click", () => this._toggle());
    this._scope.listen(this._place, "input", () => this._seek(Number(this._place.value)));
    this._scope.listen(this._rate, "change", () => {
      this._speed = Number(this._rate.value);
    });
    for (const control of [this._button, this._place, this._rate]) {
      // Lab's own keys must not act on the cell while somebody plays.
      this._scope.listen(control, "keydown", (event) => event.stopPropagation());
    }
    return h(
      "div",
      { class: "ddl-controls", role: "group", "aria-label": "Replay" },
      h(
        "div",
        { class: "ddl-part" },
        h("span", { class: "ddl-origin", text: isSimulated ? "Replay · simulated" : "Replay", title }),
        this._button,
        this._rate,
      ),
      this._time,
      h("div", { class: "ddl-time-axis" }, this._place, this._history.element),
    );
  }

  _toggle() {
    if (this._atEnd) this._seek(0);
    this._isPlaying = !this._isPlaying;
    this._tickedMs = performance.now();
    this._draw();
  }

  get _atEnd() {
    return this._projector.atS >= this._timeline.length_s;
  }

  _seek(atS) {
    this._go(Math.min(this._timeline.length_s, Math.max(0, atS)));
    if (this._atEnd) this._isPlaying = false;
    this._draw();
  }

  _tick() {
    const nowMs = performance.now();
    const passedS = (nowMs - this._tickedMs) / 1000;
    this._tickedMs = nowMs;
    if (this._isPlaying) {
      this._go(Math.min(this._timeline.length_s, this._projector.atS + passedS * this._speed));
      if (this._atEnd) {
        this._isPlaying = false;
        this._onEnd();
      }
      this._draw();
    } else if (nowMs - this._shownMs >= SHOW_MS) this._show(nowMs);
  }

  _go(atS) {
    if (this._projector.go(atS)) this._view.forget();
    this._show(performance.now());
  }

  _show(nowMs) {
    this._shownMs = nowMs;
    this._projector.show();
  }

  _draw() {
    const label = this._isPlaying ? "Pause" : this._atEnd ? "Play again" : "Play";
    setText(this._button, this._isPlaying ? "❚❚" : this._atEnd ? "↻" : "▶");
    setAttribute(this._button, "aria-label", label);
    setAttribute(this._button, "title", label);
    const at = `${clock(this._projector.atS)} of ${clock(this._timeline.length_s)}`;
    setText(this._time, at);
    this._history.at(this._projector.atS);
    setAttribute(this._place, "aria-valuetext", at);
    if (document.activeElement !== this._place || this._isPlaying) this._place.value = String(this._projector.atS);
  }
}
