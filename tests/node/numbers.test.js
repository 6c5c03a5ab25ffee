// One value in a cell, in the panel and in a caption: each has at least the digits of the one before.
import assert from "node:assert/strict";
import test from "node:test";

import { fillTemplate } from "../../visuals/stage/decode.js";
import { cellText } from "../../visuals/stage/draw.js";
import { number } from "../../visuals/stage/explain.js";

const valueOf = (text) => Number(text.replace("−", "-").replaceAll(",", ""));
const caption = (v) => fillTemplate({ templates: ["{0}"], kind: [0], args: [v], width: 1 }, 0)[0].text;
const VALUES = [
  8174.6, 1048.4, 1050.5, 8170.4, 67.5, 66.5, 99.5, 999.96, 1000.5, 9999.5, 12345.678, 99999.5, 123456.7, 10.25, 2.449, 0.996, 0.0151, 1 / 3, 7, 1200,
];

test("a text has at least the digits of the shorter one", () => {
  const off = (text, v) => Math.abs(valueOf(text) - v);
  const wrong = VALUES.filter((v) => off(number(v), v) > off(cellText(v), v) + 1e-9 || off(caption(v), v) > off(number(v), v) + 1e-9);
  assert.deepEqual(wrong, []);
});

test("from a thousand on, cell, panel and caption print the same", () => {
  for (const v of VALUES.filter((v) => v >= 1000))
    assert.deepEqual([cellText(v), caption(v)], [number(v).replaceAll(",", ""), number(v).replaceAll(",", "")], String(v));
});

test("opposite values are printed as opposites", () => {
  for (const print of [cellText, number, caption])
    assert.deepEqual(VALUES.filter((v) => print(-v) !== `−${print(v)}`), []);
});
