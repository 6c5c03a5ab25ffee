// The player: one per mount. It holds the state (step, speed, loop, view, pin), draws it, and keeps DOM and URL in sync
// with it; update() may be called at any time. Input is in input.js.

import { isDark, makeTheme } from "./colour.js";
import { captionOf, clamp, decodeScene, reader, sameScene, unpack } from "./decode.js";
import { boxOf, stepAt } from "./diagram.js";
import { Still, drawFlows, drawMarks, drawMoving } from "./draw.js";
import { explain, stepMarks } from "./explain.js";
import { render, update } from "./controls.js";
import { embedded, pagePart, report } from "./frame.js";
import { listen } from "./input.js";
import { cellXY, layOut, wideOf, withView } from "./layout.js";
import { SPEEDS, openChapter, otherParams, readLink, writeLink } from "./link.js";
import { REVEALED, fillChapter, remember } from "./chapter.js";
import { fillStrip, sizeOf } from "./strip.js";
import { language, textsIn, tr, useTexts } from "./texts.js";
import { follow } from "./watch.js";
import { WHOLE, viewFrom, viewText } from "./view.js";

const STEP_MS = 620; // duration of one step by hand
const LATE_MS = 15_000; // after Back: a scene that comes within it is the earlier one
const DWELL_MS = 900; // pause at the end of a loop
const MIN_SCALE = 0.8; // of the text of a picture in a low window
const KEY = 8; // px: what the key of colours takes, beside the margin under the picture

// The cell in a text such as "y:0"; null if the scene has no such cell.
function pinOf(text, scene) {
  const [name, index] = (text || "").split(":");
  return scene.tensors[name] && +index < scene.tensors[name].size ? { name, index: +index } : null;
}

// A text of the state, "" if it is the chapter's own.
const unless = (text, own) => (text === own ? "" : text);

// Two scenes with an equal result can share step, pin and loop.
const shapeOf = (scene) => scene && JSON.stringify([scene.key, scene.steps, Object.values(scene.tensors).map((t) => [t.name, t.size])]);

class Player {
  constructor(root, assets) {
    Object.assign(this, { root, assets, scene: null, speed: 1, closed: new AbortController() });
    this.part = Object.fromEntries("canvas body canvas-box kernel file source lanes explanation hint notice play scrub count unfold speed loop order caption readings strip chapter fit transport"
      .split(" ").map((name) => [name, root.querySelector(name === "canvas" ? name : `.${name}`)]));
    this.texts = textsIn(root); // before anything fills the parts
    this.language = "en";
    this.ctx = this.part.canvas.getContext("2d");
    this.lessMotion = matchMedia("(prefers-reduced-motion: reduce)");
    this.layer = document.createElement("canvas"); // of the cells that do not move
    this.reset();
    listen(this);
  }

  reset() {
    Object.assign(this, { t: 0, until: null, playing: false, hover: null, pin: null, loop: null, view: WHOLE, zoomText: "" });
  }

  // -- data ------------------------------------------------------------------------------------------------
  update(bytes) {
    const { root } = this, first = !this.scene;
    try {
      const data = unpack(bytes);
      this.setLanguage(data.texts);
      root.classList.toggle("strip-only", !data.meta);
      if (!data.meta) return this.updateStripOnly(data);
      if (this.failed || !this.data || !sameScene(this.data, data)) this.setScene(data, decodeScene(data.meta, data.block));
      this.setStrip(data);
      this.setTheme(this.data.tokens);
      this.failed = false;
      this.arrange();
      if (root.dataset.ready !== "true") report("ready", (this.sentStep = this.step), this.scene.steps);
      root.dataset.ready = "true";
      if (first) this.others = otherParams(this.state); // opening does not rewrite the URL
      else if (!this.playing) this.writeLink();
      if (this.data.play && !this.started && !this.lessMotion.matches) {
        this.started = true;
        this.loop ||= [0, this.scene.steps - 1];
        this.play();
      }
    } catch (error) {
      this.failed = true;
      this.playing = false;
      root.dataset.ready = "error";
      this.notify(tr("This scene cannot be shown: {reason}.", { reason: error.message }));
    }
  }

