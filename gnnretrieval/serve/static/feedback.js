"use strict";
// Thumbs for the passages of a ranking. The tab's random id, and the thumbs that it gave, are kept while it is open.

const THUMB = "M4 11h3v9H4zM10 20V10.5l3.5-7.5c1.7 0 2.7 1.3 2.3 3L15 9.5h4c1.3 0 2.2 1.1 1.9 2.4l-1.5 6.5c-.2 1-1.1 1.6-2.1 1.6z";

function kept() {
  const stored = JSON.parse(sessionStorage.getItem("feedback") || "null");
  if (stored) return stored;
  const bytes = crypto.getRandomValues(new Uint8Array(16));  // randomUUID wants HTTPS
  const fresh = { session: [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join(""), thumbs: {} };
  sessionStorage.setItem("feedback", JSON.stringify(fresh));
  return fresh;
}
const given = (key) => (sessionStorage.getItem("feedback") ? kept().thumbs[key] : undefined);

// Both thumbs of a passage, of which at most one is pressed. To press it again takes it back.
function thumbsOf(hit, question, shown) {
  const key = JSON.stringify([question, hit.id]), name = `${hit.rank}, ${hit.title || hit.id}`;
  const button = (thumb, label) => make("button", { type: "button", class: `thumb ${thumb}`, "aria-label": `${label}: ${name}`, title: label,
    "aria-pressed": String(given(key) === thumb), onclick: () => press(thumb) },
  make("svg:svg", { viewBox: "0 0 24 24", "aria-hidden": "true" }, make("svg:path", { d: THUMB })));
  const buttons = { up: button("up", "Answers the question"), down: button("down", "Does not answer it") };
  let isWaiting = false;
  async function press(pressed) {
    if (isWaiting) return;
    isWaiting = true;
    const thumb = given(key) === pressed ? "withdrawn" : pressed;
    try {
      await ask("feedback", { question, shown, passage: hit.id, thumb, session: kept().session });
      const now = kept();
      if (thumb === "withdrawn") delete now.thumbs[key];
      else now.thumbs[key] = thumb;
      sessionStorage.setItem("feedback", JSON.stringify(now));
      for (const [one, its] of Object.entries(buttons)) its.setAttribute("aria-pressed", String(one === thumb));
      find("problem").hidden = true;
    } catch (error) {
      find("problem").textContent = error.message;
      find("problem").hidden = false;
      find("problem").scrollIntoView({ block: "center" });
    }
    isWaiting = false;
  }
  return make("div", { class: "thumbs" }, buttons.up, buttons.down);
}
