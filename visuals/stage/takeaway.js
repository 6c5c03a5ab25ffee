// Downloads: the scene as PNG, GIF or video, as SVG for a paper, as JSON data, or as a standalone page.
// Loaded on first use, joined with texts.js, svg.js, wrap.js and strip_figure.js into a module that imports nothing.

import { StripFigure } from "./strip_figure.js";
import { SvgContext, escaped } from "./svg.js";
import { count, decimal, language, mark, stepText, tr, trn } from "./texts.js";
import { wrap } from "./wrap.js";

const MIME = { html: "text/html", png: "image/png", gif: "image/gif", svg: "image/svg+xml", json: "application/json" };
const MAX_FRAMES = 300, MAX_GIF_PIXELS = 160e6, MAX_FRAME_PIXELS = 4e6; // limits of the server
const FPS = 30, MAX_VIDEO_MS = 60000, LAST_FRAME_EXTRA_MS = 1500; // ms
const VIDEO_PIXELS = 2.1e6; // 1920 x 1080: above that an encoder is too slow
const VIDEOS = [["video/mp4;codecs=avc1.640028", "mp4"], ["video/mp4;codecs=avc1.42E01F", "mp4"], ["video/mp4;codecs=avc1", "mp4"],
  ["video/webm;codecs=vp9", "webm"], ["video/webm;codecs=vp8", "webm"]];
const SCENE_PLACEHOLDER = "KERNEL/THEATRE/SCENE"; // as in standalone.py

const MAKERS = { html, png, gif, video, svg, json };

// Resolves to {blob, name, note}; note is a sentence if the file differs from the request, else "".
export async function makeFile(kind, stage) {
  if (!Object.hasOwn(MAKERS, kind)) throw new Error(tr("There is no {kind} to take away.", { kind }));
  stage.signal?.throwIfAborted();
  stage.progress?.(0);
  const made = await MAKERS[kind](stage);
  stage.progress?.(1);
  return { note: "", ...made };
}

export function nameOf(stage, ending, ...parts) {
  const slug = (text) => String(text).toLowerCase().replace(/(\d),(?=\d)/g, "$1").replace(/[^\p{L}\p{Nd}]+/gu, "-").replace(/^-+|-+$/g, "");
  return `${[stage.scene.title, ...parts].map(slug).filter(Boolean).join("-").slice(0, 80) || "scene"}.${ending}`;
}

const stepPart = ({ scene }, step) => `${scene.stepName} ${step + 1}`;
const rangePart = ({ range: [from, to], scene }) => (to - from + 1 === scene.steps ? "" : `${from + 1}-${to + 1}`);

// -- pictures --------------------------------------------------------------------------------------------------
async function png(stage) {
  const blob = toPng(new Figure(stage, [stage.step]).canvas(stage.step, 2));
  return { blob, name: nameOf(stage, "png", stepPart(stage, stage.step)) };
}

async function svg(stage) {
  return { blob: new Blob([svgOf(stage)], { type: MIME.svg }), name: nameOf(stage, "svg", stepPart(stage, stage.step)) };
}

export function svgOf(stage, measure = measureOnCanvas) {
  const { scene, step } = stage, figure = new Figure(stage, [step], measure);
  const ctx = new SvgContext(measure);
  figure.paint(ctx, step, 1);
  return ctx.text(figure.width, figure.height, `${scene.title}, ${stepText(scene, step)}`, sentence(stage, step));
}

async function gif(stage) {
  if (!stage.assets.gif) throw new Error(tr("GIFs are made by the app's server. This file has none."));
  const [from, to] = stage.range, all = to - from + 1;
  const pixels = new Figure(stage, [to]).pixels;
  const steps = thin(from, to, Math.max(2, Math.min(MAX_FRAMES, Math.floor(MAX_GIF_PIXELS / pixels))));
  const figure = new Figure(stage, steps);
  const maxPixels = Math.min(MAX_FRAME_PIXELS, MAX_GIF_PIXELS / 2 / steps.length);
  const scale = [2, 1.5].find((s) => figure.pixels * s * s <= maxPixels) || Math.min(1, Math.sqrt(MAX_FRAME_PIXELS / figure.pixels));
  const parts = [];
  for (const [k, step] of steps.entries()) {
    stage.signal?.throwIfAborted();
    const frame = toPng(figure.canvas(step, scale));
    parts.push(Uint32Array.of(frame.size), frame); // little endian on every platform with browsers
    stage.progress?.((0.7 * (k + 1)) / steps.length);
    await nextTask(); // between two pictures the page draws and reacts to keys
  }
  const ms = Math.round(Math.min(5000, Math.max(20, stage.msPerStep)));
  const response = await fetch(`${stage.assets.gif}?ms=${ms}&lang=${language()}`, { method: "POST", body: new Blob(parts), signal: stage.signal })
    .catch((error) => { throw error.name === "AbortError" ? error : new Error(tr("The app's server cannot be reached.")); });
  if (!response.ok) throw new Error(await errorText(response));
  const thinned = steps.length < all, shown = count(steps.length);
  return {
    blob: await response.blob(),
    name: nameOf(stage, "gif", rangePart(stage), thinned ? tr("{shown} of {all} steps", { shown: steps.length, all }) : ""),
    note: thinned ? trn("The GIF shows {shown} of the {n} step, evenly chosen.", "The GIF shows {shown} of the {n} steps, evenly chosen.", all, { shown }) : "",
  };
}

