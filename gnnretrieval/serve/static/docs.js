"use strict";
// The OpenAPI description as a page that loads nothing from elsewhere.

function typeOf(schema, all) {
  if (schema.$ref) return typeOf(all[schema.$ref.split("/").pop()], all);
  if (schema.anyOf) return schema.anyOf.map((one) => typeOf(one, all)).join(" or ");
  if (schema.enum) return schema.enum.map((one) => JSON.stringify(one)).join(" or ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.type === "array") return `list of ${typeOf(schema.items, all)}s`;
  const limits = [["minLength", "at least", " character"], ["maxLength", "at most", " characters"], ["minimum", "from", ""], ["maximum", "to", ""]]
    .filter(([key]) => schema[key] !== undefined).map(([key, word, unit]) => `${word} ${schema[key].toLocaleString("en")}${unit}`);
  return [schema.type || "any", ...limits].join(", ");
}

// A row for each field; those of the objects in it come after it, with its name before theirs.
function rows(schema, all, before = "") {
  const whole = schema.$ref ? all[schema.$ref.split("/").pop()] : schema;
  return Object.entries(whole.properties || {}).flatMap(([name, field]) => {
    const inner = field.items || field, place = before + name + (field.items ? "[]" : "");
    return [row(before + name, field, (whole.required || []).includes(name), field.description || "", all), ...(inner.$ref ? rows(inner, all, `${place}.`) : [])];
  });
}

function row(name, schema, required, meaning, all) {
  const standard = schema.default === undefined || schema.default === null ? "" : ` (default: ${schema.default})`;
  return make("tr", {}, make("td", {}, name), make("td", {}, typeOf(schema, all), required ? "" : make("span", { class: "soft" }, standard || " (optional)")), make("td", { class: "soft" }, meaning));
}

fetch("openapi.json").then((response) => response.json()).then((api) => {
  const all = api.components.schemas;
  find("docs").append(make("h1", {}, `${api.info.title} ${api.info.version}`), make("p", { class: "soft" }, api.info.description, " ", make("a", { href: "openapi.json" }, "openapi.json")));
  for (const [path, methods] of Object.entries(api.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      const body = operation.requestBody?.content["application/json"].schema;
      const answer = operation.responses["200"]?.content?.["application/json"]?.schema;
      const given = operation.parameters || [];
      const query = given.filter((one) => one.in === "query" && one.required).map((one) => `${one.name}=…`).join("&");
      const address = `${location.origin}${path}${query ? "?" + query : ""}`;
      const example = body && all[body.$ref?.split("/").pop()]?.examples?.[0];
      const command = example ? `curl ${address} -H 'content-type: application/json' -d '${JSON.stringify(example)}'` : body ? `curl ${address} -H 'content-type: application/json' -d '{"question": "solve a banded system", ${(all[body.$ref?.split("/").pop()]?.required || []).includes("passage") ? '"passage": "ID", ' : ""}"k": 5}'` : `curl '${address}'`;
      find("docs").append(make("section", { class: "card" },
        make("h2", {}, make("b", {}, method.toUpperCase()), ` ${path}`), make("p", {}, operation.summary || ""), make("pre", { tabindex: "0", "aria-label": "as a command" , role: "group" }, command),
        given.length || body ? make("h3", {}, "asks for") : null,
        given.length || body ? make("table", {}, ...given.map((one) => row(one.name, one.schema, one.required, one.description || one.schema.description || "", all)), ...(body ? rows(body, all) : [])) : null,
        answer ? make("h3", {}, "answers") : null, answer ? make("table", {}, ...rows(answer, all)) : null));
    }
  }
});
