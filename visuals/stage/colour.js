// Colours of cells. Hue shows the source of a value, distance from the ground colour shows its magnitude. Negative
// values are mixed with the ink, so that both signs differ from zero and from each other in lightness.

import { eventOf, lastEvent } from "./decode.js";

const LEVELS = 48;
export const HUES = ["input", "filter", "output", "workspace"]; // ROLES of visuals/scene/parts.py
// The hue of a cell: that of its own role if its tensor's cells differ in role.
export const hueOf = (t, i) => (t.roles ? HUES[t.roles[i]] : t.hue);
const GROUNDS = ["panel", "workspace-ground", "shared-ground", "registers-ground"];

const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
const mix = (a, b, part) => a.map((v, i) => Math.round(v + (b[i] - v) * part));
const style = (c, more) => ({ css: `rgb(${c})`, packed: (255 << 24 | c[2] << 16 | c[1] << 8 | c[0]) >>> 0, ...more }); // packed: a pixel of ImageData

export function luminance(c) {
  const [r, g, b] = c.map((v) => ((v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
const contrast = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);

// One theme from the palette's tokens: written[hue] = [negative, positive] ramps; ghosts, padding and grounds by ground.
export function makeTheme(tokens, dark) {
  const t = Object.fromEntries(Object.entries(tokens).map(([name, hex]) => [name, rgb(hex)]));
  // White while it has a contrast of 4.5 to 1; where it has not, black has it.
  const inkOn = (c) => (contrast(luminance(c), 1) >= 4.5 ? "#ffffff" : "#000000");
  const ramp = (hue) => {
    const base = mix(t.ground, t[hue], 0.16);
    const ends = [mix(t.ground, mix(t[hue], t.ink, 0.55), 0.8), mix(t.ground, t[hue], dark ? 0.92 : 0.88)];
    return ends.map((end) => Array.from({ length: LEVELS + 1 }, (_, i) => {
      const c = mix(base, end, i / LEVELS);
      return style(c, { rgb: c, ink: inkOn(c) });
    }));
  };
  const written = Object.fromEntries(HUES.map((hue) => [hue, ramp(hue)]));
  const grounds = {}, ghosts = {}, padding = {};
  for (const name of GROUNDS) {
    const ground = t[name];
    grounds[name] = style(ground);
    ghosts[name] = Object.fromEntries(HUES.map((hue) => [hue, written[hue].map((side) =>
      side.map((cell) => style(mix(ground, cell.rgb, dark ? 0.16 : 0.15))))]));
    const dashed = (css, line, pixel, ink) => ({ ...style(pixel), css: `rgb(${css})`, line: `rgb(${line})`, ink, padding: true });
    padding[name] = [
      dashed(ground, mix(ground, t.dim, 0.22), mix(ground, t.dim, 0.08), ""),
      dashed(mix(ground, t.ground, 0.6), mix(ground, t.dim, dark ? 0.45 : 0.5), mix(ground, t.dim, 0.28), tokens.dim),
    ];
  }
  const nan = style(t.ink, { ink: inkOn(t.ink) });
  return { tokens, dark, written, ghosts, padding, grounds, nan };
}

// The style of cell i of a block after `step`: written, or a ghost of its later value. Padding and cells that are never
// stored have no value and no value's colour.
export function styleOf(theme, block, i, step) {
  const { t, ground } = block;
  const now = lastEvent(t, i, step), written = now >= 0 || t.values !== null;
  const e = written ? now : eventOf(t, i, step);
  if (e < 0 ? !written : t.from[e] === -1) return theme.padding[ground][+written];
  const v = e < 0 ? t.values[i] : t.value[e];
  if (written && isNaN(v)) return theme.nan;
  const level = Math.round(Math.min(Math.abs(v) / t.max, 1) * LEVELS) || 0, side = v < 0 ? 0 : 1;
  return (written ? theme.written : theme.ghosts[ground])[hueOf(t, i)][side][level];
}

// Whether a CSS colour is dark; null if the text is empty or no colour.
export function isDark(colour) {
  const probe = document.createElement("canvas").getContext("2d");
  if (!colour.trim()) return null;
  probe.fillStyle = colour.trim();
  return probe.fillStyle.startsWith("#") ? luminance(rgb(probe.fillStyle)) < 0.2 : null;
}
