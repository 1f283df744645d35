"use strict";
// The answer that a reader found in the best passages: a line above the rankings, and a mark in its passage.

const reading = { question: null, answer: null, problem: null, turn: 0, isWhatIf: false };
const BEFORE = 12, AFTER = 200;  // characters of the passage that are shown around an answer: a card is narrow

// What was read for another question is shown no longer, and what is still read for it never.
function forgetAnswer(question) {
  if (question === reading.question) return;
  Object.assign(reading, { question: null, answer: null, problem: null, turn: reading.turn + 1 });
  showAnswer();
}
const forgetFailure = () => { if (reading.problem) forgetAnswer(null); };

async function readAnswer(question) {
  if (question === reading.question) return;
  const turn = ++reading.turn;
  Object.assign(reading, { question, answer: null, problem: null });
  showAnswer();
  try {
    const answer = await ask("answer", { question });
    if (turn !== reading.turn) return;  // another question was asked meanwhile
    reading.answer = answer;
  } catch (error) {
    if (turn !== reading.turn) return;
    reading.problem = `No answer. ${error.message}`;
  }
  showAnswer();
}

// Show what there is now. A what-if has no answer: the passages were read as they are ranked.
function showAnswer() {
  const { question, answer, problem, isWhatIf } = reading, line = find("answer");
  for (const hit of document.querySelectorAll(".hit.answering")) {
    hit.classList.remove("answering");
    hit.querySelector("mark.answer").replaceWith(hit.querySelector("mark.answer").textContent);
  }
  for (const row of document.querySelectorAll(".answering-row")) row.classList.remove("answering-row");
  line.hidden = question === null || isWhatIf;
  if (line.hidden) return;
  if (!answer) return line.replaceChildren(make("p", { class: "soft" }, problem || "Reading the best passages …"));
  const hit = [...find("after").querySelectorAll(".hit")].find((one) => one.dataset.id === answer.passage);
  const name = `${hit ? hit.querySelector(".rank").textContent : answer.rank}. ${answer.title || answer.passage}`;
  const walk = hit ? () => jumpTo(hit) : state.served.graph ? () => walkTo("passage", answer.passage) : null;
  line.replaceChildren(
    make("p", {}, make("b", {}, short(answer.answer, 300)), " ", make("span", { class: "soft number",
      title: "Of this span among all spans of the passages that were read" }, `probability ${answer.probability.toFixed(2)}`)),
    make("p", { class: "soft" }, "from ", walk ? make("button", { class: "plain", type: "button", onclick: walk }, name) : name, hit ? null : ", not shown below"));
  if (hit) {
    hit.classList.add("answering");
    hit.querySelector(".text").replaceChildren(...aroundAnswer(answer));
    const row = [...find("after").children].indexOf(hit.parentElement);
    for (const id of ["before", "after"]) find(id).children[row]?.classList.add("answering-row");  // both grow alike
  } else line.append(make("p", { class: "text" }, ...aroundAnswer(answer)));
}

function jumpTo(hit) {
  hit.scrollIntoView({ block: "center" });
  hit.focus({ preventScroll: true });
}

// The passage's text around its answer, as nodes. The server counts code points, and a string here has UTF-16's units.
function aroundAnswer({ text, start, end, question }) {
  const characters = [...text], part = (from, to) => characters.slice(from, to).join("");
  let from = Math.max(0, start - BEFORE);
  while (from && from < start && /\S/.test(characters[from - 1])) from++;  // to the beginning of a word
  return [from ? "…" : "", ...marked(part(from, start), question), make("mark", { class: "answer" }, part(start, end)),
    ...marked(part(end, end + AFTER), question), end + AFTER < characters.length ? "…" : ""];
}
