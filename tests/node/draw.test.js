// The picture: numbers of cells, outlines, and that a step's picture does not depend on the steps before it.
import assert from "node:assert/strict";
import test from "node:test";

import { makeTheme } from "../../visuals/stage/colour.js";
import { Still, cellText, drawMarks, drawMoving, outlines } from "../../visuals/stage/draw.js";
import { cellXY, layOut, withView } from "../../visuals/stage/layout.js";
import { LIGHT, Pixels, sample } from "./picture.js";

const WIDTH = 420, HEIGHT = 340;
const font = (px, bold) => `${bold ? 600 : 400} ${px}px sans-serif`;
const theme = makeTheme(LIGHT, false), scene = sample();

test("numbers are short enough for a cell", () => {
  for (const [v, text] of [
    [0, "0"], [-0, "0"], [7, "7"], [-12, "−12"], [255, "255"], [0.5, ".5"], [-0.25, "−.25"], [1.25, "1.3"], [-3.14, "−3.1"], [10.4, "10"], [-99.5, "−100"], [67.5, "68"], [-67.5, "−68"],
    [999999, "999999"], [1.85e31, "2e31"], [-3e6, "−3e6"], [Infinity, "∞"], [-Infinity, "−∞"], [NaN, "NaN"],
  ])
    assert.equal(cellText(v), text);
});

test("opposite numbers have opposite texts", () => {
  for (const v of [0.005, 0.125, 0.25, 2.5, 9.95, 10.5, 67.5, 1234.5, 2e7]) assert.equal(cellText(-v), `−${cellText(v)}`);
});

// Returns a layout with cells of this size, enlarged around the data.
function setUp(cell, scale = 1) {
  const layout = layOut(scene, WIDTH, HEIGHT, (text, bold) => text.length * (bold ? 8 : 7));
  for (const b of Object.values(layout.blocks)) {
    b.w *= cell / b.cell;
    b.h *= cell / b.cell;
    b.cell = cell;
  }
  const { D } = layout.blocks;
  return withView(layout, { scale, x: scale > 1 ? D.x - 5 : 0, y: scale > 1 ? D.y - 10 : 0 });
}

function still(layout, dpr, ctx = new Pixels(WIDTH * (dpr || 1), HEIGHT * (dpr || 1))) {
  return new Still(ctx, scene, layout, theme, font, dpr);
}

for (const [what, cell, dpr, scale] of [
  ["cells with numbers", 20, 1], ["cells without", 9, 1], ["cells of few pixels", 4, 1], ["a fine screen", 3, 2], ["any context", 4, 0],
  ["zoomed in", 20, 1, 2.7], ["few pixels, zoomed in", 3, 1, 2],
])
  test(`a step's picture is the same after any other steps: ${what}`, () => {
    const layout = setUp(cell, scale), expected = Array.from({ length: scene.steps + 1 }, (_, k) => {
      const s = still(layout, dpr);
      s.drawAll(k - 1);
      return s.ctx.at;
    });
    assert.ok(new Set(expected.map((at) => at.join())).size > scene.steps / 2, "most steps have different pictures");
    const one = still(layout, dpr);
    for (const step of [-1, 0, 1, 2, 11, 10, 3, 3, 7, -1, 11, 0, 5, 4, 11]) {
      one.goto(step);
      assert.equal(one.step, step);
      const other = one.ctx.at.findIndex((v, i) => v !== expected[step + 1][i]);
      assert.equal(other, -1, `step ${step}, pixel ${other % one.ctx.width}, ${Math.floor(other / one.ctx.width)}: ${one.ctx.at[other]}, not ${expected[step + 1][other]}`);
    }
  });

test("the ground is visible between small planes", () => {
  const layout = setUp(3), { y } = layout.blocks, s = still(layout, 1), [first, second] = [0, 10].map((i) => cellXY(y, i));
  const apart = second.x > first.x ? [first.x + 15 + 2, first.y + 1] : [first.x + 1, first.y + 6 + 2];
  s.drawAll(11);
  assert.equal(s.ctx.at[apart[1] * WIDTH + apart[0]], theme.grounds.panel.css);
});

test("cells outside the canvas are not drawn", () => {
  const layout = setUp(20, 20);
  const s = still(layout, 1), draw = s.ctx.fillRect.bind(s.ctx);
  let filled = 0;
  s.ctx.fillRect = (x, y, w, h) => { filled++; draw(x, y, w, h); };
  s.drawAll(3);
  assert.ok(filled < 30, `${filled}`);
});

test("a line under the picture says what the colour of cells without numbers means", () => {
  const key = (cell, scale = 1, keyed = true) => {
    const s = still({ ...setUp(cell), keyed }, 1), texts = [], swatches = [];
    if (scale > 1) s.layout = withView(s.layout, { scale, x: 0, y: 0 });
    s.ctx.fillText = (text, x, y) => texts.push([text, y]);
    s.ctx.fillRect = (x, y, w, h) => w === 11 && swatches.push(s.ctx.fillStyle);
    s.drawAll(11);
    const line = texts.filter(([text]) => /number:|0$/.test(text) && /[a-z]/.test(text));
    assert.ok(line.every(([, y]) => y > HEIGHT - 20 && y <= HEIGHT), "in the margin");
    return [line.map(([text]) => text), swatches.length];
  };
  assert.deepEqual(key(9)[0], ["Cells without a number:", "below 0", "above 0"]);
  assert.equal(key(9)[1], 5);
  assert.deepEqual(key(20), [[], 0]); // every cell has its number
  assert.deepEqual(key(9, 2), [[], 0]); // zoomed in, cells cover the margin
  assert.deepEqual(key(9, 1, false), [[], 0]);
});

