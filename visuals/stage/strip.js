// The measured strip under the picture: time, memory and limits of the kernel on the stage, at one of its sizes. All texts
// and shares come ready to show; this module only places them.

import { element } from "./side_panel.js";

// The size of the strip that is shown: the chosen one, else the one selected by the page.
export const sizeOf = (strip, key) => strip?.sizes.find((size) => size.key === key) || strip?.sizes.find((size) => size.key === strip.selected) || strip?.sizes[0];

// Fills the strip; null hides it. `key` is the chosen size. With `asks` the figures wait for a guess.
export function fillStrip(box, strip, key, asks) {
  box.hidden = !strip;
  if (!strip) return;
  const size = sizeOf(strip, key), { run } = strip;
  box.classList.toggle("stale", Boolean(size.stale));
  box.classList.toggle("asks", Boolean(asks));
  const focused = box.getRootNode().activeElement?.dataset?.strip;
  box.classList.toggle("with-curve", Boolean(size.curve));
  box.replaceChildren(timePart(strip, size, run), memoryPart(size.memory), limitsPart(size.limits), ...(size.curve ? [curvePart(size.curve)] : []));
  if (asks) box.firstElementChild.append(askPart(strip.texts));
  if (focused) box.querySelector(`[data-strip="${focused}"]`)?.focus({ preventScroll: true });
}

const badge = ({ kind, text, hint = "" }) => Object.assign(element("span", `badge badge-${kind}`, text), { title: hint });

function button(name, label, className) {
  const made = Object.assign(element("button", className, label), { type: "button" });
  made.dataset.strip = name;
  return made;
}

// Covers the figures while a question waits for a guess.
function askPart(texts) {
  const part = element("div", "strip-ask");
  part.append(element("p", "", texts.ask), button("reveal", texts.reveal, "chip"));
  return part;
}

// -- time ---------------------------------------------------------------------------------------------------
function timePart(strip, size, run) {
  const { time } = size, part = element("div", "strip-time"), head = element("div", "strip-head"), text = element("p", "strip-text");
  head.append(element("strong", "strip-value", time.value));
  if (time.badge) head.append(badge(time.badge));
  if (size.stale) head.append(element("span", "strip-stale", size.stale));
  if (size.disturbed) head.append(element("span", "strip-disturbed", size.disturbed));
  if (size.canPut) head.append(button("put", strip.texts.put, "plain"));
  head.append(runPart(run));
  text.append(element("b", "", time.name), ` · ${size.shape}. ${time.text}`);
  part.append(head, text, barsList(time.bars), ...sizesLine(strip, size));
  return part;
}

// The sizes as a choice, each with its time.
function sizesLine(strip, shown) {
  if (strip.sizes.length < 2) return [];
  const line = element("div", "strip-sizes");
  for (const size of strip.sizes) {
    const choice = button(`size-${size.key}`, size.choice ?? `${size.label}: ${size.time.value}`, "chip");
    choice.setAttribute("aria-pressed", String(size === shown));
    line.append(choice);
  }
  return [line];
}

// Run or Stop; while something runs, how far it is; an error.
function runPart(run) {
  const line = element("div", "strip-run");
  if (run.error || run.text) {
    const text = element("span", run.error ? "strip-error" : run.hint ? "brief" : "strip-note", run.error || run.text);
    text.setAttribute("role", run.error ? "alert" : "status");
    line.append(text);
  }
  if (run.running) {
    const bar = element("i", "strip-progress");
    bar.style.setProperty("--share", run.share);
    line.append(bar);
  }
  if (run.can || run.running) line.append(Object.assign(button(run.running ? "stop" : "run", run.label, run.running ? "chip" : "primary"), { title: run.hint }));
  return line;
}

function barsList(bars) {
  const list = element("ol", "strip-bars");
  list.append(...bars.map((bar) => {
    const row = element("li", bar.current || bar.main ? "current" : ""), track = element("span", "strip-track"), fill = element("i");
    if (bar.share === null) track.classList.add("unknown");
    fill.style.setProperty("--share", bar.share ?? 0);
    track.append(fill);
    if (bar.high !== undefined) {
      const spread = element("b");
      spread.style.setProperty("--low", bar.low);
      spread.style.setProperty("--high", bar.high);
      track.append(spread);
    }
    row.title = [bar.title, bar.hint].filter(Boolean).join(". ");
    const number = element("span", "strip-number", bar.text);
    if (bar.day) number.append(" ", element("span", "strip-day", bar.day));
    const label = element("span", "strip-label", bar.title ?? bar.label);
    if (bar.tag) label.prepend(element("span", "strip-tag", bar.tag), " ");
    row.append(label, track, number);
    return row;
  }));
  return list;
}

// -- memory -------------------------------------------------------------------------------------------------
function memoryPart({ title, badge: source, parts, text, secret }) {
  const part = element("div", `strip-memory ${secret ? "secret" : ""}`), head = element("h2", "", `${title} `), bar = element("div", "strip-stack"), legend = element("p", "strip-legend");
  head.append(badge(source));
  bar.setAttribute("role", "img");
  bar.setAttribute("aria-label", parts.map((p) => `${p.label} ${p.text}`).join(", "));
  for (const { role, label, text: size, share, faint } of parts) {
    const piece = element("i", `hue-${role} ${faint ? "faint" : ""}`);
    piece.style.setProperty("--share", share);
    bar.append(piece);
    legend.append(element("span", `role role-${role}`, `${label} ${size}`), " ");
  }
  part.append(head, bar, legend, element("p", "strip-text", text));
  return part;
}

// -- limits -------------------------------------------------------------------------------------------------
function limitsPart({ title, rows, text }) {
  const part = element("div", "strip-limits");
  part.append(element("h2", "", title), barsList(rows), element("p", "strip-text", text));
  return part;
}

// -- a training ---------------------------------------------------------------------------------------------
const SVG = "http://www.w3.org/2000/svg", WIDE = 200, HIGH = 74;

function shape(name, attributes) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  return node;
}

// Loss and accuracy over the epochs; points are shares of the width and the height. Recorded curves are dashed.
function curvePart({ title, badge: source, lines, top, right, first = "0", epochs, text, kind, error, aria }) {
  const part = element("div", `strip-curve ${kind}`), head = element("h2", "", `${title} `);
  if (source) head.append(badge(source));
  const picture = shape("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, preserveAspectRatio: "none", role: "img", "aria-label": aria });
  for (const y of [0.5, HIGH / 2, HIGH - 0.5]) picture.append(shape("line", { x1: 0, x2: WIDE, y1: y, y2: y, class: "curve-grid" }));
  for (const { role, faint, points } of lines) {
    const path = points.map(([x, y]) => `${(x * WIDE).toFixed(1)},${((1 - y) * (HIGH - 4) + 2).toFixed(1)}`).join(" ");
    picture.append(shape("polyline", { points: path, class: `curve curve-${role} ${faint ? "curve-faint" : ""}` }));
  }
  const box = element("div", "curve-box"), ends = element("p", "curve-ends"), keys = element("span", "curve-keys");
  for (const { role, name } of lines) if (name) keys.append(element("span", `curve-key-${role}`, name), " ");
  ends.append(element("span", "", first), keys, element("span", "", epochs));
  box.append(element("span", "curve-top", top), picture, element("span", "curve-right", right));
  part.append(head, box, ends, element("p", error ? "strip-error" : "strip-text", error || text));
  return part;
}
