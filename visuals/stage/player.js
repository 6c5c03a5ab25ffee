// The player: DOM, transport, keyboard, pointer and the loop. One a mount; update() may come any time.

const SPEEDS = [0.25, 0.5, 1, 2, 4, 8];
const STEP_MS = 620; // one step by hand; its flights take 620 * FLIGHT = 384 ms
const PLAY_ICON = "M4 2.5v11L13 8z", PAUSE_ICON = "M3.5 2.5h3v11h-3zM9.5 2.5h3v11h-3z";

// Long scenes run faster: about a minute at 1x, but no step shorter than 130 ms nor longer than 900.
const playMs = (steps) => clamp(60000 / steps, 130, 900);

class Player {
  constructor(root) {
    this.root = root;
    const find = (selector) => root.querySelector(selector);
    this.part = Object.fromEntries(["body", "canvas", "kernel", "file", "source", "lanes", "pane", "words", "hint", "notice", "play", "scrub", "count",
      "speed", "order", "caption"].map((name) => [name, find(name === "canvas" ? "canvas" : `.${name}`)]));
    this.part.box = find(".canvas-box");
    this.part.note = find(".order-note");
    this.ctx = this.part.canvas.getContext("2d");
    this.calm = matchMedia("(prefers-reduced-motion: reduce)");
    this.scene = null;
    this.speed = 1;
    this.rest();
    root.cellRect = (name, index) => this.cellRect(name, index);
    this.listen();
  }

  rest() {
    Object.assign(this, { t: 0, until: null, playing: false, hover: null, pin: null, shown: {} });
  }

  // -- data ------------------------------------------------------------------------------------------------
  update(bytes) {
    try {
      if (this.failed || !this.data || !sameBytes(this.data.bytes, bytes)) {
        const data = unpack(bytes);
        const scene = decodeScene(data.meta, data.block);
        this.take(data, scene);
      }
      this.setTheme(this.data.tokens);
      this.failed = false;
      this.arrange();
      this.root.dataset.ready = "true";
    } catch (error) {
      this.failed = true;
      this.pause();
      this.root.dataset.ready = "error";
      this.part.notice.hidden = false;
      this.part.notice.textContent = `This scene cannot be shown: ${error.message}.`;
    }
  }

  // A scene with another key starts anew: on first mount at the step in the link, else where it is asked to.
  take(data, scene) {
    const first = !this.scene, same = scene.key === this.scene?.key;
    this.data = data;
    this.param = data.param;
    if (!same) {
      this.rest();
      const asked = (first ? stepInLink(data.param) : null) ?? data.step;
      this.t = Math.trunc(Number(asked)) || 0;
    }
    this.swap(scene);
    if (!first && !same) this.writeLink();
  }

  swap(scene) {
    this.scene = scene;
    this.still = null;
    this.layout = null;
    this.t = clamp(this.t, this.playing ? -1 : 0, scene.steps - 1);
    const { part, root } = this;
    part.notice.hidden = true;
    root.dataset.scene = scene.key;
    root.setAttribute("aria-label", `Stage: ${scene.title}`);
    part.scrub.max = scene.steps - 1;
    part.count.style.minWidth = `${2 * scene.steps.toLocaleString("en").length + 3}ch`;
    part.order.textContent = scene.orderName;
    part.order.title = part.note.textContent = scene.orderNote;
    part.order.parentElement.hidden = !scene.orderName;
    part.kernel.hidden = !scene.source;
    if (scene.source) {
      part.file.replaceChildren(scene.source.file, element("span", "detail", scene.source.detail));
      fillSource(part.source, scene.source);
    }
    this.shown = {};
  }

  setTheme(tokens) {
    const style = getComputedStyle(this.root);
    const dark = isDark(style.getPropertyValue("--st-background-color")) ?? this.calmDark();
    const key = JSON.stringify([dark, tokens]);
    if (key === this.themeKey) return;
    this.themeKey = key;
    const own = dark ? tokens.dark : tokens.light;
    this.theme = makeTheme(own, dark);
    for (const [name, value] of Object.entries(own)) this.root.style.setProperty(`--${name}`, value);
    this.root.dataset.theme = dark ? "dark" : "light";
    const family = style.fontFamily;
    this.font = (px, bold) => `${bold ? 600 : 400} ${px}px ${family}`;
    this.still = null;
  }

