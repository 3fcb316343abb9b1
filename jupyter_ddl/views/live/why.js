// Why a search went as it did: sections below its curves, each drawn while it is open and in sight.

import { Chart } from "./chart.js";
import { clean, h, repeat, setAttribute, setText, show } from "./dom.js";
import { fill, note, select, sentence } from "./fields.js";
import { count, percent, score } from "./format.js";
import { MetricCurves } from "./metric_curves.js";
import { Scatter } from "./scatter.js";
import { distributionOf, frontOf, gridOf, modeOf, resultRows, thinned } from "./spread.js";

const DRAW_MS = 1000;
const ASK_MS = 10_000;
/** A request is sent again after so long: a long record is read for a while. */
const AGAIN_MS = 5000;
const MAX_SLICES = 6;
const FEW = 3;

/** All sections of one run. */
export class Why {
  /**
   * @param {import("./dom.js").Scope} scope
   * @param {import("./client.js").Client} client
   * @param {(trial: number) => void} choose
   * @param {import("./selection.js").Selection} selection
   */
  constructor(scope, client, choose, selection) {
    const make = (Kind, title) => new Part(scope, title, new Kind(scope, client, choose, selection), selection);
    this._parts = [
      make(Importance, "Importance"),
      make(Slices, "Slices"),
      make(Contour, "Contour"),
      make(Distribution, "Distribution"),
      make(TradeOff, "Trade-off"),
      make(MetricCurves, "Curves"),
    ];
    this.element = h("div", { class: "ddl-why" }, ...this._parts.map((part) => part.element));
  }

  /**
   * @param {any} snapshot
   * @param {import("./columns.js").Columns} columns
   */
  update(snapshot, columns) {
    const { has_objective: hasObjective, has_ranks: hasRanks } = snapshot.can;
    show(this.element, hasObjective ? columns.n > 0 : hasRanks);
    for (const part of this._parts) {
      show(part.element, hasObjective || part.content instanceof MetricCurves);
      part.update(snapshot, columns);
    }
  }
}

/** A section that is closed at first; it is told of all trials, and by `mask` which of them are chosen. */
class Part {
  constructor(scope, title, content, selection) {
    this.content = content;
    this._selection = selection;
    this._news = null;
    this._drawnKey = "";
    this._drawnMs = -Infinity;
    this._isSeen = typeof IntersectionObserver === "undefined";
    this.element = h(
      "details",
      { class: "ddl-section" },
      h("summary", {}, h("span", { class: "ddl-section-title", text: title })),
      content.element,
    );
    scope.listen(this.element, "toggle", () => this._draw());
    if (this._isSeen) return;
    const observer = new IntersectionObserver((entries) => {
      this._isSeen = entries.some((entry) => entry.isIntersecting);
      this._draw();
    });
    observer.observe(this.element);
    scope.add(() => observer.disconnect());
  }

  update(snapshot, columns) {
    this._news = [snapshot, columns];
    this._draw();
  }

  _draw() {
    if (this._news === null || !this.element.open || !this._isSeen) return;
    const [snapshot, columns] = this._news;
    const pulled = `${snapshot.run_id} ${this._selection.version}`;
    const key = `${pulled} ${snapshot.state} ${columns.version}`;
    // What grows is not drawn four times a second; a brush is answered at once.
    const isOld = Date.now() - this._drawnMs >= DRAW_MS || this._pulled !== pulled;
    if (key === this._drawnKey || !isOld) return;
    [this._drawnKey, this._drawnMs, this._pulled] = [key, Date.now(), pulled];
    this.content.update(snapshot, columns, this._selection.mask(columns));
  }
}

/** Bars of shares, with the sentence that says why there are none. */
class Importance {
  constructor(scope, client) {
    this._client = client;
    this._asked = "";
    this._askedMs = -Infinity;
    this._note = note();
    this._brushed = h("p", { class: "ddl-muted ddl-note", text: "All trials are weighed, whichever are chosen." });
    this._rows = h("tbody");
    this._table = h("table", { class: "ddl-table ddl-shares", "aria-label": "Importance of parameters" }, this._rows);
    this.element = h("div", {}, this._table, this._note, this._brushed);
    show(this._table, false);
  }

  async update(snapshot, columns, mask) {
    show(this._brushed, mask !== null);
    const key = `${snapshot.run_id} ${snapshot.counts.complete}`;
    const isNew = !this._asked.startsWith(`${snapshot.run_id} `);
    if (key === this._asked || (!isNew && Date.now() - this._askedMs < ASK_MS)) return;
    [this._asked, this._askedMs] = [key, Date.now()];
    if (isNew) setText(this._note, "Weighing the parameters…");
    const answer = await this._client.request({ kind: "get_importance", run_id: snapshot.run_id }, AGAIN_MS);
    if (key !== this._asked) return;
    if (answer.kind === "importance") this._draw(answer, snapshot.metric);
    else {
      setText(this._note, clean(answer.text, 300));
      this._asked = ""; // asked again when there is news
    }
  }

