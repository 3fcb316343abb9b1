// Curves of any metric that a run has reported, over steps, time or epochs.

import { clean, h, setText, show } from "./dom.js";
import { fill, note, restartsOf, select, sentence } from "./fields.js";
import { count, score } from "./format.js";
import { inUnits, LensedChart } from "./lensed.js";

const ASK_MS = 2500;
/** A request is sent again after so long: a long record is read for a while. */
const AGAIN_MS = 5000;

/**
 * What curves of these metrics can go over.
 * @param {string[]} metrics
 */
export function axesOf(metrics) {
  return ["step", "time", ...(metrics.includes("epoch") ? ["epoch"] : [])];
}

/** How a choice among them reads. */
export function axisText(axis, step) {
  return axis === "step" ? step : axis === "time" ? "time since it began" : axis;
}

/** Any metric of the best and the last trials over the steps. */
export class MetricCurves {
  constructor(scope, client, choose) {
    this._client = client;
    this._which = select("Metric");
    this._axis = select("What curves go over");
    this._note = note();
    this._chart = new LensedChart(scope, { onPick: choose });
    this._tools = h("div", { class: "ddl-tools" }, this._which, this._axis, this._chart.smoothing, this._chart.wholeAxis);
    this._answer = null;
    this._asked = "";
    this._askedMs = -Infinity;
    this.element = h("div", {}, this._tools, this._chart.element, this._note);
    show(this._chart.element, false);
    for (const field of [this._which, this._axis]) scope.listen(field, "change", () => this._ask(true));
  }

  update(snapshot, columns, mask) {
    this._snapshot = snapshot;
    this._isChosen = mask === null ? () => true : ({ trial }) => mask[columns.rowOf(trial)] === 1;
    this._draw();
    this._ask(false);
  }

  _draw() {
    if (this._answer === null || this._answer.run_id !== this._snapshot.run_id) return;
    const { curves, note: told } = this._answer;
    const chosen = curves.filter(this._isChosen);
    show(this._chart.element, chosen.length > 0);
    if (chosen.length > 0) this._chart.update(curvesOf({ ...this._answer, curves: chosen }, this._snapshot));
    const some = chosen.length < curves.length ? `${count(chosen.length)} of ` : "";
    const drawn = `${some}${count(curves.length)} trials: the best ones and those that began last.`;
    setText(this._note, [curves.length > 0 && this._snapshot.can.has_objective ? drawn : "", sentence(clean(told, 300))].filter(Boolean).join(" "));
  }

  _axes() {
    return axesOf(this._answer?.metrics ?? []);
  }

  async _ask(isNow) {
    const snapshot = this._snapshot;
    fill(this._axis, this._axes(), (name) => axisText(name, snapshot.nouns.step));
    const axis = this._axis.value;
    const keyOf = () => `${snapshot.run_id} ${snapshot.seq} ${axis} ${this._which.value}`;
    const key = keyOf();
    const isOver = ["complete", "failed", "cancelled"].includes(snapshot.state);
    if (key === this._asked || (!isNow && !isOver && Date.now() - this._askedMs < ASK_MS)) return;
    [this._asked, this._askedMs] = [key, Date.now()];
    const answer = await this._client.request({ kind: "get_curves", run_id: snapshot.run_id, metric: this._which.value, axis }, AGAIN_MS);
    if (key !== this._asked) return;
    if (answer.kind !== "curves") {
      setText(this._note, clean(answer.text, 300));
      return;
    }
    fill(this._which, answer.metrics, (name) => name, answer.metric);
    this._asked = keyOf();
    const told = axis === "time" ? inUnits(answer.curves) : { xName: axis === "step" ? snapshot.nouns.step : axis };
    this._answer = { ...answer, ...told };
    fill(this._axis, this._axes(), (name) => axisText(name, snapshot.nouns.step));
    this._draw();
  }
}

/** A line for each trial; the best one stands out. */
export function curvesOf({ metric, curves, xName, restarts }, snapshot) {
  const best = snapshot.best?.number ?? -1;
  const ordered = [...curves].sort((a, b) => Number(a.trial === best) - Number(b.trial === best));
  return {
    title: clean(metric, 60),
    xName,
    // Seconds and epochs have fractions.
    whole: xName === snapshot.nouns.step,
    rules: xName === snapshot.nouns.step ? restartsOf(restarts) : [],
    write: score,
    series: ordered.map(({ trial, state, points }) => ({
      name: `${snapshot.nouns.trial} ${trial}`,
      color: trial === best ? "var(--ddl-green)" : state === "pruned" ? "var(--ddl-amber)" : "var(--ddl-blue)",
      points,
      trial,
      kind: "line",
      faint: trial !== best && curves.length > 1,
      unnamed: trial !== best && curves.length > 1,
    })),
  };
}
