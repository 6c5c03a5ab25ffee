// The measured strip in a picture for download: three columns of texts and bars, one below the other if it is narrow.
// Joined with takeaway.js.

import { wrap } from "./wrap.js";

const PX = 13, ROW = 19, NARROW = 560; // px, at the default font size

// The parts of the strip as columns of items: a text, a bar, or the bar of memory by role.
function columnsOf({ stale, shape, time, memory, limits }) {
  const text = (value, options = {}) => ({ text: value, ...options });
  const bars = (rows, hue) => rows.map((row) => ({ bar: row, label: row.title ?? row.label, hue: row.current || row.main ? hue : "dim" }));
  const badge = time.badge ? [text(time.badge.text, { hue: "workspace" })] : [];
  return [
    [text(time.value, { px: 22, bold: true }), ...badge, ...(stale ? [text(stale, { hue: "write" })] : []), text(`${time.name} · ${shape}`, { bold: true }),
      ...(time.text ? [text(time.text)] : []), ...bars(time.bars, "input")],
    [text(memory.title, { bold: true }), text(memory.badge.text, { hue: "workspace" }), { stack: memory.parts },
      ...memory.parts.map((part) => text(`${part.label} ${part.text}`, { hue: part.role })), text(memory.text)],
    [text(limits.title, { bold: true }), ...bars(limits.rows, "write"), text(limits.text)],
  ];
}

export class StripFigure {
  // `font(px, bold)` and `measure(text, font)` as of the picture; `unit` enlarges everything.
  constructor(size, width, unit, font, measure) {
    Object.assign(this, { unit, font, measure, columns: columnsOf(size), gap: 22 * unit });
    const narrow = width < NARROW * unit, shares = narrow ? [1, 1, 1] : [0.44, 0.27, 0.29];
    this.narrow = narrow;
    this.widths = shares.map((share) => (narrow ? width : (width - 2 * this.gap) * share));
    this.tables = this.columns.map((items, n) => this.tableOf(items.filter((item) => item.bar), this.widths[n]));
    const heights = this.columns.map((items, n) => items.reduce((sum, item) => sum + this.heightOf(item, this.widths[n]), 0));
    this.heights = heights;
    this.height = narrow ? heights.reduce((a, b) => a + b + this.gap / 2) : Math.max(...heights);
  }

  // Where the bars of a column start and the width of the longest: what its labels and its values leave.
  tableOf(rows, width) {
    const widest = (texts) => Math.max(0, ...texts.map((text) => this.measure(text, this.font(PX, true)))) + 8 * this.unit;
    const start = Math.min(widest(rows.map(({ label }) => label)), 0.68 * width);
    return { start, track: Math.max(0.1 * width, width - start - widest(rows.map(({ bar }) => bar.text))) };
  }

  lines({ text, px = PX, bold = false }, width) {
    return wrap([{ text, role: "" }], width, (piece) => this.measure(piece, this.font(px, bold))).map((runs) => runs.map((run) => run.text).join(""));
  }

  heightOf(item, width) {
    if (item.text === undefined) return ROW * this.unit;
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
      for (const { role, share } of item.stack) fill(role, left, y + 3 * unit, Math.max(2, share * width - 1), 12 * unit), (left += share * width);
      return undefined;
    }
    const { bar } = item, { start, track } = this.tables[column];
    write(this.cut(item.label, start - 6 * unit), x, y, { bold: bar.current || bar.main });
    if (bar.share !== null) fill(item.hue, x + start, y + 3 * unit, Math.max(1, bar.share * track), 10 * unit);
    write(bar.text, x + width, y, { bold: bar.current || bar.main }, "right");
    return undefined;
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
