// A matrix that is never stored: values of its cells, copies from it, its explanations.
import assert from "node:assert/strict";
import test from "node:test";

import { decodeScene, isPadding, isWritten, valueAt } from "../../visuals/stage/decode.js";
import { explain, stepMarks } from "../../visuals/stage/explain.js";
import { pack } from "./payload.js";

// Four pixels. D shows windows of two, the last with a zero of the padding. s holds one column of D at a time.
const scene = (more = {}) => {
  const { meta, block } = pack({
    steps: 2, stepName: "step",
    tensors: [
      { name: "x", title: "input", cols: 4, values: [1, -2, 3, 5] },
      { name: "D", title: "data matrix", role: "workspace", rows: 2, cols: 4 },
      { name: "w", title: "filter", role: "filter", cols: 2, values: [10, 1] },
      { name: "s", title: "tile", rows: 2 },
      { name: "y", title: "output", role: "output", cols: 4 },
    ],
    views: [{ tensor: "D", source: "x", index: [0, 1, 2, 3, 1, 2, 3, -1] }],
    writes: [
      { target: "s", steps: [0], source: "D", index: [1, 5], cells: [0, 1] },
      { target: "s", steps: [1], source: "D", index: [3, 7], cells: [0, 1] },
      { target: "y", steps: [1], values: [8, -17, 35, 50] },
    ],
    matmuls: [{ left: "w", right: "D", out: "y" }],
    annotations: [{ tensor: "D", captions: { templates: ["Row {0}, column {1}: place {2}."], width: 3, kind: Array(8).fill(0), args: { row: [0, 0, 0, 1, 0, 1], col: [0, 0, 0, 0, 1, 1, 0, 2, 2, 0, 3, 3] } } }],
    ...more,
  });
  return decodeScene(meta, block);
};
const textOf = (name, i, step = 0) => explain(scene(), step, name, i).parts.map((p) => p.text).join("");
const marksOf = (name, i, step = 0) => explain(scene(), step, name, i).marks.map((m) => [m.name, [...m.cells].join(), m.as]);

test("a view is never written and has the values of its source", () => {
  const { tensors: { D, s } } = scene();
  assert.deepEqual([0, 1, 2, 3, 4, 5, 6, 7].map((i) => valueAt(D, i, 0)), [1, -2, 3, 5, -2, 3, 5, 0]);
  assert.ok([...Array(8).keys()].every((i) => !isWritten(D, i, 1) && isPadding(D, i) === (i === 7)));
  assert.deepEqual([valueAt(s, 0, 0), valueAt(s, 1, 0), valueAt(s, 0, 1), valueAt(s, 1, 1)], [-2, 3, 5, 0]);
});

test("a copy from a view moves from the view's source, and names the cell of the view", () => {
  const { tensors: { s, x } } = scene();
  assert.deepEqual([...s.from], [1, 2, 3, -1]);
  assert.ok(s.write.every((w) => w.source === x) && s.hue === x.hue);
  assert.ok(textOf("s", 1).startsWith("s[1, 0] = 3, a copy of x[0, 2]. It replaces D[1, 1], which is never stored."));
  assert.ok(textOf("s", 1, 1).startsWith("s[1, 0] = 0, a zero of the padding, not read from anywhere. It replaces D[1, 3], which is never stored."));
  assert.deepEqual(marksOf("s", 1), [["x", "2", "write"], ["D", "5", "read"], ["s", "1", "write"]]);
});

test("a cell of the view has its annotation and marks the cell it shows", () => {
  assert.ok(textOf("D", 6).startsWith("D[1, 2] is never stored. Row 1, column 2: place 3."));
  assert.ok(textOf("s", 1).includes("Row 1, column 1: place 2."));
  assert.deepEqual(marksOf("D", 6)[0], ["x", "3", "read"]);
});

test("a product with a view has the values of the view's source, and marks them", () => {
  assert.ok(textOf("y", 1, 1).startsWith("y[0, 1]\n= 10·(−2) + 1·3\n= −17"));
  const marks = marksOf("y", 3, 1);
  assert.ok(marks.some(([name, cells, as]) => name === "x" && cells === "3" && as === "read")); // once, without padding
});

test("a step outlines the cells of its tile in the view", () => {
  const marks = stepMarks(scene(), 0).map((m) => [m.name, [...m.cells].sort().join(), m.as]);
  assert.deepEqual(marks, [["x", "1,2", "read"], ["D", "1,5", "read"], ["s", "0,1", "write"]]);
});

test("numbers that are not sums of row and column are sent unchanged", () => {
  const args = [...Array(24).keys()];
  const { annotations } = scene({ annotations: [{ tensor: "D", captions: { templates: [""], width: 3, kind: Array(8).fill(0), args } }] });
  assert.deepEqual([...annotations[0].captions.args], args);
  assert.deepEqual([...scene().annotations[0].captions.args].slice(9, 15), [0, 3, 3, 1, 0, 1]);
});
