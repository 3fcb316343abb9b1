// What a run has cost so far and will cost: the same words as views/summary.py.

import { clean } from "./dom.js";
import { held, money } from "./format.js";

const HOUR_S = 3600;

/**
 * One row of a snapshot's spending, at one moment: `€ 1.84 so far of € 20.00, about € 7 to go`.
 * @param {any} snapshot
 * @param {{unit: string, currency: string, amount: number, at_s: number, per_hour: number,
 *          budget: number | null}} row
 * @param {number} nowS
 * @param {boolean} ended
 * @returns {string}
 */
export function spentOf(snapshot, row, nowS, ended) {
  const ofBudget = row.budget === null ? "" : ` of ${amountOf(row, row.budget)}`;
  if (ended) return `${amountOf(row, row.amount)}${ofBudget}`;
  const spent = row.amount + (Math.max(0, nowS - row.at_s) * row.per_hour) / HOUR_S;
  const text = `${amountOf(row, spent)} so far${ofBudget}`;
  const leftS = snapshot.ends_at_s === null ? -1 : snapshot.ends_at_s - nowS;
  if (!row.currency || row.per_hour <= 0 || leftS < 0) return text;
  return `${text}, about ${money((leftS * row.per_hour) / HOUR_S, clean(row.currency, 3), true)} to go`;
}

function amountOf(row, amount) {
  if (row.unit === "money") return money(amount, clean(row.currency, 3));
  return held(amount, row.unit === "cpuh" ? "CPU" : "GPU");
}
