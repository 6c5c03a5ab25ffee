// Where every cell stands. Pure: (scene, width, height, measure) -> layout; draw.js and the tests read it.
//
// A tensor's planes are tiles in a grid; a wide matrix is folded into tiles that hold bands of its columns.
// Cell sizes grow one pixel at a time, the smallest first, while lines fit the width and all lines the height,
// so nothing is hidden and no tensor is large while another is needlessly small.

const CELL_MOST = 28, CELL_LEAST = 2, NUMBERS_FROM = 15;
const MARGIN = 24, HEAD = 25, HEAD_LINE = 18, LINE_GAP = 12, SIDE_GAP = 44, GROUND_PAD = 10;
const TILE_GAP = 12, BAND_GAP = 6;

function layOut(scene, width, height, measure) {
  const margin = width < 600 ? 14 : MARGIN;
  const room = { inner: width - 2 * margin, height, gap: width < 600 ? 18 : 32, narrow: width < 600 };
  let best = null;
  for (const split of splits(scene.rows, room.narrow)) {
    const lines = split.map(({ row, side }) => ({ side, boxes: row.map((t) => box(scene, t, measure, room)) }));
    const found = arrange(lines, room);
    if (!best || found.score > best.score) best = found;
  }
  return place(best.lines, width, margin, room);
}

// Ways to stand the rows: under each other, each whole or broken where the screen is narrow; or, on a wide
// screen, workspace rows (side 1) beside the others (side 0), which suits a matrix taller than wide.
function splits(rows, narrow) {
  const broken = (row) => {
    const ways = [[row]];
    for (let cut = 1; cut < row.length; cut++) ways.push([row.slice(0, cut), row.slice(cut)]);
    return row.length > 2 ? [...ways, row.map((t) => [t])] : ways;
  };
  const all = (waysOf, sideOf) => rows.reduce(
    (done, row) => done.flatMap((lines) => waysOf(row).map((way) => [...lines, ...way.map((part) => ({ row: part, side: sideOf(row) }))])), [[]]);
  if (narrow) return all(broken, () => 0);
  const works = (row) => (row.some((t) => t.workspace) ? 1 : 0);
  const mixed = rows.some(works) && !rows.every(works);
  return [...all((row) => [[row]], () => 0), ...(mixed ? all((row) => (works(row) ? [[row]] : broken(row)), works) : [])];
}

function box(scene, t, measure, room) {
  const [top, left, bottom, right] = t.pad;
  const rows = t.rows + top + bottom, cols = t.cols + left + right;
  const titleWidth = measure(t.title, true), noteWidth = t.note ? measure(t.note, false) : 0;
  const ways = t.planes > 1 ? planeGrids(t.planes, rows, cols) : folds(scene, t, rows, cols);
  return {
    t, rows, cols, ways, way: ways[0], cell: CELL_LEAST, measure, titleWidth, noteWidth, headLines: 1,
    headWidth: Math.min(room.inner, Math.max(titleWidth, Math.min(noteWidth, 130))),
  };
}

function planeGrids(planes, tileRows, tileCols) {
  const ways = [];
  for (let down = 1; down <= planes; down++) {
    const across = Math.ceil(planes / down);
    if (ways.every((w) => w.across !== across)) ways.push({ across, down: Math.ceil(planes / across), tileRows, tileCols, fold: "" });
  }
  return ways;
}

// A matrix whole, in bands of columns, or, where it is tall, in parts of its rows side by side.
function folds(scene, t, rows, cols) {
  const ways = [{ across: 1, down: 1, tileRows: rows, tileCols: cols, fold: "" }];
  if (rows !== t.rows || cols !== t.cols) return ways; // with a ring round it, it is a picture, not a matrix
  // Bands break between rows of the product's output, if there is one; else they divide the columns evenly.
  const product = scene.matmuls.find((m) => m.right === t);
  for (let n = 2; n <= 24; n++) {
    const unit = product ? product.out.cols : 1;
    const tileCols = Math.ceil(Math.ceil(cols / n) / unit) * unit;
    const even = product || (cols % n === 0 && cols / n > 4);
    if (cols > 12 && cols > rows && even && tileCols < cols && ways.every((w) => w.tileCols !== tileCols))
      ways.push({ across: 1, down: Math.ceil(cols / tileCols), tileRows: rows, tileCols, fold: "cols" });
    if (rows > 48 && n <= 4 && rows % n === 0) ways.push({ across: n, down: 1, tileRows: rows / n, tileCols: cols, fold: "rows" });
  }
  return ways;
}

