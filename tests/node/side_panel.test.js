// Coloured source lines, and the rows of the legend that a scene needs.
import assert from "node:assert/strict";
import test from "node:test";

import { decodeScene } from "../../visuals/stage/decode.js";
import { colouredLines, legendOf } from "../../visuals/stage/side_panel.js";
import { pack } from "./payload.js";

const linesOf = (text, ...colours) => colouredLines(text, colours).map((line) => line.map((p) => p.text + (p.kind && `:${p.kind}`)));

test("colour runs become lines; a comment over several lines is a comment on each", () => {
  assert.deepEqual(linesOf("ab\n/* c\n\nd */ e\n", 0, 3, 1, 10, 0, 3), [["ab"], ["/* c:comment"], [], ["d */:comment", " e"]]);
});

test("kinds have names", () => {
  assert.deepEqual(linesOf("abcdef", 1, 1, 2, 1, 3, 1, 4, 1, 5, 1, 6, 1),
    [["a:comment", "b:keyword", "c:type", "d:builtin", "e:string", "f:directive"]]);
});

test("lines are those of the text, with or without a final line break", () => {
  for (const [text, lines] of [["a", 1], ["a\n", 1], ["a\nb", 2], ["\na", 2], ["a\n\n", 2], ["", 0]]) assert.equal(linesOf(text, 0, text.length).length, lines, JSON.stringify(text));
});

const legend = (scene) => {
  const { meta, block } = pack(scene);
  return [...legendOf(decodeScene(meta, block))].sort();
};
const ALWAYS = ["global-ground", "input", "read", "write"];

test("the legend has only rows that the scene needs", () => {
  const x = { name: "x", cols: 2, values: [1, 2] };
  const rows = (more, scene = {}) => legend({ tensors: [{ ...x, ...more }], ...scene }).filter((name) => !ALWAYS.includes(name));
  assert.deepEqual(legend({ tensors: [x] }), ALWAYS);
  assert.deepEqual(rows({ values: [1, -2] }), ["negative"]);
  assert.deepEqual(rows({ pad: [0, 1, 0, 0] }), ["padding"]);
  assert.deepEqual(rows({}, { lanes: { warp: [0], mask: [1] } }), ["lanes"]);
  assert.deepEqual(rows({}, { source: { lines: [1] } }), ["line"]);
  assert.deepEqual(rows({}, { groups: [{ rows: [["x"]], memorySpace: "shared", title: "" }] }), ["shared-ground"]);
  const copied = (index) => legend({ tensors: [x, { name: "s", role: "workspace" }], writes: [{ target: "s", steps: [0], source: "x", index }] })
    .filter((name) => !ALWAYS.includes(name));
  assert.deepEqual(copied([0]), ["ghost", "workspace"]);
  assert.deepEqual(copied([-1]), ["ghost", "padding", "workspace"]);
  assert.deepEqual(rows({ values: null }, { writes: [{ target: "x", steps: [0], values: [3, -3] }] }), ["ghost", "negative"]);
});