  _draw({ shares, n_trials: nTrials, note }, metric) {
    show(this._table, shares.length > 0);
    repeat(
      this._rows,
      shares,
      () => h("tr", {}, h("th", { scope: "row" }), h("td", {}, h("div", { class: "ddl-share" })), h("td", { class: "ddl-right" })),
      (line, [name, share]) => {
        const [head, bar, text] = line.children;
        setText(head, clean(name, 40));
        setAttribute(head, "title", clean(name, 200));
        bar.firstChild.style.width = `${(100 * share).toFixed(1)}%`;
        setText(text, percent(share));
      },
    );
    const told = `What sets the best tenth of ${count(nTrials)} complete trials apart, by ${clean(metric ?? "value", 40)} (PED-ANOVA).`;
    setText(this._note, [shares.length > 0 ? told : "", sentence(clean(note, 400))].filter(Boolean).join(" "));
  }
}

/** The objective against each parameter. */
class Slices {
  constructor(scope, client, choose, selection) {
    this._scope = scope;
    this._choose = choose;
    this._selection = selection;
    this._which = select("Which parameter");
    this._note = note();
    this._panels = h("div", { class: "ddl-slices" });
    this._scatters = [];
    this.element = h("div", {}, h("div", { class: "ddl-tools" }, this._which), this._panels, this._note);
    scope.listen(this._which, "change", () => this._draw());
  }

  update(snapshot, columns, mask) {
    this._news = [snapshot, columns, mask];
    fill(this._which, ["", ...columns.params.keys()], (name) => (name === "" ? "all parameters" : name));
    this._draw();
  }

  _draw() {
    const [snapshot, columns, mask] = this._news;
    const rows = resultRows(columns);
    const names = [...columns.params.keys()];
    const wanted = this._which.value === "" ? names.slice(0, MAX_SLICES) : [this._which.value];
    const shown = rows.length === 0 ? [] : wanted.filter((name) => columns.params.has(name));
    while (this._scatters.length > shown.length) this._scatters.pop().destroy();
    while (this._scatters.length < shown.length) {
      const scatter = new Scatter(this._scope, this._choose, (name, brush) => this._selection.brush(name, brush));
      this._scatters.push(scatter);
      this._panels.append(scatter.element);
    }
    const kept = thinned(rows);
    const value = columns.own("value");
    shown.forEach((name, i) => this._scatters[i].update(sliceOf(name, kept, value, snapshot, columns, mask)));
    const texts = [];
    if (rows.length === 0) texts.push("No trial has a value yet.");
    else if (names.length === 0) texts.push("The trials have no parameters.");
    if (kept.length < rows.length) texts.push(`${count(kept.length)} of ${count(rows.length)} trials.`);
    if (mask !== null) texts.push(chosenText(rows, mask));
    if (shown.length > 0 && this._which.value === "" && names.length > MAX_SLICES) {
      texts.push(`${count(names.length - MAX_SLICES)} more parameters: choose one above.`);
    }
    setText(this._note, texts.join(" "));
  }
}

function sliceOf(name, rows, value, snapshot, columns, mask) {
  const column = columns.params.get(name);
  return {
    xName: name,
    yName: snapshot.metric ?? "value",
    xs: rows.map((row) => column.at(row)),
    ys: rows.map((row) => value.at(row)),
    states: rows.map((row) => shownState(columns, row, mask)),
    numbers: rows.map((row) => columns.number(row)),
    best: snapshot.best?.number ?? -1,
  };
}

/** As it is drawn: what is not chosen stands behind the others. */
function shownState(columns, row, mask) {
  return mask !== null && mask[row] === 0 ? "out" : columns.state(row);
}

function chosenText(rows, mask) {
  return `Chosen: ${count(rows.reduce((n, row) => n + mask[row], 0))} of ${count(rows.length)} trials.`;
}

/** The mean objective over two parameters, as a table with tinted cells; each opens its best trial. */
class Contour {
  constructor(scope, client, choose) {
    this._choose = choose;
    this._x = select("Parameter of the columns");
    this._y = select("Parameter of the rows");
    this._note = note();
    this._head = h("tr");
    this._body = h("tbody");
    this._table = h("table", { class: "ddl-grid-table" }, h("caption"), h("thead", {}, this._head), this._body);
    this._region = h("div", { class: "ddl-scroll", tabindex: "0", role: "region", "aria-label": "Contour" }, this._table);
    this.element = h("div", {}, h("div", { class: "ddl-tools" }, this._x, this._y), this._region, this._note);
    for (const field of [this._x, this._y]) scope.listen(field, "change", () => this._draw());
    scope.listen(this._body, "click", (event) => {
      const { trial } = event.target.closest("button")?.dataset ?? {};
      if (trial !== undefined) this._choose(Number(trial));
    });
  }