  setLanguage(texts) {
    useTexts(texts);
    if (this.language === language()) return;
    this.root.lang = this.language = language();
    for (const [message, show] of this.texts) show(tr(message));
  }

  // A kernel that no scene shows has a strip all the same.
  updateStripOnly(data) {
    const { root } = this;
    clearTimeout(this.timer); // there is no step to write to the URL, and none to play
    this.reset();
    this.scene = null;
    this.data = data;
    root.style.height = "";
    this.setTheme(data.tokens);
    this.setStrip(data);
    root.dataset.ready = "true";
  }

  // Replaces the scene. One of another shape starts at the message's step; on first mount and after Back the URL sets
  // the state.
  setScene(data, scene) {
    const first = !this.scene, turned = data.chapter?.number !== this.data?.chapter?.number;
    const same = shapeOf(scene) === shapeOf(this.scene) && !turned;
    this.data = data;
    this.scene = scene;
    if (data.still) this.makeStill();
    this.forgetLayout();
    if (!same || this.failed) this.notify("");
    if (!same) {
      this.reset();
      this.t = clamp(Math.trunc(this.open || data.step || 0), 0, scene.steps - 1);
      this.open = 0;
      this.loop = data.chapter?.loop || null;
      this.pin = pinOf(data.chapter?.pin, scene);
    }
    if (first || this.wentBack > performance.now()) this.applyLink();
    this.wentBack = 0;
    this.guess = turned ? null : this.guess ?? null;
    if (turned && data.chapter && !this.assets) remember(data.chapter);
    fillChapter(this.part.chapter, data.chapter, this.guess);
    this.root.classList.toggle("with-chapter", Boolean(data.chapter));
    render(this);
  }

  // The next arrange() lays the scene out anew; the cells in the zoomed part stay there.
  forgetLayout() {
    this.layout = this.still = null;
  }

  // Shows the strip of a message, at the size that the page selects; the reader's own choice stays while that is the same.
  setStrip(data) {
    if (this.selected && this.selected !== data.strip?.selected) this.size = null;
    this.selected = data.strip?.selected;
    this.data = data;
    follow(this, data.strip?.watch || "");
    this.showSize(this.size);
    this.showAnswers();
  }

  showSize(key) {
    this.size = key;
    const text = JSON.stringify([this.data.strip, key, this.asks]);
    if (text === this.stripText) return;
    this.stripText = text;
    fillStrip(this.part.strip, this.data.strip, key, this.asks);
  }

  // Tells the page which size is shown: its cards follow.
  sendSize() {
    this.send?.({ do: "size", size: this.stripSize()?.key });
  }

  // Whether the chapter's question waits for a guess: until then the strip holds its figures back.
  get asks() {
    return Boolean(this.data.chapter?.question) && this.guess === null;
  }

  // Hides, until the guess, what gives the answer away: the page's cards (streamlit.css), and the counts if the question asks
  // for them.
  showAnswers() {
    const { asks, data, root } = this;
    if (!data.still) document.documentElement.toggleAttribute("data-guessed", !asks);
    root.classList.toggle("asks-counts", asks && data.chapter.question.hides.includes("counts"));
  }

  // Answers the chapter's question; REVEALED shows the answer without a guess.
  answer(n) {
    if (!this.data.chapter?.question) return;
    this.guess = n;
    fillChapter(this.part.chapter, this.data.chapter, n);
    this.part.chapter.querySelector(`[data-answer="${n}"]`)?.focus({ preventScroll: true });
    this.showSize(this.size);
    this.showAnswers();
  }

