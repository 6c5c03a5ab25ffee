"""Times Python in the browser: how long its start takes, and a new shape's scene and counts.

    python -m visuals.site site --pages softmax,tiling --depth 0 --pyodide node_modules
    python -m benchmarks.site_python site

Chromium opens a chapter of each lesson in a new profile, from a server on this machine. Needs Chromium and Playwright.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from playwright.sync_api import Browser, sync_playwright

from tests.helpers.deck import serving_files

SHAPES = 7  # new ones for each lesson
LESSONS = {
    "softmax": [{"M": str(5 + n), "N": str(19 + n)} for n in range(SHAPES)],
    "tiling": [{"M": str(9 + n), "N": "19", "K": str(12 + n)} for n in range(SHAPES)],
}
READY = "window.site && site.python && site.python.started"
# Seconds from the navigation until Python can record pages, and until it has loaded the lesson's code.
STARTED = "site.python.started.then(() => performance.now() / 1000)"
WARM = "site.python.warmed.then(() => performance.now() / 1000)"
RECORD = """async ([path, params]) => {
  const start = performance.now();
  let scene = 0;
  const found = await site.python.record(path, { view: "explore", ...params }, () => { scene = performance.now() - start; });
  return [scene, performance.now() - start, Boolean(found.doc)];
}"""
COUNT = """async () => {
  const start = performance.now();
  let left = 1;
  while (left) left = await site.python.countNext();
  return performance.now() - start;
}"""


def lesson(browser: Browser, address: str, path: str) -> Iterator[str]:
    """Yields lines of the report for one lesson."""
    page = browser.new_page()
    page.goto(f"{address}/{path}?chapter=1")
    page.wait_for_function(READY, timeout=120_000)
    started, warm = page.evaluate(STARTED), page.evaluate(WARM)
    yield f"{path}: Python ready after {started:.1f} s, with the lesson's code after {warm:.1f} s"
    scenes, pages = [], []
    for params in LESSONS[path]:
        scene_ms, page_ms, drawn = page.evaluate(RECORD, [path, params])
        assert drawn and scene_ms, params
        scenes.append(scene_ms)
        pages.append(page_ms)
    for what, times in (("scene", scenes), ("whole page", pages)):
        yield f"{path}: {what} of a new shape {median(times):.0f} ms (median of {len(times)}, {min(times):.0f} to {max(times):.0f})"
    yield f"{path}: counts of all kernels of the last shape {page.evaluate(COUNT) / 1000:.1f} s"
    page.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("site", type=Path, help="a site that was built with --pyodide")
    folder = parser.parse_args().site
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with serving_files(folder) as address, sync_playwright() as playwright:
        for path in LESSONS:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            for line in lesson(browser, address, path):
                print(line)
            browser.close()


if __name__ == "__main__":
    main()
