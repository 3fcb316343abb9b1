// CPU and GPU strips: one per worker and one per GPU, with the last minutes and the value now.

import { clean, h, repeat, s, setAttribute, setText, show } from "./dom.js";
import { bytes, count, held, number, percent } from "./format.js";

const WIDTH = 120;
const HEIGHT = 20;
const N_WORKERS = 32;
const N_PROCESSES = 8;

/** What telemetry tells of the machines. */
export class Machines {
  constructor() {
    this._strips = h("div", { class: "ddl-strips", tabindex: "0", role: "region", "aria-label": "Machines" });
    this._notes = h("ul", { class: "ddl-notices", "aria-label": "Verdicts on the machines" });
    this._state = h("div", { class: "ddl-muted ddl-small-text" });
    this.element = h("div", {}, this._strips, this._notes, this._state);
  }

  /** @param {any} view a `TelemetryView`, or null */
  update(view) {
    const telemetry = view?.telemetry ?? null;
    const strips = telemetry === null ? [] : stripsOf(telemetry);
    repeat(this._strips, strips, strip, updateStrip);
    const verdicts = telemetry?.verdicts ?? [];
    repeat(this._notes, verdicts, () => h("li"), (item, text) => setText(item, clean(text, 200)));
    show(this._notes, verdicts.length > 0);
    const text = telemetry === null ? "n/a: no telemetry yet" : footOf(telemetry);
    setText(this._state, text);
    show(this._state, text !== "");
  }

  /**
   * One line for the section's heading.
   * @param {any} view
   * @returns {string}
   */
  summary(view) {
    const workers = view?.telemetry?.workers ?? [];
    if (workers.length === 0) return "";
    const used = sum(workers.map((worker) => worker.cpu));
    const all = sum(workers.map((worker) => worker.n_cpus));
    const gpus = workers.flatMap((worker) => worker.gpus).filter((gpu) => gpu.utilization !== null);
    const parts = [];
    if (used !== null && all) parts.push(`CPU ${percent(used / all)}`);
    if (gpus.length) parts.push(`GPU ${percent(sum(gpus.map((gpu) => gpu.utilization)) / gpus.length)}`);
    return parts.join(" · ");
  }
}

function stripsOf(telemetry) {
  const histories = new Map(telemetry.histories.map((each) => [each.worker, each]));
  return telemetry.workers.slice(0, N_WORKERS).flatMap((worker) => {
    const history = histories.get(worker.worker);
    const nCpus = worker.n_cpus || 1;
    const cpu = {
      kind: "cpu",
      label: `${nameOf(worker)} CPU`,
      title: clean(worker.host, 60),
      value: worker.cpu === null ? "–" : percent(worker.cpu / nCpus),
      shares: (history?.cpu ?? []).map((each) => (each === null ? null : each / nCpus)),
      memory: worker.memory_bytes === null || !worker.memory_limit_bytes ? null : worker.memory_bytes / worker.memory_limit_bytes,
      note: [bytes(worker.memory_bytes), rates(worker)].filter(Boolean).join(" · "),
    };
    const gpus = worker.gpus.map((gpu) => ({
      kind: "gpu",
      label: `${nameOf(worker)} GPU ${gpu.index}`,
      title: titleOf(gpu),
      value: gpu.state ? `n/a: ${clean(gpu.state, 40)}` : percent(gpu.utilization),
      shares: history?.gpu?.[gpu.uuid] ?? [],
      memory: gpu.memory_total_bytes ? (gpu.memory_used_bytes ?? 0) / gpu.memory_total_bytes : null,
      note: [
        bytes(gpu.memory_used_bytes),
        gpu.temperature_c === null ? "" : `${number(Math.round(gpu.temperature_c))} °C`,
        gpu.power_w === null ? "" : `${number(Math.round(gpu.power_w))} W`,
      ].filter((text) => text && text !== "–").join(" · "),
    }));
    return [cpu, ...gpus];
  });
}

/** Local workers are named by numbers. */
function nameOf(worker) {
  const name = clean(worker.worker, 18);
  return /^\d+$/.test(name) ? `worker ${name}` : name;
}

/** What a worker transfers, where it is worth mentioning. */
function rates(worker) {
  const moved = {
    net: (worker.received_bytes_s ?? 0) + (worker.sent_bytes_s ?? 0),
    disk: (worker.read_bytes_s ?? 0) + (worker.write_bytes_s ?? 0),
  };
  return Object.entries(moved)
    .filter(([, rate]) => rate > 100_000)
    .map(([name, rate]) => `${name} ${bytes(rate)}/s`)
    .join(" · ");
}

