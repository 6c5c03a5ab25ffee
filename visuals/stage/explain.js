// Where a cell's value comes from and where it is used: marks for the canvas, text for the panel. Pure.
// explain() returns {marks, parts}; parts are {text, role} in order, "\n" breaks a line.

import { cellOf, copiesOf, eventOf, eventsAt, filled, isAir, isPadding, isWritten, lastEvent, minus, valueAt, writtenAt } from "./decode.js";

const MOST_TERMS = 12;

const count = (n) => n.toLocaleString("en");
const plural = (n, noun) => `${count(n)} ${noun}${n === 1 ? "" : "s"}`;

// Numbers in a sentence: integers plain (no negative zero), others to three digits.
export function number(v) {
  return minus(Number.isInteger(v) && Math.abs(v) < 1e15 ? count(v + 0) : +v.toPrecision(3));
}

const columnOf = (t, j) => (t.colIndex ? t.colIndex[j] : j + t.origin[2]);

export function nameOf(t, i) {
  const plane = Math.floor(i / (t.rows * t.cols)) + t.origin[0];
  const at = [(Math.floor(i / t.cols) % t.rows) + t.origin[1], columnOf(t, i % t.cols)];
  return `${t.symbol}[${(t.planes > 1 || t.planeName ? [plane, ...at] : at).join(", ")}]`;
}

const titleOf = (t) => t.title.replace(/\s*\(.*\)$/, "");

export function explain(scene, step, name, i) {
  const t = scene.tensors[name];
  const marks = [], parts = [];
  const say = (text, role = "") => parts.push({ text, role });
  const mark = (tensor, cells, as, more) => marks.push({ name: tensor.name, cells, as, ...more });
  const now = { scene, step, say, mark, born: isWritten(t, i, step) };

  say(nameOf(t, i), "head");
  const out = scene.matmuls.find((m) => m.out === t);
  const sum = scene.sums.find((s) => s.out === t && s.start[i] < s.start[i + 1]);
  if (out) explainProduct(now, out, i);
  else if (sum) explainSum(now, sum, i);
  else if (isAir(t, i)) say(" is never stored");
  else if (isPadding(t, i, step)) say(" = 0, a zero of the padding, not read from anywhere");
  else say(` = ${number(valueAt(t, i, step))}`, t.hue);

  const e = eventOf(t, i, step);
  if (e >= 0 && t.from[e] >= 0) {
    const { source } = t.by[e];
    say(now.born ? ", a copy of " : ", not written yet: will be a copy of ");
    say(nameOf(source, t.from[e]), source.hue);
    mark(source, [t.from[e]], "write");
  } else if (!out && !sum && !now.born && !isAir(t, i)) say(", not written yet");
  const via = e >= 0 && t.place[e] >= 0 ? t.by[e].via : null;
  if (via) {
    say(", in place of ");
    say(nameOf(via, t.place[e]), via.hue);
    mark(via, [t.place[e]], "read");
  }
  if (!out && !sum) say(".");
  const times = t.byCell.start[i + 1] - t.byCell.start[i];
  if (times > 1) say(` Written ${countDone(t, t.byCell.items.subarray(t.byCell.start[i], t.byCell.start[i + 1]), step)} of ${plural(times, "time")} so far.`);

  if (t.view && cellOf(t, i) >= 0) mark(t.view.source, [cellOf(t, i)], "read");
  for (const told of scene.told) explainTold(now, told, t, i);
  if (via) for (const told of scene.told) if (told.of === via) explainTold(now, told, via, t.place[e]);
  for (const target of Object.values(scene.tensors))
    if (target.writes.some((w) => w.source === t)) explainCopies(now, target, t, i);
  for (const m of scene.matmuls) {
    if (m.right === t) explainColumn(now, m, i);
    if (m.left === t) explainFactor(now, m, i);
  }
  for (const s of scene.sums) if (s.left === t || s.right === t) explainTerm(now, s, t, i);
  mark(t, [i], "write");
  return { marks, parts };
}

const countDone = (t, events, step) => count(events.filter((e) => t.step[e] <= step).length);

