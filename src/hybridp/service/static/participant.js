// The local choice: randomise on this page, send the report, and nothing else of the answer.
import { numberReport, padded, roundedTime, supported, systemWords } from "./randomise.js";
import { askedPlaces, checkQuestions, columnsOf, questionsPayload } from "./questions.js";
import { startMixed } from "./mixed.js";

const study = document.getElementById("study");
const form = document.getElementById("local-form");
const button = document.getElementById("local-send");
const status = document.getElementById("local-status");
const why = document.getElementById("local-why");

function show(kind, title, text, detail, place = status) {
  const box = document.createElement("div");
  box.className = kind;
  const head = document.createElement("h3");
  head.textContent = title;
  const body = document.createElement("p");
  body.textContent = text;
  box.append(head, body);
  if (detail !== undefined) {
    const pre = document.createElement("pre");
    pre.textContent = detail;
    box.append(pre);
  }
  place.replaceChildren(box);
}

function refuse(input, text) {
  input.setAttribute("aria-invalid", "true");
  input.focus();
  show("problem", "Nothing was sent", text, undefined, input.form.querySelector("[role=status]"));
  return null;
}

// The epsilon that was chosen, where everybody has their own, and the questions as they are asked at it.
function chosen(task) {
  if (!task.choices) return { epsilon: null, questions: task.questions };
  const wanted = Number(document.getElementById("local-epsilon").value);
  const { randomiser, epsilon } = task.choices.find((c) => c.epsilon === wanted) ?? { randomiser: null, epsilon: wanted };
  const guarantee = { epsilon, delta: 0 };
  return { epsilon, questions: task.questions.map((question) => ({ ...question, randomiser, guarantee })) };
}

// The promise that stands on this page, as the participant reads it.
function shownPromise(task) {
  const choice = document.getElementById("local-epsilon");
  return promiseIn(task.choices ? choice.selectedOptions[0] : document.getElementById("local-promise"));
}

function promiseIn(place) {
  const found = /ε = ([0-9.e+-]+)(?:, δ = ([0-9.e+-]+))?/.exec(place.textContent);
  if (found === null) throw new RangeError("this page shows no promise");
  return { epsilon: Number(found[1]), delta: Number(found[2] ?? 0) };
}

// Whether the randomiser can be drawn here and keeps what this page shows; the button says why it does not work.
function ready(task) {
  const { questions } = chosen(task);
  let problem = questions.every((q) => supported(q.randomiser)) ? "" : "Reports of this kind cannot be made in a browser.";
  if (problem === "") {
    try {
      checkQuestions({ ...task, questions }, shownPromise(task));
    } catch (error) {
      problem = `This page will not randomise your answer: ${error.message}. Please tell the people who run the study.`;
      show("problem", "Nothing was sent", problem);
    }
  }
  button.disabled = problem !== "";
  why.textContent = problem;
  why.hidden = problem === "";
  return problem === "";
}

function numbersIn(place, coordinates) {
  const values = [];
  for (const [i, input] of [...place.querySelectorAll(".coordinate")].entries()) {
    if (coordinates[i].yes && input.value === "") return refuse(input, "Please choose an answer to every question.");
    const value = numberIn(input, coordinates[i]);
    if (value === null) return null;
    values.push(value);
  }
  return values;
}

// The questions that are asked here: drawn once, when the page is loaded.
let places = [];

// The answers, checked here as the form of the other choice is checked by the server; null when they cannot be used.
function questionAnswers(task, form, places) {
  for (const input of form.querySelectorAll("input, select")) input.removeAttribute("aria-invalid");
  const answers = [];
  for (const i of places) {
    const given = questionAnswer(task, task.questions[i], form.querySelector(`.question[data-place="${i}"]`));
    if (given === null) return null;
    answers.push(given);
  }
  const groups = [...form.querySelectorAll("select.by")];
  const open = groups.find((list) => list.value === "");
  if (open) return refuse(open, "Please choose an answer to every question.");
  return { answers, groups: groups.map((list) => Number(list.value)) };
}

// The answer to a question; of one about several columns, the answers to these.
function questionAnswer(task, question, field) {
  if (!question.columns) return fieldAnswer(question, field);
  const fields = field.querySelectorAll(".column");
  const answers = [];
  for (const [i, column] of columnsOf(task, question).entries()) {
    const given = fieldAnswer(column, fields[i]);
    if (given === null) return null;
    answers.push(given);
  }
  return answers;
}

