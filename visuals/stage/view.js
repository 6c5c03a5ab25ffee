// Zoom and pan. A view is {scale, x, y}: the magnification, and the layout's point at the canvas's top left. Pure.

import { clamp } from "./decode.js";
import { cellAt, cellXY, tileXY, wideOf } from "./layout.js";

export const WHOLE = { scale: 1, x: 0, y: 0 };
export const MAX_ZOOM = 24;

// A view clamped to a layout of width x height; a view of the whole layout is the object WHOLE.
export function viewOf(scale, x, y, width, height) {
  scale = clamp(scale, 1, MAX_ZOOM);
  if (scale < 1.01) return WHOLE;
  return { scale, x: clamp(x, 0, width * (1 - 1 / scale)), y: clamp(y, 0, height * (1 - 1 / scale)) };
}

// A view magnified by factor; the layout's point under (px, py) of the canvas moves by (dx, dy).
export function zoomed(view, factor, px, py, width, height, dx = 0, dy = 0) {
  const scale = clamp(view.scale * factor, 1, MAX_ZOOM);
  const shifted = (at, p, d) => at + p / view.scale - (p + d) / scale;
  return viewOf(scale, shifted(view.x, px, dx), shifted(view.y, py, dy), width, height);
}

// In a link a view is "scale,cell,x,y": what is at the centre of the canvas, from the nearest cell's top left, in cells.
// So it shows the same cells in any window. "scale,x,y" is the centre as shares of the layout's width and height.
export function viewText({ scale, x, y }, layout) {
  if (scale === 1) return "";
  const centre = [x + layout.width / scale / 2, y + layout.height / scale / 2];
  if (layout.diagram) return [+scale.toFixed(3), +(centre[0] / layout.width).toFixed(4), +(centre[1] / layout.height).toFixed(4)].join();
  const { name, index, dx, dy } = nearestCell(layout, ...centre);
  return [+scale.toFixed(3), `${name}:${index}`, +dx.toFixed(2), +dy.toFixed(2)].join();
}

// WHOLE if the text's cell is not in this layout.
export function viewFrom(text, layout) {
  const [scale, ...place] = text.split(","), { width, height } = layout;
  const centre = place.length === 2 ? [place[0] * width, place[1] * height] : pointOf(layout, ...place);
  return centre ? viewOf(+scale, centre[0] - width / scale / 2, centre[1] - height / scale / 2, width, height) : WHOLE;
}

function pointOf({ blocks }, cell, dx, dy) {
  const [name, index] = cell.split(":"), block = Object.hasOwn(blocks, name) && +index < blocks[name].t.size && blocks[name];
  if (!block) return null;
  const at = cellXY(block, +index);
  return [at.x + dx * wideOf(block), at.y + dy * block.cell];
}

// The cell nearest to a point of the layout: {name, index}, and {dx, dy} from its top left to the point, in cells.
function nearestCell(layout, x, y) {
  const within = (at, first, count) => clamp(Math.floor(at), first, first + count - 1);
  let nearest = { distance: Infinity };
  for (const block of Object.values(layout.blocks)) {
    const { t, way: { across, down, tileRows, tileCols }, cell } = block;
    for (let tile = 0; tile < across * down; tile++) {
      const at = tileXY(block, tile), band = t.planes > 1 ? 0 : tile, u = (x - at.x) / wideOf(block), v = (y - at.y) / cell;
      const col = within(u, t.pad[1], Math.min(tileCols, t.cols - Math.floor(band / across) * tileCols));
      const row = within(v, t.pad[0], Math.min(tileRows, t.rows - (band % across) * tileRows));
      const index = cellAt(block, tile, row, col), dx = u - col, dy = v - row;
      const distance = index === null ? Infinity : cell * Math.hypot(dx - clamp(dx, 0, 1), dy - clamp(dy, 0, 1));
      if (distance < nearest.distance) nearest = { name: t.name, index, dx, dy, distance };
    }
  }
  return nearest;
}
