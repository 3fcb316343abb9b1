// Random runs through the charts' real modules: what was drawn, held against the values.
// One line out per kind of chart: {name, nRuns, nMarks, nOutside, wrong: [texts]}.

import { pathToFileURL } from "node:url";

const [folder, seed, nRuns] = [process.argv[2], Number(process.argv[3]), Number(process.argv[4])];
const load = (name) => import(pathToFileURL(`${folder}/${name}.js`).href);
const { drawnOf, rangesOf, TOP, BOTTOM, HEIGHT } = await load("plot");
const { Watched } = await load("scale");
const { columnsOf } = await load("columns");
const { cellsOf } = await load("layer");
const { segmentsOf, strandsOf, strand } = await load("strands");
const { stripPlaces, edgeOf } = await load("machines");
const { smoothed, through } = await load("lens");
const { piecesOf } = await load("ranks");
const { placesOf, pathOf, LEFT, RIGHT } = await load("history");

const MOST_PX = 0.5;
let state = seed;
function random() {
  // mulberry32
  state = (state + 0x6d2b79f5) | 0;
  let t = Math.imul(state ^ (state >>> 15), 1 | state);
  t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
  return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
}
const whole = (n) => Math.floor(random() * n);
const pick = (list) => list[whole(list.length)];
const sign = () => (random() < 0.5 ? -1 : 1);

const ODD = [NaN, null, Infinity, -Infinity, 0, -0, 1e308, -1e308, 5e-324, 1e300, 1e-300];

/** A value after value of one run: of some size, with some outliers, some of them no numbers. */
function valuesOf() {
  const size = 10 ** pick([0, 0, 0, 0, whole(600) - 300, whole(20) - 10]);
  const middle = pick([0, 0, 1, -1, size, 1e6 * size, random()]);
  const spread = pick([0, 1e-16, 1e-9, 1, 1, 1]) * size;
  const [oddly, wildly] = [pick([0, 0, 0.1, 1]), pick([0, 0.02, 0.2])];
  return () => {
    if (random() < oddly) return pick(ODD);
    const value = middle + spread * (random() - 0.5);
    return random() < wildly ? sign() * value * 10 ** whole(12) : value;
  };
}

function seriesOf(kind, nPoints, next) {
  const points = [];
  let x = whole(3);
  for (let i = 0; i < nPoints; i++) {
    points.push([x, next()]);
    x += 1 + (random() < 0.2 ? whole(50) : 0);
  }
  return { name: `s${whole(1e6)}`, color: "", points, kind };
}

function chartOf(isMany = false) {
  const next = valuesOf();
  const nPoints = isMany ? 2001 + whole(500) : pick([0, 1, 2, 3, 9, 40]);
  const kinds = isMany ? ["dots"] : pick([["line"], ["step", "dots"], ["line", "line", "line"], ["dots"]]);
  const series = kinds.map((kind) => seriesOf(kind, nPoints, next));
  const points = series[0].points;
  const best = points.length > 0 && random() < 0.5 ? pick(points) : null;
  return { title: "t", xName: "step", write: String, series, marked: best !== null && best[1] !== null ? best : null };
}

/** Where a value stands, told by the ticks and nothing else. */
function byTicks(scale) {
  const [first, last] = [scale.ticks[0], scale.ticks.at(-1)];
  const [from, to] = [scale.place(first), scale.place(last)];
  const of = (value) => (typeof value !== "number" ? NaN : scale.log ? Math.log10(value) : value);
  return (value) => from + ((of(value) - of(first)) / (of(last) - of(first))) * (to - from);
}

/** Corners of a path, a list for each piece. */
function cornersOf(d) {
  const pieces = [];
  let [x, y] = [0, 0];
  for (const [, command, text] of d.matchAll(/([MLHVh])([^MLHVh]*)/g)) {
    const numbers = text.split(" ").map(Number);
    if (numbers.some((each) => !Number.isFinite(each))) throw new Error(`not a path: ${d}`);
    if (command === "M") pieces.push([]);
    if (command === "M" || command === "L") [x, y] = numbers;
    else if (command === "H") x = numbers[0];
    else if (command === "V") y = numbers[0];
    if (pieces.length === 0) throw new Error(`begins nowhere: ${d}`);
    pieces.at(-1).push([x, y]);
  }
  return pieces;
}

