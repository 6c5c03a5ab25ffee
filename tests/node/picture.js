// Shared by tests of the picture: the player's palette, a scene with every kind of cell, and a canvas of plain pixels.
import { readFileSync } from "node:fs";

import { decodeScene } from "../../visuals/stage/decode.js";
import { pack } from "./payload.js";

const palette = readFileSync(new URL("../../visuals/palette.py", import.meta.url), "utf8");
const tokensOf = (name) => Object.fromEntries(Array.from(
  palette.match(new RegExp(`^${name} = {([^}]*)}`, "m"))[1].matchAll(/"([\w-]+)": "(#\w{6})"/g), ([, token, hex]) => [token, hex]));
export const LIGHT = tokensOf("LIGHT"), DARK = tokensOf("DARK");

export const decode = (scene) => {
  const { meta, block } = pack(scene);
  return decodeScene(meta, block);
};

// x has values from the start and padding. D copies it, with zeros of the padding. y is written, some cells twice or never.
export function sample(steps = 12) {
  const cells = Array.from({ length: steps }, (_, k) => (k * 5) % 9);
  return decode({
    steps,
    tensors: [
      { name: "x", title: "input", rows: 3, cols: 4, values: Array.from({ length: 12 }, (_, i) => i - 5), pad: [1, 1, 1, 1] },
      { name: "D", title: "data", role: "workspace", rows: 3, cols: 4 },
      { name: "y", title: "output", role: "output", planes: 2, rows: 2, cols: 5 },
    ],
    groups: [{ rows: [["x", "y"]], memorySpace: "global", title: "" }, { rows: [["D"]], memorySpace: "shared", title: "a block" }],
    writes: [
      { target: "D", steps: Array.from({ length: 12 }, (_, k) => k % steps), source: "x", index: Array.from({ length: 12 }, (_, k) => (k % 5 ? (k * 7) % 12 : -1)) },
      { target: "y", steps: cells.map((_, k) => k), values: cells.map((_, k) => 3 - k), cells },
    ],
  });
}

// A canvas as text: `at` holds what was last drawn at each pixel.
export class Pixels {
  constructor(width, height) {
    Object.assign(this, { width, height, at: new Array(width * height).fill(""), globalAlpha: 1, path: null });
    this.canvas = { width, height };
  }

  put(x, y, w, h, what, alpha = this.globalAlpha) {
    const [l, t, r, b] = [x, y, x + w, y + h].map(Math.round);
    for (let v = Math.max(0, t); v < Math.min(b, this.height); v++)
      for (let u = Math.max(0, l); u < Math.min(r, this.width); u++) this.at[v * this.width + u] = alpha < 1 ? `${what} at ${alpha}` : what;
  }

  fillRect(x, y, w, h) { this.put(x, y, w, h, this.fillStyle); }
  fillText(text, x, y) { this.put(x, y, 1, 1, `${text} in ${this.fillStyle}, ${this.font}`); }
  strokeRect(x, y, w, h) {
    for (const [dx, dy, along, down] of [[0, 0, w, 1], [0, h, w + 1, 1], [0, 0, 1, h], [w, 0, 1, h]]) this.put(x - 0.5 + dx, y - 0.5 + dy, along, down, this.strokeStyle);
  }
  setLineDash() {}
  beginPath() {}
  roundRect(...box) { this.path = box; }
  fill() { this.fillRect(...this.path); }
  measureText(text) { return { width: (text.length * 0.6 * parseFloat(this.font.match(/[\d.]+px/)[0])) }; }
  createImageData(width, height) { return { width, height, data: new Uint8ClampedArray(4 * width * height) }; }
  putImageData({ width, data }, left, top, x, y, w, h) {
    const pixels = new Uint32Array(data.buffer);
    for (let v = y; v < y + h; v++)
      for (let u = x; u < x + w; u++) {
        const p = pixels[v * width + u];
        this.put(left + u, top + v, 1, 1, `rgb(${p & 255},${(p >> 8) & 255},${(p >> 16) & 255})`, 1);
      }
  }
}
