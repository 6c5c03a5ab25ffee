// Messages to the stage.
import assert from "node:assert/strict";
import { test } from "node:test";
import { embedded, readMessage } from "../../visuals/stage/frame.js";

test("goto, step, play, pause and answer are parsed from objects and from JSON", () => {
  for (const wrap of [(m) => m, JSON.stringify]) {
    assert.deepEqual(readMessage(wrap({ stage: "goto", step: 5 })), { goto: 5 });
    assert.deepEqual(readMessage(wrap({ stage: "step", by: -1 })), { by: -1 });
    assert.deepEqual(readMessage(wrap({ stage: "step" })), { by: 1 });
    assert.deepEqual(readMessage(wrap({ stage: "play" })), { play: true });
    assert.deepEqual(readMessage(wrap({ stage: "pause" })), { play: false });
    assert.deepEqual(readMessage(wrap({ stage: "answer" })), { answer: true });
  }
});

test("a message that is not for a stage gives null", () => {
  for (const data of [null, undefined, 5, "", "hello", "{", "{}", "[]", {}, { type: "x" }, { stage: 5 }, { stage: {} }, `{"stage":"goto","x":"${"y".repeat(2000)}"}`])
    assert.equal(readMessage(data), null);
});

test("an invalid message to a stage gives an Error", () => {
  for (const data of [
    { stage: "goto" }, { stage: "goto", step: "5" }, { stage: "goto", step: NaN }, { stage: "goto", step: 1e999 }, { stage: "step", by: 0.5 },
    { stage: "step", by: "1" }, { stage: "eval" }, { stage: "constructor" },
  ])
    assert.match(readMessage(data).message, /must be goto with a whole step/);
});

test("a page without a parent is not embedded", () => assert.equal(embedded, false));
