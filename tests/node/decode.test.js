// The player's decoder: invalid scenes throw; values, events and captions of valid ones.
import assert from "node:assert/strict";
import test from "node:test";

import {
  captionOf, copiesOf, decodeScene, eventOf, eventsAt, group, isAir, isPadding, isWritten, lastEvent, lineOf, nextOfLine, reader, sourceOf,
  sameScene, unpack, valueAt, writtenAt,
} from "../../visuals/stage/decode.js";
import { message, pack } from "./payload.js";

const decode = (scene) => {
  const { meta, block } = pack(scene);
  return decodeScene(meta, block);
};
const throws = (scene, message) => assert.throws(() => decode(scene), (error) => error instanceof Error && message.test(error.message));
const cells = (t, step) => Array.from({ length: t.size }, (_, i) => (isWritten(t, i, step) ? valueAt(t, i, step) : null));

// x has values from the start. D copies it cell by cell, with one zero of the padding. y is written twice, air never.
const SMALL = {
  steps: 4,
  tensors: [
    { name: "x", cols: 3, values: [1, 2, 3] }, { name: "D", role: "workspace", cols: 4 }, { name: "y", role: "output", cols: 2 }, { name: "air", cols: 2 },
  ],
  writes: [
    { target: "D", steps: [0, 1, 2, 3], source: "x", index: [2, -1, 0, 2] },
    { target: "y", steps: [3, 1, 2], values: [0.5, -7, 4], cells: [0, 0, 1] },
  ],
};

test("a message is unpacked at any offset of its buffer", () => {
  const bytes = message(SMALL, { step: 2 }), shifted = new Uint8Array(bytes.length + 3);
  shifted.set(bytes, 3);
  for (const one of [bytes, shifted.subarray(3)]) {
    const data = unpack(one), scene = decodeScene(data.meta, data.block);
    assert.equal(data.step, 2);
    assert.equal(data.strip, null);
    assert.deepEqual(cells(scene.tensors.D, 3), [3, 0, 1, 3]);
  }
});

test("an invalid message throws", () => {
  for (const bytes of [null, undefined, "text", [1, 2, 3, 4], new Uint8Array(0), new Uint8Array(3)])
    assert.throws(() => unpack(bytes), /the scene came without its bytes/);
  const whole = message(SMALL);
  assert.throws(() => unpack(whole.subarray(0, 40)), SyntaxError);
  assert.throws(() => unpack(new Uint8Array([255, 255, 255, 255, 1, 0, 0, 0, 1])), SyntaxError);
  const { meta, block } = pack(SMALL);
  assert.throws(() => decodeScene(meta, block.subarray(0, 8)), RangeError);
});

test("messages with equal heads and blocks have the same scene, whatever their strips", () => {
  const same = (a, b) => sameScene(unpack(a), unpack(b));
  assert.ok(same(message(SMALL), message(SMALL)));
  assert.ok(same(message(SMALL), message(SMALL, {}, { selected: "real" })));
  assert.ok(!same(message(SMALL), message({ ...SMALL, key: "l" })));
  assert.ok(!same(message(SMALL), message({ ...SMALL, writes: [SMALL.writes[0]] })));
});

test("a missing scene and one of another version throw", () => {
  for (const version of [2, 4, "3", undefined]) throws({ ...SMALL, version }, /reads scenes of version 3, this one is version/);
  for (const meta of [undefined, null, 7]) assert.throws(() => decodeScene(meta, new Uint8Array()), /the scene is missing/);
});

test("arrays are read by type; an unknown type throws", () => {
  const block = new Uint8Array([1, 0, 255, 255, 0, 0, 128, 63]), read = reader(block);
  const at = (dtype, offset, length) => Array.from(read({ dtype, offset, length }));
  assert.deepEqual([at("u1", 0, 4), at("u2", 0, 2), at("i2", 0, 2), at("i4", 0, 1), at("f4", 4, 1)],
    [[1, 0, 255, 255], [1, 65535], [1, -1], [-65535], [1]]);
  assert.equal(read(null), null);
  for (const dtype of ["f8", "u4", ""]) assert.throws(() => read({ dtype, offset: 0, length: 1 }), /numbers of type .* are unknown/);
});

