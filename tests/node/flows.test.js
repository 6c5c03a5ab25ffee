// Arrows between groups: where they begin and end, that they and their labels cover nothing, and that an SVG has them.
import assert from "node:assert/strict";
import test from "node:test";

import { makeTheme } from "../../visuals/stage/colour.js";
import { Still, drawFlows } from "../../visuals/stage/draw.js";
import { layOut } from "../../visuals/stage/layout.js";
import { SvgContext } from "../../visuals/stage/svg.js";
import { LIGHT, Pixels, decode } from "./picture.js";

const font = (px, bold) => `${bold ? 600 : 400} ${px}px sans-serif`;
const measure = (text, bold) => text.length * (bold ? 8 : 7);
const theme = makeTheme(LIGHT, false), SIZES = [[930, 448], [640, 330], [358, 600], [1300, 300], [420, 900]];
const LABELS = ["", "17.2 GB, predicted", "8.19 KB for this tile, predicted"];

// Four memories in a row, with an arrow down and one up between neighbours; no arrow at step 0.
function scene(side = 8) {
  const names = ["a", "b", "c", "d"], spaces = ["global", "global", "shared", "registers"];
  return decode({
    steps: 3,
    tensors: names.map((name, n) => ({ name, title: name, rows: n === 1 ? 1 : side, cols: n === 1 ? 2 : side, values: Array.from({ length: n === 1 ? 2 : side * side }, () => 1) })),
    groups: names.map((name, n) => ({ rows: [[name]], memorySpace: spaces[n], title: `memory ${name}` })),
    flows: [0, 1, 2].flatMap((n) => [[n, n + 1], [n + 1, n]]).map(([source, target]) => ({ source, target, texts: LABELS, text: [0, 1, 2], active: [0, 0, 1] })),
  });
}

function drawn(one, width, height, step) {
  const layout = layOut(one, width, height, measure), ctx = new Pixels(10, 10), paths = [], texts = [];
  let path = [];
  Object.assign(ctx, {
    beginPath: () => { path = []; }, moveTo: (x, y) => path.push([x, y]), lineTo: (x, y) => path.push([x, y]), closePath: () => path.push("closed"),
    stroke: () => paths.push({ path, colour: ctx.strokeStyle }), fill: () => {}, roundRect: () => {}, fillText: (text, x, y) => texts.push({ text, x, y }),
  });
  const still = new Still(ctx, one, layout, theme, font, 0);
  drawFlows(still, ctx, step);
  return { layout, paths, texts };
}

const inside = (g, x, y) => x > g.x + 1 && x < g.x + g.w - 1 && y > g.y + 1 && y < g.y + g.h - 1;
const onEdge = (g, [x, y]) => x >= g.x - 1 && x <= g.x + g.w + 1 && y >= g.y - 1 && y <= g.y + g.h + 1 && !inside(g, x, y);

for (const [width, height] of SIZES)
  for (const side of [4, 16])
    test(`arrows join their groups and cover nothing at ${width} x ${height}, tensors of ${side}`, () => {
      const one = scene(side), { layout, paths, texts } = drawn(one, width, height, 2);
      assert.equal(paths.length, 6);
      one.flows.forEach((flow, n) => {
        const [source, target] = [flow.source, flow.target].map((g) => layout.grounds.find((ground) => ground.group === g));
        const { path } = paths[n];
        assert.ok(onEdge(source, path[0]), `begins at its source: ${path[0]}`);
        assert.ok(onEdge(target, path.at(-1)), `ends at its target: ${path.at(-1)}`);
        path.slice(1).forEach(([x, y], k) => {
          const [u, v] = path[k];
          for (let part = 0; part <= 1; part += 0.05)
            for (const g of layout.grounds) assert.ok(!inside(g, u + (x - u) * part, v + (y - v) * part), `crosses ${g.title}`);
        });
      });
      assert.equal(texts.length, 6);
      for (const { text, x, y } of texts) {
        assert.ok(x + measure(text, false) <= width || width < 400, "its label is on the stage");
        for (const g of layout.grounds) assert.ok(!inside(g, x, y) && !inside(g, x + 0.9 * measure(text), y - 8), `${text} covers ${g.title}`);
      }
    });

for (const [width, height] of [[358, 480], [640, 600], [930, 700], [1300, 700]])
  test(`the arrow that closes a ring crosses no cell at ${width} x ${height}`, () => {
    const one = decode({
      steps: 3,
      tensors: ["a", "b", "c", "d"].map((name) => ({ name, title: name, rows: 1, cols: 16, values: Array(16).fill(1) })),
      groups: ["a", "b", "c", "d"].map((name) => ({ rows: [[name]], memorySpace: "workspace", title: `memory ${name}` })),
      flows: [[0, 1], [1, 2], [2, 3], [3, 0]].map(([source, target]) => ({ source, target, texts: ["", "chunk"], text: [0, 1, 1], active: [0, 0, 1] })),
    });
    const { layout, paths } = drawn(one, width, height, 2), blocks = Object.values(layout.blocks);
    assert.equal(paths.length, 4);
    const { path } = paths.at(-1);
    path.slice(1).forEach(([x, y], k) => {
      const [u, v] = path[k];
      for (let part = 0; part <= 1; part += 0.02)
        for (const b of blocks) assert.ok(!inside(b, u + (x - u) * part, v + (y - v) * part), `crosses ${b.t.name} at ${x}`);
    });
  });

test("a group that may not begin a column is below the one before it", () => {
  const one = scene(12);
  for (const g of one.groups.slice(1)) Object.assign(g, { column: false, memorySpace: "global" });
  one.flows = [];
  one.groups[0].memorySpace = "global";
  const { grounds } = layOut(one, 1300, 300, measure);
  grounds.slice(1).forEach((g, n) => assert.ok(g.x === grounds[n].x && g.y >= grounds[n].y + grounds[n].h));
});

test("an arrow without a label is not drawn; one in use is in colour", () => {
  const one = scene();
  assert.equal(drawn(one, 640, 330, 0).paths.length, 0);
  assert.deepEqual(new Set(drawn(one, 640, 330, 1).paths.map((p) => p.colour)), new Set([LIGHT.dim]));
  assert.deepEqual(new Set(drawn(one, 640, 330, 2).paths.map((p) => p.colour)), new Set([LIGHT.accent]));
});

test("an SVG has the arrows and their labels", () => {
  const one = scene(), layout = layOut(one, 640, 330, measure), ctx = new SvgContext((text) => 7 * text.length);
  const still = new Still(ctx, one, layout, theme, font, 0);
  still.drawAll(2);
  drawFlows(still, ctx, 2);
  const text = ctx.text(640, 330, "title", "description");
  assert.equal(text.split("8.19 KB for this tile, predicted").length - 1, 6);
  assert.equal(text.split(`stroke="${LIGHT.accent}"`).length - 1, 6);
});
