// A diagram in place of grids (visuals/scene/diagram.py): boxes in bands of columns, arrows, stacked areas over the steps.
// Pure layout, and drawing on any context.

import { clamp } from "./decode.js";

const MIN_COLUMN = 47, MAX_UNIT = 46, MIN_UNIT = 13, GAP_X = 8, GAP_Y = 7, GROUP_TITLE = 15; // px
const CHART_SHARE = 0.3, MIN_CHART = 64, MAX_CHART = 150, LEGEND = 18, PHASES = 16;
const LARGEST_TEXT = 12.5, SMALLEST_TEXT = 6.5, READABLE_TEXT = 9; // px: of the text in a box
const ROW_TEXT = 11.5; // px: of titles beside the rows, and of ticks

// The layout of a scene's diagram: every box and the chart with its place.
export function layOutDiagram({ diagram }, width, height, measure, scale = 1) {
  const { boxes, heights, groups, areas, rows: names = [], ticks = [] } = diagram, edge = (width < 600 ? 8 : 16) * scale;
  const margin = edge + (names.length ? Math.max(...names.map((name) => measure(name))) * (ROW_TEXT / 13) + 8 * scale : 0); // left of the boxes
  const columns = 1 + Math.max(...boxes.map((b) => b.column)), inner = width - margin - edge;
  const bands = clamp(Math.ceil((columns * MIN_COLUMN * scale) / inner), 1, columns), across = Math.ceil(columns / bands);
  const columnWidth = inner / across, legend = areas.length ? chartLegend(areas, diagram, inner, measure, scale) : null;
  const legendHeight = legend ? legend.lines * LEGEND * scale : 0;
  const chart = areas.length ? clamp(CHART_SHARE * height, MIN_CHART * scale, MAX_CHART * scale) : 0;
  const title = groups.length || ticks.length ? GROUP_TITLE * scale : 4 * scale, sum = heights.reduce((a, b) => a + b, 0);
  const fixed = edge + legendHeight + chart + (chart ? PHASES * scale + 8 * scale : 0);
  const gaps = bands * (title + (heights.length - 1) * GAP_Y * scale) + (bands - 1) * 6 * scale;
  const unit = clamp((height - fixed - gaps) / (bands * sum), MIN_UNIT * scale, MAX_UNIT * scale);
  const bandHeight = title + sum * unit + (heights.length - 1) * GAP_Y * scale + 6 * scale;
  const tops = heights.map((_, n) => title + heights.slice(0, n).reduce((above, h) => above + h * unit + GAP_Y * scale, 0));
  const y0 = 6 * scale, used = y0 + bands * bandHeight;
  const placed = boxes.map((box) => {
    const band = Math.floor(box.column / across), column = box.column - band * across, space = columnWidth - GAP_X * scale;
    const x = margin + column * columnWidth + GAP_X * scale * 0.5 + box.left * space, y = y0 + band * bandHeight + tops[box.row];
    const split = box.right < 1 ? 2 * scale : 0;
    return { ...box, band, x, y, w: Math.max(1.5 * scale, (box.right - box.left) * space - split), h: heights[box.row] * unit };
  });
  const rows = names.map((text, n) => ({ text, x: edge, y: y0 + tops[n], w: margin - edge, h: heights[n] * unit }));
  const axis = ticks.map(([text, at]) => ({ text, x: margin + GAP_X * scale * 0.5 + at * (columnWidth - GAP_X * scale), y: y0, w: 0, h: bandHeight - 6 * scale }));
  const titles = groups.flatMap(([text, first, last]) => {
    const parts = [];
    for (let from = first; from <= last;) {
      const band = Math.floor(from / across), to = Math.min(last, (band + 1) * across - 1);
      parts.push({ text, x: margin + (from - band * across) * columnWidth + GAP_X * scale * 0.5, w: (to - from + 1) * columnWidth - GAP_X * scale, y: y0 + band * bandHeight });
      from = to + 1;
    }
    return parts;
  });
  const below = Math.max(height - chart - PHASES * scale - 4 * scale, used + legendHeight), place = { x: margin, y: below, w: inner, h: chart };
  const total = chart ? below + chart + PHASES * scale + 4 * scale : used;
  for (const box of placed) box.texts = textsOf(box, measure, scale);
  return { width, height: total, fits: total <= height + 1, blocks: {}, grounds: [], diagram: { boxes: placed, titles, rows, axis, chart: chart ? place : null, legend, legendY: below - legendHeight, scale } };
}

