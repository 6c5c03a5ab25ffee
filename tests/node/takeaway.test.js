// Downloads that need no canvas: data, drawings, the choice of frames, file names.
import assert from "node:assert/strict";
import test from "node:test";

import { reader, unpack } from "../../visuals/stage/decode.js";
import { StripFigure } from "../../visuals/stage/strip_figure.js";
import { SvgContext } from "../../visuals/stage/svg.js";
import { Figure, base64, jsonOf, makeFile, messageOf, nameOf, pageOf, pretty, svgOf, thin } from "../../visuals/stage/takeaway.js";
import { wrap } from "../../visuals/stage/wrap.js";

const MEASURE = (text, font) => text.length * 0.5 * parseFloat(font.match(/[\d.]+(?=px)/));
const TOKENS = { ground: "#ffffff", ink: "#111111", dim: "#777777", input: "#0071b1", line: "#e3e6eb", workspace: "#9a4f86", write: "#d55e00", output: "#008055" };
const STRIP = {
  stale: "", shape: "4,096³",
  time: { value: "16.4 ms", badge: { kind: "recorded", text: "recorded · H200" }, name: "tile", text: "1.4× as fast as naive.", bars: [
    { title: "naive", share: 1, low: 0.9, high: 1, text: "23.4 ms", current: false }, { title: "tile", share: 0.7, low: 0.7, high: 0.7, text: "16.4 ms", current: true }] },
  memory: { title: "Memory", badge: { kind: "recorded", text: "peak 201 MB" }, parts: [{ role: "input", label: "inputs", text: "134 MB", share: 1 }], text: "No workspace." },
  limits: { title: "What limits it", rows: [{ label: "arithmetic", share: 0.13, text: "13 %", main: false }, { label: "sectors", share: null, text: "–", main: false }], text: "Far from every ceiling." },
};
const CURVE = {
  title: "It learns", badge: { kind: "measured", text: "measured here" }, top: "2.5", right: "100 %", epochs: "2 epochs", text: "Step 4 of 4.", error: "",
  lines: [{ role: "write", name: "loss", points: [[0.25, 0.9], [0.5, 0.5], [1, 0.1]] }, { role: "output", name: "accuracy", points: [[0, 0.1], [1, 0.8]] },
    { role: "write", faint: true, name: "", points: [[0, 1], [1, 0]] }, { role: "output", faint: true, name: "", points: [] }],
};
const SENTENCES = [[{ text: "It begins.", role: "" }], [{ text: "Step 2 reads the ", role: "" }, { text: "in & put", role: "input" }, { text: ", <twice>.", role: "" }]];

// Arrays at odd offsets of a larger buffer: x = [0.1, -2], and an index as a sum with one cell of padding.
function message() {
  const whole = new Uint8Array(3 + 20), block = whole.subarray(3);
  block.set(new Uint8Array(Float32Array.of(0.1, -2).buffer));
  block.set([0, 4, 0, 0, 1, 2, 0, 0], 8);
  block.set(new Uint8Array(Int32Array.of(-1).buffer), 16);
  const entry = (dtype, offset, length) => ({ dtype, offset, length });
  const meta = {
    version: 3, key: "k", title: "Toy: one", steps: 2, stepName: "column",
    tensors: [{ name: "x", values: entry("f4", 0, 2), colIndex: null }],
    writes: [
      { target: "y", source: "x", steps: entry("u1", 8, 1), cells: null, values: null, index: { row: entry("u1", 8, 2), col: entry("u1", 12, 2), padding: entry("u1", 8, 1) } },
    ],
    captions: { templates: ["It begins."], kind: entry("u1", 8, 1), args: null, width: 0 },
    lanes: { warp: entry("u1", 8, 1), mask: entry("i4", 16, 1) },
    source: { file: "a.cu", text: "line\n", colours: entry("u1", 8, 2), lines: entry("u1", 12, 1), notes: { 3: "note" } },
  };
  return { head: { meta, step: 0, param: "step", tokens: {} }, block };
}

function stage(more) {
  const { head, block } = message();
  return {
    scene: { title: "Toy: one", stepName: "column", steps: 2 }, head, block, read: reader(block), step: 1, range: [0, 1], width: 300, height: 100,
    theme: { tokens: TOKENS }, font: (px, bold) => `${bold ? 600 : 400} ${px}px "Odd Sans", sans-serif`,
    caption: (step) => SENTENCES[step], msPerStep: 100, assets: {},
    paint: (ctx) => {
      ctx.fillStyle = "rgb(1,2,3)";
      ctx.fillRect(10, 10, 20, 20);
    },
    ...more,
  };
}

