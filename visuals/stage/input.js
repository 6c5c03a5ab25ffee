// Input: buttons, keys, pointer, menus, the embedding page.

import { clamp, lineOf, nextOfLine, sourceOf } from "./decode.js";
import { focusOf } from "./explain.js";
import { embedded, listenToParent, pagePart, report } from "./frame.js";
import { hitTest } from "./layout.js";
import { watchLink } from "./link.js";
import { WHOLE, zoomed } from "./view.js";

export function listen(player) {
  const { root, part } = player, { signal } = player.closed;
  const on = (target, type, handler, options) => target.addEventListener(type, handler, { signal, ...options });
  const active = (handler) => (event) => player.scene && !player.failed && !player.data.still && handler(event);
  on(part.strip, "click", (event) => !player.scene && event.target.closest("button") && player.pressStrip(event.target.closest("button").dataset.strip));
  on(root, "click", active((event) => click(player, event)));
  on(root, "keydown", active((event) => key(player, event)));
  on(part.scrub, "input", () => player.scrubTo(Number(part.scrub.value)));
  on(part.scrub, "change", () => player.publish());
  // Escape closes the explanation of a term, wherever the focus is; it can open again after another key or a movement.
  const closeTip = (event) => part.chapter.classList.toggle("no-tip", event.key === "Escape");
  on(document, "keydown", closeTip, { capture: true });
  on(part.chapter, "pointerover", closeTip);
  on(document, "click", (event) => event.composedPath().includes(root) || openPanel(player, null));
  on(document, "click", (event) => event.target.closest?.(".kt-reveal") && player.answer(REVEALED)); // over the page's cards
  listenToPointer(player, (type, handler, options) => on(part.canvas, type, active(handler), options));
  const observer = new ResizeObserver(() => player.arrange());
  observer.observe(part["canvas-box"]);
  // What is above the stage may grow or shrink, which moves the stage but does not resize it.
  const around = new ResizeObserver(() => requestAnimationFrame(() => signal.aborted || player.arrange()));
  const column = pagePart(root, "stMainBlockContainer");
  if (column) around.observe(column);
  on(window, "resize", () => player.arrange());
  signal.addEventListener("abort", () => [observer, around].forEach((one) => one.disconnect())); // not by on(): abort removes its listeners before they run
  watchLink(on, (how) => player.linkChanged(how));
  listenToParent(on, active((request) => {
    if (request.goto !== undefined) player.goto(request.goto);
    else if (request.by) player.goto(player.step + request.by);
    else if (request.answer) player.answer(REVEALED);
    else if (request.play) player.play();
    else player.pause();
  }), (text) => player.notify(text));
}

// -- buttons -------------------------------------------------------------------------------------------------
const BUTTONS = {
  play: (player) => player.toggle(),
  back: (player) => player.goto(player.step - 1),
  forward: (player) => player.goto(player.step + 1),
  speed: (player) => player.changeSpeed(1, true),
  loop: (player) => (player.loop?.[1] === undefined ? loopTo(player, player.loop ? 1 : 0) : player.setLoop()),
  fit: (player) => setView(player, WHOLE),
  unfold: (player) => { // shows every step of a repetition, from its first one on, or folds repeated steps again
    player.open = player.scene.folds.get(player.step);
    player.send?.({ do: "steps" });
  },
  dismiss: (player) => player.notify(""),
};

function click(player, event) {
  const { root, part } = player, { target } = event;
  const button = target.closest("button"), { do: action, take, copy, strip, order, chapter, answer } = button?.dataset || {};
  if (strip) return player.pressStrip(strip);
  if (answer !== undefined) return player.answer(Number(answer));
  if (chapter !== undefined) return player.send?.({ do: "chapter", chapter: Number(chapter) });
  if (order) return player.send?.({ do: "order", order });
  showMore(player, action === "more" ? "toggle" : target.closest(".more-items"));
  if (!target.closest(".panel")) togglePanel(player, action);
  if (BUTTONS[action]) {
    BUTTONS[action](player);
    if (!button.offsetParent) root.focus({ preventScroll: true }); // the action hid the button
  } else if (take) runPanel(player, "take", take);
  else if (copy) runPanel(player, "link", copy);
  else if (target.closest(".runs")) jump(player, Number(target.closest(".runs").dataset.line));
  else if (!button && target !== part.canvas && !target.closest(".transport, .explain, .strip, .chapter")) player.setPin(null);
}

