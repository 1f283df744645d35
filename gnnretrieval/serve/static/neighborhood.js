"use strict";
// One node of the graph, its neighbours and theirs: a picture, and the same as a list. For the explorer and for the
// file of `graph view`, where nothing can be walked to.

const figure = (value) => Math.abs(value) < 0.0005 ? "0" : value.toFixed(value && Math.abs(value) < 0.095 ? 3 : 2);
const count = (value, noun) => `${value.toLocaleString("en")} ${value === 1 ? noun : noun.endsWith("y") ? noun.slice(0, -1) + "ies" : noun + "s"}`;
const otherKind = (kind) => (kind === "passage" ? "query" : "passage");
const noun = (kind) => (kind === "passage" ? "passage" : "question");
// Passages are called by their ids in the picture: titles and texts are longer.
const nameOf = (kind, node) => (kind === "passage" ? node.id : node.text);

// Text with the words that it shares with `question` marked, as nodes.
function marked(text, question) {
  const words = new Set((question || "").toLowerCase().match(/[\p{L}\p{N}_]{3,}/gu) || []);
  for (const word of ["the", "and", "for", "with", "what", "how", "from", "that", "this", "are", "was", "who", "which", "does", "did"]) words.delete(word);
  if (!words.size) return [text];
  return text.split(/([\p{L}\p{N}_]+)/u).map((part) => (words.has(part.toLowerCase()) ? make("mark", {}, part) : part));
}