// The scene's own sentence on a cell, with the cells it is made of; and the cells that it is a part of.
function explainTold({ say, mark }, { of, words, links }, t, i) {
  const among = ({ cells }, k) => cells.subarray(k * (cells.length / of.size), (k + 1) * (cells.length / of.size));
  if (of === t) {
    say(" ");
    for (const { text, role } of filled(words, i)) say(text, role);
  }
  for (const link of links) {
    if (of === t) mark(link.source, [...among(link, i)].filter((c) => c >= 0), "read");
    if (link.source === t) mark(of, Array.from({ length: of.size }, (_, k) => k).filter((k) => among(link, k).includes(i)), "write", { each: true, faint: true });
  }
}

function explainCopies({ scene, step, say, mark }, target, source, i) {
  const copies = [...copiesOf(target, source, i)];
  if (!copies.length) return say(" It is never copied.");
  const there = copies.filter((e) => lastEvent(target, target.cell[e], step) === e);
  mark(target, copies.filter((e) => target.step[e] > step).map((e) => target.cell[e]), "write", { faint: true });
  mark(target, there.map((e) => target.cell[e]), "write", { each: true });
  const noun = new Set(copies.map((e) => target.step[e])).size === copies.length ? scene.stepName : "cell";
  const where = ` ${target.partial ? "the part shown of " : ""}the ${titleOf(target)} so far.`;
  say(target.once ? " It stands in " : " It was copied ");
  say(`${countDone(target, copies, step)} of ${plural(copies.length, target.once ? noun : "time")}`, target.role);
  say((target.once ? " of" : " into") + where);
}

const column = (m, j) => Array.from({ length: m.right.rows }, (_, k) => k * m.right.cols + j);
const productsOf = (m, j) => Array.from({ length: m.left.rows }, (_, r) => r * m.right.cols + j);

function explainColumn(now, m, i) {
  const { say, mark } = now, { right } = m;
  const j = i % right.cols, outs = productsOf(m, j);
  markColumn(now, m, column(m, j));
  mark(m.out, outs, "write", { each: true });
  say(` Column ${columnOf(right, j)}${right.source ? " is one window; it" : ""} gives `);
  outs.slice(0, 4).forEach((o, n) => {
    if (n) say(", ");
    say(nameOf(m.out, o), m.out.hue);
  });
  say(outs.length > 4 ? ` and ${outs.length - 4} more.` : ".");
}

// A column and the window it was copied from.
function markColumn({ step, mark }, { right }, cells) {
  const { source } = right.view || right;
  mark(right, cells, "read");
  if (source) mark(source, [...new Set(cells.map((c) => cellOf(right, c, step)))].filter((c) => c >= 0), "read");
}

function explainFactor({ step, say, mark }, m, i) {
  const { left, right, out } = m, { cols } = right;
  const k = i % left.cols, r = Math.floor(i / left.cols);
  const row = Array.from({ length: cols }, (_, j) => k * cols + j);
  mark(right, row, "read");
  const done = row.filter((_, j) => isWritten(out, r * cols + j, step));
  say(` It multiplies all of row ${k + right.origin[1]} of the `);
  say(titleOf(right), right.role);
  say(": one term of ");
  say(plural(cols, titleOf(out)), out.hue);
  say(`, ${count(done.length)} so far.`);
}

// out = sum of left x right, with the numbers of the cells.
function explainProduct(now, m, i) {
  const { step, say, mark, born } = now, { left, right, out } = m;
  const r = Math.floor(i / right.cols), cells = column(m, i % right.cols), inner = left.cols;
  const summed = born && m.upto ? m.upto[step] : inner;
  mark(left, cells.map((_, k) => r * inner + k), "read");
  markColumn(now, m, cells);
  say(born ? "\n= " : ", not computed yet\n= ");
  let exact = true;
  for (let k = 0; k < summed; k++) {
    const a = valueAt(left, r * inner + k, step), b = valueAt(right, cells[k], step);
    exact &&= Number.isInteger(a) && Number.isInteger(b);
    if (k >= MOST_TERMS) continue;
    if (k || a < 0) say(a < 0 ? (k ? " − " : "−") : " + ", "op");
    say(number(Math.abs(a)), left.hue);
    say("·");
    say(b < 0 ? `(${number(b)})` : number(b), isPadding(right, cells[k], step) ? "dim" : right.hue);
  }
  if (summed > MOST_TERMS) say(` + … ${plural(summed - MOST_TERMS, "more term")}`, "dim");
  if (m.rest) {
    say(` + ${number(m.rest[i])} from the ${right.source?.planeName || "term"}s not shown`, "dim");
  }
  if (summed < inner) say(`, ${plural(inner - summed, "term")} to come`, "dim");
  say(`\n${exact ? "=" : "≈"} ${number(valueAt(out, i, step))}`, "sum");
}