  update(snapshot, columns, mask) {
    this._news = [snapshot, columns, mask];
    const names = [...columns.params.keys()];
    fill(this._x, names, (name) => name);
    fill(this._y, names, (name) => name, names[1]);
    this._draw();
  }

  _draw() {
    const [snapshot, columns, mask] = this._news;
    const rows = resultRows(columns, mask);
    const [x, y] = [columns.params.get(this._x.value), columns.params.get(this._y.value)];
    const reason = rows.length === 0 ? noneText(mask) : columns.params.size < 2 ? "A contour needs two parameters." : x === y ? "Choose two different parameters." : "";
    show(this._region, reason === "");
    setText(this._note, reason);
    if (reason !== "") return;
    const value = columns.own("value");
    const metric = clean(snapshot.metric ?? "value", 40);
    const found = gridOf(rows.map((row) => x.at(row)), rows.map((row) => y.at(row)), rows.map((row) => value.at(row)));
    const means = found.cells.flat().filter((cell) => cell.n > 0).map((cell) => cell.mean);
    const [low, high] = [Math.min(...means), Math.max(...means)];
    const goodness = (mean) => {
      const share = high > low ? mean / (high - low) - low / (high - low) : 1;
      return snapshot.mode === "min" ? 1 - share : share;
    };
    setText(this._table.firstChild, `Mean ${metric}; columns: ${clean(this._x.value, 40)}, rows: ${clean(this._y.value, 40)}`);
    repeat(this._head, ["", ...found.x], () => h("th", { scope: "col" }), (cell, name) => setText(cell, clean(name, 24)));
    repeat(this._body, found.cells, () => h("tr"), (line, cells, at) => {
      repeat(line, [null, ...cells], () => h("td", {}, h("button", { type: "button", class: "ddl-cell" })), () => {});
      if (line.firstChild.tagName !== "TH") line.firstChild.replaceWith(h("th", { scope: "row" }));
      setText(line.firstChild, clean(found.y[at], 24));
      cells.forEach((cell, i) => {
        const place = line.children[i + 1];
        const open = place.firstChild;
        const best = bestOf(cell.rows.map((k) => rows[k]), value, snapshot.mode);
        setText(open, cell.n === 0 ? "–" : `${score(cell.mean)} (${count(cell.n)})`);
        open.disabled = cell.n === 0;
        setAttribute(open, "data-trial", best === null ? null : columns.number(best));
        setAttribute(open, "title", best === null ? null : `Its best: trial ${columns.number(best)}, ${score(value.at(best))}`);
        setAttribute(place, "class", cell.n < FEW ? "ddl-muted" : null);
        place.style.background = cell.n === 0 ? "" : `color-mix(in srgb, var(--ddl-green) ${Math.round(10 + 50 * goodness(cell.mean))}%, transparent)`;
      });
    });
    const missing = found.nUnknown > 0 ? ` ${count(found.nUnknown)} trials have not both of them.` : "";
    const chosen = mask === null ? "" : ` ${chosenText(resultRows(columns), mask)}`;
    setText(this._note, `In brackets: trials. A stronger tint is better.${missing}${chosen}`);
  }
}

/** The row with the best value; null: there is none. */
function bestOf(rows, value, mode) {
  const sign = mode === "min" ? -1 : 1;
  return rows.reduce((best, row) => (best === null || sign * value.at(row) > sign * value.at(best) ? row : best), null);
}

function noneText(mask) {
  return mask === null ? "No trial has a value yet." : "No chosen trial has a value.";
}

/** The share of trials that are at most so good; a part of the values is a brush on the objective. */
class Distribution {
  constructor(scope, client, choose, selection) {
    this._note = note();
    const onZoom = (name, range) => selection.brush("", range === null ? null : { low: range[0], high: range[1] });
    this._chart = new Chart(scope, { onZoom, onPick: (at) => choose(this._trials.get(at)) });
    this._trials = new Map(); // by their value
    this.element = h("div", {}, this._chart.element, this._note);
  }

