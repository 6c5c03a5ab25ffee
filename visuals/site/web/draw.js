// The elements of a recorded page as HTML. Classes and structure are those of Streamlit, so that the app's styles apply.

import { changed } from "./address.js";
import { chart } from "./chart.js";
import { listing } from "./code.js";
import { json, module } from "./load.js";

export function node(name, className = "", ...inside) {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.append(...inside);
  return made;
}

const escaped = (text) => text.replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);

// The few marks that labels have: **bold**, *emphasis*, `code`.
export function label(text) {
  const made = node("p");
  made.innerHTML = escaped(text).replace(/\*\*(.+?)\*\*/g, "<strong>$1</strong>").replace(/\*(.+?)\*/g, "<em>$1</em>").replace(/`(.+?)`/g, "<code>$1</code>");
  return made;
}

const keyed = (made, key) => {
  if (key) made.classList.add(`st-key-${key.replace(/[^\w-]/g, "-")}`);
  return made;
};

// One page that is being drawn. `go(path, params)` opens an address.
export class Drawing {
  constructor(site, params, go) {
    Object.assign(this, { site, params, go, cleanups: [], charts: [], bodies: [] });
  }

  close() {
    for (const cleanup of this.cleanups) cleanup();
    for (const body of this.bodies) body.remove();
  }

  all(elements) {
    return elements.map((element) => this.one(element)).filter(Boolean);
  }

  one(element) {
    const draw = DRAW[element.t];
    if (!draw) return null;
    const inside = draw(this, element);
    if (!inside || inside.dataset?.whole) return inside;
    const place = keyed(node("div", "stElementContainer", inside), element.k);
    place.dataset.testid = "stElementContainer";
    if (element.width) place.style.width = `${element.width}px`;
    return place;
  }

  change(element, value) {
    this.go(this.site.path, changed(this.params, element.k, String(value), element.d === null ? "" : plain(element.d), this.site.framed));
  }
}

const plain = (value) => (typeof value === "number" ? String(value) : value);

function box(drawing, element) {
  const inner = keyed(node("div", element.hz ? "stHorizontalBlock" : "stVerticalBlock", ...drawing.all(element.c)), element.k);
  inner.dataset.testid = element.hz ? "stHorizontalBlock" : "stVerticalBlock";
  if (element.border) inner.classList.add("site-border");
  if (element.height && !element.c.length) inner.style.height = `${element.height}px`;
  const outer = node("div", "stLayoutWrapper", inner);
  outer.dataset.testid = "stLayoutWrapper";
  outer.dataset.whole = "1";
  return outer;
}

// A place for what is loaded when it is near the window; words where it is missing.
function later(drawing, make, height = 0) {
  const place = node("div", "site-later");
  place.dataset.whole = "1";
  if (height) place.style.minHeight = `${height}px`;
  new IntersectionObserver(async (entries, observer) => {
    // A busy browser reports several changes at once: the last one counts.
    if (!entries.at(-1).isIntersecting) return;
    observer.disconnect();
    try {
      const made = await make();
      if (made) place.replaceWith(made);
      else place.remove();
    } catch (error) {
      place.replaceWith(missing(error));
    }
  }, { rootMargin: "300px" }).observe(place);
  return place;
}

export function missing(error) {
  const words = node("p", "kt-note", error.message);
  words.setAttribute("role", "status");
  return words;
}

let bodies = 0;

function popover(drawing, element) {
  const body = node("div", "site-popover"), id = `popover-${++bodies}`;
  body.dataset.testid = "stPopoverBody";
  Object.assign(body, { id, popover: "auto" });
  const inner = node("div", "stVerticalBlock", ...drawing.all(element.c));
  inner.dataset.testid = "stVerticalBlock";
  body.append(inner);
  document.body.append(body);
  drawing.bodies.push(body);
  const button = node("button", "", label(element.l), node("span", "site-caret"));
  Object.assign(button, { type: "button" });
  button.dataset.testid = "stPopoverButton";
  button.setAttribute("aria-expanded", "false");
  button.popoverTargetElement = body;
  body.addEventListener("toggle", (event) => {
    const open = event.newState === "open", at = button.getBoundingClientRect();
    button.setAttribute("aria-expanded", String(open));
    if (!open) return;
    const left = Math.max(8, Math.min(at.left, innerWidth - body.offsetWidth - 8));
    Object.assign(body.style, { left: `${left}px`, top: `${at.bottom + 4}px`, maxHeight: `${Math.max(180, innerHeight - at.bottom - 16)}px` });
  });
  return node("div", "stPopover", button);
}

function tabs(drawing, element) {
  const bar = node("div", "site-tabs"), panel = node("div", "site-tab");
  bar.setAttribute("role", "tablist");
  panel.setAttribute("role", "tabpanel");
  const open = (at) => {
    [...bar.children].forEach((one, n) => {
      one.setAttribute("aria-selected", String(n === at));
      one.tabIndex = n === at ? 0 : -1;
    });
    panel.replaceChildren(...drawing.all(element.c[at]));
  };
  element.names.forEach((name, at) => {
    const button = node("button", "", name);
    button.type = "button";
    button.setAttribute("role", "tab");
    button.onclick = () => open(at);
    button.onkeydown = (event) => {
      const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!by) return;
      const next = (at + by + element.names.length) % element.names.length;
      open(next);
      bar.children[next].focus();
    };
    bar.append(button);
  });
  open(element.front);
  return node("div", "stTabs", bar, panel);
}

