// Positions of cells: properties over many scenes, sizes and views, random with a fixed seed.
import assert from "node:assert/strict";
import test from "node:test";

import { HEAD_LINE, MAX_CELL, NUMBERS_FROM, cellAt, cellPosition, cellXY, hitTest, layOut, rangeOf, tileXY, wideOf, withView } from "../../visuals/stage/layout.js";

const MIN_CELL = 2, HEAD = 25;
const SIZES = [[930, 448, 1], [600, 448, 1], [358, 600, 1], [1880, 900, 1.6], [1200, 520, 1]];
const measured = (scale) => (text, bold) => text.length * (bold ? 8.3 : 7) * scale;

function tensor(name, rows, cols, more = {}) {
  const t = { name, title: name, note: "", role: "input", planes: 1, rows, cols, pad: [0, 0, 0, 0], values: null, ...more };
  return { ...t, size: t.planes * rows * cols };
}

const rowsOf = (g) => g.rows.map((row) => row.filter(Boolean));
const tensorsOf = (scene) => scene.groups.flatMap((g) => rowsOf(g).flat());

// groups as [memory space, title, ...rows]; product: [left, right, out] by name
// tables: the groups that are tables, whose empty places are null
function sceneOf(groups, product, tables = []) {
  const scene = { groups: groups.map(([memorySpace, title, ...rows], n) => ({ memorySpace, title, rows, table: tables.includes(n) })), matmuls: [] };
  scene.tensors = Object.fromEntries(tensorsOf(scene).map((t) => [t.name, t]));
  if (product) {
    const [left, right, out] = product.map((name) => scene.tensors[name]);
    scene.matmuls.push({ left, right, out });
  }
  return scene;
}

function im2col(channels, size, filters, pad = 0) {
  const out = size + 2 * pad - 2;
  return sceneOf([
    ["global", "", [
      tensor("x", size, size, { title: "input", note: `${channels > 1 ? `${channels} channels of ` : ""}${size} × ${size}`, planes: channels, pad: [pad, pad, pad, pad] }),
      tensor("w", filters, 9 * channels, { title: "filters", note: `${filters} × ${9 * channels}` }),
      tensor("y", out, out, { title: "output", note: `${filters} planes of ${out} × ${out}`, planes: filters })]],
    ["workspace", "", [
      tensor("D", 9 * channels, out * out, { title: "data matrix (workspace)", note: `${9 * channels} × ${out * out}, each pixel copied up to 9 times` })]],
  ], ["w", "D", "y"]);
}

const square = (names, size) => names.map((name) => tensor(name, size, size, { note: `${size} × ${size}` }));
const gemm = () => sceneOf([
  ["global", "global memory", square(["A", "B", "C"], 16)],
  ["shared", "shared memory of block (0, 0)", square(["As", "Bs"], 8)],
  ["registers", "registers of its threads", square(["acc"], 8)],
], ["A", "B", "C"]);
const product = (M, N, K, size = "a note") => sceneOf([
  ["global", "global memory", [null, tensor("B", K, N, { note: size }), null], [tensor("A", M, K, { note: size }), tensor("C", M, N, { note: size }), tensor("C0", M, N)]],
  ["shared", "shared memory", [tensor("Bs", 8, 8)], [tensor("As", 8, 8)]],
  ["registers", "registers", [null, tensor("b", 1, 4)], [tensor("a", 4, 1), tensor("acc", 4, 4, { note: "4 × 4" })]],
], undefined, [0, 2]);
const twelve = () => sceneOf(["global", "shared", "registers", "workspace"].map((memorySpace, g) =>
  [memorySpace, memorySpace, [0, 1, 2].map((n) => tensor(`t${3 * g + n}`, [16, 8, 4, 12][g], [16, 8, 8, 20][g], { note: "a note" }))]));
const one = () => sceneOf([["global", "", [tensor("x", 8, 8, { title: "input", note: "8 × 8" })]]]);

