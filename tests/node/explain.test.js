// The text on a cell and its marks, word for word.
import assert from "node:assert/strict";
import test from "node:test";

import { decodeScene } from "../../visuals/stage/decode.js";
import { explain, focusOf, nameOf, number, stepMarks } from "../../visuals/stage/explain.js";
import { pack } from "./payload.js";

const decode = (scene) => {
  const { meta, block } = pack(scene);
  return decodeScene(meta, block);
};
const textOf = (scene, step, name, i) => explain(scene, step, name, i).parts.map((p) => p.text).join("");
const marksOf = (scene, step, name, i) => explain(scene, step, name, i).marks.map((m) =>
  [m.name, [...m.cells].join(), m.as + (m.faint ? " faint" : "") + (m.each ? " each" : "")]);

// A row of four pixels with windows of two. The last window has a zero of the padding. Pixel 3 is never copied.
const scene = (more = {}) => decode({
  steps: 3, stepName: "column",
  tensors: [
    { name: "x", title: "input", cols: 4, values: [1, -2, 3, 0.5] },
    { name: "w", title: "filter", role: "filter", rows: 2, cols: 2, values: [1, 2, -1, 0.25] },
    { name: "D", title: "data matrix (workspace)", role: "workspace", rows: 2, cols: 3, ...more },
    { name: "y", title: "output", role: "output", planes: 2, cols: 3, planeName: "filter" },
    { name: "air", title: "air" },
  ],
  writes: [
    { target: "D", steps: [0, 1, 2], source: "x", index: [0, 1, 2, 1, 2, -1] },
    { target: "y", steps: [0, 1, 2], values: [-3, 4, 3, -1.5, 2.75, -3] },
  ],
  matmuls: [{ left: "w", right: "D", out: "y" }],
  reads: [{ source: "w", start: [0, 2, 2, 4], cells: [0, 1, 3, 3] }, { source: "x", start: [0, 0, 1, 1], cells: [2] }],
});
const toy = scene();

test("formats of numbers", () => {
  for (const [v, text] of [[0, "0"], [-0, "0"], [3, "3"], [-12, "−12"], [1234567, "1,234,567"], [0.5, "0.5"], [-1 / 3, "−0.333"], [12.345, "12.3"], [8174.6, "8,175"], [-1048.4, "−1,048"]])
    assert.equal(number(v), text);
});

test("a cell's name counts from the whole tensor's origin, and has the plane if planes have a name", () => {
  const t = { symbol: "x", planes: 1, rows: 2, cols: 3, origin: [0, 0, 0], colIndex: null, planeName: "" };
  assert.equal(nameOf(t, 5), "x[1, 2]");
  assert.equal(nameOf({ ...t, planes: 2 }, 10), "x[1, 1, 1]");
  assert.equal(nameOf({ ...t, planeName: "channel" }, 5), "x[0, 1, 2]");
  assert.equal(nameOf({ ...t, planeName: "channel", origin: [4, 20, 30] }, 5), "x[4, 21, 32]");
  assert.equal(nameOf({ ...t, colIndex: [7, 9, 40], origin: [0, 1, 99] }, 5), "x[2, 40]");
});

test("a pixel counts the cells that it is copied to so far", () => {
  assert.equal(textOf(toy, 1, "x", 2), "x[0, 2] = 3. Copied to 1 of 2 cells of the data matrix so far.");
  assert.equal(textOf(toy, 2, "x", 2), "x[0, 2] = 3. Copied to 2 of 2 cells of the data matrix so far.");
  assert.equal(textOf(toy, -1, "x", 0), "x[0, 0] = 1. Not yet copied to the data matrix.");
  assert.equal(textOf(toy, 2, "x", 3), "x[0, 3] = 0.5. No step shown here copies it.");
  assert.deepEqual(marksOf(toy, 1, "x", 2), [["D", "2", "write faint"], ["D", "4", "write each"], ["x", "2", "write"]]);
  assert.match(textOf(scene({ partial: true }), 1, "x", 2), / 1 of 2 cells of the data matrix so far\. Only the part shown is counted\.$/);
});

