// Runs pytest in WebAssembly: Pyodide in Node.js, with the repository and the packages mounted from this computer.
//
//   node tests/wasm/run.mjs NUMPY PACKAGES CACHE [ARGUMENTS OF PYTEST]
//
// NUMPY is NumPy for WebAssembly as a zip file, PACKAGES a folder with pytest and what the tests import, CACHE a folder for
// bytecode. The exit code is pytest's.

import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { Worker } from "node:worker_threads";

import { loadPython } from "../../visuals/site/web/python-runtime.js";

const root = fileURLToPath(new URL("../..", import.meta.url));
const OTHERS = new Set([".git", ".venv", "node_modules"]); // folders that tests do not read
const [numpy, packages, cache, ...args] = process.argv.slice(2);

const python = await loadPython(`${root}node_modules/pyodide/`, new Uint8Array(readFileSync(numpy)));
python.mountNodeFS("/packages", packages);
python.mountNodeFS("/cache", cache);
python.FS.mkdir("/repo");
for (const entry of readdirSync(root, { withFileTypes: true })) {
  if (entry.isFile()) python.FS.writeFile(`/repo/${entry.name}`, readFileSync(root + entry.name));
  else if (entry.isDirectory() && !OTHERS.has(entry.name)) python.mountNodeFS(`/repo/${entry.name}`, root + entry.name);
}

// Python has one thread here, and no timer: another thread interrupts a test that takes too long.
const interrupt = new Int32Array(new SharedArrayBuffer(4)), started = new Int32Array(new SharedArrayBuffer(4));
const clock = new Worker(`
  const { workerData: { interrupt, started, seconds } } = require("node:worker_threads");
  let test = 0, since = Date.now();
  setInterval(() => {
    if (started[0] !== test) [test, since] = [started[0], Date.now()];
    else if (test && Date.now() - since > 1000 * seconds) [interrupt[0], since] = [2, Date.now()];
  }, 200);
`, { eval: true, workerData: { interrupt, started, seconds: Number(process.env.WASM_TEST_SECONDS || 60) } });
clock.unref();
python.setInterruptBuffer(interrupt);
python.registerJsModule("run", { args, testStarts: () => { started[0] += 1; } });
process.exitCode = python.runPython(readFileSync(`${root}tests/wasm/inside.py`, "utf-8"));
process.exit();
