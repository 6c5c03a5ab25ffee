// The site: opens the address of the browser, draws its page, follows links without a server.

import { changed, FRAME, isStory, keyOf, nearestKey, paramsOf, urlOf } from "./address.js";
import { Drawing, missing, node } from "./draw.js";
import { Hall } from "./hall.js";
import { bytes, json, Missing, module } from "./load.js";
import { Python } from "./python.js";
import { addTools } from "./search.js";
import { stageData, withoutRun } from "./stage.js";

const VIEWS = { kernel: "kernels", run: "cards", why: "cards" }; // the container that a part of a page is in
const THEME = "kernelTheatreTheme"; // in the storage of the browser

function stored(name, value) {
  try {
    if (value === undefined) return localStorage[name];
    if (value) localStorage[name] = value;
    else delete localStorage[name];
  } catch { /* storage is blocked: the theme is that of the system */ }
}

class Site {
  constructor(config) {
    Object.assign(this, config, { ready: new Map(), docs: new Map(), shown: 0, mounted: null });
    this.root = new URL(config.root, location.href);
    this.framed = paramsOf(location.search).embed === "true";
    this.dark = matchMedia("(prefers-color-scheme: dark)");
    this.main = document.querySelector("[data-testid=stMainBlockContainer]");
    this.hall = null;
  }

  async start() {
    history.isKept = true; // the bar's script corrects Streamlit's history, which a site does not have
    this.paintTheme();
    this.dark.addEventListener("change", () => this.paintTheme());
    document.addEventListener("click", (event) => this.follow(event));
    addEventListener("popstate", () => this.show());
    document.addEventListener("pointerover", (event) => this.prefetch(event));
    Object.assign(this, await json(this.core));
    if ("hall" in document.documentElement.dataset)
      this.hall = new Hall(this.root, this.components, (what) => (what === "page" ? this.showAgain() : this.showStrip()));
    await this.show();
    this.python = new Python(this);
    if (this.known?.lost.length) this.compute(this.shown);
  }

  // -- addresses -----------------------------------------------------------------------------------
  pathOf(url) {
    const path = decodeURIComponent(url.pathname.slice(this.root.pathname.length)).replace(/(index)?(\.html)?$/, "").replace(/\/$/, "");
    return url.origin === this.root.origin && url.pathname.startsWith(this.root.pathname) && path in this.pages ? path : null;
  }

  url(path, params, current = {}) {
    return new URL(urlOf(path, params, current), this.root).href;
  }

  // A link of the app is relative to its root: "tiling?chapter=2". Its page is a folder here.
  follow(event) {
    const found = event.composedPath().find((one) => one.href && one.localName === "a");
    if (!found || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey || found.target === "_blank") return;
    const url = new URL(found.href), path = this.pathOf(url);
    if (path === null || url.hash) return;
    event.preventDefault();
    this.go(path, paramsOf(url.search));
  }

  go(path, params) {
    const url = this.url(path, params, this.params);
    if (url !== location.href) history.pushState(null, "", url);
    return this.show();
  }

  async index(path) {
    return this.docs.get(path) ?? json(this.pages[path].index).then((found) => (this.docs.set(path, found), found));
  }

  async found(path, params, framed = this.framed) {
    const { docs, defaults } = await this.index(path), has = (key) => key in docs;
    const keyed = (wanted) => keyOf(wanted, has("chapter=1"), framed), key = keyed(params);
    if (has(key)) return { doc: docs[key], key, near: key, lost: [] };
    // A parameter at its default is left out in keys. What the default is depends on the others: the page found says it.
    const given = Object.entries(params).filter(([name, value]) => defaults[name] === value);
    const fewer = keyed(Object.fromEntries(Object.entries({ view: isStory(params, framed) ? "story" : "explore", ...params }).filter(([name, value]) => defaults[name] !== value)));
    const near = has(fewer) ? fewer : nearestKey(key, has), doc = docs[near];
    const controls = new Map([...elements((await json(doc)).c)].filter((one) => one.bound).map((one) => [one.k, one.d]));
    const isDefault = (name) => has(fewer) && given.some(([one]) => one === name) && `${controls.get(name)}` === params[name];
    const pairs = new Set(near.split("&"));
    const lost = key.split("&").slice(1).filter((pair) => !pairs.has(pair) && !isDefault(decodeURIComponent(pair.split("=")[0])));
    return { doc, key, near, lost: lost.map((pair) => decodeURIComponent(pair.replaceAll("+", " "))) };
  }

