// The position of every cell. Pure: (scene, width, height, measure) -> layout; draw.js and the tests read it.
//
// A tensor's planes are tiles in a grid. A wide matrix is folded into tiles with bands of its columns, a tall one into
// tiles with parts of its rows. Tensors are in rows, rows in groups, groups in lines, lines in columns. Cells are as
// large as width and height allow, smallest first: nothing is hidden, and no tensor is large while another is
// needlessly small. A local search changes one fold, row break or group position at a time, and keeps the best.
// Titles of many rows of steps are above or left of them. Their cells may be wider than high, up to MAX_STRETCH.

import { boxAt, layOutDiagram, viewDiagram } from "./diagram.js";

export const MAX_CELL = 28, NUMBERS_FROM = 13, HEAD_LINE = 18, ARROW = 16;
const MIN_CELL = 2, READABLE_CELL = 18, ALIGNED_CELL = 20, MIN_GOAL = 16, MIN_REST = 4, ROW_BREAK = 0.5, MAX_STRETCH = 2, NARROW = 560;
const HEAD = 25, GROUND_TITLE = 23, GROUND_PAD = 10, GAP = 12, BAND_GAP = 6;
// What begins with a tensor: nothing, a row, a group beside the one before it, a line of groups, a column of lines.
// COSTS are penalties for breaking a row and for changing the order of reading.
const NOTHING = 0, ROW = 1, GROUP = 2, LINE = 3, COLUMN = 4, COSTS = [0, 0.6, 0, 0, 0.8];

// `measure(text, bold)` is the drawn width of a title (bold) or a note; `scale` enlarges everything. The cells of the
// tensors named in `readable` become large enough for their numbers before any other cell grows.
export function layOut(scene, width, height, measure, scale = 1, readable = []) {
  if (scene.diagram) return layOutDiagram(scene, width, height, measure, scale);
  const { groups: [{ rows }, other] } = scene, lanes = !other && rows.length > 4 && rows.flat().every((t) => t?.timed);
  const found = [false, ...(lanes && width >= NARROW ? [true] : [])].map((left) => search(scene, width, height, measure, scale, readable, lanes, left));
  return found.sort((a, b) => b.score - a.score)[0].layout;
}

// The best layout and its score. `lanes`: columns are steps. `left`: titles are left of their rows.
function search(scene, width, height, measure, scale, readable, lanes, left) {
  const margin = (width < 640 ? 14 : 24) * scale, gap = GAP * scale, pad = GROUND_PAD * scale;
  const plan = { scale, gap, pad, readable, lanes, left, sideGap: margin + pad, width: width - 2 * margin, height: height - 2 * gap, scores: new Map() };
  const boxes = plan.boxes = boxesOf(scene, measure, plan);
  plan.byTensor = [...new Set(Object.values(scene.tensors).flatMap((t) => boxes.filter((b) => b.t === t || b.table?.flat().some((m) => m?.t === t))))]; // in this order they take the space that is left
  let best = -Infinity, layout, fits;
  // Several starts of the search: in each, one group is not below the group before it. If no result fits, the search
  // starts again from tensors with the most folds.
  for (const fold of [0, -1, 1]) for (const b of fits ? [] : boxes)
    for (const begins of b.options.begins) {
      if (begins !== GROUP && begins !== COLUMN) continue;
      for (const box of boxes) for (const key in box.options) box[key] = box.options[key].at(key === "way" && (fold < 1 || box.t?.planes < 2) ? fold : 0) || box.options[key][0];
      b.begins = begins;
      const score = improve(plan), { page } = plan;
      if (score <= best) continue;
      best = score;
      fits = page.w <= plan.width && page.h <= plan.height && boxes.every((b) => !b.goal || b.cell >= MIN_GOAL);
      if (!fits) grow({ ...plan, width: Math.max(page.w, plan.width), height: Math.max(page.h, plan.height) }); // other tensors may use the width and height that the page takes anyway
      layout = { width, height: page.h + 2 * gap, blocks: {}, grounds: [], fits: fits && (!readable.length || boxes.every((b) => b.cell >= MIN_REST)) };
      placePart(page, margin, gap, plan.width, page.h, plan, layout);
    }
  return { layout, score: best };
}