const near = (a, b) => Math.abs(a[0] - b[0]) <= MOST_PX && Math.abs(a[1] - b[1]) <= MOST_PX;

function checkChart(chart, drawn, isLog, tell) {
  if (drawn === null) return chart.series.every((each) => each.points.every(([, v]) => !isAxisValue(v, isLog)));
  const { x, y } = drawn;
  if (y.ticks.length < 2) tell("fewer than two ticks");
  const placed = byTicks(y);
  const edge = (py) => Math.abs(py - TOP) <= MOST_PX || Math.abs(py - (HEIGHT - BOTTOM)) <= MOST_PX;
  let [nOutside, nAtEdge] = [0, 0];
  chart.series.forEach((series) => {
    const paths = drawn.paths.filter((path) => path.series === series).map((path) => path.d);
    // What is painted is dots, as the canvas gets them.
    const cloud = drawn.clouds.find((each) => each.series === series);
    if (cloud !== undefined) paths.push(pathOfCells(cellsOf(cloud.places)));
    const pieces = paths.flatMap(cornersOf);
    const corners = pieces.flat();
    const points = series.points.map(([atX, value]) => [x.place(atX), placed(value), value]);
    for (const [px, py, value] of points) {
      const isInside = isAxisValue(value, isLog) && py >= TOP - MOST_PX && py <= HEIGHT - BOTTOM + MOST_PX;
      const isSeen = corners.some((corner) => near(corner, [px, py]));
      tell.nMarks++;
      // Just outside, where the line that leaves the axis ends.
      if (isSeen) nAtEdge += !y.holds(value);
      if (isSeen) continue;
      nOutside++;
      if (isInside && py > TOP + 0.2 && py < HEIGHT - BOTTOM - 0.2) tell(`${value} at ${px} is not drawn`);
      const marked = drawn.outside.some((mark) => px >= mark.from - MOST_PX && px <= mark.to + MOST_PX && sideFits(mark.side, value, y));
      if (!marked) tell(`${value} at ${px} is neither drawn nor marked`);
    }
    // And the other way: nothing is drawn that is no value, but for where a line leaves the axis.
    for (const piece of pieces) for (const corner of piece) {
      if (points.some((point) => near(corner, point))) continue;
      if (series.kind === "step" && isOnStep(corner, points, drawn, x, chart)) continue;
      if (series.kind === "line" && edge(corner[1]) && isOnLine(corner, points)) continue;
      tell(`${corner} is no value of ${series.kind}: ${paths.join(" ").slice(0, 120)}`);
    }
  });
  const nMarked = drawn.outside.reduce((sum, mark) => sum + mark.n, 0);
  if (nMarked !== nOutside + nAtEdge) tell(`${nOutside} outside, ${nMarked} marked`);
  tell.nOutside += nOutside;
  if (drawn.best !== null && !near(drawn.best, [x.place(chart.marked[0]), placed(chart.marked[1])])) tell("the best mark");
}

function pathOfCells(cells) {
  return Array.from({ length: cells.length / 2 }, (_, i) => `M${cells[2 * i]} ${cells[2 * i + 1]}h0`).join("");
}

function isAxisValue(value, isLog) {
  return typeof value === "number" && Math.abs(value) <= 1e300 && (!isLog || value >= 1e-300);
}

function sideFits(side, value, y) {
  if (typeof value !== "number" || Number.isNaN(value)) return side === "unknown";
  return side === (value > (y.low + y.high) / 2 ? "above" : "below");
}

function isOnLine([cx, cy], points) {
  return points.some(([px, py], i) => {
    const [qx, qy] = points[i + 1] ?? [NaN, NaN];
    const slope = (qy - py) / (qx - px);
    const isBetween = cx >= Math.min(px, qx) - MOST_PX && cx <= Math.max(px, qx) + MOST_PX;
    // Places are written with one digit behind the point: a little to the side is more up a steep line.
    return isBetween && Math.abs(py + (cx - px) * slope - cy) <= MOST_PX + 0.06 * Math.abs(slope);
  });
}

