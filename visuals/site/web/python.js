// Asks Python, in a worker, for addresses that the site does not hold.

import { keep } from "./hall.js";
import { bytes } from "./load.js";

// Whether this browser should load some megabytes without a request of the reader.
const isCheap = () => !navigator.connection?.saveData;

export class Python {
  constructor(site) {
    Object.assign(this, { site, names: site.python, worker: null, started: null, waiting: new Map(), count: 0 });
    if (this.names && isCheap()) (globalThis.requestIdleCallback ?? setTimeout)(() => { this.warmed = this.warm(site.path).catch(() => {}); });
  }

  get canRun() {
    return Boolean(this.names) && typeof Worker === "function";
  }

  start() {
    this.started ||= (async () => {
      const [numpy, wasm, code] = await Promise.all(["numpy", "wasm", "code"].map((name) => bytes(this.names[name])));
      const url = (name) => new URL(name, this.site.root).href;
      const later = Object.fromEntries(Object.entries(this.names.later).map(([place, name]) => [place, url(name)]));
      this.worker = new Worker(url(this.names.worker), { type: "module" });
      this.worker.onmessage = ({ data: { id, text, early } }) => {
        this.waiting.get(id)?.(text, early);
        if (!early) this.waiting.delete(id);
      };
      this.worker.onerror = (event) => {
        const text = JSON.stringify({ error: event.message || "Python could not be started." });
        for (const answer of this.waiting.values()) answer(text);
        this.waiting.clear();
      };
      await this.ask("start", { runtime: url(this.names.runtime), numpy, wasm, code, later });
    })();
    this.started.catch(() => { this.started = null; });
    return this.started;
  }

  async ask(task, rest, onEarly) {
    const id = ++this.count;
    const text = await new Promise((resolve) => {
      this.waiting.set(id, (found, early) => (early ? onEarly?.(JSON.parse(found)) : resolve(found)));
      this.worker.postMessage({ id, task, ...rest });
    });
    const found = JSON.parse(text);
    if (found.error) throw new Error(found.error);
    return found;
  }

  // The page at an address: {doc, counting} or {to}. onStage gets the page so far when its stage is drawn.
  async record(path, params, onStage) {
    await this.start();
    return keep(await this.ask("record", { path, params }, (found) => onStage?.(keep(found).doc)));
  }

  // Loads the code of a lesson in the background, unless the reader already wants a page.
  async warm(path) {
    await this.start();
    if (!this.waiting.size) await this.ask("warm", { path });
  }

  // Counts one rung of the page that was recorded last. Returns how many are left.
  async countNext() {
    return (await this.ask("count", {})).counting;
  }
}