  // Opens the next chapter, or the previous one (by -1).
  turn(by) {
    const { chapter } = this.data, number = chapter?.number + by;
    if (number >= 0 && number < chapter.count) this.send?.({ do: "chapter", chapter: number });
  }

  // The size of the strip that is shown; undefined without a strip.
  stripSize() {
    return sizeOf(this.data.strip, this.size);
  }

  // What the reader pressed in the strip: a size, or something for the page to do at the size shown.
  pressStrip(name) {
    if (name.startsWith("size-")) {
      this.showSize(name.slice(5));
      if (this.scene) this.writeLink();
      return this.sendSize();
    }
    if (name === "reveal") return this.answer(REVEALED);
    this.send?.({ do: name, size: this.stripSize().key });
  }

  // Turns the stage into a picture of a step, without controls and without text except titles.
  makeStill() {
    const { root } = this;
    root.classList.add("still");
    for (const name of ["tabindex", "aria-describedby"]) root.removeAttribute(name);
    root.setAttribute("role", "img");
    for (const t of Object.values(this.scene.tensors)) t.note = "";
    if (this.scene.diagram) this.scene.diagram.areas = []; // the chart below the boxes is too tall for a card
  }

  // Takes the state from the URL.
  applyLink() {
    const { data, root } = this, { chapter } = data, params = readLink(data.param ? location.search : "", data.param, this.scene);
    root.classList.toggle("offline", Boolean(this.assets));
    root.dataset.hide = [...(data.hide || []), params.hide || ""].join(" ");
    if (!data.param) return;
    const query = new URLSearchParams(location.search);
    const present = root.toggleAttribute("data-present", query.get("present") === "1");
    if (present && !embedded) root.focus(); // a clicker works without a click
    this.fills = present || (query.get("embed") === "true" && (chapter || query.get("view") === "watch"));
    root.classList.toggle("fills", Boolean(this.fills));
    this.t = clamp(Math.trunc(params.step ?? data.step ?? 0), 0, this.scene.steps - 1);
    this.speed = params.speed || 1;
    this.size = params.size || null;
    this.pin = params.pin || pinOf(chapter?.pin, this.scene);
    this.loop = params.loop || chapter?.loop || null;
    this.view = WHOLE;
    this.zoomText = params.zoom || ""; // a view needs the layout's size
    if (this.layout) this.showView();
    if (params.notes.length) this.notify(params.notes.join(" "));
  }

  // Shows a notice above the stage, which keeps working; "" removes it.
  notify(text) {
    const { notice } = this.part;
    notice.hidden = !text;
    notice.firstElementChild.textContent = text && text[0].toUpperCase() + text.slice(1);
  }

  setTheme(tokens) {
    const style = getComputedStyle(this.root);
    const dark = isDark(style.getPropertyValue("--st-background-color")) ?? matchMedia("(prefers-color-scheme: dark)").matches;
    const key = JSON.stringify([dark, tokens]);
    if (key === this.themeKey) return;
    this.themeKey = key;
    const colours = dark ? tokens.dark : tokens.light;
    this.theme = makeTheme(colours, dark);
    for (const [name, value] of Object.entries(colours)) this.root.style.setProperty(`--${name}`, value);
    this.root.dataset.theme = dark ? "dark" : "light";
    this.family = style.fontFamily;
    this.forgetLayout();
  }

