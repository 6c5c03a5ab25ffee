// Python in a worker of the browser: the app's pages, for addresses that the site does not hold.

import { loadPython } from "./python-runtime.js";

let recorder = null;

async function start({ runtime, numpy, code }) {
  const python = await loadPython(runtime, numpy);
  python.unpackArchive(code, "zip", { extractDir: "/app" });
  python.runPython("import os, sys; sys.path.insert(0, '/app'); os.environ['KERNEL_THEATRE_DATA'] = '/tmp'");
  recorder = python.runPython("from visuals.site.browser import Recorder; Recorder()");
  return "{}";
}

const TASKS = {
  start,
  record: ({ path, params }) => recorder.record(path, JSON.stringify(params)),
  count: () => recorder.count(),
};

onmessage = async ({ data: { id, task, ...rest } }) => {
  try {
    postMessage({ id, text: await TASKS[task](rest) });
  } catch (error) {
    postMessage({ id, text: JSON.stringify({ error: error.message }) });
  }
};
