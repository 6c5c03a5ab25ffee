"""Writes the static site: python -m visuals.site OUT."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from visuals.site.write import MAX_BYTES, Settings, write


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m visuals.site", description=__doc__)
    parser.add_argument(
        "out", type=Path, metavar="OUT", help="the folder to write into; a later build renews it"
    )
    parser.add_argument(
        "--pages", default="", help="only these, by path: tiling,softmax; the first screen is always built"
    )
    parser.add_argument(
        "--live", default="", metavar="URL", help="an app that the site links to for what it cannot do"
    )
    parser.add_argument(
        "--jobs", type=int, default=min(4, os.cpu_count() or 1), help="processes that record pages"
    )
    parser.add_argument(
        "--shallow", action="store_true", help="only what one choice leads to: a smaller site"
    )
    found = parser.parse_args(arguments)
    pages = tuple(filter(None, found.pages.split(",")))
    done = write(Settings(found.out, pages, found.live, None, max(1, found.jobs), not found.shallow), _report)
    return 1 if done["failed"] or done["bytes"] > MAX_BYTES else 0


def _report(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
