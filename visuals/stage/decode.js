// Payload -> scene: typed arrays over one block of bytes, and the indexes that every frame needs.
// Pure. The contract is in visuals/scene/scene.py; a payload that breaks it throws a readable Error.

import { decimal, tr } from "./texts.js";

export const SCENE_VERSION = 3;
export const clamp = (v, low, high) => Math.min(high, Math.max(low, v));
const ARRAYS = { f4: Float32Array, u1: Uint8Array, i1: Int8Array, u2: Uint16Array, i2: Int16Array, i4: Int32Array };

// A message is the lengths of two JSON texts in 4 bytes each, the head, the strip (or null), and the scene's block.
export function unpack(bytes) {
  if (!(bytes instanceof Uint8Array) || bytes.length < 8) throw new Error(tr("the scene came without its bytes"));
  const view = new DataView(bytes.buffer, bytes.byteOffset), length = view.getUint32(0, true), stripLength = view.getUint32(4, true);
  const headEnd = 8 + length, stripEnd = headEnd + stripLength, text = (from, to) => new TextDecoder().decode(bytes.subarray(from, to));
  const headText = text(8, headEnd);
  return { ...JSON.parse(headText), headText, strip: JSON.parse(text(headEnd, stripEnd)), bytes, block: bytes.subarray(stripEnd) };
}

// Whether two messages hold the same scene; their strips may differ.
export const sameScene = (a, b) => a.headText === b.headText && sameBytes(a.block, b.block);

const sameBytes = (a, b) => a.length === b.length && a.every((v, i) => v === b[i]);

export function decodeScene(meta, block) {
  if (!meta || typeof meta !== "object") throw new Error(tr("the scene is missing"));
  if (meta.version !== SCENE_VERSION)
    throw new Error(tr("this player reads scenes of version {own}, this one is version {version}", { own: SCENE_VERSION, version: meta.version }));
  const read = reader(block);
  const tensors = { __proto__: null }; // only names of the scene, none of Object.prototype
  for (const t of meta.tensors)
    tensors[t.name] = { ...t, size: t.planes * t.rows * t.cols, values: read(t.values), colIndex: read(t.colIndex), roles: read(t.roles), hue: t.role, writes: [] };
  const tensor = (name) => {
    if (!tensors[name]) throw new Error(tr("the scene names a tensor {name} that it does not hold", { name }));
    return tensors[name];
  };
  for (const v of meta.views || []) tensor(v.tensor).view = { source: tensor(v.source), index: readIndex(v.index, read) };
  for (const w of meta.writes)
    tensor(w.target).writes.push({ steps: read(w.steps), cells: read(w.cells), values: read(w.values), reshapes: w.reshapes, ...(w.source ? readCopy(tensor(w.source), readIndex(w.index, read)) : { source: null, index: null }) });
  const scene = {
    ...meta, tensors,
    groups: meta.groups.map((g) => ({ ...g, rows: g.rows.map((row) => row.map((name) => name && tensor(name))) })),
    flows: (meta.flows || []).map((f) => ({ ...f, text: read(f.text), active: read(f.active) })),
    reads: meta.reads.map((r) => ({ source: tensor(r.source), start: read(r.start), cells: r.first ? readRectangles(r, tensor(r.source).cols, read) : read(r.cells) })),
    matmuls: meta.matmuls.map((m) => ({ left: tensor(m.left), right: tensor(m.right), out: tensor(m.out), rest: read(m.rest), upto: read(m.upto) })),
    sums: (meta.sums || []).map((s) => ({ ...s, out: tensor(s.out), left: s.left ? tensor(s.left) : null, right: tensor(s.right), start: read(s.start), cells: read(s.cells), factors: read(s.factors) })),
    readings: meta.readings.map((r) => ({ ...r, values: read(r.values) })),
    annotations: (meta.annotations || []).map((a) => ({ tensor: tensor(a.tensor), captions: readCaptions(a.captions, read), links: a.links.map((l) => ({ source: tensor(l.source), cells: read(l.cells) })) })),
    captions: readCaptions(meta.captions, read),
    folds: new Map(meta.folds),
    faults: meta.faults || [], // [step, what is wrong]
    diagram: meta.diagram && { ...meta.diagram, areas: meta.diagram.areas.map((a) => ({ ...a, values: read(a.values) })) },
    lanes: meta.lanes && { warp: read(meta.lanes.warp), mask: read(meta.lanes.mask) },
    sources: meta.source ? [meta.source, ...(meta.nextSources || [])].map((s, n, all) => (s.like === undefined ? s : { ...all[s.like], since: s.since })).map((s) => ({ ...s, lines: read(s.lines), colours: read(s.colours) })) : [],
  };
  for (const t of Object.values(tensors)) resolve(t, scene.steps, []);
  return scene;
}

