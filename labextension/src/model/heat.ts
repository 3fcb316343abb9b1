/** The data of the heat map: what the colour of each cell means, and its text. */

import type { GpuSample } from '../protocol';
import { bytes, number, percent } from '../format';
import type { WorkerLine } from './workers';
import { gpuShares } from './workers';

const MAX_PIDS = 8;

/** What the colour of a cell means. */
export type Measure = 'cpu' | 'memory' | 'gpu' | 'gpu_memory';

export const MEASURES: readonly { measure: Measure; label: string }[] = [
  { measure: 'cpu', label: 'CPU' },
  { measure: 'memory', label: 'Memory' },
  { measure: 'gpu', label: 'GPU' },
  { measure: 'gpu_memory', label: 'GPU memory' }
];

/** A cell of the heat map: a worker, or one of its GPUs. */
export interface HeatCell {
  worker: WorkerLine;
  /** 0 to 1; null: not measured. */
  share: number | null;
  text: string;
}

/** One cell per worker, or per GPU if the measure is one of GPUs. */
export function heatCells(workers: readonly WorkerLine[], measure: Measure): HeatCell[] {
  if (measure === 'cpu' || measure === 'memory') {
    return workers.map(worker => {
      const share = measure === 'cpu' ? cpuShare(worker) : memoryShare(worker);
      return { worker, share, text: describe(worker) };
    });
  }
  return workers.flatMap(worker =>
    worker.sample === null ? otherGpus(worker, measure) : measuredGpus(worker, measure)
  );
}

function measuredGpus(worker: WorkerLine, measure: Measure): HeatCell[] {
  return (worker.sample?.gpus ?? []).map(gpu => ({
    worker,
    share: measure === 'gpu' ? gpu.utilization : gpuMemoryShare(gpu),
    text: `${worker.name}: ${describeGpu(gpu)}`
  }));
}

/** Of these, only the utilization is known. */
function otherGpus(worker: WorkerLine, measure: Measure): HeatCell[] {
  return gpuShares(worker.shares).map((share, index) => ({
    worker,
    share: measure === 'gpu' ? share : null,
    text: `${worker.name}: GPU ${index} ${percent(share)}`
  }));
}

function cpuShare({ sample, shares }: WorkerLine): number | null {
  if (sample === null) {
    return shares[0] ?? null;
  }
  return sample.cpu === null || !sample.n_cpus ? null : sample.cpu / sample.n_cpus;
}

function memoryShare({ sample, shares }: WorkerLine): number | null {
  if (sample === null) {
    return shares[1] ?? null;
  }
  return sample.memory_bytes === null || !sample.memory_limit_bytes
    ? null
    : sample.memory_bytes / sample.memory_limit_bytes;
}

function gpuMemoryShare(gpu: GpuSample): number | null {
  return gpu.memory_used_bytes === null || !gpu.memory_total_bytes
    ? null
    : gpu.memory_used_bytes / gpu.memory_total_bytes;
}

function describe(worker: WorkerLine): string {
  const { name, host, nBusy, nSlots, sample, shares } = worker;
  const parts = [`${name} on ${host}: ${nBusy} of ${nSlots} slots busy`];
  if (sample === null && shares.length === 0) {
    return [...parts, 'not measured yet'].join(', ');
  }
  parts.push(`CPU ${percent(cpuShare(worker))}`);
  if (sample === null) {
    const gpus = gpuShares(shares).map((share, index) => `GPU ${index} ${percent(share)}`);
    return [...parts, `memory ${percent(memoryShare(worker))}`, ...gpus].join(', ');
  }
  parts.push(`memory ${bytes(sample.memory_bytes)}`);
  parts.push(...sample.gpus.map(describeGpu));
  if (sample.gpu_state) {
    parts.push(`GPU ${sample.gpu_state}`);
  }
  return parts.join(', ');
}

function describeGpu(gpu: GpuSample): string {
  const parts = [`GPU ${gpu.index} ${gpu.state || percent(gpu.utilization)}`];
  if (gpu.memory_used_bytes !== null) {
    parts.push(`${bytes(gpu.memory_used_bytes)} of ${bytes(gpu.memory_total_bytes)}`);
  }
  if (gpu.temperature_c !== null) {
    parts.push(`${number(Math.round(gpu.temperature_c))} °C`);
  }
  if (gpu.power_w !== null) {
    parts.push(`${number(Math.round(gpu.power_w))} W`);
  }
  if (gpu.sm_clock_mhz !== null) {
    parts.push(`SM ${number(Math.round(gpu.sm_clock_mhz))} MHz`);
  }
  if (gpu.processes.length > 0) {
    const pids = gpu.processes.slice(0, MAX_PIDS).map(process => process.pid);
    parts.push(`pid ${pids.join(', ')}${gpu.processes.length > MAX_PIDS ? ' …' : ''}`);
  }
  return parts.join(', ');
}