test("integers are read from their changes, floats from their places", () => {
  const block = new Uint8Array([1, 255, 3, 0, 2, 1, 2, 0, 0, 0, 128, 63, 0, 0, 0, 128]), read = reader(block);
  const changes = { dtype: "i1", offset: 0, length: 3 };
  assert.deepEqual([...read({ ...changes, from: 300 })], [300, 301, 300, 303]);
  assert.deepEqual([...read({ ...changes, from: 0, runs: { dtype: "u1", offset: 4, length: 3 } })], [0, 1, 2, 1, 4, 7]);
  assert.deepEqual([...read({ ...changes, length: 0, from: 7 })], [7]);
  assert.deepEqual([...read({ dtype: "i1", offset: 1, length: 1, from: -(2 ** 31) })], [-(2 ** 31), 2 ** 31 - 1]); // 32 bits wrap around
  const floats = { dtype: "f4", offset: 8, length: 2, index: { dtype: "u1", offset: 0, length: 1 } };
  assert.deepEqual([...read(floats)], [-0]);
  assert.ok(read(floats) instanceof Float32Array);
});

test("an unknown tensor throws with its name", () => {
  const write = (fields) => ({ ...SMALL, writes: [{ ...SMALL.writes[0], ...fields }] });
  for (const name of ["Z", "toString", "constructor", "__proto__"]) {
    throws(write({ target: name }), new RegExp(`names a tensor ${name} that it does not hold`));
    throws(write({ source: name }), /that it does not hold/);
    throws({ ...SMALL, reads: [{ source: name, start: [0, 0, 0, 0, 0], cells: [] }] }, /does not hold/);
    throws({ ...SMALL, matmuls: [{ left: "x", right: "D", out: name }] }, /does not hold/);
    throws({ ...SMALL, groups: [{ rows: [["x", name]], memorySpace: "global", title: "" }] }, /does not hold/);
  }
});

test("an index out of range throws", () => {
  const first = (fields) => ({ ...SMALL, writes: [{ ...SMALL.writes[0], ...fields }] });
  for (const index of [[0, 1, 2, 3], [0, 1, 2, -2], [0, 1, 2, 1 << 20]]) throws(first({ index }), /leaves its range/);
  for (const list of [[0, 1, 2, 4], [-1, 1, 2, 3]]) throws(first({ cells: list }), /leaves its range/);
  for (const steps of [[0, 1, 2, 4], [9], []]) throws(first({ steps }), /leaves its range/);
  assert.throws(() => group(3, 2, (i) => i), /leaves its range/);
  assert.throws(() => group(1, 2, () => NaN), /leaves its range/);
});

test("arrays of the wrong length throw", () => {
  throws({ ...SMALL, tensors: [{ name: "x", cols: 3, values: [1, 2] }, ...SMALL.tensors.slice(1)] }, /x has 2 values for 3 cells/);
  const write = (fields) => ({ ...SMALL, writes: [{ target: "y", steps: [0], ...fields }] });
  for (const fields of [{ values: [1] }, { source: "x", index: [0] }, { values: [1, 2], cells: [0] }, {}]) throws(write(fields), /write into y misses cells/);
});

test("copies in a cycle throw; long chains do not", () => {
  const names = Array.from({ length: 20 }, (_, n) => `t${n}`);
  const tensors = names.map((name, n) => ({ name, values: n ? null : [6] }));
  const writes = names.slice(1).map((target, n) => ({ target, steps: [0], source: names[n], index: [0] }));
  const { tensors: made } = decode({ tensors, writes: [...writes].reverse() });
  assert.deepEqual(cells(made.t19, 0), [6]);
  throws({ tensors, writes: [...writes, { target: "t0", steps: [0], source: "t19", index: [0] }] }, /is copied from itself/);
  throws({ tensors, writes: [{ target: "t0", steps: [0], source: "t0", index: [0] }] }, /t0 is copied from itself/);
});

test("a copy of a cell that is not written yet throws", () => {
  const scene = (when) => ({
    steps: 3, tensors: [{ name: "a" }, { name: "b" }],
    writes: [{ target: "b", steps: [1], source: "a", index: [0] }, { target: "a", steps: [when], values: [4] }],
  });
  assert.deepEqual(cells(decode(scene(1)).tensors.b, 1), [4]);
  throws(scene(2), /a copy reads a cell of a that nothing has written yet/);
});

