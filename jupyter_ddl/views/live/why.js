// Why a search went as it did: sections below its curves, each drawn while it is open and in sight.

import { Chart } from "./chart.js";
import { clean, h, repeat, setAttribute, setText, show } from "./dom.js";
import { count, percent, score } from "./format.js";
import { Scatter } from "./scatter.js";
import { distributionOf, frontOf, gridOf, modeOf, resultRows, thinned } from "./spread.js";

const DRAW_MS = 1000;
const ASK_MS = 10_000;
/** A request is sent again after so long: a long record is read for a while. */
const AGAIN_MS = 5000;
const MAX_SLICES = 6;
const MAX_NAMES = 200;
const FEW = 3;

/** All sections of one run. */
export class Why {
  /**
   * @param {import("./dom.js").Scope} scope
   * @param {import("./client.js").Client} client
   * @param {(trial: number) => void} choose
   */
  constructor(scope, client, choose) {
    const make = (Kind, title) => new Part(scope, title, new Kind(scope, client, choose));
    this._parts = [
      make(Importance, "Importance"),
      make(Slices, "Slices"),
      make(Contour, "Contour"),
      make(Distribution, "Distribution"),
      make(TradeOff, "Trade-off"),
      make(MetricCurves, "Curves"),
    ];
    const field = h("input", { type: "number", min: "0", class: "ddl-input", placeholder: "Trial", "aria-label": "Number of a trial" });
    const open = h("button", { type: "button", class: "ddl-button", text: "Show" });
    const show = () => {
      if (field.value !== "") choose(Number(field.value));
    };
    scope.listen(open, "click", show);
    scope.listen(field, "keydown", (event) => {
      if (event.key === "Enter") show();
    });
    // No form, which a page of a run has none of.
    const tools = h("div", { class: "ddl-tools" }, field, open);
    // Lab runs the cell again on Shift+Enter, wherever the focus is.
    scope.listen(tools, "keydown", (event) => event.stopPropagation());
    this.element = h("div", { class: "ddl-why" }, ...this._parts.map((part) => part.element), tools);
  }

  /**
   * @param {any} snapshot
   * @param {import("./columns.js").Columns} columns
   */
  update(snapshot, columns) {
    show(this.element, snapshot.can.has_objective && columns.n > 0);
    for (const part of this._parts) part.update(snapshot, columns);
  }
}

/** A section that is closed at first. */
class Part {
  constructor(scope, title, content) {
    this._content = content;
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
    const key = `${snapshot.run_id} ${snapshot.state} ${columns.version}`;
    // What grows is not drawn four times a second.
    const isOld = Date.now() - this._drawnMs >= DRAW_MS || this._drawnRun !== snapshot.run_id;
    if (key === this._drawnKey || !isOld) return;
    [this._drawnKey, this._drawnMs, this._drawnRun] = [key, Date.now(), snapshot.run_id];
    this._content.update(snapshot, columns);
  }
}

/** Bars of shares, with the sentence that says why there are none. */
class Importance {
  constructor(scope, client) {
    this._client = client;
    this._asked = "";
    this._askedMs = -Infinity;
    this._note = h("p", { class: "ddl-muted ddl-note", role: "status" });
    this._rows = h("tbody");
    this._table = h("table", { class: "ddl-table ddl-shares", "aria-label": "Importance of parameters" }, this._rows);
    this.element = h("div", {}, this._table, this._note);
    show(this._table, false);
  }

