"use strict";
// The map: pan, zoom, choose and search. What is chosen is also a list, which the keyboard reaches.

// Items in the list, arrows at once, pixels around the pointer, and milliseconds from before to after.
const LISTED = 200, ARROWS = 300, MOST_MOVED = 100, REACH = 12, SLOW = 700;
const REST = 150, FRAME = 25; // milliseconds without a move until all points are drawn, and that a frame may take meanwhile
const view = { transform: mapLibraries.zoomIdentity, way: 1, when: "after", hovered: null, chosen: [], lasso: null, wide: 0, tall: 0, asked: 0, every: 1 };
const texts = { passage: new Map(), question: new Map() };
const calm = matchMedia("(prefers-reduced-motion: reduce)");
const picture = find("picture"), over = find("over"), pen = over.getContext("2d");
let source, points, figures, places, painter, extent, colours, rowsOf, waiting = false;

const share = (value) => `${(100 * value).toFixed(1)} %`;
const many = (value) => value.toLocaleString("en");
const same = (one, other) => one && other && one.kind === other.kind && one.at === other.at;
const rowOf = ({ kind, at }) => points[kind].rows[at];
const textOf = (item) => texts[item.kind].get(rowOf(item));
const movedOf = (item) => (item.kind === "passage" ? points.passage.moved[item.at] : 0);

/* From points to the screen and back. */
const unit = () => 0.92 * Math.min(view.wide / extent.size[0], view.tall / extent.size[1]);
function place(item, when = null) {
  const { before, after } = points[item.kind], way = when === "before" ? 0 : when === "after" ? 1 : view.way;
  return screen([0, 1].map((axis) => before[2 * item.at + axis] + way * (after[2 * item.at + axis] - before[2 * item.at + axis])));
}
const screen = ([x, y]) => view.transform.apply([view.wide / 2 + (x - extent.middle[0]) * unit(), view.tall / 2 - (y - extent.middle[1]) * unit()]);
function ofScreen(at) {
  const [x, y] = view.transform.invert(at);
  return [extent.middle[0] + (x - view.wide / 2) / unit(), extent.middle[1] - (y - view.tall / 2) / unit()];
}

/* Drawing: the points by WebGL, and over them arrows, rings and the lasso. */
function draw() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => { waiting = false; paint(); });
}

// While the map moves, a slow machine draws every second point, every fourth and so on; all of them once it rests.
const move = () => { view.moving = true; };
function restSoon() { // counted from a frame that was painted: a slow machine may take longer than REST for one
  clearTimeout(view.resting);
  view.resting = setTimeout(() => { view.moving = false; draw(); }, REST);
}
async function keepPace(every) {
  if (view.timing) return;
  view.timing = true;
  const took = await painter.drawn();
  if (took > FRAME) view.every = STEPS.find((step) => (took * every) / step <= FRAME) || STEPS.at(-1);
  else if (took < FRAME / 4 && every === view.every) view.every = Math.max(1, every / 2);
  view.timing = false;
}

function paint() {
  if (!points || !view.wide) return;
  const dense = points.passage.rows.length, ratio = devicePixelRatio;
  const [left, top] = screen([0, 0]), across = unit() * view.transform.k;
  const size = Math.min(9, Math.max(2.8, 0.55 * Math.sqrt((view.wide * view.tall) / dense))) * Math.min(2.2, view.transform.k ** 0.35);
  const every = view.moving ? view.every : 1, asked = points.question.rows.length;
  const larger = ratio * (1 + 0.15 * Math.log2(every));
  const diamond = Math.min(1.7 * size, Math.max(4, 0.5 * Math.sqrt((view.wide * view.tall) / (asked + 1)) * view.transform.k ** 0.35));
  painter?.paint({
    every,
    scale: [(2 * across) / view.wide, (2 * across) / view.tall], offset: [(2 * left) / view.wide - 1, 1 - (2 * top) / view.tall],
    way: view.way, size: size * larger, faded: view.chosen.length ? 0.3 : dense > 20_000 ? 0.7 : 0.9, colours,
    questions: find("questions").checked ? { size: diamond * larger, faded: asked > 1000 ? 0.35 : 1 } : null,
  });
  if (painter && (view.moving || !view.painted)) keepPace(every);
  if (view.moving) restSoon();
  paintOver(ratio, size);
  if (!view.painted) { // it is on the screen when the next frame begins
    view.painted = true;
    requestAnimationFrame(() => { performance.mark("map-painted"); document.body.dataset.painted = "true"; });
  }
}