test("a column with more than four products names four and counts the others", () => {
  const six = decode({
    tensors: [{ name: "A", title: "A", rows: 6, cols: 1, values: [1, 2, 3, 4, 5, 6] }, { name: "B", title: "B", values: [2] }, { name: "C", title: "C", role: "output", rows: 6 }],
    writes: [{ target: "C", steps: [0], values: [2, 4, 6, 8, 10, 12] }],
    matmuls: [{ left: "A", right: "B", out: "C" }],
  });
  assert.match(textOf(six, 0, "B", 0), /C\[0, 0\], C\[1, 0\], C\[2, 0\], C\[3, 0\] and 2 more/);
});

test("of several targets, only those with a copy are named; without any copy one sentence says so", () => {
  const two = decode({
    steps: 2, tensors: [{ name: "x", cols: 3, values: [4, 5, 6] }, { name: "s", title: "sectors", cols: 2 }, { name: "r", title: "registers" }],
    writes: [{ target: "s", steps: [1], source: "x", index: [0, 1] }, { target: "r", steps: [1], source: "x", index: [0] }],
  });
  assert.equal(textOf(two, 0, "x", 0), "x[0, 0] = 4. Not yet copied to the sectors. Not yet copied to the registers.");
  assert.equal(textOf(two, 0, "x", 1), "x[0, 1] = 5. Not yet copied to the sectors.");
  assert.equal(textOf(two, 0, "x", 2), "x[0, 2] = 6. No step shown here copies it.");
});

test("a copy names its pixel, its column and that column's outputs", () => {
  const gives = " Column 2 is one window. It gives y[0, 0, 2], y[1, 0, 2].";
  assert.equal(textOf(toy, 2, "D", 2), `D[0, 2] = 3, a copy of x[0, 2].${gives}`);
  assert.equal(textOf(toy, 1, "D", 2), `D[0, 2] = 3, not written yet: will be a copy of x[0, 2].${gives}`);
  assert.deepEqual(marksOf(toy, 2, "D", 2),
    [["x", "2", "write"], ["D", "2,5", "read"], ["x", "2", "read"], ["y", "2,5", "write each"], ["D", "2", "write"]]);
  assert.match(textOf(scene({ colIndex: [0, 50, 907] }), 2, "D", 2), /^D\[0, 907\] = .* Column 907 is one window/);
});

test("a zero of the padding is not called a copy", () => {
  const zero = "D[1, 2] = 0, a zero of the padding, not read from anywhere";
  assert.ok(textOf(toy, 2, "D", 5).startsWith(`${zero}. Column 2`));
  assert.ok(textOf(toy, 1, "D", 5).startsWith(`${zero}. It is not written yet. Column 2`));
});

test("a weight names its row and the number of its terms", () => {
  assert.equal(textOf(toy, 1, "w", 1), "w[0, 1] = 2. It multiplies all of row 1 of the data matrix: one term of 3 cells of the output, 2 so far.");
  assert.deepEqual(marksOf(toy, 1, "w", 1), [["D", "3,4,5", "read"], ["w", "1", "write"]]);
});

test("a tensor named by a symbol has no article, one named by a word has", () => {
  const titled = (title) => decode({
    steps: 1, tensors: [{ name: "a", values: [7] }, { name: "b", title }], writes: [{ target: "b", steps: [0], source: "a", index: [0] }],
  });
  for (const [title, noun] of [["C", "C"], ["tile_a", "tile_a"], ["Z = Σ U · V", "Z = Σ U · V"], ["sum", "the sum"], ["data matrix (workspace)", "the data matrix"]])
    assert.match(textOf(titled(title), -1, "a", 0), new RegExp(` Not yet copied to ${noun}\\.$`));
});

