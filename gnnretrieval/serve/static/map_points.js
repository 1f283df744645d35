"use strict";
// The points of a map: read from binary, drawn by WebGL 2, and found by place.

// The arrays of maps/points.py, with the passages in order of displacement, so that those that moved most are on top.
function readPoints(buffer, passages, questions) {
  let at = 0;
  const take = (Kind, length) => { const array = new Kind(buffer, at, length); at += 4 * length; return array; };
  const rows = take(Uint32Array, passages), before = take(Float32Array, 2 * passages);
  const after = take(Float32Array, 2 * passages), moved = take(Float32Array, passages);
  const points = { question: { rows: take(Uint32Array, questions), before: take(Float32Array, 2 * questions) } };
  const order = Uint32Array.from(rows.keys()).sort((one, other) => moved[one] - moved[other]);
  const sorted = (Kind, array, width) => Kind.from({ length: width * passages }, (_, place) => array[width * order[Math.floor(place / width)] + (place % width)]);
  points.passage = { rows: sorted(Uint32Array, rows, 1), before: sorted(Float32Array, before, 2), after: sorted(Float32Array, after, 2), moved: sorted(Float32Array, moved, 1) };
  points.question.after = points.question.before;
  return points;
}

// The points' middle, and their extent across and down; never 0, so that it can be divided by.
function extentOf(points) {
  const low = [Infinity, Infinity], high = [-Infinity, -Infinity];
  for (const array of [points.passage.before, points.passage.after, points.question.before])
    for (let place = 0; place < array.length; place++) {
      const value = array[place], axis = place % 2;
      if (value < low[axis]) low[axis] = value;
      if (value > high[axis]) high[axis] = value;
    }
  return { middle: low.map((one, axis) => (one + high[axis]) / 2), size: low.map((one, axis) => high[axis] - one || 1e-6) };
}

// Finds points by place, before or after; its trees are made when they are first wanted.
function placesOf(points) {
  const trees = new Map();
  const tree = (kind, when) => {
    const name = kind === "question" ? "question" : when, array = points[kind][when];
    if (!trees.has(name)) {
      const made = new mapLibraries.KDBush(Math.max(1, array.length / 2), 64, Float32Array);
      for (let place = 0; place < array.length; place += 2) made.add(array[place], array[place + 1]);
      if (!array.length) made.add(Infinity, Infinity);
      trees.set(name, made.finish());
    }
    return trees.get(name);
  };
  return {
    nearest(kind, when, x, y, radius) {
      const array = points[kind][when];
      const far = (one) => Math.hypot(array[2 * one] - x, array[2 * one + 1] - y);
      return tree(kind, when).within(x, y, radius).reduce((best, one) => (best < 0 || far(one) <= far(best) ? one : best), -1);
    },
    inside(kind, when, outline) {
      const across = outline.map((corner) => corner[0]), up = outline.map((corner) => corner[1]), array = points[kind][when];
      const box = tree(kind, when).range(Math.min(...across), Math.min(...up), Math.max(...across), Math.max(...up));
      return box.filter((one) => mapLibraries.polygonContains(outline, [array[2 * one], array[2 * one + 1]]));
    },
  };
}

const VERTEX = `#version 300 es
in vec2 before; in vec2 after; in float moved; in float chosen;
uniform vec2 scale, offset; uniform float way, size, faded; uniform vec3 still, far, marked;
out vec4 colour; out float width;
void main() {
  gl_Position = vec4(mix(before, after, way) * scale + offset, 0, 1);
  width = size * (chosen > 0.5 ? 1.35 : 1.0);
  gl_PointSize = width;
  colour = chosen > 0.5 ? vec4(marked, 1) : vec4(mix(still, far, moved), faded * mix(0.55, 1.0, moved));
}`;
const FRAGMENT = `#version 300 es
precision mediump float;
in vec4 colour; in float width; uniform float diamond; out vec4 drawn;
void main() {
  vec2 at = abs(gl_PointCoord * 2.0 - 1.0);
  float edge = mix(length(at), at.x + at.y, diamond);
  float shown = colour.a * (1.0 - smoothstep(1.0 - 1.8 / width, 1.0, edge));
  if (shown < 0.004) discard;
  drawn = vec4(colour.rgb * shown, shown);
}`;

const STEPS = [1, 2, 4, 8, 16];

