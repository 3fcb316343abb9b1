// Random searches through the modules of importance's neighbours: slices, grid, distribution, front.
// One line out per kind: {name, nMarks, nOutside, wrong: [texts]}.

import { pathToFileURL } from "node:url";

const [folder, seed, nRuns] = [process.argv[2], Number(process.argv[3]), Number(process.argv[4])];
const load = (name) => import(pathToFileURL(`${folder}/${name}.js`).href);
const { columnsOf } = await load("columns");
const { distributionOf, dotsOf, frontOf, gridOf, resultRows, thinned } = await load("spread");
const { placedOf } = await load("scatter");

const MOST_PX = 0.5;
let state = seed;
function random() {
  state = (state + 0x6d2b79f5) | 0;
  let t = Math.imul(state ^ (state >>> 15), 1 | state);
  t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
  return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
}
const whole = (n) => Math.floor(random() * n);
const pick = (list) => list[whole(list.length)];
const ODD = [NaN, null, Infinity, -Infinity, 0, -0, 1e308, -1e308, 5e-324, 1e300, 1e-300, undefined];

function valuesOf() {
  const size = 10 ** pick([0, 0, 0, whole(600) - 300, whole(20) - 10]);
  const [middle, spread] = [pick([0, 1, -1, size, 1e6 * size]), pick([0, 1e-16, 1e-9, 1, 1]) * size];
  const [oddly, wildly] = [pick([0, 0, 0.1, 1]), pick([0, 0.1])];
  return () => {
    if (random() < oddly) return pick(ODD);
    const value = middle + spread * (random() - 0.5);
    return random() < wildly ? value * 10 ** whole(12) : value;
  };
}

const choices = () => () => pick(["relu", "gelu", true, "true", 3, "__proto__", null, `${"x".repeat(90)}${whole(3)}`]);
const isNumber = (value) => typeof value === "number" && Math.abs(value) <= 1e300;

function teller(name) {
  const wrong = [];
  const tell = (text) => wrong.push(text);
  return Object.assign(tell, { nMarks: 0, nOutside: 0, end: () => console.log(JSON.stringify({ name, nMarks: tell.nMarks, nOutside: tell.nOutside, nWrong: wrong.length, wrong: wrong.slice(0, 5) })) });
}

const [slices, grids, distributions, fronts] = ["slices", "grid", "distribution", "front"].map(teller);

for (let run = 0; run < nRuns; run++) {
  const n = pick([0, 1, 2, 3, 9, 40]);
  const [nextX, nextY, nextValue] = [pick([valuesOf(), choices()]), pick([valuesOf(), choices()]), valuesOf()];
  const rows = Array.from({ length: n }, (_, number) => {
    const params = {};
    if (random() < 0.95) Object.defineProperty(params, "__proto__", { value: nextX(), enumerable: true });
    if (random() < 0.95) params.y = nextY();
    return { number, state: pick(["complete", "complete", "pruned", "running", "failed"]), params, value: nextValue(), metrics: {} };
  });
  const columns = columnsOf(rows);
  const results = resultRows(columns);
  // What has a result, from the rows themselves.
  const wanted = rows.filter((row) => isNumber(row.value) && ["complete", "pruned", "running"].includes(row.state));
  if (wanted.map((row) => row.number).join() !== results.map((row) => columns.number(row)).join()) slices("other rows");
  const value = columns.own("value");
  const values = results.map((row) => value?.at(row));
  const at = (name) => results.map((row) => columns.params.get(name)?.at(row));
  checkSlice(at("__proto__"), values, pick([240, 300, 480]));
  checkGrid(at("__proto__"), at("y"), values);
  checkDistribution(values);
  checkFront(values, results.map(() => nextValue()));
}
[slices, grids, distributions, fronts].forEach((each) => each.end());

/** Every point is where the ticks say, and every trial is a point or is counted. */
function checkSlice(xs, ys, width) {
  if (ys.length === 0) return;
  const { x, y, points, nUnknown, left, right } = placedOf({ xs, ys }, width);
  const drawn = [...dotsOf(points.filter((point) => point !== null)).matchAll(/M(-?[\d.]+) (-?[\d.]+)h0/g)].map(([, a, b]) => [Number(a), Number(b)]);
  if (drawn.length + nUnknown !== ys.length) slices(`${ys.length} trials, ${drawn.length} drawn, ${nUnknown} told`);
  slices.nOutside += nUnknown;
  const across = x.scale === null ? null : byTicks(x.scale);
  const up = y.scale === null ? null : byTicks(y.scale);
  let k = 0;
  points.forEach((point, i) => {
    if (point === null) {
      const isPlaced = xs[i] !== undefined && (typeof xs[i] !== "number" || isNumber(xs[i]));
      if (isPlaced && isNumber(ys[i]) && !(x.scale?.log && xs[i] <= 0)) slices(`${xs[i]}, ${ys[i]} is not drawn`);
      return;
    }
    const [px, py] = drawn[k++];
    slices.nMarks++;
    if (px < left - MOST_PX || px > right + MOST_PX) slices(`${xs[i]} at ${px}, beside the axis`);
    if (across !== null && Math.abs(across(xs[i]) - px) > MOST_PX) slices(`${xs[i]} at ${px}, not at ${across(xs[i])}`);
    if (up !== null && Math.abs(up(ys[i]) - py) > MOST_PX) slices(`${ys[i]} at ${py}, not at ${up(ys[i])}`);
    points.slice(0, i).forEach((other, j) => {
      if (other === null || x.kind !== "choice") return;
      const isSame = xs[i] === xs[j] || (Number.isNaN(xs[i]) && Number.isNaN(xs[j]));
      if (isSame !== Math.abs(other[0] - point[0]) < 1) slices(`${xs[i]} and ${xs[j]}: ${other[0]} and ${point[0]}`);
    });
  });
}

