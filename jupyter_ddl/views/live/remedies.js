// Buttons beside what is wrong: each does what the sentence advises, and tells what came of it.

import { clean, h, repeat, setAttribute, setText, show } from "./dom.js";
import { count } from "./format.js";

const CONFIRM_MS = 4000;
const STOP = /`%runs stop ([A-Za-z0-9-]{1,80})`/;
const SCALE = /`%cluster scale (\d+|N)`/;
/** Where the advice begins that a button takes the place of. */
const ADVICE = /[;,] (?:see )?\x60%(?:runs|cluster) .*$/s;

/**
 * @typedef {{open?: () => void, scale?: (cluster: string) => void,
 *   saveTrace?: (runId: string, file: string) => void}} Host what the page around can do
 * @typedef {{label: string, title: string, confirm?: string, request?: object, host?: "scale", shows?: "stacks"}} Remedy
 */

/**
 * What can be done about a run that waits.
 * @param {any} snapshot
 * @param {Host} host
 * @returns {Remedy[]}
 */
export function forWaiting(snapshot, host) {
  const found = [];
  if (snapshot.driver === "none" && snapshot.can.can_resume) found.push(resuming(snapshot, "Start its cluster and go on"));
  if (host.scale === undefined) return found;
  const [, other] = STOP.exec(snapshot.paused) ?? [];
  if (other !== undefined) {
    found.push({
      label: `Release slots of ${other}`,
      title: `End run ${other} at once: what its ranks hold is gone`,
      confirm: `Really end ${other}?`,
      request: { kind: "stop_run", run_id: other, how: "now" },
    });
  }
  if (SCALE.test(snapshot.paused)) {
    found.push({ label: "Add workers…", title: `Scale cluster ${clean(snapshot.cluster, 40)}`, host: "scale" });
  }
  return found;
}

/**
 * The sentence without the advice that buttons take the place of.
 * @param {string} text
 * @param {Remedy[]} found
 * @returns {string}
 */
export function withoutAdvice(text, found) {
  return found.some((each) => each.host || each.request) ? text.replace(ADVICE, "") : text;
}

/**
 * What can be done about a hang.
 * @param {any} hang
 * @returns {Remedy[]}
 */
export function forHang(hang) {
  if (!hang?.stacks_file) return [];
  return [{ label: "Show stacks", title: "Where each rank stands, with the cell's line", shows: "stacks" }];
}

/**
 * Going on with a run, from where it would.
 * @param {any} snapshot
 * @param {string} [label]
 * @returns {Remedy}
 */
export function resuming(snapshot, label) {
  const step = snapshot.checkpoint_step;
  const from = step === null || step === undefined ? "" : ` from step ${count(step)}`;
  return {
    label: label ?? `Resume${from}`,
    title: `Go on${from} with what is finished; a cluster is started if need be`,
    request: { kind: "resume_run", run_id: snapshot.run_id },
  };
}

/** The row of buttons of one card, and what pressing them has brought. */
export class Remedies {
  /**
   * @param {import("./client.js").Client} client
   * @param {Host} host
   */
  constructor(client, host) {
    this._client = client;
    this._host = host;
    this._said = h("span", { class: "ddl-muted ddl-said", role: "status" });
    this._row = h("span", { class: "ddl-remedies" });
    this._stacks = h("div", { class: "ddl-stacks", hidden: true });
    this.element = h("div", {}, this._row, this._said, this._stacks);
    this._key = "";
  }

  /**
   * @param {any} snapshot
   * @param {Remedy[]} found
   */
  update(snapshot, found) {
    this._snapshot = snapshot;
    const key = JSON.stringify([snapshot.run_id, found]);
    if (key === this._key) return;
    this._key = key;
    this._asked = {};
    show(this.element, found.length > 0);
    setText(this._said, "");
    show(this._stacks, false);
    this._row.replaceChildren(...found.map((each) => this._button(each)));
  }

  /** What it does is bound to the button: another sentence brings other buttons. */
  _button(remedy) {
    const button = h("button", { type: "button", class: "ddl-button ddl-small", text: remedy.label, title: remedy.title });
    let armedMs = -Infinity;
    button.addEventListener("click", () => {
      if (remedy.confirm !== undefined && Date.now() - armedMs > CONFIRM_MS) {
        armedMs = Date.now();
        setText(button, remedy.confirm);
        setTimeout(() => setText(button, remedy.label), CONFIRM_MS);
        return;
      }
      setText(button, remedy.label);
      if (remedy.host === "scale") this._host.scale(this._snapshot.cluster);
      else if (remedy.shows === "stacks") void this._toggleStacks(button, remedy);
      else void this._ask(button, remedy.request);
    });
    return button;
  }

  async _ask(button, request) {
    const key = this._key;
    setAttribute(button, "disabled", true);
    setText(this._said, "Asking…");
    const answer = await this._client.request(request);
    if (this._key !== key) return;
    setText(this._said, clean(answer.text, 300));
    setAttribute(button, "disabled", answer.kind === "done");
  }

  async _toggleStacks(button, remedy) {
    if (!this._stacks.hidden) {
      show(this._stacks, false);
      setText(button, remedy.label);
      setAttribute(button, "aria-expanded", "false");
      return;
    }
    const key = this._key;
    setText(this._said, "Reading…");
    const answer = await this._client.request({ kind: "get_stacks", run_id: this._snapshot.run_id });
    if (this._key !== key) return;
    const isThere = answer.kind === "stacks";
    setText(this._said, isThere ? saidOf(answer) : clean(answer.text, 300));
    if (!isThere) return;
    repeat(this._stacks, answer.ranks, () => h("section", {}, h("div", { class: "ddl-strong" }), h("pre", { tabindex: "0" })), drawStacks);
    show(this._stacks, true);
    setText(button, "Hide stacks");
    setAttribute(button, "aria-expanded", "true");
  }
}

function saidOf({ ranks, n_ranks: nRanks }) {
  return nRanks > ranks.length ? `${count(ranks.length)} of ${count(nRanks)} ranks` : "";
}

function drawStacks(section, { rank, is_blamed: isBlamed, text }) {
  const [head, body] = section.children;
  setText(head, `Rank ${rank}${isBlamed ? ": the others wait for it" : ""}`);
  setAttribute(body, "aria-label", `Stacks of rank ${rank}`);
  setText(body, text.split("\n").map((line) => line.match(/^ */)[0] + clean(line.trimStart(), 400)).join("\n"));
}