const readCaptions = (c, read) => ({ ...c, kind: read(c.kind), args: c.args.row ? readOuter(read(c.args.row), read(c.args.col), c.width) : byRow(read(c.args), c.width) });

// Numbers that were sent column by column, `width` to a row: row by row.
const byRow = (numbers, width) => numbers.map((_, n) => numbers[(n % width) * (numbers.length / width) + Math.floor(n / width)]);

// Numbers of cells, `width` each: the row's number plus the column's number.
const readOuter = (row, col, width) => Int32Array.from({ length: (row.length * col.length) / width }, (_, n) =>
  row[Math.floor(n / col.length) * width + (n % width)] + col[n % col.length]);

// Reads an entry {dtype, offset, length} of the block, whatever it is sent as (visuals/scene/payload.py); null for null.
export function reader(block) {
  const buffer = block.slice().buffer; // a copy: the view may start at an odd offset
  const read = (entry) => {
    if (!entry) return null;
    const type = ARRAYS[entry.dtype];
    if (!type) throw new Error(tr("numbers of type {type} are unknown", { type: entry.dtype }));
    const sent = new type(buffer, entry.offset, entry.length);
    if (entry.from !== undefined) return summed(entry.from, entry.runs ? repeated(sent, read(entry.runs)) : sent);
    return entry.index ? Float32Array.from(read(entry.index), (n) => sent[n]) : sent;
  };
  return read;
}

// The numbers that begin with `first`, from the change to each after it.
function summed(first, changes) {
  const all = new Int32Array(changes.length + 1);
  all[0] = first;
  for (let i = 0; i < changes.length; i++) all[i + 1] = all[i] + changes[i];
  return all;
}

function repeated(values, times) {
  const all = new Int32Array(times.reduce((a, b) => a + b, 0));
  for (let i = 0, at = 0; i < values.length; at += times[i++]) all.fill(values[i], at, at + times[i]);
  return all;
}

// A copy from a view is a copy from the view's source; `via` and `viaIndex` are the view and its cells.
function readCopy(source, index) {
  const { view } = source;
  return view ? { source: view.source, index: Int32Array.from(index, (k) => (k < 0 ? k : view.index[k])), via: source, viaIndex: index } : { source, index };
}

// The cells that each step reads, from the first cell and the columns of their rectangle.
function readRectangles(r, width, read) {
  const [start, first, cols] = [r.start, r.first, r.cols].map(read), cells = new Int32Array(start.at(-1));
  for (let step = 0; step < first.length; step++)
    for (let k = start[step], n = 0; k < start[step + 1]; k++, n++) cells[k] = first[step] + Math.floor(n / cols[step]) * width + (n % cols[step]);
  return cells;
}

// A copy's index as it is, or from the sum row[i] + col[j] and the positions of its padding.
function readIndex(entry, read) {
  if (!entry.row) return read(entry);
  const row = read(entry.row), col = read(entry.col);
  const index = new Int32Array(row.length * col.length);
  for (let i = 0, k = 0; i < row.length; i++) for (let j = 0; j < col.length; j++) index[k++] = row[i] + col[j];
  for (const k of read(entry.padding)) index[k] = -1;
  return index;
}

// A tensor's writes become events in order of their steps: cell, value, write, and cell of the source. Sources come
// first, because a copy takes the value that its source has at that step.
const NO_COPY = -2;