// out = the sum of its terms, with their values at the step that writes it; for a ghost that step is still to come.
function explainSum({ scene, step, say, mark, born }, { out, left, right, start, cells, factors, rest }, i) {
  const e = eventOf(out, i, step), then = e >= 0 ? out.step[e] : step, value = valueAt(out, i, step);
  const own = cells.subarray(start[i], start[i + 1]), by = factors.subarray(start[i], start[i + 1]);
  mark(right, [...own], "read");
  if (left) mark(left, [...by], "read");
  say(born ? "\n= " : ", not computed yet\n= ");
  let total = 0, exact = true;
  own.forEach((cell, k) => {
    const a = left ? valueAt(left, by[k], then) : by[k], b = valueAt(right, cell, then);
    total += a * b;
    exact &&= Number.isInteger(a) && Number.isInteger(b);
    if (k >= MOST_TERMS) return;
    if (k || a < 0) say(a < 0 ? (k ? " − " : "−") : " + ", "op");
    const plain = !left && Math.abs(a) === 1; // a factor of 1 is left out
    if (!plain) {
      say(number(Math.abs(a)), left ? left.hue : "");
      say("·");
    }
    say(b < 0 && (k || !plain || a < 0) ? `(${number(b)})` : number(b), right.hue);
  });
  if (own.length > MOST_TERMS) say(` + … ${plural(own.length - MOST_TERMS, "more term")}`, "dim");
  if (rest) say(` + ${number(value - total)} from the ${rest} not shown`, "dim");
  say(`\n${exact && Number.isInteger(value) ? "=" : "≈"} ${number(value)}`, "sum");
  if (own.some((cell) => valueAt(right, cell, then) !== valueAt(right, cell, step))) say(`\nWhat it was made of has been overwritten since.`, "dim");
}

// The sums in which a cell is a term, of those that are written or will be written.
function explainTerm({ say, mark }, s, t, i) {
  const outs = [], of = s.right === t ? s.cells : s.factors;
  for (let o = 0; o < s.out.size; o++) if (of.subarray(s.start[o], s.start[o + 1]).includes(i)) outs.push(o);
  if (!outs.length) return;
  mark(s.out, outs, "write", { each: true });
  say(" It is a term of ");
  say(plural(outs.length, "cell"), s.out.hue);
  say(` of the ${titleOf(s.out)}.`);
}

// The outlines of a step: what it reads in sky blue, what it writes in vermilion.
export function stepMarks(scene, step) {
  const marks = [], read = new Map();
  const reads = ({ name }, cells) => {
    if (!read.has(name)) read.set(name, new Set());
    for (const i of cells) read.get(name).add(i);
  };
  for (const { source, start, cells } of scene.reads) reads(source, cells.subarray(start[step], start[step + 1]));
  for (const { out, left, right, start, cells, factors } of scene.sums)
    for (const i of writtenAt(out, step)) {
      reads(right, cells.subarray(start[i], start[i + 1]));
      if (left) reads(left, factors.subarray(start[i], start[i + 1]));
    }
  for (const t of Object.values(scene.tensors)) {
    const events = eventsAt(t, step);
    for (const e of events) {
      if (t.from[e] >= 0) reads(t.by[e].source, [t.from[e]]);
      if (t.place[e] >= 0) reads(t.by[e].via, [t.place[e]]);
    }
    if (events.length) marks.push({ name: t.name, cells: writtenAt(t, step), as: "write" });
  }
  return [...Array.from(read, ([name, cells]) => ({ name, cells: [...cells], as: "read" })), ...marks].filter((m) => m.cells.length);
}

// Without hover or pin, the panel explains the first product of the step, else its first written cell.
export function focusOf(scene, step) {
  const written = Object.values(scene.tensors).filter((t) => eventsAt(t, step).length);
  const t = [...scene.matmuls, ...scene.sums].map((m) => m.out).find((o) => written.includes(o)) || written[0];
  return t ? { name: t.name, index: writtenAt(t, step)[0] } : null;
}
