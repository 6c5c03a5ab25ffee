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
  box.replaceChildren(timePart(strip, size, run), memoryPart(size.memory), limitsPart(size.limits));
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
  if (size.canPut) head.append(button("put", strip.texts.put, "plain"));
  head.append(runPart(run));
  text.append(element("b", "", time.name), ` · ${size.shape}. ${time.text}`);
  part.append(head, text, barsList(time.bars, "strip-bars"), ...sizesLine(strip, size));
  return part;
}

// The sizes as a choice, each with its time.
function sizesLine(strip, shown) {
  if (strip.sizes.length < 2) return [];
  const line = element("div", "strip-sizes");
  for (const size of strip.sizes) {
    const choice = button(`size-${size.key}`, `${size.label}: ${size.time.value}`, "chip");
    choice.setAttribute("aria-pressed", String(size === shown));
    line.append(choice);
  }
  return [line];
}

// Run or Stop; while something runs, how far it is; an error.
function runPart(run) {
  const line = element("div", "strip-run");
  if (run.error || run.text) {
    const text = element("span", run.error ? "strip-error" : "strip-note", run.error || run.text);
    text.setAttribute("role", run.error ? "alert" : "status");
    line.append(text);
  }
  if (run.running) {
    const bar = element("i", "strip-progress");
    bar.style.setProperty("--share", run.share);
    line.append(bar);
  }
  if (run.can || run.running) line.append(button(run.running ? "stop" : "run", run.label, run.running ? "chip" : "primary"));
  return line;
}

function barsList(bars, className) {
  const list = element("ol", className);
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
    if (bar.hint) row.title = bar.hint;
    row.append(element("span", "strip-label", bar.title ?? bar.label), track, element("span", "strip-number", bar.text));
    return row;
  }));
  return list;
}

// -- memory -------------------------------------------------------------------------------------------------
function memoryPart({ title, badge: source, parts, text }) {
  const part = element("div", "strip-memory"), head = element("h2", "", `${title} `), bar = element("div", "strip-stack"), legend = element("p", "strip-legend");
  head.append(badge(source));
  bar.setAttribute("role", "img");
  bar.setAttribute("aria-label", parts.map((p) => `${p.label} ${p.text}`).join(", "));
  for (const { role, label, text: size, share } of parts) {
    const piece = element("i", `hue-${role}`);
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
  part.append(element("h2", "", title), barsList(rows, "strip-bars"), element("p", "strip-text", text));
  return part;
}
