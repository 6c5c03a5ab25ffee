// Pyodide with NumPy, in a worker of the browser and in Node.js.

// runtime: the address of Pyodide's folder. numpy: the bytes of NumPy's wheel.
export async function loadPython(runtime, numpy, options = {}) {
  const { loadPyodide } = await import(`${runtime}pyodide.mjs`);
  const python = await loadPyodide({ indexURL: runtime, ...options });
  // NumPy was built for a C library with backtrace(), which it calls before it computes in the memory of a large
  // temporary array. Without any frames in the answer it takes new memory.
  const symbols = python._module.LDSO?.loadedLibsByName.__main__.exports;
  if (symbols) symbols.backtrace ??= () => 0;
  python.unpackArchive(numpy, "zip", { extractDir: python.runPython("import sysconfig; sysconfig.get_path('purelib')") });
  return python;
}