// The registers of flash attention: the scores s of a tile beside m, l and o of the same queries.
function flash(queries, keys, width) {
  const scene = sceneOf([
    ["global", "global memory", ["Q", "K", "V", "O"].map((name) => tensor(name, 16, width, { note: `16 × ${width}` }))],
    ["global", "", [tensor("SP", 16, 16, { title: "S and P: not in global memory", note: "16 × 16" })]],
    ["shared", "shared memory of the block", [tensor("Qs", queries, width), tensor("Ks", keys, width), tensor("Vs", keys, width), tensor("Ps", queries, keys)]],
    ["registers", "registers, one row per query", [tensor("s", queries, keys), tensor("m", queries, 1), tensor("rescale", queries, 1), tensor("l", queries, 1), tensor("o", queries, width, { note: "sum so far" })]],
  ]);
  scene.groups.at(-1).aligned = true;
  return scene;
}

// A ring of stages: rows of lanes over the same steps, then two small tensors beside each other.
function ring(lanes, steps) {
  const timed = (name, rows, cols, note) => tensor(name, rows, cols, { title: `row ${name}`, note, timed: true });
  const rows = lanes.map((count, n) => [timed(`r${n}`, count, steps, n % 2 ? "" : "filling, read")]);
  return sceneOf([["shared", "one block", ...rows, [timed("p", 2, 4, "full, empty"), timed("q", 2, 4, "full, empty")]]]);
}