const gapY = (way) => (way.fold ? BAND_GAP : TILE_GAP);
const gridWidth = (b) => b.way.across * b.way.tileCols * b.cell + (b.way.across - 1) * TILE_GAP;
const gridHeight = (b) => b.way.down * b.way.tileRows * b.cell + (b.way.down - 1) * gapY(b.way);
const slotWidth = (b) => Math.max(gridWidth(b), b.headWidth);
const onGround = (line) => line.boxes.some((b) => b.t.workspace);
const headHeight = (b) => HEAD + HEAD_LINE * (b.headLines - 1);
const lineHeight = (line) => Math.max(...line.boxes.map((b) => headHeight(b) + gridHeight(b))) + (onGround(line) ? 2 * GROUND_PAD : 0);
const lineWidth = (line, room) => line.boxes.reduce((sum, b) => sum + slotWidth(b), (line.boxes.length - 1) * room.gap);
const sides = (lines) => [0, 1].map((side) => lines.filter((line) => line.side === side)).filter((some) => some.length);
const sideWidth = (lines, room) => Math.max(...lines.map((line) => lineWidth(line, room)));
const sideHeight = (lines) => lines.reduce((sum, line) => sum + lineHeight(line) + LINE_GAP, LINE_GAP);
const totalWidth = (lines, room) => sides(lines).reduce((sum, side) => sum + sideWidth(side, room) + SIDE_GAP, -SIDE_GAP);
const totalHeight = (lines) => Math.max(...sides(lines).map(sideHeight));

// The best folds for these lines: one box at a time, twice over.
function arrange(lines, room) {
  const attempt = () => {
    grow(lines, room);
    for (const side of sides(lines)) for (const line of side) countHeadLines(line, sideRoom(lines, side, room), room);
    grow(lines, room);
    return score(lines, room);
  };
  for (let sweep = 0; sweep < 2; sweep++)
    for (const b of lines.flatMap((line) => line.boxes).reverse()) {
      let best = null;
      for (const way of b.ways) {
        b.way = way;
        const value = attempt();
        if (!best || value > best.value + 1e-9) best = { value, way };
      }
      b.way = best.way;
    }
  return { lines, score: attempt() };
}

function grow(lines, room) {
  const boxes = lines.flatMap((line) => line.boxes);
  for (const b of boxes) b.cell = CELL_LEAST;
  const open = new Set(boxes);
  while (open.size) {
    let next = null;
    for (const b of open) if (!next || b.cell < next.cell) next = b;
    next.cell++;
    if (next.cell <= CELL_MOST && totalWidth(lines, room) <= room.inner && totalHeight(lines) <= room.height) continue;
    next.cell--;
    open.delete(next);
  }
  // A small tensor does not shout beside large ones: a little larger than they are, or just readable.
  const least = Math.min(...boxes.map((b) => b.cell));
  for (const b of boxes) b.cell = Math.min(b.cell, Math.max(18, Math.ceil(1.2 * least)));
}

// Large cells, numbers readable, few folds; what does not fit even so counts against it.
function score(lines, room) {
  let sum = -0.4 * lines.length, least = Infinity;
  for (const { boxes } of lines)
    for (const { cell, way } of boxes) {
      least = Math.min(least, cell);
      sum += Math.log(cell) + (cell >= NUMBERS_FROM ? 0.4 : 0);
      if (way.fold) sum -= way.fold === "rows" ? 1 : 0.06 * way.down;
    }
  const over = Math.max(0, totalWidth(lines, room) - room.inner) + Math.max(0, totalHeight(lines) - room.height);
  return sum + 3 * Math.log(least) - 0.02 * over;
}

// A side takes the width it needs; the first also what is left.
function sideRoom(lines, side, room) {
  const all = sides(lines);
  if (all.length === 1) return room.inner;
  return side[0].side ? sideWidth(side, room) : room.inner - SIDE_GAP - sideWidth(all[1], room);
}

function spread(line, inner, room) {
  if (line.boxes.length === 1) return 0;
  const slack = Math.max(0, inner - lineWidth(line, room));
  return room.gap + Math.min(150, slack / (line.boxes.length - 1));
}

