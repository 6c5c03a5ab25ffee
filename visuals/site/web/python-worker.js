// Python in a worker of the browser: the app's pages, for addresses that the site does not hold.

let recorder = null;

async function start({ runtime, numpy, code }) {
  const { loadPyodide } = await import(`${runtime}pyodide.mjs`);
  const python = await loadPyodide({ indexURL: runtime });
  await python.loadPackage(runtime + numpy);
  python.unpackArchive(code, "zip", { extractDir: "/app" });
  python.runPython("import os, sys; sys.path.insert(0, '/app'); os.environ['KERNEL_THEATRE_DATA'] = '/tmp'");
  recorder = python.runPython("from visuals.site.browser import Recorder; Recorder()");
}

onmessage = async ({ data: { id, task, ...rest } }) => {
  try {
    if (task === "start") await start(rest);
    postMessage({ id, text: task === "record" ? recorder.record(rest.path, JSON.stringify(rest.params)) : "{}" });
  } catch (error) {
    postMessage({ id, text: JSON.stringify({ error: error.message }) });
  }
};
