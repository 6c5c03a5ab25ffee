// The measured strip in a picture for download: three columns of texts and bars, a fourth with curves, one below the other
// if it is narrow.
// Joined with takeaway.js.

import { wrap } from "./wrap.js";

const PX = 13, ROW = 19, CURVE = 82, NARROW = 560; // px, at the default font size

// The parts of the strip as columns of items: a text, a bar, or the bar of memory by role.
function columnsOf({ stale, disturbed, shape, time, memory, limits, curve }) {
  const text = (value, options = {}) => ({ text: value, ...options });
  const bars = (rows, hue) => rows.map((row) => ({ bar: { ...row, text: [row.text, row.day].filter(Boolean).join(" · ") }, label: [row.tag, row.title ?? row.label].filter(Boolean).join(": "), hue: row.current || row.main ? hue : "dim" }));
  const badge = time.badge ? [text(time.badge.text, { hue: "workspace" })] : [];
  return [
    [text(time.value, { px: 22, bold: true }), ...badge, ...[stale, disturbed].filter(Boolean).map((words) => text(words, { hue: "write" })), text(`${time.name} · ${shape}`, { bold: true }),
      ...(time.text ? [text(time.text)] : []), ...bars(time.bars, "input")],
    [text(memory.title, { bold: true }), text(memory.badge.text, { hue: "workspace" }), { stack: memory.parts },
      ...memory.parts.map((part) => text(`${part.label} ${part.text}`, { hue: part.role })), text(memory.text)],
    [text(limits.title, { bold: true }), ...bars(limits.rows, "write"), text(limits.text)],
    ...(curve ? [curveItems(curve, text)] : []),
  ];
}

// Curves: their title, the picture, the names of the lines in their colours, and what is said of them.
function curveItems(curve, text) {
  const badge = curve.badge ? [text(curve.badge.text, { hue: "workspace" })] : [], named = curve.lines.filter((line) => line.name);
  return [text(curve.title, { bold: true }), ...badge, { curve }, ...named.map(({ name, role }) => text(name, { hue: role, bold: true })),
    ...(curve.error ? [text(curve.error, { hue: "write" })] : []), ...(curve.text && !curve.error ? [text(curve.text)] : [])];
}

// The shares of the width of the columns.
const SHARES = { 3: [0.44, 0.27, 0.29], 4: [0.3, 0.24, 0.22, 0.24] };

export class StripFigure {
  // `font(px, bold)` and `measure(text, font)` as of the picture; `unit` enlarges everything.
  constructor(size, width, unit, font, measure) {
    Object.assign(this, { unit, font, measure, columns: columnsOf(size), gap: 22 * unit });
    const narrow = width < NARROW * unit, shares = narrow ? this.columns.map(() => 1) : SHARES[this.columns.length];
    this.narrow = narrow;
    this.widths = shares.map((share) => (narrow ? width : (width - (shares.length - 1) * this.gap) * share));
    this.tables = this.columns.map((items, n) => this.tableOf(items.filter((item) => item.bar), this.widths[n]));
    this.columns.forEach((items, n) => items.filter((item) => item.bar).forEach((item) => {
      const room = this.tables[n].start - 6 * unit;
      item.lines = this.lines({ text: item.label, bold: true }, room).map((line) => this.cut(line, room));
    }));
    const heights = this.columns.map((items, n) => items.reduce((sum, item) => sum + this.heightOf(item, this.widths[n]), 0));
    this.heights = heights;
    this.height = narrow ? heights.reduce((a, b) => a + b + this.gap / 2) : Math.max(...heights);
  }

  // Where the bars of a column start and the width of the longest: what its labels and its values leave. Values keep their
  // width and the longest bar a tenth of the column's; a label without room has several lines.
  tableOf(rows, width) {
    const widest = (texts) => Math.max(0, ...texts.map((text) => this.measure(text, this.font(PX, true)))) + 8 * this.unit;
    const left = width - widest(rows.map(({ bar }) => bar.text)), start = Math.max(0, Math.min(widest(rows.map(({ label }) => label)), left - 0.1 * width));
    return { start, track: Math.max(0, left - start) };
  }

