"use strict";
// The update that made the served index: when, what the gate measured, and which questions moved.

const rankOf = (rank) => (rank === null ? "below 10" : `rank ${rank}`);
const points = (value) => `${value < 0 ? "−" : "+"}${Math.abs(100 * value).toFixed(1)}`;

function showLastUpdate(update, walk) {
  const { gate, moved } = update;
  const when = update.when.slice(0, 16).replace("T", " ");  // the server's times are in UTC
  const parts = [make("p", { class: "soft" }, `${when} UTC. ${update.decision} ${update.reasons.join(" ")}`)];
  if (gate) {
    const name = (one) => `${one.name} (${one.questions.toLocaleString("en")})`;
    const row = (first, gain, from) => make("tr", {}, make("th", { scope: "row" }, first), make("td", {}, gain), make("td", {}, from));
    const head = ["newest questions", "gain", "90 % interval"].map((text) => make("th", { scope: "col" }, text));
    parts.push(make("table", { class: "gate" }, make("caption", { class: "soft" }, `RR@10 × 100 of the new model against the one before, among shown passages: ${(100 * gate.served).toFixed(1)} → ${(100 * gate.candidate).toFixed(1)}, p = ${gate.p.toPrecision(2)}`),
      make("thead", {}, make("tr", {}, ...head)),
      make("tbody", {}, row(name({ name: "all", questions: gate.questions }), points(gate.gain), ""),
        ...gate.slices.filter((one) => one.questions).map((one) => row(name(one), points(one.gain), `${points(one.low)} to ${points(one.high)}`)))));
  }
  if (moved.length) parts.push(make("h3", {}, "Questions that moved most, by their first relevant passage"),
    make("ul", { class: "examples" }, ...moved.map((one) => make("li", {}, make("button", { type: "button", class: "card", onclick: () => walk(one.question) },
      make("span", {}, one.question), make("span", { class: isBetter(one) ? "gain" : "loss" }, `${rankOf(one.before)} → ${rankOf(one.after)}`))))));
  find("update").replaceChildren(make("h2", {}, `Last update: version ${update.number}`), ...parts);
  find("update").hidden = false;
}
const isBetter = (one) => (one.after ?? Infinity) < (one.before ?? Infinity);
