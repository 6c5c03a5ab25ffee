// Arithmetic of zoom and pan.
import assert from "node:assert/strict";
import { test } from "node:test";
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

test("a view in a link is parsed back, also in a window of another size", () => {
  for (let n = 0; n < 300; n++) {
    const view = viewOf(1.5 + 10 * random(), random() * W, random() * H, W, H), text = viewText(view, W, H);
    const again = viewFrom(text, W, H);
    assert.ok(Math.abs(again.scale - view.scale) < 1e-3 && Math.abs(again.x - view.x) < 1 && Math.abs(again.y - view.y) < 1);
    const other = viewFrom(text, 358, 700);
    const centre = (v, w, h) => [(v.x + w / v.scale / 2) / w, (v.y + h / v.scale / 2) / h];
    centre(other, 358, 700).forEach((c, k) => assert.ok(Math.abs(c - centre(view, W, H)[k]) < 2e-3));
  }
  assert.equal(viewText(WHOLE, W, H), "");
});