  update(snapshot, columns, mask) {
    const all = resultRows(columns).filter((row) => columns.state(row) === "complete");
    const rows = mask === null ? all : all.filter((row) => mask[row] === 1);
    const value = columns.own("value");
    const metric = clean(snapshot.metric ?? "value", 60);
    const [points, behind] = [rows, all].map((some) => distributionOf(some.map((row) => value.at(row))));
    show(this._chart.element, behind.length > 0);
    if (behind.length === 0) {
      setText(this._note, "No trial is complete yet.");
      return;
    }
    this._trials = new Map(rows.map((row) => [value.at(row), columns.number(row)]));
    this._chart.update({
      title: `Trials up to a ${metric}`,
      xName: metric,
      whole: false,
      write: (share) => (share === null ? "–" : percent(share)),
      series: [
        ...(mask === null ? [] : [{ name: "all", color: "var(--ddl-dim)", kind: "step", points: behind, faint: true }]),
        { name: mask === null ? "share" : "chosen", color: "var(--ddl-blue)", kind: "step", points, isTrials: true },
      ],
    });
    const middle = points.find(([, share]) => share >= 0.5)?.[0];
    const half = middle === undefined ? "" : `: half of them have at most ${score(middle)}`;
    setText(this._note, `${mask === null ? "" : `${count(rows.length)} of `}${count(all.length)} complete trials${half}.`);
  }
}

/** Two metrics against each other, and the trials that none is better than in both. */
class TradeOff {
  constructor(scope, client, choose) {
    this._scatter = new Scatter(scope, choose);
    this._note = note();
    this._fields = ["x", "y"].map((axis) => {
      const metric = select(axis === "x" ? "Horizontal metric" : "Vertical metric");
      const mode = h("button", { type: "button", class: "ddl-toggle" });
      scope.listen(metric, "change", () => {
        this._modes.delete(axis);
        this._draw();
      });
      scope.listen(mode, "click", () => {
        this._modes.set(axis, this._modeOf(axis) === "max" ? "min" : "max");
        this._draw();
      });
      return { axis, metric, mode };
    });
    this._modes = new Map();
    const tools = this._fields.flatMap(({ metric, mode }) => [metric, mode]);
    this.element = h("div", {}, h("div", { class: "ddl-tools" }, ...tools), this._scatter.element, this._note);
  }

  _modeOf(axis) {
    const { metric } = this._fields.find((field) => field.axis === axis);
    return this._modes.get(axis) ?? modeOf(metric.value, this._news[0]);
  }

  update(snapshot, columns, mask) {
    this._news = [snapshot, columns, mask];
    const names = [...columns.metrics("last").keys()];
    const own = names.includes(snapshot.metric) ? snapshot.metric : names[0];
    const [x, y] = this._fields;
    fill(x.metric, names, (name) => name, own);
    fill(y.metric, names, (name) => name, names.find((name) => name !== own));
    this._draw();
  }

  _draw() {
    const [snapshot, columns, mask] = this._news;
    const [x, y] = this._fields.map(({ metric }) => columns.metrics("last").get(metric.value));
    for (const { axis, mode } of this._fields) setText(mode, this._modeOf(axis) === "max" ? "more is better" : "less is better");
    const reason = columns.metrics("last").size < 2 ? "A trade-off needs two metrics in report()." : x === undefined || x === y ? "Choose two different metrics." : "";
    const rows = reason === "" ? resultRows(columns).filter((row) => x.at(row) !== undefined && y.at(row) !== undefined) : [];
    show(this._scatter.element, rows.length > 0);
    if (rows.length === 0) {
      setText(this._note, reason || "No trial has reported both of them.");
      return;
    }
    const [allX, allY] = [rows.map((row) => x.at(row)), rows.map((row) => y.at(row))];
    // The front is that of the chosen trials.
    const isIn = (i) => mask === null || mask[rows[i]] === 1;
    const chosen = (values) => values.map((value, i) => (isIn(i) ? value : undefined));
    const front = frontOf(chosen(allX), chosen(allY), { x: this._modeOf("x"), y: this._modeOf("y") });
    // The front is never thinned out.
    const kept = [...new Set([...thinned(rows.map((_, i) => i)), ...front])];
    const at = new Map(kept.map((i, k) => [i, k]));
    this._scatter.update({
      xName: this._fields[0].metric.value,
      yName: this._fields[1].metric.value,
      xs: kept.map((i) => allX[i]),
      ys: kept.map((i) => allY[i]),
      states: kept.map((i) => shownState(columns, rows[i], mask)),
      numbers: kept.map((i) => columns.number(rows[i])),
      best: snapshot.best?.number ?? -1,
      front: front.map((i) => at.get(i)),
    });
    const numbers = front.slice(0, 12).map((i) => columns.number(rows[i])).join(", ");
    const more = columns.nMetrics - columns.metrics("last").size;
    const beside = more > 0 ? ` ${count(more)} more metrics can't be chosen; each trial's view has them.` : "";
    const some = kept.length < rows.length ? ` ${count(kept.length)} of ${count(rows.length)} are drawn.` : "";
    const told = numbers === "" ? "" : ` (${numbers}${front.length > 12 ? ", …" : ""})`;
    const nChosen = rows.filter((_, i) => isIn(i)).length;
    setText(this._note, `On the front: ${count(front.length)} of ${count(nChosen)} trials${told}.${some}${beside}${mask === null ? "" : ` ${chosenText(rows, mask)}`}`);
  }
}