test("large cells have numbers, ghosts do not", () => {
  const printed = (cell, step) => {
    const s = still(setUp(cell), 1), texts = [];
    s.ctx.fillText = (text) => texts.push(text);
    s.drawAll(step);
    return texts.filter((text) => /^–?\d+$/.test(text)).length;
  };
  const ring = 2 * (4 + 2) + 2 * 3, given = 12;
  assert.equal(printed(20, -1), ring + given);
  assert.equal(printed(20, 0), ring + given + 2); // a zero of the padding and an output
  assert.equal(printed(12, 11), 0);
});

test("numbers are opaque, and none is smaller than 6.8 px", () => {
  let drawn = 0;
  for (let cell = 8; cell <= 28; cell++) {
    const s = still(setUp(cell), 1);
    s.ctx.fillText = (text) => {
      if (!/^–?\d+$/.test(text)) return;
      drawn++;
      assert.equal(s.ctx.globalAlpha, 1);
      assert.ok(parseFloat(s.ctx.font.match(/([\d.]+)px/)[1]) >= 6.8, s.ctx.font);
    };
    s.drawAll(11);
  }
  assert.ok(drawn > 100);
});

test("the end of a step's animation is the picture of the step", () => {
  const layout = setUp(20), s = still(layout, 1);
  s.drawAll(3);
  drawMoving(s.ctx, s, 4); // complete: no cell moves
  const after = still(layout, 1);
  after.drawAll(3);
  assert.deepEqual(s.ctx.at, after.ctx.at);
  drawMoving(s.ctx, s, 4 - 1e-9);
  after.goto(4);
  for (const [name, t] of Object.entries(scene.tensors))
    for (let i = 0; i < t.size; i++) {
      const { x, y } = cellXY(layout.blocks[name], i), pixel = Math.round(y + 2) * WIDTH + Math.round(x + 2);
      assert.equal(s.ctx.at[pixel], after.ctx.at[pixel], `${name} ${i}`);
    }
  assert.equal(s.ctx.globalAlpha, 1);
});

// -- outlines ------------------------------------------------------------------------------------------------
const block = (planes, rows, cols, way, more = {}) => ({
  x: 100, y: 50, cell: 10, gap: 6, way, t: { planes, rows, cols, pad: [0, 0, 0, 0], ...more },
});
const boxes = (...args) => outlines(...args).map(({ x, y, w, h }) => [x, y, w, h]);

test("cells that fill a rectangle have one outline, others one for each part of a row", () => {
  const b = block(1, 4, 4, { across: 1, down: 1, tileRows: 4, tileCols: 4 });
  assert.deepEqual(boxes(b, [5, 6, 9, 10]), [[110, 60, 20, 20]]);
  assert.deepEqual(boxes(b, [5, 6, 9]), [[110, 60, 20, 10], [110, 70, 10, 10]]);
  assert.deepEqual(boxes(b, [9, 6, 5]), boxes(b, [5, 6, 9]));
  assert.deepEqual(boxes(b, [0, 1, 6, 7, 8, 9, 12, 13]), [[100, 50, 20, 10], [120, 60, 20, 10], [100, 70, 20, 20]]); // swizzled rows
  assert.deepEqual(boxes(b, [0, 2, 8]), [[100, 50, 10, 10], [120, 50, 10, 10], [100, 70, 10, 10]]);
  assert.deepEqual(boxes(b, [5, 6], true), [[110, 60, 10, 10], [120, 60, 10, 10]]);
  assert.deepEqual(boxes(b, []), []);
});

test("an outline never crosses a gap: one for each plane and band", () => {
  const planes = block(2, 2, 2, { across: 2, down: 1, tileRows: 2, tileCols: 2 });
  assert.deepEqual(boxes(planes, [0, 1, 4, 5]), [[100, 50, 20, 10], [126, 50, 20, 10]]);
  const bands = block(1, 2, 8, { across: 1, down: 2, tileRows: 2, tileCols: 4 });
  assert.deepEqual(boxes(bands, [2, 3, 4, 5]), [[120, 50, 20, 10], [100, 76, 20, 10]]);
  const ringed = block(1, 2, 2, { across: 1, down: 1, tileRows: 4, tileCols: 4 }, { pad: [1, 1, 1, 1] });
  assert.deepEqual(boxes(ringed, [0, 1, 2, 3]), [[110, 60, 20, 20]]);
});

test("a mark is stroked in its colour, on a rim unless it is faint, and globalAlpha is restored", () => {
  const layout = setUp(20), ctx = new Pixels(WIDTH, HEIGHT), strokes = [];
  ctx.strokeRect = () => strokes.push([ctx.strokeStyle, +ctx.globalAlpha.toFixed(3)]);
  drawMarks(ctx, { layout, theme }, [{ name: "x", cells: [1, 2], as: "read" }, { name: "D", cells: [0], as: "write", faint: true }], 0.5);
  assert.deepEqual(strokes, [[LIGHT.ground, 0.5], [LIGHT.read, 0.5], [LIGHT.write, 0.225]]);
  assert.equal(ctx.globalAlpha, 1);
});