function resolve(t, steps, path) {
  if (t.cell) return;
  if (path.includes(t)) throw new Error(tr("{name} is copied from itself", { name: t.name }));
  for (const { source } of t.writes) if (source) resolve(source, steps, [...path, t]);
  if (t.values && t.values.length !== t.size) throw new Error(tr("{name} has {values} values for {cells} cells", { name: t.name, values: t.values.length, cells: t.size }));
  const lengths = t.writes.map((w) => (w.cells ? w.cells.length : t.size));
  const total = lengths.reduce((a, b) => a + b, 0);
  const writeOf = new Int32Array(total), offset = new Int32Array(total); // of each written cell: its write, and its position in that write
  let next = 0;
  t.writes.forEach((w, n) => {
    if ((w.index || w.values || []).length !== lengths[n]) throw new Error(tr("a write into {name} misses cells", { name: t.name }));
    for (let k = 0; k < lengths[n]; k++, next++) [writeOf[next], offset[next]] = [n, k];
  });
  const stepOf = (w, k) => w.steps[k % w.steps.length];
  const { start, items } = group(total, steps, (n) => stepOf(t.writes[writeOf[n]], offset[n]));
  t.write = Array.from(items, (n) => t.writes[writeOf[n]]);
  const column = (array, value) => {
    for (let e = 0; e < total; e++) array[e] = value(t.write[e], offset[items[e]], e);
    return array;
  };
  t.byStep = { start, items: column(new Int32Array(total), (w, k, e) => e) };
  t.step = column(new Int32Array(total), stepOf);
  t.cell = column(new Int32Array(total), (w, k) => (w.cells ? w.cells[k] : k));
  t.from = column(new Int32Array(total), (w, k) => (w.index ? w.index[k] : NO_COPY));
  t.viaCell = column(new Int32Array(total), (w, k) => (w.via ? w.viaIndex[k] : -1));
  t.value = column(new Float32Array(total), (w, k, e) => (w.index ? copied(w.source, w.index[k], t.step[e]) : w.values[k]));
  t.byCell = group(total, t.size, (e) => t.cell[e]);
  t.once = !t.values && t.byCell.start.every((first, i, all) => !i || first - all[i - 1] <= 1); // no cell written again
  t.source = t.writes.length && t.writes.every((w) => w.source === t.writes[0].source) ? t.writes[0].source : null;
  if (t.source) t.hue = t.source.hue; // a copy keeps the hue of what it copies
  t.max = 0;
  for (const array of [t.values || [], t.value]) for (const v of array) if (isFinite(v)) t.max = Math.max(t.max, Math.abs(v));
  if (t.timed || !t.max) t.max = 1;
}

function copied(source, i, step) {
  if (i === -1) return 0; // padding
  if (!(i >= 0 && i < source.size)) throw new Error(tr("an index of the scene leaves its range"));
  if (!isWritten(source, i, step)) throw new Error(tr("a copy reads a cell of {name} that nothing has written yet", { name: source.name }));
  return valueAt(source, i, step);
}

// Members 0..size-1 grouped by keyOf: members of group k are items[start[k]] .. items[start[k + 1] - 1]. Negative
// keys, down to `min`, are in no group.
export function group(size, groups, keyOf, min = 0) {
  const start = new Int32Array(groups + 1);
  for (let i = 0; i < size; i++) {
    const k = keyOf(i);
    if (!(k >= min && k < groups)) throw new Error(tr("an index of the scene leaves its range"));
    if (k >= 0) start[k + 1]++;
  }
  for (let k = 0; k < groups; k++) start[k + 1] += start[k];
  const next = start.slice();
  const items = new Int32Array(start[groups]);
  for (let i = 0; i < size; i++) {
    const k = keyOf(i);
    if (k >= 0) items[next[k]++] = i;
  }
  return { start, items };
}

const members = (grouped, k) => grouped.items.subarray(grouped.start[k], grouped.start[k + 1]);

// The last event that wrote cell i up to `step`; -1 if there is none yet.
export function lastEvent(t, i, step) {
  const { items, start } = t.byCell;
  let low = start[i], high = start[i + 1];
  while (low < high) {
    const mid = (low + high) >> 1;
    if (t.step[items[mid]] <= step) low = mid + 1;
    else high = mid;
  }
  return low > start[i] ? items[low - 1] : -1;
}