// The text of an error. The server sends plain text; a proxy before it may send anything.
async function errorText(response) {
  const plain = (response.headers.get("content-type") || "").startsWith("text/plain");
  return (plain && (await response.text()).slice(0, 300)) || tr("The app's server made no GIF ({status}).", { status: response.status });
}

// At most `max` of the steps from..to, evenly spaced, including both ends.
export function thin(from, to, max) {
  const count = to - from + 1, n = Math.min(count, max);
  return Array.from({ length: n }, (_, k) => from + (n > 1 ? Math.round((k * (count - 1)) / (n - 1)) : count - 1));
}

async function video(stage) {
  const [type, ending] = globalThis.MediaRecorder ? VIDEOS.find(([type]) => MediaRecorder.isTypeSupported(type)) || [] : [];
  if (!type) throw new Error(tr("This browser records no video. A GIF shows the same."));
  const [from, to] = stage.range, requested = (to - from + 1) * stage.msPerStep, length = Math.min(requested, MAX_VIDEO_MS);
  const figure = new Figure(stage, thin(from, to, to - from + 1));
  const scale = Math.min(2, Math.sqrt(VIDEO_PIXELS / figure.pixels));
  const canvas = figure.canvas(from - 1, scale);
  const recorder = new MediaRecorder(canvas.captureStream(FPS), { mimeType: type, videoBitsPerSecond: 8e6 });
  const chunks = [];
  recorder.ondataavailable = ({ data }) => chunks.push(data);
  const done = new Promise((resolve, reject) => {
    recorder.onstop = resolve;
    recorder.onerror = () => reject(new Error(tr("The browser's video encoder failed. A GIF shows the same.")));
  });
  done.catch(() => {}); // awaited below, but it may reject before that
  recorder.start(1000);
  try {
    const start = performance.now(), all = length + LAST_FRAME_EXTRA_MS;
    for (let passed = 0; passed < all && recorder.state === "recording"; passed = performance.now() - start) {
      stage.signal?.throwIfAborted();
      figure.canvas(Math.min(to, from - 1 + (to - from + 1) * (passed / length)), scale, canvas);
      stage.progress?.(passed / all);
      await new Promise((resolve) => setTimeout(resolve, 1000 / FPS)); // not requestAnimationFrame: a hidden page has no frames
    }
  } finally {
    if (recorder.state !== "inactive") recorder.stop();
    for (const track of recorder.stream.getTracks()) track.stop();
  }
  await done;
  const faster = requested / length > 1.01, times = decimal((requested / length).toFixed(1));
  return {
    blob: new Blob(chunks, { type: type.split(";")[0] }),
    name: nameOf(stage, ending, rangePart(stage), faster ? tr("{times} times as fast", { times }) : ""),
    note: faster ? tr("The video runs {times} times as fast as the stage, so that it ends within a minute.", { times }) : "",
  };
}

// Not toBlob: it waits until the page is idle, which at a page that draws is a second for each picture.
function toPng(canvas) {
  const text = atob(canvas.toDataURL(MIME.png).split(",")[1]);
  if (!text) throw new Error(tr("The picture is too large for this browser."));
  const bytes = new Uint8Array(text.length);
  for (let k = 0; k < bytes.length; k++) bytes[k] = text.charCodeAt(k);
  return new Blob([bytes], { type: MIME.png });
}

// Not setTimeout: in a hidden page each would wait for a second.
const nextTask = () => new Promise((resolve) => {
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = () => { port1.close(); resolve(); };
  port2.postMessage(null);
});

// -- the figure: the picture, under it the title, the caption of the step and the strip ------------------------------
const MARGIN = 16, TITLE = 15, CAPTION = 14, LINE = 21; // px, at the default font size

const sentence = (stage, step) => stage.caption(step).map((part) => part.text).join("");

