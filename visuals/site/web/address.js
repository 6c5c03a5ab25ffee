// Addresses of the site: a page and the parameters of its URL. The key of an address leaves out what changes how a page is
// shown, what the stage reads by itself, and defaults. visuals/site/crawl.py makes the same keys; a test compares them.

export const FRAME = ["embed", "embed_options", "present", "hide", "lang", "play", "version"];
export const MOMENT = ["step", "speed", "pin", "zoom", "loop", "size"];
export const MACHINE = ["engine"];
const KEPT = ["embed", "embed_options", "present", "hide", "lang"]; // from page to page

// Whether these parameters open the chapters of a lesson. A page in a frame opens them only by name.
export function isStory(params, framed = false) {
  if ("view" in params) return params.view === "story";
  return "chapter" in params || !(framed || Object.keys(params).some((name) => name !== "lang"));
}

const query = (params) => new URLSearchParams(Object.entries(params).sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0))).toString();

export function keyOf(params, hasStory = true, framed = false) {
  const rest = Object.fromEntries(Object.entries(params).filter(([name]) => ![...FRAME, ...MOMENT, ...MACHINE, "view"].includes(name)));
  const { chapter = "1", ...others } = rest;
  if (hasStory && isStory(params, framed)) return [`chapter=${encodeURIComponent(chapter)}`, query(others)].filter(Boolean).join("&");
  return ["explore", query(others)].filter(Boolean).join("&");
}

// The key of the site that is nearest to one it does not hold: the same without some parameters, as few as can be.
export function nearestKey(key, has) {
  const [mode, ...pairs] = key.split("&");
  for (let left = pairs.length - 1; left >= 0; left--)
    for (let at = 0; at + left <= pairs.length; at++) {
      const tried = [mode, ...pairs.slice(at, at + left)].join("&");
      if (has(tried)) return tried;
    }
  return ["explore", "chapter=1"].find(has);
}

export const paramsOf = (search) => Object.fromEntries(new URLSearchParams(search));

// The URL of an address relative to the root of the site. What frames the page stays.
export function urlOf(path, params, current = {}) {
  const kept = Object.fromEntries(KEPT.filter((name) => name in current && !(name in params)).map((name) => [name, current[name]]));
  const text = new URLSearchParams({ ...params, ...kept }).toString();
  return (path ? `${path}/` : "") + (text ? `?${text}` : "");
}

// The parameters after a control has another value. A default is left out, and the mode stays.
export function changed(params, name, value, fallback, framed = false) {
  const { [name]: _, ...rest } = params;
  if (value !== fallback && value !== "") rest[name] = value;
  return isStory(rest, framed) === isStory(params, framed) ? rest : { ...rest, view: isStory(params, framed) ? "story" : "explore" };
}
