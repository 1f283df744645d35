"use strict";
// The state is the address: #q=question&k=10&passage=id (or &query=id), so that it can be shared, and Back walks back.

const state = { asked: null, hits: null, served: null, turn: 0 };

const readAddress = () => new URLSearchParams(location.hash.slice(1));
function goTo(changes) {
  const address = readAddress();
  for (const [key, value] of Object.entries(changes)) value === null ? address.delete(key) : address.set(key, value);
  const hash = "#" + address.toString();
  if (hash !== location.hash) history.pushState(null, "", hash);
  return show();
}
const lookAt = (kind, id) => goTo({ passage: null, query: null, [kind]: id });

async function show() {
  const turn = ++state.turn;
  const address = readAddress();
  const question = address.get("q") || "", k = Number(address.get("k")) || 10;
  const kind = address.has("passage") ? "passage" : address.has("query") ? "query" : null, id = kind && address.get(kind);
  find("question").value = question;
  if ([...find("k").options].some((option) => Number(option.value) === k)) find("k").value = k;
  find("problem").hidden = true;
  forgetAnswer(question);
  find("bar").setAttribute("aria-busy", "true");
  try {
    if (!state.served) await showServed();
    if (turn !== state.turn) return;  // a question was asked meanwhile
    if (question && state.asked !== `${k} ${question}`) {
      const graph = state.served.graph;
      const answer = await ask(graph ? "compare" : "search", { question, k });
      if (turn !== state.turn) return;
      state.asked = `${k} ${question}`;
      state.answer = answer;
      forgetWhatIf();
      showRankings(answer, question, graph);
    }
    if (question && state.served.reader) readAnswer(question);  // not awaited: the rankings are there
    find("start").hidden = Boolean(question || kind);
    find("rankings").hidden = !question;
    if (!question) state.asked = null;
    if (isWhatIf() && changes.passage !== id) undoWhatIf();  // it was of the passage that was open
    if (kind) {
      const data = await ask(`graph/neighbors?kind=${kind}&id=${encodeURIComponent(id)}`);
      if (turn !== state.turn) return;
      find("node").hidden = false;
      find("main").classList.toggle("searched", Boolean(question));
      showNeighborhood(find("node"), data, { walk: walkTo, question, ...moveOf(kind, id, data), ...whatIfOf(kind, id, question) });
      find("node").prepend(closing());
      find("node").scrollTop = 0;
    } else find("node").hidden = true;
    find("main").classList.toggle("searched", Boolean(question && kind));
    document.title = question ? `${question} – gnnretrieval` : "gnnretrieval: explorer";
    find("map-link").href = kind === "passage" ? `map#passage=${encodeURIComponent(id)}` : "map";
    markChosen(kind === "passage" ? id : null);
  } catch (error) {
    if (turn !== state.turn) return;
    find("problem").textContent = error.message;
    find("problem").hidden = false;
  } finally {
    if (turn === state.turn) find("bar").setAttribute("aria-busy", "false");
  }
}

async function walkTo(kind, id) {
  await lookAt(kind, id);
  const heading = find("node").querySelector("h2");
  heading?.focus({ preventScroll: true });
  if (heading && matchMedia("(max-width: 1020px)").matches) find("node").scrollIntoView({ block: "start" });
}

function closing() {
  const button = make("button", { class: "plain close", type: "button", onclick: close }, "close");
  button.style.cssFloat = "right";
  return button;
}
function close() {
  const chosen = document.querySelector('.hit[aria-current="true"]');
  goTo({ passage: null, query: null }).then(() => (chosen || find("question")).focus());
}