// Its size fits the longest caption of `steps`, so that all frames have one size.
export class Figure {
  constructor(stage, steps, measure = measureOnCanvas) {
    const unit = (parseFloat(stage.font(CAPTION, false).match(/[\d.]+px/)) || CAPTION) / CAPTION; // the font is larger on a projector
    Object.assign(this, { stage, measure, margin: unit * MARGIN, line: unit * LINE, width: Math.ceil(stage.width), top: Math.ceil(stage.height) });
    const longest = steps.map((step) => [sentence(stage, step).length, step]).sort(([a], [b]) => b - a).slice(0, 12);
    this.lines = Math.max(1, ...longest.map(([, step]) => this.wrapped(step).length));
    this.stripTop = this.top + Math.ceil(1.5 * this.margin + (1 + this.lines) * this.line);
    this.strip = stage.strip && new StripFigure(stage.strip, this.width - 2 * this.margin, unit, stage.font, measure);
    this.height = this.stripTop + (this.strip ? Math.ceil(this.strip.height + 1.5 * this.margin) : 0);
  }

  get pixels() {
    return this.width * this.height;
  }

  wrapped(step) {
    const { stage } = this;
    return wrap(stage.caption(step), this.width - 2 * this.margin, (text, role) => this.measure(text, stage.font(CAPTION, Boolean(role))));
  }

  // Draws on a new canvas or the given one, with even numbers of pixels, as video encoders need.
  canvas(t, scale, canvas = document.createElement("canvas")) {
    const even = (v) => 2 * Math.ceil((v * scale) / 2);
    if (canvas.width !== even(this.width)) canvas.width = even(this.width);
    if (canvas.height !== even(this.height)) canvas.height = even(this.height);
    this.paint(canvas.getContext("2d"), t, scale);
    return canvas;
  }

  paint(ctx, t, scale) {
    const { stage, margin, line, width, top } = this, { tokens } = stage.theme, { scene } = stage;
    const step = Math.max(0, Math.ceil(t));
    ctx.setTransform(scale, 0, 0, scale, 0, 0);
    ctx.fillStyle = tokens.ground;
    ctx.fillRect(0, 0, width + 2 / scale, this.height + 2 / scale); // including the pixels added to make it even
    ctx.save();
    ctx.beginPath();
    ctx.rect(0, 0, width, top);
    ctx.clip(); // a zoomed scene is larger than the picture
    stage.paint(ctx, t);
    ctx.restore();
    ctx.globalAlpha = 1;
    ctx.textBaseline = "alphabetic";
    const write = (text, x, y, px, bold, colour, align = "left") => {
      Object.assign(ctx, { font: stage.font(px, bold), fillStyle: colour, textAlign: align });
      ctx.fillText(text, x, y);
    };
    let y = top + margin / 2 + line;
    write(scene.title, margin, y, TITLE, true, tokens.ink);
    write(stepText(scene, step), width - margin, y, CAPTION, false, tokens.dim, "right");
    for (const runs of this.wrapped(step).slice(0, this.lines)) {
      y += line;
      for (const { text, role, x } of runs) write(text, margin + x, y, CAPTION, Boolean(role), tokens[role] || tokens.ink);
    }
    if (!this.strip) return;
    ctx.fillStyle = tokens.line;
    ctx.fillRect(0, this.stripTop, width, 1);
    this.strip.paint(ctx, margin, this.stripTop + margin / 2 + 2, tokens);
  }
}

let probe = null;
function measureOnCanvas(text, font) {
  probe ||= document.createElement("canvas").getContext("2d");
  probe.font = font;
  return probe.measureText(text).width;
}

// -- data --------------------------------------------------------------------------------------------------------
const ABOUT = mark("A scene of Kernel Theatre: tensors, the steps at which their cells are written, and a sentence for each step. "
  + "Cells are numbered from 0 in the order plane, row, column. Steps are numbered from 0. "
  + "A write puts a value into cell cells[k] at step steps[k mod steps.length]; if cells is null, into all cells in their order. "
  + "The value is values[k], or the value of cell index[k] of its source at that step (-1: a zero of the padding). "
  + "A write that reshapes moves no bytes: it shows the cells of its source under another index. "
  + "A read: step t reads cells[start[t]] up to but not including cells[start[t + 1]] of its source. "
  + "A matmul: out = left * right + rest. "
  + "A view is never written: its cell k shows cell index[k] of its source. "
  + "captions[t] is the sentence of step t. If source.lines holds one number, that line runs at all steps. Each of nextSources is shown from its step since on.");
async function json(stage) {
  return { blob: new Blob([pretty(jsonOf(stage))], { type: MIME.json }), name: nameOf(stage, "json") };
}

