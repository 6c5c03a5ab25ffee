// Sums: the text on a cell that is a sum of numbers times cells or of cells times cells, with their values at that step.
import assert from "node:assert/strict";
import test from "node:test";

import { decodeScene } from "../../visuals/stage/decode.js";
import { explain, focusOf, stepMarks } from "../../visuals/stage/explain.js";
import { pack } from "./payload.js";

// d is loaded twice; v = (d0 − d1, d0 / 2); z = u · v. y holds both: cell 0 is written after the first load, 1 after the second.
const SCENE = {
  steps: 4,
  tensors: [
    { name: "x", title: "input", cols: 4, values: [5, 3, -8, 1] },
    { name: "d", title: "d", cols: 2 },
    { name: "v", title: "v", cols: 2 },
    { name: "u", title: "u", role: "filter", cols: 2, values: [2, -3] },
    { name: "y", title: "output", role: "output", cols: 2 },
  ],
  writes: [
    { target: "d", steps: [0, 0, 2, 2], source: "x", cells: [0, 1, 0, 1], index: [0, 1, 2, 3] },
    { target: "v", steps: [0, 0, 2, 2], cells: [0, 1, 0, 1], values: [2, 2.5, -9, -4] },
    { target: "y", steps: [1, 3], values: [-3.5, -6] },
  ],
};
const sums = (put) => [
  { out: "y", right: "v", left: "u", rest: "", start: put([0, 2, 4]), cells: put([0, 1, 0, 1]), factors: put([0, 1, 0, 1]) },
  { out: "v", right: "d", left: "", rest: "", start: put([0, 2, 3]), cells: put([0, 1, 0]),
    factors: { ...put([-1, 0.5, 1], "f4"), index: put([2, 0, 1]) } },
];

function decode(change = (s) => s) {
  const { meta, block } = pack(SCENE);
  const bytes = [...block];
  const types = { i4: Int32Array, f4: Float32Array };
  const put = (array, dtype = "i4") => {
    while (bytes.length % 4) bytes.push(0);
    const entry = { dtype, offset: bytes.length, length: array.length };
    bytes.push(...new Uint8Array(types[dtype].from(array).buffer));
    return entry;
  };
  const all = change(sums(put));
  return decodeScene({ ...meta, sums: all }, Uint8Array.from(bytes));
}
const textOf = (scene, step, name, i) => explain(scene, step, name, i).parts.map((p) => p.text).join("");

test("a sum of numbers times cells is printed without factors of one", () => {
  const scene = decode();
  assert.match(textOf(scene, 0, "v", 0), /^v\[0, 0\]\n= 5 − 3\n= 2/);
  assert.match(textOf(scene, 0, "v", 1), /^v\[0, 1\]\n= 0\.5·5\n≈ 2\.5/);
});

test("a sum of one cell does not repeat its value", () => {
  const scene = decode(), v = scene.sums.find((s) => s.out.name === "v");
  v.factors[2] = 1; // v[0, 1] = d[0, 0]
  scene.tensors.v.value[scene.tensors.v.cell.indexOf(1)] = 5;
  assert.match(textOf(scene, 0, "v", 1), /^v\[0, 1\]\n= 5 Write/);
  assert.match(textOf(scene, 2, "v", 1), /= −8\n= −4/); // not the value of its cell
});

test("a negative first term has no parentheses", () => {
  const scene = decode();
  scene.tensors.x.values[0] = -5;
  scene.tensors.d.value[0] = -5; // as it was copied
  assert.match(textOf(scene, 0, "v", 0), /\n= −5 − 3\n/);
});

test("a sum of cells times cells has both values", () => {
  assert.match(textOf(decode(), 1, "y", 0), /^y\[0, 0\]\n= 2·2 − 3·2\.5\n≈ −3\.5/);
});

test("terms have their values at the sum's step, and a note says if they were overwritten", () => {
  const scene = decode();
  assert.match(textOf(scene, 3, "y", 0), /= 2·2 − 3·2\.5\n≈ −3\.5\nIts terms have been overwritten since\./);
  assert.match(textOf(scene, 3, "y", 1), /= 2·\(-?−?9\) − 3·\(−4\)\n= −6$/);
  assert.doesNotMatch(textOf(scene, 1, "y", 0), /overwritten/);
});

test("a ghost has the sum that it will hold", () => {
  assert.match(textOf(decode(), 0, "y", 1), /, not computed yet\n= 2·\(−9\) − 3·\(−4\)\n= −6/);
});

test("a cell names the number of sums that it is a term of", () => {
  assert.match(textOf(decode(), 0, "d", 0), / It is a term of 2 cells of v\./);
  assert.match(textOf(decode(), 0, "u", 1), / It is a term of 2 cells of the output\./);
});

test("terms that are not shown are one rest", () => {
  const scene = decode((all) => all.map((s) => (s.out === "y" ? { ...s, rest: "channels", start: { ...s.start }, cells: s.cells } : s)));
  assert.match(textOf(scene, 1, "y", 0), / \+ 0 from the channels not shown/);
});

test("a step marks the cells its sums read and write, and the panel explains the sum", () => {
  const scene = decode();
  const marks = stepMarks(scene, 1).map((m) => [m.name, [...m.cells].join(), m.as]);
  assert.deepEqual(marks, [["v", "0,1", "read"], ["u", "0,1", "read"], ["y", "0", "write"]]);
  assert.deepEqual(focusOf(scene, 1), { name: "y", index: 0 });
});

test("a scene without sums is valid", () => {
  const { meta, block } = pack(SCENE);
  delete meta.sums;
  assert.deepEqual(decodeScene(meta, block).sums, []);
});