  // -- size ------------------------------------------------------------------------------------------------
  arrange() {
    const { part, root, scene } = this, box = part["canvas-box"];
    if (!scene || !this.theme) return;
    const scale = root.hasAttribute("data-present") ? clamp(Math.min(innerWidth / 1100, innerHeight / 620), 1, 2.4) : this.data.still ? 0.85 : 1;
    root.style.setProperty("--scale", scale);
    const stacked = !/ /.test(getComputedStyle(part.body).gridTemplateColumns);
    const fits = Boolean(this.data.fit) && !this.fills && !stacked;
    root.classList.toggle("fits", fits);
    const fills = fits || (this.fills && (!stacked || [...root.querySelectorAll(".side-panel, .strip")].every((part) => !part.offsetHeight)));
    root.style.height = fits ? `${fittingHeight(root)}px` : fills ? `${innerHeight - root.getBoundingClientRect().top - scrollY}px` : "";
    if (fits) this.reserveCaption();
    part.transport.classList.remove("tight");
    part.transport.classList.toggle("tight", part.transport.scrollWidth > part.transport.clientWidth);
    const width = Math.floor(box.clientWidth), dpr = devicePixelRatio || 1;
    if (width < 60) return;
    const bars = this.data.still ? 0 : 112; // transport and a caption of one line
    const tall = width < 600 && !this.data.still; // of a phone
    const phone = tall && this.data.fit && !fills;
    const space = fills ? box.clientHeight : phone ? Math.max(MIN_PHONE, innerHeight - PHONE_REST)
      : Math.max(120, (this.data.height || 560) - bars) * (tall ? 1.45 : 1);
    const key = [width, space, dpr, scale].join();
    if (this.layout && this.sizeKey === key) return;
    this.sizeKey = key;
    this.forgetLayout();
    const limited = fills || phone || (this.data.still && scene.diagram);
    const layOut = (height) => this.layOutWithin(width, height - (this.data.still ? 0 : KEY * scale), scale, limited);
    layOut(space);
    // Under a chapter's text the reader scrolls anyway: what is too small gets the height that Play and the caption leave.
    if (phone && this.data.chapter && this.isTiny()) layOut(Math.max(space, innerHeight - PHONE_CONTROLS));
    const { shrink } = this;
    if (!this.data.still) this.layout.height += KEY * scale * shrink;
    if (fills || !(stacked || this.data.still)) this.layout.height = Math.max(this.layout.height, fills ? space * shrink : Math.min(space, 400));
    for (const canvas of [part.canvas, this.layer]) {
      canvas.width = Math.round(width * dpr);
      canvas.height = Math.round((this.layout.height * dpr) / shrink);
    }
    Object.assign(part.canvas.style, { width: `${width}px`, height: `${this.layout.height / shrink}px` });
    if (!fits) part.caption.style.minHeight = "";
    this.dpr = dpr / shrink;
    this.rendered.step = null; // the highlighted line may be scrolled out of its list
    this.layout.keyed = !this.data.still;
    this.showView();
  }

  // Keeps the height of the longest of some captions free, so that the picture keeps its size from step to step.
  reserveCaption() {
    const { part, scene } = this, { caption } = part, width = caption.clientWidth, key = `${scene.key} ${width}`;
    if (key === this.reserved) return;
    this.reserved = key;
    const count = Math.min(scene.steps, CAPTIONS_MEASURED), steps = Array.from({ length: count }, (_, k) => Math.round((k * (scene.steps - 1)) / Math.max(1, count - 1)));
    const texts = steps.map((step) => this.captionOf(step).map((p) => p.text).join(""));
    const probe = caption.cloneNode(false);
    Object.assign(probe.style, { position: "absolute", visibility: "hidden", width: `${width}px`, minHeight: "" });
    probe.textContent = texts.reduce((a, b) => (b.length > a.length ? b : a), "");
    caption.after(probe);
    const height = probe.offsetHeight;
    probe.remove();
    caption.style.minHeight = `${height}px`;
  }

  // Whether titles or cells of the picture are too small to be read on a phone.
  isTiny() {
    return this.shrink > PHONE_SHRINK || Object.values(this.layout.blocks || {}).some(({ cell }) => cell < this.shrink * PHONE_CELL);
  }