  // Loads what a link leads to while the pointer is over it.
  async prefetch(event) {
    const found = event.composedPath().find((one) => one.href && one.localName === "a");
    const url = found && new URL(found.href), path = url ? this.pathOf(url) : null;
    if (path === null) return;
    try {
      await this.ahead(path, paramsOf(url.search));
    } catch { /* a click says what is missing */ }
  }

  async ahead(path, params) {
    const { doc } = await this.found(path, params), { c } = await json(doc), stages = [...elements(c)].filter((one) => one.scene);
    if (stages.some((one) => one.strip)) await this.hall?.strip(path, pageParams(params));
    await Promise.all(stages.map((one) => bytes(one.scene)));
  }

  // -- what is shown -------------------------------------------------------------------------------
  async show() {
    const turn = ++this.shown, path = this.pathOf(new URL(location.href)), params = paramsOf(location.search);
    this.main.setAttribute("aria-busy", "true");
    try {
      if (path === null) throw new Error(`This site has no page ${location.pathname}.`);
      const known = await this.found(path, params), doc = await this.docOf(path, params, known);
      if (!doc) return;
      const parts = [...elements(doc.c)];
      // What is above and on the stage first: nothing moves when the page is drawn.
      const navigation = parts.find((one) => one.k === "nav" && one.ref);
      await Promise.all([
        ...parts.filter((one) => one.scene).map((one) => bytes(one.scene)),
        ...(navigation ? [json(navigation.ref).then((found) => this.ready.set(navigation.ref, found))] : []),
        ...(parts.some((one) => one.scene) ? [module(this.components.stage.js)] : []),
      ]);
      if (turn === this.shown) this.draw(path, params, doc, known);
      if (known.lost.length) this.compute(turn);
    } catch (error) {
      if (turn === this.shown) this.fail(error);
    }
    this.main.removeAttribute("aria-busy");
  }

  // The page as the site holds it, or as the hall draws it if that knows more; null if that leads elsewhere.
  async docOf(path, params, known) {
    if (!this.hall?.draws(path)) return json(known.doc);
    try {
      const { doc, to } = await this.hall.page(path, pageParams(params));
      if (to) this.go(...to);
      known.lost = [];
      return doc ?? null;
    } catch (error) {
      this.hall.error = { path, text: error.message };
      return json(known.doc);
    }
  }

  // Draws an address that the site does not hold, by Python in this browser or by the hall. Until then the nearest one is
  // shown.
  async compute(turn) {
    const { path, params, known, python, hall } = this;
    if (!(python instanceof Python)) return; // its turn comes
    if (!python.canRun) return void (hall && this.computeThere(turn));
    this.say("Python in this browser computes this page …");
    try {
      // The scene first. The emulator's counts take longer: the page is drawn again with them.
      const drawn = async (doc, height = "") => {
        const bar = [...elements(doc.c)].find((one) => one.k === "nav" && one.ref);
        if (bar) this.ready.set(bar.ref, await json(bar.ref));
        if (turn !== this.shown) return;
        this.main.style.minHeight = height; // a page without its cards is shorter: what the reader sees stays in place
        this.draw(path, params, doc, { ...known, lost: [] });
      };
      for (let first = true; ; first = false) {
        const onStage = first ? (doc) => drawn(doc, `${this.main.offsetHeight}px`) : null;
        const { doc, to, counting } = await python.record(path, pageParams(params), onStage);
        if (turn !== this.shown) return;
        if (to) return void this.go(...to);
        await drawn(doc);
        this.counting = counting;
        while (this.counting && turn === this.shown) this.counting = await python.countNext();
        if (!first || !counting || turn !== this.shown) return;
      }
    } catch (error) {
      console.warn(error);
      if (turn === this.shown) this.say(`Python in this browser could not compute this page: ${error.message}`);
    }
  }

  async computeThere(turn) {
    const { path, params, known, hall } = this;
    this.say("The server computes this page …");
    try {
      const drawn = (doc) => this.draw(path, params, doc, { ...known, lost: [] });
      const to = await hall.follow(path, pageParams(params), drawn, () => turn === this.shown);
      if (to && turn === this.shown) this.go(...to);
    } catch (error) {
      if (turn === this.shown) this.say(`The server could not compute this page: ${error.message}`);
    }
  }

  say(text) {
    const words = this.main.querySelector(".site-lost");
    if (words) words.textContent = text;
  }

