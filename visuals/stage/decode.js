// Payload -> scene: typed arrays over one block of bytes, and the indexes every frame needs.
// Pure. The contract is visuals/scene.py; a payload that breaks it throws a readable Error.

const SCENE_VERSION = 1;
const ARRAYS = { f4: Float32Array, u1: Uint8Array, u2: Uint16Array, i2: Int16Array, i4: Int32Array };

// A message is the length of a JSON head in 4 bytes, the head, and the scene's block.
function unpack(bytes) {
  if (!(bytes instanceof Uint8Array) || bytes.length < 4) throw new Error("the scene came without its bytes");
  const length = new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length)));
  return { ...head, bytes, block: bytes.subarray(4 + length) };
}

const sameBytes = (a, b) => a.length === b.length && a.every((v, i) => v === b[i]);

function decodeScene(meta, block) {
  if (!meta || typeof meta !== "object") throw new Error("the scene is missing");
  if (meta.version !== SCENE_VERSION)
    throw new Error(`this player reads scenes of version ${SCENE_VERSION}, this one is version ${meta.version}`);
  const buffer = block.slice().buffer; // a copy: the view may start at an odd offset
  const read = (entry) => {
    if (!entry) return null;
    const type = ARRAYS[entry.dtype];
    if (!type) throw new Error(`numbers of type ${entry.dtype} are unknown`);
    return new type(buffer, entry.offset, entry.length);
  };

  const tensors = {};
  for (const t of meta.tensors) {
    const size = t.planes * t.rows * t.cols;
    tensors[t.name] = {
      ...t, size, values: read(t.values), hue: t.role, born: read(meta.born[t.name]),
      colIndex: read(t.colIndex), pad: t.pad || [0, 0, 0, 0], gather: null, max: 1, byStep: null,
    };
  }
  const tensor = (name) => {
    if (!tensors[name]) throw new Error(`the scene names a tensor ${name} that it does not hold`);
    return tensors[name];
  };
  const gathers = meta.gathers.map((g) => {
    const gather = { source: tensor(g.source), target: tensor(g.target), index: readIndex(g.index, read), copies: null };
    if (gather.index.length !== gather.target.size) throw new Error(`the gather into ${g.target} misses cells`);
    gather.target.gather = gather;
    return gather;
  });
  for (const t of Object.values(tensors)) fillFromSource(t, 0);
  for (const t of Object.values(tensors)) {
    if (t.values.length !== t.size) throw new Error(`${t.name} has ${t.values.length} values for ${t.size} cells`);
    t.max = t.values.reduce((most, v) => Math.max(most, Math.abs(v)), 0) || 1;
    if (t.born) t.byStep = group(t.size, meta.steps, (i) => t.born[i % t.born.length]);
  }
  return {
    key: meta.key, title: meta.title, steps: meta.steps, stepName: meta.stepName,
    orderName: meta.orderName, orderNote: meta.orderNote,
    rows: meta.rows.map((row) => row.map(tensor)), tensors, gathers,
    matmuls: meta.matmuls.map((m) => ({
      left: tensor(m.left), right: tensor(m.right), out: tensor(m.out), rest: read(m.rest),
    })),
    captions: {
      templates: meta.captions.templates, width: meta.captions.width,
      kind: read(meta.captions.kind), args: read(meta.captions.args),
    },
    lanes: meta.lanes && { warp: read(meta.lanes.warp), mask: read(meta.lanes.mask) },
    source: meta.source && { ...meta.source, lines: read(meta.source.lines) },
  };
}

// A gather's index as it is, or as the sum row[i] + col[j] with the places of its padding.
function readIndex(entry, read) {
  if (!entry.row) return read(entry);
  const row = read(entry.row), col = read(entry.col);
  const index = Int32Array.from({ length: row.length * col.length }, (_, k) => row[Math.floor(k / col.length)] + col[k % col.length]);
  for (const k of read(entry.padding)) index[k] = -1;
  return index;
}

// A tensor without values is a copy along its gather, and wears the hue of what it copies.
function fillFromSource(t, depth) {
  if (t.values) return;
  if (!t.gather || depth > 8) throw new Error(`${t.name} has neither values nor a gather that fills it`);
  const { source, index } = t.gather;
  fillFromSource(source, depth + 1);
  t.hue = source.hue;
  t.values = Float32Array.from(index, (i) => (i < 0 ? 0 : source.values[i]));
}

// Members 0..size-1 grouped by keyOf: members of group k are items[start[k]] .. items[start[k + 1] - 1].
function group(size, groups, keyOf) {
  const start = new Int32Array(groups + 1);
  for (let i = 0; i < size; i++) {
    const k = keyOf(i);
    if (k >= groups) throw new Error("an index of the scene leaves its range");
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

const bornAt = (t, i) => (t.born ? t.born[i % t.born.length] : -1);

const bornCells = (t, step) => (t.byStep && step >= 0 ? members(t.byStep, step) : []);

// Target cells that copy source cell i. Grouped on first use: only a hover asks.
function copiesOf(gather, i) {
  gather.copies ||= group(gather.target.size, gather.source.size, (j) => gather.index[j]);
  return members(gather.copies, i);
}

const isPadding = (t, i) => t.gather !== null && t.gather.index[i] < 0;

const lineOf = (source, step) => source.lines[source.lines.length > 1 ? step : 0];

// The caption of a step as parts {text, role}; role is "" for plain words.
function captionOf(scene, step) {
  const { templates, kind, args, width } = scene.captions;
  const row = args.subarray(step * width, (step + 1) * width);
  const filled = templates[kind[step]].replace(/\{\{|\}\}|\{(\d+)\}/g, (mark, n) =>
    n === undefined ? mark[0] : String(row[n]));
  const parts = [];
  let from = 0;
  for (const m of filled.matchAll(/\[([^\]]*)\]\((\w+)\)/g)) {
    if (m.index > from) parts.push({ text: filled.slice(from, m.index), role: "" });
    parts.push({ text: m[1], role: m[2] });
    from = m.index + m[0].length;
  }
  if (from < filled.length) parts.push({ text: filled.slice(from), role: "" });
  return parts;
}