// Width for a tensor's title and note: to the next tensor, or to the edge.
function headRoom(line, b, inner, gap) {
  const x = line.boxes.slice(0, line.boxes.indexOf(b)).reduce((sum, other) => sum + slotWidth(other) + gap, 0);
  return b === line.boxes.at(-1) ? inner - x : slotWidth(b) + gap - 20;
}

function countHeadLines(line, inner, room) {
  const gap = spread(line, inner, room);
  for (const b of line.boxes) b.headLines = 1 + noteLines(b, headRoom(line, b, inner, gap)).below.length;
}

// A note stands beside its title where it fits, else under it, broken at words.
function noteLines(b, room) {
  if (!b.noteWidth) return { beside: "", below: [] };
  if (b.titleWidth + 8 + b.noteWidth <= room) return { beside: b.t.note, below: [] };
  const below = [];
  let line = "";
  for (const word of b.t.note.split(/(?<!×) (?!×)/)) {
    const longer = line ? `${line} ${word}` : word;
    if (line && b.measure(longer, false) > room) {
      below.push(line);
      line = word;
    } else line = longer;
  }
  return { beside: "", below: [...below, line] };
}

function place(lines, width, margin, room) {
  const blocks = {}, grounds = [];
  let left = margin;
  for (const side of sides(lines)) {
    const inner = sideRoom(lines, side, room);
    let y = LINE_GAP;
    for (const line of side) {
      const pad = onGround(line) ? GROUND_PAD : 0, gap = spread(line, inner, room);
      if (pad) grounds.push({ x: left - pad, y, w: inner + 2 * pad, h: lineHeight(line) });
      let x = left;
      for (const b of line.boxes) {
        blocks[b.t.name] = {
          t: b.t, x, y: y + pad + headHeight(b), headY: y + pad, cell: b.cell, way: b.way, titleWidth: b.titleWidth,
          ...noteLines(b, headRoom(line, b, inner, gap)), ground: pad ? "workspace-ground" : "panel",
          w: gridWidth(b), h: gridHeight(b),
        };
        x += slotWidth(b) + gap;
      }
      y += lineHeight(line) + LINE_GAP;
    }
    left += inner + SIDE_GAP;
  }
  return { width, height: totalHeight(lines), blocks, grounds };
}

// Tile, row and column of a cell inside its block, padding ring counted.
function seat({ t, way }, i) {
  const plane = Math.floor(i / (t.rows * t.cols)), row = Math.floor(i / t.cols) % t.rows, col = i % t.cols;
  if (way.fold === "cols") return { tile: Math.floor(col / way.tileCols), row, col: col % way.tileCols };
  if (way.fold === "rows") return { tile: Math.floor(row / way.tileRows), row: row % way.tileRows, col };
  return { tile: plane, row: row + t.pad[0], col: col + t.pad[1] };
}

// The other way round: the cell that sits there, or null where the seat is a ring's or empty.
function sitter({ t, way }, tile, row, col) {
  if (way.fold === "cols") col += tile * way.tileCols;
  else if (way.fold === "rows") row += tile * way.tileRows;
  else { row -= t.pad[0]; col -= t.pad[1]; }
  if (row < 0 || col < 0 || row >= t.rows || col >= t.cols) return null;
  return ((way.fold ? 0 : tile) * t.rows + row) * t.cols + col;
}

function tileAt({ x, y, way, cell }, tile) {
  return {
    x: x + (tile % way.across) * (way.tileCols * cell + TILE_GAP),
    y: y + Math.floor(tile / way.across) * (way.tileRows * cell + gapY(way)),
  };
}

function cellAt(block, i) {
  const { tile, row, col } = seat(block, i);
  const at = tileAt(block, tile);
  return { x: at.x + col * block.cell, y: at.y + row * block.cell };
}

// The cell under a point of the canvas, or null.
function hitTest(layout, x, y) {
  for (const block of Object.values(layout.blocks)) {
    const { t, way, cell } = block;
    const tiles = way.fold ? way.across * way.down : t.planes;
    for (let tile = 0; tile < tiles; tile++) {
      const at = tileAt(block, tile);
      const col = Math.floor((x - at.x) / cell), row = Math.floor((y - at.y) / cell);
      if (row < 0 || col < 0 || col >= way.tileCols || row >= way.tileRows) continue;
      const index = sitter(block, tile, row, col);
      if (index !== null) return { name: t.name, index };
    }
  }
  return null;
}
