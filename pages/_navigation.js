// Two things that Streamlit has no element for: a link that moves the focus to the stage, and entries in the browser's history
// that Back can undo.

const STAGE_PARAMS = ["step", "speed", "pin", "zoom", "loop"]; // link.js writes these
const SETTLED_MS = 1000, LEAVING_MS = 10_000, MAX_TRIES = 3;

// -- the browser's history ----------------------------------------------------------------------
// Streamlit 1.67 replaces the URL when a control changes, so that Back leaves the app. While it goes to another page,
// it first pushes the URL of the old page without its parameters: a state nobody saw. And of the parameters of the new
// page it removes those that the old page has too. All three go through pushState and replaceState.
function keepHistory() {
  if (window.history.isKept) return;
  window.history.isKept = true;
  const push = window.history.pushState.bind(window.history), replace = window.history.replaceState.bind(window.history);
  let settling = false; // what changes the URL follows from a control or from Back, not from a new input
  let wanted = null, tries = 0; // the URL of another page to which a link or Back leads
  let leaving = 0, lastNames = "", lastTime = -Infinity, path = window.location.pathname;
  const address = (to) => new URL(to ?? "", window.location.href);
  const isHere = (url) => url.pathname === window.location.pathname;
  const lacks = (url) => wanted?.pathname === url.pathname && namesOf(wanted).some((name) => !url.searchParams.has(name));

  // Asks Streamlit for the wanted URL again, now that its page is the current one. A busy server may take this request
  // and the one of Back as one, so there is more than one try.
  const restore = () => {
    const { href } = wanted;
    if (++tries >= MAX_TRIES) wanted = null;
    setTimeout(() => {
      replace(window.history.state, "", href);
      window.dispatchEvent(new PopStateEvent("popstate", { state: window.history.state }));
    });
  };
  window.history.pushState = (state, title, to) => {
    const url = address(to);
    if (isHere(url) && leaving > performance.now()) return;
    if (isHere(url) && settling) return void replace(state, title, to);
    if (!isHere(url)) [leaving, path] = [0, url.pathname];
    lastTime = -Infinity;
    push(state, title, to);
    if (lacks(url)) restore();
  };
  window.history.replaceState = (state, title, to) => {
    const url = address(to), names = changedNames(new URL(window.location.href), url);
    if (lacks(url)) return restore();
    if (settling || !isHere(url) || !names.length) return void replace(state, title, to);
    const repeated = names.join() === lastNames && performance.now() - lastTime < SETTLED_MS; // a button held down
    [settling, lastNames, lastTime] = [true, names.join(), performance.now()];
    (repeated ? replace : push)(state, title, to);
  };
  const on = (name, listen) => window.addEventListener(name, listen, true);
  on("popstate", (event) => {
    [settling, leaving, lastTime] = [true, 0, -Infinity];
    if (!event.isTrusted) return; // from restore
    tries = 0;
    wanted = path === window.location.pathname ? null : new URL(window.location.href);
    path = window.location.pathname;
  });
  for (const name of ["pointerdown", "keydown"]) on(name, () => ([settling, wanted] = [false, null]));
  on("click", (event) => {
    const link = event.target.closest?.("a[href]");
    if (!link || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const url = new URL(link.href);
    if (url.origin === window.location.origin && !isHere(url)) [leaving, wanted, tries] = [performance.now() + LEAVING_MS, url, 0];
  });
}

// The names of a URL's parameters, without those that the stage writes by itself.
const namesOf = (url) => [...new Set(url.searchParams.keys())].filter((name) => !STAGE_PARAMS.includes(name));

// A URL without a chapter opens the first one.
const valueOf = (url, name) => url.searchParams.get(name) ?? (name === "chapter" ? "1" : null);

const changedNames = (before, after) =>
  [...new Set([...namesOf(before), ...namesOf(after)])].filter((name) => valueOf(before, name) !== valueOf(after, name)).sort();

// -- the link that skips the bar ------------------------------------------------------------------
function findStage() {
  for (const host of document.querySelectorAll('[data-testid="stMain"] *')) {
    const stage = host.shadowRoot?.querySelector(".stage:not(.still)");
    if (stage) return stage;
  }
  return document.querySelector("h1.kt-title");
}

function skip(event) {
  event.preventDefault();
  const target = findStage();
  if (!target) return;
  if (target.tabIndex < 0) target.tabIndex = -1;
  target.focus();
  target.scrollIntoView({ block: "nearest" });
}

function drawSkip(box, { text }) {
  const link = box.querySelector("a") || box.appendChild(document.createElement("a"));
  Object.assign(link, { className: "kt-skip", href: "#stage", textContent: text, onclick: skip });
  // Streamlit's own link leads to the container of the bar, and Tab would stop at this container.
  document.querySelector('[data-testid="stMain"]')?.setAttribute("tabindex", "-1");
}

export default function ({ data, parentElement }) {
  document.documentElement.lang = data.language.replace("_", "-");
  keepHistory();
  return drawSkip(parentElement, data);
}
