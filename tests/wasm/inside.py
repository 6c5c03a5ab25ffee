"""Runs pytest inside Pyodide, for run.mjs. Tests that need what WebAssembly lacks are skipped.

It lacks processes, threads and sockets, and compiled packages other than NumPy. Packages of the app's server are left out.
"""

import os
import sys

ABSENT = set(
    "ml_dtypes numba llvmlite PIL cupy cuda nvidia psutil threadpoolctl streamlit plotly starlette anyio uvicorn sqlalchemy "
    "alembic babel playwright textstat _multiprocessing fcntl sqlite3 termios resource".split()
)
# The words of the errors that Python raises there for a process, a thread or a socket.
REFUSALS = ("can't start new thread", "does not support processes", "Function not implemented", "Host is unreachable")

# These call C functions with 64-bit integers by ctypes, or read JSON that is nested too deeply, which ends Pyodide; or they
# read Numba's refusal instead of their own.
LEFT_OUT = (
    "tests/kernels/engines/emulator/instructions/test_printf.py",
    "tests/kernels/records/test_store_import.py",
    "tests/kernels/gemm/test_cpu_ladder.py",
    "tests/kernels/attention/test_cpu_ladder.py",
)

sys.path[:0] = ["/repo", "/packages"]
sys.pycache_prefix = "/cache"
os.environ["KERNEL_THEATRE_DATA"] = "/tmp"
os.chdir("/repo")

import hypothesis  # noqa: E402
import pytest  # noqa: E402
import run  # noqa: E402  # a module of run.mjs

# Of a property, unless its test says how many: an example takes several times as long as elsewhere.
EXAMPLES = 5


def lacks(error):
    """Returns in words what WebAssembly lacks for a test that raised this error; "" if the error is the test's own."""
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] in ABSENT:
        return f"no {error.name.partition('.')[0]}"
    if type(error).__name__ == "CompilerMissing":
        return "no NVRTC"
    if "Numba is not installed" in str(error):
        return "no Numba"
    if isinstance(error, TypeError) and any(f"'{name}" in str(error) for name in ("bfloat16", "float8")):
        return "no ml_dtypes"
    if isinstance(error, OSError | RuntimeError | AttributeError) and any(text in str(error) for text in REFUSALS):
        return "no processes, threads or sockets"
    return lacks(error.__cause__) if error.__cause__ else ""


class Plugin:
    """Skips what cannot run here, and ends what takes too long."""

    def pytest_addoption(self, parser):
        parser.addini("timeout", "of pytest-timeout, which cannot run here")

    def pytest_runtest_protocol(self, item):
        run.testStarts()

    def pytest_sessionstart(self):  # after tests/conftest.py has chosen its own
        hypothesis.settings.register_profile("wasm", hypothesis.settings(), max_examples=EXAMPLES, database=None)
        hypothesis.settings.load_profile("wasm")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item):
        try:
            return (yield)
        except KeyboardInterrupt:  # by run.mjs
            raise TimeoutError("the test takes too long") from None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item, call):
        report = yield
        if report.failed and (why := lacks(call.excinfo.value)):
            report.outcome = "skipped"
            report.longrepr = (str(item.path), 0, f"Skipped: {why} in WebAssembly")
        return report


class Module(pytest.Module):
    def _getobj(self):
        try:
            return super()._getobj()
        except Exception as error:  # a module that is missing comes as pytest's own
            if why := lacks(error) or lacks(error.__context__ or error):
                pytest.skip(f"{why} in WebAssembly", allow_module_level=True)
            raise


class Modules:
    def pytest_pycollect_makemodule(self, module_path, parent):
        return Module.from_parent(parent, path=module_path)


options = ["--capture=sys", "-p", "no:cacheprovider", "-p", "no:faulthandler"]
options += [f"--ignore={file}" for file in LEFT_OUT]
int(pytest.main([*run.args, *options], [Plugin(), Modules()]))