  async update(snapshot) {
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
  constructor(scope, client, choose) {
    this._scope = scope;
    this._choose = choose;
    this._which = select("Which parameter");
    this._note = note();
    this._panels = h("div", { class: "ddl-slices" });
    this._scatters = [];
    this.element = h("div", {}, h("div", { class: "ddl-tools" }, this._which), this._panels, this._note);
    scope.listen(this._which, "change", () => this._draw());
  }

  update(snapshot, columns) {
    this._news = [snapshot, columns];
    fill(this._which, ["", ...columns.params.keys()], (name) => (name === "" ? "all parameters" : name));
    this._draw();
  }

  _draw() {
    const [snapshot, columns] = this._news;
    const rows = resultRows(columns);
    const names = [...columns.params.keys()];
    const wanted = this._which.value === "" ? names.slice(0, MAX_SLICES) : [this._which.value];
    const shown = rows.length === 0 ? [] : wanted.filter((name) => columns.params.has(name));
    while (this._scatters.length > shown.length) this._scatters.pop().destroy();
    while (this._scatters.length < shown.length) {
      const scatter = new Scatter(this._scope, this._choose);
      this._scatters.push(scatter);
      this._panels.append(scatter.element);
    }
    const kept = thinned(rows);
    const value = columns.own("value");
    shown.forEach((name, i) => this._scatters[i].update(sliceOf(name, kept, value, snapshot, columns)));
    const texts = [];
    if (rows.length === 0) texts.push("No trial has a value yet.");
    else if (names.length === 0) texts.push("The trials have no parameters.");
    if (kept.length < rows.length) texts.push(`${count(kept.length)} of ${count(rows.length)} trials.`);
    if (shown.length > 0 && this._which.value === "" && names.length > MAX_SLICES) {
      texts.push(`${count(names.length - MAX_SLICES)} more parameters: choose one above.`);
    }
    setText(this._note, texts.join(" "));
  }
}

function sliceOf(name, rows, value, snapshot, columns) {
  const column = columns.params.get(name);
  return {
    xName: name,
    yName: snapshot.metric ?? "value",
    xs: rows.map((row) => column.at(row)),
    ys: rows.map((row) => value.at(row)),
    states: rows.map((row) => columns.state(row)),
    numbers: rows.map((row) => columns.number(row)),
    best: snapshot.best?.number ?? -1,
  };
}

/** The mean objective over two parameters, as a table with tinted cells. */
class Contour {
  constructor(scope) {
    this._x = select("Parameter of the columns");
    this._y = select("Parameter of the rows");
    this._note = note();
    this._head = h("tr");
    this._body = h("tbody");
    this._table = h("table", { class: "ddl-grid-table" }, h("caption"), h("thead", {}, this._head), this._body);
    this._region = h("div", { class: "ddl-scroll", tabindex: "0", role: "region", "aria-label": "Contour" }, this._table);
    this.element = h("div", {}, h("div", { class: "ddl-tools" }, this._x, this._y), this._region, this._note);
    for (const field of [this._x, this._y]) scope.listen(field, "change", () => this._draw());
  }

  update(snapshot, columns) {
    this._news = [snapshot, columns];
    const names = [...columns.params.keys()];
    fill(this._x, names, (name) => name);
    fill(this._y, names, (name) => name, names[1]);
    this._draw();
  }

  _draw() {
    const [snapshot, columns] = this._news;
    const rows = resultRows(columns);
    const [x, y] = [columns.params.get(this._x.value), columns.params.get(this._y.value)];
    const reason = rows.length === 0 ? "No trial has a value yet." : columns.params.size < 2 ? "A contour needs two parameters." : x === y ? "Choose two different parameters." : "";
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
      repeat(line, [null, ...cells], (() => h("td")), () => {});
      if (line.firstChild.tagName !== "TH") line.firstChild.replaceWith(h("th", { scope: "row" }));
      setText(line.firstChild, clean(found.y[at], 24));
      cells.forEach((cell, i) => {
        const place = line.children[i + 1];
        setText(place, cell.n === 0 ? "–" : `${score(cell.mean)} (${count(cell.n)})`);
        setAttribute(place, "class", cell.n < FEW ? "ddl-muted" : null);
        place.style.background = cell.n === 0 ? "" : `color-mix(in srgb, var(--ddl-green) ${Math.round(10 + 50 * goodness(cell.mean))}%, transparent)`;
      });
    });
    const missing = found.nUnknown > 0 ? ` ${count(found.nUnknown)} trials have not both of them.` : "";
    setText(this._note, `In brackets: trials. A stronger tint is better.${missing}`);
  }
}

/** The share of trials that are at most so good. */
class Distribution {
  constructor(scope) {
    this._note = note();
    this._chart = new Chart(scope);
    this.element = h("div", {}, this._chart.element, this._note);
  }