  calmDark() {
    return matchMedia("(prefers-color-scheme: dark)").matches;
  }

  // -- size ------------------------------------------------------------------------------------------------
  arrange() {
    const width = Math.floor(this.part.box.clientWidth), dpr = devicePixelRatio || 1;
    if (!this.scene || width < 60) return;
    const key = [width, dpr, this.data.height].join();
    if (this.layout && this.sizeKey === key && this.still) return this.draw();
    this.sizeKey = key;
    const narrow = width < 600;
    const bars = 112; // transport and a caption of one line
    const room = Math.max(260, (this.data.height || 560) - bars) * (narrow ? 1.45 : 1);
    this.layout = layOut(this.scene, width, room, (text, bold) => {
      this.ctx.font = this.font(bold ? 14 : 13, bold);
      return this.ctx.measureText(text).width;
    });
    const stacked = getComputedStyle(this.part.body).gridTemplateColumns.split(" ").length < 2;
    this.layout.height = stacked ? this.layout.height : Math.max(this.layout.height, Math.min(room, 400));
    const { canvas } = this.part;
    canvas.width = Math.round(width * dpr);
    canvas.height = Math.round(this.layout.height * dpr);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${this.layout.height}px`;
    this.still = new StillLayer(this.scene, this.layout, this.theme, dpr, this.font);
    this.draw();
  }

  // -- the picture -----------------------------------------------------------------------------------------
  get step() {
    return clamp(Math.ceil(this.t), 0, this.scene.steps - 1);
  }

  // Steps too short to be followed do not fly: cells stand where they land.
  get flights() {
    return !this.calm.matches && (this.until !== null || playMs(this.scene.steps) / this.speed >= 100);
  }

  draw() {
    const { ctx, still, scene, t } = this;
    if (!still || this.failed) return;
    still.goto(this.flights ? Math.floor(t) : this.step);
    ctx.setTransform(1, 0, 0, 1, 0, 0);
    ctx.drawImage(still.canvas, 0, 0);
    ctx.setTransform(still.dpr, 0, 0, still.dpr, 0, 0);
    const focus = this.pin || this.hover;
    drawMarks(ctx, still, stepMarks(scene, this.step), focus ? 0.35 : 1);
    drawMoving(ctx, still, t, this.flights);
    if (focus) drawMarks(ctx, still, this.explained(focus).marks, 1);
    this.show();
  }

  explained(focus) {
    return explain(this.scene, Math.floor(this.t), focus.name, focus.index);
  }

  // DOM follows the picture; only what changed is touched.
  show() {
    const { part, root, scene, shown, step } = this;
    const set = (name, value, apply) => {
      if (shown[name] === value) return;
      shown[name] = value;
      apply(value);
    };
    set("playing", this.playing, (playing) => {
      root.dataset.playing = String(playing);
      part.play.setAttribute("aria-label", playing ? "Pause" : "Play");
      part.play.querySelector("path").setAttribute("d", playing ? PAUSE_ICON : PLAY_ICON);
      part.caption.setAttribute("aria-live", playing ? "off" : "polite"); // no torrent of sentences while it runs
    });
    set("speed", this.speed, (speed) => {
      part.speed.textContent = `${speed}×`;
      part.speed.setAttribute("aria-label", `Speed ${speed} times; change`);
    });
    set("step", step, () => {
      root.dataset.step = String(step);
      part.scrub.value = step;
      part.scrub.setAttribute("aria-valuetext", `${scene.stepName} ${step + 1} of ${scene.steps}`);
      part.scrub.style.setProperty("--done", `${(step / Math.max(1, scene.steps - 1)) * 100}%`);
      part.count.textContent = `${(step + 1).toLocaleString("en")} / ${scene.steps.toLocaleString("en")}`;
      fillWords(part.caption, captionOf(scene, step));
      fillLanes(part.lanes, scene.lanes, step); // first: it takes room from the source
      if (scene.source) lightLine(part.source, lineOf(scene.source, step));
    });
    const focus = this.pin || this.hover;
    const at = focus ? `${focus.name}:${focus.index}` : "";
    set("hover", at, () => { root.dataset.hover = at; });
    set("pin", Boolean(this.pin), (pinned) => root.toggleAttribute("data-pinned", pinned));
    const settled = Math.max(0, Math.floor(this.t));
    const followed = focus || focusOf(scene, settled);
    set("words", `${at} ${settled}`, () =>
      fillWords(part.words, followed ? this.explained(followed).parts : []));
  }

  // -- time ------------------------------------------------------------------------------------------------
  tick(now) {
    this.frame = null;
    if (!this.playing && this.until === null) return; // stopped since this frame was asked for
    const passed = Math.min(100, now - this.last); // a hidden tab must not leap
    this.last = now;
    const last = this.scene.steps - 1;
    const ms = this.playing ? playMs(this.scene.steps) / this.speed : STEP_MS;
    this.t = Math.min(this.t + passed / ms, this.playing ? last : this.until);
    if (this.playing && this.t >= last) this.pause();
    else if (!this.playing && this.t >= this.until) this.until = null;
    this.draw();
    this.run();
  }

  run() {
    if (this.frame || !(this.playing || this.until !== null)) return;
    this.last = performance.now();
    this.frame = requestAnimationFrame((now) => this.tick(now));
  }

  play() {
    const last = this.scene.steps - 1;
    if (this.t <= 0 || this.t >= last) this.t = -1; // from an empty stage, so that the first step is seen too
    this.until = null;
    this.playing = true;
    this.run();
    this.draw();
  }

  pause() {
    if (!this.scene) return;
    this.playing = false;
    this.until = null;
    this.t = this.step;
    this.draw();
    this.writeLink();
  }

  toggle() {
    this.playing ? this.pause() : this.play();
  }

  // To a step at once; a single step forward by hand is flown.
  goto(step, fly = false) {
    const to = clamp(step, 0, this.scene.steps - 1);
    this.playing = false;
    const from = this.step;
    this.t = to;
    this.until = null;
    if (fly && to === from + 1 && !this.calm.matches) {
      this.t = from + 1e-6;
      this.until = to;
      this.run();
    }
    this.draw();
    this.writeLink();
  }

  changeSpeed(by, wrap = false) {
    const at = SPEEDS.indexOf(this.speed) + by;
    this.speed = SPEEDS[wrap ? (at + SPEEDS.length) % SPEEDS.length : clamp(at, 0, SPEEDS.length - 1)];
    this.draw();
  }

  writeLink() {
    writeStepInLink(this.param, this.step);
  }

  linkChanged(how) {
    if (!this.scene || !this.param || this.failed) return;
    if (how === "moved") this.goto(stepInLink(this.param) ?? 0);
    else if (!this.playing) this.writeLink();
  }

  // -- input -----------------------------------------------------------------------------------------------
  listen() {
    const { root, part } = this;
    const { signal } = (this.gone = new AbortController());
    const on = (target, type, handler) => target.addEventListener(type, handler, { signal });
    const actions = {
      play: () => this.toggle(),
      back: () => this.goto(this.step - 1),
      forward: () => this.goto(this.step + 1, true),
      speed: () => this.changeSpeed(1, true),
      order: () => this.showOrder(part.note.hidden),
    };
    on(root, "click", (event) => {
      const button = event.target.closest?.("[data-do]");
      if (button?.dataset.do !== "order") this.showOrder(false);
      if (button) actions[button.dataset.do]();
      else if (event.target !== part.canvas) this.setPin(null);
    });
    on(root, "keydown", (event) => this.key(event));
    on(part.scrub, "input", () => this.scrubTo(Number(part.scrub.value)));
    on(part.scrub, "change", () => this.writeLink());
    const over = (event) => {
      const box = part.canvas.getBoundingClientRect();
      return this.layout && hitTest(this.layout, event.clientX - box.left, event.clientY - box.top);
    };
    on(part.canvas, "pointermove", (event) => this.setHover(event.pointerType === "touch" ? null : over(event)));
    on(part.canvas, "pointerleave", () => this.setHover(null));
    on(part.canvas, "click", (event) => {
      const cell = over(event);
      this.setPin(cell && this.pin && this.pin.name === cell.name && this.pin.index === cell.index ? null : cell);
      root.focus({ preventScroll: true });
    });
    on(document, "click", (event) => {
      if (event.composedPath().includes(root)) return;
      this.setPin(null);
      this.showOrder(false);
    });
    this.resized = new ResizeObserver(() => this.arrange());
    this.resized.observe(part.box);
    watchLink(on, (how) => this.linkChanged(how));
  }

  scrubTo(step) {
    this.playing = false;
    this.until = null;
    this.t = step;
    this.draw();
  }

  key(event) {
    if (!this.scene || this.failed || event.ctrlKey || event.metaKey || event.altKey) return;
    const leap = event.shiftKey ? 10 : 1;
    const keys = {
      ArrowLeft: () => this.goto(this.step - leap), ArrowRight: () => this.goto(this.step + leap, true),
      PageUp: () => this.goto(this.step - 1), PageDown: () => this.goto(this.step + 1, true),
      Home: () => this.goto(0), End: () => this.goto(this.scene.steps - 1),
      " ": () => this.toggle(), "+": () => this.changeSpeed(1), "=": () => this.changeSpeed(1), ">": () => this.changeSpeed(1),
      "-": () => this.changeSpeed(-1), "<": () => this.changeSpeed(-1),
      Escape: () => { this.setPin(null); this.showOrder(false); },
      ArrowUp: () => {}, ArrowDown: () => {},
    };
    const action = keys[event.key];
    if (!action) return;
    event.stopPropagation();
    if (event.key === " " && event.target.closest?.("button")) return; // Space presses the focused button
    event.preventDefault();
    action();
  }

  setHover(cell) {
    if (cell?.name === this.hover?.name && cell?.index === this.hover?.index) return;
    this.hover = cell;
    if (cell) this.part.hint.hidden = true; // learnt
    this.part.canvas.classList.toggle("over-cell", Boolean(cell));
    this.draw();
  }

  setPin(cell) {
    if (!cell && !this.pin) return;
    this.pin = cell;
    this.draw();
  }

  showOrder(open) {
    this.part.note.hidden = !open;
    this.part.order.setAttribute("aria-expanded", String(open));
  }

  // Where a cell stands on the page: for tests, which point at it.
  cellRect(name, index) {
    const block = this.layout.blocks[name], box = this.part.canvas.getBoundingClientRect();
    const at = cellAt(block, index);
    return { x: box.left + at.x, y: box.top + at.y, width: block.cell, height: block.cell };
  }

  close() {
    cancelAnimationFrame(this.frame);
    this.resized.disconnect();
    this.gone.abort();
  }
}

// Whether a CSS colour is dark; null where there is none to read.
function isDark(colour) {
  const probe = document.createElement("canvas").getContext("2d");
  if (!colour.trim()) return null;
  probe.fillStyle = colour.trim();
  return probe.fillStyle.startsWith("#") ? luminance(rgb(probe.fillStyle)) < 0.2 : null;
}

// Streamlit calls this on mount and whenever data or theme change; the player stays on the element.
export default function stage({ data, parentElement }) {
  const root = parentElement.querySelector(".stage");
  let player = parentElement.stagePlayer;
  if (!player || player.root !== root) {
    player?.close();
    player = parentElement.stagePlayer = new Player(root);
  }
  player.update(data);
  return () => {
    player.close();
    parentElement.stagePlayer = null;
  };
}
