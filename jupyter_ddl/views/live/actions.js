// Buttons that end a run, and the answers to pressing them.

import { isFinal } from "./client.js";
import { clean, h, setAttribute, setText, show } from "./dom.js";

const CONFIRM_MS = 4000;

const BUTTONS = [
  {
    how: "keep_best",
    label: "Keep best and finish",
    title: "Start no more trials, end the running ones at their next report, and bring the best trial's values back",
    said: "Finishing with the best trial…",
  },
  {
    how: "epoch",
    label: "Stop after this epoch",
    title: "Let running work reach its next report, count its results, and end the run",
    said: "Ending after this epoch…",
  },
  {
    how: "next_report",
    label: "Stop",
    title: "Cancel running work at its next report; the run can be resumed",
    said: "Stopping at the next report…",
  },
  {
    how: "now",
    label: "Stop now",
    title: "End all processes of the run at once; the run can be resumed",
    said: "Stopping now…",
    confirm: "Really stop now?",
  },
];

/** The row of buttons of one run. */
export class Actions {
  /**
   * @param {import("./dom.js").Scope} scope
   * @param {import("./client.js").Client} client
   */
  constructor(scope, client) {
    this._client = client;
    this._scope = scope;
    this._said = h("span", { class: "ddl-muted ddl-said", role: "status" });
    this._buttons = BUTTONS.map((each) => {
      const button = h("button", { type: "button", class: "ddl-button", text: each.label, title: each.title });
      const own = { ...each, button, armedMs: -Infinity };
      scope.listen(button, "click", () => this._press(own));
      return own;
    });
    this.element = h(
      "div",
      { class: "ddl-actions", role: "group", "aria-label": "Stop the run" },
      this._said,
      ...this._buttons.map((each) => each.button),
    );
    this._runId = "";
    this._asked = "";
  }

  /** @param {any} snapshot */
  update(snapshot) {
    this._runId = snapshot.run_id;
    show(this._said, this._said.textContent !== "");
    const ended = isFinal(snapshot.state);
    show(this.element, !ended && !this._client.isReplay);
    for (const each of this._buttons) {
      show(each.button, snapshot.can.stops.includes(each.how));
      // While a run is stopping, only stopping it at once still makes sense.
      const useless = each.how !== "now" && (snapshot.stopping || this._asked !== "");
      setAttribute(each.button, "disabled", useless || this._asked === "now");
    }
  }

  async _press(each) {
    const { button } = each;
    if (each.confirm !== undefined && Date.now() - each.armedMs > CONFIRM_MS) {
      each.armedMs = Date.now();
      setText(button, each.confirm);
      setTimeout(() => {
        if (!this._scope.closed) setText(button, each.label);
      }, CONFIRM_MS);
      return;
    }
    setText(button, each.label);
    this._asked = each.how;
    setText(this._said, "Asking…");
    show(this._said, true);
    for (const other of this._buttons) setAttribute(other.button, "disabled", other.how !== "now" || each.how === "now");
    const answer = await this._client.request({ kind: "stop_run", run_id: this._runId, how: each.how });
    const denied = answer.kind !== "done";
    setText(this._said, denied ? clean(answer.text, 200) : clean(answer.text || each.said, 200));
    if (denied) {
      this._asked = "";
      for (const other of this._buttons) setAttribute(other.button, "disabled", false);
    }
  }
}
