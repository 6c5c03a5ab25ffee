// The deck's plugin: parsing of URLs, messages and fragments.
import assert from "node:assert/strict";
import test from "node:test";

import "../../docs/deck/stage.js";

const { appAddress, heard, stepShown, stepIn } = globalThis.RevealStage;
const DEFAULT = "http://localhost:8501";

test("the app's URL is read from the deck's URL", () => {
  for (const [query, address] of [
    ["?app=http://127.0.0.1:9000", "http://127.0.0.1:9000"],
    ["?a=1&app=http://127.0.0.1:9000/#x", "http://127.0.0.1:9000"],
    ["?app=https%3A%2F%2Ftalk.example%2Ftheatre%2F%3Fq%3D1", "https://talk.example/theatre"],
    ["?app=http://me:secret@127.0.0.1:9000", "http://127.0.0.1:9000"],
  ])
    assert.equal(appAddress(query, DEFAULT), address);
});

test("a value that is not a web URL is ignored", () => {
  for (const app of ["", "localhost", "//host", "javascript:alert(1)", "data:text/html,x", "file:///etc", "http://"])
    assert.equal(appAddress(`?app=${encodeURIComponent(app)}`, DEFAULT), DEFAULT, app);
  assert.equal(appAddress("", DEFAULT), DEFAULT);
});

test("messages that are not from a stage are ignored", () => {
  assert.deepEqual(heard('{"stage":"at","step":5,"steps":36}'), { stage: "at", step: 5, steps: 36 });
  const others = [undefined, null, 7, {}, { stage: "at", step: 5 }, "", "slide:start", "null", "[]", '"at"', "{",
    '{"method":"next"}', '{"stage":"at"}', '{"stage":"at","step":"5"}', '{"stage":1,"step":5}', '{"stage":"at","step":0.5}'];
  for (const other of others) assert.equal(heard(other), null, String(other));
});

test("the last visible fragment, in the order of the talk, sets the step", () => {
  const fragment = (index, shown, step) => ({ index, shown, step });
  assert.equal(stepShown([]), null);
  assert.equal(stepShown([fragment(0, false, "7")]), null);
  assert.equal(stepShown([fragment(0, true, "7"), fragment(1, true, "9"), fragment(2, false, "11")]), 9);
  assert.equal(stepShown([fragment(1, true, "9"), fragment(0, true, "7")]), 9);
  assert.equal(stepShown([fragment(0, true, "7"), fragment(1, true, "soon")]), 7);
  assert.equal(stepShown([fragment(0, true, "0")]), 0);
});

test("before the first fragment, the URL sets the step", () => {
  assert.equal(stepIn("/im2col?embed=true&step=14&view=watch"), 14);
  assert.equal(stepIn("/im2col?step=14"), 14);
  for (const path of ["/im2col", "/im2col?steps=3", "/im2col?step=", "/im2col?step=-3", "/im2col?step=3x"])
    assert.equal(stepIn(path), 0, path);
});
