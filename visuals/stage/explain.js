// Where a cell's value comes from and where it is used: marks for the canvas, text for the panel. Pure.
// explain() returns {marks, parts}; parts are {text, role} in order, "\n" breaks a line.

import { hueOf } from "./colour.js";
import { cellOf, copiesOf, eventOf, eventsAt, fillTemplate, isAir, isPadding, isWritten, lastEvent, minus, valueAt, writtenAt } from "./decode.js";
import { count, decimal, tr, trParts, trn, trnParts } from "./texts.js";

const MAX_TERMS = 12;

// Numbers in a sentence: integers plain (no negative zero), others to three digits.
export function number(v) {
  return minus(Number.isInteger(v) && Math.abs(v) < 1e15 ? count(v + 0) : decimal(String(+v.toPrecision(3))));
}

const columnOf = (t, j) => (t.colIndex ? t.colIndex[j] : j + t.origin[2]);

export function nameOf(t, i) {
  const plane = Math.floor(i / (t.rows * t.cols)) + t.origin[0];
  const at = [(Math.floor(i / t.cols) % t.rows) + t.origin[1], columnOf(t, i % t.cols)];
  return `${t.symbol}[${(t.planes > 1 || t.planeName ? [plane, ...at] : at).join(", ")}]`;
}

const cellPart = (t, i, role = t.hue) => ({ text: nameOf(t, i), role });
const SYMBOL = /^.{1,2}$|[_=]/; // titles that are names of the code or formulas take no article
const titlePart = (t, role = "") => ({ text: t.title.replace(/\s*\(.*\)$/, ""), role });
// A tensor as a noun in a sentence: "the data matrix", but "C" or "tile_a".
const nounParts = (t, role) => (SYMBOL.test(titlePart(t).text) ? [titlePart(t, role)] : trParts("the {tensor}", { tensor: titlePart(t, role) }));

export function explain(scene, step, name, i) {
  const t = scene.tensors[name];
  if (scene.diagram) return explainBox(scene, t, i);
  const marks = [], parts = [];
  const add = (text, role = "") => parts.push({ text, role });
  const say = (sentence) => parts.push(...(parts.length ? [{ text: " ", role: "" }] : []), ...sentence);
  const mark = (tensor, cells, as, more) => marks.push({ name: tensor.name, cells, as, ...more });
  const context = { scene, step, add, say, mark, written: isWritten(t, i, step) };

  const e = eventOf(t, i, step);
  if (t.write[e]?.reshapes) { // no value of its own: the source's cell explains it
    const { source } = t.write[e], of = explain(scene, step, source.name, t.from[e]);
    say(trParts("{cell} is {source}: the same bytes under another index.", { cell: cellPart(t, i, "head"), source: cellPart(source, t.from[e]) }));
    return { marks: of.marks, parts: [...parts, { text: "\n", role: "" }, ...of.parts] };
  }
  const via = e >= 0 && t.viaCell[e] >= 0 ? t.write[e].via : null;
  const out = scene.matmuls.find((m) => m.out === t);
  const sum = scene.sums.find((s) => s.out === t && s.start[i] < s.start[i + 1]);
  if (out) explainProduct(context, out, i);
  else if (sum) explainSum(context, sum, i);
  else explainValue(context, t, i, e);
  if (via) {
    say(trParts("It replaces {cell}, which is never stored.", { cell: cellPart(via, t.viaCell[e]) }));
    mark(via, [t.viaCell[e]], "read");
  }
  const times = t.byCell.start[i + 1] - t.byCell.start[i];
  if (times > 1) say(trParts("Write {done} of {n}.", { done: countDone(t, t.byCell.items.subarray(t.byCell.start[i], t.byCell.start[i + 1]), step), n: count(times) }));

  if (t.view && cellOf(t, i) >= 0) mark(t.view.source, [cellOf(t, i)], "read");
  for (const annotation of scene.annotations) explainAnnotation(context, annotation, t, i);
  if (via) for (const annotation of scene.annotations) if (annotation.tensor === via) explainAnnotation(context, annotation, via, t.viaCell[e]);
  const targets = Object.values(scene.tensors).filter((target) => target.writes.some((w) => w.source === t));
  for (const target of targets) (target.writes[0].reshapes ? markReshaped : explainCopies)(context, target, t, i);
  if (targets.length && !targets.some((target) => target.writes[0].reshapes || copiesOf(target, t, i).length)) explainNoCopy(context, targets);
  for (const m of scene.matmuls) {
    if (m.right === t) explainColumn(context, m, i);
    if (m.left === t) explainFactor(context, m, i);
  }
  for (const s of scene.sums) if (s.left === t || s.right === t) explainTerm(context, s, t, i);
  mark(t, [i], "write");
  return { marks, parts };
}

const countDone = (t, events, step) => count(events.filter((e) => t.step[e] <= step).length);

