"""Chromium for the benchmarks of pages: start it, open a page, count its frames."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from playwright.sync_api import Browser, Page, expect, sync_playwright

from benchmarks.targets import Line, line
from tests.conftest import CHROMIUM
from tests.helpers.harness import ARGS, TIMEOUT_MS, Stage

WIDE = (1440, 900)

FRAMES = """seconds => new Promise(done => {
  const times = [], start = performance.now();
  const frame = now => { times.push(now); now - start < seconds * 1e3 ? requestAnimationFrame(frame) : done(times); };
  requestAnimationFrame(frame);
})"""


@contextmanager
def chromium() -> Iterator[Browser]:
    expect.set_options(timeout=TIMEOUT_MS)  # a page counts and draws for longer if other programs use the cores
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGS)
        yield browser
        browser.close()


def new_page(browser: Browser, size: tuple[int, int] = WIDE, **context) -> Page:
    """Returns a page in a new context, so without a cache."""
    viewport = {"width": size[0], "height": size[1]}
    page = browser.new_context(viewport=viewport, **context).new_page()
    page.set_default_timeout(4 * TIMEOUT_MS)
    return page


def played(what: str, stage: Stage, seconds: float) -> Line:
    """Start the scene, and return the frames a second. The scene still plays afterwards."""
    stage.do("play")
    gaps = np.diff(stage.page.evaluate(FRAMES, seconds))
    assert stage.root.get_attribute("data-playing") == "true", "the scene ended while it was timed"
    rate = 1e3 * len(gaps) / gaps.sum()
    detail = f"frame interval median {np.median(gaps):.1f} ms, p95 {np.percentile(gaps, 95):.1f} ms, {late(gaps)}"
    return line(f"playing {what}", "frames/s", rate, 59, gaps, detail, at_least=True)


def late(gaps: np.ndarray) -> str:
    """Returns the share of frame intervals that are too long."""
    return f"{np.mean(gaps > 25):.1%} over 25 ms"