function fieldAnswer({ options, several, bounds, coordinates, record }, field) {
  if (record) {
    const fields = [...field.querySelectorAll("input.field")];
    const empty = fields.find((input) => input.value.trim() === "");
    return empty ? refuse(empty, "Please fill in every field.") : fields.map((input) => input.value.trim());
  }
  if (coordinates) return numbersIn(field, coordinates);
  if (!options) return numberIn(field.querySelector("input"), bounds);
  if (several === null) {
    const list = field.querySelector("select");
    return list.value === "" ? refuse(list, "Please choose an answer to every question.") : Number(list.value);
  }
  const boxes = [...field.querySelectorAll("input")];
  const ticked = boxes.flatMap((box, place) => (box.checked ? [place] : []));
  return ticked.length > several ? refuse(boxes[ticked[several]], `Please tick at most ${several}.`) : ticked;
}

function numberIn(input, { lower, upper }) {
  const value = input.valueAsNumber ?? Number(input.value); // of a list the option
  input.removeAttribute("aria-invalid");
  if (Number.isNaN(value)) return refuse(input, "Please give a number.");
  if (value < lower || value > upper) return refuse(input, `Please give a number from ${lower} to ${upper}.`);
  return value;
}

// One report is drawn and kept: sending again after a failure sends the same one. A fresh draw for every attempt would
// let whoever sees several of them average the randomness away.
let drawn = null;

// The server's time, from the date of its answer: this device's own clock may be wrong.
let clock = null;

function serverTime() {
  return clock === null ? Date.now() : clock.then + (performance.now() - clock.since);
}

// Whether this visit has answered, in another tab for example: asked before anything is drawn.
async function arrived(task) {
  const asked = { reports: [{ id: study.dataset.report }] };
  const response = await posted(`/tasks/${encodeURIComponent(task.id)}/invitations`, JSON.stringify(asked));
  const told = await response.json().catch(() => ({}));
  if (!response.ok || !Array.isArray(told.stored)) throw new Error(told.detail ?? "The study’s server did not take it.");
  return told.stored.length > 0;
}

// What a browser says of a connection that failed is for programmers.
function posted(where, body) {
  const headers = { "content-type": "application/json" };
  return fetch(where, { method: "POST", credentials: "omit", headers, body }).catch(() => {
    throw new Error("The page could not reach the server.");
  });
}

async function send(task) {
  const { epsilon, questions } = chosen(task);
  if (drawn === null) {
    if (!ready(task)) return;
    const given = questionAnswers(task, form, places);
    if (given === null) return;
    if (!task.by_invitation && (await arrived(task))) {
      show("problem", "Nothing was sent", "An answer has arrived from this visit: one is enough.");
      return;
    }
    const report = {
      id: study.dataset.report,
      time: roundedTime(task.time_precision, serverTime()),
      token: study.dataset.token || null,
      group: "local",
      epsilon,
      payload: questionsPayload({ ...task, questions }, places, given.answers, systemWords(), given.groups),
      ...(task.phase > 2 && { phase: task.phase }),
    };
    drawn = padded(report, task.bytes.local);
    for (const field of form.querySelectorAll("input, select")) field.disabled = true;
  }
  button.disabled = true;
  const body = JSON.stringify({ reports: [drawn] });
  let told;
  try {
    const response = await posted(`/tasks/${encodeURIComponent(task.id)}/reports`, body);
    told = await response.json().catch(() => ({}));
    if (!response.ok || !Array.isArray(told.failures)) throw new Error(told.detail ?? "The study’s server did not take it.");
  } catch (problem) {
    button.disabled = false;
    button.textContent = "Send the same report again";
    show("problem", "The report may not have arrived", `${problem.message} Nothing was lost. Try again: the same report is sent.`);
    return;
  }
  if (told.failures.length > 0) {
    show("problem", "The report was not taken", told.failures[0].detail);
    why.textContent = "The study has answered: this report is not sent again.";
    why.hidden = false;
    return;
  }
  form.reset();
  answered(form);
  why.textContent = "Your report has arrived: one is enough.";
  why.hidden = false;
  show("done", "Thank you. This is the whole message that was sent:", "With it went what a browser tells every server: your address, the browser’s own name and its languages.", body);
}

// The forms of the other ways: one answer is enough.
function answered(mine) {
  for (const other of document.querySelectorAll(".choices form")) {
    if (other === mine) continue;
    for (const field of other.elements) field.disabled = true;
    const said = document.createElement("p");
    said.className = "hint";
    said.textContent = "You have answered the other way: one answer is enough.";
    other.append(said);
  }
}

