// Where a cell's value comes from and where it is used: marks for the canvas, text for the panel. Pure.
// explain() returns {marks, parts}; parts are {text, role} in order, "\n" breaks a line.

import { cellOf, copiesOf, eventOf, eventsAt, fillTemplate, isAir, isPadding, isWritten, lastEvent, minus, valueAt, writtenAt } from "./decode.js";

const MAX_TERMS = 12;

export const count = (n) => n.toLocaleString("en");
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
  const add = (text, role = "") => parts.push({ text, role });
  const mark = (tensor, cells, as, more) => marks.push({ name: tensor.name, cells, as, ...more });
  const context = { scene, step, add, mark, written: isWritten(t, i, step) };

  add(nameOf(t, i), "head");
  const out = scene.matmuls.find((m) => m.out === t);
  const sum = scene.sums.find((s) => s.out === t && s.start[i] < s.start[i + 1]);
  if (out) explainProduct(context, out, i);
  else if (sum) explainSum(context, sum, i);
  else if (isAir(t, i)) add(" is never stored");
  else if (isPadding(t, i, step)) add(" = 0, a zero of the padding, not read from anywhere");
  else add(` = ${number(valueAt(t, i, step))}`, t.hue);

  const e = eventOf(t, i, step);
  if (e >= 0 && t.from[e] >= 0) {
    const { source } = t.write[e];
    add(context.written ? ", a copy of " : ", not written yet: will be a copy of ");
    add(nameOf(source, t.from[e]), source.hue);
    mark(source, [t.from[e]], "write");
  } else if (!out && !sum && !context.written && !isAir(t, i)) add(", not written yet");
  const via = e >= 0 && t.viaCell[e] >= 0 ? t.write[e].via : null;
  if (via) {
    add(", in place of ");
    add(nameOf(via, t.viaCell[e]), via.hue);
    mark(via, [t.viaCell[e]], "read");
  }
  if (!out && !sum) add(".");
  const times = t.byCell.start[i + 1] - t.byCell.start[i];
  if (times > 1) add(` Write ${countDone(t, t.byCell.items.subarray(t.byCell.start[i], t.byCell.start[i + 1]), step)} of ${count(times)}.`);

  if (t.view && cellOf(t, i) >= 0) mark(t.view.source, [cellOf(t, i)], "read");
  for (const annotation of scene.annotations) explainAnnotation(context, annotation, t, i);
  if (via) for (const annotation of scene.annotations) if (annotation.tensor === via) explainAnnotation(context, annotation, via, t.viaCell[e]);
  for (const target of Object.values(scene.tensors))
    if (target.writes.some((w) => w.source === t)) explainCopies(context, target, t, i);
  for (const m of scene.matmuls) {
    if (m.right === t) explainColumn(context, m, i);
    if (m.left === t) explainFactor(context, m, i);
  }
  for (const s of scene.sums) if (s.left === t || s.right === t) explainTerm(context, s, t, i);
  mark(t, [i], "write");
  return { marks, parts };
}

const countDone = (t, events, step) => count(events.filter((e) => t.step[e] <= step).length);

// The scene's own sentence on a cell, with the cells it is made of; and the cells that it is a part of.
function explainAnnotation({ add, mark }, { tensor, captions, links }, t, i) {
  const linked = ({ cells }, k) => cells.subarray(k * (cells.length / tensor.size), (k + 1) * (cells.length / tensor.size));
  if (tensor === t) {
    add(" ");
    for (const { text, role } of fillTemplate(captions, i)) add(text, role);
  }
  for (const link of links) {
    if (tensor === t) mark(link.source, [...linked(link, i)].filter((c) => c >= 0), "read");
    if (link.source === t) mark(tensor, Array.from({ length: tensor.size }, (_, k) => k).filter((k) => linked(link, k).includes(i)), "write", { each: true, faint: true });
  }
}

function explainCopies({ scene, step, add, mark }, target, source, i) {
  const copies = [...copiesOf(target, source, i)];
  if (!copies.length) return add(" It is never copied.");
  const current = copies.filter((e) => lastEvent(target, target.cell[e], step) === e);
  mark(target, copies.filter((e) => target.step[e] > step).map((e) => target.cell[e]), "write", { faint: true });
  mark(target, current.map((e) => target.cell[e]), "write", { each: true });
  const noun = new Set(copies.map((e) => target.step[e])).size === copies.length ? scene.stepName : "cell";
  const whole = `${target.partial ? "the part shown of " : ""}the ${titleOf(target)}`, done = countDone(target, copies, step);
  if (done === "0") return add(` Not yet copied to ${whole}.`);
  add(target.once ? " Copied to " : " Copied ");
  add(`${done} of ${plural(copies.length, target.once ? noun : "time")}`, target.role);
  add(`${target.once ? " of" : " to"} ${whole} so far.`);
}

const column = (m, j) => Array.from({ length: m.right.rows }, (_, k) => k * m.right.cols + j);
const productsOf = (m, j) => Array.from({ length: m.left.rows }, (_, r) => r * m.right.cols + j);