  lines({ text, px = PX, bold = false }, width) {
    return wrap([{ text, role: "" }], width, (piece) => this.measure(piece, this.font(px, bold))).map((runs) => runs.map((run) => run.text).join(""));
  }

  heightOf(item, width) {
    if (item.curve) return (CURVE + 18) * this.unit;
    if (item.text === undefined) return (item.lines?.length || 1) * ROW * this.unit;
    return this.lines(item, width).length * ((item.px || PX) + 6) * this.unit;
  }

  paint(ctx, x, y, tokens) {
    this.columns.forEach((items, n) => {
      let top = y;
      for (const item of items) {
        this.paintItem(ctx, item, x, top, n, tokens);
        top += this.heightOf(item, this.widths[n]);
      }
      if (this.narrow) y += this.heights[n] + this.gap / 2;
      else x += this.widths[n] + this.gap;
    });
  }

  paintItem(ctx, item, x, y, column, tokens) {
    const { unit } = this, width = this.widths[column], write = (text, at, top, { px = PX, bold = false, hue = "ink" } = {}, align = "left") => {
      Object.assign(ctx, { font: this.font(px, bold), fillStyle: tokens[hue], textAlign: align, textBaseline: "alphabetic" });
      ctx.fillText(text, at, top + px * unit);
    };
    const fill = (hue, left, top, w, h) => { ctx.fillStyle = tokens[hue]; ctx.fillRect(left, top, w, h); };
    if (item.text !== undefined) return this.lines(item, width).forEach((line, n) => write(line, x, y + n * ((item.px || PX) + 6) * unit, item));
    if (item.stack) {
      let left = x;
      for (const { role, share, faint } of item.stack) {
        ctx.globalAlpha = faint ? 0.5 : 1;
        fill(role, left, y + 3 * unit, Math.max(2, share * width - 1), 12 * unit);
        left += share * width;
      }
      ctx.globalAlpha = 1;
      return undefined;
    }
    if (item.curve) return this.paintCurve(ctx, item.curve, x, y + 3 * unit, width, tokens, write);
    const { bar } = item, { start, track } = this.tables[column];
    item.lines.forEach((line, n) => write(line, x, y + n * ROW * unit, { bold: bar.current || bar.main }));
    if (bar.share !== null) fill(item.hue, x + start, y + 3 * unit, Math.max(1, bar.share * track), 10 * unit);
    write(bar.text, x + width, y, { bold: bar.current || bar.main }, "right");
    return undefined;
  }

  // Lines over a range of steps; points are shares of the width and the height. Recorded lines are dashed.
  paintCurve(ctx, { lines, top, right, first = "0", epochs }, x, y, width, tokens, write) {
    const { unit } = this, height = CURVE * unit;
    const line = (points, colour, thick, dash = []) => {
      Object.assign(ctx, { strokeStyle: colour, lineWidth: thick * unit });
      ctx.setLineDash(dash);
      ctx.beginPath();
      points.forEach(([px, py], n) => ctx[n ? "lineTo" : "moveTo"](x + px * width, y + (1 - py) * height));
      ctx.stroke();
    };
    for (const at of [0, 0.5, 1]) line([[0, at], [1, at]], tokens.line, 1);
    for (const { points, role, faint } of lines) if (points.length) line(points, tokens[role], faint ? 1.2 : 2, faint ? [3 * unit, 3 * unit] : []);
    ctx.setLineDash([]);
    const axis = (text, hue, at, down, align) => write(text, at, y + down, { px: 11, hue }, align);
    axis(top, "dim", x + 2 * unit, 2 * unit, "left");
    if (right) axis(right, "dim", x + width - 2 * unit, 2 * unit, "right");
    axis(first, "dim", x, height + 3 * unit, "left");
    axis(epochs, "dim", x + width, height + 3 * unit, "right");
  }

  // A label cut to a width.
  cut(text, width) {
    const fits = (piece) => this.measure(piece, this.font(PX, true)) <= width;
    if (fits(text)) return text;
    let end = text.length;
    while (end > 1 && !fits(`${text.slice(0, end)}…`)) end--;
    return `${text.slice(0, end)}…`;
  }
}
