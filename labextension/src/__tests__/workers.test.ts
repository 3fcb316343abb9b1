import { cellAt, cellBeside, cellCorner, cellsInSight, gridHeight, makeGrid } from '../model/grid';
import { heatCells } from '../model/heat';
import { gpuSummary, workerLines } from '../model/workers';
import type { ClusterTelemetry, GpuSample, WorkerSample } from '../protocol';
import { golden } from './golden';

const { telemetry: full } = golden('telemetry');
const sample = full.workers[0] as WorkerSample;
const gpu = sample.gpus[0] as GpuSample;

function telemetryOf(workers: WorkerSample[]): ClusterTelemetry {
  return { ...full, workers };
}

test('workers are in the order of their numbers, measured or not', () => {
  const { clusters } = golden('clusters');
  const status = clusters[0];
  const worker = status?.workers[0];
  if (status === undefined || worker === undefined) {
    throw new Error('the golden cluster has no worker');
  }
  const cluster = { ...status, workers: ['w10', 'w2'].map(name => ({ ...worker, name })) };
  const lines = workerLines(cluster, telemetryOf([{ ...sample, worker: 'w1' }]));
  expect(lines.map(line => line.name)).toEqual(['w1', 'w2', 'w10']);
  expect(lines.map(line => line.sample !== null)).toEqual([true, false, false]);
});

test('a cell is the share of what the worker has, or unknown', () => {
  const workers = workerLines(
    undefined,
    telemetryOf([
      { ...sample, worker: 'a', cpu: 1, n_cpus: 4, memory_bytes: 5, memory_limit_bytes: null }
    ])
  );
  expect(heatCells(workers, 'cpu').map(cell => cell.share)).toEqual([0.25]);
  expect(heatCells(workers, 'memory').map(cell => cell.share)).toEqual([null]);
});

test('there is a cell for each GPU, with the reason where it can not be read', () => {
  const lost = { ...gpu, uuid: 'b', utilization: null, state: 'lost' };
  const workers = workerLines(undefined, telemetryOf([{ ...sample, gpus: [gpu, lost] }]));
  const cells = heatCells(workers, 'gpu');
  expect(cells.map(cell => cell.share)).toEqual([gpu.utilization, null]);
  expect(cells[1]?.text).toContain('lost');
});

test('a GPU tells its clock and whose processes are on it', () => {
  const processes = [7, 8].map(pid => ({ pid, memory_bytes: null }));
  const busy = { ...gpu, sm_clock_mhz: 1980.4, processes };
  const [cell] = heatCells(workerLines(undefined, telemetryOf([{ ...sample, gpus: [busy] }])), 'gpu');
  expect(cell?.text).toContain('SM 1,980 MHz, pid 7, 8');
});

test('workers without room for a sample have cells by their few numbers', () => {
  const [name, shares] = Object.entries(full.others)[0] as [string, (number | null)[]];
  const { clusters } = golden('clusters');
  const cluster = clusters[0] as (typeof clusters)[0];
  const worker = cluster.workers[0] as (typeof cluster.workers)[0];
  const others = { [name]: shares, w1: [0.5, null, 0.75, null] };
  const telemetry = { ...full, workers: [], others };
  const workers = [name, 'w1', 'w2'].map(each => ({ ...worker, name: each }));
  const lines = workerLines({ ...cluster, workers }, telemetry);
  const shared = (measure: 'cpu' | 'memory' | 'gpu') =>
    Object.fromEntries(
      ['w1', 'w2', name].map(each => [
        each,
        heatCells(lines, measure).flatMap(cell => (cell.worker.name === each ? [cell.share] : []))
      ])
    );
  expect(shared('cpu')).toEqual({ w1: [0.5], w2: [null], [name]: [shares[0] ?? null] });
  expect(shared('memory')).toEqual({ w1: [null], w2: [null], [name]: [shares[1] ?? null] });
  expect(shared('gpu')).toEqual({ w1: [0.75, null], w2: [], [name]: shares.slice(2) });
  const texts = heatCells(lines, 'cpu').map(cell => cell.text);
  expect(texts).toContainEqual(expect.stringContaining('CPU 50 %, memory –, GPU 0 75 %'));
  expect(gpuSummary(telemetry)).toMatchObject({ nBusy: 1, nGpus: shares.slice(2).length + 2 });
});

test('a GPU that two workers see counts once', () => {
  const busy = { ...gpu, utilization: 0.5 };
  const workers = ['a', 'b'].map(worker => ({ ...sample, worker, gpus: [busy] }));
  expect(gpuSummary(telemetryOf(workers))).toMatchObject({ nGpus: 1, nBusy: 1, mean: 0.5 });
  expect(gpuSummary(undefined)).toMatchObject({ nGpus: 0, mean: null });
});

test('of a thousand cells only those in sight are drawn', () => {
  const grid = makeGrid(1000, 250);
  const [first, behind] = cellsInSight(grid, 160, 160);
  expect(behind - first).toBeLessThanOrEqual(grid.nColumns * 11);
  expect(cellCorner(grid, first)[1]).toBeLessThanOrEqual(160);
  expect(gridHeight(grid)).toBe(Math.ceil(1000 / grid.nColumns) * grid.pitch);
});

test.each([1, 20, 150, 1000])('%d cells: each is found again at its own place', n => {
  const grid = makeGrid(n, 333);
  for (let index = 0; index < n; index += 1) {
    const [x, y] = cellCorner(grid, index);
    expect(cellAt(grid, x + 3, y + 3)).toBe(index);
  }
  expect(cellAt(grid, 3, gridHeight(grid) + 3)).toBeNull();
});

test('arrow keys stay within the cells', () => {
  const grid = makeGrid(10, 5 * 44);
  expect(cellBeside(grid, 0, 'ArrowLeft')).toBe(0);
  expect(cellBeside(grid, 0, 'ArrowDown')).toBe(5);
  expect(cellBeside(grid, 7, 'ArrowDown')).toBe(7);
  expect(cellBeside(grid, 3, 'End')).toBe(9);
  expect(cellBeside(grid, 3, 'a')).toBeNull();
});
