// Python in a worker of the browser: the app's pages, for addresses that the site does not hold.

import { loadPython } from "./python-runtime.js";

let recorder = null;

async function start({ runtime, numpy, wasm, code, later }) {
  const python = await loadPython(runtime, numpy, wasm);
  python.unpackArchive(code, "zip", { extractDir: "/app" });
  for (const [place, url] of Object.entries(later)) { // loaded when Python opens them
    const [, folder, name] = place.match("(.*)/(.*)");
    python.FS.createLazyFile(`/app/${folder}`, name, url, true, false);
  }
  python.runPython("import os, sys; sys.path.insert(0, '/app'); os.environ['KERNEL_THEATRE_DATA'] = '/tmp'");
  recorder = python.runPython("from visuals.site.browser import Recorder; Recorder()");
  return "{}";
}

const TASKS = {
  start,
  // Loads the code of a lesson: its page is drawn once, and nobody sees it.
  warm: ({ path }) => (recorder.record(path, "{}"), "{}"),
  // Posts the page so far when its stage is drawn, then returns all of it.
  record: ({ path, params }, id) => {
    recorder.early = (text) => postMessage({ id, text, early: true });
    const text = recorder.record(path, JSON.stringify(params));
    recorder.early = undefined;
    return text;
  },
  count: () => recorder.count(),
};

onmessage = async ({ data: { id, task, ...rest } }) => {
  try {
    postMessage({ id, text: await TASKS[task](rest, id) });
  } catch (error) {
    postMessage({ id, text: JSON.stringify({ error: error.message }) });
  }
};
