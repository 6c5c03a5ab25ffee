"""Writes the static site: python -m visuals.site OUT."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from visuals.site.python import PyodideError
from visuals.site.write import MAX_BYTES, Settings, write


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m visuals.site", description=__doc__)
    parser.add_argument("out", type=Path, metavar="OUT", help="the folder to write into; a later build renews it")
    parser.add_argument(
        "--pages", default="", help="only these, by path: tiling,softmax; the first screen is always built"
    )
    parser.add_argument("--live", default="", metavar="URL", help="an app that the site links to for what it cannot do")
    parser.add_argument("--jobs", type=int, default=min(4, os.cpu_count() or 1), help="processes that record pages")
    parser.add_argument(
        "--depth", type=int, default=1, help="choices that lead from the controls to an address; 0: only chapters"
    )
    parser.add_argument(
        "--pyodide",
        type=Path,
        metavar="FOLDER",
        help="Pyodide with NumPy, its release or node_modules: readers can set any shape",
    )
    found = parser.parse_args(arguments)
    pages = tuple(filter(None, found.pages.split(",")))
    settings = Settings(found.out, pages, found.live, found.pyodide, max(1, found.jobs), found.depth)
    try:
        done = write(settings, _report)
    except PyodideError as error:
        parser.error(str(error))
    return 1 if done["failed"] or done["bytes"] > MAX_BYTES else 0


def _report(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