  update(snapshot, columns) {
    const rows = resultRows(columns).filter((row) => columns.state(row) === "complete");
    const value = columns.own("value");
    const metric = clean(snapshot.metric ?? "value", 60);
    const points = distributionOf(rows.map((row) => value.at(row)));
    show(this._chart.element, points.length > 0);
    if (points.length === 0) {
      setText(this._note, "No trial is complete yet.");
      return;
    }
    this._chart.update({
      title: `Trials up to a ${metric}`,
      xName: metric,
      whole: false,
      write: (share) => (share === null ? "–" : percent(share)),
      series: [{ name: "share", color: "var(--ddl-blue)", kind: "step", points }],
    });
    const middle = points.find(([, share]) => share >= 0.5)[0];
    setText(this._note, `${count(rows.length)} complete trials: half of them have at most ${score(middle)}.`);
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

  update(snapshot, columns) {
    this._news = [snapshot, columns];
    const names = [...columns.metrics("last").keys()].slice(0, MAX_NAMES);
    const own = names.includes(snapshot.metric) ? snapshot.metric : names[0];
    const [x, y] = this._fields;
    fill(x.metric, names, (name) => name, own);
    fill(y.metric, names, (name) => name, names.find((name) => name !== own));
    this._draw();
  }

  _draw() {
    const [snapshot, columns] = this._news;
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
    const front = frontOf(allX, allY, { x: this._modeOf("x"), y: this._modeOf("y") });
    // The front is never thinned out.
    const kept = [...new Set([...thinned(rows.map((_, i) => i)), ...front])];
    const at = new Map(kept.map((i, k) => [i, k]));
    this._scatter.update({
      xName: this._fields[0].metric.value,
      yName: this._fields[1].metric.value,
      xs: kept.map((i) => allX[i]),
      ys: kept.map((i) => allY[i]),
      states: kept.map((i) => columns.state(rows[i])),
      numbers: kept.map((i) => columns.number(rows[i])),
      best: snapshot.best?.number ?? -1,
      front: front.map((i) => at.get(i)),
    });
    const numbers = front.slice(0, 12).map((i) => columns.number(rows[i])).join(", ");
    const some = kept.length < rows.length ? ` ${count(kept.length)} of ${count(rows.length)} are drawn.` : "";
    setText(this._note, `On the front: ${count(front.length)} of ${count(rows.length)} trials (${numbers}${front.length > 12 ? ", …" : ""}).${some}`);
  }
}

/** Any metric of the best and the last trials over the steps. */
class MetricCurves {
  constructor(scope, client) {
    this._client = client;
    this._which = select("Metric");
    this._note = note();
    this._chart = new Chart(scope);
    this._asked = "";
    this._askedMs = -Infinity;
    this.element = h("div", {}, h("div", { class: "ddl-tools" }, this._which), this._chart.element, this._note);
    show(this._chart.element, false);
    scope.listen(this._which, "change", () => this._ask(true));
  }

  update(snapshot) {
    this._snapshot = snapshot;
    this._ask(false);
  }

  async _ask(isNow) {
    const snapshot = this._snapshot;
    const key = `${snapshot.run_id} ${snapshot.seq} ${this._which.value}`;
    const isOver = ["complete", "failed", "cancelled"].includes(snapshot.state);
    if (key === this._asked || (!isNow && !isOver && Date.now() - this._askedMs < ASK_MS / 4)) return;
    [this._asked, this._askedMs] = [key, Date.now()];
    const answer = await this._client.request({ kind: "get_curves", run_id: snapshot.run_id, metric: this._which.value }, AGAIN_MS);
    if (key !== this._asked) return;
    if (answer.kind !== "curves") {
      setText(this._note, clean(answer.text, 300));
      return;
    }
    fill(this._which, answer.metrics, (name) => name, answer.metric);
    this._asked = `${snapshot.run_id} ${snapshot.seq} ${this._which.value}`;
    show(this._chart.element, answer.curves.length > 0);
    if (answer.curves.length > 0) this._chart.update(curvesOf(answer, snapshot));
    const drawn = `${count(answer.curves.length)} trials: the best ones and those that began last.`;
    setText(this._note, [answer.curves.length > 0 ? drawn : "", sentence(clean(answer.note, 300))].filter(Boolean).join(" "));
  }
}

/** A line for each trial; the best one stands out. */
export function curvesOf({ metric, curves }, snapshot) {
  const best = snapshot.best?.number ?? -1;
  const ordered = [...curves].sort((a, b) => Number(a.trial === best) - Number(b.trial === best));
  return {
    title: clean(metric, 60),
    xName: snapshot.nouns.step,
    write: score,
    series: ordered.map(({ trial, state, points }) => ({
      name: `${snapshot.nouns.trial} ${trial}`,
      color: trial === best ? "var(--ddl-green)" : state === "pruned" ? "var(--ddl-amber)" : "var(--ddl-blue)",
      points,
      kind: "line",
      faint: trial !== best && curves.length > 1,
      unnamed: trial !== best && curves.length > 1,
    })),
  };
}

function select(label) {
  return h("select", { class: "ddl-input", "aria-label": label });
}

function note() {
  return h("p", { class: "ddl-muted ddl-note", role: "status" });
}

/** Options of a field; what is chosen stays so. */
function fill(field, names, textOf, first = names[0]) {
  const key = JSON.stringify(names);
  if (field.dataset.key === key) return;
  const chosen = field.dataset.key === undefined ? first : field.value;
  field.dataset.key = key;
  repeat(field, names, () => h("option"), (option, name) => {
    option.value = name;
    setText(option, clean(textOf(name), 60));
  });
  field.value = names.includes(chosen) ? chosen : (first ?? "");
  show(field, names.length > 1);
}

function sentence(text) {
  return text === "" ? "" : `${text[0].toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;
}