  draw(path, params, doc, known) {
    const moved = path !== this.path, before = this.drawing;
    Object.assign(this, { path, params, doc, known });
    this.drawing = new Drawing(this, { ...doc.params, ...params }, (to, next) => this.go(to, this.ofControls(next)));
    document.title = [this.pages[path].title, "Kernel Theatre"].filter((one, n, all) => all.indexOf(one) === n).join(" · ");
    document.body.dataset.page = path;
    this.frame(params, known);
    this.askStrip();
    const inside = node("div", "stVerticalBlock", ...this.drawing.all(this.chosen(doc.c, params)));
    (inside.querySelector(":scope > :has(.st-key-nav)") || inside)[inside.querySelector(".st-key-nav") ? "after" : "prepend"](...this.noteOf(known));
    inside.dataset.testid = "stVerticalBlock";
    if (!inside.querySelector(".site-stage")) this.unmount();
    this.main.replaceChildren(inside);
    before?.close();
    this.fold();
    if (!this.isAlone) addTools(this);
    if (moved) this.main.parentElement.scrollTop = 0;
    requestIdleCallback?.(() => this.readAhead()) ?? setTimeout(() => this.readAhead(), 500);
  }

  // The parameters that a control sets are those of the URL; a chapter's stay where they differ from it.
  ofControls(next) {
    return Object.fromEntries(Object.entries(next).filter(([name]) => !["step", "pin", "zoom", "loop"].includes(name)));
  }

  readAhead() {
    const chapter = this.stageElement()?.head.chapter;
    if (chapter?.next) this.ahead(this.path, { ...this.params, chapter: String(chapter.number + 2) }).catch(() => {});
  }

  stageElement() {
    return [...elements(this.doc.c)].find((one) => one.scene);
  }

  // In a lecture hall, or for a frame that watches, there is the stage alone.
  frame(params) {
    const story = isStory(params, this.framed);
    this.isAlone = params.present === "1" || (this.framed && (params.view === "watch" || story)) || params.view === "watch";
    document.body.classList.toggle("site-alone", this.isAlone);
    document.body.classList.toggle("site-embedded", this.framed);
  }

  // The elements to draw: the whole page, one part of it (?view=), or the stage alone. A frame has no bar.
  chosen(all, { view }) {
    if (this.isAlone) return [...elements(all)].filter((one) => one.scene);
    const found = VIEWS[view] ? [...elements(all)].filter((one) => one.k === VIEWS[view]) : [];
    const bar = all.filter((one) => !this.framed && (one.k === "nav" || one.c?.some((inner) => inner.k === "nav")));
    return found.length ? [...bar, ...found] : this.framed ? all.filter((one) => one.k !== "nav") : all;
  }

  noteOf({ lost }) {
    if (!lost.length) return [];
    const words = node("p", "kt-note site-lost", `This site holds presets and recorded choices. It has none for ${lost.join(", ")}, so the nearest one is shown. `);
    words.setAttribute("role", "status");
    if (this.live) words.append(Object.assign(node("a", "", "Open it in the app"), { href: this.liveUrl() }));
    const place = node("div", "stElementContainer", node("div", "stHtml", words));
    place.dataset.testid = "stElementContainer";
    return [place];
  }

  liveUrl() {
    return new URL(`${this.path ?? ""}${location.search}`, this.live).href;
  }

  fail(error) {
    if (!(error instanceof Missing)) console.error(error);
    const words = missing(error), home = Object.assign(node("a", "", "All lessons"), { href: this.root.href });
    const inside = node("div", "stVerticalBlock", words, node("p", "kt-quiet", home));
    this.drawing?.close();
    this.drawing = null;
    this.unmount();
    this.main.replaceChildren(inside);
  }

  fold() {
    for (const empty of this.main.querySelectorAll(".stLayoutWrapper > :is(.stVerticalBlock, .stHorizontalBlock):empty")) empty.parentElement.hidden = true;
  }

  // -- the stage -----------------------------------------------------------------------------------
  // The player of the same stage stays from page to page, and goes on.
  stage(drawing, element, place) {
    const isFirst = element.k !== "home" && !element.k.startsWith("preview");
    const kept = isFirst && this.mounted?.key === element.k && this.mounted;
    const host = kept ? kept.host : node("div", isFirst ? "site-stage" : "");
    if (!kept) host.attachShadow({ mode: "open" });
    const mount = async () => {
      const [{ default: player, html, css }, data] = await Promise.all([module(this.components.stage.js), stageData(element, this)]);
      if (!host.shadowRoot.firstChild) host.shadowRoot.innerHTML = `<style>${css}</style>${html}`;
      const paint = () => player({ data, parentElement: host.shadowRoot, setTriggerValue: (_, value) => this.press(element, value) });
      const close = paint();
      if (isFirst) this.mounted = { key: element.k, host, close, paint };
      else drawing.cleanups.push(close);
      drawing.charts.push({ paint });
    };
    const start = () => mount().catch((error) => host.replaceWith(missing(error)));
    if (isFirst) queueMicrotask(start);
    else {
      host.style.minHeight = `${element.head.height || 220}px`;
      new IntersectionObserver((entries, observer) => {
        if (!entries.at(-1).isIntersecting) return;
        observer.disconnect();
        start();
      }, { rootMargin: "300px" }).observe(host);
    }
    place.append(host);
    place.dataset.testid = "stBidiComponentIsolated";
    return place;
  }