// Elements of an XML text as [name, attributes, text]; asserts that it is well-formed.
function parsed(xml) {
  const open = [], found = [];
  const body = xml.replace(/^<\?xml[^?]*\?>\s*/, "");
  for (const [, close, name, rest, empty, text] of body.matchAll(/<(\/?)([a-zA-Z]+)((?:\s+[\w-]+="[^"<&]*(?:&(?:amp|lt|gt|quot);[^"<&]*)*")*)\s*(\/?)>([^<]*)/g)) {
    assert.doesNotMatch(text, /&(?!(amp|lt|gt|quot);)|>/);
    if (close) assert.equal(open.pop(), name);
    else {
      found.push([name, Object.fromEntries([...rest.matchAll(/([\w-]+)="([^"]*)"/g)].map((m) => m.slice(1))), text.trim()]);
      if (!empty) open.push(name);
    }
  }
  assert.deepEqual(open, []);
  assert.equal(body.replace(/<\/?[a-zA-Z]+(?:\s+[\w-]+="[^"]*")*\s*\/?>/g, "").includes("<"), false, "no other \"<\"");
  return found;
}

const drawn = (draw) => {
  const ctx = new SvgContext(MEASURE);
  draw(ctx);
  return parsed(ctx.text(100, 50, "a title", "what it shows")).slice(3);
};

test("data: every array and every caption is written out", () => {
  const data = jsonOf({ ...stage(), ...message(), read: reader(message().block) });
  assert.deepEqual(Object.keys(data).slice(0, 3), ["format", "version", "about"]);
  assert.equal(data.format, "kernel-theatre scene");
  assert.equal(data.version, 3);
  assert.deepEqual(data.tensors, [{ name: "x", values: [0.1, -2], colIndex: null }]); // the shortest that is the same float32
  assert.deepEqual(data.writes[0].index, [-1, 2, 5, 6]);
  assert.deepEqual(data.captions, ["It begins.", "Step 2 reads the in & put, <twice>."]);
  assert.deepEqual(data.lanes.mask, [0xffffffff]);
  assert.deepEqual(data.source, { file: "a.cu", text: "line\n", lines: [1], notes: { 3: "note" } });
  assert.doesNotMatch(JSON.stringify(data), /dtype/);
});

test("float32 values keep their value in the shortest decimal", () => {
  const values = Float32Array.of(1 / 3, 1e-20, 16777217, 3.4028235e38, -0.7, 123456.79, 0);
  const { head, block } = message(), wide = new Uint8Array(values.buffer);
  head.meta.tensors[0].values = { dtype: "f4", offset: 0, length: values.length };
  const decimals = jsonOf({ ...stage(), head, read: reader(wide.length > block.length ? wide : block) }).tensors[0].values;
  assert.deepEqual(decimals.map(Math.fround), [...values]);
  assert.equal(decimals[4], -0.7);
});

test("arrays that are sent as changes, runs or places of values are written out as numbers", () => {
  const bytes = new Uint8Array(20), { head } = message();
  bytes.set([1, 2, 3, 250, 0, 0, 0, 0, 2, 0, 1]);
  const entries = { changes: { dtype: "i1", offset: 0, length: 4, from: 10 }, runs: { dtype: "u1", offset: 0, length: 2, from: 5, runs: { dtype: "u1", offset: 1, length: 2 } },
    places: { dtype: "f4", offset: 12, length: 2, index: { dtype: "u1", offset: 9, length: 2 } } };
  new Float32Array(bytes.buffer, 12, 2).set([0.5, -1]);
  const data = jsonOf({ ...stage(), head: { ...head, meta: { ...head.meta, entries } }, read: reader(bytes) });
  assert.deepEqual(data.entries, { changes: [10, 11, 13, 16, 10], runs: [5, 6, 7, 9, 11, 13], places: [0.5, -1] });
});

test("a source that is sent as the number of an equal one is written out", () => {
  const { head, block } = message(), meta = { ...head.meta, nextSources: [{ ...head.meta.source, file: "b.cu", since: 1 }, { like: 0, since: 2 }] };
  const { nextSources } = jsonOf({ ...stage(), head: { ...head, meta }, read: reader(block) });
  assert.deepEqual(nextSources.map((s) => [s.file, s.since]), [["b.cu", 1], ["a.cu", 2]]);
});

test("data is readable: numbers on one line, each member on its line", () => {
  const value = { a: [1, 2], b: { c: ["x", null], d: [], e: {} }, f: [{ g: "h" }], long: ["y".repeat(50)] };
  const text = pretty(value);
  assert.deepEqual(JSON.parse(text), value);
  assert.match(text, /^ {2}"a": \[1,2\],$/m);
  assert.match(text, /^ {4}"c": \["x",null\],$/m);
  assert.match(text, /^ {6}"g": "h"$/m);
});

test("a drawing: positions of fills, outlines and texts", () => {
  const [rect, outline, word] = drawn((ctx) => {
    ctx.setTransform(2, 0, 0, 2, 1, 0);
    ctx.fillStyle = "rgb(1, 2, 255)";
    ctx.globalAlpha = 0.5;
    ctx.fillRect(10, 10.004, 20, 5);
    ctx.globalAlpha = 1;
    ctx.strokeStyle = "#abc";
    ctx.lineWidth = 1.5;
    ctx.setLineDash([2, 1]);
    ctx.strokeRect(0.5, 0.5, 9, 9);
    ctx.setLineDash([]);
    Object.assign(ctx, { font: "600 10px sans-serif", textAlign: "center", textBaseline: "middle", fillStyle: "#000000" });
    ctx.fillText('<&">', 20, 20);
  });
  assert.deepEqual(rect, ["rect", { x: "21", y: "20.01", width: "40", height: "10", fill: "#0102ff", "fill-opacity": "0.5" }, ""]);
  assert.deepEqual(outline, ["rect", { x: "2", y: "1", width: "18", height: "18", fill: "none", stroke: "#abc", "stroke-width": "3", "stroke-dasharray": "4 2" }, ""]);
  assert.deepEqual(word, ["text", { x: "41", y: "47", "font-size": "20", "font-weight": "600", "text-anchor": "middle", fill: "#000000" }, "&lt;&amp;&quot;&gt;"]);
});

test("a drawing: rows of cells become one path for each colour, with neighbours of one colour merged", () => {
  const cells = drawn((ctx) => {
    for (let row = 0; row < 2; row++)
      for (let col = 0; col < 4; col++) {
        ctx.fillStyle = (row + col) % 4 < 2 ? "#aa0000" : "#0000bb";
        ctx.fillRect(3 * col, 3 * row, 3, 3);
      }
  });
  assert.deepEqual(cells, [
    ["path", { d: "M0 0H6V3H0ZM0 3H3V6H0ZM9 3H12V6H9Z", fill: "#aa0000" }, ""],
    ["path", { d: "M6 0H12V3H6ZM3 3H9V6H3Z", fill: "#0000bb" }, ""],
  ]);
});

test("a drawing: overlapping rectangles keep their order", () => {
  const order = drawn((ctx) => {
    for (const [colour, x, y, size] of [["#a", 0, 0, 30], ["#b", 5, 5, 4], ["#a", 9, 5, 4], ["#c", 8, 5, 4], ["#a", 20, 0, 4]]) {
      ctx.fillStyle = colour;
      ctx.fillRect(x, y, size, size);
    }
  });
  assert.deepEqual(order.map(([, { x, fill }]) => [x, fill]), [["0", "#a"], ["5", "#b"], ["9", "#a"], ["8", "#c"], ["20", "#a"]]);
});

test("a drawing: paths, clips and translations; restore resets them", () => {
  const ctx = new SvgContext(MEASURE);
  ctx.fillStyle = "#123456";
  ctx.save();
  ctx.beginPath();
  ctx.rect(0, 0, 10, 10);
  ctx.clip();
  ctx.translate(5, 0);
  ctx.fillStyle = "#ffffff";
  ctx.beginPath();
  ctx.roundRect(1, 2, 3, 4, 2);
  ctx.fill();
  ctx.restore();
  ctx.fillRect(1, 1, 1, 1);
  assert.equal(ctx.measureText("abcd").width, 20);
  const [, , , defs, clip, inClip, group, rounded, last] = parsed(ctx.text(10, 10, "t", "d"));
  assert.deepEqual([defs[0], clip, inClip[1].width, group], ["defs", ["clipPath", { id: "c0" }, ""], "10", ["g", { "clip-path": "url(#c0)" }, ""]]);
  assert.deepEqual(rounded, ["rect", { x: "6", y: "2", width: "3", height: "4", rx: "2", fill: "#ffffff" }, ""]);
  assert.deepEqual(last[1], { x: "1", y: "1", width: "1", height: "1", fill: "#123456" });
  assert.match(ctx.text(10, 10, "t", "d"), /<\/g>\n<rect/);
});

test("an SVG has the title and the caption, escaped, in the roles' colours", () => {
  const found = parsed(svgOf(stage(), MEASURE));
  assert.deepEqual(found.slice(1, 3).map(([name, , text]) => [name, text]),
    [["title", "Toy: one, column 2 of 2"], ["desc", "Step 2 reads the in &amp; put, &lt;twice&gt;."]]);
  assert.equal(found[0][1]["font-family"], "&quot;Odd Sans&quot;, sans-serif");
  const words = found.filter(([name]) => name === "text");
  assert.deepEqual(words.map(([, , text]) => text), ["Toy: one", "column 2 of 2", "Step 2 reads the", "in &amp; put", ", &lt;twice&gt;."]);
  assert.equal(words[3][1].fill, TOKENS.input);
  assert.ok(found.some(([, { fill, width }]) => fill === "#010203" && width === "20"));
  assert.ok(words.every(([, { y }]) => +y > 100 && +y < +found[0][1].height));
});

test("frames have one size, which depends on the longest caption and the font size", () => {
  const narrow = { width: 120 };
  const size = (steps, more) => new Figure(stage({ ...narrow, ...more }), steps, MEASURE).height;
  assert.ok(size([1]) > size([0]));
  assert.equal(size([0, 1]), size([1]));
  assert.ok(size([0], { font: (px) => `400 ${2 * px}px x` }) > size([0]));
});

test("lines break only between words, and a word may have several colours", () => {
  const lines = wrap(SENTENCES[1], 100, (text) => 5 * text.length);
  assert.deepEqual(lines.map((runs) => runs.map((run) => run.text)), [["Step 2 reads the", "in"], ["& put", ", <twice>."]]);
  assert.deepEqual(lines[0].map((run) => run.x), [0, 85]);
  assert.deepEqual(lines[1].map((run) => run.x), [0, 25]);
  assert.deepEqual(wrap([{ text: "averylongword next", role: "" }], 10, (text) => 5 * text.length).length, 2);
  assert.deepEqual(wrap([], 100, () => 5), [[]]);
});

test("thinned steps are evenly spaced and include both ends", () => {
  assert.deepEqual(thin(3, 7, 300), [3, 4, 5, 6, 7]);
  assert.deepEqual(thin(0, 10, 3), [0, 5, 10]);
  assert.deepEqual(thin(4, 4, 300), [4]);
  assert.deepEqual(thin(0, 9, 1), [9]);
  const many = thin(0, 899, 300), apart = many.slice(1).map((step, k) => step - many[k]);
  assert.equal(many.length, 300);
  assert.deepEqual([many[0], many.at(-1)], [0, 899]);
  assert.ok(apart.every((gap) => gap === 3 || gap === 4));
});

test("file names hold the scene and the part", () => {
  assert.equal(nameOf(stage(), "png", "column 1,000"), "toy-one-column-1000.png");
  assert.equal(nameOf(stage(), "gif", "", "300 of 900 steps"), "toy-one-300-of-900-steps.gif");
  assert.equal(nameOf({ scene: { title: "../..//" } }, "svg"), "scene.svg");
  assert.equal(nameOf({ scene: { title: "x".repeat(200) } }, "svg").length, 84);
});

test("a standalone page holds the message with the current step", () => {
  const { head, block } = message();
  const sent = { ...head, headText: "{}", strip: STRIP, bytes: new Uint8Array(9), block, assets: { gif: "/gif" } }; // as the player stores it
  const made = messageOf({ head: sent, block, step: 1 });
  const { bytes, headText, strip, block: sentBlock, ...sentHead } = unpack(made);
  assert.deepEqual(sentHead, { ...head, step: 1 });
  assert.deepEqual(strip, STRIP);
  assert.deepEqual(sentBlock, Uint8Array.from(block));
  const page = pageOf("<title>T</title><script>KERNEL/THEATRE/SCENE</script><script>KERNEL/THEATRE/SCENE</script>",
    { scene: { title: "a < b $& c" }, head: sent, block, step: 1 });
  assert.equal(page, `<title>a &lt; b $&amp; c · Kernel Theatre</title><script>${base64(made)}</script><script>KERNEL/THEATRE/SCENE</script>`);
});

test("a picture holds the strip: every figure of it, below the caption", () => {
  const plain = new Figure(stage(), [1], MEASURE);
  for (const width of [300, 900]) {
    const one = stage({ strip: STRIP, width }), texts = parsed(svgOf(one, MEASURE)).filter(([name]) => name === "text");
    const figure = new Figure(one, [1], MEASURE), words = texts.map(([, , text]) => text).join(" ");
    assert.ok(figure.height > plain.height);
    for (const part of ["16.4 ms", "recorded · H200", "tile · 4,096³", "naive", "23.4 ms", "Memory", "inputs 134 MB", "What limits it", "13 %", "Far from every ceiling."])
      assert.ok(words.includes(part), `${part} is missing at ${width}: ${words}`);
    for (const [, { x, y }] of texts) assert.ok(+x >= 0 && +x <= width && +y <= figure.height, "inside the picture");
  }
});

test("in the strip of a picture no bar and no label is under a figure", () => {
  const bars = [["memory bandwidth", "19.5 µs · 28 Nov"], ["arithmetic (FP32 on tensor cores)", "< 0.001 %"], ["a kernel with quite a long name", "1.05 ms"]];
  const rows = bars.map(([title, text], n) => ({ title, label: title, text, share: 1 - n / 4 }));
  for (const width of [220, 300, 420, 640, 900]) {
    const drawn = [], ctx = {
      fillRect: (x, y, w, h) => drawn.push({ x, y, w, h }),
      fillText: (text, x, y) => {
        const w = MEASURE(text, ctx.font);
        drawn.push({ text, x: ctx.textAlign === "right" ? x - w : x, y: y - 10, w, h: 11 });
      },
    };
    const strip = { ...STRIP, time: { ...STRIP.time, bars: rows }, limits: { ...STRIP.limits, rows } };
    const figure = new StripFigure(strip, width, 1, (px, bold) => `${bold ? 600 : 400} ${px}px x`, MEASURE);
    figure.paint(ctx, 0, 0, TOKENS);
    const meets = (a, b) => a !== b && a.x < b.x + b.w - 0.5 && b.x < a.x + a.w - 0.5 && a.y < b.y + b.h && b.y < a.y + a.h;
    const texts = drawn.filter(({ text }) => text);
    assert.deepEqual(texts.flatMap((a) => drawn.filter((b) => meets(a, b)).map((b) => [width, a.text, b.text ?? "bar"])), []);
    const words = texts.map(({ text }) => text).join(" ");
    for (const part of ["memory", "bandwidth", "19.5 µs", "< 0.001 %"]) assert.ok(words.includes(part), `${part} at ${width}: ${words}`);
    assert.ok(drawn.every(({ y, h }) => y + h <= figure.height + 1));
  }
});

test("a picture holds the curves of a training: every line in its column, the recorded ones dashed", () => {
  const error = "Diverged: step 3.";
  for (const width of [300, 900]) {
    const one = stage({ strip: { ...STRIP, curve: CURVE }, width }), found = parsed(svgOf(one, MEASURE)), figure = new Figure(one, [1], MEASURE);
    const words = found.filter(([name]) => name === "text").map(([, , text]) => text).join(" ");
    for (const part of ["It learns", "measured here", "loss", "accuracy", "2.5", "100 %", "2 epochs", "Step 4 of 4."]) assert.ok(words.includes(part), `${part} is missing at ${width}`);
    const lines = found.filter(([name, { fill, d }]) => name === "path" && fill === "none" && d.split("L").length > 1).map(([, attributes]) => attributes);
    const own = lines.filter(({ stroke }) => stroke === TOKENS.write || stroke === TOKENS.output);
    assert.deepEqual(own.map((l) => l.d.split("L").length), [3, 2, 2]); // an empty line is left out
    assert.deepEqual(own.map((l) => Boolean(l["stroke-dasharray"])), [false, false, true]);
    for (const { d } of lines) for (const [, x, y] of d.matchAll(/[ML]([\d.]+) ([\d.]+)/g)) assert.ok(+x <= width && +y <= figure.height, "inside the picture");
    const [, , y0] = own[0].d.match(/M([\d.]+) ([\d.]+)/), [, , y1] = own[0].d.match(/L([\d.]+) ([\d.]+)$/);
    assert.ok(+y0 < +y1, "a loss that falls goes down");
    const wrong = stage({ strip: { ...STRIP, curve: { ...CURVE, error } }, width }), texts = parsed(svgOf(wrong, MEASURE)).map(([, , text]) => text).join(" ");
    assert.ok(texts.includes(error) && !texts.includes("Step 4 of 4."));
  }
});

test("base64 of any length", () => {
  const bytes = Uint8Array.from({ length: 100_003 }, (_, k) => (k * 7) % 256);
  assert.equal(base64(bytes), Buffer.from(bytes).toString("base64"));
});

// Mocks a canvas, whose PNG is the last element drawn on it, and a server with this answer.
function mock(t, answer, png = (text) => `data:image/png;base64,${Buffer.from(text).toString("base64")}`) {
  const sent = [];
  const canvas = () => {
    const ctx = new SvgContext(MEASURE);
    return { width: 0, height: 0, getContext: () => ctx, toDataURL: () => png(ctx.out.at(-1)) };
  };
  Object.assign(globalThis, { document: { createElement: canvas } });
  t.mock.method(globalThis, "fetch", async (url, { body }) => {
    sent.push({ url, body: new Uint8Array(await body.arrayBuffer()) });
    return answer();
  });
  t.after(() => delete globalThis.document);
  return sent;
}

test("the server receives one frame for each step of the range, each after its length", async (t) => {
  const sent = mock(t, () => new Response("GIF89a"));
  const { blob, name, note } = await makeFile("gif", stage({ assets: { gif: "/stage/gif" }, msPerStep: 12.5, range: [0, 1] }));
  assert.deepEqual([name, note, await blob.text(), sent[0].url], ["toy-one.gif", "", "GIF89a", "/stage/gif?ms=20&lang=en"]);
  const frames = [], { body } = sent[0];
  for (let at = 0; at < body.length; ) {
    const length = new DataView(body.buffer).getUint32(at, true);
    frames.push(new TextDecoder().decode(body.subarray(at + 4, at + 4 + length)));
    at += 4 + length;
  }
  assert.deepEqual(frames.map((frame) => frame.match(/>(.*)</)[1]), ["It begins.", ", &lt;twice&gt;."]);
  assert.equal((await makeFile("gif", stage({ assets: { gif: "/g" }, range: [1, 1] }))).name, "toy-one-2-2.gif");
});

test("a long range is thinned to what the server takes, and a note says so", async (t) => {
  const sent = mock(t, () => new Response("GIF89a"));
  const long = stage({ assets: { gif: "/g" }, range: [0, 1185], caption: () => SENTENCES[0] });
  long.scene.steps = 1186;
  const { name, note } = await makeFile("gif", long);
  let frames = 0;
  for (let at = 0, { body } = sent[0]; at < body.length; frames++) at += 4 + new DataView(body.buffer).getUint32(at, true);
  assert.ok(frames > 200 && frames <= 300, frames);
  assert.equal(name, `toy-one-${frames}-of-1186-steps.gif`);
  assert.match(note, new RegExp(`${frames} of the 1,186 steps`));
});

test("an error text of the server is shown, that of a proxy is not", async (t) => {
  const answers = [
    [() => new Response("Too large", { status: 413 }), "Too large"],
    [() => new Response("<h1>?</h1>", { status: 502, headers: { "content-type": "text/html" } }), "The app's server made no GIF (502)."],
    [() => { throw new TypeError("fetch failed"); }, "The app's server cannot be reached."],
  ];
  mock(t, () => answers[0][0]());
  for (; answers.length; answers.shift())
    await assert.rejects(makeFile("gif", stage({ assets: { gif: "/stage/gif" } })), { message: answers[0][1] });
});

test("a picture that the browser cannot encode is an error, and nothing is sent", async (t) => {
  const sent = mock(t, () => new Response("GIF89a"), () => "data:,"); // what a canvas that is too large returns
  await assert.rejects(makeFile("gif", stage({ assets: { gif: "/stage/gif" } })), { message: "The picture is too large for this browser." });
  assert.deepEqual(sent, []);
});

test("a file that cannot be made throws a sentence", async () => {
  await assert.rejects(makeFile("gif", stage()), { message: "GIFs are made by the app's server. This file has none." });
  await assert.rejects(makeFile("html", stage()), { message: "This page is that file already. Save a copy of it." });
  await assert.rejects(makeFile("video", stage()), /records no video/);
  await assert.rejects(makeFile("toString", stage()), /There is no toString/);
  await assert.rejects(makeFile("json", stage({ signal: AbortSignal.abort() })), { name: "AbortError" });
  const parts = [], { blob, name, note } = await makeFile("json", stage({ progress: (part) => parts.push(part) }));
  assert.deepEqual([name, note, parts.at(-1)], ["toy-one.json", "", 1]);
  assert.equal(JSON.parse(await blob.text()).title, "Toy: one");
});
