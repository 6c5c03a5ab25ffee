// The hall: a server of this site that measures (python -m hall). It draws the app's pages with what this reader has measured.

import { provide } from "./load.js";

const NAME = "Kernel-Theatre-Session", COUNT_MS = 1000;
const GONE = "The server cannot be reached. What was measured is in History.";

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const hexadecimal = (bytes) => [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");

// Knows the files of an answer from then on.
export function keep(found) {
  for (const [name, data] of Object.entries(found.files || {})) provide(name, Uint8Array.from(atob(data), (c) => c.charCodeAt(0)));
  return found;
}

export class Hall {
  // components: those of the site, by name; a page adds its own. changed: called with "strip" when the strip of the page changes, with "page" when all of it does.
  constructor(root, components, changed) {
    Object.assign(this, { root, components, changed, session: hexadecimal(crypto.getRandomValues(new Uint8Array(16))) });
    Object.assign(this, { strips: new Map(), measured: new Set(["history"]), running: null, error: null });
  }

  url(what, path, params) {
    return new URL(`hall/${[what, path].filter(Boolean).join("/")}?${new URLSearchParams(params)}`, this.root);
  }

  async ask(url, options = {}) {
    let response;
    try {
      response = await fetch(url, { ...options, headers: { [NAME]: this.session, "Content-Type": "application/json" } });
    } catch {
      throw new Error(GONE);
    }
    const answer = await response.json().catch(() => null);
    if (!response.ok || !answer) throw new Error(answer?.error || GONE);
    return answer;
  }

  // Whether only the server knows what a page shows.
  draws(path) {
    return this.measured.has(path) || this.running?.path === path;
  }

  // A page as the server draws it: {doc, counting} or {to}.
  async page(path, params) {
    const found = keep(await this.ask(this.url("page", path, params)));
    if (found.doc) found.doc.live = true;
    Object.assign(this.components, found.components);
    return found;
  }

  // Calls drawn(doc) with a page, again when more of it is counted, while isShown().
  async follow(path, params, drawn, isShown) {
    for (;;) {
      const { doc, to, counting } = await this.page(path, params);
      if (to || !isShown()) return to;
      await drawn(doc);
      if (!counting) return null;
      await pause(COUNT_MS);
      if (!isShown()) return null;
    }
  }

  // What the strip of a page says of Run on the server. The answer is the same for all readers.
  strip(path, params) {
    const url = this.url("strip", path, params).href;
    if (!this.strips.has(url)) {
      const found = this.ask(url).then(({ strip }) => strip);
      this.strips.set(url, found);
      found.then((strip) => this.strips.set(url, strip), () => this.strips.delete(url));
    }
    return this.strips.get(url);
  }

  // Takes the rows of a file into History. Returns what became of them, in words.
  async take(file) {
    try {
      const { rows, new: added } = await this.ask(this.url("rows", "", { name: file.name }), { method: "POST", body: file });
      return `${rows} runs in the file, ${added} of them new.`;
    } catch (error) {
      return error.message;
    }
  }

  // A strip with the run that is under way, or with the reason why there is none.
  shown(strip, path) {
    if (!strip) return strip;
    if (this.running) return { ...strip, run: this.running.run };
    return this.error?.path === path ? { ...strip, run: { ...strip.run, error: this.error.text } } : strip;
  }

  // Presses Run on a stage (do "run", of a size), or a button by its key. Returns the address that the page has then.
  async press(path, params, pressed) {
    this.error = null;
    try {
      const { run, strip, to } = await this.ask(this.url("press", path, params), { method: "POST", body: JSON.stringify({ size: "", ...pressed }) });
      if (!run || pressed.do === "button") this.measured.add(path);
      if (!run) return to;
      this.running = { name: run, path, run: strip?.run ?? {}, turn: 0 };
      this.listen();
      this.changed(pressed.do === "button" ? "page" : "strip");
    } catch (error) {
      this.error = { path, text: error.message };
      this.changed("strip");
    }
    return null;
  }

  listen() {
    const { running } = this, events = new EventSource(this.url("runs", running.name, { session: this.session }));
    const end = () => {
      events.close();
      this.running = null;
    };
    events.onmessage = ({ data }) => {
      const { done, share, text, turn } = JSON.parse(data);
      if (text) running.run = { ...running.run, share, text };
      if (turn > running.turn || done) this.measured.add(running.path);
      if (done) end();
      this.changed(turn > running.turn || done ? "page" : "strip");
      running.turn = turn;
    };
    events.onerror = () => {
      if (events.readyState !== EventSource.CLOSED) return; // else the browser asks again
      end();
      this.error = { path: running.path, text: GONE };
      this.changed("strip");
    };
  }

  async stop() {
    const { running } = this;
    if (!running) return;
    await this.ask(this.url("runs", `${running.name}/stop`, {}), { method: "POST" }).catch((error) => {
      this.error = { path: running.path, text: error.message };
    });
  }
}
