// The URL: it holds step, speed, pin, zoom, loop and the size of the strip. Streamlit changes the query too: widgets bound
// to it read the URL, change their own parameter and keep ours. But after a rerun it may push a stored query from before
// our last step. So the stage changes only its own parameters and restores them if they are overwritten.

import { SCENE_VERSION } from "./decode.js";
import { mark, tr, trn } from "./texts.js";
import { MAX_ZOOM } from "./view.js";

export const SPEEDS = [0.25, 0.5, 1, 2, 4, 8];
export const HIDEABLE = "kernel explain transport play steps scrub count speed loop order colours take link help caption readings strip".split(" ");

function cellFrom(text, scene) {
  const [, name, index] = text.match(/^(\w+):(\d{1,9})$/) || [];
  return Object.hasOwn(scene.tensors, name) && +index < scene.tensors[name].size ? { name, index: +index } : undefined;
}

const RULES = { // parameter: [message for an invalid text; parser of a text, which returns undefined for an invalid one]
  step: [mark("step must be a whole number; got {text}."), (text) => (/^\d{1,40}$/.test(text) ? +text : undefined)],
  speed: [mark("speed must be one of {speeds}; got {text}."), (text) => (SPEEDS.includes(+text) ? +text : undefined)],
  pin: [mark("pin must be a tensor and a cell of it, as in x:5; got {text}."), cellFrom],
  zoom: [mark("zoom must be scale (1 to {zoom}) and centre, as in 2,0.5,0.5; got {text}."), (text, scene) => {
    const [, scale, cell] = text.match(/^(\d+(?:\.\d+)?),(?:(\w+:\d{1,9})(?:,-?\d{1,5}(?:\.\d+)?){2}|[01](?:\.\d+)?,[01](?:\.\d+)?)$/) || [];
    return parseFloat(scale) <= MAX_ZOOM && (!cell || cellFrom(cell, scene)) ? text : undefined;
  }],
  loop: [mark("loop must be the first and the last step, as in 3-9; got {text}."), (text, scene) => {
    const [, from, to] = (text.match(/^(\d{1,9})-(\d{1,9})$/) || []).map(Number);
    return from <= to && to < scene.steps ? [from, to] : undefined;
  }],
  size: [mark("size must be stage or real; got {text}."), (text) => (/^(stage|real)$/.test(text) ? text : undefined)],
  hide: [mark("hide must be some of {names}; got {text}."), (text) => (text.split(",").every((name) => HIDEABLE.includes(name)) ? text.replaceAll(",", " ") : undefined)],
};

const short = (text) => `“${text.slice(0, 23)}${text.length > 23 ? "…" : ""}”`;

// The values of a query, and a note for each invalid value: {step, speed, ..., notes}.
export function readLink(query, param, scene) {
  const params = new URLSearchParams(query), found = { notes: [] };
  const allowed = { speeds: SPEEDS.join(", "), zoom: MAX_ZOOM, names: HIDEABLE.join(", ") };
  for (const [name, [rule, parse]] of Object.entries(RULES)) {
    const text = params.get(name === "step" ? param : name);
    if (!text) continue;
    found[name] = parse(text, scene);
    if (found[name] === undefined) found.notes.push(tr(rule, { ...allowed, text: short(text) }));
  }
  if (found.step >= scene.steps) found.notes.push(trn("This scene has {n} step. The last one is shown.", "This scene has {n} steps. The last one is shown.", scene.steps));
  if (params.get("version") > SCENE_VERSION)
    found.notes.push(tr("This link was made by a newer version ({version}; this is {own}). What only that version can show is left out.", { version: short(params.get("version")), own: SCENE_VERSION }));
  return found;
}

// The query with the stage's parameters as in `state` (texts; "" leaves one out) and all others unchanged.
export function withState(query, state) {
  const rest = query.replace(/^\?/, "").split("&").filter((pair) => pair && !(pair.split("=")[0] in state));
  for (const [name, text] of Object.entries(state)) if (text) rest.push(`${name}=${text}`);
  return rest.length ? `?${rest.join("&")}` : "";
}

// The query without the stage's own parameters.
export const otherParams = (state) => withState(location.search, Object.fromEntries(Object.keys(state).map((name) => [name, ""])));

export function writeLink(state) {
  const query = withState(location.search, state);
  if (Object.entries(state).every(([name, text]) => (new URLSearchParams(location.search).get(name) || "") === text)) return;
  try {
    history.replaceState(history.state, "", location.pathname + query + location.hash);
  } catch { /* a sandboxed frame, a file, or too many changes per second: the picture works without the URL */ }
}

// Opens a chapter of the page, as a link to it would: a new entry of the history. Every later request of the browser has the
// new URL. If the server wrote it, a timer could still send the old one.
export function openChapter({ clears }, number) {
  const url = new URL(location);
  for (const name of clears) url.searchParams.delete(name);
  url.searchParams.set("chapter", number + 1);
  history.pushState(null, "", url);
  dispatchEvent(new PopStateEvent("popstate"));
}

// Calls back when other code or the reader changed the query: "moved" by Back or Forward, else "overwritten".
export function watchLink(on, callback) {
  const path = location.pathname;
  const here = () => location.pathname === path; // while the app changes to another page, its URL is not ours
  on(window, "popstate", () => here() && callback("moved"));
  if (window.navigation)
    on(window.navigation, "currententrychange", (event) => here() && event.navigationType !== "traverse" && callback("overwritten"));
}