const togglePanel = (player, name) => openPanel(player, player.root.querySelector(`[data-panel=${name}]`)?.hidden ? name : null);

// The controls that a narrow transport hides open above it. A press on anything else closes them.
function showMore({ root }, open) {
  const transport = root.querySelector(".transport"), button = root.querySelector(".more");
  const shown = transport.classList.toggle("more-open", open === "toggle" ? undefined : Boolean(open) && transport.classList.contains("more-open"));
  button.setAttribute("aria-expanded", String(shown));
}

// Opens one panel at a time; aria-expanded marks its button, which gets the focus back when the panel closes.
function openPanel({ root }, name) {
  for (const panel of root.querySelectorAll("[data-panel]")) {
    const button = root.querySelector(`[data-do="${panel.dataset.panel}"]`), open = panel.dataset.panel === name;
    if (!panel.hidden && !open && panel.contains(root.getRootNode().activeElement)) button.focus();
    panel.hidden = !open;
    button.setAttribute("aria-expanded", String(open));
  }
}

const jump = (player, line) => player.goto(nextOfLine(player.scene, line, player.step));

// `end` 0: loop from this step; 1: loop to this step.
function loopTo(player, end) {
  const { loop, step } = player;
  if (end) player.setLoop(loop?.[0] ?? 0, step);
  else player.setLoop(step, loop?.[1] > step ? loop[1] : undefined);
}

// Files and links are made by a separate module, loaded on first use.
async function runPanel(player, panel, name) {
  const status = player.root.querySelector(`[data-panel=${panel}] .status`), url = (path) => new URL(path, document.baseURI).href;
  const assets = player.assets || { module: url("stage/takeaway.js"), template: url("stage/standalone.html"), gif: "static" in document.documentElement.dataset ? null : url("stage/gif") };
  const show = (text) => { status.textContent = text; };
  if (player.busy) return;
  player.busy = true;
  show("…");
  try {
    const { panels } = await import(await assets.module);
    await panels[panel](player, name, assets, show);
  } catch (error) {
    show(error.message);
  }
  player.busy = false;
}

// -- keys ----------------------------------------------------------------------------------------------------
const KEYS = {
  " ": (player) => player.toggle(),
  ArrowLeft: (player, by) => stepBy(player, -by), ArrowRight: (player, by) => stepBy(player, by),
  PageUp: (player) => stepBy(player, -1, true), PageDown: (player) => stepBy(player, 1, true),
  Home: (player) => player.goto(0), End: (player) => player.goto(player.scene.steps - 1),
  "+": (player) => player.changeSpeed(1), "-": (player) => player.changeSpeed(-1),
  "[": (player) => loopTo(player, 0), "]": (player) => loopTo(player, 1), "\\": (player) => player.setLoop(),
  l: (player) => player.scene.sources.length && jump(player, lineOf(sourceOf(player.scene, player.step), player.step)),
  p: (player) => player.setPin(player.pin ? null : focusOf(player.scene, player.step)),
  w: (player) => movePin(player, -1, 0), s: (player) => movePin(player, 1, 0), a: (player) => movePin(player, 0, -1), d: (player) => movePin(player, 0, 1),
  t: nextTensor,
  z: (player) => zoomAt(player, 1.5), x: (player) => zoomAt(player, 1 / 1.5), 0: (player) => setView(player, WHOLE),
  g: (player) => player.answer(REVEALED),
  "?": (player) => togglePanel(player, "help"), c: (player) => togglePanel(player, "colours"),
  Escape: (player) => { player.setPin(null); openPanel(player, null); },
  ArrowUp: () => {}, ArrowDown: () => {},
};
const KEY_ALIASES = { "=": "+", ">": "+", "<": "-", _: "-" };

function key(player, event) {
  const { target } = event, name = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  if (event.ctrlKey || event.metaKey || event.altKey || (target.closest("textarea") && name !== "Escape")) return;
  if (target.closest(".explain") && /^Arrow(Up|Down)$/.test(name)) return; // these keys scroll it
  const action = KEYS[KEY_ALIASES[name] || name];
  if (!action) return;
  event.stopPropagation();
  if (name === " " && target.closest("button")) return; // Space presses the focused button
  event.preventDefault();
  action(player, event.shiftKey ? 10 : 1);
}