// That event or, for a ghost, the first one that will write it; -1 for a cell that is never written.
export function eventOf(t, i, step) {
  const e = lastEvent(t, i, step);
  return e >= 0 || t.values || t.byCell.start[i] === t.byCell.start[i + 1] ? e : t.byCell.items[t.byCell.start[i]];
}

export const isWritten = (t, i, step) => t.values !== null || lastEvent(t, i, step) >= 0;
export const isAir = (t, i) => t.values === null && t.byCell.start[i] === t.byCell.start[i + 1]; // never stored

// A cell's value after `step`; for a ghost, its first value.
export function valueAt(t, i, step) {
  if (t.view) return isPadding(t, i) ? 0 : valueAt(t.view.source, t.view.index[i], step);
  const e = eventOf(t, i, step);
  return e >= 0 ? t.value[e] : t.values ? t.values[i] : 0;
}

export const isPadding = (t, i, step) => cellOf(t, i, step) === -1;

// The cell of its source that cell i copies or shows.
export const cellOf = (t, i, step) => (t.view ? t.view.index[i] : t.from[eventOf(t, i, step)]);

// Events of a step, and the cells they write.
export const eventsAt = (t, step) => (step >= 0 ? members(t.byStep, step) : []);
export const writtenAt = (t, step) => Array.from(eventsAt(t, step), (e) => t.cell[e]);

// Events that copy cell i of `source` into `target`, in order of their steps. Grouped on first use: only hover needs it.
export function copiesOf(target, source, i) {
  target.copies ||= new Map();
  if (!target.copies.has(source))
    target.copies.set(source, group(target.cell.length, source.size, (e) => (target.write[e].source === source ? target.from[e] : NO_COPY), NO_COPY));
  return members(target.copies.get(source), i);
}

// The file that a step shows; undefined if the scene has none.
export const sourceOf = (scene, step) => scene.sources.findLast((s) => s.since <= step);

export const lineOf = ({ lines, since }, step) => lines[lines.length > 1 ? step - since : 0];

// The next step after `step` at which the line of its file is lit, continuing from the start; -1 if it is never lit.
export function nextOfLine(scene, line, step) {
  const source = sourceOf(scene, step);
  for (let n = 1; n <= scene.steps; n++) {
    const next = (step + n) % scene.steps;
    if (sourceOf(scene, next) === source && lineOf(source, next) === line) return next;
  }
  return -1;
}

// To four digits, or to all before the point.
const plain = new Intl.NumberFormat("en", { maximumSignificantDigits: 4, maximumFractionDigits: 0, roundingPriority: "morePrecision", useGrouping: false, roundingMode: "halfEven" });
// The nearest whole number, of two the even one: opposite numbers stay opposite. No negative zero.
export function whole(v) {
  const size = Math.abs(v), near = Math.round(size);
  return Math.sign(v) * (near - (near - size === 0.5 && near % 2)) + 0;
}
export const minus = (v) => String(v).replace("-", "−").replace("Infinity", "∞").replace("e+", "·10^");
const captionNumber = (v) => minus(Math.abs(v) >= 1e15 ? decimal(v.toExponential(3)) : Number.isInteger(v) ? BigInt(v) : decimal(plain.format(v)));

// The caption of a step (or of a cell) as parts {text, role}; role is "" for text without a role.
export const captionOf = (scene, step) => fillTemplate(scene.captions, step);

export function fillTemplate({ templates, kind, args, width }, step) {
  const text = templates[kind[step]].replace(/\{\{|\}\}|\{(\d+)\}/g, (mark, n) =>
    n === undefined ? mark[0] : captionNumber(args[step * width + +n]));
  const parts = [];
  let from = 0;
  for (const m of text.matchAll(/\[([^\]]*)\]\((\w+)\)/g)) {
    if (m.index > from) parts.push({ text: text.slice(from, m.index), role: "" });
    parts.push({ text: m[1], role: m[2] });
    from = m.index + m[0].length;
  }
  if (from < text.length) parts.push({ text: text.slice(from), role: "" });
  return parts;
}
