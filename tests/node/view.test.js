// Arithmetic of zoom and pan.
import assert from "node:assert/strict";
import { test } from "node:test";
import { cellXY, hitTest } from "../../visuals/stage/layout.js";
import { MAX_ZOOM, WHOLE, viewFrom, viewOf, viewText, zoomed } from "../../visuals/stage/view.js";

const W = 900, H = 400;
const random = (() => { let s = 7; return () => (s = (s * 16807) % 2147483647) / 2147483647; })();
const under = (view, px, py) => [view.x + px / view.scale, view.y + py / view.scale];

test("zooming keeps the point under the cursor unless the view reaches an edge", () => {
  for (let n = 0; n < 500; n++) {
    const scale = 2 + 6 * random();
    const before = viewOf(scale, random() * W * 0.4, random() * H * 0.4, W, H);
    const px = W * (0.3 + 0.3 * random()), py = H * (0.3 + 0.3 * random());
    const after = zoomed(before, 1 + random(), px, py, W, H);
    if (after.x === 0 || after.y === 0 || after.scale === MAX_ZOOM) continue; // the view reaches an edge
    const [x, y] = under(before, px, py), [u, v] = under(after, px, py);
    if (after.x > W * (1 - 1 / after.scale) - 1e-6 || after.y > H * (1 - 1 / after.scale) - 1e-6) continue;
    assert.ok(Math.abs(x - u) < 1e-9 && Math.abs(y - v) < 1e-9);
  }
});

test("a view stays inside the layout, and the whole layout is the object WHOLE", () => {
  let view = WHOLE;
  for (let n = 0; n < 2000; n++) {
    view = zoomed(view, 0.5 + 1.2 * random(), random() * W, random() * H, W, H, 400 * (random() - 0.5), 400 * (random() - 0.5));
    assert.ok(view.scale >= 1 && view.scale <= MAX_ZOOM);
    assert.ok(view.x >= 0 && view.x + W / view.scale <= W + 1e-6);
    assert.ok(view.y >= 0 && view.y + H / view.scale <= H + 1e-6);
    if (view.scale === 1) assert.equal(view, WHOLE);
  }
  assert.equal(zoomed(viewOf(3, 10, 10, W, H), 1e-3, 5, 5, W, H), WHOLE);
});

test("dragging moves the picture with the finger", () => {
  const before = viewOf(4, 200, 100, W, H), after = zoomed(before, 1, 50, 50, W, H, 40, -20);
  assert.deepEqual(after, { scale: 4, x: 190, y: 105 });
});

// A tensor of 20 x 30 cells, two pictures with a margin of padding, and a matrix whose last band is narrower.
function layoutOf(width, height) {
  const tensors = [["x", 1, 20, 30, 0, {}], ["y", 2, 9, 9, 1, {}], ["D", 1, 4, 50, 0, { across: 1, down: 3, tileCols: 20 }]];
  const blocks = Object.fromEntries(tensors.map(([name, planes, rows, cols, pad, way], n) => {
    const t = { name, planes, rows, cols, pad: [pad, pad, pad, pad], size: planes * rows * cols };
    const cell = width / 100;
    return [name, { t, x: n * width / 3, y: n * height / 4, cell, gap: 6, way: { across: planes, down: 1, tileRows: rows + 2 * pad, tileCols: cols + 2 * pad, ...way } }];
  }));
  return { width, height, blocks };
}

const centreOf = ({ scale, x, y }, { width, height }) => [x + width / scale / 2, y + height / scale / 2];

test("a view in a link is parsed back to a pixel of the screen", () => {
  const layout = layoutOf(W, H);
  for (let n = 0; n < 300; n++) {
    const view = viewOf(1.5 + 10 * random(), random() * W, random() * H, W, H), again = viewFrom(viewText(view, layout), layout);
    for (const key of ["scale", "x", "y"]) assert.ok(Math.abs(again[key] - view[key]) * view.scale < 1 || key === "scale" && Math.abs(again.scale - view.scale) < 1e-3, `${n} ${key}`);
  }
  assert.equal(viewText(WHOLE, layout), "");
});

test("a link shows the same cell at the centre in a window of another size", () => {
  const here = layoutOf(W, H), there = layoutOf(520, 900);
  let inside = 0;
  for (let n = 0; n < 1000; n++) {
    const view = viewOf(3 + 5 * random(), random() * W, random() * H, W, H), text = viewText(view, here);
    const [, cell, dx, dy] = text.split(","), [name, index] = cell.split(":");
    if (dx < 0.01 || dx > 0.99 || dy < 0.01 || dy > 0.99) continue; // between tensors, or within the rounding of an edge
    const scale = view.scale, at = cellXY(there.blocks[name], +index), size = there.blocks[name].cell;
    const [x, y] = centreOf(viewFrom(text, there), there), half = [there.width / scale / 2, there.height / scale / 2];
    if (at.x < half[0] || at.y < half[1] || at.x + size > there.width - half[0] || at.y + size > there.height - half[1]) continue; // at an edge
    assert.deepEqual(hitTest(there, x, y), { name, index: +index });
    inside++;
  }
  assert.ok(inside > 30, inside);
});

test("links with a centre as shares of the layout open as before; one to a tensor that is not shown opens the whole", () => {
  const layout = layoutOf(W, H);
  assert.deepEqual(centreOf(viewFrom("2,0.4,0.5", layout), layout), [0.4 * W, 0.5 * H]);
  for (const text of ["2,q:0,0.5,0.5", "2,x:600,0.5,0.5"]) assert.equal(viewFrom(text, layout), WHOLE);
});