function boxesOf(scene, measure, plan) {
  const boxes = [], { scale, pad, gap, left } = plan;
  // The size that a box's cells get before others grow; 0: none.
  const goalOf = (tensors, aligned) => Math.ceil((aligned ? ALIGNED_CELL : tensors.some((t) => plan.readable.includes(t?.name)) ? READABLE_CELL : 0) * Math.max(1, scale));
  for (const [group, { title, memorySpace, rows, aligned, table, column = true }] of scene.groups.entries()) {
    // Labels of arrows are above the later of the two groups; both have a frame.
    const flows = (scene.flows || []).filter((f) => Math.max(f.source, f.target) === group), joined = (scene.flows || []).some((f) => f.source === group || f.target === group);
    const bottom = memorySpace === "global" && !joined ? 0 : pad, before = boxes.at(-1)?.frame;
    const labels = flows.length ? flows.length * ARROW * scale + Math.max(...flows.flatMap((f) => f.texts.map((text) => measure(text)))) : 0;
    const frame = { group, title, bottom, above: flows.length * HEAD_LINE * scale, top: title ? GROUND_TITLE * scale : bottom, minWidth: Math.max(labels, measure(title)), joined, ground: memorySpace === "global" ? "panel" : `${memorySpace}-ground` };
    const first = !before ? [COLUMN] : before.bottom ? [LINE, GROUP, COLUMN] : [LINE, COLUMN];
    if (!column) first.pop();
    if (table) {
      const box = { table: rows.map((row) => row.map((t) => t && { t, ...headsOf(t, measure, scale) })), frame, options: { way: [{ cost: 0 }], begins: first }, heads: [0, 1, 2], gap, goal: goalOf(rows.flat()) };
      boxes.push(Object.assign(box, { mates: [box] }));
    } else for (const row of rows) {
      const mates = []; // the boxes of an aligned row: one line, one size of cells
      for (const t of row) {
        const begins = t !== row[0] ? (aligned ? [NOTHING] : [NOTHING, ROW]) : row !== rows[0] ? [ROW] : first;
        const ways = waysOf(scene, t, measure, plan), box = { t, frame, options: { way: aligned ? ways.slice(0, 1) : ways, begins }, ...(left ? leftHeadOf : headsOf)(t, measure, scale), goal: goalOf([t], aligned && row[1]) };
        box.mates = aligned ? mates : [box];
        if (aligned) mates.push(box);
        boxes.push(box);
      }
    }
  }
  // All rows of a timeline begin at one left edge.
  const label = left && Math.max(...boxes.map((b) => b.heads[0].leftWidth)) + gap;
  if (left) for (const b of boxes) for (const way of b.options.way) way.label = label;
  return boxes;
}

// A table is one box: its rows begin at one top, its columns at one left edge, and its cells have one size. A head of
// the box is how far the heads of all its tensors are folded. Sets the size of the box, `top`: the height of its first
// heads, and each tensor's dx, dy and head, where dy is counted from under those first heads.
function sizeTable(box) {
  const { table, cell, gap } = box, widths = table[0].map(() => 0);
  let y = 0;
  table.forEach((row, i) => {
    let top = 0, height = 0;
    for (const m of row)
      if (m) {
        const { t, heads } = m, { headWidth, headHeight } = (m.head = heads[Math.min(box.head, heads.length - 1)]), j = row.indexOf(m);
        widths[j] = Math.max(widths[j], t.cols * cell, headWidth);
        top = Math.max(top, headHeight);
        height = Math.max(height, t.rows * cell);
      }
    if (i) y += gap + top;
    else box.top = top;
    for (const m of row) if (m) [m.dy, m.top] = [y, top];
    y += height;
  });
  let x = -gap;
  widths.forEach((width, j) => {
    for (const row of table) if (row[j]) row[j].dx = x + gap;
    x += gap + width;
  });
  [box.w, box.h] = [x, y];
}

