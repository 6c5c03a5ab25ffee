"""Applies each deliberate fault to a copy of the tree and says which test catches it.

python -m tests.faults [WORD ...] [--jobs N]    faults with one of the words in their names; all without words

The exit status is 1 if a fault is not caught, cannot be applied, or is caught by a test that fails without it as well.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from tests.faults import ROOT, Fault, all_faults

DEADLINE_S = 900  # of the tests of one fault
CAUGHT, MISSED, WRONG = "caught", "NOT CAUGHT", "WRONG"
_FAILED = re.compile(r"^FAILED (\S+?::\S.*?)(?: - .*)?$", re.MULTILINE)
_NOT_OK = re.compile(r"^\s*not ok \d+ - (.*)$", re.MULTILINE)


def copy_of_the_tree(to: Path) -> Path:
    """Copies what Git knows or would add, and links the installed packages."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)
    for name in (".venv", "node_modules"):
        (to / name).symlink_to(ROOT / name)
    return to


def first_failure(tree: Path, tests: Sequence[str]) -> str | None:
    """Returns the first test that fails, None if all pass. RuntimeError if they did not run, as after a syntax error."""
    of_node = [test for test in tests if test.endswith(".js")]
    of_python = [test for test in tests if test not in of_node]
    if of_node:
        ended = _run(tree, ["node", "--test", "--test-reporter=tap", *of_node])
        if ended.returncode:
            failed = _NOT_OK.findall(ended.stdout)
            return f"{of_node[0]}: {failed[0] if failed else ended.stdout[-300:]}"
    if not of_python:
        return None
    options = ["-x", "-q", "-rf", "--tb=no", "-p", "no:cacheprovider", "-m", "not gpu"]
    ended = _run(tree, [sys.executable, "-m", "pytest", *options, *of_python])
    if ended.returncode == 0:
        return None
    if failed := _FAILED.search(ended.stdout):
        return failed[1]
    raise RuntimeError(f"pytest ended with {ended.returncode}: {ended.stdout[-500:]}{ended.stderr[-500:]}")


def _run(tree: Path, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # each process of a test would compile the app again
    return subprocess.run(
        command, cwd=tree, env=environment, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )


def verdict(tree: Path, fault: Fault) -> tuple[str, str]:
    """Returns CAUGHT and the test that catches the fault, or what went wrong and how."""
    path = tree / fault.file
    right, stamp = path.read_text(), path.stat()
    try:
        path.write_text(fault.applied(right))
        caught = first_failure(tree, fault.tests)
    except (ValueError, RuntimeError, subprocess.TimeoutExpired) as error:
        return WRONG, str(error)
    finally:
        path.write_text(right)
        os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    if caught is None:
        return MISSED, f"by {' '.join(fault.tests)}"
    if _fails(tree, caught.partition("[")[0] if "::" in caught else caught.partition(": ")[0]):
        return WRONG, f"{caught} fails without the fault, too"
    return CAUGHT, f"by {caught}"


def _fails(tree: Path, test: str) -> bool:
    """Returns whether a test, with all its cases, fails in the right tree. The name of a case may hold what the fault changed."""
    try:
        return first_failure(tree, [test]) is not None
    except (RuntimeError, subprocess.TimeoutExpired):
        return True


def report(faults: Sequence[Fault], jobs: int) -> int:
    """Prints a line for each fault; returns how many are not caught."""
    bad = 0
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(jobs) as pool:
        trees: SimpleQueue[Path] = SimpleQueue()
        for n in range(jobs):
            trees.put(copy_of_the_tree(Path(scratch) / str(n)))

        def one(fault: Fault) -> tuple[Fault, str, str, float]:
            tree, began = trees.get(), time.monotonic()
            try:
                return fault, *verdict(tree, fault), time.monotonic() - began
            finally:
                trees.put(tree)

        for fault, kind, text, seconds in pool.map(one, faults):
            bad += kind != CAUGHT
            print(f"{kind}  {fault}  {text}  ({seconds:.0f} s)\n    {fault.why}", flush=True)
    print(f"{len(faults) - bad} of {len(faults)} faults are caught.")
    return bad


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    faults = [f for f in all_faults() if not options.words or any(word in str(f) for word in options.words)]
    if not faults:
        parser.error("no fault has such a name")
    return 1 if report(faults, options.jobs) else 0


if __name__ == "__main__":
    sys.exit(main())