function isOnStep([cx, cy], points, drawn, x, chart) {
  const last = Math.max(...rangesOf(chart).xs);
  const isEnd = Math.abs(cx - x.place(last)) <= MOST_PX && Math.abs(points.at(-1)[1] - cy) <= MOST_PX;
  return isEnd || points.some(([px, py], i) => {
    const before = points[i - 1];
    if (before === undefined || Math.abs(cx - px) > MOST_PX) return false;
    const [low, high] = [Math.min(py, before[1]), Math.max(py, before[1])];
    return cy >= low - MOST_PX && cy <= high + MOST_PX;
  });
}

function teller(name) {
  const wrong = [];
  const tell = (text) => wrong.push(text);
  return Object.assign(tell, { wrong, nMarks: 0, nOutside: 0, end: () => console.log(JSON.stringify({ name, nRuns, nMarks: tell.nMarks, nOutside: tell.nOutside, wrong: wrong.slice(0, 5), nWrong: wrong.length })) });
}

function prefixOf(chart, share) {
  const series = chart.series.map((each) => ({ ...each, points: each.points.slice(0, Math.ceil(each.points.length * share)) }));
  const isThere = chart.marked !== null && series[0].points.some((point) => point === chart.marked || point[0] === chart.marked[0]);
  return { ...chart, series, marked: isThere ? chart.marked : null };
}

const bounds = (drawn) => [drawn.y.low, drawn.y.high, drawn.x.low, drawn.x.high];

const lines = teller("lines");
const watched = teller("watched");
const replayed = teller("replayed");
for (let run = 0; run < nRuns; run++) {
  const chart = chartOf();
  const how = { width: pick([300, 480, 1000]), isLog: random() < 0.3, isFull: random() < 0.3 };
  const axes = { x: new Watched(), y: new Watched() };
  // Every third run is looked at smoothed, every third enlarged: what is drawn is what the lens made.
  const lens = { weight: pick([0, 0, 0.9]), zoom: pick([null, null, [whole(5), 5 + whole(200)]]) };
  const isPlain = lens.weight === 0 && lens.zoom === null;
  const whole_ = isPlain && random() < 0.7 ? rangesOf(chart) : null;
  let before = null;
  for (const share of [0.3, 0.6, 1]) {
    const part = through(prefixOf(chart, share), lens);
    const isWatched = random() < 0.5;
    const drawn = drawnOf({ ...part, isOver: share === 1 }, { ...how, isWatched }, axes, whole_);
    checkChart(part, drawn, how.isLog, lines);
    if (drawn !== null && before !== null) {
      const [a, b] = [bounds(before), bounds(drawn)];
      const tell = whole_ === null ? watched : replayed;
      tell.nMarks++;
      if (whole_ !== null && a.some((each, i) => each !== b[i])) tell(`a replay's scale goes from ${a} to ${b}`);
      const keeps = drawn.y.holds(a[0]) && drawn.y.holds(a[1]) && drawn.x.holds(a[2]) && drawn.x.holds(a[3]);
      if ((isWatched || share < 1) && !keeps) tell(`shrinks while somebody watches from ${a} to ${b}`);
    }
    before = drawn;
  }
}
// More dots than there are elements for: they are painted.
for (let run = 0; run < 30; run++) {
  const [chart, axes] = [chartOf(true), { x: new Watched(), y: new Watched() }];
  const how = { width: pick([300, 1000]), isLog: random() < 0.3, isFull: random() < 0.3, isWatched: false };
  checkChart(chart, drawnOf(chart, how, axes, null), how.isLog, lines);
}
lines.end();
watched.end();
replayed.end();

