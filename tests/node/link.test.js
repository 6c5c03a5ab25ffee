// Parameters of the URL: parsing, notes on invalid ones, writing.
import assert from "node:assert/strict";
import { test } from "node:test";
import { openChapter, readLink, withState } from "../../visuals/stage/link.js";
import { shareTexts } from "../../visuals/stage/panels.js";

const scene = { steps: 36, tensors: { x: { size: 64 }, D: { size: 324 } } };
const read = (query) => readLink(query, "step", scene);

test("valid parameters are parsed", () => {
  const params = read("?H=9&step=7&speed=0.5&pin=x:63&zoom=2.5,0.3,1&loop=3-9&hide=kernel,link&size=real&version=3");
  assert.deepEqual(params, { step: 7, speed: 0.5, pin: { name: "x", index: 63 }, zoom: "2.5,0.3,1", loop: [3, 9], size: "real", hide: "kernel link", notes: [] });
  assert.deepEqual(read(""), { notes: [] });
  assert.deepEqual(read("?step=&speed="), { notes: [] });
  assert.deepEqual(read("?step=007").step, 7);
});

for (const [query, note] of [
  ["step=abc", "step must be a whole number; got “abc”."],
  ["step=-1", "step must be a whole number"],
  ["step=3.5", "step must be a whole number"],
  ["step=36", "This scene has 36 steps. The last one is shown."],
  [`step=${"9".repeat(40)}`, "This scene has 36 steps"],
  ["speed=3", "speed must be one of 0.25, 0.5, 1, 2, 4, 8; got “3”."],
  ["speed=Infinity", "speed must be one of"],
  ["pin=x:64", "pin must be a tensor and a cell of it"],
  ["pin=q:1", "pin must be"],
  ["pin=constructor:0", "pin must be"],
  ["pin=__proto__:0", "pin must be"],
  ["zoom=99,0.5,0.5", "zoom must be scale (1 to 24)"],
  ["zoom=2,NaN,0", "zoom must be"],
  ["zoom=2,x:64,0.5,0.5", "zoom must be"],
  ["zoom=99,x:3,0.5,0.5", "zoom must be"],
  ["zoom=2,x:3", "zoom must be"],
  ["zoom=2", "zoom must be"],
  ["loop=9-3", "loop must be the first and the last step"],
  ["loop=0-36", "loop must be"],
  ["hide=kernel,everything", "hide must be some of kernel, explain"],
  ["size=huge", "size must be stage or real; got “huge”."],
  ["version=4", "This link was made by a newer version (“4”; this is 3)"],
])
  test(`${query.slice(0, 30)} is ignored with a note`, () => {
    const params = read(query);
    assert.equal(params.notes.length, 1);
    assert.ok(params.notes[0].startsWith(note), params.notes[0]);
    for (const name of ["speed", "pin", "zoom", "loop", "size", "hide"]) assert.equal(params[name], undefined);
  });

test("a note shortens a long text", () => {
  const [note] = read(`speed=${encodeURIComponent("<img src=x onerror=alert(1)>".repeat(50))}`).notes;
  assert.ok(note.length < 100 && note.includes("…"));
});

test("other parameters of the query are unchanged", () => {
  assert.equal(withState("?H=9&picture=a%20b&step=3&x=%2B", { step: "4", pin: "x:2", zoom: "" }), "?H=9&picture=a%20b&x=%2B&step=4&pin=x:2");
  assert.equal(withState("?step=3", { step: "" }), "");
  assert.equal(withState("", { step: "" }), "");
});

test("copied links hold the state and are safe in HTML", () => {
  const { link, iframe, slide } = shareTexts("http://h:1/im2col?H=9&step=4&picture=%22%3E%3Cscript%3E", { title: 'a "title" <b>', version: 3 });
  assert.equal(new URL(link).searchParams.get("version"), "3");
  for (const text of [iframe, slide]) {
    assert.ok(!/<script|<b>|title="[^"]*<|""/.test(text));
    const href = text.match(/src="([^"]*)"/)[1].replaceAll("&amp;", "&");
    const params = new URL(href).searchParams;
    assert.equal(params.get("embed"), "true");
    assert.equal(params.get("view"), "watch");
    assert.equal(params.get("step"), "4");
    assert.equal(params.get("picture"), '"><script>');
    assert.equal(params.get("present"), text === slide ? "1" : null);
  }
  assert.match(slide, /^<section>\n {2}<iframe data-src=/);
});

test("links copied under an open chapter open that chapter", () => {
  for (const search of ["", "?step=4", "?view=story&chapter=2&step=4", "?chapter=2"]) {
    const { link, iframe, slide } = shareTexts(`http://h:1/im2col${search}`, { title: "im2col", version: 3 }, { number: 1 });
    const hrefs = [iframe, slide].map((text) => text.match(/src="([^"]*)"/)[1].replaceAll("&amp;", "&"));
    for (const href of [link, ...hrefs]) {
      const params = new URL(href).searchParams;
      assert.deepEqual([params.getAll("view"), params.getAll("chapter")], [["story"], ["2"]]);
    }
    assert.equal(new URL(hrefs[1]).searchParams.get("present"), "1");
  }
});

test("a chapter opens as an entry of the history, without what belongs to another chapter", () => {
  const entries = [], events = [];
  globalThis.location = "http://here/softmax?view=story&chapter=2&rung=online&step=7&hide=link";
  globalThis.history = { pushState: (state, title, url) => entries.push(String(url)) };
  globalThis.PopStateEvent = Event; // Node has none
  globalThis.dispatchEvent = (event) => events.push([event.type, entries.length]);
  openChapter({ clears: ["rung", "step", "loop"] }, 2);
  assert.deepEqual(entries, ["http://here/softmax?view=story&chapter=3&hide=link"]);
  assert.deepEqual(events, [["popstate", 1]]); // after the URL has changed
});
