// What charts of curves are looked at through: lines smoothed, a part of the steps enlarged.  Pure.

const MOST = 1e300;

/**
 * The running mean of a line, in which every older value counts less; gaps stay gaps.
 * @param {[number, number | null][]} points
 * @param {number} weight of all that was before, 0 to 1
 * @returns {[number, number | null][]}
 */
export function smoothed(points, weight) {
  let [sum, weights] = [0, 0];
  return points.map(([x, value]) => {
    // What no axis shows smooths nothing either.
    if (typeof value !== "number" || !(Math.abs(value) <= MOST)) return [x, value];
    // Divided by the weights so far, so that it does not begin at zero.
    weights = weights * weight + 1;
    sum += (value - sum) / weights;
    return [x, sum];
  });
}

/**
 * A chart as it is to be drawn: behind a smoothed line stand its values, faintly.
 * @param {import("./plot.js").ChartData} data
 * @param {{weight: number, zoom: [number, number] | null}} lens
 * @returns {import("./plot.js").ChartData}
 */
export function through(data, { weight, zoom }) {
  const isIn = ([x]) => zoom === null || (x >= zoom[0] && x <= zoom[1]);
  const series = data.series.flatMap((each) => {
    const own = { ...each, points: each.points.filter(isIn) };
    if (weight === 0 || each.kind !== "line" || each.points.length < 3) return [own];
    const mean = { ...each, points: smoothed(each.points, weight).filter(isIn) };
    return [{ ...own, faint: true, unnamed: true }, mean];
  });
  const marked = data.marked && isIn(data.marked) ? data.marked : null;
  return { ...data, series, marked };
}
