// A study's questions, one or several under one promise: which are asked, what their report keeps, and how it is drawn.
import {
  category,
  checkPromise,
  fraction,
  level,
  LEVELS,
  must,
  numberReport,
  numbersReport,
  oneOption,
  optionSet,
  recordReport,
  uniformBelow,
  whole,
} from "./randomise.js";
import { checkModel, modelReport } from "./models.js";

// A level as it is written, in units of 10^-40: parts of a promise add up as they are written, not as doubles.
function written(x) {
  fraction("level", x); // refuses what is no level
  const [digits, power] = x.toExponential().split("e");
  const [first, rest = ""] = digits.split(".");
  const up = Number(power) - rest.length + 40;
  must(up >= 0, "promise");
  return BigInt(first + rest) * 10n ** BigInt(up);
}

// Where people are asked who answer after others: shares of the range, rising and apart.
function checkWindows({ form, windows = [] }) {
  let last = 0;
  for (const [low, high] of windows) {
    must(last <= low && low < high && high <= 1, "windows");
    last = high;
  }
  must(windows.length > 0 === (form !== undefined), "windows");
}

// Every cell of the columns is an option, so that every answer is randomised among all of them.
function checkCells(task, question) {
  const sizes = columnsOf(task, question).map(({ options, bounds }) => {
    if (!bounds) return options.length;
    whole("steps", question.steps, 1n, BigInt(LEVELS));
    must(Number.isFinite(question.steps / (bounds.upper - bounds.lower)) && bounds.upper > bounds.lower, "bounds");
    return 2;
  });
  must(sizes.reduce((a, b) => a * b) === question.options.length, "options");
}

const WORD = 2n ** 64n;

// Questions of each of which one is reported on, with where each ends among the words; alone, one that is asked.
function lots(task) {
  const ends = task.draws ?? task.questions.map(() => null);
  const result = [[]];
  for (const [place, end] of ends.entries()) {
    must(end !== null || result.at(-1).length === 0, "draws");
    result.at(-1).push([place, end]);
    if (end === null || BigInt(end) === WORD) result.push([]);
  }
  must(ends.length === task.questions.length && result.pop().length === 0, "draws");
  return result;
}

/**
 * Throws unless what is sent keeps the promise {epsilon, delta}: each question's randomiser its own part, and the parts
 * together, of those that are drawn the largest of a lot, no more than the whole.
 */
export function checkQuestions(task, promise) {
  for (const name of ["epsilon", "delta"]) {
    const parts = task.questions.map((question) => written(question.guarantee[name]));
    const most = lots(task).map((lot) => lot.map(([place]) => parts[place]).reduce((a, b) => (a > b ? a : b)));
    must(most.reduce((a, b) => a + b) <= written(promise[name]), name);
  }
  for (const question of task.questions) {
    if (question.grid || question.line) checkModel(question, question.guarantee);
    else checkPromise(question.randomiser, question.guarantee, question);
    checkWindows(question);
    if (question.columns) checkCells(task, question);
  }
}

/** The places of the questions that a local person is asked: all but those that are drawn, and of each lot of these one. */
export function askedPlaces(task, next) {
  return lots(task).map((lot) => {
    const word = lot[0][1] === null ? 0n : next();
    return lot.find(([, end]) => end === null || word < BigInt(end))[0];
  });
}

function questionReport(question, answer, next) {
  const { randomiser, bounds, windows, coordinates, grid, line, slots } = question;
  if (grid || line) return modelReport(question, answer, next);
  if (coordinates) return numbersReport(randomiser, coordinates, answer, next);
  if (slots) return recordReport(randomiser, slots, answer, next);
  if (randomiser.name === "k-rr") return category(randomiser, answer, next);
  if (randomiser.name === "subset") return optionSet(randomiser, answer, next);
  if (randomiser.name === "one-option") return oneOption(randomiser, answer, next);
  return numberReport(randomiser, bounds, answer, next, windows);
}

/** The columns that a question is about, where it is about several: its options are their cells. */
export function columnsOf(task, { columns }) {
  return columns.map((name) => task.columns.find((column) => column.name === name));
}

// The cell of the answers to a question's columns. A number counts as one of its bounds, by chance: the upper one, which
// comes first, as often as the number lies near to it.
function cellOf(task, question, answers, next) {
  return columnsOf(task, question).reduce((at, { options, bounds }, i) => {
    if (!bounds) return at * options.length + answers[i];
    const up = uniformBelow(question.steps, next) < level(answers[i], bounds.lower, bounds.upper, question.steps);
    return 2 * at + (up ? 0 : 1);
  }, 0);
}

/**
 * The payload of a report on the questions at these places, `answers` in their order. Where answers are told by group,
 * `groups` are the places of the person's public groups: they are sent as they are.
 */
export function questionsPayload(task, places, answers, next, groups = []) {
  const told = places.map((i, at) => {
    const question = task.questions[i];
    const answer = question.columns ? cellOf(task, question, answers[at], next) : answers[at];
    return [question.name, questionReport(question, answer, next)];
  });
  for (const [i, { name }] of (task.by ?? []).entries()) told.push([name, groups[i]]);
  return { reports: Object.fromEntries(told) };
}