async function showServed() {
  const served = await ask("health");
  if (served.passages === undefined) askForToken(); // one without the token is told no more than that it answers
  state.served = served;
  find("token-form").hidden = true;
  find("served").replaceChildren(count(served.passages, "passage"), make("br"), make("span", {}, served.encoder));
  find("map-link").hidden = !served.graph;
  find("lead").textContent = served.graph
    ? "Ask a question to see the dual-encoder's ranking beside the GNN-encoder's. Choose a passage to see its training questions and what moved it, and walk from there."
    : "This index has no graph: it can be searched, and there is nothing to compare with.";
  if (!served.passages) find("lead").textContent = "The index is empty: it holds no passages, so no question finds any.";
  const [examples, graph, update] = await Promise.all([ask("examples"), served.graph ? ask("graph") : null, served.update ? ask("update") : null]);
  if (update) showLastUpdate(update, (question) => goTo({ q: question }));
  find("offered").hidden = !examples.questions.length;
  find("offer").textContent = examples.gained ? "Questions that gained most" : "Some of the graph's own questions";
  find("examples").replaceChildren(...examples.questions.map((one) => make("li", {}, make("button", {
    type: "button", class: "card", onclick: () => goTo({ q: one.question, ...(one.passage ? { passage: one.passage } : {}) }),
  }, make("span", {}, one.question), one.after ? make("span", { class: "gain" }, `rank ${one.before ?? "below 100"} → ${one.after}`) : null))));
  if (!graph) return;
  state.served.no_what_if = graph.no_what_if;
  const share = (value) => `${(100 * value).toFixed(1)} %`;
  const tiles = [
    [graph.passages.toLocaleString("en"), "passages"], [graph.queries.toLocaleString("en"), "training questions"],
    [graph.edges.toLocaleString("en"), `edges: ${graph.k} passages a question`],
    [graph.queries_per_passage.toFixed(1), `questions a passage, at most ${graph.most_queries.toLocaleString("en")}`],
    [share(graph.share_never_found), "of passages retrieved by no question"],
  ];
  if (graph.recall !== null) tiles.push([share(graph.recall), `of questions retrieved their own passage among their ${graph.k}`]);
  find("tiles").replaceChildren(...tiles.map(([value, meaning]) => make("div", { class: "card" }, make("b", {}, value), make("span", {}, meaning))));
  find("hubs").replaceChildren("Retrieved by most questions: ", ...graph.most_found.flatMap((one, place) => [place ? ", " : "",
    make("button", { type: "button", onclick: () => lookAt("passage", one.id) }, one.id), ` (${one.queries})`]));
  find("graph").hidden = false;
}

// How a hit moved: kind, arrow and text.
function moved(from, to, depth) {
  if (from === to) return ["same", "="];
  if (from === null) return ["up", `▲ from below ${depth.toLocaleString("en")}`];
  if (to === null) return ["down", `▼ below ${depth.toLocaleString("en")}`];
  return from > to ? ["up", `▲ ${from - to}`] : ["down", `▼ ${to - from}`];
}

// Show the rankings of an answer; `what` is the answer of a what-if, whose two rankings are both the GNN-encoder's.
function showRankings(answer, question, graph, what = null) {
  const before = what ? what.before : graph ? answer.dual_encoder : [], after = what ? what.after : graph ? answer.gnn_encoder : answer.hits;
  const depth = (what || answer).depth;
  state.hits = { before, after, depth, question };
  find("columns").classList.toggle("single", !graph);
  const isUnsure = Boolean(answer.unsure && !answer.relevant?.length);  // a known question has an answer
  find("columns").classList.toggle("unsure", isUnsure);
  for (const id of ["before-column", "gutter", "moves"]) find(id).toggleAttribute("hidden", !graph);
  const [first, firstNote, second, secondNote] = what ? ["As it is", "GNN-encoder", "What if", "GNN-encoder"]
    : ["Dual-encoder", "without graph", graph ? "GNN-encoder" : answer.system, graph ? "with graph" : ""];
  find("system-before").textContent = first;
  find("system-before-note").textContent = firstNote;
  find("system").textContent = second;
  find("system-note").textContent = secondNote;
  const relevant = new Set(answer.relevant || []), titles = new Map();
  for (const hit of [...before, ...after]) titles.set(hit.title, (titles.get(hit.title) || new Set()).add(hit.id));
  const takesThumbs = state.served.feedback && !what, shown = after.map((hit) => hit.id);
  find("after").classList.toggle("rated", takesThumbs);
  const item = (hit, move, note, thumbs) => make("li", {}, make("button", {
    type: "button", class: "hit card", "data-id": hit.id, onclick: graph ? () => walkTo("passage", hit.id) : null,
  }, make("span", { class: "rank" }, `${hit.rank}`), titled(hit.title || hit.id),
  make("span", { class: "meta" },
    hit.title && titles.get(hit.title).size > 1 ? make("span", { class: "id" }, hit.id) : null,
    relevant.has(hit.id) ? make("span", { class: "relevant", title: "labelled relevant to this question" }, "✓", make("span", { class: "unseen" }, " labelled relevant")) : null,
    move ? make("span", { class: `move ${move[0]}`, title: note }, move[1], make("span", { class: "unseen" }, ` ${note}`)) : null,
    make("span", { class: "score", title: "similarity to the question; each encoder has its own scale" }, make("span", { class: "unseen" }, "score "), hit.score.toFixed(3))),
  make("span", { class: "text" }, ...marked(short(hit.sentence || hit.text, 260), question))), thumbs);
  const other = what ? ["if so", "as it is"] : ["with the graph", "without the graph"];
  const noteOf = (rank, where) => (rank === null ? `below ${depth} ${where}` : `rank ${rank} ${where}`);
  find("before").replaceChildren(...before.map((hit) => item(hit, moved(hit.rank, hit.elsewhere, depth), noteOf(hit.elsewhere, other[0]))));
  find("after").replaceChildren(...after.map((hit) => item(hit, graph ? moved(hit.elsewhere, hit.rank, depth) : null, graph ? noteOf(hit.elsewhere, other[1]) : "",
    takesThumbs ? thumbsOf(hit, question, shown) : null)));
  find("summary").textContent = what ? inWords(what) : summaryOf(answer, before, after, graph);
  find("unsure").hidden = !isUnsure;
  find("unsure").textContent = isUnsure ? unsureOf(answer) : "";
  find("rankings").hidden = false;
  reading.isWhatIf = Boolean(what);
  showAnswer();
  requestAnimationFrame(drawMoves);
}

