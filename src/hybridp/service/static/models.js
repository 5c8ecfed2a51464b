// What a device computes from several answers before one report on them is drawn: the same numbers as
// hybridp/public/regression.py and hybridp/public/kmeans.py, in the same order of operations.
import { category, checkPromise, stepOf, STEPS, vectorReport } from "./randomise.js";

const COARSE = 2 ** 13; // steps from the centre of a column to its bound
const RATIO = STEPS / COARSE;

/** To the nearest whole number, of two as near the even one. */
function rounded(x) {
  const up = Math.round(x);
  return up - x === 0.5 && up % 2 !== 0 ? up - 1 : up;
}

const clamped = (x) => Math.min(Math.max(x, -1), 1);

/** The entries i <= j of the products of (1, x1, ..., y), row by row; the first is known. */
function pairs(size) {
  const found = [];
  for (let i = 0; i < size; i++) for (let j = i; j < size; j++) found.push([i, j]);
  return found.slice(1);
}

/** The bounds of what is reported on: scores no larger than the clip, or products. */
function sides({ coordinates, line }) {
  if (line.form === "steered") return coordinates.map(() => ({ lower: -line.clip, upper: line.clip }));
  return pairs(coordinates.length + 1).map(([i, j]) => ({ lower: i === j ? 0 : -1, upper: 1 }));
}

/** One person's vector on its lattice, within its bounds whatever the answers are. */
export function lineSteps({ model, coordinates, line }, values) {
  const steps = values.map((value, i) => stepOf(value, coordinates[i]));
  const u = [1, ...steps.map((step) => Math.floor((step + RATIO / 2) / RATIO) / COARSE)];
  const onLattice = (told) => Math.min(Math.max(rounded(told * STEPS), -STEPS), STEPS);
  if (line.form === "plain") return pairs(u.length).map(([i, j]) => onLattice(i === j ? 2 * (u[i] * u[i]) - 1 : u[i] * u[j]));
  const x = u.slice(0, -1);
  const predicted = x.reduce((sum, entry, i) => sum + line.centre[i] * entry, 0);
  const residual =
    model === "linear" ? u.at(-1) - predicted : Number(steps.at(-1) > 0) - 0.5 * (1 + Math.tanh(predicted / 2));
  const share = clamped(residual / line.clip);
  return x.map((entry) => onLattice(entry * share));
}

function checkLine(task, promise) {
  const { model, coordinates, line, randomiser } = task;
  const centred = line.form === "plain" || line.centre.length === coordinates.length;
  const known = ["linear", "logistic"].includes(model) && ["plain", "steered"].includes(line.form);
  const drawn = known && centred && line.centre.every(Number.isFinite) && line.clip > 0 && line.clip <= 1e6;
  if (!drawn || (model === "logistic" && line.form === "plain")) throw new RangeError("the study’s line is none");
  for (const side of coordinates) checkPromise(randomiser, promise, { coordinates: sides(task).fill(side) });
}

/** The field of the public grid where a point lies, as hybridp/public/kmeans.py numbers them. */
export function cellOf({ coordinates, grid }, values) {
  const widths = coordinates.map(({ lower, upper }) => upper - lower);
  const step = Math.max(...widths) / 2 ** 20;
  return values.reduce((cell, value, i) => {
    if (typeof value !== "number" || Number.isNaN(value)) throw new RangeError("value must be a number");
    const { lower, upper } = coordinates[i];
    const top = Math.floor(widths[i] / step + 0.5);
    const level = Math.floor((Math.min(Math.max(value, lower), upper) - lower) * (top / widths[i]) + 0.5);
    return cell * grid.per_axis + Math.min(Math.floor(level * (grid.per_axis / (top + 1))), grid.per_axis - 1);
  }, 0);
}

function checkMap({ coordinates, grid, randomiser }, promise) {
  const cells = grid.per_axis ** coordinates.length;
  const known = Number.isSafeInteger(grid.per_axis) && grid.per_axis >= 2 && cells <= 2 ** 14 && randomiser.name === "k-rr";
  if (!known) throw new RangeError("the study’s map is none");
  checkPromise(randomiser, promise, { coordinates, options: new Array(cells) });
}

/** Throws unless the report on a line, or on a map, keeps the promise {epsilon, delta}, whatever the answers are. */
export function checkModel(task, promise) {
  return task.line ? checkLine(task, promise) : checkMap(task, promise);
}

/** The report on a regression, or on a map. */
export function modelReport(task, values, next) {
  if (task.line) return vectorReport(task.randomiser, sides(task), lineSteps(task, values), next);
  return category(task.randomiser, cellOf(task, values), next);
}
