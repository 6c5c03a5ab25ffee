// Zoom and pan. A view is {scale, x, y}: the magnification, and the layout's point at the canvas's top left. Pure.

export const clamp = (v, low, high) => Math.min(high, Math.max(low, v));

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

// In a link a view is "scale,centre x,centre y", the centre as shares of width and height, so it fits any window.
export function viewText({ scale, x, y }, width, height) {
  const centre = (at, size) => (at + size / scale / 2) / size;
  return scale === 1 ? "" : [scale, centre(x, width), centre(y, height)].map((v) => +v.toFixed(3)).join();
}

export function viewFrom(text, width, height) {
  const [scale, x, y] = text.split(",").map(Number);
  return viewOf(scale, x * width - width / scale / 2, y * height - height / scale / 2, width, height);
}
