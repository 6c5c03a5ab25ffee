// The picture of (scene, t). Still cells live on a layer that only changes where cells are born;
// what moves or is marked is drawn over it each frame.

const SMALL = 8; // below this many pixels a cell is set in ImageData, not filled

const clamp = (v, low, high) => Math.min(high, Math.max(low, v));
const ease = (u) => (u < 0.5 ? 4 * u * u * u : 1 - (2 - 2 * u) ** 3 / 2);

// A value as a cell prints it: integers plain, others with the two or so digits that fit a cell.
function cellText(v) {
  const size = Math.abs(v);
  const text = Number.isInteger(v) || size >= 10 ? String(Math.round(v)) : v.toFixed(size < 1 ? 2 : 1);
  return text.replace("-", "−").replace(/^(−?)0\./, "$1.");
}

// One size of type for all numbers of a block, or 0 where the longest would not be readable.
function textSize(ctx, block, font) {
  if (block.cell < NUMBERS_FROM) return 0;
  ctx.font = font(100);
  let widest = 1;
  for (const v of block.t.values) widest = Math.max(widest, ctx.measureText(cellText(v)).width);
  const px = Math.min(13, block.cell * 0.56, (100 * (block.cell - 3)) / widest);
  return px < 7.5 ? 0 : px;
}

function dashed(ctx, x, y, w, h, colour) {
  ctx.strokeStyle = colour;
  ctx.lineWidth = 1;
  ctx.setLineDash([2, 2]);
  ctx.strokeRect(x + 0.5, y + 0.5, w - 1, h - 1);
  ctx.setLineDash([]);
}

function drawCell(ctx, x, y, size, look, text, font) {
  const inner = size >= SMALL ? size - 1 : size;
  ctx.fillStyle = look.css;
  ctx.fillRect(x, y, inner, inner);
  if (look.padding && size >= SMALL) dashed(ctx, x, y, inner, inner, look.line);
  if (!text || !font || !look.ink) return;
  ctx.font = font;
  ctx.fillStyle = look.ink;
  ctx.textAlign = "center";
  ctx.textBaseline = "middle";
  ctx.fillText(text, x + inner / 2, y + inner / 2 + 0.5);
}

class StillLayer {
  constructor(scene, layout, theme, dpr, font) {
    Object.assign(this, { scene, layout, theme, dpr, font });
    this.canvas = document.createElement("canvas");
    this.canvas.width = Math.round(layout.width * dpr);
    this.canvas.height = Math.round(layout.height * dpr);
    this.ctx = this.canvas.getContext("2d");
    this.ctx.setTransform(dpr, 0, 0, dpr, 0, 0);
    this.step = null;
    this.images = {};
    for (const block of Object.values(layout.blocks)) {
      const px = textSize(this.ctx, block, font);
      block.numbers = px ? font(px) : "";
    }
  }

  // Bring the layer to "everything born up to step": only cells between the old and new step change.
  goto(step) {
    if (this.step === null) this.drawAll(step);
    const written = step > this.step;
    const [from, to] = written ? [this.step + 1, step] : [step + 1, this.step];
    if (from <= to)
      for (const block of Object.values(this.layout.blocks))
        if (block.t.byStep) {
          const { start, items } = block.t.byStep;
          this.drawCells(block, items.subarray(start[from], start[to + 1]), () => written);
        }
    this.step = step;
  }

  drawAll(step) {
    const { ctx, theme, layout } = this;
    ctx.fillStyle = theme.ground("panel");
    ctx.fillRect(0, 0, layout.width, layout.height);
    ctx.fillStyle = theme.ground("workspace-ground");
    for (const g of layout.grounds) {
      ctx.beginPath();
      ctx.roundRect(g.x, g.y, g.w, g.h, 4);
      ctx.fill();
    }
    for (const block of Object.values(layout.blocks)) {
      this.drawHead(block);
      this.drawRing(block);
      this.drawCells(block, null, (i) => bornAt(block.t, i) <= step);
    }
    this.step = step;
  }