function explainColumn(context, m, i) {
  const { add, mark } = context, { right } = m;
  const j = i % right.cols, outs = productsOf(m, j);
  markColumn(context, m, column(m, j));
  mark(m.out, outs, "write", { each: true });
  add(` Column ${columnOf(right, j)}${right.source ? " is one window; it" : ""} gives `);
  outs.slice(0, 4).forEach((o, n) => {
    if (n) add(", ");
    add(nameOf(m.out, o), m.out.hue);
  });
  add(outs.length > 4 ? ` and ${outs.length - 4} more.` : ".");
}

// A column and the window it was copied from.
function markColumn({ step, mark }, { right }, cells) {
  const { source } = right.view || right;
  mark(right, cells, "read");
  if (source) mark(source, [...new Set(cells.map((c) => cellOf(right, c, step)))].filter((c) => c >= 0), "read");
}

function explainFactor({ step, add, mark }, m, i) {
  const { left, right, out } = m, { cols } = right;
  const k = i % left.cols, r = Math.floor(i / left.cols);
  const row = Array.from({ length: cols }, (_, j) => k * cols + j);
  mark(right, row, "read");
  const done = row.filter((_, j) => isWritten(out, r * cols + j, step));
  add(` It multiplies all of row ${k + right.origin[1]} of the `);
  add(titleOf(right), right.role);
  add(": one term of ");
  add(plural(cols, titleOf(out)), out.hue);
  add(`, ${count(done.length)} so far.`);
}

// out = sum of left x right, with the numbers of the cells.
function explainProduct(context, m, i) {
  const { step, add, mark, written } = context, { left, right, out } = m;
  const r = Math.floor(i / right.cols), cells = column(m, i % right.cols), inner = left.cols;
  const summed = written && m.upto ? m.upto[step] : inner;
  mark(left, cells.map((_, k) => r * inner + k), "read");
  markColumn(context, m, cells);
  add(written ? "\n= " : ", not computed yet\n= ");
  let exact = true;
  for (let k = 0; k < summed; k++) {
    const a = valueAt(left, r * inner + k, step), b = valueAt(right, cells[k], step);
    exact &&= Number.isInteger(a) && Number.isInteger(b);
    addTerm(add, k, a, left.hue, b, isPadding(right, cells[k], step) ? "dim" : right.hue);
  }
  if (summed > MAX_TERMS) add(` + … ${plural(summed - MAX_TERMS, "more term")}`, "dim");
  if (m.rest) {
    add(` + ${number(m.rest[i])} from the ${right.source?.planeName || "term"}s not shown`, "dim");
  }
  if (summed < inner) add(`, ${plural(inner - summed, "term")} to come`, "dim");
  add(`\n${exact ? "=" : "≈"} ${number(valueAt(out, i, step))}`, "sum");
}

// Term k of a sum, a * b, with its sign. A factor without a colour is a number of the algorithm, and is left out if it
// is 1.
function addTerm(add, k, a, colour, b, role) {
  if (k >= MAX_TERMS) return;
  if (k || a < 0) add(a < 0 ? (k ? " − " : "−") : " + ", "op");
  const one = !colour && Math.abs(a) === 1;
  if (!one) {
    add(number(Math.abs(a)), colour);
    add("·");
  }
  add(b < 0 && (k || !one || a < 0) ? `(${number(b)})` : number(b), role);
}

// out = the sum of its terms, with their values at the step that writes it; for a ghost that step is still to come.
function explainSum({ scene, step, add, mark, written }, { out, left, right, start, cells, factors, rest }, i) {
  const e = eventOf(out, i, step), sumStep = e >= 0 ? out.step[e] : step, value = valueAt(out, i, step);
  const terms = cells.subarray(start[i], start[i + 1]), weights = factors.subarray(start[i], start[i + 1]);
  mark(right, [...terms], "read");
  if (left) mark(left, [...weights], "read");
  add(written ? "\n= " : ", not computed yet\n= ");
  let total = 0, exact = true;
  terms.forEach((cell, k) => {
    const a = left ? valueAt(left, weights[k], sumStep) : weights[k], b = valueAt(right, cell, sumStep);
    total += a * b;
    exact &&= Number.isInteger(a) && Number.isInteger(b);
    addTerm(add, k, a, left ? left.hue : "", b, right.hue);
  });
  if (terms.length > MAX_TERMS) add(` + … ${plural(terms.length - MAX_TERMS, "more term")}`, "dim");
  if (rest) add(` + ${number(value - total)} from the ${rest} not shown`, "dim");
  add(`\n${exact && Number.isInteger(value) ? "=" : "≈"} ${number(value)}`, "sum");
  if (terms.some((cell) => valueAt(right, cell, sumStep) !== valueAt(right, cell, step))) add(`\nWhat it was made of has been overwritten since.`, "dim");
}

// The sums in which a cell is a term, of those that are written or will be written.
function explainTerm({ add, mark }, s, t, i) {
  const outs = [], terms = s.right === t ? s.cells : s.factors;
  for (let o = 0; o < s.out.size; o++) if (terms.subarray(s.start[o], s.start[o + 1]).includes(i)) outs.push(o);
  if (!outs.length) return;
  mark(s.out, outs, "write", { each: true });
  add(" It is a term of ");
  add(plural(outs.length, "cell"), s.out.hue);
  add(` of the ${titleOf(s.out)}.`);
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
      if (t.from[e] >= 0) reads(t.write[e].source, [t.from[e]]);
      if (t.viaCell[e] >= 0) reads(t.write[e].via, [t.viaCell[e]]);
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