test("a cell that is never stored has its own text", () => assert.equal(textOf(toy, 2, "air", 0), "air[0, 0] is never stored."));

test("an output is explained as a sum of the cells' values", () => {
  assert.equal(textOf(toy, 0, "y", 0), "y[0, 0, 0]\n= 1·1 + 2·(−2)\n= −3");
  assert.equal(textOf(toy, 0, "y", 3), "y[1, 0, 0]\n= −1·1 + 0.25·(−2)\n≈ −1.5");
  assert.equal(textOf(toy, 2, "y", 5), "y[1, 0, 2]\n= −1·3 + 0.25·0\n≈ −3");
  assert.equal(textOf(toy, 1, "y", 2), "y[0, 0, 2], not computed yet\n= 1·3 + 2·0\n= 3");
  const { parts } = explain(toy, 2, "y", 2);
  assert.deepEqual(parts.map((p) => p.role), ["head", "", "filter", "", "input", "op", "filter", "", "dim", "sum"], "copies in their source's colour");
  const marks = marksOf(toy, 0, "y", 4);
  assert.ok(marks.some(([name, cells, as]) => name === "w" && cells === "2,3" && as === "read"));
  assert.ok(marks.some(([name, cells, as]) => name === "D" && cells === "1,4" && as.startsWith("read")));
  assert.deepEqual(marks.at(-1), ["y", "4", "write"]);
});

test("a sum that is not complete: terms to come, terms not shown", () => {
  const product = decode({
    steps: 3, tensors: [{ name: "A", cols: 3, values: [2, -3, 5] }, { name: "B", rows: 3, values: [4, 1, 1] }, { name: "C" }],
    writes: [{ target: "C", steps: [0, 1, 2], values: [8.5, 5.5, 10.5], cells: [0, 0, 0] }],
    matmuls: [{ left: "A", right: "B", out: "C", rest: [0.5], upto: [1, 2, 3] }],
  });
  const sums = [0, 1, 2].map((step) => textOf(product, step, "C", 0).split(" Written")[0].split("\n"));
  assert.deepEqual(sums[0].slice(0, 2), ["C[0, 0]", "= 2·4 + 0.5 from the terms not shown, 2 terms to come"]);
  assert.equal(sums[1][1], "= 2·4 − 3·1 + 0.5 from the terms not shown, 1 term to come");
  assert.equal(sums[2][1], "= 2·4 − 3·1 + 5·1 + 0.5 from the terms not shown");
  assert.ok(textOf(product, -1, "C", 0).startsWith("C[0, 0], not computed yet\n= 2·4 − 3·1 + 5·1 + 0.5"));
});

test("a long sum has its first twelve terms", () => {
  const long = (terms) => decode({
    tensors: [{ name: "A", cols: terms, values: Array(terms).fill(1) }, { name: "B", rows: terms, values: Array(terms).fill(2) }, { name: "C" }],
    writes: [{ target: "C", steps: [0], values: [2 * terms] }], matmuls: [{ left: "A", right: "B", out: "C" }],
  });
  for (const [terms, more] of [[12, null], [13, "1 more term"], [15, "3 more terms"]]) {
    const text = textOf(long(terms), 0, "C", 0);
    assert.equal(text.match(/1·2/g).length, 12);
    assert.equal(text.match(/… (.*)\n/)?.[1] ?? null, more);
    assert.ok(text.endsWith(`\n= ${2 * terms}`));
  }
});

test("a cell that is written again, and a copy that is overwritten", () => {
  const tiles = decode({
    steps: 4, tensors: [{ name: "a", title: "a", cols: 2, values: [7, 8] }, { name: "s", title: "tile" }],
    writes: [{ target: "s", steps: [0, 1, 3], source: "a", index: [0, 1, 0], cells: [0, 0, 0] }],
  });
  assert.equal(textOf(tiles, 1, "s", 0), "s[0, 0] = 8, a copy of a[0, 1]. Write 2 of 3.");
  assert.equal(textOf(tiles, 1, "a", 0), "a[0, 0] = 7. Copied 1 of 2 times to the tile so far.");
  assert.deepEqual(marksOf(tiles, 1, "a", 0), [["s", "0", "write faint"], ["s", "", "write each"], ["a", "0", "write"]]);
  assert.deepEqual(marksOf(tiles, 3, "a", 0)[1], ["s", "0", "write each"]);
});