// At the first and last step, arrows move on in the embedding deck; a clicker's keys always do. In a lecture hall both
// turn to the next chapter, a clicker's keys everywhere.
function stepBy(player, by, clicker) {
  const { step, scene, root } = player, atEnd = step === (by > 0 ? scene.steps - 1 : 0) && player.until === null;
  if (embedded && (clicker || atEnd)) report(by > 0 ? "next" : "prev", step, scene.steps);
  else if (player.data.chapter && (clicker || (atEnd && root.hasAttribute("data-present")))) player.turn(Math.sign(by));
  else player.goto(step + by);
}

// Moves the pin over the cells of its tensor, past the edge of a row into the next row or plane.
function movePin(player, down, right) {
  const { pin, scene } = player;
  if (!pin) return KEYS.p(player);
  const t = scene.tensors[pin.name], index = pin.index + down * t.cols + right;
  if (index >= 0 && index < t.size) player.setPin({ name: t.name, index });
}

function nextTensor(player) {
  const names = Object.keys(player.scene.tensors);
  player.setPin({ name: names[(names.indexOf(player.pin?.name) + 1) % names.length], index: 0 });
}

// -- pointer -------------------------------------------------------------------------------------------------
function setView(player, to) {
  player.setView(to);
  player.writeLink();
}

// Zooms around the pinned cell, else around the middle.
function zoomAt(player, factor) {
  const { pin, part, shrink } = player, box = part.canvas.getBoundingClientRect();
  const at = pin ? player.cellRect(pin.name, pin.index) : { x: box.x + box.width / 2, y: box.y + box.height / 2 };
  zoomAround(player, factor, (at.x - box.x) * shrink, (at.y - box.y) * shrink);
  player.writeLink();
}

function zoomAround(player, factor, x, y, dx = 0, dy = 0) {
  const { layout } = player;
  player.setView(zoomed(player.view, factor, x, y, layout.width, layout.height, dx, dy));
}

const sameCell = (a, b) => a?.name === b?.name && a?.index === b?.index;

function setHover(player, cell) {
  if (sameCell(cell, player.hover)) return;
  player.hover = cell;
  if (cell) player.part.hint.hidden = true; // the reader knows hover now
  player.draw();
}

function listenToPointer(player, on) {
  const { canvas } = player.part, pointers = new Map();
  let dragged = false;
  const xy = (event) => {
    const box = canvas.getBoundingClientRect();
    return { x: (event.clientX - box.left) * player.shrink, y: (event.clientY - box.top) * player.shrink };
  };
  const hit = (event) => hitTest(player.inView, xy(event).x, xy(event).y);
  on("pointerdown", (event) => {
    if (event.button) return; // a context menu may receive the release of another button
    pointers.set(event.pointerId, xy(event));
    dragged = false;
  });
  on("pointermove", (event) => {
    const before = pointers.get(event.pointerId), now = xy(event);
    if (!before) return setHover(player, event.pointerType === "touch" ? null : hit(event));
    if (pointers.size === 1 && (player.view === WHOLE || (!dragged && Math.hypot(now.x - before.x, now.y - before.y) < 4))) return;
    dragged = true;
    canvas.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, now);
    const other = [...pointers].find(([id]) => id !== event.pointerId)?.[1];
    if (!other) return zoomAround(player, 1, now.x, now.y, now.x - before.x, now.y - before.y);
    const spread = (p) => Math.hypot(p.x - other.x, p.y - other.y) || 1;
    zoomAround(player, spread(now) / spread(before), (before.x + other.x) / 2, (before.y + other.y) / 2, (now.x - before.x) / 2, (now.y - before.y) / 2);
  });
  const release = (event) => {
    pointers.delete(event.pointerId);
    if (dragged) player.writeLink();
  };
  on("pointerup", release);
  on("pointercancel", release);
  on("pointerleave", (event) => {
    release(event);
    setHover(player, null);
  });
  on("click", (event) => {
    if (dragged) return;
    const cell = hit(event), step = player.stepAt(xy(event));
    if (step !== null) return player.goto(step);
    player.setPin(sameCell(cell, player.pin) ? null : cell);
    player.root.focus({ preventScroll: true });
  });
  on("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey && !player.fills) return; // the page scrolls
    event.preventDefault();
    const { x, y } = xy(event);
    zoomAround(player, Math.exp(-clamp(event.deltaY, -60, 60) / 120), x, y);
    clearTimeout(player.timer);
    player.timer = setTimeout(() => player.writeLink(), 200);
  }, { passive: false });
}
