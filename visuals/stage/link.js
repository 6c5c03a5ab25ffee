// The URL: it holds step, speed, pin, zoom and loop. Streamlit changes the query too: widgets bound to it read the URL,
// change their own parameter and keep ours. But after a rerun it may push a stored query from before our last step.
// So the stage changes only its own parameters and restores them if they are overwritten.

import { SCENE_VERSION } from "./decode.js";
import { MAX_ZOOM } from "./view.js";

export const SPEEDS = [0.25, 0.5, 1, 2, 4, 8];
export const HIDEABLE = "kernel explain transport play steps scrub count speed loop order colours take link help caption readings strip".split(" ");
const RULES = { // parameter: [what is allowed, as text; parser of a text, which returns undefined if the text is invalid]
  step: ["a whole number", (text) => (/^\d{1,40}$/.test(text) ? +text : undefined)],
  speed: [`one of ${SPEEDS.join(", ")}`, (text) => (SPEEDS.includes(+text) ? +text : undefined)],
  pin: ["a tensor and a cell of it, as in x:5", (text, scene) => {
    const [, name, index] = text.match(/^(\w+):(\d{1,9})$/) || [];
    return Object.hasOwn(scene.tensors, name) && +index < scene.tensors[name].size ? { name, index: +index } : undefined;
  }],
  zoom: [`scale (1 to ${MAX_ZOOM}) and centre, as in 2,0.5,0.5`, (text) => (/^\d+(\.\d+)?(,[01](\.\d+)?){2}$/.test(text) && parseFloat(text) <= MAX_ZOOM ? text : undefined)],
  loop: ["the first and the last step, as in 3-9", (text, scene) => {
    const [, from, to] = (text.match(/^(\d{1,9})-(\d{1,9})$/) || []).map(Number);
    return from <= to && to < scene.steps ? [from, to] : undefined;
  }],
  hide: [`some of ${HIDEABLE.join(", ")}`, (text) => (text.split(",").every((name) => HIDEABLE.includes(name)) ? text.replaceAll(",", " ") : undefined)],
};

const short = (text) => `“${text.slice(0, 23)}${text.length > 23 ? "…" : ""}”`;

// The values of a query, and a note for each invalid value: {step, speed, ..., notes}.
export function readLink(query, param, scene) {
  const params = new URLSearchParams(query), found = { notes: [] };
  for (const [name, [rule, parse]] of Object.entries(RULES)) {
    const text = params.get(name === "step" ? param : name);
    if (!text) continue;
    found[name] = parse(text, scene);
    if (found[name] === undefined) found.notes.push(`${name} must be ${rule}; got ${short(text)}`);
  }
  if (found.step >= scene.steps) found.notes.push(`this scene has ${scene.steps.toLocaleString("en")} steps; the last one is shown`);
  if (params.get("version") > SCENE_VERSION)
    found.notes.push(`this link was made by a newer version (${short(params.get("version"))}; this is ${SCENE_VERSION}): what it asks for beyond that is left out`);
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

// Calls back when other code or the reader changed the query: "moved" by Back or Forward, else "overwritten".
export function watchLink(on, callback) {
  const path = location.pathname;
  const here = () => location.pathname === path; // while the app changes to another page, its URL is not ours
  on(window, "popstate", () => here() && callback("moved"));
  if (window.navigation)
    on(window.navigation, "currententrychange", (event) => here() && event.navigationType !== "traverse" && callback("overwritten"));
}
