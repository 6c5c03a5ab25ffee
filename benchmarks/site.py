"""Speed of the static site, in Chromium, from a server on this machine: python -m benchmarks.site SITE [OUT.json]

    python -m visuals.site site --pyodide node_modules
    python -m benchmarks.site site

Prints a Markdown table of measured figures and targets, and writes every sample to OUT.json. A first visit has a new
browser context, so no cache. Bytes are those that a server sends with gzip. The builder prints the size of the whole site.
"""

from __future__ import annotations

import gzip
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from playwright.sync_api import Browser, expect

from benchmarks.browser import chromium, new_page
from benchmarks.page import CHANGE, PAINTED
from benchmarks.targets import Line, line, publish, spread
from tests.helpers.deck import serving_files
from tests.helpers.harness import TIMEOUT_MS, Stage

LESSONS = ("im2col", "tiling", "attention")
VISITS = 9
# The paths of what a page had loaded after so many milliseconds.
LOADED = """ms => [...new Set(performance.getEntriesByType("resource")
  .filter(entry => entry.responseEnd <= ms && entry.name.startsWith(location.origin))
  .map(entry => new URL(entry.name).pathname.slice(1)))]"""
# Resolves when the browser's Python is loaded, or at once on a site without it.
PYTHON = """() => new Promise(done => {
  const look = () => globalThis.site?.python?.warmed ? site.python.warmed.then(() => done(true)) : setTimeout(look, 50);
  globalThis.site?.config?.python === null ? done(false) : look();
})"""


def transferred(path: Path) -> int:
    """Returns the bytes of a file on its way: as they are if the site has compressed it, else under gzip."""
    body = path.read_bytes()
    return len(body) if body[:2] == b"\x1f\x8b" else len(gzip.compress(body, mtime=0))


def first_visits(browser: Browser, url: str, site: Path, lesson: str) -> Iterator[Line]:
    """Yields the time from the navigation to the painted stage, and the bytes that came before it."""
    times, loaded = [], []
    for _ in range(VISITS):
        page = new_page(browser)
        page.goto(f"{url}/{lesson}.html", wait_until="commit")
        times.append(page.evaluate(PAINTED) / 1e3)
        files = [site / f"{lesson}.html", *(site / name for name in page.evaluate(LOADED, times[-1] * 1e3))]
        loaded.append(sum(map(transferred, files)) / 1e3)
        page.context.close()
    yield line(f"first stage, {lesson}", "s", np.median(times), 0.8, times, spread(times))
    yield line(f"loaded before it, {lesson}", "KB", np.median(loaded), 120, loaded, f"{len(files)} files")


def chapters(browser: Browser, url: str, lesson: str) -> Line:
    """Returns the times from Next to the next chapter with its stage, through the whole story.

    The browser has loaded its Python before, if the site has it: this starts after the first stage, on the same cores."""
    page, samples = new_page(browser), []
    page.goto(f"{url}/{lesson}.html")
    stage = Stage(page).ready()
    page.evaluate(PYTHON)
    page.wait_for_load_state("networkidle")
    following = page.get_by_role("button", name=re.compile("^Next:"))
    while following.count():
        stage.root.evaluate(CHANGE, ".chapter")
        following.click()
        samples.append(page.evaluate("window.changed"))
        page.wait_for_load_state("networkidle")
    page.context.close()
    return line(f"chapter to chapter, {lesson}", "ms", np.median(samples), 100, samples, spread(samples))


def main(site: str, out: str | None = None) -> None:
    expect.set_options(timeout=TIMEOUT_MS)
    load_average = os.getloadavg()[0]  # other programs on this machine distort the figures
    folder = Path(site)
    lines = []
    with serving_files(folder) as url, chromium() as browser:
        for lesson in LESSONS:
            lines += [*first_visits(browser, url, folder, lesson), chapters(browser, url, lesson)]
        version = browser.version
    publish(lines, out, load_average, version)


if __name__ == "__main__":
    main(*sys.argv[1:3])