  // Lays the scene out; one that must fit its window or its card gets smaller text if it would be cut off otherwise, or if the numbers
  // of its aligned rows could not be read.
  layOutWithin(width, space, scale, fits) {
    const smallest = fits || this.fills ? MIN_SCALE * scale : scale, readable = this.data.chapter?.readable;
    const measure = (text, bold) => {
      this.ctx.font = this.font(bold ? 14 : 13, bold);
      return this.ctx.measureText(text).width;
    };
    for (let trial = scale; ; trial = Math.max(smallest, trial - (readable?.length ? 0.2 : 0.1))) {
      this.font = (px, bold) => `${bold ? 600 : 400} ${px * trial}px ${this.family}`;
      this.layout = layOut(this.scene, width, space, measure, trial, readable);
      this.layout.scale = trial;
      this.shrink = 1;
      if (this.layout.fits || trial <= smallest) break;
    }
    if (!fits || this.layout.height <= space) return;
    // Still too tall: lay it out for a larger window and draw it smaller.
    for (let shrink = 1.1; shrink < MAX_SHRINK && this.layout.height / this.shrink > space; shrink += 0.1) {
      this.shrink = shrink;
      this.layout = layOut(this.scene, width * shrink, space * shrink, measure, smallest, readable);
      this.layout.scale = smallest;
    }
  }

  // Draws the layout under a view that the reader chose.
  setView(view) {
    this.zoomText = viewText(view, this.layout);
    this.showView(view);
  }

  showView(view = this.zoomText ? viewFrom(this.zoomText, this.layout) : WHOLE) {
    const { layout, part, layer, dpr } = this;
    this.view = view;
    part.fit.hidden = view === WHOLE;
    part.canvas.classList.toggle("zoomed", view !== WHOLE);
    this.inView = withView(layout, view);
    const ctx = layer.getContext("2d");
    ctx.setTransform(dpr, 0, 0, dpr, 0, 0);
    this.still = new Still(ctx, this.scene, this.inView, this.theme, this.font, dpr);
    this.draw();
  }

  // -- the picture -----------------------------------------------------------------------------------------
  get step() {
    return clamp(Math.ceil(this.t), 0, this.scene.steps - 1);
  }

  // Long scenes run faster: about a minute at 1x, but no step shorter than 130 ms nor longer than 900.
  get msPerStep() {
    return clamp(60000 / this.scene.steps, 130, 900) / this.speed;
  }

  // In very short steps copies do not move but appear at their target.
  get flies() {
    return !this.lessMotion.matches && (this.until !== null || this.msPerStep >= 100);
  }

  draw() {
    const { ctx, still, t } = this;
    if (!still || this.failed) return;
    still.goto(this.flies && !this.scene.diagram ? Math.floor(t) : this.step);
    ctx.setTransform(1, 0, 0, 1, 0, 0);
    ctx.drawImage(this.layer, 0, 0);
    ctx.setTransform(this.dpr, 0, 0, this.dpr, 0, 0);
    this.drawOver(ctx, still, t, this.flies, this.hover);
    update(this);
  }

  // The cell under the mouse is explained before the pinned one, which keeps its outline.
  drawOver(ctx, still, t, flies, hover) {
    const { pin } = this, focus = hover || pin;
    drawMarks(ctx, still, stepMarks(this.scene, clamp(Math.ceil(t), 0, this.scene.steps - 1)), focus ? 0.35 : 1);
    drawFlows(still, ctx, clamp(Math.ceil(t), 0, this.scene.steps - 1));
    if (flies) drawMoving(ctx, still, t);
    if (focus) drawMarks(ctx, still, explain(this.scene, Math.floor(t), focus.name, focus.index).marks, 1);
    if (hover && pin) drawMarks(ctx, still, [{ name: pin.name, cells: [pin.index], as: "write" }], 1);
  }

  // Draws the same picture on any context, in CSS pixels, for downloads.
  paint(ctx, t) {
    const still = new Still(ctx, this.scene, this.inView, this.theme, this.font, 0);
    still.drawAll(Math.floor(t));
    this.drawOver(ctx, still, t, true);
  }