// The scene with every array written out. `read` reads an entry of the block (reader in decode.js).
export function jsonOf({ head, read, caption }) {
  const { meta } = head;
  const plain = (value) => {
    if (!value || typeof value !== "object") return value;
    if (Array.isArray(value)) return value.map(plain);
    if (value.dtype) return Array.from(read(value), value.dtype === "f4" ? shortest : Number);
    const members = Object.fromEntries(Object.entries(value).map(([name, member]) => [name, plain(member)]));
    return members.row && members.col && members.padding ? summed(members) : members;
  };
  const { version, captions, ...rest } = meta;
  const scene = plain(rest);
  if (scene.lanes) scene.lanes.mask = scene.lanes.mask.map((mask) => mask >>> 0); // bit 31 is a lane, not a sign
  for (const r of scene.reads || []) if (r.first) writeOut(r, scene.tensors.find((t) => t.name === r.source).cols);
  const sources = [scene.source, ...(scene.nextSources || [])];
  for (const source of scene.nextSources || []) if (source.like !== undefined) {
    const { like, since } = source;
    delete source.like;
    Object.assign(source, sources[like], { since });
  }
  for (const source of sources) delete source?.colours; // syntax highlighting, not part of the scene
  const sentences = Array.from({ length: meta.steps }, (_, step) => sentence({ caption }, step));
  return { format: "kernel-theatre scene", version, about: tr(ABOUT), ...scene, captions: sentences };
}

// The cells of reads that were sent as the first cell and the columns of each step's rectangle.
function writeOut(r, width) {
  r.cells = r.first.flatMap((first, step) => Array.from({ length: r.start[step + 1] - r.start[step] }, (_, n) =>
    first + Math.floor(n / r.cols[step]) * width + (n % r.cols[step])));
  delete r.first;
  delete r.cols;
}

// An index that was sent as the sum row[i] + col[j] and the positions of its padding.
function summed({ row, col, padding }) {
  const index = row.flatMap((r) => col.map((c) => r + c));
  for (const k of padding) index[k] = -1;
  return index;
}

// The shortest decimal that gives the same float32.
function shortest(v) {
  if (!Number.isFinite(v)) return String(v); // JSON has no such number
  for (let digits = 6; digits < 9; digits++) if (Math.fround(+v.toPrecision(digits)) === v) return +v.toPrecision(digits);
  return +v.toPrecision(9);
}

// JSON with one line per member; arrays of numbers and of short texts are on one line.
export function pretty(value, indent = "") {
  const items = value && typeof value === "object" ? Object.values(value) : [];
  const flat = items.every((v) => v === null || typeof v === "number" || (typeof v === "string" && v.length < 40));
  if (!items.length || (flat && Array.isArray(value))) return JSON.stringify(value);
  const inner = `${indent}  `;
  const members = Array.isArray(value)
    ? value.map((v) => inner + pretty(v, inner))
    : Object.entries(value).filter(([, v]) => v !== undefined).map(([name, v]) => `${inner}${JSON.stringify(name)}: ${pretty(v, inner)}`);
  const [left, right] = Array.isArray(value) ? "[]" : "{}";
  return `${left}\n${members.join(",\n")}\n${indent}${right}`;
}

// -- standalone page ---------------------------------------------------------------------------------------------
async function html(stage) {
  if (!stage.assets.template) throw new Error(tr("This page is that file already. Save a copy of it."));
  const response = await fetch(`${stage.assets.template}?lang=${language()}`, { signal: stage.signal })
    .catch((error) => { throw error.name === "AbortError" ? error : new Error(tr("The app's server cannot be reached.")); });
  const template = response.ok ? await response.text() : "";
  if (!template.includes(SCENE_PLACEHOLDER)) throw new Error(tr("The app's server sent no page to put the scene in ({status}).", { status: response.status }));
  return { blob: new Blob([pageOf(template, stage)], { type: MIME.html }), name: nameOf(stage, "html") };
}

// The first placeholder is the scene's, because the page contains this file too. Functions, because $ is special in a
// replacement text.
export function pageOf(template, stage) {
  return template
    .replace(/<title>.*?<\/title>/, () => `<title>${escaped(stage.scene.title)} · Kernel Theatre</title>`)
    .replace(SCENE_PLACEHOLDER, () => base64(messageOf(stage)));
}

// The message of this stage with the current step and without URLs of a server.
export function messageOf({ head, block, step }) {
  const { bytes, block: _, assets, headText, strip = null, ...rest } = head;
  const [text, stripText] = [{ ...rest, step }, strip].map((part) => new TextEncoder().encode(JSON.stringify(part)));
  const message = new Uint8Array(8 + text.length + stripText.length + block.length), view = new DataView(message.buffer);
  view.setUint32(0, text.length, true);
  view.setUint32(4, stripText.length, true);
  message.set(text, 8);
  message.set(stripText, 8 + text.length);
  message.set(block, 8 + text.length + stripText.length);
  return message;
}

export function base64(bytes) {
  const parts = []; // in pieces: the number of arguments of a call is limited
  for (let k = 0; k < bytes.length; k += 0x8000) parts.push(String.fromCharCode(...bytes.subarray(k, k + 0x8000)));
  return btoa(parts.join(""));
}