test("a cell has the value of its last write", () => {
  const { D, y, x, air } = decode(SMALL).tensors;
  assert.deepEqual([-1, 0, 1, 2, 3].map((t) => cells(y, t)),
    [[null, null], [null, null], [-7, null], [-7, 4], [0.5, 4]]);
  assert.deepEqual(cells(D, 1), [3, 0, null, null]);
  assert.deepEqual(cells(x, -1), [1, 2, 3]);
  assert.deepEqual([0, 1, 2, 3].map((t) => lastEvent(y, 0, t)), [-1, 0, 0, 2]);
  assert.equal(valueAt(y, 1, 0), 4, "a ghost has the value it will have");
  assert.equal(eventOf(y, 1, 0), 1);
  assert.deepEqual([isAir(air, 0), isAir(y, 0), isAir(x, 0)], [true, false, false]);
  assert.deepEqual([isWritten(air, 0, 3), eventOf(air, 0, 3), valueAt(air, 0, 3)], [false, -1, 0]);
  assert.deepEqual([0, 1, 2, 3].map((i) => isPadding(D, i, 0)), [false, true, false, false]);
  assert.ok(!isPadding(y, 0, 3) && !isPadding(x, 0, 3));
});

test("of two writes in one step, the one declared later counts", () => {
  const write = (value) => ({ target: "a", steps: [1], values: [value] });
  const { a } = decode({ steps: 2, tensors: [{ name: "a", values: [9] }], writes: [write(1), write(2)] }).tensors;
  assert.deepEqual([cells(a, 0), cells(a, 1)], [[9], [2]]);
});

test("a copy has the value of its source after that step", () => {
  const { tensors } = decode({
    steps: 3, tensors: [{ name: "a", cols: 2, values: [0, 0] }, { name: "b", cols: 2 }, { name: "c" }],
    writes: [
      { target: "c", steps: [0, 1, 2], source: "b", index: [0, 0, 0], cells: [0, 0, 0] },
      { target: "b", steps: [0, 1, 2], source: "a", index: [0, 1, 0], cells: [0, 0, 0] },
      { target: "a", steps: [1, 2], values: [5, 6], cells: [1, 0] },
    ],
  });
  assert.deepEqual([0, 1, 2].map((t) => cells(tensors.c, t)), [[0], [5], [6]]);
});

test("an index that is a sum is expanded", () => {
  const { D } = decode({
    steps: 2, tensors: [{ name: "x", cols: 6, values: [0, 1, 2, 3, 4, 5] }, { name: "D", rows: 3, cols: 2 }],
    writes: [{ target: "D", steps: [0, 1], source: "x", index: { row: [0, 2, 4], col: [0, 1], padding: [3] } }],
  }).tensors;
  assert.deepEqual(cells(D, 1), [0, 1, 2, 0, 4, 5]);
  assert.ok(isPadding(D, 3, 1));
});

test("copies from one source have its hue; copies from several sources do not", () => {
  const tensors = [{ name: "x", values: [1] }, { name: "w", role: "filter", values: [2] }, { name: "s", role: "workspace", cols: 2 }];
  const copy = (source, cell) => ({ target: "s", steps: [0], source, index: [0], cells: [cell] });
  const hue = (...writes) => decode({ tensors, writes }).tensors.s.hue;
  assert.deepEqual([hue(), hue(copy("w", 0)), hue(copy("w", 0), copy("w", 1)), hue(copy("w", 0), copy("x", 1))],
    ["workspace", "filter", "filter", "workspace"]);
});

test("`once` and `max` of a tensor", () => {
  const { x, D, y, air } = decode(SMALL).tensors;
  assert.deepEqual([D.once, y.once, D.max, y.max, x.max, air.max], [true, false, 3, 7, 3, 1]);
  const again = decode({ steps: 2, tensors: [{ name: "a", cols: 4 }], writes: [{ target: "a", steps: [0, 1], values: [1, 2], cells: [3, 3] }] });
  assert.equal(again.tensors.a.once, false, "fewer writes than cells, but one cell is written twice");
});

test("the events of a step", () => {
  const { D, y } = decode(SMALL).tensors;
  assert.deepEqual([-1, 0, 1, 2, 3].map((t) => writtenAt(y, t)), [[], [], [0], [1], [0]]);
  assert.deepEqual([...eventsAt(D, 2)].map((e) => [D.step[e], D.cell[e], D.from[e], D.value[e]]), [[2, 2, 0, 1]]);
  const all = [0, 1, 2, 3].flatMap((t) => [...eventsAt(y, t)]);
  assert.deepEqual(all, [0, 1, 2], "in the order of the steps");
});