// --- words that follow the chosen epsilon ---------------------------------------------------------------------------

function follow(task) {
  const { epsilon } = chosen(task);
  for (const offer of document.querySelectorAll(".offer")) offer.hidden = Number(offer.dataset.epsilon) !== epsilon;
  const notice = document.getElementById("notice");
  if (notice === null) return; // of several numbers no dots are shown
  const seen = [...document.querySelectorAll(".seen")].find((s) => Number(s.dataset.epsilon) === epsilon);
  notice.hidden = seen === undefined;
  if (seen === undefined) return;
  document.getElementById("notice-event").textContent = seen.dataset.event;
  document.getElementById("notice-epsilon").textContent = seen.dataset.epsilon;
  for (const end of ["one", "other"]) fill(end, Number(seen.dataset[end]));
  document.getElementById("try-status").textContent = "";
}

function fill(end, on) {
  const count = document.querySelector(`.dot-count[data-which="${end}"]`);
  for (const [i, dot] of [...count.parentElement.querySelectorAll("circle")].entries())
    dot.setAttribute("class", i < on ? "on" : "off");
  count.textContent = `${on} of 100`;
  count.parentElement.querySelector("svg").setAttribute("aria-label", `${on} of 100 dots are filled`);
}

// --- a hundred made-up reports --------------------------------------------------------------------------------------

// Whether a report shows the event of the table: the bit says "high", or a number lies in the upper half.
function shows({ randomiser, bounds }, end, next) {
  const { lower, upper } = bounds;
  const report = numberReport(randomiser, bounds, end === "one" ? lower : upper, next);
  return typeof report === "number" ? report > lower + (upper - lower) / 2 : report.above;
}

function simulate(task) {
  const next = systemWords();
  const { epsilon, questions } = chosen(task);
  const said = [];
  for (const end of ["one", "other"]) {
    const count = document.querySelector(`.dot-count[data-which="${end}"]`);
    const dots = count.parentElement.querySelectorAll("circle");
    let on = 0;
    for (const dot of dots) {
      const yes = shows(questions[0], end, next);
      dot.setAttribute("class", yes ? "on" : "off");
      on += Number(yes);
    }
    count.textContent = `${on} of 100`;
    said.push(on);
  }
  const at = epsilon === null ? "" : ` at ε = ${epsilon}`;
  document.getElementById("try-status").textContent =
    `Drawn${at}: ${said[0]} and ${said[1]} of 100. Made up on this page; nothing was sent.`;
}

// The form of the other choice is the browser's own. A hidden field makes what it sends as long for every answer.
function padForm(trusted, size) {
  const padding = document.createElement("input");
  padding.type = "hidden";
  padding.name = "padding";
  trusted.append(padding);
  trusted.addEventListener("submit", () => {
    padding.value = "";
    const length = new URLSearchParams(new FormData(trusted)).toString().length;
    padding.value = "x".repeat(Math.max(0, size - length));
  });
}

async function start() {
  if (!form) return;
  let task;
  try {
    const where = `/tasks/${encodeURIComponent(study.dataset.task)}`;
    const response = await fetch(where, { credentials: "omit", cache: "no-store" });
    if (!response.ok) throw new Error("no task");
    task = await response.json();
    const then = Date.parse(response.headers.get("date"));
    if (!Number.isNaN(then)) clock = { then, since: performance.now() };
  } catch {
    show("problem", "The study could not be read", "Please load this page again.");
    why.textContent = "The button needs the study’s task, which could not be read.";
    return;
  }
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send(task).catch((problem) => show("problem", "Nothing was sent", problem.message));
  });
  if (task.choices) {
    const choice = document.getElementById("local-epsilon");
    choice.addEventListener("change", () => {
      status.replaceChildren();
      follow(task);
      ready(task);
    });
    follow(task);
  }
  places = askedPlaces(task, systemWords());
  for (const i of places) form.querySelector(`.question[data-place="${i}"]`).hidden = false;
  ready(task);
  if (task.mixer) startMixed(task, study.dataset, { show, questionAnswers, promiseIn, answered });
  const trial = document.getElementById("try");
  const { bounds, form: asked, options } = task.questions[0];
  if (trial && bounds && !asked && !options) {
    trial.hidden = false;
    trial.addEventListener("click", () => simulate(task));
  }
}

const other = document.querySelector(".trusted form");
if (other) padForm(other, Number(study.dataset.formBytes));
start();
