// Runs the browser's module under Node. Arguments: the module, and what to do.
//   vectors FILE          prints the vectors whose report or number of words differs, as JSON
//   texts                 reads a list of texts on stdin, prints each by the rule for texts
//   bodies                reads a list of reports on stdin, prints what the page would seal of each
//   promises              (a randomiser that is null: the questions of the task)
//   promises              reads a list of [randomiser, promise, task] on stdin, prints the refusal of each, or null
//   counts                reads {"kind", "mechanism", "input", "draws", "seed", "cells"} on stdin, prints counts
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [file, task, argument] = process.argv.slice(2);
const module = await import(pathToFileURL(file));
const asking = await import(new URL("./questions.js", pathToFileURL(file)));

function draw(kind, mechanism, input, next, groups) {
  if (kind === "dithered") return module.ditheredBit(mechanism, input, next);
  if (kind === "piecewise") return module.piecewiseCell(mechanism, input, next);
  if (kind === "k-rr") return module.category(mechanism, input, next);
  if (kind === "subset") return module.optionSet(mechanism, input, next);
  if (kind === "one-option") return module.oneOption(mechanism, input, next);
  if (kind === "questions") {
    const places = asking.askedPlaces(mechanism, next);
    return asking.questionsPayload(mechanism, places, places.map((i) => input[i]), next, groups);
  }
  if (kind === "bernoulli") return module.bernoulli(input[0], input[1], next);
  if (kind === "below") return module.uniformBelow(input[0], next);
  throw new Error(`unknown kind ${kind}`);
}

function vectors() {
  const wrong = [];
  for (const vector of JSON.parse(readFileSync(argument, "utf8"))) {
    if (vector.kind === "level") {
      const told = module.level(vector.input, vector.lower, vector.upper);
      if (told !== vector.report) wrong.push({ vector, told });
      continue;
    }
    if (vector.kind === "placed") {
      const told = module.placed(vector.input, vector.windows);
      if (told !== vector.report) wrong.push({ vector, told });
      continue;
    }
    if (vector.kind === "slot") {
      const told = module.slotOf(vector.slots, vector.input);
      if (told !== vector.report) wrong.push({ vector, told });
      continue;
    }
    let used = 0;
    const next = () => {
      if (used === vector.words.length) throw new Error("the tape is too short");
      return BigInt(vector.words[used++]);
    };
    const told =
      vector.kind === "coordinates"
        ? module.numbersReport(vector.mechanism, vector.coordinates, vector.input, next)
        : draw(vector.kind, vector.mechanism, vector.input, next, vector.groups);
    let same = JSON.stringify(told) === JSON.stringify(vector.report);
    if (vector.kind === "piecewise") same &&= module.piecewiseUnit(vector.mechanism, told) === vector.unit;
    if (!same || used !== vector.words.length) wrong.push({ vector, told, used });
  }
  return wrong;
}

// SplitMix64 (Steele, Lea and Flood 2014): words for tests, reproducible.
function seededWords(seed) {
  let state = BigInt(seed);
  const mask = (1n << 64n) - 1n;
  return () => {
    state = (state + 0x9e3779b97f4a7c15n) & mask;
    let z = state;
    z = ((z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n) & mask;
    z = ((z ^ (z >> 27n)) * 0x94d049bb133111ebn) & mask;
    return z ^ (z >> 31n);
  };
}

// The dithered bit is counted by 16 ranges of the threshold and by the bit; a cell of the piecewise mechanism by 16 ranges.
function counts() {
  const { kind, mechanism, input, draws, seed, cells } = JSON.parse(readFileSync(0, "utf8"));
  const next = seed === null ? module.systemWords() : seededWords(seed);
  const found = new Array(cells).fill(0);
  const span = kind === "piecewise" ? module.LEVELS + Number(mechanism.width) : module.LEVELS;
  for (let i = 0; i < draws; i++) {
    const told = draw(kind, mechanism, input, next);
    if (kind === "dithered") found[2 * Math.floor((told.threshold / span) * (cells / 2)) + Number(told.above)]++;
    else if (kind === "piecewise") found[Math.floor((told / span) * cells)]++;
    else if (kind === "subset") found[told.reduce((bits, place) => bits | (1 << place), 0)]++;
    else if (kind === "questions") found[mechanism.questions.findIndex(({ name }) => name in told.reports)]++;
    else found[told]++;
  }
  return found;
}

function bodies() {
  const { reports, size } = JSON.parse(readFileSync(0, "utf8"));
  return reports.map((report) => JSON.stringify(module.padded({ id: "n", payload: { reports: { answer: report } } }, size)));
}

function texts() {
  return JSON.parse(readFileSync(0, "utf8")).map(module.normalised);
}

function promises() {
  return JSON.parse(readFileSync(0, "utf8")).map(([randomiser, promise, asked]) => {
    try {
      if (asked.questions) asking.checkQuestions(asked, promise);
      else module.checkPromise(randomiser, promise, asked);
      return null;
    } catch (error) {
      return error.message;
    }
  });
}

process.stdout.write(JSON.stringify(task === "promises" ? promises() : { vectors, texts, counts, bodies }[task]()));
