// Buttons that end a run or go on with it, and the answers to pressing them.

import { isFinal } from "./client.js";
import { clean, h, setAttribute, setText, show } from "./dom.js";
import { resuming } from "./remedies.js";

const CONFIRM_MS = 4000;

const BUTTONS = [
  {
    how: "next_report",
    label: "Stop",
    title: "Cancel running work at its next report; the run can be resumed",
    said: "Stopping at the next report…",
  },
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
    how: "now",
    label: "Stop now",
    title: "End all processes of the run at once; the run can be resumed",
    said: "Stopping now…",
    confirm: "Really stop now?",
  },
];
/** Ranks that are kept between cells have no report to stop at. */
const RELEASE = {
  label: "Release slots",
  title: "End the group: its ranks and their variables are gone, its slots are free",
  confirm: "Really end the group?",
};

/**
 * Which buttons a run has: the one that stands alone, and those behind it.
 * @param {any} snapshot
 * @param {boolean} isStopping whether somebody has asked for an end
 * @returns {{main: string | null, others: string[]}}
 */
export function stopsOf(snapshot, isStopping) {
  if (isFinal(snapshot.state) || (snapshot.driver ?? "live") !== "live") return { main: null, others: [] };
  const there = BUTTONS.map((each) => each.how).filter((how) => snapshot.can.stops.includes(how));
  // While a run is stopping, only stopping it at once still makes sense.
  if (isStopping || snapshot.can.has_cells) return { main: there.includes("now") ? "now" : null, others: [] };
  const [main = null, ...others] = there;
  return { main, others };
}

/**
 * Whether nothing goes on with a run that could go on.
 * @param {any} snapshot
 * @returns {boolean}
 */
export function canGoOn(snapshot) {
  const isLeft = snapshot.driver === "none" || ["failed", "cancelled"].includes(snapshot.state);
  return isLeft && snapshot.can.can_resume;
}

/** The row of buttons of one run. */
export class Actions {
  /**
   * @param {import("./dom.js").Scope} scope
   * @param {import("./client.js").Client} client
   * @param {import("./remedies.js").Host} [host]
   */
  constructor(scope, client, host = {}) {
    this._client = client;
    this._scope = scope;
    this._said = h("span", { class: "ddl-muted ddl-said", role: "status" });
    this._buttons = BUTTONS.map((each) => this._made({ ...each }));
    this._resume = this._made({ said: "Going on…" });
    this._open = h("button", { type: "button", class: "ddl-button", text: "Open run page", title: "This run in a tab of its own" });
    scope.listen(this._open, "click", () => host.open?.());
    show(this._open, host.open !== undefined);
    this._more = h("button", {
      type: "button",
      class: "ddl-button ddl-more",
      text: "▾",
      title: "Other ways to stop",
      "aria-label": "Other ways to stop",
      "aria-expanded": "false",
    });
    this._menu = h("div", { class: "ddl-menu", role: "group", "aria-label": "Other ways to stop", hidden: true });
    scope.listen(this._more, "click", () => this._unfold(this._menu.hidden));
    this._stops = h("div", { class: "ddl-stops", role: "group", "aria-label": "Stop the run" }, this._more, this._menu);
    scope.listen(this._stops, "keydown", (event) => {
      if (event.key !== "Escape" || this._menu.hidden) return;
      event.stopPropagation();
      this._unfold(false);
      this._more.focus();
    });
    scope.listen(this._stops, "focusout", (event) => {
      if (event.relatedTarget !== null && !this._stops.contains(event.relatedTarget)) this._unfold(false);
    });
    this.element = h("div", { class: "ddl-actions" }, this._said, this._resume.button, this._stops, this._open);
    this._runId = "";
    this._asked = "";
    this._layout = "";
  }

  _made(own) {
    own.button = h("button", { type: "button", class: "ddl-button" });
    own.armedMs = -Infinity;
    this._label(own, own);
    this._scope.listen(own.button, "click", () => void this._press(own));
    return own;
  }

  _label(own, { label = "", title = "", confirm }) {
    if (Date.now() - own.armedMs > CONFIRM_MS) setText(own.button, label);
    Object.assign(own, { label, title, confirm });
    setAttribute(own.button, "title", title);
  }

  _unfold(isOpen) {
    show(this._menu, isOpen);
    setAttribute(this._more, "aria-expanded", String(isOpen));
  }

  /** @param {any} snapshot */
  update(snapshot) {
    this._runId = snapshot.run_id;
    if (snapshot.state !== this._state) {
      // What was asked for has come about, or the run goes on.
      if (this._state !== undefined && isFinal(this._state) !== isFinal(snapshot.state)) this._forget();
      this._state = snapshot.state;
    }
    show(this._said, this._said.textContent !== "");
    const { isReadOnly } = this._client;
    const { main, others } = stopsOf(snapshot, snapshot.stopping || this._asked !== "");
    const goesOn = !isReadOnly && canGoOn(snapshot);
    show(this._resume.button, goesOn);
    if (goesOn) {
      const { label, title, request } = resuming(snapshot);
      this._resume.request = request;
      this._label(this._resume, { label, title });
    }
    show(this._stops, main !== null && !isReadOnly);
    const now = this._buttons.find((each) => each.how === "now");
    this._label(now, snapshot.can.has_cells ? RELEASE : BUTTONS.find((each) => each.how === "now"));
    this._place(main, others);
    for (const each of this._buttons) setAttribute(each.button, "disabled", this._asked === "now");
    setAttribute(this._resume.button, "disabled", this._asked === "resume");
  }

  _place(main, others) {
    const layout = JSON.stringify([main, others]);
    if (layout === this._layout) return;
    this._layout = layout;
    const had = this._buttons.find((each) => each.button === document.activeElement);
    const of = (how) => this._buttons.find((each) => each.how === how);
    for (const each of this._buttons) each.button.remove();
    if (main !== null) this._stops.prepend(of(main).button);
    this._menu.append(...others.map((how) => of(how).button));
    show(this._more, others.length > 0);
    if (others.length === 0) this._unfold(false);
    if (had !== undefined && main !== null) of(main).button.focus();
  }

  _forget() {
    this._asked = "";
    setText(this._said, "");
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
    each.armedMs = -Infinity;
    setText(button, each.label);
    this._asked = each.how ?? "resume";
    this._unfold(false);
    setText(this._said, "Asking…");
    show(this._said, true);
    setAttribute(button, "disabled", true);
    const request = each.request ?? { kind: "stop_run", run_id: this._runId, how: each.how };
    const answer = await this._client.request(request);
    const denied = answer.kind !== "done";
    setText(this._said, clean(answer.text || (denied ? "" : each.said), 200));
    if (denied || each.request !== undefined) this._asked = "";
    if (denied) setAttribute(button, "disabled", false);
  }
}