// Fill `place` with a node. `options.walk(kind, id)` is called for a neighbour that was chosen, if there is one;
// `options.question` has its words marked; `options.facts` are further figures; `options.why` is a sentence.
function showNeighborhood(place, data, options = {}) {
  const { node, neighbors } = data;
  const inner = otherKind(node.kind);
  const body = make("p", { class: "body cut", id: "node-text" }, node.text);
  const isLong = node.text.length > 260;
  const whole = make("button", { class: "plain", type: "button", "aria-expanded": "false", "aria-controls": "node-text", onclick: () => {
    const cut = body.classList.toggle("cut");
    whole.setAttribute("aria-expanded", String(!cut));
    whole.textContent = cut ? "all of its text" : "less";
  } }, "all of its text");
  const facts = [...(options.facts || [])];
  if (node.context_scale !== undefined && node.context_scale !== null) {
    facts.push(["gate", figure(node.mean_gate), "Mean of the filter gate: how much of the questions' context it lets in, 0 to 1"],
      ["λ", String(Number(node.context_scale.toPrecision(3))), "Context scale: the factor on the gated context"],
      ["cosine to its vector before", figure(node.shift), "1: the graph left it where it was"]);
  } else if (node.shift !== undefined && node.shift !== null) {
    facts.push(["cosine to its vector before", figure(node.shift), "1: the graph left it where it was"]);
  } else if (node.mean_gate !== undefined && node.mean_gate !== null) facts.push(["gate", figure(node.mean_gate), "Mean of the filter gate, 0 to 1"]);
  if (node.own_attention !== undefined && node.own_attention !== null) facts.push(["attention to itself", figure(node.own_attention), "Its own weight in its context; the rest is its neighbours'"]);
  const shown = neighbors.length < node.edges ? `, ${neighbors.length} shown` : "";
  const heading = `Joined to ${count(node.edges, node.kind === "passage" ? "training question" : "passage")}`;
  const title = node.kind === "passage" ? node.title && node.title !== node.id ? node.title : node.id : node.text;
  const picture = make("div", { class: "picture" });
  const list = make("ol", { class: "neighbors" });
  const attentive = neighbors.some((edge) => edge.attention);  // with layer = linear, questions give passages no attention
  place.replaceChildren(
    make("header", {},
      make("span", { class: `kind ${node.kind}` }, node.kind === "passage" ? "Passage" : "Training question"),
      make("h2", { tabindex: "-1" }, ...(node.kind === "query" ? marked(title, options.question) : [title])),
      title !== node.id ? make("span", { class: "soft number" }, node.id) : null,
      node.kind === "passage" ? body : null,
      node.kind === "passage" && isLong ? whole : null),
    options.why ? make("p", { class: "why" }, options.why) : "",
    facts.length ? make("dl", { class: "figures" }, ...facts.map(([name, value, meaning, kind]) =>
      make("div", { title: meaning, class: kind || "" }, make("dt", {}, name), make("dd", {}, value)))) : "",
    make("h3", {}, heading, make("small", {}, shown + (neighbors.length ? attentive ? ", by attention, the strongest first" : node.kind === "passage" ? ", by similarity" : ", as retrieved" : ""))),
    options.controls || "",
    neighbors.length ? make("div", { class: "around" }, make("div", {}, picture, make("p", { class: "legend" },
      make("span", {}, make("i"), "question"), make("span", {}, make("i", { class: "passage" }), "passage"),
      make("span", {}, make("i", { class: "line" }), "labelled relevant"),
      neighbors.some((edge) => edge.attention < -0.0005) ? make("span", {}, make("i", { class: "line away" }), "pushes away") : "",
      make("span", {}, attentive ? "width: attention" : "width: similarity"))), list)
      : make("p", { class: "soft" }, node.kind === "passage"
        ? "No training question retrieved it: only its own vector is in its context." : "It is left out of the graph."));
  const light = (number) => {
    picture.dispatchEvent(new CustomEvent("light", { detail: number }));
    [...list.children].forEach((item, row) => item.lastElementChild.classList.toggle("lit", row === number));
  };
  neighbors.forEach((edge, number) => {
    const kind = options.walk ? "button" : "div";
    const attention = attentive ? edge.attention : null;
    const meter = make("span", { class: `meter ${attention < -0.0005 ? "away" : edge.labelled ? "labelled" : ""}` }, make("span"));
    meter.firstChild.style.width = `${Math.round(100 * Math.min(1, Math.abs(attention ?? Math.max(0, edge.score))))}%`;
    list.append(make("li", { class: inner }, options.tick ? options.tick(edge) : null, make(kind, {
      class: "item", type: options.walk ? "button" : null,
      onclick: options.walk ? () => options.walk(inner, edge.id) : () => {},
      onmouseenter: () => light(number), onmouseleave: () => light(null), onfocus: () => light(number), onblur: () => light(null),
    },
    make("span", { class: "place" }, String(number + 1)),
    make("span", { class: "words" }, ...(inner === "passage" ? [make("b", {}, edge.id), " ", short(withoutName(edge), 160)] : marked(edge.text, options.question))),
    make("span", { class: "share", title: attention === null ? "similarity" : "attention" }, figure(attention ?? edge.score)),
    meter,
    make("span", { class: "more" }, `${edge.retrieved ? `${node.kind === "passage" ? "it is" : "at"} rank ${edge.rank} for ${inner === "query" ? "this question" : "it"}, ` : ""}similarity ${edge.score.toFixed(3)}${attention < -0.0005 ? ", pushes it away" : ""}`,
      edge.labelled ? make("span", { class: "yes" }, ` · labelled relevant${edge.retrieved ? "" : notRetrieved(edge)}`) : ""))));
  });
  if (!neighbors.length) return;
  let width = 0;
  const redraw = () => {
    if (!picture.clientWidth || picture.clientWidth === width) return;
    width = picture.clientWidth;
    drawPicture(picture, data, options, light);
  };
  redraw();
  const observer = new ResizeObserver(() => (picture.isConnected ? redraw() : observer.disconnect()));
  observer.observe(picture);
}

// A passage's text comes with its title before it; the id is shown already where it is the title.
function withoutName(edge) {
  return edge.text.startsWith(edge.id + ". ") ? edge.text.slice(edge.id.length + 2) : edge.text;
}

const notRetrieved = (edge) => `; the question did not retrieve it${edge.rank === null ? "" : ` (rank ${edge.rank.toLocaleString("en")} by the dual-encoder)`}`;

const weightOf = (edge) => Math.abs(edge.attention ?? Math.max(0, edge.score) / 2);

// Where everything is: the node on the left, its neighbours in a column, the heaviest on top, and theirs in a column on
// the right, near the neighbours that they are joined to; one that is joined to several is there once.
function arrange(data, width) {
  const inner = data.neighbors.map((edge, number) => ({ edge, number }));
  const outer = new Map();
  for (const one of inner) {
    for (const edge of one.edge.neighbors || []) {
      if (edge.id === data.node.id) continue;
      if (!outer.has(edge.id)) outer.set(edge.id, { edge, parents: [] });
      outer.get(edge.id).parents.push({ of: one, edge });
    }
  }
  const ring = [...outer.values()];
  const height = Math.max(180, 34 * inner.length, 15 * ring.length) + 8;
  const place = (all, x) => all.forEach((one, number) => Object.assign(one, { x, y: ((number + 0.5) * height) / all.length }));
  place(inner, Math.max(62, Math.min(110, width * 0.22)));
  const meanOf = (one) => one.parents.reduce((sum, parent) => sum + parent.of.y, 0) / one.parents.length;
  ring.sort((one, other) => meanOf(one) - meanOf(other));
  place(ring, width * 0.63);
  return { middle: { x: 30, y: height / 2 }, inner, ring, height };
}