// Arrows, rings and the lasso.
function paintOver(ratio, size) {
  const items = view.hovered ? [view.hovered, ...view.chosen] : view.chosen;
  const moving = [...(find("arrows").checked ? mostMoved() : []), ...items.filter((item) => item.kind === "passage").slice(0, ARROWS)];
  const isEmpty = !items.length && !moving.length && !view.lasso;
  if (isEmpty && view.isOverEmpty) return; // a canvas that is touched is composed again
  view.isOverEmpty = isEmpty;
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, view.wide, view.tall);
  pen.strokeStyle = pen.fillStyle = colours.ink;
  pen.globalAlpha = moving.length > 30 ? 0.4 : 0.75;
  for (const item of moving) arrow(place(item, "before"), place(item, "after"), 1.2);
  pen.globalAlpha = 1;
  if (view.hovered?.kind === "passage") arrow(place(view.hovered, "before"), place(view.hovered, "after"), 2.4);
  for (const item of items.slice(0, ARROWS)) ring(place(item), size, same(item, view.hovered) ? 2.5 : 1);
  if (view.lasso) outline(view.lasso);
}

const mostMoved = () => Array.from({ length: Math.min(MOST_MOVED, points.passage.rows.length) }, (_, back) => ({ kind: "passage", at: points.passage.rows.length - 1 - back })).filter((item) => movedOf(item) > 0);

function arrow([x0, y0], [x1, y1], width) {
  const length = Math.hypot(x1 - x0, y1 - y0);
  if (length < 2) return;
  const head = Math.min(8, length / 2), angle = Math.atan2(y1 - y0, x1 - x0);
  const corner = (turn) => [x1 - head * Math.cos(angle + turn), y1 - head * Math.sin(angle + turn)];
  pen.lineWidth = width;
  pen.beginPath();
  pen.moveTo(x0, y0);
  pen.lineTo(x1 - head * 0.7 * Math.cos(angle), y1 - head * 0.7 * Math.sin(angle));
  pen.stroke();
  pen.beginPath();
  pen.moveTo(x1, y1);
  pen.lineTo(...corner(0.45));
  pen.lineTo(...corner(-0.45));
  pen.fill();
}
function ring([x, y], size, width) {
  pen.lineWidth = width;
  pen.strokeStyle = colours.ink;
  pen.beginPath();
  pen.arc(x, y, size * 0.7 + 3, 0, 2 * Math.PI);
  pen.stroke();
}
function outline(corners) {
  pen.beginPath();
  corners.forEach(([x, y], number) => (number ? pen.lineTo(x, y) : pen.moveTo(x, y)));
  pen.closePath();
  pen.globalAlpha = 0.12;
  pen.fill();
  pen.globalAlpha = 1;
  pen.lineWidth = 1.5;
  pen.stroke();
}

function readColours() {
  const style = getComputedStyle(document.documentElement);
  const parts = (name) => [1, 3, 5].map((from) => parseInt(style.getPropertyValue(name).trim().slice(from, from + 2), 16) / 255);
  colours = { passage: parts("--passage"), still: parts("--still"), question: parts("--query"), chosen: parts("--chosen"), ink: style.getPropertyValue("--ink") };
  draw();
}

function resize() {
  const { width, height } = find("plot").getBoundingClientRect();
  [view.wide, view.tall] = [width, height];
  for (const canvas of [picture, over]) {
    canvas.width = Math.round(width * devicePixelRatio);
    canvas.height = Math.round(height * devicePixelRatio);
  }
  paint();
}