test("several copies in one step are counted as cells", () => {
  const spread = decode({
    tensors: [{ name: "a", title: "a", values: [7] }, { name: "s", title: "row", cols: 3 }], writes: [{ target: "s", steps: [0], source: "a", index: [0, 0, 0] }],
  });
  assert.equal(textOf(spread, 0, "a", 0), "a[0, 0] = 7. Copied to 3 of 3 cells of the row so far.");
});

test("a step outlines what it reads, each cell once, then what it writes", () => {
  const marks = (step) => stepMarks(toy, step).map((m) => [m.name, [...m.cells].sort().join(), m.as]);
  assert.deepEqual(marks(0), [["w", "0,1", "read"], ["x", "0,1", "read"], ["D", "0,3", "write"], ["y", "0,3", "write"]]);
  assert.deepEqual(marks(1), [["x", "1,2", "read"], ["D", "1,4", "write"], ["y", "1,4", "write"]]);
  assert.deepEqual(marks(2), [["w", "3", "read"], ["x", "2", "read"], ["D", "2,5", "write"], ["y", "2,5", "write"]]);
});

test("a step with very many copies is outlined within a second", () => {
  const n = 60_000, all = Array.from({ length: n }, (_, i) => i);
  const big = decode({ tensors: [{ name: "a", cols: n, values: all }, { name: "b", cols: n }], writes: [{ target: "b", steps: [0], source: "a", index: all }] });
  const start = performance.now();
  assert.equal(stepMarks(big, 0)[0].cells.length, n);
  assert.ok(performance.now() - start < 1000);
});

test("without hover, the panel explains the product, else the first written cell", () => {
  assert.deepEqual([focusOf(toy, 0), focusOf(toy, 2)], [{ name: "y", index: 0 }, { name: "y", index: 2 }]);
  const plain = decode({ steps: 2, tensors: [{ name: "a", cols: 2 }, { name: "b" }], writes: [{ target: "b", steps: [1], values: [1] }, { target: "a", steps: [1], values: [1], cells: [1] }] });
  assert.deepEqual([focusOf(plain, 0), focusOf(plain, 1), focusOf(plain, -1)], [null, { name: "a", index: 1 }, null]);
});

test("a reshape is explained by the cell that it shows, and outlines no copy", () => {
  const reshaped = decode({
    steps: 2,
    tensors: [
      { name: "w", role: "filter", values: [2] }, { name: "D", cols: 2, values: [3, 4] }, { name: "C", role: "output", cols: 2 },
      { name: "y", role: "output", rows: 2, planeName: "filter" },
    ],
    writes: [{ target: "C", steps: [0], values: [6, 8] }, { target: "y", steps: [1], source: "C", index: [0, 1], reshapes: true }],
    matmuls: [{ left: "w", right: "D", out: "C" }],
  });
  assert.equal(textOf(reshaped, 1, "y", 1), "y[0, 1, 0] is C[0, 1]: the same bytes under another index.\nC[0, 1]\n= 2·4\n= 8");
  assert.deepEqual(marksOf(reshaped, 1, "C", 1).slice(-2), [["y", "1", "write"], ["C", "1", "write"]]);
  assert.deepEqual(marksOf(reshaped, 1, "y", 1), marksOf(reshaped, 1, "C", 1));
  assert.deepEqual(stepMarks(reshaped, 1), []);
  assert.deepEqual(focusOf(reshaped, 1), { name: "y", index: 0 });
});
