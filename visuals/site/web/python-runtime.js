// Pyodide with NumPy, in a worker of the browser and in Node.js.

const WASM = "pyodide.asm.wasm";

// runtime: the address of Pyodide's folder. numpy: the bytes of NumPy's wheel. wasm: those of Pyodide's module, if they are
// here already: a static server sends files as they are, and compressed it has a third of the bytes.
export async function loadPython(runtime, numpy, wasm) {
  if (wasm) {
    const { fetch } = globalThis;
    globalThis.fetch = (what, ...rest) => `${what.url ?? what}`.endsWith(WASM)
      ? Promise.resolve(new Response(wasm, { headers: { "Content-Type": "application/wasm" } })) : fetch(what, ...rest);
  }
  const { loadPyodide } = await import(`${runtime}pyodide.mjs`);
  const python = await loadPyodide({ indexURL: runtime });
  // NumPy was built for a C library with backtrace(), which it calls before it computes in the memory of a large
  // temporary array. Without any frames in the answer it takes new memory.
  const symbols = python._module.LDSO?.loadedLibsByName.__main__.exports;
  if (symbols) symbols.backtrace ??= () => 0;
  python.unpackArchive(numpy, "zip", { extractDir: python.runPython("import sysconfig; sysconfig.get_path('purelib')") });
  return python;
}