function drawPicture(picture, data, options, light) {
  const width = picture.clientWidth;
  const { middle, inner, ring, height } = arrange(data, width);
  const kind = data.node.kind, innerKind = otherKind(kind);
  const svg = make("svg:svg", { viewBox: `0 0 ${width} ${height}`, height, role: "group",
    "aria-label": `The neighbourhood of ${noun(kind)} ${data.node.id}: arrow keys move in it${options.walk ? ", Enter walks" : ""}` });
  const tip = make("div", { class: "tip card", hidden: true });
  const edges = make("svg:g", { "aria-hidden": "true" }), dots = make("svg:g");
  svg.append(edges, dots);

  // Names are cut to the room they have.
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = `11.5px ${getComputedStyle(picture).fontFamily}`;
  const fitted = (name, nameKind, room) => {
    let most = name.length;
    while (most > 3 && pen.measureText(tail(name, nameKind, most)).width > room) most -= 1;
    return tail(name, nameKind, most);
  };
  for (const one of inner) {
    one.name = fitted(nameOf(innerKind, one.edge), innerKind, width * 0.63 - one.x - 34);
    one.right = one.x + 20 + pen.measureText(one.name).width;
  }
  for (const one of ring) one.name = fitted(nameOf(kind, one.edge), kind, width - one.x - 14);

  const line = (from, to, edge, isFar) => {
    const bend = (to.x - from.x) / 2;
    const drawn = make("svg:path", { d: `M${from.x} ${from.y}C${from.x + bend} ${from.y} ${to.x - bend} ${to.y} ${to.x} ${to.y}`,
      class: `edge ${edge.labelled ? "labelled" : ""} ${edge.attention < -0.0005 ? "away" : ""} ${isFar ? "far" : ""}`,
      "stroke-width": isFar ? (0.8 + 2.4 * weightOf(edge)).toFixed(2) : (1.2 + 12 * weightOf(edge)).toFixed(2) });
    edges.append(drawn);
    return drawn;
  };
  for (const one of ring) {
    const heaviest = one.parents.reduce((best, parent) => (weightOf(parent.edge) > weightOf(best.edge) ? parent : best));
    for (const parent of one.parents) {
      parent.line = line({ x: parent.of.right, y: parent.of.y }, one, parent.edge, true);
      parent.line.classList.toggle("also", parent !== heaviest);  // so that what crosses the picture stays in the background
    }
  }
  for (const one of inner) one.line = line(middle, one, one.edge, false);

  const all = [], lineOf = [...inner.map((one) => one.line), ...ring.flatMap((one) => one.parents.map((parent) => parent.line))];
  const emphasise = (lines) => lineOf.forEach((drawn) => {
    drawn.classList.toggle("lit", lines !== null && lines.includes(drawn));
    drawn.classList.toggle("dim", lines !== null && !lines.includes(drawn));
  });
  const linesOfInner = (one) => [one.line, ...ring.flatMap((far) => far.parents.filter((parent) => parent.of === one).map((parent) => parent.line))];
  const linesOfRing = (one) => one.parents.flatMap((parent) => [parent.line, parent.of.line]);

  const dot = (spot, dotKind, node, size, level, facts, lines, mark) => {
    const square = dotKind === "passage";
    const shape = square
      ? make("svg:rect", { class: "shape", x: -size, y: -size, width: 2 * size, height: 2 * size, rx: size / 3 })
      : make("svg:circle", { class: "shape", r: size });
    const name = nameOf(dotKind, node);
    const element = make("svg:g", {
      class: `dot ${dotKind} ${level}`, transform: `translate(${spot.x} ${spot.y})`, tabindex: level === "center" ? "0" : "-1",
      role: options.walk && level !== "center" ? "link" : "img",
      "aria-label": `${noun(dotKind)} ${short(name, 120)}. ${facts}`,
      onclick: () => walk(), onmouseenter: () => point(true), onmouseleave: () => point(false),
      onfocus: () => point(true), onblur: () => point(false),
    }, make("svg:circle", { r: Math.max(16, size), fill: "transparent" }), shape, mark ? make("svg:text", {}, mark) : null);
    const walk = () => { if (options.walk && level !== "center") options.walk(dotKind, node.id); };
    const point = (on) => {
      emphasise(on && level !== "center" ? lines : null);
      tip.hidden = !on;
      if (!on) return;
      tip.replaceChildren(make("b", {}, dotKind === "passage" ? node.id : "Question"), short(dotKind === "passage" ? withoutName(node) : node.text, 170), make("div", { class: "soft" }, facts));
      const left = Math.min(Math.max(8, spot.x - tip.offsetWidth / 2), width - tip.offsetWidth - 8);
      const below = spot.y + size + 12;
      tip.style.left = `${left}px`;
      tip.style.top = `${below + tip.offsetHeight < height || spot.y < height / 2 ? below : spot.y - size - 12 - tip.offsetHeight}px`;
    };
    dots.append(element);
    all.push({ element, level, walk, y: spot.y });
    return element;
  };

  const tell = (edge, of) => `${!edge.attention ? "" : `attention ${figure(edge.attention)}, `}${edge.retrieved ? `rank ${edge.rank}, ` : ""}similarity ${edge.score.toFixed(3)}${edge.labelled ? `, labelled relevant${edge.retrieved ? "" : notRetrieved(edge)}` : ""}${of}`;
  for (const one of ring) {
    const parents = one.parents.map((parent) => parent.of.number + 1).join(", ");
    one.dot = dot(one, kind, one.edge, 5.5, "far", one.parents.length > 1 ? `joined to ${parents}` : tell(one.edge, ` with ${parents}`), linesOfRing(one));
  }
  for (const one of inner) one.dot = dot(one, innerKind, one.edge, 12, "near", tell(one.edge, ""), linesOfInner(one), String(one.number + 1));
  const own = data.node.own_attention ?? null;
  const center = dot(middle, kind, data.node, 13, "center", own === null ? "the one looked at" : `attention to itself ${figure(own)}`, []);
  if (own !== null) {
    const radius = 22, around = 2 * Math.PI * radius;
    center.append(make("svg:circle", { class: "own track", r: radius }),
      make("svg:circle", { class: "own", r: radius, "stroke-dasharray": `${own * around} ${around}`, transform: "rotate(-90)" }));
  }

  const write = (one, dx) => one.dot.append(make("svg:text", { class: "name", x: dx, y: 0, "aria-hidden": "true" }, one.name));
  for (const one of inner) write(one, 16);
  for (const one of ring) write(one, 10);

  picture.replaceChildren(svg, tip);
  if (!picture.dataset.listens) {
    picture.dataset.listens = "yes";
    picture.addEventListener("light", (event) => picture.lightUp(event.detail));
  }
  picture.lightUp = (number) => emphasise(number === null ? null : linesOfInner(inner[number]));
  svg.addEventListener("keydown", (event) => {
    const here = all.findIndex((one) => one.element === document.activeElement);
    if (here < 0) return;
    const now = all[here], levels = ["center", "near", "far"];
    const go = (to) => {
      event.preventDefault();
      if (!to) return;
      all.forEach((one) => one.element.setAttribute("tabindex", one === to ? "0" : "-1"));
      to.element.focus();
    };
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key], outward = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const column = all.filter((one) => one.level === levels[levels.indexOf(now.level) + (outward || 0)]).sort((one, other) => one.y - other.y);
    if (step) go(column[(column.indexOf(now) + step + column.length) % column.length]);
    else if (outward) {
      const nearest = (one) => (now.level === "center" ? one.y : Math.abs(one.y - now.y));
      go(column.sort((one, other) => nearest(one) - nearest(other))[0]);
    } else if (event.key === "Enter" || event.key === " ") { event.preventDefault(); now.walk(); }
  });
}

// Ids such as package.module.name differ at their ends, questions at their beginnings.
const tail = (name, kind, most) => (name.length <= most ? name : kind === "passage" && !/\s/.test(name) ? "…" + name.slice(1 - most).replace(/^\./, "") : short(name, most));