const strands = teller("parallel");
for (let run = 0; run < nRuns; run++) {
  const nParams = 1 + whole(8);
  const makers = Array.from({ length: nParams }, () => pick([valuesOf(), valuesOf(), () => pick(["relu", "gelu", true, false, 3, null]), () => `a-very-long-name-of-a-choice-${whole(30)}`]));
  const next = valuesOf();
  const rows = Array.from({ length: 2 + whole(12) }, (_, number) => {
    const params = Object.fromEntries(makers.map((make, i) => [i === 3 ? "__proto__x" : `p${i}`, make()]).filter(() => random() < 0.9));
    return { number, params, value: next() };
  });
  const values = rows.map((row) => row.value).filter((value) => Number.isFinite(value) && Math.abs(value) <= 1e300);
  const width = pick([300, 480, 1000]);
  const columns = columnsOf(rows);
  const all = rows.map((_, row) => row);
  const range = values.length === 0 ? null : [Math.min(...values), Math.max(...values)];
  const { axes, places, heights, unknown } = strandsOf(columns, all, { metric: "m", width, names: [...columns.params.keys()], values: range });
  const drawn = rows.map((_, r) => places.map((x, i) => (Number.isNaN(heights[r * axes.length + i]) ? null : [x, heights[r * axes.length + i]])));
  const names = axes.slice(0, -1).map((axis) => axis.name);
  checkSegments(drawn, heights, axes.length);
  checkBrushes(axes, drawn, rows, names);
  const missed = axes.map(() => 0);
  rows.forEach((row, r) => {
    strand(drawn[r]);
    axes.forEach((axis, i) => {
      const isThere = i === names.length || names[i] in row.params;
      const value = i === names.length ? row.value : row.params[names[i]];
      const point = drawn[r][i];
      strands.nMarks++;
      if (point === null) {
        if (isThere && !Number.isNaN(value) && value !== null) missed[i]++;
        if (isThere && (typeof value === "string" || (Number.isFinite(value) && Math.abs(value) < 1e300))) strands(`${value} of ${axis.name} is not drawn`);
        return;
      }
      if (Math.abs(point[0] - places[i]) > MOST_PX) strands(`${axis.name} at ${point[0]}`);
      // Equal values at one place, others elsewhere, numbers in their order.
      rows.forEach((other, o) => {
        const there = i === names.length ? other.value : other.params[names[i]];
        const second = drawn[o][i];
        if (second === null || (i < names.length && !(names[i] in other.params))) return;
        const isSame = Object.is(there, value) || there === value;
        if (isSame && second[1] !== point[1]) strands(`one ${value} at ${point[1]} and ${second[1]}`);
        if (typeof there === "string" && typeof value === "string" && there !== value && Math.abs(second[1] - point[1]) < 2) strands(`${there} and ${value} at one place`);
        if (isNumericAxis(axis, rows, i, names) && value < there && point[1] < second[1]) strands(`${value} above ${there}`);
      });
      if (isNumericAxis(axis, rows, i, names)) {
        const numbers = rows.map((each) => (i === names.length ? each.value : each.params[names[i]])).filter((each) => Number.isFinite(each) && Math.abs(each) <= 1e300);
        const [least, most] = [Math.min(...numbers), Math.max(...numbers)];
        const isLog = least > 0 && most / least >= 30;
        const of = (v) => (isLog ? Math.log10(v) : v);
        const wanted = 162 - ((of(value) - of(least)) / (of(most) - of(least))) * (162 - 24);
        if (most - least > 1e-11 * Math.max(Math.abs(most), Math.abs(least), 1e-285) && Math.abs(wanted - point[1]) > MOST_PX) strands(`${value} at ${point[1]}, not at ${wanted}`);
      }
    });
  });
  axes.forEach((axis, i) => {
    if (missed[i] !== unknown[i]) strands(`${axis.name}: ${missed[i]} missed, ${unknown[i]} told`);
  });
}
strands.end();

/** What is painted between two axes, held against the lines of the trials. */
function checkSegments(drawn, heights, nAxes) {
  const shares = Float32Array.from(drawn, () => random());
  for (let gap = 0; gap < nAxes - 1; gap++) {
    const segments = segmentsOf(heights, nAxes, shares, gap);
    const fits = ({ from, to }, points) => Math.abs(points[gap][1] - from) <= MOST_PX && Math.abs(points[gap + 1][1] - to) <= MOST_PX;
    const lines = drawn.filter((points) => points[gap] !== null && points[gap + 1] !== null);
    strands.nMarks += lines.length;
    for (const points of lines) if (!segments.some((segment) => fits(segment, points))) strands(`no segment for ${points}`);
    for (const segment of segments) if (!lines.some((points) => fits(segment, points))) strands(`a segment ${segment.from} ${segment.to} for no trial`);
  }
}