// The lines of a box that fit, each with its font size in CSS pixels before the player's own scale.
function textsOf({ lines, w, h }, measure, scale) {
  const joined = lines.join(" ");
  if (/^\S+ \d+$/.test(joined) && (13 * (w - 4 * scale)) / measure(joined) < READABLE_TEXT) lines = narrowName(joined, h, scale);
  if (h < 19 * scale && lines.length > 1 && measure(joined) * (9 / 13) < w - 4 * scale) lines = [joined];
  const room = Math.min(lines.length, Math.max(1, Math.floor((h - 2 * scale) / (9 * scale)))), px = Math.min(LARGEST_TEXT, (h * 0.84) / room / 1.2 / scale);
  return lines.map((text) => ({ text, px: Math.min(px, (13 * (w - 4 * scale)) / Math.max(1, measure(text))) })).filter((line) => line.px >= SMALLEST_TEXT).slice(0, room);
}

// A name such as "GPU 3" in a narrow box: its words under each other, or its number alone in a low one.
function narrowName(name, h, scale) {
  const words = name.split(" ");
  return h >= (9 * words.length + 2) * scale ? words : words.slice(-1);
}

// The legend as words that wrap: [{text, role, faint, x, line}].
function chartLegend(areas, { title }, width, measure, scale) {
  const words = [{ text: title, role: "" }, ...areas.filter((a) => a.values.some(Boolean)).map((a) => ({ text: a.name, role: a.role, faint: a.faint }))];
  let x = 0, line = 0;
  for (const word of words) {
    const w = measure(word.text, !word.role) * (word.role ? 12 / 13 : 12 / 14) + (word.role ? 14 : 0) * scale;
    if (x && x + w > width) [x, line] = [0, line + 1];
    Object.assign(word, { x, line });
    x += w + 14 * scale;
  }
  return { words, lines: line + 1, end: x };
}

// The diagram under a view: everything moved and enlarged, text too.
export function viewDiagram(diagram, { scale, x, y }) {
  const moved = (r) => ({ ...r, x: (r.x - x) * scale, y: (r.y - y) * scale, w: r.w * scale, h: (r.h || 0) * scale });
  const boxes = diagram.boxes.map((box) => ({ ...moved(box), texts: box.texts.map((line) => ({ ...line, px: line.px * scale })) }));
  return { ...diagram, boxes, titles: diagram.titles.map(moved), rows: diagram.rows.map(moved), axis: diagram.axis.map(moved), chart: diagram.chart && moved(diagram.chart), legendY: (diagram.legendY - y) * scale, zoom: scale };
}

const inside = (r, x, y) => x >= r.x && y >= r.y && x < r.x + r.w && y < r.y + r.h;

// The cell whose box is under a point, or null.
export function boxAt({ boxes }, x, y) {
  const box = boxes.find((b) => inside(b, x, y));
  return box ? { name: box.name, index: box.index } : null;
}

// The step whose bar of the chart is under a point, or null.
export function stepAt({ chart }, steps, x, y) {
  return chart && inside(chart, x, y) ? clamp(Math.floor(((x - chart.x) / chart.w) * steps), 0, steps - 1) : null;
}

export const boxOf = ({ boxes }, name, index) => boxes.find((b) => b.name === name && b.index === index);

