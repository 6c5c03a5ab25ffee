// The picture of (scene, t). A layer holds the cells that do not move; only written cells are redrawn on it. Moving
// cells and marks are drawn over it in each frame.

import { styleOf } from "./colour.js";
import { drawDiagram, markBoxes } from "./diagram.js";
import { eventsAt, minus, valueAt } from "./decode.js";
import { decimal, tr } from "./texts.js";
import { ARROW, HEAD_LINE, NUMBERS_FROM, cellAt, cellPosition, cellXY, tileXY, wideOf } from "./layout.js";
import { clamp } from "./view.js";

const SMALLEST = 6.8; // px: of a number
const SMALL = 8; // below this many pixels a cell is set in ImageData, not filled
const FLIGHT = 0.62; // the part of a step in which copies move to their targets; after it computed cells appear

const ease = (u) => (u < 0.5 ? 4 * u * u * u : 1 - (2 - 2 * u) ** 3 / 2);

// A value as a cell prints it: integers plain, others with the about two digits that fit a cell. Opposite values have
// opposite texts: Math.round(-67.5) is -67.
export function cellText(v) {
  const size = Math.abs(v);
  if (!(size < 1e6)) return minus(v.toExponential(0).replace("+", "")); // NaN too
  const text = Number.isInteger(v) || size >= 10 ? String(Math.sign(v) * Math.round(size)) : v.toFixed(size < 1 ? 2 : 1);
  const short = +text === v ? String(+text) : text; // 0.50 becomes .5 if v is exactly that
  return decimal(short.replace("-", "−").replace(/^(−?)0\./, "$1."));
}

// A cell's minus sign is an en dash: it looks the same and is narrower.
const narrow = (v) => cellText(v).replace("−", "–");

// About its width, in halves of a digit: a point is narrower than a digit.
const widthOf = (text) => 2 * text.length - text.includes(".");

const valuesOf = (t) => [...(t.values || []), ...t.value];

// Whether a tensor's cells differ in size, so that their colours do.
const differ = (t) => (t.differ ??= !t.timed && new Set(valuesOf(t).map(Math.abs)).size > 1);

// Numbers of a block: one font size for all, in which the longest fits; none if that is too small to be read.
function numbersOf(ctx, block, font, scale) {
  const { t, cell } = block;
  if (cell < NUMBERS_FROM) return null;
  t.longest ??= valuesOf(t).map(narrow).reduce((a, b) => (widthOf(b) > widthOf(a) ? b : a), "0");
  ctx.font = font(100 / scale);
  const px = Math.min(13 * scale, cell * 0.56, (100 * (wideOf(block) - 1.5)) / ctx.measureText(t.longest).width);
  return px >= SMALLEST ? { font: font(px / scale) } : null;
}

function dashed(ctx, x, y, w, h, colour) {
  ctx.strokeStyle = colour;
  ctx.lineWidth = 1;
  ctx.setLineDash([2, 2]);
  ctx.strokeRect(x + 0.5, y + 0.5, w - 1, h - 1);
  ctx.setLineDash([]);
}

// Ghosts have no ink, so they print no number.
function drawCell(ctx, x, y, size, style, value, numbers, width = size) {
  const gap = size >= SMALL ? 1 : 0, inner = size - gap, wide = width - gap;
  ctx.fillStyle = style.css;
  ctx.fillRect(x, y, wide, inner);
  if (style.padding && size >= SMALL) dashed(ctx, x, y, wide, inner, style.line);
  if (!numbers || !style.ink) return;
  ctx.font = numbers.font;
  ctx.fillStyle = style.ink;
  ctx.textAlign = "center";
  ctx.textBaseline = "middle";
  ctx.fillText(narrow(value), x + wide / 2, y + inner / 2 + 0.5);
}

// Cells that do not move, on a context. With dpr 0 only shapes are drawn and no pixels set, so any context works.
export class Still {
  constructor(ctx, scene, layout, theme, font, dpr) {
    Object.assign(this, { ctx, scene, layout, theme, font, dpr, step: null, images: {}, scale: layout.scale || 1 });
    for (const block of Object.values(layout.blocks)) block.numbers = numbersOf(ctx, block, font, this.scale);
  }

  // Shows everything written up to `step`. Only cells between the old and the new step are drawn.
  goto(step) {
    if (this.layout.diagram) return step === this.step ? undefined : this.drawAll(step);
    if (this.step === null) return this.drawAll(step);
    const [from, to] = step > this.step ? [this.step + 1, step] : [step + 1, this.step];
    if (from <= to)
      for (const block of Object.values(this.layout.blocks)) {
        const { start } = block.t.byStep;
        this.drawCells(block, block.t.cell.subarray(start[from], start[to + 1]), step);
      }
    this.step = step;
  }