// Ways to arrange a tensor's tiles: its planes; or a matrix as one tile, in bands of columns or in parts of its rows. The
// bands of a single row have labels with their columns.
function waysOf(scene, t, measure, { scale, width }) {
  const rows = t.pad[0] + t.rows + t.pad[2], cols = t.pad[1] + t.cols + t.pad[3], ways = [];
  const gap = (t.planes > 1 ? GAP : BAND_GAP) * scale, narrow = width < NARROW;
  const fold = scene.matmuls.some(({ out, right }) => cols <= 96 && out === t && right.cols === cols) ? 0.9 : 0.06; // the columns of a product stay under those of its right factor
  const add = (across, down, tileRows, tileCols) => {
    const labels = t.rows * t.planes > 1 || down < 2 ? [] : Array.from({ length: down }, (_, n) => rangeOf(t, n * tileCols, tileCols, narrow));
    const label = labels.length && Math.max(...labels.map((text) => measure(text))) + gap;
    ways.push({ across, down, tileRows, tileCols, gap, labels, label, cost: fold * across * down + (label && ROW_BREAK) });
  };
  for (let down = 1; down <= t.planes; down++) {
    const across = Math.ceil(t.planes / down);
    if (across !== ways.at(-1)?.across) add(across, down, rows, cols);
  }
  if (t.planes > 1 || t.timed || t.pad.some(Boolean)) return ways; // a picture, or a row of steps
  // Bands end between rows of a product's output; else they are even, unless there are more than 96 columns. They are
  // wider than 4, or twice as wide as high.
  const product = scene.matmuls.find((m) => m.right === t), { out } = product || {};
  const unit = out ? (Object.values(scene.tensors).find((o) => o.source === out) || out).cols : 1; // of the planes that the output is read as
  for (let n = 2; n <= 24; n++) {
    const band = Math.ceil(cols / n / unit) * unit, even = product || cols % n === 0 || cols > 96;
    if (cols > rows && even && band > (rows === 2 ? 3 : 4) && band < ways.at(-1).tileCols) add(1, Math.ceil(cols / band), rows, band);
    if (rows > cols && rows > 24 && rows % n === 0) add(n, 1, rows / n, cols);
  }
  return ways;
}

// The columns of a band, as its label shows them: "20–39", in a narrow window "20".
export function rangeOf({ cols, origin }, first, count, narrow) {
  const at = origin?.[2] || 0;
  return narrow ? `${at + first}` : `${at + first}–${at + Math.min(first + count, cols) - 1}`;
}