// Draws points on a canvas; null where there is no WebGL 2.
function pointPainter(canvas, points) {
  const gl = canvas.getContext("webgl2", { antialias: false, premultipliedAlpha: true });
  if (!gl) return null;
  let program, arrays, places, stale = true;
  const names = ["before", "after", "moved", "chosen"];
  const chosen = { passage: new Float32Array(points.passage.rows.length), question: new Float32Array(points.question.rows.length) };
  // 0 for the twentieth of the passages that moved least, 1 for the twentieth that moved most.
  const ranked = points.passage.moved, part = (share) => ranked[Math.floor(share * (ranked.length - 1))] || 0;
  const least = part(0.05), spread = part(0.95) - least || 1;
  const moved = { passage: ranked.map((one) => Math.min(1, Math.max(0, (one - least) / spread))), question: new Float32Array(points.question.rows.length).fill(1) };

  function prepare() {
    program = gl.createProgram();
    for (const [kind, text] of [[gl.VERTEX_SHADER, VERTEX], [gl.FRAGMENT_SHADER, FRAGMENT]]) {
      const shader = gl.createShader(kind);
      gl.shaderSource(shader, text);
      gl.compileShader(shader);
      gl.attachShader(program, shader);
    }
    gl.linkProgram(program);
    if (!gl.getProgramParameter(program, gl.LINK_STATUS) && !gl.isContextLost()) throw new Error(gl.getProgramInfoLog(program) || "The map cannot be drawn here.");
    places = Object.fromEntries(["scale", "offset", "way", "size", "faded", "still", "far", "marked", "diamond"].map((name) => [name, gl.getUniformLocation(program, name)]));
    arrays = {};
    for (const kind of ["passage", "question"]) {
      const buffers = {}, widths = { before: 2, after: 2, moved: 1, chosen: 1 };
      for (const name of names) {
        buffers[name] = gl.createBuffer();
        gl.bindBuffer(gl.ARRAY_BUFFER, buffers[name]);
        gl.bufferData(gl.ARRAY_BUFFER, name === "moved" ? moved[kind] : name === "chosen" ? chosen[kind] : points[kind][name], gl.STATIC_DRAW);
      }
      const every = new Map(STEPS.map((step) => {
        const made = gl.createVertexArray();
        gl.bindVertexArray(made);
        for (const name of names) {
          const at = gl.getAttribLocation(program, name);
          gl.bindBuffer(gl.ARRAY_BUFFER, buffers[name]);
          gl.enableVertexAttribArray(at);
          gl.vertexAttribPointer(at, widths[name], gl.FLOAT, false, 4 * widths[name] * step, 0);
        }
        return [step, made];
      }));
      arrays[kind] = { every, chosen: buffers.chosen };
    }
    stale = false;
  }
  canvas.addEventListener("webglcontextlost", (event) => { event.preventDefault(); stale = true; });

  return {
    choose(items) {
      for (const kind of ["passage", "question"]) chosen[kind].fill(0);
      for (const { kind, at } of items) chosen[kind][at] = 1;
      if (stale) return;
      for (const kind of ["passage", "question"]) {
        gl.bindBuffer(gl.ARRAY_BUFFER, arrays[kind].chosen);
        gl.bufferData(gl.ARRAY_BUFFER, chosen[kind], gl.STATIC_DRAW);
      }
    },
    // `scale` and `offset` map points to -1 … 1; `size` is in the screen's pixels; `questions` is their size and opacity, or null; `way` goes from 0, before, to 1, after.
    // `every` is one of STEPS: of so many points, one is drawn.
    paint({ scale, offset, way, size, faded, colours, questions, every }) {
      if (gl.isContextLost()) return;
      if (stale) prepare();
      gl.viewport(0, 0, canvas.width, canvas.height);
      gl.clearColor(0, 0, 0, 0);
      gl.clear(gl.COLOR_BUFFER_BIT);
      gl.enable(gl.BLEND);
      gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
      gl.useProgram(program);
      gl.uniform2fv(places.scale, scale);
      gl.uniform2fv(places.offset, offset);
      gl.uniform1f(places.way, way);
      for (const kind of questions ? ["question", "passage"] : ["passage"]) { // passages on top
        const isQuestion = kind === "question";
        gl.uniform1f(places.diamond, isQuestion ? 1 : 0);
        gl.uniform1f(places.size, isQuestion ? questions.size : size);
        gl.uniform1f(places.faded, isQuestion ? questions.faded : faded);
        gl.uniform3fv(places.still, isQuestion ? colours.question : colours.still);
        gl.uniform3fv(places.far, isQuestion ? colours.question : colours.passage);
        gl.uniform3fv(places.marked, colours.chosen);
        gl.bindVertexArray(arrays[kind].every.get(every));
        gl.drawArrays(gl.POINTS, 0, Math.floor((points[kind].rows.length - 1) / every) + 1);
      }
    },
    // Milliseconds until all that was painted is drawn.
    async drawn() {
      const begun = performance.now(), fence = gl.fenceSync(gl.SYNC_GPU_COMMANDS_COMPLETE, 0);
      gl.flush();
      while (fence && !gl.isContextLost() && gl.getSyncParameter(fence, gl.SYNC_STATUS) !== gl.SIGNALED) await new Promise((go) => setTimeout(go, 2));
      gl.deleteSync(fence);
      return performance.now() - begun;
    },
  };
}