  drawAll(step) {
    const { ctx, theme, layout } = this;
    this.step = step;
    if (layout.diagram) return drawDiagram(ctx, this, Math.max(0, step));
    ctx.fillStyle = theme.grounds.panel.css;
    ctx.fillRect(0, 0, layout.width, layout.height);
    for (const g of layout.grounds) {
      ctx.fillStyle = theme.grounds[g.ground].css;
      ctx.beginPath();
      ctx.roundRect(g.x, g.y, g.w, g.h, 4);
      ctx.fill();
      if (g.joined) {
        Object.assign(ctx, { strokeStyle: theme.tokens.line, lineWidth: 1 });
        ctx.stroke();
      }
      if (g.title) this.print(g.title, g.x + 10 * this.scale, g.titleY, 12.5, false, theme.tokens.dim);
    }
    for (const block of Object.values(layout.blocks)) {
      this.drawHead(block);
      this.drawRing(block);
      this.drawCells(block, null, step);
    }
    if (layout.keyed) this.drawKey();
    this.step = step;
  }

  // Says in the margin under the picture what the colour of a cell without a number means.
  drawKey() {
    const { ctx, layout, theme: { tokens, written }, scale } = this, cell = 12 * scale, y = layout.height - 17 * scale;
    const found = Object.values(layout.blocks).filter((b) => !b.numbers && differ(b.t)).map((b) => b.t);
    if (!found.length) return;
    const [below, above] = written[found[0].hue], signed = found.some((t) => valuesOf(t).some((v) => v < 0));
    const ramp = [...(signed ? [below[48], below[24]] : []), above[0], above[24], above[48]];
    let x = 14 * scale;
    const write = (text) => {
      this.print(text, x, y - scale, 12.5, false, tokens.dim);
      x += ctx.measureText(text).width + 6 * scale;
    };
    write(tr("Cells without a number:"));
    if (signed) write(tr("below 0"));
    for (const { css } of ramp) {
      ctx.fillStyle = css;
      ctx.fillRect(x, y + 2 * scale, cell - 1, cell - 1);
      x += cell;
    }
    x += 6 * scale;
    write(signed ? tr("above 0") : tr("from 0 to the largest"));
  }

  print(text, x, y, px, bold, colour, ctx = this.ctx) {
    ctx.textAlign = "left";
    ctx.textBaseline = "alphabetic";
    ctx.font = this.font(px, bold);
    ctx.fillStyle = colour;
    ctx.fillText(text, x, y + 14 * this.scale);
  }

  drawHead(block) {
    const { tokens } = this.theme, { way, cell } = block, x = block.x - (block.leftHeight ? way.label : 0);
    this.print(block.t.title, x, block.headY, 14, true, tokens[block.t.role]);
    if (block.beside) this.print(block.beside, x + block.titleWidth + 8 * this.scale, block.headY, 13, false, tokens.dim);
    way.labels?.forEach((text, band) => this.print(text, block.x - way.label, tileXY(block, band).y + cell / 2 - 9.5 * this.scale, 13, false, tokens.dim));
    block.below.forEach((line, k) => this.print(line, x, block.headY + HEAD_LINE * this.scale * (k + 1), 13, false, tokens.dim));
  }

  // The padding around the planes is not stored: cells of air, or one dashed line if cells are small.
  drawRing(block) {
    const { t, cell, way } = block;
    if (t.pad.every((n) => n === 0)) return;
    const [ghost, written] = this.theme.padding[block.ground];
    const style = { ...written, css: ghost.css };
    for (let tile = 0; tile < t.planes; tile++) {
      const at = tileXY(block, tile);
      if (cell < SMALL) dashed(this.ctx, at.x, at.y, way.tileCols * cell, way.tileRows * cell, style.line);
      else
        for (let r = 0; r < way.tileRows; r++)
          for (let c = 0; c < way.tileCols; c++)
            if (cellAt(block, tile, r, c) === null) drawCell(this.ctx, at.x + c * cell, at.y + r * cell, cell, style, 0, block.numbers);
    }
  }

  drawCells(block, cells, step) {
    const count = cells ? cells.length : block.t.size, { ctx, theme, layout } = this;
    if (!count) return;
    if (block.cell < SMALL && this.dpr) return this.setPixels(block, cells, count, step);
    for (let n = 0; n < count; n++) {
      const i = cells ? cells[n] : n;
      const at = cellXY(block, i);
      if (at.x > layout.width || at.y > layout.height || at.x + wideOf(block) < 0 || at.y + block.cell < 0) continue;
      if (cells) { // a ghost and the value that replaces it must not show through each other
        ctx.fillStyle = theme.grounds[block.ground].css;
        ctx.fillRect(at.x, at.y, wideOf(block), block.cell);
      }
      drawCell(ctx, at.x, at.y, block.cell, styleOf(theme, block, i, step), valueAt(block.t, i, step), block.numbers, wideOf(block));
    }
  }

