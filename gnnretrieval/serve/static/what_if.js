"use strict";
// What if: training questions ticked off or typed, and λ. The server ranks again and keeps nothing; neither does the page.

const changes = { passage: null, without: new Set(), asked: [], scale: 1, turn: 0 };
const isWhatIf = () => Boolean(changes.without.size || changes.asked.length || changes.scale !== 1);
function forgetWhatIf() {
  Object.assign(changes, { passage: null, asked: [], scale: 1, turn: changes.turn + 1 });
  changes.without.clear();
}
function undoWhatIf() {
  forgetWhatIf();
  if (state.answer) showRankings(state.answer, state.answer.question, true);
}

// What the panel of a passage has for it: a box on each training question, and controls.
function whatIfOf(kind, id, question) {
  if (kind !== "passage") return {};
  const why = state.served.no_what_if || (question ? null : "Ask a question to see what the ranks would be with other training questions.");
  if (why) return { controls: make("p", { class: "soft what-if-none" }, why) };
  const said = make("p", { class: "soft", id: "what-if-said", role: "status" });
  const added = make("ul", { class: "asked" });
  const rank = () => rankAgain(id, question, said);
  const showAdded = () => added.replaceChildren(...changes.asked.map((text) => make("li", {}, `+ ${text} `, make("button", {
    class: "plain", type: "button", "aria-label": `remove ${text}`, onclick: () => {
      changes.asked = changes.asked.filter((one) => one !== text);
      showAdded();
      rank();
    } }, "remove"))));
  const typed = make("input", { id: "what-if-question", type: "text", maxlength: "1000", autocomplete: "off", placeholder: "What if someone asked …" });
  const scale = make("input", { id: "what-if-scale", type: "range", min: "0", max: "3", step: "0.25", value: String(changes.scale) });
  const shown = make("output", { for: "what-if-scale" }, `× ${changes.scale}`);
  scale.addEventListener("input", () => {
    changes.scale = Number(scale.value);
    shown.textContent = `× ${changes.scale}`;
    rank();
  });
  const form = make("form", { class: "what-if", "aria-label": "What if", onsubmit: (event) => {
    event.preventDefault();
    const text = typed.value.trim();
    if (!text || changes.asked.includes(text)) return;
    changes.asked.push(text);
    typed.value = "";
    showAdded();
    rank();
  } },
  make("b", {}, "What if"), make("label", { class: "unseen", for: "what-if-question" }, "A training question for this passage"), typed, make("button", { type: "submit" }, "Add"),
  make("span", { class: "scale" }, make("label", { for: "what-if-scale", title: "Factor on λ, or with layer = linear on the weights of all messages, for this passage" }, "λ"), scale, shown),
  make("button", { class: "plain", type: "button", onclick: () => {
    undoWhatIf();
    for (const box of find("node").querySelectorAll(".tick")) box.checked = true;
    scale.value = "1";
    shown.textContent = "× 1";
    said.textContent = "";
    showAdded();
  } }, "undo"), added, said);
  showAdded();
  return { controls: form, tick: (edge) => {
    const box = make("input", { class: "tick", type: "checkbox", "aria-label": `in the graph: ${short(edge.text, 80)}`, title: "In the graph. Tick off: what if it had not been asked?", onchange: () => {
      changes.without[box.checked ? "delete" : "add"](edge.id);
      rank();
    } });
    box.checked = !changes.without.has(edge.id);
    return box;
  } };
}

async function rankAgain(id, question, said) {
  const turn = ++changes.turn;
  changes.passage = id;
  if (!isWhatIf()) return undoWhatIf();
  await new Promise((done) => setTimeout(done, 120));  // a slider says many values
  if (turn !== changes.turn) return;
  try {
    const what = await ask("what-if", { question, k: Number(find("k").value), passage: id, without: [...changes.without], asked: changes.asked, scale: changes.scale });
    if (turn !== changes.turn) return;
    said.textContent = `Its vector has cosine ${what.touched[0].cosine.toFixed(3)} to the one in the index.`;
    showRankings(state.answer, question, true, what);
    markChosen(id);
  } catch (error) {
    if (turn === changes.turn) said.textContent = error.message;
  }
}

// A what-if in words.
function inWords(what) {
  const told = (rank) => (rank === null ? `below ${what.depth.toLocaleString("en")}` : `rank ${rank}`);
  const [own, ...others] = what.touched;
  return `What if: ${told(own.before)} → ${told(own.after)} for ${own.id}.${others.length ? ` ${count(others.length, "other passage")} of these questions recomputed.` : ""} Nothing is saved.`;
}
