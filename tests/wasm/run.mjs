// Runs pytest in WebAssembly: Pyodide in Node.js, with the repository and the packages mounted from this computer.
//
//   node tests/wasm/run.mjs NUMPY PACKAGES CACHE [ARGUMENTS OF PYTEST]
//
// NUMPY is a wheel of NumPy for WebAssembly, PACKAGES a folder with pytest and what the tests import, CACHE a folder for
// bytecode. The exit code is pytest's.

import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

import { loadPython } from "../../visuals/site/web/python-runtime.js";

const root = fileURLToPath(new URL("../..", import.meta.url));
const [numpy, packages, cache, ...args] = process.argv.slice(2);

const python = await loadPython(`${root}node_modules/pyodide/`, new Uint8Array(readFileSync(numpy)));
for (const [place, folder] of Object.entries({ "/repo": root, "/packages": packages, "/cache": cache })) {
  python.mountNodeFS(place, folder);
}
python.globals.set("arguments", python.toPy(args));
process.exitCode = python.runPython(readFileSync(`${root}tests/wasm/inside.py`, "utf-8"));
