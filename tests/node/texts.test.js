// The player's texts: translation, fields, plural forms, numbers, parts, and the texts of a document.
import assert from "node:assert/strict";
import test from "node:test";

import { explain, number } from "../../visuals/stage/explain.js";
import { count, decimal, language, stepText, tr, trParts, trn, trnParts, useTexts } from "../../visuals/stage/texts.js";
import { decode } from "./picture.js";

const form = (n) => (n === 1 ? 0 : n % 10 >= 2 && n % 10 <= 4 && (n % 100 < 12 || n % 100 > 14) ? 1 : 2);
const POLISH = {
  language: "pl", plural: Array.from({ length: 200 }, (_, n) => form(n)).join(""),
  texts: { Play: "Odtwórz", "{done} of {tensor}": "{tensor}: {done}", "{n} block": ["{n} blok", "{n} bloki", "{n} bloków"], "{cell} = {value}.": "{cell} to {value}." },
};

// Runs with a catalog, then goes back to English.
const inPolish = (check) => {
  useTexts(POLISH);
  try {
    check();
  } finally {
    useTexts({});
  }
};

test("English is the source", () => {
  assert.equal(language(), "en");
  assert.equal(tr("Play"), "Play");
  assert.equal(tr("{done} of {tensor} {0} {other}", { done: 3, tensor: "$&" }), "3 of $& {0} {other}");
  assert.deepEqual([0, 1, 2, 1200].map((n) => trn("{n} block", "{n} blocks", n)), ["0 blocks", "1 block", "2 blocks", "1,200 blocks"]);
  assert.equal(decimal("1,234.5"), "1,234.5");
});

test("a text without a translation stays English, also after a change of language", () => {
  inPolish(() => {
    assert.deepEqual([language(), tr("Play"), tr("Pause")], ["pl", "Odtwórz", "Pause"]);
    assert.equal(tr("{done} of {tensor}", { done: 3, tensor: "D" }), "D: 3");
    assert.equal(trn("{n} cell", "{n} cells", 5), "5 cells");
  });
  assert.deepEqual([language(), tr("Play")], ["en", "Play"]);
});

test("plural forms follow the rule of the language for every number", () => inPolish(() => {
  const forms = ["blok", "bloki", "bloków"];
  for (const n of [0, 1, 2, 4, 5, 11, 12, 14, 21, 22, 100, 101, 102, 112, 122, 199, 200, 201, 202, 1001, 1002, 1012, 123_422])
    assert.equal(trn("{n} block", "{n} blocks", n).split(" ").at(-1), forms[form(n)], n);
}));

test("numbers have the separators of the language", () => inPolish(() => {
  const space = "\u00a0";
  assert.deepEqual([count(1234567), decimal("12,345.6"), number(-0.5), number(12.345)], [`1${space}234${space}567`, `12${space}345,6`, "−0,5", "12,3"]);
  assert.equal(stepText({ stepName: "krok", steps: 12_000 }, 999), `krok 1${space}000 of 12${space}000`);
}));

test("a message of parts keeps the roles of its fields, in the order of the language", () => {
  const fields = { done: { text: "3", role: "input" }, tensor: [{ text: "D", role: "workspace" }, { text: "!", role: "" }] };
  const texts = () => trParts("{done} of {tensor}", fields).map(({ text, role }) => [text, role]);
  assert.deepEqual(texts(), [["3", "input"], [" of ", ""], ["D", "workspace"], ["!", ""]]);
  inPolish(() => assert.deepEqual(texts(), [["D", "workspace"], ["!", ""], [": ", ""], ["3", "input"]]));
  assert.deepEqual(trParts("Never."), [{ text: "Never.", role: "" }]);
  assert.deepEqual(trnParts("{n} block", "{n} blocks", 2), [{ text: "2", role: "" }, { text: " blocks", role: "" }]);
});

test("an explanation is in the reader's language", () => {
  const scene = decode({ tensors: [{ name: "x", title: "input", cols: 2, values: [0.5, 2] }] });
  const text = () => explain(scene, 0, "x", 0).parts.map((part) => part.text).join("");
  assert.equal(text(), "x[0, 0] = 0.5.");
  inPolish(() => assert.equal(text(), "x[0, 0] to 0,5."));
});
