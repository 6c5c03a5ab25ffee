// The text beside the picture: CUDA source with the running line highlighted, lanes, readings, sentences with roles.
// Text only, never markup.

import { HUES } from "./colour.js";
import { number } from "./explain.js";
import { mark, tr } from "./texts.js";

const KINDS = ["", "comment", "keyword", "type", "builtin", "string", "directive"]; // of visuals/scene/highlight.py
const BADGES = { measured: mark("measured"), recorded: mark("recorded"), counted: mark("counted"), predicted: mark("predicted") };

export function element(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

// Lines of {text, kind} from the colour runs; a comment over several lines has its kind on each line.
export function colouredLines(text, colours) {
  const lines = [[]];
  let from = 0;
  for (let n = 0; n < colours.length; n += 2) {
    text.slice(from, (from += colours[n + 1])).split("\n").forEach((piece, k) => {
      if (k) lines.push([]);
      if (piece) lines.at(-1).push({ text: piece, kind: KINDS[colours[n]] });
    });
  }
  return lines.at(-1).length ? lines : lines.slice(0, -1);
}

// What the numbers in the margin of the source mean.
const NOTES = mark("Counted over the launch. ld: loads, st: stores, sect: sectors of 32 bytes, waves: passes over shared memory, conflicts: extra passes, diverge: branches that divide a warp");

// A line that runs at some step is a button that goes to its next step.
export function fillSource(list, { text, colours, first, notes, lines }) {
  const lit = new Set(lines);
  list.replaceChildren(...colouredLines(text, colours).map((pieces, n) => {
    const line = n + first, runs = lit.has(line);
    const row = element("li", "code-line");
    row.dataset.line = line;
    const digits = element(runs ? "button" : "span", "line-number", String(line));
    if (runs) Object.assign(digits, { type: "button", title: tr("To the next step of this line") }).setAttribute("aria-label", tr("Line {line}: to its next step", { line }));
    row.classList.toggle("runs", runs);
    const code = element("code");
    for (const { text: piece, kind } of pieces) code.append(kind ? element("span", `c-${kind}`, piece) : piece);
    row.append(digits, code);
    if (notes[line]) row.append(Object.assign(element("span", "line-note", notes[line]), { title: tr(NOTES) }));
    return row;
  }));
}

// Highlights one line and scrolls the list to it, never the page.
export function highlightLine(list, line) {
  const row = list.querySelector(`[data-line="${line}"]`);
  if (!row?.classList.contains("lit")) list.querySelector(".lit")?.classList.remove("lit");
  if (!row) return;
  row.classList.add("lit");
  const top = row.offsetTop - list.offsetTop, bottom = top + row.offsetHeight;
  if (top < list.scrollTop) list.scrollTop = top - 2 * row.offsetHeight;
  else if (bottom > list.scrollTop + list.clientHeight) list.scrollTop = bottom - list.clientHeight + 2 * row.offsetHeight;
}

// The lanes of the step's warp, highlighted if active.
export function fillLanes(box, lanes, step) {
  const warp = lanes ? lanes.warp[step] : -1;
  box.hidden = warp < 0;
  if (box.hidden) return;
  const on = Array.from({ length: 32 }, (_, lane) => (lanes.mask[step] >>> lane) & 1);
  box.firstElementChild.textContent = tr("lanes of warp {warp}: {active} of 32 active", { warp, active: on.reduce((a, b) => a + b) });
  box.lastElementChild.replaceChildren(...on.map((active, lane) => element("li", `lane ${active ? "active" : ""}`, String(lane))));
}

// Numbers that change with the steps: counters after their badge, values of the algorithm in their role's colour.
export function fillReadings(box, readings, step) {
  let kind = "";
  box.replaceChildren(...readings.flatMap((r) => {
    const badge = r.kind && r.kind !== kind ? [element("span", `badge badge-${r.kind}`, tr(BADGES[r.kind]))] : [];
    kind = r.kind;
    const item = element("span", r.role ? `role-${r.role}` : "", `${r.label} `);
    item.append(element("b", "", number(r.values[step])));
    return [...badge, item];
  }));
}

// Parts {text, role} as coloured spans; "\n" at a part's start opens a new line.
export function fillText(node, parts) {
  node.replaceChildren(...parts.flatMap(({ text, role }) => {
    const newLine = text.startsWith("\n");
    const rest = newLine ? text.slice(1) : text;
    const span = role ? element("span", HUES.includes(role) ? `role role-${role}` : `w-${role}`, rest) : document.createTextNode(rest);
    return newLine ? [element("br"), span] : [span];
  }));
}

// The names of the legend's rows that a scene uses; the other rows are hidden.
export function legendOf(scene) {
  if (scene.diagram) return new Set(["read", "write", "line"]); // its own legend is in the picture
  const tensors = Object.values(scene.tensors), some = (test) => tensors.some(test);
  const names = new Set([...tensors.flatMap((t) => [t.role, t.hue, ...Array.from(t.roles || [], (n) => HUES[n])]), ...scene.groups.map((g) => `${g.memorySpace}-ground`), "read", "write"]);
  if (some((t) => !t.values)) names.add("ghost");
  if (some((t) => t.pad.some(Boolean) || t.from.includes(-1))) names.add("padding");
  if (some((t) => [...(t.values || []), ...t.value].some((v) => v < 0))) names.add("negative");
  if (scene.lanes) names.add("lanes");
  if (scene.sources.length) names.add("line");
  return names;
}