  drawHead(block) {
    const { ctx, theme } = this;
    ctx.textAlign = "left";
    ctx.textBaseline = "alphabetic";
    ctx.font = this.font(14, true);
    ctx.fillStyle = theme.tokens[block.t.role];
    ctx.fillText(block.t.title, block.x, block.headY + 14);
    ctx.font = this.font(13);
    ctx.fillStyle = theme.tokens.dim;
    if (block.beside) ctx.fillText(block.beside, block.x + block.titleWidth + 8, block.headY + 14);
    block.below.forEach((line, k) => ctx.fillText(line, block.x, block.headY + 14 + HEAD_LINE * (k + 1)));
  }

  // The padding around the planes is stored nowhere: cells of air, or one dashed line where cells are small.
  drawRing(block) {
    const { t, cell, way } = block;
    if (t.pad.every((n) => n === 0)) return;
    const { ghost, written } = this.theme.padding[block.ground];
    const look = { css: ghost.css, line: written.line, ink: written.ink, padding: true };
    for (let tile = 0; tile < t.planes; tile++) {
      const at = tileAt(block, tile);
      if (cell < SMALL) dashed(this.ctx, at.x, at.y, way.tileCols * cell, way.tileRows * cell, look.line);
      else
        for (let r = 0; r < way.tileRows; r++)
          for (let c = 0; c < way.tileCols; c++)
            if (sitter(block, tile, r, c) === null) drawCell(this.ctx, at.x + c * cell, at.y + r * cell, cell, look, "0", block.numbers);
    }
  }

  drawCells(block, cells, isWritten) {
    const count = cells ? cells.length : block.t.size;
    if (!count) return;
    if (block.cell < SMALL) return this.setPixels(block, cells, count, isWritten);
    const { ctx, theme } = this;
    for (let n = 0; n < count; n++) {
      const i = cells ? cells[n] : n;
      const written = isWritten(i);
      const at = cellAt(block, i);
      if (cells) { // a ghost must not show through its successor, nor the other way round
        ctx.fillStyle = theme.ground(block.ground);
        ctx.fillRect(at.x, at.y, block.cell, block.cell);
      }
      drawCell(ctx, at.x, at.y, block.cell, lookOf(theme, block, i, written), written && cellText(block.t.values[i]), block.numbers);
    }
  }

  setPixels(block, cells, count, isWritten) {
    const { dpr, theme } = this;
    const left = Math.round(block.x * dpr), top = Math.round(block.y * dpr);
    let image = this.images[block.t.name];
    if (!image) {
      const data = this.ctx.createImageData(Math.ceil(block.w * dpr), Math.ceil(block.h * dpr));
      image = this.images[block.t.name] = { data, pixels: new Uint32Array(data.data.buffer) };
      image.pixels.fill(theme.packedGround(block.ground));
    }
    const { data, pixels } = image;
    let x0 = data.width, y0 = data.height, x1 = 0, y1 = 0;
    for (let n = 0; n < count; n++) {
      const i = cells ? cells[n] : n;
      const colour = lookOf(theme, block, i, isWritten(i)).packed;
      const at = cellAt(block, i);
      const l = Math.round(at.x * dpr) - left, r = Math.round((at.x + block.cell) * dpr) - left;
      const t = Math.round(at.y * dpr) - top, b = Math.round((at.y + block.cell) * dpr) - top;
      for (let y = t; y < b; y++) pixels.fill(colour, y * data.width + l, y * data.width + r);
      x0 = Math.min(x0, l); y0 = Math.min(y0, t); x1 = Math.max(x1, r); y1 = Math.max(y1, b);
    }
    this.ctx.putImageData(data, left, top, x0, y0, x1 - x0, y1 - y0);
  }
}

// -- what moves or is marked -------------------------------------------------------------------------------

const FLIGHT = 0.62; // the part of a step in which copies fly; then the products light