function link(drawing, element) {
  const [path, params] = element.to, made = node("a", "stPageLink-NavLink", label(element.l));
  made.href = drawing.site.url(path, params, drawing.params);
  made.dataset.testid = "stPageLink-NavLink";
  if (element.help) made.title = element.help;
  return node("div", "stPageLink", made);
}

function named(drawing, element, className, control) {
  const id = `control-${++bodies}`, head = node("label", "", label(element.l || ""));
  control.id = head.htmlFor = id;
  if (!element.l) control.setAttribute("aria-label", element.name || element.k);
  const inner = node("div", "", control);
  inner.dataset.testid = `${className}Container`;
  return node("div", className, ...(element.l ? [head] : []), inner);
}

function field(drawing, element, className, control, value) {
  Object.assign(control, { value: value ?? "" });
  control.addEventListener("change", () => control.value !== String(value ?? "") && drawing.change(element, control.value));
  return named(drawing, element, className, control);
}

function number(drawing, element) {
  const control = node("input");
  Object.assign(control, { type: "number", step: "any" });
  for (const side of ["min", "max"]) if (element[side] !== null) control[side] = element[side];
  return field(drawing, element, "stNumberInput", control, element.v);
}

function select(drawing, element) {
  const control = node("select", "", ...element.o.map((option) => Object.assign(node("option", "", option), { value: option })));
  return field(drawing, element, "stSelectbox", control, element.v);
}

function pills(drawing, element) {
  const group = node("div", "stButtonGroup");
  group.setAttribute("role", "group");
  group.setAttribute("aria-label", element.name || element.l || "");
  for (const option of element.o) {
    const button = node("button", "", label(option));
    button.type = "button";
    button.setAttribute("aria-pressed", String(option === element.v));
    button.onclick = () => option !== element.v && drawing.change(element, option);
    group.append(button);
  }
  return element.l ? node("div", "", label(element.l), group) : group;
}

function component(drawing, element) {
  const { site } = drawing;
  const host = node("div");
  host.dataset.testid = "stBidiComponentRegular";
  if (element.name === "stage") return drawing.site.stage(drawing, element, host);
  const kind = site.components[element.name];
  (async () => {
    const [{ default: mount }, data] = await Promise.all([module(kind.js), element.ref ? json(element.ref) : element.data]);
    host.innerHTML = kind.html;
    if (host.isConnected) drawing.cleanups.push(mount({ data, parentElement: host, setTriggerValue: (_, value) => site.follows(value) }) || (() => {}));
  })().catch((error) => host.replaceChildren(missing(error)));
  return host;
}

// What measures or loads is done by the hall, or by the app where the site knows one.
function button({ site, params }, element) {
  const { hall } = site, link = (href) => Object.assign(node("a", "kt-save", element.l), { href });
  if (hall && element.file) return node("div", "stButton", Object.assign(link(hall.url("file", site.path, { ...params, file: element.k })), { download: element.file }));
  if (hall && element.k) {
    const made = Object.assign(node("button", "kt-save", element.l), { type: "button", onclick: () => site.pressed({ do: "button", key: element.k }) });
    return node("div", "stButton", made, Object.assign(node("span", "kt-quiet site-refused"), { role: "alert" }));
  }
  return site.live && node("div", "stButton", link(site.liveUrl()));
}

// A file of rows for History. Pictures of one's own are read by the app alone.
function upload({ site }, element) {
  if (!site.hall || element.k !== "upload") return null;
  const control = Object.assign(node("input"), { type: "file", accept: element.kinds.join() }), words = Object.assign(node("p", "kt-quiet"), { role: "status" });
  control.setAttribute("aria-label", element.l);
  control.onchange = async () => { words.textContent = await site.hall.take(control.files[0]); };
  return node("div", "", control, words);
}

const html = (drawing, element) => {
  const made = node("div", "stHtml");
  made.dataset.testid = "stHtml";
  made.innerHTML = element.h;
  return made;
};

const DRAW = {
  box, tabs, link, number, select, pills, component, html,
  pop: popover,
  ref: (drawing, element) => (element.k === "nav"
    ? now(drawing, element)
    : later(drawing, async () => drawing.one(await json(element.ref)), 40)),
  caption: (_, element) => {
    const made = node("div", "stCaption", label(element.l));
    made.dataset.testid = "stCaptionContainer";
    return made;
  },
  code: (drawing, element) => later(drawing, async () => listing(await json(element.ref)), 200),
  chart: (drawing, element) => {
    const made = chart(element, drawing.site);
    drawing.charts.push(made);
    return made;
  },
  button,
  file: upload,
  progress: (_, element) => element.l && Object.assign(node("p", "kt-quiet site-progress", element.l), { role: "status" }),
  text: (drawing, element) => field(drawing, element, "stTextInput", Object.assign(node("input"), { placeholder: element.hint || "" }), element.v),
  area: (drawing, element) => field(drawing, element, "stTextArea", Object.assign(node("textarea"), { placeholder: element.hint || "", rows: 4 }), element.v),
};

// The bar is loaded before the page is shown: nothing moves when it comes.
function now(drawing, element) {
  return drawing.site.ready.get(element.ref) ? drawing.one(drawing.site.ready.get(element.ref)) : null;
}