/* Before and after. */
function show(when) {
  view.when = when;
  const from = view.way, to = when === "after" ? 1 : 0, begun = performance.now();
  const turn = (view.turn = (view.turn || 0) + 1);
  const step = (now) => {
    if (turn !== view.turn) return;
    const gone = calm.matches ? 1 : Math.min(1, Math.max(0, (now - begun) / SLOW)), eased = gone * gone * (3 - 2 * gone);
    view.way = from + (to - from) * eased;
    if (gone < 1) move();
    paint();
    if (gone < 1) requestAnimationFrame(step);
  };
  step(begun);
}

/* Texts, on demand. */
async function fetchTexts(items) {
  for (const kind of ["passage", "question"]) {
    const rows = items.filter((item) => item.kind === kind && !textOf(item)).map(rowOf);
    for (const one of rows.length ? await source.texts(kind, rows) : []) texts[kind].set(one.row, one);
  }
}
const nameOf = (item) => { const text = textOf(item); return text ? text.title || (item.kind === "question" ? text.text : text.id) : `${item.kind} ${many(rowOf(item) + 1)}`; };
const told = (item) => (item.kind === "question" ? "training question" : movedOf(item) ? `displacement ${movedOf(item).toFixed(3)}` : "did not move");

/* Under the pointer. */
function under(at) {
  const [x, y] = ofScreen(at), radius = REACH / (unit() * view.transform.k);
  const kinds = find("questions").checked ? ["passage", "question"] : ["passage"];
  const found = kinds.map((kind) => ({ kind, at: places.nearest(kind, view.when, x, y, radius) })).filter((item) => item.at >= 0);
  const far = (item) => { const [px, py] = place(item); return Math.hypot(px - at[0], py - at[1]); };
  return found.sort((one, other) => far(one) - far(other))[0] || null;
}

async function hover(item) {
  if (same(item, view.hovered) || (!item && !view.hovered)) return;
  view.hovered = item;
  over.style.cursor = item ? "pointer" : "";
  for (const one of find("list").children) one.classList.toggle("lit", Boolean(item) && one.dataset.item === `${item.kind} ${item.at}`);
  draw();
  showTip();
  if (!item || textOf(item)) return;
  const asked = ++view.asked;
  await new Promise((go) => setTimeout(go, 60)); // a pointer that passes by asks for nothing
  if (asked !== view.asked || !same(item, view.hovered)) return;
  await trying(() => fetchTexts([item]));
  if (same(item, view.hovered)) showTip();
}