function summaryOf(answer, before, after, graph) {
  if (!after.length) return "Nothing was found: the index is empty.";
  if (!graph) return `${count(after.length, "passage")} in ${Math.round(answer.milliseconds)} ms.`;
  const up = after.filter((hit) => hit.elsewhere === null || hit.elsewhere > hit.rank).length;
  const fresh = after.filter((hit) => hit.elsewhere === null || hit.elsewhere > after.length).length;
  const told = `${up} of the first ${after.length} moved up, ${fresh} of them from below the first ${after.length}; ${Math.round(answer.milliseconds)} ms for both rankings.`;
  if (!answer.relevant) return told;
  const best = (hits, others) => { // the others know the ranks of those that are not among the hits
    const ranks = [...hits.map((hit) => [hit.id, hit.rank]), ...others.map((hit) => [hit.id, hit.elsewhere])];
    const relevant = ranks.filter(([id, rank]) => rank !== null && answer.relevant.includes(id)).map(([, rank]) => rank);
    return relevant.length ? Math.min(...relevant) : `below ${hits.length}`;
  };
  return `${told} ✓ labelled relevant: rank ${best(before, after)} → ${best(after, before)}.${answer.in_graph
    ? " This is a training question: the graph has its label, so its gain tells nothing of new questions." : ""}`;
}

const unsureOf = (answer) => `Unsure: the best passage scores ${answer.dual_encoder[0].score.toFixed(2)} by the dual-encoder, and ${answer.share_below
  ? `only ${(100 * answer.share_below).toFixed(1)} %` : "none"} of the training questions score so low. Perhaps no passage here answers this.`;

// Ids such as package.module.name are cut at their beginning, for they differ at their ends.
const titled = (title) => make("span", { class: `title ${/\s/.test(title) ? "" : "tail"}`, title }, make("bdi", {}, title));

// What a passage's move is, for its panel.
function moveOf(kind, id, data) {
  if (kind !== "passage" || !state.hits || !state.asked) return {};
  const { before, after, depth } = state.hits;
  const now = after.find((hit) => hit.id === id), was = before.find((hit) => hit.id === id);
  if (!now && !was) return {};
  const from = now ? now.elsewhere : was.rank, to = now ? now.rank : was.elsewhere;
  const told = (rank) => (rank === null ? `below ${depth.toLocaleString("en")}` : `rank ${rank}`);
  const direction = moved(from, to, depth)[0];
  const attends = data.neighbors.some((edge) => edge.attention);
  const why = now?.matched ? `It ${{ up: "moved up", down: "moved down", same: "stayed" }[direction]}, ${from === to ? `at ${told(to)}` : `from ${told(from)} to ${told(to)}`}. Its vector for the training question “${now.matched}” is nearest to your question.`
    : !attends && from !== to ? `It moved from ${told(from)} to ${told(to)}, and no training question did that: ${data.neighbors.length
    ? "training kept no messages from questions, but a linear head, which moves all passages." : "it has none. Others moved, or a linear head moved it, as all passages."}` : { up: `It moved up, from ${told(from)} to ${told(to)}: its vector took in these questions, by the width of their lines. Words of yours are marked.`,
    down: `It moved down, from ${told(from)} to ${told(to)}: others came closer to your question, or its own questions pulled it elsewhere.`,
    same: `It stayed at ${told(to)}.` }[direction];
  return { facts: [["rank", `${from ?? `> ${depth}`} → ${to ?? `> ${depth}`}`, "Without the graph → with it", direction]], why };
}

