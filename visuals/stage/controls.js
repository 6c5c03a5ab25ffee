// The parts around the picture: labels, caption, kernel, readings, legend. Updated with the player.

import { lineOf, sourceOf } from "./decode.js";
import { explain, focusOf } from "./explain.js";
import { element, fillLanes, fillReadings, fillSource, fillText, highlightLine, legendOf } from "./side_panel.js";
import { count, decimal, mark, stepText, tr } from "./texts.js";

// What the line under the name of a kernel says, if it ends with the occupancy.
const RESOURCES = mark("The registers of a thread, the shared memory of a block, and the share of an SM’s places for warps that are filled (occupancy)");
const PLAY_ICON = "M4 2.5v11L13 8z", PAUSE_ICON = "M3.5 2.5h3v11h-3zM9.5 2.5h3v11h-3z";

// Updates what changes only with the scene.
export function render(player) {
  const { part, root, scene } = player;
  root.dataset.scene = scene.key;
  root.setAttribute("aria-label", player.data.still ? player.captionOf(player.step).map((p) => p.text).join("") : tr("Stage: {title}", { title: scene.title }));
  part.canvas.setAttribute("aria-label", Object.values(scene.tensors).map((t) => `${t.title}, ${t.note || [t.rows, t.cols].join(" × ")}`).join("; "));
  part.scrub.max = scene.steps - 1;
  const at = ([step]) => `${(step / Math.max(1, scene.steps - 1)) * 100}%`;
  part.scrub.style.setProperty("--faults", scene.faults.map((fault) => `linear-gradient(var(--write), var(--write)) ${at(fault)} 50% / 4px 16px no-repeat`).join(", ") || "none");
  part.scrub.title = scene.faults.map(([step, text]) => tr("Step {step}: {text}", { step: count(step + 1), text })).join("\n");
  part.count.style.minWidth = `${2 * count(scene.steps).length + 3}ch`;
  part.order.textContent = scene.orderName;
  root.querySelector(".order-note").textContent = scene.orderNote;
  fillOrders(root.querySelector(".orders"), player.data.orders || []);
  part.order.hidden = !scene.orderName;
  part.kernel.hidden = !scene.sources.length;
  root.classList.toggle("wide", !scene.sources.length && scene.flows.length > 0);
  const known = legendOf(scene);
  for (const row of root.querySelectorAll("[data-legend]")) row.hidden = !known.has(row.dataset.legend);
  player.rendered = {};
}

// The orders that the page offers, each with its explanation.
function fillOrders(box, orders) {
  box.replaceChildren(...orders.flatMap(({ name, text }) => {
    const choice = Object.assign(element("button", "chip", name), { type: "button" });
    choice.dataset.order = name;
    return [choice, element("p", "dim", text)];
  }));
}

// Updates the DOM to the picture; writes only what changed.
export function update(player) {
  const { part, root, scene, rendered, step, data: { every } } = player, last = scene.steps - 1;
  const setBar = (name, at) => part.scrub.style.setProperty(name, `${(at / Math.max(1, last)) * 100}%`);
  const set = (name, value, apply) => {
    if (rendered[name] === value) return;
    rendered[name] = value;
    apply(value);
  };
  set("playing", player.playing, (playing) => {
    root.dataset.playing = String(playing);
    part.play.setAttribute("aria-label", playing ? tr("Pause") : tr("Play"));
    part.play.querySelector("path").setAttribute("d", playing ? PAUSE_ICON : PLAY_ICON);
  });
  set("live", !player.playing + (!player.playing && player.pin ? 1 : 0), (live) => { // while it plays, a screen reader would read every step
    part.caption.setAttribute("aria-live", live ? "polite" : "off");
    part.explanation.setAttribute("aria-live", live > 1 ? "polite" : "off"); // the cell selected by keyboard
  });
  set("speed", player.speed, (speed) => {
    const times = decimal(String(speed));
    part.speed.textContent = `${times}×`;
    part.speed.setAttribute("aria-label", tr("Speed {times} times; change", { times }));
  });
  set("loop", String(player.loop), () => {
    const [from = 0, to = from] = player.loop || [];
    const steps = { from: count(from + 1), to: count(to + 1) };
    const [textContent, title] = !player.loop ? [tr("loop"), tr("Loop from this step")]
      : player.loop[1] === undefined ? [tr("loop from {from} …", steps), tr("Loop to this step")] : [tr("loop {from}–{to}", steps), tr("End the loop")];
    Object.assign(part.loop, { textContent, title }).classList.toggle("on", Boolean(player.loop));
    setBar("--from", from);
    setBar("--to", to - from === last ? 0 : to); // a loop over all steps marks no part
  });
  set("unfold", every?.all || scene.folds.has(step), (shown) => {
    part.unfold.hidden = !every;
    part.unfold.textContent = every?.text;
    part.unfold.classList.toggle("away", !shown); // it keeps its place, so that the scrubber keeps its length
  });
  const source = sourceOf(scene, step);
  set("source", source, () => {
    part.file.replaceChildren(source.file, Object.assign(element("span", "detail", source.detail), { title: /%/.test(source.detail) ? tr(RESOURCES) : "" }));
    fillSource(part.source, source);
  });
  set("step", step, () => {
    root.dataset.step = String(step);
    part.scrub.value = step;
    part.scrub.setAttribute("aria-valuetext", stepText(scene, step));
    setBar("--done", step);
    part.count.textContent = `${count(step + 1)} / ${count(scene.steps)}`;
    fillText(part.caption, player.captionOf(step));
    if (!root.classList.contains("fits")) part.caption.style.minHeight = `${part.caption.offsetHeight}px`; // so that the parts below do not jump up again
    fillReadings(part.readings, scene.readings, step);
    fillLanes(part.lanes, scene.lanes, step); // first: it reduces the height of the source
    if (source) highlightLine(part.source, lineOf(source, step));
  });
  const focus = player.hover || player.pin;
  const at = focus ? `${focus.name}:${focus.index}` : "";
  set("hover", at, () => { root.dataset.hover = at; });
  set("over", Boolean(player.hover), (over) => part.canvas.classList.toggle("over-cell", over));
  set("pin", Boolean(player.pin), (pinned) => root.toggleAttribute("data-pinned", pinned));
  const done = Math.max(0, Math.floor(player.t));
  const target = focus || focusOf(scene, done);
  set("explanation", `${at} ${done}`, () => fillText(part.explanation, target ? explain(scene, Math.floor(player.t), target.name, target.index).parts : []));
}
