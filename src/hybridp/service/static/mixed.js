// The choice in between: randomise on this page, seal the report for the study, and hand it to the mixer.
import { padded, reportId, supported, systemWords } from "./randomise.js";
import { checkQuestions, questionsPayload } from "./questions.js";
import { canSeal, fromText, seal, text } from "./seal.js";

async function ask(where, document) {
  const posted = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(document) };
  const response = await fetch(where, { credentials: "omit", cache: "no-store", ...(document && posted) }).catch(() => {
    throw new Error("The page could not reach the server.");
  });
  const told = await response.json().catch(() => ({}));
  if (!response.ok) {
    const problem = new Error(told.detail ?? "It was not taken.");
    problem.final = response.status >= 400 && response.status < 500 && response.status !== 429;
    throw problem;
  }
  return told;
}

// The mixer must have been told what this page was: by a key of its own each report would be told apart.
async function mustAgree(where, stated) {
  const told = await ask(where);
  if (["key", "batch", "report_key"].every((name) => told[name] === stated[name])) return;
  const problem = new Error("The study and its mixer say different things of keys and batches. Please tell the people who run them.");
  problem.final = true;
  throw problem;
}

// `page` has what both programs of the page use.
export async function startMixed(task, { token, report: name }, page) {
  const form = document.getElementById("shuffled-form");
  if (!form) return;
  const button = document.getElementById("shuffled-send");
  const status = document.getElementById("shuffled-status");
  const why = document.getElementById("shuffled-why");
  const { questions: how, url, bytes, report_key } = task.mixer;
  const mixed = { ...task, questions: task.questions.map((question, i) => ({ ...question, ...how[i] })) };
  const places = mixed.questions.map((_, i) => i);
  const say = (kind, title, said, detail) => page.show(kind, title, said, detail, status);
  let problem = how.every(({ randomiser }) => supported(randomiser)) ? "" : "Reports of this kind cannot be made in a browser.";
  if (problem === "" && !(await canSeal())) problem = "This browser is too old to seal a report: please choose another way.";
  if (problem === "") {
    try {
      checkQuestions(mixed, page.promiseIn(document.getElementById("shuffled-promise")));
    } catch (error) {
      problem = `This page will not randomise your answer: ${error.message}. Please tell the people who run the study.`;
      say("problem", "Nothing was sent", problem);
    }
  }
  button.disabled = problem !== "";
  why.textContent = problem;
  why.hidden = problem === "";

  // Drawn and sealed once: sending again after a failure sends the same one, and asks for the same ticket.
  let kept = null;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (button.disabled) return;
    if (kept === null) {
      const given = page.questionAnswers(mixed, form, places);
      if (given === null) return;
      const report = { id: reportId(), payload: questionsPayload(mixed, places, given.answers, systemWords()) };
      const body = new TextEncoder().encode(JSON.stringify(padded(report, bytes)));
      kept = { name, report, sealed: text(await seal(body, fromText(report_key), task.id)) };
      for (const field of form.querySelectorAll("input, select")) field.disabled = true;
    }
    button.disabled = true;
    try {
      const asked = { id: kept.name, token: token || null };
      const mixer = `${url.replace(/\/$/, "")}/mix/${encodeURIComponent(task.id)}`;
      await mustAgree(mixer, task.mixer);
      const { ticket } = await ask(`/tasks/${encodeURIComponent(task.id)}/ticket`, asked);
      await ask(mixer, { ticket, sealed: kept.sealed });
    } catch (error) {
      if (error.final) {
        say("problem", "The report was not taken", error.message);
        return;
      }
      button.disabled = false;
      button.textContent = "Send the same report again";
      say("problem", "The report may not have arrived", `${error.message} Nothing was lost. Try again: the same report is sent.`);
      return;
    }
    form.reset();
    page.answered(form);
    why.textContent = "The mixer has your report: one is enough.";
    why.hidden = false;
    say("done", "Thank you. This is what was sealed and sent:", "The mixer got it sealed, with a ticket that works once.", JSON.stringify(kept.report));
  });
}
