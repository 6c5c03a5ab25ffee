// Colours of cells. Hue is where a value came from, distance from the ground is its magnitude; below zero the
// hue leans to the ink, so that both signs leave zero in lightness and part from each other.

const LEVELS = 48;

const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
const mix = (a, b, part) => a.map((v, i) => Math.round(v + (b[i] - v) * part));
const css = (c) => `rgb(${c[0]},${c[1]},${c[2]})`;
const packed = (c) => (255 << 24 | c[2] << 16 | c[1] << 8 | c[0]) >>> 0; // a pixel of ImageData

function luminance(c) {
  const [r, g, b] = c.map((v) => ((v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
const contrast = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);

const swatch = (c) => ({ css: css(c), packed: packed(c) });

// One theme from the palette's tokens: ramps[hue][ground] = { written: [negative, positive], ghost: ... }.
function makeTheme(tokens, dark) {
  const t = Object.fromEntries(Object.entries(tokens).map(([name, hex]) => [name, rgb(hex)]));
  const ends = { dark: rgb("#10141b"), light: rgb("#ffffff") };
  const ink = (c) => {
    const l = luminance(c);
    return contrast(l, luminance(ends.light)) >= contrast(l, luminance(ends.dark)) * 0.8 ? css(ends.light) : css(ends.dark);
  };
  const ramp = (hue) => {
    const base = mix(t.ground, t[hue], dark ? 0.16 : 0.1);
    const far = [mix(t.ground, mix(t[hue], t.ink, 0.55), 0.8), mix(t.ground, t[hue], dark ? 0.92 : 0.88)];
    return far.map((end) => Array.from({ length: LEVELS + 1 }, (_, i) => {
      const c = mix(base, end, i / LEVELS);
      return { ...swatch(c), rgb: c, ink: ink(c) };
    }));
  };
  const hues = ["input", "filter", "output", "workspace"];
  const written = Object.fromEntries(hues.map((hue) => [hue, ramp(hue)]));
  const grounds = { panel: t.panel, "workspace-ground": t["workspace-ground"] };
  const ghosts = {}, padding = {};
  for (const [name, ground] of Object.entries(grounds)) {
    ghosts[name] = Object.fromEntries(hues.map((hue) => [hue, written[hue].map((side) =>
      side.map((look) => swatch(mix(ground, look.rgb, dark ? 0.16 : 0.15))))]));
    const line = mix(ground, t.dim, dark ? 0.45 : 0.5);
    padding[name] = {
      written: { ...swatch(mix(ground, t.ground, 0.6)), line: css(line), ink: tokens.dim, small: packed(mix(ground, t.dim, 0.28)) },
      ghost: { ...swatch(ground), line: css(mix(ground, t.dim, 0.22)), small: packed(mix(ground, t.dim, 0.08)) },
    };
  }
  return { tokens, dark, written, ghosts, padding, ground: (name) => css(grounds[name]), packedGround: (name) => packed(grounds[name]) };
}

// How cell i of a block looks: written or a ghost of itself; padding is no value and looks like none.
function lookOf(theme, block, i, written) {
  const t = block.t;
  if (isPadding(t, i)) {
    const look = theme.padding[block.ground][written ? "written" : "ghost"];
    return { css: look.css, packed: look.small, line: look.line, ink: written ? look.ink : "", padding: true };
  }
  const v = t.values[i];
  const side = v < 0 ? 0 : 1, level = Math.round((Math.abs(v) / t.max) * LEVELS);
  return written ? theme.written[t.hue][side][level] : theme.ghosts[block.ground][t.hue][side][level];
}