// t = k: step k is done. t in (k - 1, k): step k is under way; its copies fly, then its products light.
function drawMoving(ctx, still, t, flights) {
  const { scene, layout, theme } = still;
  const step = Math.ceil(t), part = t - (step - 1);
  if (!flights || part >= 1) return;
  const flown = clamp(part / FLIGHT, 0, 1);
  let any = false;
  for (const { source, target, index } of scene.gathers) {
    const cells = bornCells(target, step);
    const from = layout.blocks[source.name], to = layout.blocks[target.name];
    any ||= cells.length > 0;
    for (let n = cells.length - 1; n >= 0; n--) {
      const i = cells[n];
      const wait = cells.length > 1 ? (n / (cells.length - 1)) * 0.5 : 0;
      const u = ease(clamp((flown - wait) / 0.5, 0, 1));
      if (u > 0) drawFlying(ctx, still, from, to, index[i], i, u);
    }
  }
  const lit = any ? clamp((part - FLIGHT) / (1 - FLIGHT) / 0.5, 0, 1) : part;
  for (const block of Object.values(layout.blocks)) {
    if (block.t.gather) continue;
    ctx.globalAlpha = ease(lit);
    for (const i of lit > 0 ? bornCells(block.t, step) : []) {
      const at = cellAt(block, i);
      drawCell(ctx, at.x, at.y, block.cell, lookOf(theme, block, i, true), cellText(block.t.values[i]), block.numbers);
    }
    ctx.globalAlpha = 1;
  }
}

function drawFlying(ctx, still, from, to, source, i, u) {
  const { theme } = still;
  const end = cellAt(to, i);
  if (source < 0) { // a zero of the padding is read nowhere: it appears in place
    ctx.globalAlpha = u;
    drawCell(ctx, end.x, end.y, to.cell, lookOf(theme, to, i, true), "0", to.numbers);
    ctx.globalAlpha = 1;
    return;
  }
  const start = cellAt(from, source);
  const size = from.cell + (to.cell - from.cell) * u;
  const x = start.x + (end.x - start.x) * u, y = start.y + (end.y - start.y) * u;
  drawCell(ctx, x, y, size, lookOf(theme, to, i, true), cellText(to.t.values[i]), size < NUMBERS_FROM ? "" : to.numbers || from.numbers);
  if (u < 1) {
    ctx.strokeStyle = theme.tokens.read;
    ctx.lineWidth = size >= SMALL ? 1.5 : 1;
    ctx.strokeRect(x - 0.5, y - 0.5, size, size);
  }
}

// Marks are {name, cells, as, each}: `as` a colour token, or "faint"; together in one outline unless `each`.
function drawMarks(ctx, still, marks, strength) {
  for (const mark of marks) {
    const block = still.layout.blocks[mark.name];
    ctx.globalAlpha = strength * (mark.faint ? 0.45 : 1);
    const wide = mark.faint ? 1 : block.cell >= 12 ? 3 : 2, out = block.cell >= 12 ? 0 : 1;
    const rects = outlines(block, mark.cells, mark.each || mark.faint);
    const stroke = (colour, line) => {
      ctx.strokeStyle = colour;
      ctx.lineWidth = line;
      for (const r of rects) ctx.strokeRect(r.x - 0.5 - out, r.y - 0.5 - out, r.w + 2 * out, r.h + 2 * out);
    };
    if (!mark.faint) stroke(still.theme.tokens.ground, wide + 2); // a rim of ground: outlines stand out on their own hue
    stroke(still.theme.tokens[mark.as], wide);
  }
  ctx.globalAlpha = 1;
}

// One rectangle a tile where the cells fill it, else one a cell.
function outlines(block, cells, each) {
  const tiles = new Map();
  for (const i of cells) {
    const { tile, row, col } = seat(block, i);
    if (!tiles.has(tile)) tiles.set(tile, []);
    tiles.get(tile).push({ row, col });
  }
  const rects = [];
  for (const [tile, seats] of tiles) {
    const at = tileAt(block, tile), size = block.cell;
    const rect = (row, col, rows, cols) => ({ x: at.x + col * size, y: at.y + row * size, w: cols * size, h: rows * size });
    const low = (key) => seats.reduce((v, s) => Math.min(v, s[key]), Infinity);
    const high = (key) => seats.reduce((v, s) => Math.max(v, s[key]), 0);
    const [row, col] = [low("row"), low("col")];
    const [rows, cols] = [high("row") - row + 1, high("col") - col + 1];
    if (!each && rows * cols === seats.length) rects.push(rect(row, col, rows, cols));
    else for (const s of seats) rects.push(rect(s.row, s.col, 1, 1));
  }
  return rects;
}