// A note in lines, wrapped at words.
function wrapped(note, measure, width) {
  const lines = [];
  for (const word of note.split(/(?<!×) (?!×)/)) {
    const longer = `${lines.at(-1)} ${word}`;
    if (lines.length && measure(longer) <= width) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  return lines;
}

// Title and note left of a tensor.
function leftHeadOf(t, measure, scale) {
  const titleWidth = measure(t.title, true), below = t.note ? wrapped(t.note, measure, 130 * scale) : [];
  return { titleWidth, heads: [{ below, beside: "", headHeight: 0, headWidth: 0, leftHeight: HEAD_LINE * (1 + below.length) * scale, leftWidth: Math.max(titleWidth, ...below.map((line) => measure(line))) }] };
}

// Ways to write title and note, lowest first: the note beside the title, under it, wrapped at words.
function headsOf(t, measure, scale) {
  const titleWidth = measure(t.title, true), lines = wrapped(t.note, measure, 130 * scale);
  const heads = (t.note ? [[], [t.note], lines] : [[]]).map((below) => ({
    below, beside: below.length ? "" : t.note, headHeight: (HEAD + HEAD_LINE * below.length) * scale,
    headWidth: below.length ? Math.max(titleWidth, ...below.map((line) => measure(line))) : titleWidth + 8 * scale + measure(t.note),
  }));
  return { titleWidth, heads };
}

// -- the search ----------------------------------------------------------------------------------------------
// Changes one option at a time while that improves the score.
function improve(plan) {
  let best = scoreOf(plan), before;
  do {
    before = best;
    for (const b of plan.boxes)
      for (const key in b.options)
        for (const option of b.options[key]) {
          const old = b[key];
          b[key] = option;
          const score = option === old ? best : knownScore(plan);
          if (score > best) best = score;
          else b[key] = old;
        }
  } while (best > before);
  return scoreOf(plan);
}

// The score of the present options. The search comes back to the same ones in each pass and from each start.
function knownScore(plan) {
  const { boxes, scores } = plan, key = boxes.map((b) => `${b.options.way.indexOf(b.way)} ${b.begins}`).join();
  if (!scores.has(key)) scores.set(key, scoreOf(plan));
  return scores.get(key);
}

// High for large cells, readable numbers, few folds and few unusual positions; lower if the page does not fit.
function scoreOf(plan) {
  const { boxes, width, height, scale } = plan, page = plan.page = partOf(boxes, COLUMN, plan);
  let score = 4 * Math.log(grow(plan)) - 0.2 * Math.max(0, page.w - width, (page.h - height) / 10);
  for (const b of boxes) score += (b.table ? 3 : 1) * (Math.log(b.cell) + (b.cell >= NUMBERS_FROM * scale ? 0.4 : 0)) - b.way.cost - COSTS[b.begins]
    + (b.goal ? 8 * Math.log(Math.min(1, b.cell / b.goal)) - (b.cell < MIN_GOAL ? 4 : 0) : 0);
  return score;
}

// Makes cells as large as possible: those with a goal until they reach it, then all, then those with space left; in
// between, heads as low as possible. A small tensor beside one without space becomes only a little larger, or just readable.
function grow({ page, boxes, byTensor, width, height, scale }) {
  const fits = () => (size(page), page.w <= width && page.h <= height);
  let growing = byTensor.filter((b) => b === b.mates[0]), low = MIN_CELL, max = Math.floor(MAX_CELL * scale), first = 0;
  const set = (cell, some = growing) => { for (const { mates } of some) for (const b of mates) b.cell = Math.max(cell, Math.min(first, b.goal)); };
  const growAll = () => {
    for (set(low + 1); low < max && fits(); set(low + 1)) low++;
    set(low);
  };
  const goal = Math.max(...boxes.map((b) => b.goal)), growFirst = () => {
    if (!goal) return;
    const before = first;
    low = MIN_CELL;
    first = goal;
    set(low);
    if (fits()) return;
    for (first = before + 1, set(low); first < goal && fits(); set(low)) first++;
    first--;
  };
  for (const b of boxes) b.head = b.heads.at(-1);
  growFirst();
  growAll();
  for (const b of boxes) b.heads.some((head) => ((b.head = head), fits()));
  growFirst();
  growAll();
  const min = low;
  max = Math.min(max, Math.ceil(Math.max(READABLE_CELL * scale, 1.2 * min)));
  for (; growing.length && low < max; growAll()) {
    growing = growing.filter((b) => !b.t?.timed && ((set(low + 1, [b]), fits()) || set(low, [b]))); // columns of a timeline stay below each other
    low++;
  }
  size(page);
  return min;
}

// -- the page as nested parts: columns side by side, lines in them down, groups side by side, rows of boxes down ---
const NO_FRAME = { above: 0, top: 0, bottom: 0, minWidth: 0 };

function partOf(boxes, level, plan) {
  const across = level % 2 === 0, runs = [], aligned = !level && boxes[0].mates[1];
  boxes.forEach((b, n) => (n && b.begins < level ? runs.at(-1).push(b) : runs.push([b])));
  return {
    members: level ? runs.map((run) => partOf(run, level - 1, plan)) : boxes,
    across, aligned, gap: across && !aligned ? plan.sideGap : plan.gap / (plan.left ? 2 : 1), frame: level === ROW ? boxes[0].frame : NO_FRAME,
  };
}

// Sets width and height of a part and of everything in it. The grids of a row begin under the tallest of its heads.
function size(part) {
  const { members, across, gap, frame } = part;
  let along = -gap, max = 0, heads = 0;
  for (const m of members) {
    if (m.table) {
      sizeTable(m);
      heads = Math.max(heads, m.top);
    } else if (m.t) {
      const { way, cell, head } = m;
      m.gridWidth = way.across * (way.tileCols * cell + way.gap) - way.gap;
      m.w = way.label + Math.max(m.gridWidth, head.headWidth);
      m.gridHeight = way.down * (way.tileRows * cell + way.gap) - way.gap;
      m.h = Math.max(m.gridHeight, head.leftHeight || 0);
      heads = Math.max(heads, head.headHeight);
    } else size(m);
    along += gap + (across ? m.w : m.h);
    max = Math.max(max, across ? m.h : m.w);
  }
  part.heads = heads;
  part.w = Math.max(frame.minWidth, across ? along : max);
  part.h = frame.above + frame.top + heads + (across ? max : along) + frame.bottom;
}

// Places a part at x, y in w x h: tensors of a row move apart, other parts widen to the edge.
function placePart(part, x, y, w, h, plan, layout) {
  const { members, across, aligned, gap, frame, heads } = part, { pad, scale } = plan, slack = across ? Math.max(0, w - part.w) : 0;
  y += frame.above;
  if (frame.top) layout.grounds.push({ ...frame, x: x - pad, y, w: w + 2 * pad, h: h - frame.above, titleY: y });
  y += frame.top + heads;
  for (const m of members)
    if (m.table) {
      for (const row of m.table)
        for (const b of row)
          if (b) {
            const { t, dx, dy, top } = b, way = { across: 1, down: 1, tileRows: t.rows, tileCols: t.cols };
            layout.blocks[t.name] = { ...b, ...b.head, way, cell: m.cell, ground: m.frame.ground, gap: 0, x: x + dx, y: y + dy, headY: y + dy - top, w: t.cols * m.cell, h: t.rows * m.cell };
          }
    } else if (m.t) {
      const { leftHeight } = m.head;
      const wide = plan.lanes && members.length < 2 ? Math.floor((plan.width - m.way.label) / m.way.tileCols) : 0;
      const stretch = Math.max(1, Math.min(wide / m.cell, MAX_STRETCH));
      layout.blocks[m.t.name] = { ...m, ...m.head, ground: m.frame.ground, gap: m.way.gap, x: x + m.way.label, y: leftHeight ? Math.round(y + (m.h - m.gridHeight) / 2) : y, headY: leftHeight ? y + (m.h - leftHeight) / 2 : y - heads, w: m.gridWidth * stretch, h: m.gridHeight, stretch };
      x += m.w + gap + Math.floor(Math.min((aligned ? 24 : 150) * scale, slack / (members.length - 1)));
    } else {
      const wide = across ? m.w + Math.floor(slack / members.length) : w;
      placePart(m, x, y, wide, across ? h : m.h + (m === members.at(-1) ? h - part.h : 0), plan, layout);
      if (across) x += wide + gap;
      else y += m.h + gap;
    }
}

// The layout under a view: everything moved and enlarged except text, so that a title stays right above its grid.
export function withView(layout, { scale, x, y }) {
  if (scale === 1 && !x && !y) return layout;
  if (layout.diagram) return { ...layout, diagram: viewDiagram(layout.diagram, { scale, x, y }) };
  const moved = (r, lengths, head) => {
    const at = { ...r, x: (r.x - x) * scale, y: (r.y - y) * scale };
    for (const key of lengths) at[key] *= scale;
    at[head] += at.y - r.y;
    return at;
  };
  const blocks = {};
  for (const name in layout.blocks) blocks[name] = moved(layout.blocks[name], ["w", "h", "cell", "gap"], "headY");
  return { ...layout, keyed: false, blocks, grounds: layout.grounds.map((g) => moved(g, ["w", "h"], "titleY")) };
}

// -- cells -------------------------------------------------------------------------------------------------
// Tile, row and column of a cell in its block, including the padding ring.
export function cellPosition({ t, way }, i) {
  const row = t.pad[0] + (Math.floor(i / t.cols) % t.rows), col = t.pad[1] + (i % t.cols);
  const tile = Math.floor(i / (t.rows * t.cols)) + Math.floor(row / way.tileRows) + Math.floor(col / way.tileCols); // at most one of these terms is not 0
  return { tile, row: row % way.tileRows, col: col % way.tileCols };
}

// The inverse: the cell at a tile, row and column; null if it is padding, empty or outside the tile.
export function cellAt({ t, way: { across, tileRows, tileCols } }, tile, row, col) {
  const [plane, band] = t.planes > 1 ? [tile, 0] : [0, tile];
  const r = row - t.pad[0] + (band % across) * tileRows, c = col - t.pad[1] + Math.floor(band / across) * tileCols;
  if (row < 0 || col < 0 || row >= tileRows || col >= tileCols) return null;
  return r < 0 || c < 0 || r >= t.rows || c >= t.cols || plane >= t.planes ? null : (plane * t.rows + r) * t.cols + c;
}

// The width of a cell; `cell` is its height.
export const wideOf = ({ cell, stretch = 1 }) => cell * stretch;

export function tileXY(block, tile) {
  const { x, y, way, cell, gap } = block;
  return {
    x: x + (tile % way.across) * (way.tileCols * wideOf(block) + gap),
    y: y + Math.floor(tile / way.across) * (way.tileRows * cell + gap),
  };
}

export function cellXY(block, i) {
  const { tile, row, col } = cellPosition(block, i), at = tileXY(block, tile);
  return { x: at.x + col * wideOf(block), y: at.y + row * block.cell };
}

// The cell under a point of the canvas, or null.
export function hitTest(layout, x, y) {
  if (layout.diagram) return boxAt(layout.diagram, x, y);
  for (const block of Object.values(layout.blocks)) {
    const { t, way, cell } = block;
    for (let tile = 0; tile < way.across * way.down; tile++) {
      const at = tileXY(block, tile), col = Math.floor((x - at.x) / wideOf(block)), row = Math.floor((y - at.y) / cell);
      const index = cellAt(block, tile, row, col);
      if (index !== null) return { name: t.name, index };
    }
  }
  return null;
}