  // What reads an array of the scene's block, for the export as data.
  reader(block) {
    return reader(block);
  }

  captionOf(step) {
    return captionOf(this.scene, step);
  }

  // -- time ------------------------------------------------------------------------------------------------
  tick(now) {
    this.frame = null;
    if (!this.playing && this.until === null) return; // stopped after this frame was requested
    const elapsed = clamp(now - this.last, 0, 100); // a hidden tab must not jump; a frame's time may be before its request
    this.last = now;
    const end = this.playing ? this.loop?.[1] ?? this.scene.steps - 1 : this.until;
    this.t = Math.min(this.t + elapsed / (this.playing ? this.msPerStep : STEP_MS), end);
    if (!this.playing && this.t >= end) this.until = null;
    else if (this.playing && this.t >= end) this.atEnd(elapsed);
    this.draw();
    this.run();
  }

  // A loop pauses at its end, then begins again; else playing ends.
  atEnd(elapsed) {
    if (this.loop?.[1] === undefined) return this.pause();
    this.dwell = (this.dwell || 0) + elapsed;
    if (this.dwell < DWELL_MS) return;
    this.dwell = 0;
    this.t = this.loop[0] - 1;
  }

  run() {
    if (this.frame || !(this.playing || this.until !== null)) return;
    this.last = performance.now();
    this.frame = requestAnimationFrame((now) => this.tick(now));
  }

  play() {
    const [from, to] = this.loop || [], first = to === undefined ? 0 : from, last = to ?? this.scene.steps - 1;
    if (this.t <= first || this.t >= last) this.t = first - 1; // so that the first step is animated too
    this.until = null;
    this.playing = true;
    this.run();
    this.draw();
  }

  pause() {
    this.scrubTo(this.step);
    this.publish();
  }

  toggle() {
    this.playing ? this.pause() : this.play();
  }

  // Goes to a step at once; a single step forward by hand is animated.
  goto(step) {
    const to = clamp(step, 0, this.scene.steps - 1), from = this.step;
    this.scrubTo(to);
    if (to === from + 1 && !this.lessMotion.matches) {
      this.t = from + 1e-6;
      this.until = to;
      this.run();
    }
    this.publish();
  }

  scrubTo(step) {
    this.playing = false;
    this.until = null;
    this.t = step;
    this.draw();
  }

  changeSpeed(by, wrap = false) {
    const at = SPEEDS.indexOf(this.speed) + by;
    this.speed = SPEEDS[wrap ? (at + SPEEDS.length) % SPEEDS.length : clamp(at, 0, SPEEDS.length - 1)];
    this.draw();
    this.writeLink();
  }

  setLoop(from, to) {
    this.loop = from === undefined ? null : to === undefined ? [from] : [Math.min(from, to), Math.max(from, to)];
    this.draw();
    this.writeLink();
  }

  setPin(cell) {
    if (!cell && !this.pin) return;
    if (cell) this.hover = null; // until the mouse moves, the keys explain what they pin
    this.pin = cell;
    this.draw();
    this.writeLink();
  }

  // -- URL -------------------------------------------------------------------------------------------------
  // The state as texts for the URL; the defaults step 0, speed 1, the page's size, no zoom, pin and loop of the
  // chapter or none are left out.
  get state() {
    const { data, pin, loop, zoomText } = this;
    return {
      [data.param]: this.step ? String(this.step) : "", speed: this.speed === 1 ? "" : String(this.speed),
      pin: unless(pin ? `${pin.name}:${pin.index}` : "", data.chapter?.pin),
      loop: unless(loop?.[1] === undefined ? "" : loop.join("-"), data.chapter?.loop?.join("-")),
      size: unless(this.size || "", data.strip?.selected),
      zoom: zoomText,
    };
  }

