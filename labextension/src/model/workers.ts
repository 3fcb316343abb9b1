/** What the lists and the heat map show of each worker: two messages joined by its name. */

import type { ClusterStatus, ClusterTelemetry, GpuSample, WorkerSample } from '../protocol';

export interface WorkerLine {
  name: string;
  host: string;
  nSlots: number;
  nBusy: number;
  sample: WorkerSample | null;
  /** Where there is no room for a sample: share of CPUs, of memory, utilization of each GPU. */
  shares: readonly (number | null)[];
}

/** In the order of their numbers: w2 before w10. */
export function workerLines(
  cluster: ClusterStatus | undefined,
  telemetry: ClusterTelemetry | undefined
): WorkerLine[] {
  const samples = new Map((telemetry?.workers ?? []).map(sample => [sample.worker, sample]));
  const others = telemetry?.others ?? {};
  const known = new Map<string, WorkerLine>();
  for (const { name, host, n_slots, n_busy } of cluster?.workers ?? []) {
    const sample = samples.get(name) ?? null;
    const shares = others[name] ?? [];
    known.set(name, { name, host, nSlots: n_slots, nBusy: n_busy, sample, shares });
  }
  for (const [name, sample] of samples) {
    if (!known.has(name)) {
      known.set(name, { name, host: sample.host, nSlots: 0, nBusy: 0, sample, shares: [] });
    }
  }
  const order = new Intl.Collator('en', { numeric: true });
  return [...known.values()].sort((a, b) => order.compare(a.name, b.name));
}

/** Of each GPU, where there is no room for a sample. */
export function gpuShares(shares: readonly (number | null)[]): readonly (number | null)[] {
  return shares.slice(2);
}

/** GPUs of a cluster that are busy, how many there are, and their mean utilization. */
export function gpuSummary(telemetry: ClusterTelemetry | undefined): {
  nGpus: number;
  nBusy: number;
  mean: number | null;
  state: string;
} {
  const gpus = new Map<string, GpuSample>();
  let state = '';
  for (const worker of telemetry?.workers ?? []) {
    state ||= worker.gpu_state;
    // Two workers of one host may see the same GPU.
    worker.gpus.forEach(gpu => gpus.set(gpu.uuid, gpu));
  }
  const others = Object.values(telemetry?.others ?? {}).flatMap(gpuShares);
  const measured = [...[...gpus.values()].map(gpu => gpu.utilization), ...others].flatMap(
    share => share ?? []
  );
  return {
    nGpus: gpus.size + others.length,
    nBusy: measured.filter(share => share >= 0.05).length,
    mean: measured.length ? measured.reduce((sum, share) => sum + share, 0) / measured.length : null,
    state
  };
}
