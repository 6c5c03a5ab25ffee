// The address: step, speed, pin, zoom and loop live in it. Streamlit rewrites the query too: widgets bound to it read
// the address, change their own parameter and keep ours; but after a rerun it may push a query it remembered from
// before our last step. So the stage changes only its own parameters, text for text, and puts them back where they
// were overwritten.

import { SCENE_VERSION } from "./decode.js";
import { MOST_ZOOM } from "./view.js";

export const SPEEDS = [0.25, 0.5, 1, 2, 4, 8];
export const HIDEABLE = "kernel explain transport play steps scrub count speed loop order colours take link help caption readings".split(" ");
const RULES = { // parameter: [what is allowed, in words, and how a text becomes a value: undefined where it breaks the rule]
  step: ["a whole number", (text) => (/^\d{1,40}$/.test(text) ? +text : undefined)],
  speed: [`one of ${SPEEDS.join(", ")}`, (text) => (SPEEDS.includes(+text) ? +text : undefined)],
  pin: ["a tensor and a cell of it, as in x:5", (text, scene) => {
    const [, name, index] = text.match(/^(\w+):(\d{1,9})$/) || [];
    return Object.hasOwn(scene.tensors, name) && +index < scene.tensors[name].size ? { name, index: +index } : undefined;
  }],
  zoom: [`scale (1 to ${MOST_ZOOM}) and centre, as in 2,0.5,0.5`, (text) => (/^\d+(\.\d+)?(,[01](\.\d+)?){2}$/.test(text) && parseFloat(text) <= MOST_ZOOM ? text : undefined)],
  loop: ["the first and the last step, as in 3-9", (text, scene) => {
    const [, from, to] = (text.match(/^(\d{1,9})-(\d{1,9})$/) || []).map(Number);
    return from <= to && to < scene.steps ? [from, to] : undefined;
  }],
  hide: [`some of ${HIDEABLE.join(", ")}`, (text) => (text.split(",").every((name) => HIDEABLE.includes(name)) ? text.replaceAll(",", " ") : undefined)],
};

const short = (text) => `“${text.slice(0, 23)}${text.length > 23 ? "…" : ""}”`;

// What a query asks for, and a note for each value that breaks its rule: {step, speed, ..., notes}.
export function readLink(query, param, scene) {
  const asked = new URLSearchParams(query), found = { notes: [] };
  for (const [name, [rule, parse]] of Object.entries(RULES)) {
    const text = asked.get(name === "step" ? param : name);
    if (!text) continue;
    found[name] = parse(text, scene);
    if (found[name] === undefined) found.notes.push(`${name} must be ${rule}; got ${short(text)}`);
  }
  if (found.step >= scene.steps) found.notes.push(`this scene has ${scene.steps.toLocaleString("en")} steps; the last one is shown`);
  if (asked.get("version") > SCENE_VERSION)
    found.notes.push(`this link was made by a newer version (${short(asked.get("version"))}; this is ${SCENE_VERSION}): what it asks for beyond that is left out`);
  return found;
}

// The query with the stage's parameters as in `state` (texts; "" leaves one out), all others as they are.
export function withState(query, state) {
  const rest = query.replace(/^\?/, "").split("&").filter((pair) => pair && !(pair.split("=")[0] in state));
  for (const [name, text] of Object.entries(state)) if (text) rest.push(`${name}=${text}`);
  return rest.length ? `?${rest.join("&")}` : "";
}

// What stands in the address beside the stage's own parameters.
export const othersIn = (state) => withState(location.search, Object.fromEntries(Object.keys(state).map((name) => [name, ""])));

export function writeLink(state) {
  const query = withState(location.search, state);
  if (Object.entries(state).every(([name, text]) => (new URLSearchParams(location.search).get(name) || "") === text)) return;
  try {
    history.replaceState(history.state, "", location.pathname + query + location.hash);
  } catch { /* a sandboxed frame, a file, or too many changes a second: the picture does not depend on it */ }
}

// Calls back when the query changed under us: "moved" by Back or Forward, else "overwritten".
export function watchLink(on, callback) {
  const home = location.pathname;
  const here = () => location.pathname === home; // on the way to another page its address is not ours
  on(window, "popstate", () => here() && callback("moved"));
  if (window.navigation)
    on(window.navigation, "currententrychange", (event) => here() && event.navigationType !== "traverse" && callback("overwritten"));
}
