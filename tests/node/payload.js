// Scenes of tests, packed as by visuals/scene/payload.py: from plain arrays to {meta, block}.
const TYPES = { f4: Float32Array, u1: Uint8Array, i1: Int8Array, u2: Uint16Array, i2: Int16Array, i4: Int32Array };

class Block {
  bytes = [];

  put(array, dtype = "i4") {
    if (array == null) return null;
    while (this.bytes.length % 4) this.bytes.push(0);
    const entry = { dtype, offset: this.bytes.length, length: array.length };
    for (const byte of new Uint8Array(TYPES[dtype].from(array).buffer)) this.bytes.push(byte);
    return entry;
  }
}

// Rows of `width` numbers, column by column.
const byColumn = (numbers, width) => Array.from({ length: width }, (_, col) => numbers.filter((_, n) => n % width === col)).flat();

// Fields that are left out have defaults. Tensors {name, values?, planes, rows, cols}, writes {target, steps,
// values? | source + index?, cells?}; an index {row, col, padding} is sent as that sum.
export function pack(scene) {
  const block = new Block(), put = (array, dtype) => block.put(array, dtype);
  const index = (entry) => (entry?.row ? Object.fromEntries(Object.entries(entry).map(([name, array]) => [name, put(array, "i2")])) : put(entry));
  const { captions = {}, source, nextSources = [], lanes, ...rest } = scene, steps = rest.steps ?? 1;
  const file = (s) => ({ file: "", text: "", detail: "", first: 1, since: 0, notes: {}, ...s, lines: put(s.lines), colours: put(s.colours || [], "u1") });
  const meta = {
    version: 3, key: "k", title: "hand-made", stepName: "step", orderName: "", orderNote: "", ...rest, steps,
    groups: rest.groups || [{ rows: [rest.tensors.map((t) => t.name)], memorySpace: "global", title: "" }],
    tensors: rest.tensors.map((t) => ({
      symbol: t.name, title: "", role: "input", planes: 1, rows: 1, cols: 1, origin: [0, 0, 0], note: "", planeName: "",
      pad: [0, 0, 0, 0], partial: false, ...t, colIndex: put(t.colIndex), values: put(t.values, "f4"), roles: put(t.roles, "u1"),
    })),
    writes: (rest.writes || []).map((w) => ({
      target: w.target, source: w.source || "", steps: put(w.steps, "u2"), cells: put(w.cells), values: put(w.values, "f4"), index: index(w.index), reshapes: w.reshapes || false,
    })),
    views: (rest.views || []).map((v) => ({ ...v, index: index(v.index) })),
    annotations: (rest.annotations || []).map((a) => ({
      tensor: a.tensor, links: (a.links || []).map((l) => ({ ...l, cells: put(l.cells) })),
      captions: { ...a.captions, kind: put(a.captions.kind, "u1"), args: a.captions.args.row ? { row: put(a.captions.args.row), col: put(a.captions.args.col) } : put(byColumn(a.captions.args, a.captions.width)) },
    })),
    reads: (rest.reads || []).map((r) => ({ source: r.source, start: put(r.start), ...(r.first ? { first: put(r.first), cols: put(r.cols) } : { cells: put(r.cells, "u1") }) })),
    flows: (rest.flows || []).map((f) => ({ ...f, text: put(f.text, "u1"), active: put(f.active, "u1") })),
    matmuls: (rest.matmuls || []).map((m) => ({ ...m, rest: put(m.rest, "f4"), upto: put(m.upto, "u1") })),
    readings: (rest.readings || []).map((r) => ({ kind: "", role: "", ...r, values: put(r.values, "f4") })),
    captions: {
      templates: captions.templates || ["Step."], width: captions.width ?? 1,
      kind: put(captions.kind || Array(steps).fill(0), "u1"), args: put(captions.args ? byColumn(captions.args, captions.width ?? 1) : Array(steps).fill(0), captions.dtype || "f4"),
    },
    source: source ? file(source) : null, nextSources: nextSources.map(file),
    lanes: lanes ? { warp: put(lanes.warp, "i2"), mask: put(lanes.mask) } : null,
  };
  return { meta, block: Uint8Array.from(block.bytes) };
}

// A message as the player receives it: the length of the head, the head, the block.
export function message(scene, head = {}, strip = null) {
  const { meta, block } = pack(scene), encode = (part) => new TextEncoder().encode(JSON.stringify(part));
  const text = encode({ meta, ...head }), stripText = encode(strip);
  const bytes = new Uint8Array(8 + text.length + stripText.length + block.length), view = new DataView(bytes.buffer);
  view.setUint32(0, text.length, true);
  view.setUint32(4, stripText.length, true);
  bytes.set(text, 8);
  bytes.set(stripText, 8 + text.length);
  bytes.set(block, 8 + text.length + stripText.length);
  return bytes;
}