// What a cell holds, or will hold: a value, a copy, a zero of the padding. `e`: the event that writes it.
function explainValue({ step, say, mark, written }, t, i, e) {
  const cell = cellPart(t, i, "head");
  if (e >= 0 && t.from[e] >= 0) {
    const { source } = t.write[e], fields = { cell, value: valuePart(t, i, step), source: cellPart(source, t.from[e]) };
    say(written ? trParts("{cell} = {value}, a copy of {source}.", fields) : trParts("{cell} = {value}, not written yet: will be a copy of {source}.", fields));
    mark(source, [t.from[e]], "write");
  } else if (isAir(t, i)) say(trParts("{cell} is never stored.", { cell }));
  else if (isPadding(t, i, step)) {
    say(trParts("{cell} = 0, a zero of the padding, not read from anywhere.", { cell }));
    if (!written) say(trParts("It is not written yet."));
  } else {
    const fields = { cell, value: valuePart(t, i, step) };
    say(written ? trParts("{cell} = {value}.", fields) : trParts("{cell} = {value}, not written yet.", fields));
  }
}

const valuePart = (t, i, step) => ({ text: number(valueAt(t, i, step)), role: hueOf(t, i) });

// The scene's own sentence on a cell, with the cells it is made of; and the cells that it is a part of.
function explainAnnotation({ say, mark }, { tensor, captions, links }, t, i) {
  const linked = ({ cells }, k) => cells.subarray(k * (cells.length / tensor.size), (k + 1) * (cells.length / tensor.size));
  if (tensor === t) say(fillTemplate(captions, i));
  for (const link of links) {
    if (tensor === t) mark(link.source, [...linked(link, i)].filter((c) => c >= 0), "read");
    if (link.source === t) mark(tensor, Array.from({ length: tensor.size }, (_, k) => k).filter((k) => linked(link, k).includes(i)), "write", { each: true, faint: true });
  }
}

function explainCopies({ step, say, mark }, target, source, i) {
  const copies = [...copiesOf(target, source, i)];
  if (!copies.length) return;
  const current = copies.filter((e) => lastEvent(target, target.cell[e], step) === e);
  mark(target, copies.filter((e) => target.step[e] > step).map((e) => target.cell[e]), "write", { faint: true });
  mark(target, current.map((e) => target.cell[e]), "write", { each: true });
  const done = countDone(target, copies, step), fields = { done, tensor: nounParts(target, target.role) };
  if (done === "0") say(trParts("Not yet copied to {tensor}.", fields));
  else if (target.once) say(trnParts("Copied to {done} of {n} cell of {tensor} so far.", "Copied to {done} of {n} cells of {tensor} so far.", copies.length, fields));
  else say(trnParts("Copied {done} of {n} time to {tensor} so far.", "Copied {done} of {n} times to {tensor} so far.", copies.length, fields));
  if (target.partial) say(trParts("Only the part shown is counted."));
}

// The scene may follow one thread: other threads may copy the cell to registers of their own.
function explainNoCopy({ scene, say }, targets) {
  const names = targets.map((target) => {
    const noun = nounParts(target, target.role), { title } = scene.groups.find((g) => g.memorySpace === "registers" && g.rows.flat().includes(target)) || {};
    return title ? [...noun, { text: ` (${title})`, role: "" }] : noun;
  });
  say(trParts("It is never copied to {tensors}.", { tensors: names.flatMap((name, n) => [...(n ? [{ text: ", ", role: "" }] : []), ...name]) }));
}

function markReshaped({ mark }, target, source, i) {
  mark(target, [...copiesOf(target, source, i)].map((e) => target.cell[e]), "write");
}

const column = (m, j) => Array.from({ length: m.right.rows }, (_, k) => k * m.right.cols + j);
const productsOf = (m, j) => Array.from({ length: m.left.rows }, (_, r) => r * m.right.cols + j);

function explainColumn(context, m, i) {
  const { say, mark } = context, { right } = m;
  const j = i % right.cols, outs = productsOf(m, j);
  markColumn(context, m, column(m, j));
  mark(m.out, outs, "write", { each: true });
  const first = outs.slice(0, 4).flatMap((o, n) => [...(n ? [{ text: ", ", role: "" }] : []), cellPart(m.out, o)]);
  const cells = outs.length > 4 ? trParts("{cells} and {n} more", { cells: first, n: count(outs.length - 4) }) : first;
  const fields = { column: columnOf(right, j), cells };
  say(right.source ? trParts("Column {column} is one window. It gives {cells}.", fields) : trParts("Column {column} gives {cells}.", fields));
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
  say(trnParts("It multiplies all of row {row} of {matrix}: one term of {n} cell of {output}, {done} so far.",
    "It multiplies all of row {row} of {matrix}: one term of {n} cells of {output}, {done} so far.", cols, {
      row: k + right.origin[1], matrix: nounParts(right, right.role), output: nounParts(out, out.hue),
      done: count(row.filter((_, j) => isWritten(out, r * cols + j, step)).length),
    }));
}

