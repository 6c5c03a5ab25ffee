// A diagram: boxes stay inside and apart, text fits its box, a point finds its box or its step, drawing asks for no other API.
import assert from "node:assert/strict";
import test from "node:test";

import { makeTheme } from "../../visuals/stage/colour.js";
import { decodeScene } from "../../visuals/stage/decode.js";
import { Still, drawMarks } from "../../visuals/stage/draw.js";
import { explain } from "../../visuals/stage/explain.js";
import { hitTest, layOut, withView } from "../../visuals/stage/layout.js";
import { layOutDiagram, stepAt } from "../../visuals/stage/diagram.js";
import { SvgContext } from "../../visuals/stage/svg.js";
import { viewFrom, viewText } from "../../visuals/stage/view.js";
import { LIGHT } from "./picture.js";
import { pack } from "./payload.js";

const COLUMNS = 20, STEPS = 2 * COLUMNS;
const measure = (text, bold) => text.length * (bold ? 8 : 7);
const font = (px, bold) => `${bold ? 600 : 400} ${px}px sans-serif`;

function diagramOf(columns = COLUMNS) {
  const boxes = Array.from({ length: columns }, (_, n) => [
    { name: "k", index: n, column: n, row: 0, role: "output", lines: [`layer ${n}`, "1.5 µs"], first: n, last: n, kernel: true, left: 0, right: 1 },
    { name: "t", index: 2 * n, column: n, row: 1, role: "input", lines: ["32×6×28×28", "602 KB"], first: n, last: n + 2, kernel: false, left: 0, right: 0.6 },
    { name: "t", index: 2 * n + 1, column: n, row: 1, role: "output", lines: ["4 B"], first: n, last: n, kernel: false, left: 0.6, right: 1 },
  ]).flat();
  return { boxes, heights: [1, 0.8], arrows: boxes.slice(3).flatMap((_, n) => (n % 3 ? [] : [[n + 1, n + 3], [n, n + 1]])), groups: [["block", 2, columns - 2]], title: "Memory:", totals: Array(STEPS).fill("1 MB"), phases: [["forward", 0], ["backward", 20]],
    areas: [{ name: "weights", role: "filter", faint: false, values: null }, { name: "state", role: "filter", faint: true, values: null }] };
}

function sceneOf() {
  const diagram = diagramOf();
  const { meta, block } = pack({ steps: STEPS, tensors: [{ name: "k", cols: COLUMNS, role: "output" }, { name: "t", cols: 2 * COLUMNS, values: Array(2 * COLUMNS).fill(1) }],
    writes: [{ target: "k", steps: Array.from({ length: COLUMNS }, (_, n) => n), values: Array(COLUMNS).fill(1) }] });
  const scene = decodeScene(meta, block);
  diagram.areas.forEach((area, k) => { area.values = Float32Array.from({ length: STEPS }, (_, n) => (k + 1) * (n + 1)); });
  scene.diagram = diagram;
  return scene;
}
const scene = sceneOf();

for (const [width, height, scale] of [[900, 460, 1], [620, 300, 0.8], [360, 480, 1], [1500, 900, 2]])
  test(`boxes are inside a picture of ${width} x ${height} and apart`, () => {
    const layout = layOut(scene, width, height, measure, scale), { boxes, chart } = layout.diagram;
    assert.equal(boxes.length, scene.diagram.boxes.length);
    for (const b of boxes) assert.ok(b.x >= 0 && b.x + b.w <= width && b.y >= 0 && b.y + b.h <= chart.y, JSON.stringify(b));
    for (const [n, a] of boxes.entries()) for (const b of boxes.slice(n + 1))
      assert.ok(a.x + a.w <= b.x + 0.01 || b.x + b.w <= a.x + 0.01 || a.y + a.h <= b.y + 0.01 || b.y + b.h <= a.y + 0.01, "two boxes overlap");
    for (const b of boxes) for (const { text, px } of b.texts) assert.ok((measure(text) * px) / 13 <= b.w, `${text} is wider than its box`);
    assert.equal(layout.fits, layout.height <= height + 1);
  });

test("a point finds its box, a point of the chart its step", () => {
  const layout = layOut(scene, 900, 460, measure), { boxes, chart } = layout.diagram, box = boxes[4];
  assert.deepEqual(hitTest(layout, box.x + box.w / 2, box.y + 1), { name: box.name, index: box.index });
  assert.equal(hitTest(layout, 1, 1), null);
  assert.equal(stepAt(layout.diagram, STEPS, chart.x + 1, chart.y + 1), 0);
  assert.equal(stepAt(layout.diagram, STEPS, chart.x + chart.w - 1, chart.y + 1), STEPS - 1);
  assert.equal(stepAt(layout.diagram, STEPS, chart.x + 1, chart.y - 1), null);
});

test("a zoomed diagram finds the same box, and its view survives a link", () => {
  const layout = layOut(scene, 900, 460, measure), view = { scale: 2, x: 100, y: 50 }, zoomed = withView(layout, view), box = zoomed.diagram.boxes[20];
  assert.deepEqual(hitTest(zoomed, box.x + 1, box.y + 1), { name: box.name, index: box.index });
  const found = viewFrom(viewText(view, layout), layout);
  for (const key of ["scale", "x", "y"]) assert.ok(Math.abs(found[key] - view[key]) < 0.1, key);
});