test("copies of a cell, in the order of the steps", () => {
  const { D, x, y } = decode(SMALL).tensors;
  const to = (target, i) => [...copiesOf(target, x, i)].map((e) => target.cell[e]);
  assert.deepEqual([to(D, 0), to(D, 1), to(D, 2), to(y, 0)], [[2], [], [0, 3], []]);
});

test("the next step of a line, continuing from the start", () => {
  const scene = decode({ ...SMALL, source: { lines: [7, 8, 7, 9] } });
  const next = (line, step) => nextOfLine(scene, line, step);
  assert.deepEqual([next(7, 0), next(7, 2), next(9, 3), next(8, 1), next(1, 0)], [2, 0, 3, 1, -1]);
  assert.equal(lineOf(sourceOf(scene, 3), 3), 9);
  const still = decode({ ...SMALL, source: { lines: [5] } });
  assert.deepEqual([lineOf(sourceOf(still, 3), 3), nextOfLine(still, 5, 3), nextOfLine(still, 4, 3)], [5, 0, -1]);
});

test("each step shows the file of the kernel that runs, and its line", () => {
  const scene = decode({ ...SMALL, source: { file: "one.cu", lines: [7] }, nextSources: [{ file: "two.cu", since: 1, lines: [7, 9] }, { file: "three.cu", since: 3, lines: [0] }] });
  const at = (step) => [sourceOf(scene, step).file, lineOf(sourceOf(scene, step), step)];
  assert.deepEqual([0, 1, 2, 3].map(at), [["one.cu", 7], ["two.cu", 7], ["two.cu", 9], ["three.cu", 0]]);
  assert.deepEqual([nextOfLine(scene, 7, 0), nextOfLine(scene, 7, 1), nextOfLine(scene, 9, 1), nextOfLine(scene, 7, 3)], [0, 1, 2, -1]);
  assert.equal(sourceOf(decode(SMALL), 2), undefined);
});

test("reads that are sent as rectangles are written out", () => {
  const wide = { name: "wide", rows: 3, cols: 5, values: Array(15).fill(1) };
  const packed = pack({ tensors: [wide], steps: 3, reads: [{ source: "wide", start: [0, 4, 4, 7], first: [1, 0, 4], cols: [2, 1, 1] }] });
  assert.deepEqual([...decodeScene(packed.meta, packed.block).reads[0].cells], [1, 2, 6, 7, 4, 9, 14]);
});

const caption = (template, args = [0], dtype = "f4") =>
  captionOf(decode({ tensors: [{ name: "a" }], captions: { templates: [template], args, width: args.length, dtype } }), 0);

test("captions: marks become roles, all else is text", () => {
  assert.deepEqual(caption("The [data matrix](workspace), [x](input)"), [
    { text: "The ", role: "" }, { text: "data matrix", role: "workspace" }, { text: ", ", role: "" }, { text: "x", role: "input" },
  ]);
  for (const text of ["plain", "f(x)[0] (a)", "[x] (input)", "<b onclick=alert(1)>&amp;</b>", "$1 $& \\n"])
    assert.deepEqual(caption(text), [{ text, role: "" }]);
  assert.deepEqual(caption("[<img src=x onerror=1>](output)"), [{ text: "<img src=x onerror=1>", role: "output" }]);
  assert.deepEqual(caption(""), []);
});

test("captions: double braces become single braces", () => {
  assert.equal(caption("{{0}} {{{0}}} {{ }}", [3])[0].text, "{0} {3} { }");
});

test("captions: formats of numbers", () => {
  for (const [value, text] of [
    [3, "3"], [-0, "0"], [-12, "−12"], [0.5, "0.5"], [1 / 3, "0.3333"], [1.0625, "1.062"], [1.1875, "1.188"], [12345.678, "12346"], [-8174.6, "−8175"],
    [1e-7, "0.0000001"], [2 ** 49, "562949953421312"], [2 ** 80, "1.209·10^24"], [-3e38, "−3.000·10^38"], [Infinity, "∞"], [-Infinity, "−∞"],
    [NaN, "NaN"],
  ])
    assert.equal(caption("{0}", [value])[0].text, text);
  assert.equal(caption("{1}, {0}", [1_000_000, -2], "i4")[0].text, "−2, 1000000");
});