  setPixels(block, cells, count, step) {
    const { dpr, theme } = this;
    const left = Math.round(block.x * dpr), top = Math.round(block.y * dpr);
    let image = this.images[block.t.name];
    if (!image) {
      const data = this.ctx.createImageData(Math.ceil(block.w * dpr) + 1, Math.ceil(block.h * dpr) + 1);
      image = this.images[block.t.name] = { data, pixels: new Uint32Array(data.data.buffer) };
      image.pixels.fill(theme.grounds[block.ground].packed);
    }
    const { data, pixels } = image;
    let x0 = data.width, y0 = data.height, x1 = 0, y1 = 0;
    for (let n = 0; n < count; n++) {
      const i = cells ? cells[n] : n;
      const colour = styleOf(theme, block, i, step).packed;
      const at = cellXY(block, i);
      const l = Math.round(at.x * dpr) - left, r = Math.round((at.x + wideOf(block)) * dpr) - left;
      const t = Math.round(at.y * dpr) - top, b = Math.round((at.y + block.cell) * dpr) - top;
      for (let y = t; y < b; y++) pixels.fill(colour, y * data.width + l, y * data.width + r);
      x0 = Math.min(x0, l); y0 = Math.min(y0, t); x1 = Math.max(x1, r); y1 = Math.max(y1, b);
    }
    this.ctx.putImageData(data, left, top, x0, y0, x1 - x0, y1 - y0);
  }
}

// -- moving cells and marks --------------------------------------------------------------------------------

// t = k: step k is done. t in (k - 1, k): step k is running; its copies move, then its computed cells appear.
export function drawMoving(ctx, still, t) {
  const { layout, theme } = still;
  const step = Math.ceil(t), part = t - (step - 1);
  if (part >= 1) return;
  const blocks = Object.values(layout.blocks).map((to) => {
    const events = [...eventsAt(to.t, step)];
    return { to, copies: events.filter((e) => to.t.from[e] > -2), computed: events.filter((e) => to.t.from[e] === -2) };
  });
  const flown = clamp(part / FLIGHT, 0, 1);
  for (const { to, copies } of blocks)
    for (let n = copies.length - 1; n >= 0; n--) {
      const delay = copies.length > 1 ? (n / (copies.length - 1)) * 0.5 : 0;
      const u = ease(clamp((flown - delay) / 0.5, 0, 1));
      if (u > 0) drawFlying(ctx, theme, layout.blocks[to.t.write[copies[n]].source.name], to, copies[n], step, u);
    }
  const fade = blocks.some((b) => b.copies.length) ? clamp((part - FLIGHT) / (1 - FLIGHT) / 0.5, 0, 1) : part;
  ctx.globalAlpha = ease(fade);
  for (const { to, computed } of blocks)
    for (const e of fade > 0 ? computed : []) {
      const i = to.t.cell[e], at = cellXY(to, i);
      drawCell(ctx, at.x, at.y, to.cell, styleOf(theme, to, i, step), to.t.value[e], to.numbers, wideOf(to));
    }
  ctx.globalAlpha = 1;
}

function drawFlying(ctx, theme, from, to, e, step, u) {
  const i = to.t.cell[e], source = to.t.from[e], end = cellXY(to, i);
  const style = styleOf(theme, to, i, step);
  if (source < 0) { // a zero of the padding has no source cell: it appears in place
    ctx.globalAlpha = u;
    drawCell(ctx, end.x, end.y, to.cell, style, 0, to.numbers);
    ctx.globalAlpha = 1;
    return;
  }
  const start = cellXY(from, source);
  const size = from.cell + (to.cell - from.cell) * u;
  const x = start.x + (end.x - start.x) * u, y = start.y + (end.y - start.y) * u;
  drawCell(ctx, x, y, size, style, to.t.value[e], size < NUMBERS_FROM ? null : to.numbers || from.numbers);
  if (u < 1) {
    ctx.strokeStyle = theme.tokens.read;
    ctx.lineWidth = size >= SMALL ? 1.5 : 1;
    ctx.strokeRect(x - 0.5, y - 0.5, size, size);
  }
}

