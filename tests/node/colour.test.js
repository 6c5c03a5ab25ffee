// Colours of cells: the hue shows the source, the distance from the ground colour shows the magnitude. Padding, ghosts and
// NaN differ from values.
import assert from "node:assert/strict";
import test from "node:test";

import { HUES, luminance, makeTheme, styleOf } from "../../visuals/stage/colour.js";
import { DARK, LIGHT, decode, sample } from "./picture.js";

const THEMES = [["light", makeTheme(LIGHT, false)], ["dark", makeTheme(DARK, true)]];
const GROUNDS = ["panel", "workspace-ground", "shared-ground", "registers-ground"];
const on = (t, ground = "panel") => ({ t, ground });
const rgb = (css) => css.match(/\d+/g).map(Number);
const distance = (a, b) => Math.hypot(...a.map((v, i) => v - b[i]));
const contrast = (a, b) => (Math.max(luminance(a), luminance(b)) + 0.05) / (Math.min(luminance(a), luminance(b)) + 0.05);

const hex = (colour) => [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
const readable = ({ css, ink }) => { if (ink) assert.ok(contrast(rgb(css), hex(ink)) >= 4.5, `${ink} on ${css}: ${contrast(rgb(css), hex(ink))}`); };

for (const [name, theme] of THEMES) {
  test(`${name}: larger values are further from the ground colour, for both signs`, () => {
    const ground = rgb(theme.grounds.panel.css);
    for (const hue of HUES)
      for (const side of [0, 1]) {
        const distances = theme.written[hue][side].map((style) => distance(rgb(style.css), ground));
        for (let k = 1; k < distances.length; k++) assert.ok(distances[k] > distances[k - 1] - 1, `${hue} ${side} ${k}`); // channels are rounded
        assert.ok(distances.at(-1) > distances[0] + 50);
      }
  });

  test(`${name}: both signs have one colour at zero and differ at the maximum`, () => {
    for (const hue of HUES) {
      const [below, above] = theme.written[hue];
      assert.equal(below[0].css, above[0].css);
      assert.ok(distance(rgb(below.at(-1).css), rgb(above.at(-1).css)) > 25, `${hue} ${distance(rgb(below.at(-1).css), rgb(above.at(-1).css))}`);
    }
  });

  test(`${name}: every number has a contrast of 4.5 to 1 with its cell, or is not drawn`, () => {
    const values = Array.from({ length: 201 }, (_, n) => n / 100 - 1);
    for (const role of HUES)
      for (const scale of [1, 1e-3, 7, 1e4]) {
        const { t } = decode({ tensors: [{ name: "t", role, cols: 202, values: [...values, NaN].map((v) => v * scale) }] }).tensors;
        for (let i = 0; i < 202; i++) readable(styleOf(theme, on(t), i, 0));
      }
    for (const ground of GROUNDS) for (const style of theme.padding[ground]) readable(style);
  });

  test(`${name}: ghosts are nearer to their ground colour than written cells, and have no number`, () => {
    for (const ground of GROUNDS)
      for (const hue of HUES)
        for (const side of [0, 1])
          theme.ghosts[ground][hue][side].forEach((ghost, k) => {
            const under = rgb(theme.grounds[ground].css);
            assert.ok(distance(rgb(ghost.css), under) < distance(rgb(theme.written[hue][side][k].css), under));
            assert.equal(ghost.ink, undefined);
          });
  });

  test(`${name}: packed pixels equal the CSS colours`, () => {
    const styles = [...Object.values(theme.grounds), ...HUES.flatMap((hue) => theme.written[hue].flat()), ...HUES.flatMap((hue) => theme.ghosts["shared-ground"][hue].flat())];
    for (const { css, packed } of styles) assert.deepEqual([packed & 255, (packed >> 8) & 255, (packed >> 16) & 255, packed >>> 24], [...rgb(css), 255]);
  });
}

const [, theme] = THEMES[0];
const level = (style, hue, side) => theme.written[hue][side].indexOf(style);

test("the level is the share of the largest value, the side is the sign", () => {
  const { t } = decode({ tensors: [{ name: "t", role: "filter", cols: 6, values: [-8, -4, 0, 2, 4, 8] }] }).tensors;
  const at = (i) => styleOf(theme, on(t), i, 0);
  assert.deepEqual([[0, 0], [1, 0], [2, 1], [3, 1], [4, 1], [5, 1]].map(([i, side]) => level(at(i), "filter", side)), [48, 24, 0, 12, 24, 48]);
  const { z } = decode({ tensors: [{ name: "z", cols: 2, values: [0, 0] }] }).tensors;
  assert.equal(level(styleOf(theme, on(z), 1, 0), "input", 1), 0, "if all values are zero");
});

test("a cell with a role of its own has its hue, also as a ghost", () => {
  const roles = [0, 3, 2, 1], scene = { steps: 2, tensors: [{ name: "t", role: "input", cols: 4, roles }], writes: [{ target: "t", steps: [0, 0, 0, 1], values: [1, 1, 1, 1] }] };
  const { t } = decode(scene).tensors;
  roles.forEach((n, i) => assert.equal(level(styleOf(theme, on(t), i, 1), HUES[n], 1), 48));
  assert.ok(theme.ghosts.panel.filter[1].includes(styleOf(theme, on(t), 3, 0)));
});

test("infinities have the highest level, NaN has its own style, and neither changes other cells", () => {
  const { t } = decode({ tensors: [{ name: "t", cols: 5, values: [-Infinity, 2, 4, Infinity, NaN] }] }).tensors;
  const at = (i) => styleOf(theme, on(t), i, 0);
  assert.deepEqual([[0, 0], [1, 1], [2, 1], [3, 1]].map(([i, side]) => level(at(i), "input", side)), [48, 24, 48, 48]);
  assert.equal(at(4), theme.nan);
  for (const [, { nan, tokens }] of THEMES) {
    assert.ok(distance(rgb(nan.css), rgb(theme.grounds.panel.css)) > 0 && contrast(rgb(nan.css), [1, 3, 5].map((k) => parseInt(nan.ink.slice(k, k + 2), 16))) >= 7);
    assert.equal(`#${rgb(nan.css).map((v) => v.toString(16).padStart(2, "0")).join("")}`, tokens.ink.toLowerCase());
  }
});

test("a cell is a ghost before it is written; its ghost depends on the ground", () => {
  const { y, D } = sample().tensors;
  const ghost = styleOf(theme, on(D, "shared-ground"), 1, 0), copy = styleOf(theme, on(D, "shared-ground"), 1, 1);
  assert.ok(theme.ghosts["shared-ground"].input.flat().includes(ghost));
  assert.equal(level(copy, "input", 1), Math.round((2 / 4) * 48), "in the hue of its source");
  assert.notEqual(styleOf(theme, on(D, "panel"), 1, 0), ghost);
  assert.equal(styleOf(theme, on(D, "panel"), 1, 1), copy);
  assert.equal(level(styleOf(theme, on(y), 0, 0), "output", 1), Math.round((3 / 8) * 48));
  assert.equal(level(styleOf(theme, on(y), 0, 9), "output", 0), Math.round((6 / 8) * 48), "written again");
  assert.equal(level(styleOf(theme, on(y), 0, 8), "output", 1), Math.round((3 / 8) * 48), "not before that step");
});

test("padding and cells that are never stored are dashed", () => {
  const { y, D } = sample().tensors, of = theme.padding["shared-ground"];
  assert.deepEqual([styleOf(theme, on(D, "shared-ground"), 5, 4), styleOf(theme, on(D, "shared-ground"), 5, 5)], of); // a zero of the padding
  assert.equal(styleOf(theme, on(y), 9, 11), theme.padding.panel[0]); // never stored, also after the last step
  for (const style of of) assert.ok(style.padding && style.line);
  assert.deepEqual(of.map((style) => style.ink), ["", LIGHT.dim], "only written padding prints its zero");
});
