// What a device does to one answer before anything leaves it: the same integers as hybridp/noise.py.
//
// Every probability arrives as a whole number over 2^64, written in decimal. A draw compares integers and nothing
// else: no exponential, no rounding, no Math.random. The same 64-bit words give the same report as in Python; the
// vectors in tests/service/vectors.json are checked by both languages.
//
// `next` is a function that returns one fresh 64-bit word (a BigInt) at every call.

export const LEVELS = 2 ** 32;

const WORD = 1n << 64n;
const HALF = 0xffffffffn;
export const STEPS = 2 ** 24; // lattice steps from the centre of one of several numbers to its bound
const LOW48 = 0xffffffffffffn;

/** Words of the platform's cryptographic generator, the only source that protects anybody. */
export function systemWords() {
  const buffer = new BigUint64Array(1);
  return () => globalThis.crypto.getRandomValues(buffer)[0];
}

/** 16 random bytes as base64url: the id of a report. */
export function reportId() {
  const bytes = globalThis.crypto.getRandomValues(new Uint8Array(16));
  return btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

/** The time of a report, in seconds since 1970, rounded down to the study's precision. */
export function roundedTime(precision, milliseconds = Date.now()) {
  return Math.floor(milliseconds / 1000 / precision) * precision;
}

/**
 * A report as long as every other one of its group: its length on the way tells nothing. `size` is the task's `bytes`.
 */
export function padded(report, size) {
  const bytes = new TextEncoder().encode(JSON.stringify({ ...report, padding: "" })).length;
  return { ...report, padding: "x".repeat(Math.max(0, size - bytes)) };
}

/** A text by the public rule (`text_rule` of the task), the same as hybridp.public.heavy.normalised. */
export function normalised(text) {
  const folded = text.normalize("NFKC").toLowerCase().toUpperCase().toLowerCase().normalize("NFKC");
  const spaces = /[\u0000-\u0020\u007f-\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+/gu;
  return folded.replace(spaces, " ").replace(/^ | $/gu, "");
}

export function whole(name, text, least, most) {
  const ok = typeof text === "string" ? /^[0-9]{1,20}$/.test(text) : Number.isSafeInteger(text);
  const value = ok ? BigInt(text) : -1n;
  if (value < least || value > most) throw new RangeError(`${name} must be a whole number in its range`);
  return value;
}

/** True with probability numerator / 2^bits, exactly. */
export function bernoulli(numerator, bits, next) {
  const limit = 1n << BigInt(bits);
  const n = whole("numerator", numerator, 0n, limit);
  return n === limit || next() >> BigInt(64 - bits) < n;
}

/** Uniform on 0 .. k-1, exactly: the leading bits of a word, drawn again when they are k or more. */
export function uniformBelow(k, next) {
  const size = whole("k", k, 1n, 1n << 53n);
  if (size === 1n) return 0;
  const shift = BigInt(64 - (size - 1n).toString(2).length);
  for (;;) {
    const draw = next() >> shift;
    if (draw < size) return Number(draw);
  }
}

/** k-ary randomised response: the truth with probability keep/2^64, otherwise one of the others, uniformly. */
export function category({ categories, keep }, value, next) {
  const k = Number(whole("categories", categories, 2n, 1n << 32n));
  const truth = Number(whole("value", value, 0n, BigInt(k - 1)));
  const stay = bernoulli(whole("keep", keep, 0n, WORD).toString(), 64, next);
  const other = uniformBelow(k - 1, next);
  return stay ? truth : other + (other >= truth ? 1 : 0);
}

/** Uniform on 0 .. k-1 by half a word, drawn again by a whole one where that would be uneven (Lemire 2019). */
function uniformByHalf(k, next) {
  const product = (next() & HALF) * BigInt(k);
  return (product & HALF) < (1n << 32n) % BigInt(k) ? uniformBelow(k, next) : Number(product >> 32n);
}

/**
 * A random set of `size` options (subset selection): with the own one with probability keep/2^64, the others uniform
 * (Floyd's algorithm). The order of the words is that of hybridp/noise/reports.py for one person.
 */
export function optionSet({ categories, size, keep }, value, next) {
  const k = Number(whole("categories", categories, 2n, 1n << 31n));
  const d = Number(whole("size", size, 1n, BigInt(k - 1)));
  const own = Number(whole("value", value, 0n, BigInt(k - 1)));
  const p = whole("keep", keep, 0n, WORD);
  const low = next() & HALF;
  const kept = low === p >> 32n ? next() >> 32n < (p & HALF) : low < p >> 32n;
  const chosen = new Set(kept ? [own] : []);
  for (let j = kept ? k - d : k - 1 - d; j < k - 1; j++) {
    const pick = uniformByHalf(j + 1, next);
    const other = pick + (pick >= own ? 1 : 0); // the others are numbered 0 .. k-2, passing over the own one
    chosen.add(chosen.has(other) ? j + (j >= own ? 1 : 0) : other);
  }
  return [...chosen].sort((a, b) => a - b);
}

/** Yes (2i) or no (2i + 1) to one option i, drawn whatever is ticked, by randomised response. */
export function oneOption({ options, keep }, ticked, next) {
  const option = uniformBelow(options, next);
  return 2 * option + category({ categories: 2, keep }, ticked.includes(option) ? 0 : 1, next);
}

/** Clip to the bounds and put on the public lattice: 0 .. LEVELS. The same doubles as hybridp.public.lattice. */
export function level(value, lower, upper, levels = LEVELS) {
  if (typeof value !== "number" || Number.isNaN(value)) throw new RangeError("value must be a number");
  const clipped = Math.min(Math.max(value, lower), upper);
  return Math.floor((clipped - lower) * (levels / (upper - lower)) + 0.5);
}

/**
 * The dithered bit: a random threshold, and whether the level is above it, flipped with probability flips/2^64.
 * One word a report: its upper half is the threshold, its lower half the leading bits of the flip's uniform number; when
 * those tie with the leading bits of `flips`, another word settles it, after the words of all reports.
 */
export function ditheredBits({ flips }, levels, next) {
  const flip = whole("flips", flips, 1n, WORD / 2n);
  const lead = flip >> 32n;
  const words = levels.map(() => next());
  return words.map((word, i) => {
    const threshold = Number(word >> 32n);
    const low = word & HALF;
    const flipped = low === lead ? next() >> 32n < (flip & HALF) : low < lead;
    return { threshold, above: levels[i] > threshold !== flipped };
  });
}

export function ditheredBit(mechanism, at, next) {
  return ditheredBits(mechanism, [at], next)[0];
}

/**
 * The piecewise mechanism: a cell of LEVELS + width, uniform in the window [level, level + width) with probability
 * inside/2^64, otherwise uniform outside it. One word a report: 16 bits choose (a tie takes 48 bits of another word),
 * 48 bits place. The order of the words is that of the library: all first words, all ties, all places drawn again.
 */
export function piecewiseCells({ width, inside }, levels, next) {
  const w = whole("width", width, 1n, 1n << 32n);
  const p = whole("inside", inside, 0n, WORD);
  const lead = p >> 48n;
  const words = levels.map(() => next());
  const within = words.map((word) => {
    const high = word >> 48n;
    return high === lead ? next() >> 16n < (p & LOW48) : high < lead;
  });
  return words.map((word, i) => {
    const at = levels[i];
    const place = word & LOW48;
    if (!within[i]) {
      const cell = Number(place >> 16n);
      return cell >= at ? cell + Number(w) : cell;
    }
    const product = place * w; // uniform once the remainder is at least 2^48 mod width (Lemire 2019)
    const again = (product & LOW48) < (1n << 48n) % w;
    return at + (again ? uniformBelow(w.toString(), next) : Number(product >> 48n));
  });
}

export function piecewiseCell(mechanism, at, next) {
  return piecewiseCells(mechanism, [at], next)[0];
}

/** The slot of a head list where a record counts: itself, else its query's wildcard, else everything's. */
export function slotOf(slots, record) {
  const key = (r) => JSON.stringify(r);
  const index = new Map(slots.map((slot, i) => [key(slot), i]));
  const wildcard = record.map((field, i) => (i === 0 ? field : null));
  return index.get(key(record)) ?? index.get(key(wildcard)) ?? slots.length - 1;
}

/** A piecewise cell as an unbiased number in [-1, 1]'s coordinate: the mean cell is linear in the level. */
export function piecewiseUnit({ width, inside }, cell) {
  const w = Number(width);
  const p = Number(BigInt(inside)) / 2 ** 64;
  const slope = p - ((1 - p) * w) / LEVELS;
  const cells = LEVELS + w;
  const centre = (w - 1) / 2;
  const rest = (cells * ((cells - 1) / 2) - w * centre) / LEVELS;
  const scale = 2 / (slope * LEVELS);
  return cell * scale - ((p * centre + (1 - p) * rest) * scale + 1);
}

// --- the promise ----------------------------------------------------------------------------------------------------
//
// A server states integers and a promise. Before anything is drawn the page checks the one against the other, in whole
// numbers: e^epsilon is bounded from above to some 80 digits, far below what a change of one unit makes.

const BITS = 300n;
const ONE = 1n << BITS;

/** A double as the fraction [numerator, denominator] that it is. */
export function fraction(name, x) {
  if (typeof x !== "number" || !Number.isFinite(x) || x < 0) throw new RangeError(`${name} must be a number from 0 on`);
  let [value, denominator] = [x, 1n];
  while (!Number.isInteger(value)) [value, denominator] = [value * 2, denominator * 2n];
  return [BigInt(value), denominator];
}

const over = (a, b) => (a + b - 1n) / b; // rounded up

/** e^(n/d) times 2^BITS, rounded up at every step: an upper bound. */
function exponential([n, d]) {
  const halvings = 16n;
  const x = over(n << BITS, d << halvings);
  let [sum, term] = [ONE + 1n, ONE]; // the 1 covers all terms after the last one
  for (let i = 1n; i <= 60n; i++) {
    term = over(term * x, i << BITS);
    sum += term;
  }
  for (let i = 0n; i < halvings; i++) sum = over(sum * sum, ONE);
  return sum;
}

export function must(ok, what) {
  if (!ok) throw new RangeError(`the study’s server asks for less noise than this page promises (${what})`);
}

function checkBit({ flips }, epsilon) {
  const q = whole("flips", flips, 1n, WORD / 2n);
  must((WORD - q) * ONE <= exponential(epsilon) * q, "flips");
}

function checkWindow({ width, inside }, epsilon) {
  const w = whole("width", width, 1n, 1n << 32n);
  const p = whole("inside", inside, 0n, WORD - 1n);
  must(p * BigInt(LEVELS) > (WORD - p) * w, "inside"); // rarer near the answer than elsewhere would tell it as well
  must(p * BigInt(LEVELS) * ONE <= exponential(epsilon) * (WORD - p) * w, "inside");
}

function checkResponse({ categories, keep }, epsilon, [n, d], size) {
  const k = whole("categories", categories, 2n, 1n << 32n);
  const p = whole("keep", keep, 0n, WORD);
  must(k === BigInt(size), "categories");
  must(WORD < p * k, "keep"); // who hardly ever tells the truth tells it by what is left out
  must(p * (k - 1n) * d * ONE <= (exponential(epsilon) * (WORD - p) * d) + n * WORD * (k - 1n) * ONE, "keep");
}

function checkSet({ categories, size, keep }, epsilon, options) {
  const k = whole("categories", categories, 2n, 1n << 31n);
  const d = whole("size", size, 1n, k - 1n);
  const p = whole("keep", keep, 0n, WORD);
  must(k === BigInt(options), "categories");
  must(WORD * d < p * k, "keep"); // rarer than by chance would tell it as well
  must(p * (k - d) * ONE <= exponential(epsilon) * (WORD - p) * d, "keep");
}

/**
 * Throws unless the integers of a randomiser keep the promise {epsilon, delta}, whatever the answer is. `task` is the
 * question, which says what the answer is about.
 */
export function checkPromise(randomiser, promise, task) {
  const [epsilon, delta] = [fraction("epsilon", promise.epsilon), fraction("delta", promise.delta)];
  must(promise.epsilon <= 30 && promise.delta < 1, "promise");
  for (const { lower, upper } of task.coordinates ?? (task.bounds ? [task.bounds] : [])) {
    const width = upper - lower; // so that every answer has a place on the lattice
    must(Number.isFinite(lower) && Number.isFinite(width) && Number.isFinite(LEVELS / width) && width > 0, "bounds");
  }
  if (randomiser.name === "dithered") return checkBit(randomiser, epsilon);
  if (randomiser.name === "piecewise") return checkWindow(randomiser, epsilon);
  if (randomiser.name === "k-rr") return checkResponse(randomiser, epsilon, delta, (task.slots ?? task.options).length);
  if (randomiser.name === "subset") return checkSet(randomiser, epsilon, task.options.length);
  if (randomiser.name === "one-option") {
    must(randomiser.options === task.options.length, "options");
    return checkResponse({ categories: 2, keep: randomiser.keep }, epsilon, delta, 2);
  }
  if (randomiser.name === "one-slot") return must(task.slots.length === 1, "slots");
  if (randomiser.name !== "coordinates") throw new RangeError("this page cannot draw from this randomiser");
  const { dimensions, reported, reach, each } = randomiser;
  must(dimensions === task.coordinates.length, "dimensions");
  const k = whole("reported", reported, 1n, BigInt(dimensions));
  must(Number.isSafeInteger(reach) && reach >= STEPS, "reach");
  const part = [epsilon[0], epsilon[1] * k];
  return each.name === "dithered" ? checkBit(each, part) : checkWindow(each, part);
}

const RANDOMISERS = ["dithered", "piecewise", "k-rr", "one-slot", "subset", "one-option"];

/** Whether this module can draw from the randomiser that a task document describes. */
export function supported(randomiser) {
  if (randomiser?.name === "coordinates") return randomiser.browser && supported(randomiser.each);
  return RANDOMISERS.includes(randomiser?.name);
}

/**
 * Where a level lies within windows, laid end to end, each as long as another; without any, the level. As in
 * hybridp.public.messages: windows are whole steps of 2^-20, so that both compute the same doubles.
 */
export function placed(at, windows) {
  if (windows.length === 0) return at;
  const cut = (i) => Math.floor((i * LEVELS) / windows.length);
  return windows.reduce((sum, [low, high], i) => {
    const part = Math.min(Math.max((at / LEVELS - low) / (high - low), 0), 1);
    return sum + Math.floor(part * (cut(i + 1) - cut(i)));
  }, 0);
}

/** The report on a number, as a question's randomiser and bounds ask for it. */
export function numberReport(randomiser, bounds, value, next, windows = []) {
  const { lower, upper } = bounds;
  const at = placed(level(value, lower, upper), windows);
  if (randomiser.name === "dithered") return ditheredBit(randomiser, at, next);
  if (randomiser.name !== "piecewise") throw new RangeError("this page cannot draw from this randomiser");
  const unit = piecewiseUnit(randomiser, piecewiseCell(randomiser, at, next));
  return lower + (upper - lower) / 2 + ((upper - lower) / 2) * unit;
}

/** The report on a record, as a slot of the head list. */
export function recordReport(randomiser, slots, record, next) {
  const slot = slotOf(slots, record.map(normalised));
  if (randomiser.name === "one-slot") return 0;
  if (randomiser.name !== "k-rr") throw new RangeError("this page cannot draw from this randomiser");
  return category(randomiser, slot, next);
}

// --- several numbers ------------------------------------------------------------------------------------------------

/** k of d places, uniformly: the first k cards of a shuffled pack (Fisher-Yates). */
export function subset(d, k, next) {
  const cards = Array.from({ length: d }, (_, i) => i);
  if (k === d) return cards;
  for (let i = 0; i < k; i++) {
    const j = i + uniformBelow(d - i, next);
    [cards[i], cards[j]] = [cards[j], cards[i]];
  }
  return cards.slice(0, k);
}

/** Clip one of several numbers to its bounds and put it on its lattice: -STEPS .. STEPS. */
export function stepOf(value, { lower, upper }) {
  if (typeof value !== "number" || Number.isNaN(value)) throw new RangeError("value must be a number");
  const share = (Math.min(Math.max(value, lower), upper) - lower) * ((2 * STEPS) / (upper - lower));
  return Math.min(Math.floor(share + 0.5), 2 * STEPS) - STEPS;
}

/** The report on several numbers. */
export function numbersReport(randomiser, coordinates, values, next) {
  return vectorReport(randomiser, coordinates, values.map((value, i) => stepOf(value, coordinates[i])), next);
}

/** A report on a vector of lattice steps: `reported` coordinates, chosen by chance, each with its own report. */
export function vectorReport(randomiser, coordinates, steps, next) {
  if (!supported(randomiser)) throw new RangeError("this page cannot draw from this randomiser");
  const { dimensions, reported, reach, each } = randomiser;
  const chosen = subset(dimensions, reported, next);
  const r = BigInt(reach);
  const levels = chosen.map((j) => Number(((BigInt(steps[j]) + r) * BigInt(LEVELS) + r) / (2n * r)));
  const drawn =
    each.name === "dithered"
      ? ditheredBits(each, levels, next)
      : piecewiseCells(each, levels, next).map((cell, i) => {
          const { lower, upper } = coordinates[chosen[i]];
          const half = (upper - lower) / 2;
          return lower + half + half * (reach / STEPS) * piecewiseUnit(each, cell);
        });
  const order = chosen.map((_, i) => i).sort((a, b) => chosen[a] - chosen[b]);
  return { coordinates: order.map((i) => chosen[i]), each: order.map((i) => drawn[i]) };
}
