// Curves of several runs in one chart: of each its best trial, or the training that it is.

import { clean, h, Scope, setText, show } from "./dom.js";
import { fill, note, restartsOf, select, sentence } from "./fields.js";
import { score } from "./format.js";
import { inUnits, LensedChart } from "./lensed.js";
import { axesOf, axisText } from "./metric_curves.js";

/** In the order of the dots above the table (views/compare.py). */
const COLORS = ["blue", "orange", "green", "red", "violet", "grey"].map((name) => `var(--ddl-${name})`);
const AGAIN_MS = 5000;
const STEP = "step";
const NOTHING = "None of these runs has reported anything.";

/**
 * Show them in an element; what goes on is asked again while it is in sight.
 * @param {HTMLElement} element
 * @param {(message: object) => Promise<any>} ask the answer to a request, which may be a refusal
 * @param {{id: string, name: () => string}[]} runs
 * @returns {{destroy: () => void}}
 */
export function mountCompared(element, ask, runs) {
  const scope = new Scope();
  const view = new Compared(scope, ask, runs);
  element.append(view.element);
  void view.ask();
  scope.every(() => view.isGoingOn && view.element.offsetParent !== null && void view.ask(), AGAIN_MS);
  return {
    destroy: () => {
      scope.close();
      view.element.remove();
    },
  };
}

class Compared {
  constructor(scope, ask, runs) {
    this._scope = scope;
    this._send = ask;
    this._runs = runs;
    this._turn = 0;
    /** Whether one of the curves still grows. */
    this.isGoingOn = false;
    this._which = select("Metric");
    this._axis = select("What curves go over");
    this._chart = new LensedChart(scope);
    this._note = note();
    this._tools = h("div", { class: "ddl-tools" }, this._which, this._axis, this._chart.smoothing, this._chart.wholeAxis);
    this.element = h("div", { class: "ddl-live ddl-compared", role: "group", "aria-label": "Curves compared" }, this._tools, this._chart.element, this._note);
    for (const part of [this._tools, this._chart.element]) show(part, false);
    for (const field of [this._which, this._axis]) scope.listen(field, "change", () => void this.ask());
  }

  async ask() {
    const turn = ++this._turn;
    const isOld = () => turn !== this._turn || this._scope.closed;
    const axis = this._axis.value || STEP;
    const wanted = this._which.value;
    let answers = await Promise.all(this._runs.map((run) => this._curvesOf(run, wanted, axis)));
    if (isOld()) return;
    const metrics = sharedFirst(answers.map((answer) => answer.metrics));
    const metric = metrics.includes(wanted) ? wanted : (metrics[0] ?? "");
    // What comes without a name is each run's own first one.
    const again = answers.map((answer, i) =>
      answer.metric === metric || !answer.metrics.includes(metric) ? answer : this._curvesOf(this._runs[i], metric, axis),
    );
    answers = await Promise.all(again);
    if (isOld()) return;
    fill(this._which, metrics, (name) => name, metric);
    this._which.value = metric;
    fill(this._axis, axesOf(metrics), (name) => axisText(name, STEP));
    this._draw(answers, metric, axis);
  }

  async _curvesOf(run, metric, axis) {
    const answer = await this._send({ kind: "get_curves", run_id: run.id, metric, axis, is_best: true });
    return answer.kind === "curves" ? answer : { metric, metrics: [], curves: [], note: String(answer.text) };
  }

  _draw(answers, metric, axis) {
    const names = this._runs.map((run) => clean(run.name(), 40));
    const told = [];
    let curves = [];
    answers.forEach(({ metric: own, curves: found, metrics, note: why }, i) => {
      const [curve] = own === metric ? found : [];
      if (curve !== undefined) curves.push({ ...curve, name: names[i], color: COLORS[i % COLORS.length] });
      else if (metrics.length > 0) told.push(`${names[i]} has not reported ${clean(metric, 60)}.`);
      else told.push(`${names[i]}: ${sentence(clean(why, 200))}`);
    });
    this.isGoingOn = answers.some((answer) => answer.curves.some(({ state }) => state === "running"));
    let xName = axis;
    if (axis === "time") ({ curves, xName } = inUnits(curves));
    for (const part of [this._tools, this._chart.element]) show(part, curves.length > 0);
    setText(this._note, curves.length > 0 ? told.join(" ") : NOTHING);
    if (curves.length === 0) return;
    this._chart.update({
      title: clean(metric, 60),
      xName,
      whole: axis === STEP,
      rules: axis === STEP ? answers.flatMap(({ restarts }, i) => restartsOf(restarts, `${names[i]}: `)) : [],
      write: score,
      series: curves.map(({ name, color, points, trial }) => ({ name, color, points, trial, kind: "line" })),
    });
  }
}

/**
 * All names, those first that most lists have.
 * @param {string[][]} lists
 * @returns {string[]}
 */
export function sharedFirst(lists) {
  const counts = new Map();
  for (const name of lists.flat()) counts.set(name, (counts.get(name) ?? 0) + 1);
  return [...counts.keys()].sort((a, b) => counts.get(b) - counts.get(a));
}