// mulberry32
function random(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

function randomScene(next) {
  const upTo = (n) => 1 + Math.floor(next() * n), pick = (...all) => all[Math.floor(next() * all.length)];
  const words = (n) => Array.from({ length: n }, () => "abcdefghij".slice(0, upTo(10))).join(" ");
  const groups = [];
  let tensors = 0;
  for (let g = upTo(4); g > 0; g--) {
    const rows = [];
    for (let r = upTo(2); r > 0; r--)
      rows.push(Array.from({ length: upTo(3) }, () => {
        const [rowsOf, cols] = pick([upTo(12), upTo(12)], [upTo(12), upTo(12)], [upTo(9), upTo(200)], [upTo(90), upTo(9)], [1, 1]);
        const planes = cols < 30 && rowsOf < 30 ? pick(1, 1, upTo(5)) : 1;
        const pad = next() < 0.2 ? [upTo(3) - 1, upTo(3) - 1, upTo(3) - 1, upTo(3) - 1] : [0, 0, 0, 0];
        return tensor(`t${tensors++}`, rowsOf, cols, { title: words(upTo(2)), note: next() < 0.3 ? "" : words(upTo(6)), planes, pad });
      }));
    groups.push([pick("global", "workspace", "shared", "registers"), next() < 0.5 ? "" : words(upTo(3)), ...rows]);
  }
  return sceneOf(groups);
}

// Every case: [what, scene, width, height, scale]
const cases = [];
for (const [what, scene] of Object.entries({
  toy: im2col(1, 8, 2), "32 x 32": im2col(1, 32, 2), ring: im2col(3, 8, 4, 1), gemm: gemm(), twelve: twelve(), one: one(), flash: flash(4, 8, 4),
  product: product(16, 16, 16), deep: product(8, 8, 40, "part 0–7, 0–39 of 4,096 × 4,096"), wide: product(64, 64, 16), one_by_one: product(1, 1, 1),
  lanes: ring([3, 1, 4, 4, 4, 4, 4], 58), few: ring([3, 1, 2, 2, 2], 31), single: ring([1, 1, 1, 1], 12),
  vectors: sceneOf([["global", "", [tensor("x", 1, 997)]], ["shared", "s", [tensor("s", 1, 256)]], ["registers", "", [tensor("r", 60, 1)]]]),
}))
  for (const size of SIZES) cases.push([`${what} at ${size}`, scene, ...size]);
const next = random(20);
for (let n = 0; n < 60; n++) {
  const scale = next() < 0.2 ? 1.6 : 1;
  if (n % 6 === 0) cases.push([`random flash ${n}`, flash(1 + n / 6, 8, 4), Math.round(340 + 1500 * next()), Math.round(380 + 500 * next()), 1]);
  cases.push([`random ${n}`, randomScene(next), Math.round((340 + 1500 * next()) * scale), Math.round((380 + 500 * next()) * scale), scale]);
}
const layouts = cases.map(([what, scene, width, height, scale]) =>
  ({ what, scene, width, height, scale, layout: layOut(scene, width, height, measured(scale), scale) }));
const blocksOf = (layout) => Object.values(layout.blocks);
const apart = (a, b) => a.x + a.w <= b.x + 1e-6 || b.x + b.w <= a.x + 1e-6 || a.y + a.h <= b.y + 1e-6 || b.y + b.h <= a.y + 1e-6;

function headBox(block, scale) {
  const measure = measured(scale), { t, x, headY, beside, below, titleWidth, leftHeight, way } = block;
  const line = titleWidth + (beside ? 8 * scale + measure(beside) : 0), w = Math.max(line, ...below.map((text) => measure(text)));
  return { x: leftHeight ? x - way.label : x, y: headY, w, h: leftHeight || (HEAD + HEAD_LINE * below.length) * scale, name: t.name };
}

test("each tensor and ground of the scene is in the layout", () => {
  for (const { what, scene, layout, width } of layouts) {
    assert.deepEqual(Object.keys(layout.blocks).sort(), Object.keys(scene.tensors).sort(), what);
    assert.equal(layout.width, width);
    const wanted = scene.groups.filter((g) => g.memorySpace !== "global" || g.title);
    assert.deepEqual(layout.grounds.map((g) => [g.ground, g.title]),
      wanted.map((g) => [g.memorySpace === "global" ? "panel" : `${g.memorySpace}-ground`, g.title]), what);
    for (const g of scene.groups)
      for (const t of rowsOf(g).flat()) assert.equal(layout.blocks[t.name].ground, g.memorySpace === "global" ? "panel" : `${g.memorySpace}-ground`, what);
  }
});

test("every note is complete", () => {
  for (const { what, layout } of layouts)
    for (const { t, beside, below } of blocksOf(layout)) {
      assert.equal(beside || below.join(" "), t.note, what);
      assert.ok(!beside || !below.length, what);
    }
});

test("lines of a note break at words and are no wider than allowed", () => {
  let broken = 0;
  for (const { what, layout, scale } of layouts)
    for (const { below } of blocksOf(layout)) {
      if (below.length < 2) continue;
      broken++;
      for (const line of below) assert.ok(measured(scale)(line) <= 130 * scale || !line.includes(" "), `${what}: ${line}`);
    }
  assert.ok(broken > 5, `${broken}`);
});

test("grids and heads do not overlap", () => {
  for (const { what, layout, scale } of layouts) {
    const blocks = blocksOf(layout), heads = blocks.map((b) => headBox(b, scale));
    blocks.forEach((a, n) => {
      blocks.slice(n + 1).forEach((b) => assert.ok(apart(a, b), `${what}: grids of ${a.t.name} and ${b.t.name}`));
      heads.forEach((h) => assert.ok(apart(a, h), `${what}: head of ${h.name} on ${a.t.name}`));
      heads.slice(n + 1).forEach((h) => assert.ok(apart(heads[n], h), `${what}: heads of ${h.name} and ${a.t.name}`));
    });
  }
});

const tight = ({ layout }) => blocksOf(layout).some((b) => b.cell === MIN_CELL);

test("cells are whole pixels and within bounds", () => {
  for (const { what, layout, scale } of layouts)
    for (const { cell } of blocksOf(layout)) assert.ok(Number.isInteger(cell) && cell >= MIN_CELL && cell <= MAX_CELL * scale, `${what}: ${cell}`);
});

test("the layout fits the width; it fits the height unless cells have the minimum size", () => {
  let fitting = 0;
  for (const one of layouts) {
    const { what, layout, width, height, scale } = one;
    if (tight(one)) continue;
    fitting++;
    assert.ok(layout.height <= height, `${what}: ${layout.height}`);
    for (const part of [...blocksOf(layout), ...layout.grounds, ...blocksOf(layout).map((b) => headBox(b, scale))]) {
      assert.ok(part.x >= 0 && part.x + part.w <= width, what);
      assert.ok(part.y >= 0 && part.y + part.h <= layout.height, what);
    }
  }
  assert.ok(fitting > 0.8 * layouts.length, `${fitting} of ${layouts.length}`);
});

test("a larger canvas gives larger cells", () => {
  let grown = 0;
  const all = (layout) => blocksOf(layout).reduce((sum, b) => sum + Math.log(b.cell), 0);
  for (const { what, scene, layout, width, height, scale } of layouts.slice(0, 60)) {
    const larger = layOut(scene, 2 * width, 2 * height, measured(scale), scale);
    assert.ok(all(larger) >= all(layout) - 0.2 * blocksOf(layout).length, what);
    grown += all(larger) > all(layout);
  }
  assert.ok(grown > 40, `${grown}`);
});

test("tensors are inside the ground of their group, and grounds do not overlap", () => {
  for (const { what, scene, layout, scale } of layouts) {
    layout.grounds.forEach((a, n) => layout.grounds.slice(n + 1).forEach((b) => assert.ok(apart(a, b), what)));
    const framed = scene.groups.filter((g) => g.memorySpace !== "global" || g.title);
    framed.forEach((g, n) => {
      const { x, y, w, h, titleY, title } = layout.grounds[n];
      for (const t of rowsOf(g).flat()) {
        const b = layout.blocks[t.name], head = headBox(b, scale);
        for (const part of [b, head])
          assert.ok(part.x >= x && part.x + part.w <= x + w + 1e-6 && part.y >= y && part.y + part.h <= y + h + 1e-6, `${what}: ${t.name}`);
        assert.ok(!title || x + 10 * scale + measured(scale)(title) <= x + w, `${what}: the ground's title leaves it`);
        assert.ok(!title || titleY + 17 * scale <= head.y + 4 * scale, `${what}: the ground's title on ${t.name}'s`);
      }
    });
  }
});

test("tensors keep their order, and titles of a row have one height", () => {
  for (const { what, scene, layout } of layouts)
    for (const row of scene.groups.flatMap(rowsOf)) {
      const blocks = row.map((t) => layout.blocks[t.name]);
      blocks.slice(1).forEach((b, n) => {
        const left = blocks[n];
        if (b.x > left.x && b.headY < left.y + (b.leftHeight ? left.h : 0)) assert.deepEqual([b.headY, b.y], [left.headY, left.y], what);
        else assert.ok(b.headY >= left.y + left.h, what);
      });
    }
});

test("cellPosition and cellAt are inverse, and each cell is in one tile", () => {
  for (const { what, layout } of layouts)
    for (const block of blocksOf(layout)) {
      const { way, t } = block, zoomed = new Set();
      for (let i = 0; i < t.size; i++) {
        const { tile, row, col } = cellPosition(block, i);
        assert.ok(tile < way.across * way.down && row < way.tileRows && col < way.tileCols, `${what}: ${t.name} ${i}`);
        assert.equal(cellAt(block, tile, row, col), i, `${what}: ${t.name} ${i}`);
        zoomed.add(`${tile} ${row} ${col}`);
      }
      assert.equal(zoomed.size, t.size, what);
      let found = 0;
      for (let tile = 0; tile < way.across * way.down; tile++)
        for (let row = -1; row <= way.tileRows; row++)
          for (let col = -1; col <= way.tileCols; col++) found += cellAt(block, tile, row, col) !== null;
      assert.equal(found, t.size, `${what}: ${t.name}`);
    }
});

test("tiles are inside their grid and do not overlap", () => {
  for (const { what, layout } of layouts)
    for (const block of blocksOf(layout)) {
      const { way, cell } = block, tiles = [];
      for (let tile = 0; tile < way.across * way.down; tile++) tiles.push({ ...tileXY(block, tile), w: way.tileCols * wideOf(block), h: way.tileRows * cell });
      const right = Math.max(...tiles.map((at) => at.x + at.w)), bottom = Math.max(...tiles.map((at) => at.y + at.h));
      assert.deepEqual([Math.round(right - block.x), Math.round(bottom - block.y)], [Math.round(block.w), Math.round(block.h)], what);
      tiles.forEach((a, n) => tiles.slice(n + 1).forEach((b) => assert.ok(apart({ ...a, w: a.w + 1, h: a.h + 1 }, b), what)));
    }
});

test("hitTest finds a cell at its drawn position, under any view", () => {
  const views = random(7);
  for (const { what, layout, width } of layouts) {
    const scale = 1 + 23 * views() ** 2;
    const view = { scale, x: views() * width * (1 - 1 / scale), y: views() * layout.height * (1 - 1 / scale) };
    for (const zoomed of [layout, withView(layout, view)])
      for (const block of blocksOf(zoomed))
        for (let i = 0; i < block.t.size; i++) {
          const at = cellXY(block, i);
          for (const part of [0.05, 0.95]) {
            const hit = hitTest(zoomed, at.x + part * wideOf(block), at.y + part * block.cell);
            if (hit?.name !== block.t.name || hit.index !== i) assert.fail(`${what}: ${block.t.name} ${i} under ${JSON.stringify(view)}`);
          }
        }
  }
});

test("hitTest finds no cell in padding and gaps", () => {
  for (const [width, height, scale] of SIZES) {
    const layout = layOut(im2col(3, 8, 4, 1), width, height, measured(scale), scale), { x } = layout.blocks;
    assert.deepEqual([x.way.tileRows, x.way.tileCols], [10, 10]);
    for (let tile = 0; tile < 3; tile++) {
      const at = tileXY(x, tile);
      for (const [row, col] of [[0, 0], [0, 5], [9, 9], [4, 9], [10, 4]])
        assert.equal(hitTest(layout, at.x + (col + 0.5) * x.cell, at.y + (row + 0.5) * x.cell), null);
      assert.deepEqual(hitTest(layout, at.x + 1.5 * x.cell, at.y + 1.5 * x.cell), { name: "x", index: 64 * tile });
    }
    assert.equal(hitTest(layout, x.x - 1, x.y - 1), null);
  }
});

test("a view moves and enlarges everything except text", () => {
  for (const { layout } of layouts.slice(0, 40)) {
    assert.equal(withView(layout, { scale: 1, x: 0, y: 0 }), layout);
    const view = { scale: 2.5, x: 31, y: 17 }, zoomed = withView(layout, view), close = (a, b) => assert.ok(Math.abs(a - b) < 1e-6, `${a} ${b}`);
    assert.deepEqual([zoomed.width, zoomed.height], [layout.width, layout.height]);
    for (const block of blocksOf(layout)) {
      const b = zoomed.blocks[block.t.name], end = cellXY(block, block.t.size - 1), at = cellXY(b, block.t.size - 1);
      close(at.x, 2.5 * (end.x - 31));
      close(at.y, 2.5 * (end.y - 17));
      close(b.w, 2.5 * block.w);
      close(b.h, 2.5 * block.h);
      close(b.y - b.headY, block.y - block.headY);
      assert.deepEqual([b.below, b.titleWidth], [block.below, block.titleWidth]);
    }
    layout.grounds.forEach((g, n) => {
      close(zoomed.grounds[n].x, 2.5 * (g.x - 31));
      close(zoomed.grounds[n].h, 2.5 * g.h);
      close(zoomed.grounds[n].titleY - zoomed.grounds[n].y, g.titleY - g.y);
    });
  }
});

test("bands of a data matrix break between rows of the output", () => {
  let folded = 0;
  for (const size of [12, 18, 32])
    for (const [width, height, scale] of SIZES) {
      const { D } = layOut(im2col(1, size, 2), width, height, measured(scale), scale).blocks;
      assert.ok(D.way.tileCols === D.t.cols || D.way.tileCols % (size - 2) === 0);
      folded += D.way.down > 1;
    }
  assert.ok(folded > 5, `${folded}`);
});

test("known scenes get large cells", () => {
  const minCell = (scene, [width, height, scale]) => Math.min(...blocksOf(layOut(scene, width, height, measured(scale), scale)).map((b) => b.cell));
  assert.ok(minCell(im2col(1, 8, 2), SIZES[0]) >= 20);
  assert.ok(minCell(im2col(1, 8, 2), SIZES[1]) >= NUMBERS_FROM);
  assert.ok(minCell(im2col(1, 8, 2), SIZES[2]) >= 12);
  assert.ok(minCell(im2col(1, 8, 2), SIZES[3]) >= 40);
  assert.ok(minCell(im2col(1, 32, 2), SIZES[0]) >= 4);
  assert.ok(minCell(gemm(), SIZES[0]) >= 12);
  assert.ok(minCell(gemm(), SIZES[3]) >= 27);
  assert.equal(minCell(one(), SIZES[0]), MAX_CELL);
  assert.equal(minCell(one(), SIZES[2]), MAX_CELL);
});

test("tensors of an aligned row have one top and one size of cells, and are not folded", () => {
  let aligned = 0;
  for (const { what, scene, layout } of layouts)
    for (const row of scene.groups.filter((g) => g.aligned).flatMap((g) => g.rows)) {
      const blocks = row.map((t) => layout.blocks[t.name]);
      aligned++;
      for (const b of blocks) {
        assert.deepEqual([b.y, b.cell, b.h], [blocks[0].y, blocks[0].cell, b.t.rows * b.cell], what);
        assert.deepEqual([b.way.across, b.way.down], [1, 1], what);
      }
    }
  assert.ok(aligned >= 15, `${aligned}`);
});

test("cells of an aligned row have room for their numbers, others get what is left", () => {
  for (const size of [[930, 448, 1], [740, 450, 1], [612, 330, 0.8], [816, 250, 0.8], [1000, 800, 1.3]]) {
    const [width, height, scale] = size, { fits, height: used, blocks } = layOut(flash(4, 8, 4), width, height, measured(scale), scale);
    assert.ok(fits && used <= height, `${size}`);
    assert.ok(blocks.m.cell >= 17, `${blocks.m.cell} at ${size}`);
  }
});

const UNBROKEN_FROM = 15; // px: smaller cells have numbers too, but a broken row with larger cells is better
test("a row of numbers is unbroken where its numbers stay readable; else its parts have labels", () => {
  const softmax = () => sceneOf([["global", "global memory", [tensor("x", 1, 40)], [tensor("y", 1, 40)]], ["registers", "registers", [tensor("l", 1, 8, { note: "one column per thread" })]]]);
  let broken = 0;
  for (const [width, height, scale] of SIZES) {
    const { x, y } = layOut(softmax(), width, height, measured(scale), scale).blocks;
    for (const b of [x, y]) {
      if (b.way.down === 1) { assert.equal(b.way.label, 0); continue; }
      broken++;
      assert.ok(40 * UNBROKEN_FROM > width - 48, `broken at ${width}`);
      assert.equal(b.way.labels.length, b.way.down);
      assert.ok(b.way.labels.every((text) => b.way.label > measured(scale)(text)) && b.x - b.way.label >= 0);
      assert.ok(b.x + b.w <= width);
    }
  }
  assert.ok(broken > 1, `${broken}`);
  assert.deepEqual([0, 20, 40].map((first) => rangeOf({ cols: 47 }, first, 20)), ["0–19", "20–39", "40–46"]);
  assert.equal(rangeOf({ cols: 47 }, 20, 20, true), "20");
  assert.equal(rangeOf({ cols: 8, origin: [0, 0, 32] }, 4, 4), "36–39");
});

test("a product's columns stay under those of its right factor where they can", () => {
  const scene = sceneOf([
    ["global", "", [tensor("x", 8, 8), tensor("y", 6, 6, { planes: 2 })]], ["registers", "", [tensor("sum", 2, 16, { note: "registers" })]], ["workspace", "", [tensor("D", 9, 36, { title: "data matrix (workspace)", note: "9 × 36, each pixel copied up to 9 times" })]], ["global", "", [tensor("w", 2, 9, { title: "filters", note: "2 × 9" }), tensor("C", 2, 36, { title: "output matrix", note: "2 × 36" })]],
  ], ["w", "D", "C"]);
  const { C, D } = layOut(scene, 735, 490, measured(1)).blocks;
  assert.deepEqual([C.way.down, D.way.down], [1, 1]);
  assert.ok(C.y > D.y + D.h);
});

test("space that is left is given in the order of the tensors, not of the groups", () => {
  const cellsOf = (names) => {
    const scene = sceneOf([["registers", "", [tensor("sum", 8, 8)]], ["workspace", "", [tensor("D", 8, 40)]]]);
    scene.tensors = Object.fromEntries(names.map((name) => [name, scene.tensors[name]]));
    const { blocks } = layOut(scene, 798, 200, measured(1));
    return [blocks.sum.cell, blocks.D.cell];
  };
  const [sumFirst, matrixFirst] = [cellsOf(["sum", "D"]), cellsOf(["D", "sum"])];
  assert.ok(matrixFirst[1] > sumFirst[1] && matrixFirst[0] < sumFirst[0], `${sumFirst} ${matrixFirst}`);
});

test("shared memory and registers are side by side below the matrices", () => {
  for (const size of [8, 4]) {
    const scene = gemm();
    scene.groups[2].rows = [[scene.tensors.acc = tensor("acc", size, size)]];
    const { grounds, blocks, width } = layOut(scene, 930, 448, measured(1)), [all, shared, registers] = grounds;
    assert.deepEqual([registers.y, registers.h], [shared.y, shared.h]);
    assert.ok(registers.x > shared.x + shared.w);
    assert.ok(shared.y >= blocks.A.y + blocks.A.h);
    assert.equal(all.x, shared.x);
    assert.ok(width - registers.x - registers.w - shared.x <= 1); // the same edges, up to a rounded pixel
  }
});

test("a table aligns its rows and columns, and its cells have one size", () => {
  let tables = 0;
  for (const { what, scene, layout } of layouts)
    for (const { rows } of scene.groups.filter((g) => g.table)) {
      const blocks = rows.map((row) => row.map((t) => t && layout.blocks[t.name])), cells = new Set(blocks.flat().filter(Boolean).map((b) => b.cell));
      tables++;
      assert.equal(cells.size, 1, what);
      blocks.forEach((row, i) => row.forEach((b, j) => {
        if (!b) return;
        for (const other of row.filter(Boolean)) assert.equal(b.y, other.y, `${what}: ${b.t.name} and ${other.t.name}`);
        for (const other of blocks.map((all) => all[j]).filter(Boolean)) assert.equal(b.x, other.x, `${what}: ${b.t.name} and ${other.t.name}`);
        for (const left of row.slice(0, j).filter(Boolean)) assert.ok(left.x + left.w < b.x, what);
        for (const above of blocks.slice(0, i).map((all) => all[j]).filter(Boolean)) assert.ok(above.y + above.h < b.y, what);
      }));
    }
  assert.ok(tables > 30, `${tables}`);
});

test("rows of a timeline stay in one piece, with cells of one size", () => {
  const rows = (more) => sceneOf([["shared", "one block", [tensor("a", 2, 60, more)], [tensor("b", 1, 60, more)]]]);
  const blocks = (more, height = 448) => Object.values(layOut(rows(more), 600, height, measured(1)).blocks);
  assert.ok(blocks({}).some(({ way }) => way.down > 1));
  for (let height = 60; height < 400; height += 7) {
    const [a, b] = blocks({ timed: true }, height);
    assert.deepEqual([a.way.down, b.way.down, a.cell, a.x], [1, 1, b.cell, b.x]);
  }
});

test("lanes of a timeline have the whole width, with their titles on the left if the window is wide", () => {
  for (const lanes of [[3, 1, 4, 4, 4, 4, 4], [3, 1, 2, 2, 2, 2, 2]])
    for (const [width, height, scale] of [[816, 272, 0.7], [885, 366, 1], [591, 326, 0.8], [714, 420, 1], [358, 330, 0.7]]) {
      const { blocks } = layOut(ring(lanes, 58), width, height, measured(scale), scale), rows = lanes.map((_, n) => blocks[`r${n}`]);
      for (const b of rows) assert.deepEqual([b.x, b.w, Boolean(b.leftHeight)], [rows[0].x, rows[0].w, width > 560]);
      assert.ok(width - rows[0].x - rows[0].w < 58 + 40, `${width - rows[0].x - rows[0].w} of ${width} are empty`);
      assert.equal(blocks.p.stretch, 1);
    }
});

test("cells of readable tensors grow first, and the rest shares what is left", () => {
  const [width, height, scale] = [600, 380, 1], scene = gemm();
  const cells = (...readable) => Object.fromEntries(blocksOf(layOut(scene, width, height, measured(scale), scale, readable)).map((b) => [b.t.name, b.cell]));
  const plain = cells(), first = cells("acc");
  assert.ok(plain.acc < 16 && first.acc >= 18, `${plain.acc}, ${first.acc}`);
  assert.ok(Object.values(first).every((cell) => cell >= MIN_CELL));
  assert.ok(first.A <= plain.A);
  assert.deepEqual(cells("no such tensor"), plain);
  for (const [what, scene, ...size] of cases.slice(0, 40)) {
    const [name] = Object.keys(scene.tensors), [w, h, enlarged] = size;
    const { blocks, fits } = layOut(scene, w, h, measured(enlarged), enlarged, [name]);
    assert.ok(!fits || blocks[name].cell >= 16, what);
  }
});