// -- drawing -------------------------------------------------------------------------------------------------
// Draws everything at a step; `marks` are {name, cells, as, faint} as explain() returns them.
export function drawDiagram(ctx, { scene, layout, theme, font, scale }, step) {
  const { diagram } = layout, { tokens } = theme;
  ctx.fillStyle = theme.grounds.panel.css;
  ctx.fillRect(0, 0, layout.width, layout.height);
  const write = (text, x, y, px, colour, align = "left", bold = false, room = undefined) => {
    Object.assign(ctx, { font: font(px, bold), fillStyle: colour, textAlign: align, textBaseline: "alphabetic" });
    ctx.fillText(text, x, y, room); // narrower letters if it is wider than its room
  };
  for (const { text, x, w, y } of diagram.titles) {
    write(text, x, y + 11 * scale, 11.5, tokens.dim);
    Object.assign(ctx, { fillStyle: tokens.line });
    ctx.fillRect(x, y + 13.5 * scale, w, 1);
  }
  drawAxis(ctx, diagram, tokens, write, scale);
  for (const [from, to] of scene.diagram.arrows) drawLink(ctx, diagram.boxes[from], diagram.boxes[to], step, tokens, scale);
  for (const box of diagram.boxes) drawBox(ctx, box, step, theme, write, scale);
  if (diagram.chart) drawChart(ctx, scene.diagram, diagram, scene.steps, step, theme, write, scale);
}

// The titles beside the rows; ticks with lines through all rows.
function drawAxis(ctx, { rows, axis }, tokens, write, scale) {
  for (const { text, x, y, h } of rows) write(text, x, y + h / 2 + 4 * scale, ROW_TEXT, tokens.dim);
  axis.forEach(({ text, x, y, h }, n) => {
    ctx.fillStyle = tokens.line;
    ctx.fillRect(x, y + 13 * scale, 1, h - 13 * scale);
    write(text, x, y + 10 * scale, ROW_TEXT, tokens.dim, n ? (n + 1 < axis.length ? "center" : "right") : "left");
  });
}

// A line between neighbours: down or up within a column, round a corner to the next one.
function drawLink(ctx, a, b, step, tokens, scale) {
  if (a.band !== b.band) return;
  const active = b.kernel ? step >= b.first && step <= b.last : step >= a.first && step <= a.last;
  const ay = a.y + a.h / 2, bx = b.x + b.w / 2, by = b.y + b.h / 2;
  const points = a.column === b.column ? [[bx, ay < by ? a.y + a.h : a.y], [bx, ay < by ? b.y : b.y + b.h]] : sideways(a, b, ay, by, scale);
  Object.assign(ctx, { strokeStyle: active ? tokens.accent : tokens.dim, lineWidth: (active ? 2 : 1) * scale });
  ctx.globalAlpha = active ? 1 : 0.45;
  ctx.beginPath();
  points.forEach(([x, y], k) => (k ? ctx.lineTo(x, y) : ctx.moveTo(x, y)));
  ctx.stroke();
  ctx.globalAlpha = 1;
}

function sideways(a, b, ay, by, scale) {
  const right = b.column > a.column, from = right ? a.x + a.w : a.x, to = right ? b.x : b.x + b.w;
  if (Math.abs(b.column - a.column) === 1) return [[from, ay], [(from + to) / 2, ay], [(from + to) / 2, by], [to, by]];
  const top = Math.min(a.y, b.y) - 4 * scale; // over the boxes in between
  return [[a.x + a.w / 2, a.y], [a.x + a.w / 2, top], [b.x + b.w / 2, top], [b.x + b.w / 2, b.y]];
}

function drawBox(ctx, box, step, theme, write, scale) {
  const { tokens } = theme, { x, y, w, h } = box, now = step >= box.first && step <= box.last, before = step < box.first;
  const alive = box.kernel ? !before : now, ramp = theme.written[box.role][1];
  const fill = box.kernel ? (now ? tokens.accent : alive ? tokens.ground : tokens.panel) : alive ? ramp[14].css : tokens.panel;
  Object.assign(ctx, { fillStyle: fill, strokeStyle: box.kernel ? (now ? tokens.accent : tokens.dim) : tokens[box.role], lineWidth: scale });
  ctx.globalAlpha = alive ? 1 : 0.55;
  if (!alive && !box.kernel) ctx.setLineDash([3, 2]);
  ctx.beginPath();
  ctx.roundRect(x, y, w, h, (box.kernel ? 5 : 1) * scale);
  ctx.fill();
  ctx.stroke();
  ctx.setLineDash([]);
  ctx.globalAlpha = 1;
  const ink = box.kernel && now ? tokens.ground : alive ? (box.kernel ? tokens.ink : ramp[14].ink === "#ffffff" ? "#ffffff" : tokens.ink) : tokens.dim;
  const all = box.texts.reduce((sum, line) => sum + line.px * 1.2 * scale, 0);
  let top = y + (h - all) / 2;
  for (const { text, px } of box.texts) {
    write(text, x + w / 2, top + px * 0.97 * scale, px, ink, "center", box.kernel && text === box.texts[0].text);
    top += px * 1.2 * scale;
  }
}