function byTicks(scale) {
  const [first, last] = [scale.ticks[0], scale.ticks.at(-1)];
  const of = (value) => (scale.log ? Math.log10(value) : value);
  const [from, to] = [scale.place(first), scale.place(last)];
  if (first === last) return scale.place;
  return (value) => from + (of(value) / (of(last) - of(first)) - of(first) / (of(last) - of(first))) * (to - from);
}

/** Every trial is in one cell or is counted; a cell's mean is that of its trials. */
function checkGrid(xs, ys, values) {
  const { x, y, cells, nUnknown } = gridOf(xs, ys, values);
  const seen = cells.flat().flatMap((cell) => cell.rows);
  if (new Set(seen).size !== seen.length || seen.length + nUnknown !== values.length) grids(`${values.length} trials, ${seen.length} in cells, ${nUnknown} told`);
  if (cells.length !== y.length || cells.some((line) => line.length !== x.length)) grids("another shape");
  if (x.length > 8 || y.length > 8) grids(`${x.length} × ${y.length} cells`);
  const isKnown = (value) => value !== undefined && (typeof value !== "number" || isNumber(value));
  const hasOdd = (list) => list.some((value) => typeof value === "number") && list.some((value) => value !== undefined && typeof value !== "number");
  values.forEach((value, i) => {
    if (seen.includes(i) || !isKnown(xs[i]) || !isKnown(ys[i]) || hasOdd(xs) || hasOdd(ys)) return;
    grids(`${xs[i]}, ${ys[i]} is in no cell`);
  });
  for (const line of cells) for (const cell of line) {
    grids.nMarks++;
    if (cell.n !== cell.rows.length) grids("another number");
    if (cell.n === 0) continue;
    const mean = cell.rows.reduce((sum, i) => sum + values[i] / cell.n, 0);
    const size = Math.max(...cell.rows.map((i) => Math.abs(values[i])));
    if (Math.abs(mean - cell.mean) > 1e-9 * size + 1e-300) grids(`${cell.mean}, not ${mean}`);
  }
  // Bins of numbers do not overlap: what is further right is never smaller.
  const columns = x.map((_, i) => cells.flatMap((line) => line[i].rows).map((k) => xs[k]));
  if (xs.every((value) => value === undefined || typeof value === "number")) {
    columns.forEach((list, i) => columns.slice(0, i).forEach((before) => before.some((a) => list.some((b) => a >= b)) && grids("bins overlap")));
  }
  grids.nOutside += nUnknown;
}

/** At each point of the line: the share of trials with at most that value. */
function checkDistribution(values) {
  const known = values.filter(isNumber);
  const points = distributionOf(values);
  if (known.length === 0 && points.length > 0) distributions("points of nothing");
  points.forEach(([value, share], i) => {
    distributions.nMarks++;
    const wanted = i === 0 ? 0 : known.filter((each) => each <= value).length / known.length;
    if (Math.abs(share - wanted) > 1e-12) distributions(`${share} at ${value}, not ${wanted}`);
    if (i > 0 && value < points[i - 1][0]) distributions("goes back");
  });
  if (known.length > 0 && points.at(-1)[1] !== 1) distributions("does not end at all of them");
  const many = Array.from({ length: 3000 }, (_, i) => i);
  if (points.length > 0 && (thinned(many, 100).length !== 100 || thinned(many, 100).at(-1) !== 2999)) distributions("thinned");
}

/** The front by looking at all pairs. */
function checkFront(xs, ys) {
  const modes = { x: pick(["max", "min"]), y: pick(["max", "min"]) };
  const front = frontOf(xs, ys, modes);
  const known = xs.map((_, i) => i).filter((i) => isNumber(xs[i]) && isNumber(ys[i]));
  const isBetter = (mode, a, b) => (mode === "max" ? a > b : a < b);
  const dominates = (a, b) => {
    const [x, y] = [isBetter(modes.x, xs[b], xs[a]), isBetter(modes.y, ys[b], ys[a])];
    return !x && !y && (xs[a] !== xs[b] || ys[a] !== ys[b]);
  };
  const wanted = known.filter((i) => !known.some((k) => dominates(k, i)));
  const pairs = (list) => [...new Set(list.map((i) => `${xs[i] + 0} ${ys[i] + 0}`))].sort().join();
  fronts.nMarks += front.length;
  if (pairs(front) !== pairs(wanted)) fronts(`${pairs(front)} is not ${pairs(wanted)}`);
  if (new Set(pairs(front).split(",")).size !== Math.max(1, front.length)) fronts("one point twice");
}