function markChosen(id) {
  for (const hit of document.querySelectorAll(".hit")) hit.setAttribute("aria-current", String(hit.dataset.id === id));
  drawMoves();
}

// Lines from a passage on the left to itself on the right; to the edge where it is not on the other side.
function drawMoves() {
  const svg = find("moves");
  if (find("rankings").hidden || find("moves").hasAttribute("hidden")) return;
  const frame = svg.getBoundingClientRect();
  const spots = (id) => new Map([...find(id).querySelectorAll(".hit")].map((hit) => [hit.dataset.id, hit.getBoundingClientRect()]));
  const left = spots("before"), right = spots("after");
  const lines = [];
  const line = (id, x0, y0, x1, y1, direction) => {
    const bend = (x1 - x0) / 2;
    lines.push(make("svg:path", { class: `${direction} ${document.querySelector(`.hit[aria-current="true"][data-id="${CSS.escape(id)}"]`) ? "chosen" : ""}`,
      d: `M${x0} ${y0}C${x0 + bend} ${y0} ${x1 - bend} ${y1} ${x1} ${y1}` }));
  };
  const y = (spot) => spot.top + spot.height / 2 - frame.top;
  for (const [id, spot] of left) {
    const other = right.get(id);
    if (other) line(id, spot.right - frame.left, y(spot), other.left - frame.left, y(other), y(other) < y(spot) ? "up" : y(other) > y(spot) ? "down" : "same");
    else line(id, spot.right - frame.left, y(spot), spot.right - frame.left + 30, frame.height + 6, "down");
  }
  for (const [id, spot] of right) if (!left.has(id)) line(id, spot.left - frame.left - 30, frame.height + 6, spot.left - frame.left, y(spot), "up");
  svg.replaceChildren(...lines);
}

find("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  const question = find("question").value.trim();
  if (!question) return;
  forgetFailure();
  goTo({ q: question, k: find("k").value, passage: null, query: null }).then(() => document.querySelector("#after .hit")?.focus({ preventScroll: true }));
});
find("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  keepToken();
  state.served = state.asked = null;
  forgetFailure();
  show();
});
find("k").addEventListener("change", () => { if (readAddress().get("q")) goTo({ k: find("k").value }); });
document.querySelector(".brand").addEventListener("click", (event) => {
  event.preventDefault();
  goTo({ q: null, passage: null, query: null }).then(() => find("question").focus());
});
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const here = document.activeElement;
  if (event.key === "/" && !/^(INPUT|SELECT|TEXTAREA)$/.test(here.tagName)) {
    event.preventDefault();
    find("question").focus();
    find("question").select();
  } else if (event.key === "Escape") {
    if (!find("node").hidden) close();
    else here.blur();
  } else if (here.classList?.contains("hit")) {
    const columns = ["before", "after"].map((id) => [...find(id).querySelectorAll(".hit")]);
    const column = columns.findIndex((hits) => hits.includes(here)), row = columns[column].indexOf(here);
    const to = { ArrowDown: columns[column][row + 1], ArrowUp: columns[column][row - 1],
      ArrowLeft: columns[0][Math.min(row, columns[0].length - 1)], ArrowRight: columns[1][Math.min(row, columns[1].length - 1)] }[event.key];
    if (to) { event.preventDefault(); to.focus(); }
  } else if (here === find("question") && event.key === "ArrowDown") document.querySelector("#after .hit")?.focus();
});
window.addEventListener("popstate", show);
window.addEventListener("hashchange", show);
new ResizeObserver(drawMoves).observe(find("columns"));
show().then(() => { if (find("node").hidden && find("token-form").hidden && !readAddress().get("q")) find("question").focus(); });
