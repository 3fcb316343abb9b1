// What `--profile` has recorded: the costliest operations of a step, and each rank's trace to download.

import { clean, h, repeat, setAttribute, setText, show } from "./dom.js";
import { bytes, number, percent } from "./format.js";

/** A table, and buttons where the page around can save files. */
export class Profile {
  /**
   * @param {import("./dom.js").Scope} scope
   * @param {import("./remedies.js").Host} host
   */
  constructor(scope, host) {
    this._host = host;
    this._runId = "";
    this._body = h("tbody");
    const names = ["operation", "share", "CPU, ms a step", "GPU, ms a step", "calls a step"];
    this._heads = names.map((text, at) => h("th", { scope: "col", text, class: at ? "ddl-right" : null }));
    this._traces = h("div", { class: "ddl-traces" });
    this.element = h(
      "div",
      {},
      h(
        "div",
        { class: "ddl-scroll", tabindex: "0", role: "region", "aria-label": "Operations" },
        h("table", { class: "ddl-table" }, h("thead", {}, h("tr", {}, ...this._heads)), this._body),
      ),
      this._traces,
    );
    scope.listen(this._traces, "click", (event) => this._save(event));
  }

  /** @param {any} snapshot */
  update(snapshot) {
    this._runId = snapshot.run_id;
    const rows = snapshot.operations ?? [];
    const onGpu = rows.some((row) => row.device_s > 0);
    show(this._heads[3], onGpu);
    repeat(this._body, rows, line, (element, row) => {
      const [name, share, cpu, gpu, calls] = element.children;
      setText(name, clean(row.name, 80));
      setText(share, percent(row.share));
      setText(cpu, millis(row.cpu_s));
      setText(gpu, millis(row.device_s));
      show(gpu, onGpu);
      setText(calls, number(row.n_calls));
    });
    const traces = snapshot.traces ?? [];
    show(this._traces, this._host.saveTrace !== undefined && traces.length > 0);
    repeat(this._traces, traces, () => h("button", { type: "button", class: "ddl-button" }), (button, trace) => {
      const who = snapshot.can.has_ranks ? `rank ${trace.rank}` : `${clean(snapshot.nouns.trial, 12)} ${trace.trial}`;
      setText(button, `Trace of ${who}`);
      setAttribute(button, "title", `${bytes(trace.size_bytes)}, for ui.perfetto.dev`);
      setAttribute(button, "data-file", trace.file);
    });
  }

  _save(event) {
    const file = event.target.closest("button")?.getAttribute("data-file");
    if (file) this._host.saveTrace?.(this._runId, file);
  }
}

function millis(seconds) {
  return number(Number((1000 * seconds).toPrecision(3)));
}

function line() {
  return h("tr", {}, h("td"), ...[1, 2, 3, 4].map(() => h("td", { class: "ddl-right" })));
}