// out = sum of left x right, with the numbers of the cells.
function explainProduct(context, m, i) {
  const { step, add, mark, written } = context, { left, right, out } = m;
  const r = Math.floor(i / right.cols), cells = column(m, i % right.cols), inner = left.cols;
  const summed = written && m.upto ? m.upto[step] : inner;
  mark(left, cells.map((_, k) => r * inner + k), "read");
  markColumn(context, m, cells);
  beginSum(context, out, i);
  let exact = true;
  for (let k = 0; k < summed; k++) {
    const a = valueAt(left, r * inner + k, step), b = valueAt(right, cells[k], step);
    exact &&= Number.isInteger(a) && Number.isInteger(b);
    addTerm(add, k, a, left.hue, b, isPadding(right, cells[k], step) ? "dim" : right.hue);
  }
  addMoreTerms(add, summed);
  if (m.rest) {
    const plane = right.source?.planeName, value = number(m.rest[i]);
    add(" + " + (plane ? tr("{value} from every {plane} not shown", { value, plane }) : tr("{value} from the terms not shown", { value })), "dim");
  }
  if (summed < inner) add(", " + trn("{n} term to come", "{n} terms to come", inner - summed), "dim");
  add(`\n${exact ? "=" : "≈"} ${number(valueAt(out, i, step))}`, "sum");
}

// The cell's name, and the line of its sum up to the first term.
function beginSum({ add, say, written }, out, i) {
  const cell = cellPart(out, i, "head");
  say(written ? [cell] : trParts("{cell}, not computed yet", { cell }));
  add("\n= ");
}

function addMoreTerms(add, terms) {
  if (terms > MAX_TERMS) add(" + … " + trn("{n} more term", "{n} more terms", terms - MAX_TERMS), "dim");
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
function explainSum(context, { out, left, right, start, cells, factors, rest }, i) {
  const { step, add, mark } = context, e = eventOf(out, i, step), sumStep = e >= 0 ? out.step[e] : step, value = valueAt(out, i, step);
  const terms = cells.subarray(start[i], start[i + 1]), weights = factors.subarray(start[i], start[i + 1]);
  mark(right, [...terms], "read");
  if (left) mark(left, [...weights], "read");
  beginSum(context, out, i);
  let total = 0, exact = true;
  terms.forEach((cell, k) => {
    const a = left ? valueAt(left, weights[k], sumStep) : weights[k], b = valueAt(right, cell, sumStep);
    total += a * b;
    exact &&= Number.isInteger(a) && Number.isInteger(b);
    addTerm(add, k, a, left ? left.hue : "", b, right.hue);
  });
  addMoreTerms(add, terms.length);
  if (rest) add(" + " + tr("{value} from the {terms} not shown", { value: number(value - total), terms: rest }), "dim");
  add(`\n${exact && Number.isInteger(value) ? "=" : "≈"} ${number(value)}`, "sum");
  if (terms.some((cell) => valueAt(right, cell, sumStep) !== valueAt(right, cell, step))) add("\n" + tr("Its terms have been overwritten since."), "dim");
}

// The sums in which a cell is a term, of those that are written or will be written.
function explainTerm({ say, mark }, s, t, i) {
  const outs = [], terms = s.right === t ? s.cells : s.factors;
  for (let o = 0; o < s.out.size; o++) if (terms.subarray(s.start[o], s.start[o + 1]).includes(i)) outs.push(o);
  if (!outs.length) return;
  mark(s.out, outs, "write", { each: true });
  say(trnParts("It is a term of {n} cell of {output}.", "It is a term of {n} cells of {output}.", outs.length, { output: nounParts(s.out, s.out.hue) }));
}

// A box of a diagram has the scene's own sentence alone.
function explainBox({ annotations }, t, i) {
  const parts = [], marks = [], context = { say: (sentence) => parts.push(...sentence), mark: (tensor, cells, as, more) => marks.push({ name: tensor.name, cells, as, ...more }) };
  for (const annotation of annotations) if (annotation.tensor === t) explainAnnotation(context, annotation, t, i);
  context.mark(t, [i], "write");
  return { marks, parts };
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
      if (t.from[e] >= 0 && !t.write[e].reshapes) reads(t.write[e].source, [t.from[e]]);
      if (t.viaCell[e] >= 0) reads(t.write[e].via, [t.viaCell[e]]);
    }
    if (events.length && !t.write[events[0]].reshapes) marks.push({ name: t.name, cells: writtenAt(t, step), as: "write" });
  }
  return [...Array.from(read, ([name, cells]) => ({ name, cells: [...cells], as: "read" })), ...marks].filter((m) => m.cells.length);
}

// Without hover or pin, the panel explains the first product of the step, else its first written cell.
export function focusOf(scene, step) {
  const written = Object.values(scene.tensors).filter((t) => eventsAt(t, step).length);
  const t = [...scene.matmuls, ...scene.sums].map((m) => m.out).find((o) => written.includes(o)) || written[0];
  return t ? { name: t.name, index: writtenAt(t, step)[0] } : null;
}