/** For the tooltip: which GPU it is, its clock, whose memory it holds. */
function titleOf(gpu) {
  const parts = [`${clean(gpu.name, 60)} ${clean(gpu.uuid, 60)}`];
  if (gpu.parent_uuid) parts.push(`part of ${clean(gpu.parent_uuid, 60)}`);
  if (gpu.sm_clock_mhz !== null) parts.push(`SM ${number(Math.round(gpu.sm_clock_mhz))} MHz`);
  for (const { pid, memory_bytes } of gpu.processes.slice(0, N_PROCESSES)) {
    parts.push(memory_bytes === null ? `pid ${pid}` : `pid ${pid} ${bytes(memory_bytes)}`);
  }
  if (gpu.processes.length > N_PROCESSES) parts.push(`${gpu.processes.length - N_PROCESSES} more processes`);
  return parts.join(" · ");
}

function footOf(telemetry) {
  const parts = [];
  const states = [...new Set(telemetry.workers.filter((each) => each.gpus.length === 0).map((each) => each.gpu_state).filter(Boolean))];
  for (const state of states.slice(0, 3)) parts.push(`GPU ${clean(state, 60)}`);
  const nShown = Math.min(N_WORKERS, telemetry.workers.length);
  if (telemetry.n_workers > nShown) parts.push(`${count(nShown)} of ${count(telemetry.n_workers)} workers`);
  if (telemetry.gpu_hours) parts.push(held(telemetry.gpu_hours, "GPU"));
  if (telemetry.cpu_hours) parts.push(held(telemetry.cpu_hours, "CPU"));
  return parts.join(" · ");
}

function strip() {
  return h(
    "div",
    { class: "ddl-strip" },
    h("span", { class: "ddl-strip-label" }),
    s(
      "svg",
      { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" },
      s("path", { class: "ddl-area" }),
      s("path", { class: "ddl-edge", fill: "none" }),
    ),
    h("span", { class: "ddl-strip-value" }),
    h("span", { class: "ddl-memory", title: "Memory", "aria-hidden": "true" }, h("i")),
    h("span", { class: "ddl-muted ddl-strip-note" }),
  );
}

function updateStrip(element, data) {
  const [label, svg, value, memory, note] = element.children;
  const top = topOf(data.shares);
  setAttribute(element, "title", top > 1 ? `${data.title} · the strip's top is ${percent(top)}` : data.title);
  setAttribute(element, "class", `ddl-strip ddl-strip-${data.kind}`);
  setText(label, data.label);
  setText(value, data.value);
  setText(note, data.note);
  setAttribute(note, "title", data.note);
  setAttribute(svg.firstChild, "d", areaOf(data.shares));
  setAttribute(svg.lastChild, "d", edgeOf(data.shares));
  show(memory, data.memory !== null);
  setAttribute(memory, "title", `Memory ${percent(data.memory)}`);
  setAttribute(memory, "class", `ddl-memory${data.memory > 1 ? " ddl-is-over" : ""}`);
  memory.firstChild.style.width = `${(100 * Math.min(1, Math.max(0, data.memory ?? 0))).toFixed(1)}%`;
}

/** Where the shares stand; the top is 100 %, or the largest of them where that is more. */
export function stripPlaces(shares) {
  const step = WIDTH / Math.max(1, shares.length - 1);
  const top = topOf(shares);
  return shares.map((share, index) =>
    Number.isFinite(share) && share >= 0 ? [index * step, HEIGHT - 1 - (share / top) * (HEIGHT - 2)] : null,
  );
}

function topOf(shares) {
  return Math.max(1, ...shares.filter((share) => Number.isFinite(share)));
}

/** Runs of points without a gap. */
function runsOf(shares) {
  const runs = [[]];
  for (const point of stripPlaces(shares)) {
    if (point === null) runs.push([]);
    else runs.at(-1).push(point);
  }
  return runs.filter((run) => run.length > 0);
}

function written([x, y]) {
  return `${x.toFixed(1)} ${y.toFixed(1)}`;
}

export function edgeOf(shares) {
  return runsOf(shares).map((run) => `M${run.map(written).join("L")}${run.length === 1 ? "h0" : ""}`).join("");
}

export function areaOf(shares) {
  const wide = runsOf(shares).filter((run) => run.length > 1);
  return wide.map((run) => `M${run[0][0].toFixed(1)} ${HEIGHT}L${run.map(written).join("L")}L${run.at(-1)[0].toFixed(1)} ${HEIGHT}Z`).join("");
}

function sum(values) {
  const known = values.filter((value) => value !== null && value !== undefined);
  return known.length ? known.reduce((total, value) => total + value, 0) : null;
}