/** A brush over an axis holds what stands below it, and nothing else. */
function checkBrushes(axes, drawn, rows, names) {
  const i = whole(axes.length);
  const [from, to] = [24 + random() * 69, 93 + random() * 69];
  const brush = axes[i].within(from, to);
  rows.forEach((row, r) => {
    if (drawn[r][i] === null) return;
    const value = i === names.length ? row.value : row.params[names[i]];
    // Of the smallest numbers a few make a whole axis.
    if (typeof value === "number" && value !== 0 && Math.abs(value) < 1e-300) return;
    const y = drawn[r][i][1];
    const isIn = brush.choices !== undefined ? brush.choices.has(`${typeof value} ${value}`) : value >= brush.low && value <= brush.high;
    if (isIn !== (y >= from && y <= to) && Math.abs(y - from) > MOST_PX && Math.abs(y - to) > MOST_PX) strands(`${value} at ${y}, ${isIn ? "in" : "not in"} ${from} to ${to}`);
  });
}

function isNumericAxis(axis, rows, i, names) {
  const all = rows.filter((row) => i === names.length || names[i] in row.params).map((row) => (i === names.length ? row.value ?? NaN : row.params[names[i]]));
  const numbers = all.filter((value) => Number.isFinite(value) && Math.abs(value) <= 1e300);
  return all.every((value) => typeof value === "number") && new Set(numbers).size > 1;
}

const strips = teller("strips");
for (let run = 0; run < nRuns; run++) {
  const shares = Array.from({ length: whole(40) }, () => (random() < 0.1 ? pick([null, NaN, Infinity, -1]) : random() * pick([1, 1, 1.6])));
  const known = shares.filter((share) => Number.isFinite(share) && share >= 0);
  const top = Math.max(1, ...known);
  const corners = cornersOf(edgeOf(shares)).flat();
  const wanted = shares.map((share, i) => [i * (120 / Math.max(1, shares.length - 1)), 19 - (share / top) * 18]);
  const isKnown = (share) => Number.isFinite(share) && share >= 0;
  shares.forEach((share, i) => {
    strips.nMarks++;
    if ((stripPlaces(shares)[i] !== null) !== isKnown(share)) strips(`${share} is drawn wrongly`);
    if (isKnown(share) && !corners.some((corner) => near(corner, wanted[i]))) strips(`${share} is not drawn`);
  });
  for (const corner of corners) if (!shares.some((share, i) => isKnown(share) && near(corner, wanted[i]))) strips(`${corner} is no share`);
}
strips.end();

// A step's pieces on a bar of 96 px: each as long as its share, one behind the other, none beyond the end.
const steps = teller("steps");
for (let run = 0; run < nRuns; run++) {
  const of = () => pick([0, random(), random() ** 9, null]);
  const [data_s, waiting_s, exchange_s] = [of() ?? 0, of(), of()];
  const compute_s = of() ?? 0;
  const step_s = data_s + (waiting_s ?? 0) + (exchange_s ?? 0) + compute_s;
  const pieces = piecesOf({ step_s, data_s, waiting_s, exchange_s, compute_s });
  const wanted = { data: data_s, waiting: waiting_s, exchange: exchange_s, compute: compute_s };
  for (const [kind, seconds] of Object.entries(wanted)) {
    steps.nMarks++;
    const found = pieces.filter((piece) => piece.kind === kind);
    if (found.length !== (seconds > 0 ? 1 : 0)) steps(`${found.length} pieces for ${seconds} s of ${kind}`);
    else if (seconds > 0 && Math.abs(found[0].share * 96 - (seconds / step_s) * 96) > MOST_PX) steps(`${kind}: ${found[0].share}`);
  }
  const end = pieces.reduce((sum, piece) => sum + piece.share, 0);
  if (pieces.length > 0 && Math.abs(end - 1) * 96 > MOST_PX) steps(`ends at ${end}`);
}
steps.end();

