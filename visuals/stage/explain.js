// What a cell is made of and where it goes: marks for the canvas, words for the panel. Pure.
// explain() gives {marks, parts}; parts are {text, role} in order, "\n" breaks a line.

const MOST_TERMS = 12;

const plural = (n, noun) => `${n.toLocaleString("en")} ${noun}${n === 1 ? "" : "s"}`;

// Numbers of a sentence: integers plain, others to three digits.
function number(v) {
  const text = Number.isInteger(v) ? v.toLocaleString("en") : String(+v.toPrecision(3));
  return text.replace("-", "−");
}

function coordinates(t, i) {
  const plane = Math.floor(i / (t.rows * t.cols)) + t.origin[0];
  const row = (Math.floor(i / t.cols) % t.rows) + t.origin[1];
  const col = columnOf(t, i % t.cols);
  return t.planes > 1 || t.planeName ? [plane, row, col] : [row, col];
}

const columnOf = (t, j) => (t.colIndex ? t.colIndex[j] : j + t.origin[2]);

const nameOf = (t, i) => `${t.symbol}[${coordinates(t, i).join(", ")}]`;

const titleOf = (t) => t.title.replace(/\s*\(.*\)$/, "");

function explain(scene, step, name, i) {
  const t = scene.tensors[name];
  const marks = [], parts = [];
  const say = (text, role = "") => parts.push({ text, role });
  const born = bornAt(t, i) <= step;

  say(nameOf(t, i), "head");
  const out = scene.matmuls.find((m) => m.out === t);
  if (out) explainProduct(scene, out, i, born, say, marks);
  else if (isPadding(t, i)) say(" = 0, a zero of the padding, not read from anywhere");
  else say(` = ${number(t.values[i])}`, t.hue);

  if (t.gather && !isPadding(t, i)) {
    const { source, index } = t.gather;
    say(`${born ? ", a copy of " : ", not written yet: will be a copy of "}`);
    say(nameOf(source, index[i]), source.hue);
    marks.push({ name: source.name, cells: [index[i]], as: "write" });
  } else if (!out && !born) say(", not written yet");
  if (!out) say(".");

  for (const gather of scene.gathers) if (gather.source === t) explainCopies(scene, gather, i, step, say, marks);
  for (const m of scene.matmuls) {
    if (m.right === t) explainColumn(m, i, step, say, marks);
    if (m.left === t) explainFactor(m, i, step, say, marks);
  }
  marks.push({ name, cells: [i], as: "write" });
  return { marks, parts };
}

function explainCopies(scene, gather, i, step, say, marks) {
  const { target } = gather;
  const copies = [...copiesOf(gather, i)];
  const done = copies.filter((j) => bornAt(target, j) <= step);
  marks.push({ name: target.name, cells: copies.filter((j) => bornAt(target, j) > step), as: "write", faint: true });
  marks.push({ name: target.name, cells: done, as: "write", each: true });
  const steps = new Set(copies.map((j) => bornAt(target, j)));
  const noun = steps.size === copies.length ? scene.stepName : "cell";
  if (!copies.length) return say(" It is never copied.");
  say(" It stands in ");
  say(`${done.length} of ${plural(copies.length, noun)}`, target.role);
  say(` of ${target.partial ? "the part shown of " : ""}the ${titleOf(target)} so far.`);
}

const column = (m, j) => Array.from({ length: m.right.rows }, (_, k) => k * m.right.cols + j);
const productsOf = (m, j) => Array.from({ length: m.left.rows }, (_, r) => r * m.right.cols + j);

function explainColumn(m, i, step, say, marks) {
  const j = i % m.right.cols, cells = column(m, j), outs = productsOf(m, j);
  markColumn(m, cells, marks);
  marks.push({ name: m.out.name, cells: outs, as: "write", each: true });
  say(` Column ${columnOf(m.right, j)}${m.right.gather ? " is one window; it" : ""} gives `);
  outs.slice(0, 4).forEach((o, n) => {
    if (n) say(", ");
    say(nameOf(m.out, o), m.out.hue);
  });
  say(outs.length > 4 ? ` and ${outs.length - 4} more.` : ".");
}

// A column and the window it was copied from.
function markColumn(m, cells, marks) {
  marks.push({ name: m.right.name, cells, as: "read" });
  const gather = m.right.gather;
  if (gather) marks.push({ name: gather.source.name, cells: [...new Set(cells.map((c) => gather.index[c]).filter((c) => c >= 0))], as: "read" });
}

function explainFactor(m, i, step, say, marks) {
  const k = i % m.left.cols, r = Math.floor(i / m.left.cols), cols = m.right.cols;
  const row = Array.from({ length: cols }, (_, j) => k * cols + j);
  const outs = row.map((_, j) => r * cols + j);
  marks.push({ name: m.right.name, cells: row, as: "read" });
  const done = outs.filter((o) => bornAt(m.out, o) <= step);
  say(` It multiplies all of row ${k + m.right.origin[1]} of the `);
  say(titleOf(m.right), m.right.role);
  say(": one term of ");
  say(plural(cols, titleOf(m.out)), m.out.hue);
  say(`, ${done.length.toLocaleString("en")} so far.`);
}

// out = sum of left x right, with the numbers that stand in the cells.
function explainProduct(scene, m, i, born, say, marks) {
  const cols = m.right.cols, r = Math.floor(i / cols), j = i % cols, inner = m.left.cols;
  const cells = column(m, j);
  marks.push({ name: m.left.name, cells: Array.from({ length: inner }, (_, k) => r * inner + k), as: "read" });
  markColumn(m, cells, marks);
  say(born ? "\n= " : ", not computed yet\n= ");
  let exact = true;
  for (let k = 0; k < inner; k++) {
    const a = m.left.values[r * inner + k], b = m.right.values[cells[k]];
    exact &&= Number.isInteger(a) && Number.isInteger(b);
    if (k >= MOST_TERMS) continue;
    if (k || a < 0) say(a < 0 ? (k ? " − " : "−") : " + ", "op");
    say(number(Math.abs(a)), m.left.hue);
    say("·");
    say(b < 0 ? `(${number(b)})` : number(b), isPadding(m.right, cells[k]) ? "dim" : m.right.hue);
  }
  if (inner > MOST_TERMS) say(` + … ${plural(inner - MOST_TERMS, "more term")}`, "dim");
  if (m.rest) {
    const part = m.right.gather?.source.planeName;
    say(` + ${number(m.rest[i])} from the ${part ? `${part}s` : "terms"} not shown`, "dim");
  }
  say(`\n${exact ? "=" : "≈"} ${number(m.out.values[i])}`, "sum");
}

// The outlines of a step: what it reads in sky blue, what it writes in vermilion.
function stepMarks(scene, step) {
  const marks = [];
  for (const { source, target, index } of scene.gathers) {
    const cells = bornCells(target, step);
    const read = new Set();
    for (const i of cells) if (index[i] >= 0) read.add(index[i]);
    if (read.size) marks.push({ name: source.name, cells: [...read], as: "read" });
  }
  for (const t of Object.values(scene.tensors)) {
    const cells = bornCells(t, step);
    if (cells.length) marks.push({ name: t.name, cells, as: "write" });
  }
  return marks;
}

// With nothing pointed at, the panel follows the first product of the step, else its first written cell.
function focusOf(scene, step) {
  const written = Object.values(scene.tensors).filter((t) => bornCells(t, step).length);
  const t = scene.matmuls.map((m) => m.out).find((o) => written.includes(o)) || written[0];
  return t ? { name: t.name, index: bornCells(t, step)[0] } : null;
}