test("the picture is drawn as SVG at any step, the same from any step before", () => {
  const layout = layOut(scene, 900, 460, measure), theme = makeTheme(LIGHT, false);
  const picture = (...steps) => {
    const context = new SvgContext((text, f) => measure(text) * (parseFloat(f.match(/([\d.]+)px/)[1]) / 13)), still = new Still(context, scene, layout, theme, font, 0);
    for (const step of steps) {
      Object.assign(context, { out: [] });
      still.step = null;
      still.goto(step);
    }
    drawMarks(context, still, [{ name: "k", cells: [3], as: "write" }, { name: "t", cells: [1], as: "read", faint: true }], 1);
    return context.text(900, 460, "t", "d");
  };
  assert.equal(picture(0, 7, 12), picture(12));
  assert.notEqual(picture(12), picture(13));
  assert.match(picture(12), /layer 3/);
});

test("a line over the areas lifts the top of the chart and is in the legend", () => {
  const theme = makeTheme(LIGHT, false), line = { name: "measured", role: "ink", faint: false, values: Float32Array.from({ length: STEPS }, (_, n) => 100 * (n + 1)) };
  const drawn = (diagram) => {
    const own = { ...scene, diagram }, context = new SvgContext((text, f) => measure(text) * (parseFloat(f.match(/([\d.]+)px/)[1]) / 13));
    new Still(context, own, layOut(own, 900, 460, measure), theme, font, 0).goto(5);
    return context.text(900, 460, "t", "d");
  };
  const plain = drawn(scene.diagram), lined = drawn({ ...scene.diagram, areas: [...scene.diagram.areas, line] });
  const path = (text) => text.match(new RegExp(`<path d="[^"]*"[^>]*stroke="${theme.tokens.ink}"[^>]*>`, "g")) || [];
  assert.equal(path(lined).length, path(plain).length + 1);
  assert.equal(path(lined).at(-1).match(/L/g).length, 2 * STEPS - 1);
  assert.match(lined, />measured</);
  assert.doesNotMatch(plain, />measured</);
});

test("a box is explained by the scene's sentence alone", () => {
  const captions = { templates: ["[x](input) is read"], kind: Array(COLUMNS).fill(0), args: Array(COLUMNS).fill(0), width: 1 };
  const explained = { ...scene, annotations: [{ tensor: scene.tensors.k, captions, links: [{ source: scene.tensors.t, cells: Int32Array.from({ length: COLUMNS }, (_, n) => (n ? n : -1)) }] }] };
  const { parts, marks } = explain(explained, 0, "k", 3);
  assert.deepEqual(parts.map((p) => p.text), ["x", " is read"]);
  assert.deepEqual(marks.map((m) => [m.name, m.as, m.cells]), [["t", "read", [3]], ["k", "write", [3]]]);
});

test("titles beside the rows leave the boxes room, ticks stand over the boxes' axis, and a short box stays visible", () => {
  const boxes = [[0, 0.5], [0.5, 0.5001], [0.6, 1]].map(([left, right], n) => ({ name: "t", index: n, column: 0, row: n % 2, role: "input", lines: ["x"], first: 0, last: 3, kernel: false, left, right }));
  const timed = { ...scene, diagram: { boxes, heights: [1, 1], arrows: [], groups: [], areas: [], title: "", totals: [], phases: [], rows: ["copy in", "a longer title"], ticks: [["0", 0], ["2 ms", 0.5], ["4 ms", 1]] } };
  const { diagram } = layOut(timed, 900, 400, measure), [title] = diagram.rows;
  const widest = measure("a longer title") * (11.5 / 13);
  for (const box of diagram.boxes) assert.ok(box.x >= title.x + widest && box.w >= 1.5, JSON.stringify(box));
  assert.equal(diagram.axis.length, 3);
  assert.ok(Math.abs(diagram.axis[1].x - (diagram.boxes[0].x + diagram.boxes[0].w)) < 3);
  assert.ok(diagram.axis[2].x <= 900);
  assert.ok(diagram.rows.every((row, n) => row.y === diagram.boxes[n].y && row.h === diagram.boxes[n].h));
});

test("a name with a number in a narrow box is stacked, or its number alone where the box is low", () => {
  const named = (width, height, rows) => {
    const boxes = Array.from({ length: rows }, (_, n) => ({ name: "g", index: n, column: 0, row: n, role: "input", lines: [`GPU ${n + 1}`], first: 0, last: 0, kernel: true, left: 0, right: 0.06 }));
    const diagram = { boxes, heights: Array(rows).fill(1), arrows: [], groups: [], areas: [], title: "", totals: [], phases: [] };
    return layOutDiagram({ diagram }, width, height, measure).diagram.boxes.map((box) => box.texts.map((line) => line.text));
  };
  assert.deepEqual(named(1200, 400, 4)[2], ["GPU 3"]);
  assert.deepEqual(named(390, 400, 4)[2], ["GPU", "3"]);
  assert.deepEqual(named(390, 160, 8)[2], ["3"]);
});

test("the total above the chart is no wider than the chart", () => {
  const narrow = sceneOf(), total = "6.37 MB of 16.2 MB at the peak, 6.37 MB measured", rooms = [];
  narrow.diagram.totals = Array(STEPS).fill(total);
  const layout = layOut(narrow, 340, 480, measure), context = new SvgContext((text) => measure(text));
  context.fillText = (text, x, y, room) => text === total && rooms.push(room);
  new Still(context, narrow, layout, makeTheme(LIGHT, false), font, 0).goto(3);
  assert.ok(rooms.length && rooms.every((room) => room === layout.diagram.chart.w), `${rooms}`);
});