// An area in ink is a line over the others.
function drawChart(ctx, { areas: all, totals, phases }, { chart, legend, legendY }, steps, step, theme, write, scale) {
  const { x, y, w, h } = chart, { tokens } = theme, width = w / steps, room = h - 17 * scale; // above the areas: their total
  const areas = all.filter((a) => a.role !== "ink"), line = all.find((a) => a.role === "ink")?.values || [];
  const sums = Array.from({ length: steps }, (_, n) => areas.reduce((sum, a) => sum + a.values[n], 0)), most = Math.max(...sums, ...line, 1);
  ctx.fillStyle = tokens.ground;
  ctx.fillRect(x, y, w, h);
  for (let n = 0; n < steps; n++) {
    let top = y + h;
    for (const area of areas) {
      const high = (area.values[n] / most) * room, ramp = theme.written[area.role][1];
      const colour = area.faint ? ramp[18] : ramp[40];
      ctx.globalAlpha = n <= step ? 1 : 0.22;
      ctx.fillStyle = colour.css;
      if (high > 0) ctx.fillRect(x + n * width, top - high, Math.max(1, width - (width > 5 ? 1 : 0)), high);
      top -= high;
    }
  }
  ctx.globalAlpha = 1;
  Object.assign(ctx, { strokeStyle: tokens.ink, lineWidth: 1.5 * scale });
  ctx.beginPath();
  line.forEach((v, n) => [n, n + 1].forEach((at) => ctx[at ? "lineTo" : "moveTo"](x + at * width, y + h - (v / most) * room)));
  ctx.stroke();
  Object.assign(ctx, { strokeStyle: tokens.write, lineWidth: 2 * scale });
  const high = (sums[step] / most) * room;
  ctx.strokeRect(x + step * width, y + h - high, width, high);
  phases.forEach(([name, first], n) => {
    const last = n + 1 < phases.length ? phases[n + 1][1] : steps, from = x + first * width;
    if (n) {
      ctx.fillStyle = tokens.dim;
      ctx.fillRect(from - 0.5, y, 1, h + 4 * scale);
    }
    if (((last - first) * width) < 6.5 * name.length * scale && n < phases.length - 1) return; // no room for its name
    write(name, n === phases.length - 1 && n ? x + w : from + ((last - first) * width) / 2, y + h + 13 * scale, 11.5, step >= first && step < last ? tokens.ink : tokens.dim, n === phases.length - 1 && n ? "right" : "center", step >= first && step < last);
  });
  for (const { text, role, faint, x: at, line: row } of legend.words) {
    const top = legendY + row * LEGEND * scale + 3 * scale, left = x + at;
    if (role) {
      const ink = role === "ink";
      ctx.fillStyle = ink ? tokens.ink : theme.written[role][1][faint ? 18 : 40].css;
      ctx.fillRect(left, top + (ink ? 6 : 2) * scale, 9 * scale, (ink ? 1.5 : 9) * scale);
    }
    write(text, left + (role ? 13 * scale : 0), top + 10.5 * scale, 12, role ? tokens.ink : tokens.dim, "left", !role);
  }
  if (totals.length) write(totals[step], x + w, y + 11 * scale, 12, tokens.ink, "right", true, w);
}

// Outlines of boxes: read in sky blue, written in vermilion.
export function markBoxes(ctx, { layout, theme, scale }, marks, strength) {
  for (const mark of marks) for (const index of mark.cells) {
    const box = boxOf(layout.diagram, mark.name, index);
    if (!box) continue;
    ctx.globalAlpha = strength * (mark.faint ? 0.5 : 1);
    for (const [colour, width] of [[theme.tokens.ground, 4.5], [theme.tokens[mark.as], 2.5]]) {
      Object.assign(ctx, { strokeStyle: colour, lineWidth: width * scale });
      ctx.strokeRect(box.x - 1, box.y - 1, box.w + 2, box.h + 2);
    }
  }
  ctx.globalAlpha = 1;
}