// Marks are {name, cells, as, each, faint}: `as` is a colour token; cells share one outline unless `each`.
export function drawMarks(ctx, still, marks, strength) {
  const { layout, theme } = still;
  if (layout.diagram) return markBoxes(ctx, still, marks, strength);
  for (const mark of marks) {
    const block = layout.blocks[mark.name];
    ctx.globalAlpha = strength * (mark.faint ? 0.45 : 1);
    const fine = block.cell < 6; // a thick outline would cover the cells
    const width = mark.faint || fine ? 1 : block.cell >= 12 ? 3 : 2, out = block.cell >= 12 || fine ? 0 : 1;
    const rects = outlines(block, mark.cells, mark.each || mark.faint);
    const stroke = (colour, line) => {
      ctx.strokeStyle = colour;
      ctx.lineWidth = line;
      for (const r of rects) ctx.strokeRect(r.x - 0.5 - out, r.y - 0.5 - out, r.w + 2 * out, r.h + 2 * out);
    };
    if (!mark.faint && !fine) stroke(theme.tokens.ground, width + 2); // a rim in the ground colour separates an outline from cells of its hue
    stroke(theme.tokens[mark.as], width);
  }
  ctx.globalAlpha = 1;
}

// Arrows between groups, side by side before the later group, each with its label. An arrow goes down, or across to the
// next column; one that would cross the cells of a group between goes along the right edge. The arrows of a step in which
// values move are in colour.
export function drawFlows(still, ctx, step) {
  const { layout, theme, scale, scene } = still, count = {};
  for (const f of scene.flows) {
    const [first, last] = [f.source, f.target].sort((a, b) => a - b).map((n) => layout.grounds.find((g) => g.group === n));
    const all = scene.flows.filter((other) => Math.max(other.source, other.target) === last.group).length;
    const n = (count[last.group] = (count[last.group] ?? -1) + 1), text = f.texts[f.text[step]];
    if (!text) continue;
    const gap = ARROW * scale, line = HEAD_LINE * scale, top = last.y - all * line, colour = theme.tokens[f.active[step] ? "accent" : "dim"];
    const below = top >= first.y + first.h - 1, x = last.x + gap * (n + 0.5), y = last.y + gap * (n + 0.5), right = first.x + first.w;
    const over = Object.values(layout.blocks).some((b) => x > b.x - 2 && x < b.x + b.w + 2 && b.y > first.y + first.h && b.y < top);
    const across = !below || (over && last.x >= right);
    if (over && !across) count.aside = (count.aside ?? -1) + 1;
    const aside = Math.min(right, last.x + last.w) - (5 + 8 * count.aside) * scale; // right of the cells between
    const from = clamp(x, first.x + 4, right - 4), bend = top - 6, level = clamp(y, first.y + gap * (n + 0.5), first.y + first.h - 4), middle = (right + last.x) / 2 + 6 * (n - (all - 1) / 2);
    const down = over ? [[aside, first.y + first.h], [aside, last.y]] : [[from, first.y + first.h], [from, bend], [x, bend], [x, last.y]];
    const path = across ? [[right, level], [middle, level], [middle, y], [last.x, y]] : down;
    if (f.source > f.target) path.reverse();
    drawArrow(ctx, path, colour, (f.active[step] ? 2.5 : 1.5) * scale, 4 * scale);
    still.print(text, last.x + gap * (below ? all : 0) + 2, top + n * line - 1, 13, false, colour, ctx);
  }
}

function drawArrow(ctx, path, colour, width, size) {
  const [[px, py], [x, y]] = path.slice(-2), dx = Math.sign(x - px), dy = Math.sign(y - py);
  Object.assign(ctx, { strokeStyle: colour, fillStyle: colour, lineWidth: width });
  ctx.beginPath();
  path.forEach(([u, v], k) => (k ? ctx.lineTo(u, v) : ctx.moveTo(u, v)));
  ctx.stroke();
  ctx.beginPath();
  ctx.moveTo(x, y);
  for (const side of [1, -1]) ctx.lineTo(x - 2 * size * dx + side * size * dy, y - 2 * size * dy + side * size * dx);
  ctx.closePath();
  ctx.fill();
}

// Rectangles around cells: neighbours of a row share one, and so do equal parts of rows below each other; with `each`
// every cell has its own.
export function outlines(block, cells, each) {
  const { cell } = block, wide = wideOf(block), runs = [], parts = new Map();
  const positions = Array.from(cells, (i) => cellPosition(block, i)).sort((a, b) => a.tile - b.tile || a.row - b.row || a.col - b.col);
  for (const { tile, row, col } of positions) {
    const last = runs.at(-1);
    if (!each && last?.tile === tile && last.row === row && last.col + last.cols === col) last.cols++;
    else runs.push({ tile, row, col, rows: 1, cols: 1 });
  }
  return runs.filter((r) => {
    const key = [r.tile, r.col, r.cols].join(), above = parts.get(key);
    if (!each && above && above.row + above.rows === r.row) return void above.rows++;
    parts.set(key, r);
    return true;
  }).map(({ tile, row, col, rows, cols }) => {
    const at = tileXY(block, tile);
    return { x: at.x + col * wide, y: at.y + row * cell, w: cols * wide, h: rows * cell };
  });
}
