// Random searches through the modules of a selection: what a part of an axis chooses, and whose a mark is.
// One line out: {nMarks, wrong: [texts]}.

import { pathToFileURL } from "node:url";

const [folder, seed, nRuns] = [process.argv[2], Number(process.argv[3]), Number(process.argv[4])];
const load = (name) => import(pathToFileURL(`${folder}/${name}.js`).href);
const { columnsOf } = await load("columns");
const { NUMBER, Selection } = await load("selection");
const { axisOf, brushOf, resultRows } = await load("spread");
const { nearestTrial } = await load("chart");
const { makeScale } = await load("scale");
const { chartsOf } = await load("curves");

let state = seed;
function random() {
  state = (state * 1664525 + 1013904223) >>> 0;
  return state / 4294967296;
}
const whole = (n) => Math.floor(random() * n);
const pick = (list) => list[whole(list.length)];
const wrong = [];
let nMarks = 0;

for (let run = 0; run < nRuns; run++) {
  const next = pick([() => random(), () => 10 ** (6 * random() - 3), () => pick(["relu", "gelu", true, 3]), () => whole(4)]);
  const rows = Array.from({ length: 1 + whole(30) }, (_, number) => ({ number, state: "complete", params: { x: next() }, value: random(), metrics: {} }));
  const columns = columnsOf(rows);
  const column = columns.params.get("x");
  const values = rows.map((_, row) => column.at(row));
  const axis = axisOf(values, 40, 400);
  const [from, to] = [30 + 380 * random(), 30 + 380 * random()];
  const selection = new Selection();
  const brush = brushOf(axis, from, to);
  const [low, high] = [Math.min(from, to), Math.max(from, to)];
  if (brush !== null) {
    selection.brush("x", brush);
    const mask = selection.mask(columns);
    values.forEach((value, row) => {
      const place = axis.place(value);
      if (Math.min(Math.abs(place - low), Math.abs(place - high)) < 0.01) return;
      nMarks++;
      if ((mask[row] === 1) !== (place > low && place < high)) wrong.push(`${value} at ${place}, ${low} to ${high}: ${mask[row]}`);
    });
  }
  // A part of the trials, together with a part of the values.
  const first = whole(rows.length);
  selection.brush(NUMBER, { low: first, high: first + 5 });
  const mask = selection.mask(columns);
  if (rows.some((_, row) => mask[row] === 1 && (row < first || row > first + 5))) wrong.push("a trial beside the part");
  if (resultRows(columns, mask).length !== mask.reduce((sum, each) => sum + each, 0)) wrong.push("other rows than chosen ones");
  const snapshot = { can: { has_objective: true }, state: "complete", metric: "loss", mode: "min", best: null, curve: rows.map((row) => [row.number, row.value]), pruned: [], learning: [] };
  const isChosen = (number) => mask[columns.rowOf(number)] === 1;
  for (const known of [columns, null]) {
    const [chart] = chartsOf(snapshot, known, isChosen);
    const drawn = chart.series.find((each) => each.name === "value").points.map(([number]) => number);
    if (drawn.join() !== rows.filter((row) => isChosen(row.number)).map((row) => row.number).join()) wrong.push(`history draws ${drawn}`);
    const [x, y] = [makeScale(0, rows.length, 40, 400), makeScale(0, 1, 130, 10)];
    const mark = pick(rows);
    const found = nearestTrial(chart.series, { x, y }, x.place(mark.number), y.place(mark.value));
    if (found !== mark.number) wrong.push(`a click on trial ${mark.number} opens ${found}`);
    if (nearestTrial(chart.series, { x, y }, -100, -100) !== null) wrong.push("a click far away opens a trial");
  }
  selection.brush(NUMBER, null);
  selection.brush("x", null);
  if (selection.mask(columns) !== null) wrong.push("something is brushed still");
}
const line = { name: "#1", kind: "line", trial: 1, points: [[0, 0], [10, 10]] };
const scales = { x: makeScale(0, 10, 0, 100), y: makeScale(0, 10, 100, 0) };
if (nearestTrial([line], scales, 50, 52) !== 1) wrong.push("a click on a line between its points opens nothing");
console.log(JSON.stringify({ nMarks, wrong: wrong.slice(0, 5), nWrong: wrong.length }));
