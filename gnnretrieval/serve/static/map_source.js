"use strict";
// Where a map comes from: this page, or the server. Both give figures and points, texts by row, and rows by name.

function mapOfPage() {
  const data = JSON.parse(find("data").textContent);
  const bytes = Uint8Array.from(atob(data.points), (letter) => letter.charCodeAt(0));
  const words = { passage: new Map(data.passages.map((one) => [one.row, one])), question: new Map(data.questions.map((one) => [one.row, one])) };
  return {
    explorer: null,
    read: async () => ({ figures: data.figures, buffer: bytes.buffer }),
    texts: async (kind, rows) => rows.map((row) => words[kind].get(row)).filter(Boolean),
    async named(name) {
      const wanted = name.toLowerCase(), has = (text) => text.toLowerCase().includes(wanted);
      const exact = data.passages.filter((one) => one.id === name);
      return exact.length ? exact : data.passages.filter((one) => has(one.id) || has(one.title)).slice(0, 200);
    },
  };
}

function mapOfServer() {
  return {
    explorer: (id) => `./#passage=${encodeURIComponent(id)}`,
    async read() {
      const figures = await ask("map/figures");
      return { figures, buffer: await (await answerOf("map/points")).arrayBuffer() };
    },
    texts: async (kind, rows) => (rows.length ? (await ask(`map/texts?kind=${kind}&rows=${rows.join(",")}`)).texts : []),
    named: async (name) => (await ask(`map/named?name=${encodeURIComponent(name)}`)).texts,
  };
}