function showTip() {
  const tip = find("tip"), item = view.hovered;
  tip.hidden = !item;
  if (!item) return;
  const text = textOf(item);
  tip.replaceChildren(make("b", {}, short(nameOf(item), 120)), make("span", { class: "soft" }, told(item)), text && item.kind === "passage" ? make("p", {}, short(text.text, 180)) : null);
  const [x, y] = place(item), box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(view.wide - box.width - 4, x + 14 + box.width > view.wide ? x - box.width - 14 : x + 14))}px`;
  tip.style.top = `${Math.max(4, Math.min(view.tall - box.height - 4, y + 14))}px`;
}

/* What is chosen, as a list too. */
async function choose(items, said) {
  view.chosen = items;
  painter?.choose(items);
  draw();
  find("clear").hidden = !items.length;
  const most = mostMoved().slice(0, 20), meanwhile = most.length ? "Moved most" : "No passage moved along the graph";
  await list(items.length ? items : most, said || (items.length ? `${many(items.length)} chosen` : meanwhile));
}

async function list(items, said) {
  const sorted = [...items].sort((one, other) => movedOf(other) - movedOf(one)), shown = sorted.slice(0, LISTED);
  const turn = (view.listed = (view.listed || 0) + 1);
  await trying(() => fetchTexts(shown));
  if (turn !== view.listed) return;
  find("said").textContent = said + (sorted.length > shown.length ? `; the ${LISTED} that moved most are listed` : "");
  find("list").replaceChildren(...shown.map((item) => make("li", { "data-item": `${item.kind} ${item.at}` },
    make("button", { class: `item ${item.kind}`, type: "button", "aria-expanded": "false", onclick: (event) => open(event.currentTarget, item),
      onfocus: () => { bring(item); hover(item); }, onblur: () => hover(null), onmouseenter: () => hover(item), onmouseleave: () => hover(null) },
    make("i", { "aria-hidden": "true" }), make("span", { class: "words" }, short(nameOf(item), 140), item.kind === "question" ? make("span", { class: "unseen" }, ", training question") : null),
    item.kind === "passage" ? make("span", { class: "share", title: "displacement" }, movedOf(item).toFixed(3)) : null))));
}

function open(button, item) {
  const was = button.getAttribute("aria-expanded") === "true", text = textOf(item);
  for (const other of find("list").querySelectorAll('[aria-expanded="true"]')) { other.setAttribute("aria-expanded", "false"); other.nextElementSibling?.remove(); }
  if (was) return;
  button.setAttribute("aria-expanded", "true");
  const why = source.explorer && item.kind === "passage" && text ? make("a", { href: source.explorer(text.id) }, "Why it moved") : null;
  button.after(make("div", { class: "body" }, make("p", {}, make("b", {}, text ? text.id : nameOf(item)), ` · ${told(item)}`),
    make("p", {}, text ? text.text : "This page does not have its text."), why));
}

// Move the view so that a point is in it.
function bring(item) {
  const [x, y] = place(item), edge = 30;
  if (x > edge && y > edge && x < view.wide - edge && y < view.tall - edge) return;
  const chosen = mapLibraries.select(over), [left, top] = [view.wide / 2 - x, view.tall / 2 - y];
  zooming.translateBy(chosen, left / view.transform.k, top / view.transform.k);
}

async function search(name) {
  const found = await source.named(name);
  const items = found.map((one) => { texts.passage.set(one.row, one); return rowsOf.get(one.row); }).filter((at) => at !== undefined).map((at) => ({ kind: "passage", at }));
  await choose(items, items.length ? `${many(items.length)} called “${name}”` : found.length ? `“${name}” is not among the points drawn` : `No passage is called “${name}”`);
  if (items.length) bring(items[0]);
}

/* Pan, zoom and lasso. */
const zooming = mapLibraries.zoom().scaleExtent([0.5, 400])
  .filter((event) => !event.button && (event.type === "wheel" || !(find("lasso").getAttribute("aria-pressed") === "true" || event.shiftKey)))
  .on("zoom", (event) => { view.transform = event.transform; move(); draw(); if (view.hovered) showTip(); });

const at = (event) => { const box = over.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
const lassoing = (event) => find("lasso").getAttribute("aria-pressed") === "true" || event.shiftKey;

over.addEventListener("pointerdown", (event) => {
  if (event.button || !lassoing(event) || !places) return;
  view.lasso = [at(event)];
  over.setPointerCapture(event.pointerId);
});
over.addEventListener("pointermove", (event) => {
  if (!places) return;
  if (view.lasso) { view.lasso.push(at(event)); draw(); } else if (event.pointerType === "mouse" && !event.buttons) hover(under(at(event)));
});
over.addEventListener("pointerup", (event) => {
  const corners = view.lasso;
  view.lasso = null;
  if (!corners) return;
  if (corners.length < 3) return draw();
  const around = corners.map(ofScreen), kinds = find("questions").checked ? ["passage", "question"] : ["passage"];
  view.justLassoed = true;
  choose(kinds.flatMap((kind) => places.inside(kind, view.when, around).map((at) => ({ kind, at }))));
});
over.addEventListener("pointercancel", () => { view.lasso = null; draw(); });
over.addEventListener("pointerleave", () => hover(null));
over.addEventListener("click", (event) => {
  if (view.justLassoed) { view.justLassoed = false; return; }
  if (!places) return;
  const item = under(at(event)), held = event.ctrlKey || event.metaKey;
  if (!item) return held ? null : choose([]);
  const others = held ? view.chosen.filter((one) => !same(one, item)) : [];
  choose(held && others.length < view.chosen.length ? others : [...others, item]);
  hover(item);
});
over.addEventListener("keydown", (event) => {
  const chosen = mapLibraries.select(over), step = 60 / view.transform.k;
  const moves = { ArrowLeft: [step, 0], ArrowRight: [-step, 0], ArrowUp: [0, step], ArrowDown: [0, -step] };
  if (moves[event.key]) zooming.translateBy(chosen, ...moves[event.key]);
  else if (event.key === "+" || event.key === "=") zooming.scaleBy(chosen, 1.5);
  else if (event.key === "-") zooming.scaleBy(chosen, 1 / 1.5);
  else if (event.key === "0") zooming.transform(chosen, mapLibraries.zoomIdentity);
  else return;
  event.preventDefault();
});

find("list").addEventListener("keydown", (event) => {
  const items = [...find("list").querySelectorAll(".item")], to = items[items.indexOf(document.activeElement) + { ArrowDown: 1, ArrowUp: -1 }[event.key]];
  if (to) { event.preventDefault(); to.focus(); }
});
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/" && document.activeElement.tagName !== "INPUT") { event.preventDefault(); find("name").focus(); }
  else if (event.key === "Escape") { setLasso(false); if (places) choose([]); }
});
function setLasso(on) {
  find("lasso").setAttribute("aria-pressed", String(on));
  find("hint").textContent = on ? "Draw around points." : "";
}

for (const one of document.querySelectorAll('input[name="when"]')) one.addEventListener("change", () => show(one.value));
for (const id of ["questions", "arrows"]) find(id).addEventListener("change", () => { hover(null); draw(); });
find("lasso").addEventListener("click", () => setLasso(find("lasso").getAttribute("aria-pressed") !== "true"));
find("whole").addEventListener("click", () => zooming.transform(mapLibraries.select(over), mapLibraries.zoomIdentity));
find("clear").addEventListener("click", () => choose([]));
find("search").addEventListener("submit", (event) => {
  event.preventDefault();
  const name = find("name").value.trim();
  if (name && places) trying(() => search(name));
});
find("token-form")?.addEventListener("submit", (event) => { event.preventDefault(); keepToken(); begin(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", readColours);

/* The beginning. */
async function trying(job) {
  try {
    await job();
    find("problem").hidden = true;
  } catch (error) {
    find("problem").textContent = error.message;
    find("problem").hidden = false;
  }
}

function sentences() {
  const of = (drawn, all, what) => (drawn < all ? `${many(drawn)} of ${many(all)} ${what}, drawn at random` : `${many(all)} ${what}`);
  const kept = figures.variance_kept === null
    ? "The projection is UMAP: it keeps neighbourhoods, and neither distances nor directions."
    : `The two axes keep ${share(figures.variance_kept)} of the variance of all dimensions (PCA): points that lie together here may be far apart.`;
  const arrows = figures.displacement_kept === null ? "" : ` Arrows show ${share(figures.displacement_kept)} of the squared length of all displacements.`;
  const head = figures.after_head ? " All vectors are those after the linear head that training learned, which maps passages and questions alike: arrows show what the messages along the graph add." : "";
  const still = figures.share_moved ? "" : " Messages along the graph turned no passage's vector.";
  return `${of(figures.passages, figures.all_passages, "passages")}; ${of(figures.questions, figures.all_questions, "training questions")}. ${kept}${arrows} Displacement is the cosine distance of a passage's vectors before and after, in all dimensions: 0 where it did not move.${head}${still}`;
}

const begin = () => trying(async () => {
  source = find("data") ? mapOfPage() : mapOfServer();
  const read = await source.read();
  if (find("token-form")) find("token-form").hidden = true;
  figures = read.figures;
  points = readPoints(read.buffer, figures.passages, figures.questions);
  rowsOf = new Map(Array.from(points.passage.rows, (row, at) => [row, at]));
  extent = extentOf(points);
  places = placesOf(points);
  painter = pointPainter(picture, points);
  picture.addEventListener("webglcontextrestored", draw);
  find("no-webgl").hidden = painter !== null;
  find("about").textContent = sentences();
  mapLibraries.select(over).call(zooming);
  readColours();
  new ResizeObserver(resize).observe(find("plot"));
  await choose([]);
  const wanted = new URLSearchParams(location.hash.slice(1)).get("passage");
  if (wanted) await search(wanted);
});
begin();