// A timeline: every bar, mark and share stands at its time, and nothing overlaps or lies outside.
const timeline = teller("timeline");
for (let run = 0; run < nRuns; run++) {
  const length_s = pick([1e-3, 1, 60, 86400 * 30]) * (0.5 + random());
  const lanes = Array.from({ length: whole(40) }, (_, number) => `worker ${number}`);
  const bars = lanes.flatMap((_, lane) => {
    const cuts = Array.from({ length: 2 * whole(4) }, () => random() * length_s).sort((a, b) => a - b);
    return cuts.flatMap((from, i) => (i % 2 === 0 ? [[lane, from, cuts[i + 1], "complete", i, 1]] : []));
  });
  const marks = Array.from({ length: whole(60) }, () => [random() * length_s, pick(["failed", "restart", "pruned", "checkpoint"]), null, "t"]);
  const usage_at_s = Array.from({ length: whole(9) }, () => random() * length_s).sort((a, b) => a - b);
  const shares = () => usage_at_s.map(() => (random() < 0.2 ? null : random() * pick([1, 1, 2])));
  const history = { began_s: 0, length_s, lanes, bars, marks, usage_at_s, cpu: shares(), gpu: usage_at_s.map(() => null), memory: shares() };
  const width = pick([320, 480, 1000]);
  const places = placesOf(history, width);
  const at = (atS) => LEFT + (atS / length_s) * (width - LEFT - RIGHT);
  const nMarked = places.marks.reduce((sum, group) => sum + group.all.length, 0);
  if (places.bars.length !== bars.length || nMarked !== marks.length) timeline("something is missing");
  bars.forEach(([lane, from, to], i) => {
    timeline.nMarks++;
    const bar = places.bars[i];
    const isTiny = at(to) - at(from) < 1;
    if (Math.abs(bar.x - at(from)) > MOST_PX) timeline(`a bar from ${from} begins at ${bar.x}`);
    if (Math.abs(bar.x + bar.width - at(to)) > (isTiny ? 1 : MOST_PX)) timeline(`a bar to ${to} ends at ${bar.x + bar.width}`);
    if (bar.y < 12 + lane * places.lane || bar.y + bar.height > 12 + (lane + 1) * places.lane) timeline(`lane ${lane} at ${bar.y}`);
  });
  for (const group of places.marks) {
    const own = group.all.map((mark) => at(mark.at));
    if (!own.some((px) => Math.abs(group.x - px) <= MOST_PX)) timeline(`a mark at ${group.x} is none of ${own}`);
    if (own.some((px) => px < group.from - MOST_PX || px > group.to + MOST_PX) || group.to - group.from > 9) timeline(`${own} are told as ${group.from} to ${group.to}`);
    if (group.all.some((mark) => mark.kind === "failed") && group.kind !== "failed") timeline("a failure is hidden");
  }
  for (const tick of places.ticks) if (Math.abs(tick.x - at(tick.at)) > MOST_PX) timeline(`a tick of ${tick.at} at ${tick.x}`);
  if (places.strips.some((strip) => strip.name === "gpu")) timeline("what was not measured is drawn");
  for (const strip of places.strips) {
    const corners = cornersOf(pathOf(strip.points)).flat();
    const most = Math.max(1, ...history[strip.name].filter((share) => share !== null));
    history[strip.name].forEach((share, i) => {
      if (share === null) return;
      timeline.nMarks++;
      const wanted = [at(usage_at_s[i]), strip.top + 22 - (share / most) * 22];
      if (!corners.some((corner) => near(corner, wanted))) timeline(`${share} of ${strip.name} is not drawn`);
    });
    if (strip.top < places.low || strip.top + 22 > places.bottom) timeline(`${strip.name} lies outside`);
  }
  if (Math.abs(places.value(at(length_s / 3)) - length_s / 3) > length_s / 1000) timeline("a click goes elsewhere");
}
timeline.end();

// A smoothed line: as many points, none beyond the values so far, gaps where there were gaps.
const smooth = teller("smooth");
for (let run = 0; run < nRuns; run++) {
  const next = valuesOf();
  const points = Array.from({ length: whole(30) }, (_, x) => [x, next()]);
  const weight = pick([0, 0.6, 0.98]);
  const found = smoothed(points, weight);
  let [least, most] = [Infinity, -Infinity];
  points.forEach(([x, value], i) => {
    smooth.nMarks++;
    if (found[i][0] !== x) smooth(`${x} has moved`);
    if (!isAxisValue(value, false)) {
      if (!Object.is(found[i][1], value)) smooth(`${value} became ${found[i][1]}`);
      return;
    }
    [least, most] = [Math.min(least, value), Math.max(most, value)];
    const slack = 1e-9 * Math.max(Math.abs(least), Math.abs(most));
    if (!(found[i][1] >= least - slack && found[i][1] <= most + slack)) smooth(`${found[i][1]} is not in ${least} to ${most}`);
    if (weight === 0 && Math.abs(found[i][1] - value) > slack) smooth(`${value} became ${found[i][1]}`);
  });
}
smooth.end();