  // The state that is written to the URL. A bare URL opens the first chapter; with a step alone it would open Explore.
  get linkState() {
    const { state, data: { chapter } } = this;
    const bare = chapter && Object.values(state).some(Boolean) && !/[?&](view|chapter)=/.test(location.search);
    return bare ? { ...state, chapter: String(chapter.number + 1) } : state;
  }

  publish() {
    this.wentBack = 0; // the reader went on
    if (this.sentStep !== this.step) report("at", this.step, this.scene.steps);
    this.sentStep = this.step;
    this.writeLink();
  }

  writeLink() {
    clearTimeout(this.timer);
    if (!this.data.param) return;
    writeLink(this.linkState);
    this.others = otherParams(this.state);
  }

  // If other parameters changed, a new scene may follow: waits up to 2 s for it before applying the URL. A scene that comes
  // later still takes its state from the URL, unless the reader went on.
  linkChanged(how) {
    if (!this.scene || !this.data.param || this.failed) return;
    clearTimeout(this.timer);
    const others = otherParams(this.state), same = others === this.others;
    const later = (act) => { this.timer = setTimeout(act, same && !this.wentBack ? 0 : 2000); };
    if (how === "overwritten") return this.playing || later(() => this.writeLink());
    this.others = others;
    this.scrubTo(this.step);
    this.wentBack = same ? 0 : performance.now() + LATE_MS; // until then the next scene takes its state from the URL
    later(() => {
      const { size } = this;
      this.applyLink();
      this.showSize(this.size);
      if (size !== this.size) this.sendSize(); // else Streamlit could take the press and Back as one, and no longer as Back
    });
  }

  // The step under a point of a diagram's chart, or null.
  stepAt({ x, y }) {
    return this.inView.diagram ? stepAt(this.inView.diagram, this.scene.steps, x, y) : null;
  }

  // The rectangle of a cell in the window.
  cellRect(name, index) {
    const box = this.part.canvas.getBoundingClientRect(), { shrink, inView: { diagram, blocks } } = this, block = blocks[name];
    const { x, y, w = wideOf(block), h = block.cell } = diagram ? boxOf(diagram, name, index) : cellXY(block, index);
    return { x: box.left + x / shrink, y: box.top + y / shrink, width: w / shrink, height: h / shrink };
  }

  close() {
    cancelAnimationFrame(this.frame);
    clearTimeout(this.timer);
    follow(this, "");
    if (!this.data?.still) document.documentElement.removeAttribute("data-guessed");
    this.closed.abort();
  }
}

const MAX_SHRINK = 4, CAPTIONS_MEASURED = 60;
const MIN_PHONE = 260, PHONE_REST = 356; // px: of a picture on a phone; of what is above and below it there
const PHONE_CELL = 4, PHONE_SHRINK = 1.15; // px of a cell, and how much smaller a title may become: beyond them they are too small there
const PHONE_CONTROLS = 200; // px: of the transport and a caption of four lines
const MIN_FIT = 480, MAX_FIT = 1100, BELOW = 10; // px: of a stage that fits its window; of the page left under it

// The height at which the stage ends with the window, while the page is not scrolled.
function fittingHeight(root) {
  const scroller = pagePart(root, "stMain");
  const top = root.getBoundingClientRect().top + (scroller ? scroller.scrollTop : scrollY);
  return Math.max(MIN_FIT, Math.min(MAX_FIT, innerHeight - Math.max(0, top) - BELOW));
}

// Streamlit calls this on mount and whenever data or theme change; the player stays on the element.
export default function stage({ data, parentElement, setTriggerValue }) {
  const root = parentElement.querySelector(".stage");
  root.player ||= new Player(root, parentElement.assets);
  root.player.send = setTriggerValue && ((value) => (value.do === "chapter" ? openChapter(root.player.data.chapter, value.chapter) : setTriggerValue("press", value)));
  root.player.update(data);
  return () => {
    root.player?.close();
    root.player = null;
  };
}