  // The strip of a stage: that of the first one is about the server, where there is a hall.
  stripOf(element) {
    const { hall, path, params, doc } = this;
    if (!hall || !element.strip || element !== this.stageElement()) return withoutRun(element.strip);
    const known = doc.live ? element.strip : hall.strip(path, pageParams(params));
    return hall.shown(known?.run ? known : withoutRun(element.strip), path);
  }

  // Shows the strip of the page anew once the hall has sent it.
  async askStrip() {
    const turn = this.shown, { hall, path, params, doc } = this;
    if (!hall || doc.live || !this.stageElement()?.strip) return;
    await Promise.resolve(hall.strip(path, pageParams(params))).catch(() => {});
    if (turn === this.shown) this.showStrip();
  }

  showStrip() {
    const element = this.stageElement(), player = this.mounted?.host.shadowRoot.querySelector(".stage")?.player;
    const { running, error } = this.hall;
    for (const words of this.main.querySelectorAll(".site-progress")) if (running && !running.turn) words.textContent = running.run.text;
    for (const words of this.main.querySelectorAll(".site-refused")) words.textContent = error?.path === this.path ? error.text : "";
    if (element && player?.data) player.setStrip({ ...player.data, strip: this.stripOf(element) });
  }

  unmount() {
    this.mounted?.close?.();
    this.mounted = null;
  }

  // A link of a part of the page: parameters to set, "" to leave out. The rows of a link (?result=) are those of the run before.
  follows(change) {
    const left = Object.fromEntries(Object.entries(this.params).filter(([name]) => !(name in change) && !((name.replace(/_?result$/, "") || "run") in change)));
    this.go(this.path, { ...left, ...Object.fromEntries(Object.entries(change).filter(([, value]) => value)) });
  }

  async pressed(what) {
    const to = await this.hall?.press(this.path, pageParams(this.params), what);
    if (to) this.go(...to);
  }

  // Draws the page with what the hall knows now. It keeps its height until its parts are loaded: what the reader sees stays.
  async showAgain() {
    this.main.style.minHeight = `${this.main.offsetHeight}px`;
    await this.show();
    setTimeout(() => { this.main.style.minHeight = ""; }, 1000);
  }

  // What the reader pressed on the stage.
  press(element, pressed) {
    const { params, path } = this, { head } = element;
    switch (pressed.do) {
      case "order":
        return this.go(path, changed(this.ofControls(params), "order", pressed.order, head.orders[0].name, this.framed));
      case "steps":
        return this.go(path, changed(this.ofControls(params), "steps", head.every.all ? "folded" : "all", "folded", this.framed));
      case "put":
        return this.doc.put && this.go(...this.doc.put);
      case "run":
        return this.pressed({ do: "run", key: element.k, size: pressed.size });
      case "stop":
        return this.hall?.stop();
    }
  }

  // -- themes --------------------------------------------------------------------------------------
  isDark() {
    return (stored(THEME) || (this.dark.matches ? "dark" : "light")) === "dark";
  }

  turnTheme() {
    const next = this.isDark() ? "light" : "dark";
    stored(THEME, next === (this.dark.matches ? "dark" : "light") ? "" : next);
    this.paintTheme(next);
  }

  paintTheme(theme = this.isDark() ? "dark" : "light") {
    document.documentElement.dataset.theme = theme;
    for (const chart of this.drawing?.charts ?? []) chart.paint();
  }
}

// The parameters that a page reads, without how it is framed.
const pageParams = (params) => Object.fromEntries(Object.entries(params).filter(([name]) => !FRAME.includes(name)));

function* elements(all) {
  for (const element of all) {
    yield element;
    for (const inner of element.c || []) yield* Array.isArray(inner) ? elements(inner) : elements([inner]);
  }
}

const site = new Site(JSON.parse(document.getElementById("site").textContent));
globalThis.site = site; // for tests
site.start().catch((error) => site.fail(error));
