"""Speed of the page, in Chromium, with the app started here: python -m benchmarks.page [OUT.json]

Prints a Markdown table of measured figures and targets, and writes every sample to OUT.json.
Frames are timed by requestAnimationFrame in a headless Chromium without a GPU: all drawing is done in software.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys

import numpy as np
from playwright.sync_api import Browser, Page, expect

from benchmarks.browser import chromium, new_page, played
from benchmarks.targets import Line, line, publish, seconds, spread
from kernels.conv.shape import ConvShape
from tests.helpers.harness import ROOT, TIMEOUT_MS, Stage, idle, serving
from visuals import stage as stage_module
from visuals.conv import pictures as conv_pictures
from visuals.conv.im2col.scene import im2col_scene
from visuals.conv.inputs import Inputs
from visuals.conv.part import part_of

PLAY_S = 4.5
CHANGES, VISITS, IMPORTS, BUILDS = 12, 5, 7, 50
STORIES = ("im2col", "tiling", "attention")

# From the key or click that the page gets next to the frame after the stage and a part beside it are new. The player
# changes stage, strip and chapter in one go.
CHANGE = """(root, part) => { window.changed = new Promise((done, fail) => {
  setTimeout(() => fail(new Error("the stage did not change within 30 s")), 30000);
  let start;
  const begin = () => { start ??= performance.now(); };
  for (const name of ["keydown", "click"]) document.addEventListener(name, begin, { capture: true, once: true });
  const watched = node => new Promise(seen => new MutationObserver((_, watcher) => {
    watcher.disconnect();
    seen();
  }).observe(node, { attributes: node === root, attributeFilter: node === root ? ["data-scene"] : undefined, childList: node !== root }));
  Promise.all([watched(root), watched(root.querySelector(part))]).then(() =>
    requestAnimationFrame(() => done(performance.now() - start)));
}); }"""

# From the start of the navigation until the stage is ready and two frames have passed.
PAINTED = """() => new Promise(done => {
  const look = () => {
    const host = [...document.querySelectorAll("*")].find(e => e.shadowRoot?.querySelector(".stage"));
    const root = host ? host.shadowRoot.querySelector(".stage") : document.querySelector(".stage");
    if (root?.dataset.ready !== "true") return requestAnimationFrame(look);
    requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now())));
  };
  look();
})"""


def frames(page: Page, url: str, size: int) -> Line:
    page.goto(f"{url}/im2col?H={size}&W={size}")
    stage = Stage(page).ready()
    page.locator(".st-key-card_why .kt-conclusion").wait_for()
    page.wait_for_load_state("networkidle")
    return played(f"{size}×{size}, {(size - 2) ** 2} steps", stage, PLAY_S)


def scene() -> list[Line]:
    """Returns the server's work for the stage at 32x32: inputs, outputs, scene, message."""
    s = ConvShape(1, 1, 32, 32, 2, 3, 3)

    def build() -> bytes:
        conv_pictures.planes.cache_clear()  # as on a first visit
        inputs = Inputs(s, "digit", "sobel-x")
        part = part_of(s, inputs.planes()[0])
        return stage_module.message(im2col_scene(s, part, inputs.x(1, part.C), inputs.w(part.K, part.C)))

    samples, size = [1e3 * seconds(build) for _ in range(BUILDS)], len(build())
    return [
        line("scene of 32×32 recorded and compiled", "ms", np.median(samples), 20, samples, spread(samples)),
        line("its payload", "KB", size / 1e3, 50, [size / 1e3]),
    ]


def changes(page: Page, url: str, size: int) -> Line:
    page.goto(f"{url}/im2col?H={size}&W={size}")
    stage = Stage(page).ready()
    page.locator(".st-key-card_why .kt-conclusion").wait_for()
    page.wait_for_load_state("networkidle")
    field, samples = page.get_by_label("K", exact=True), []
    field.focus()
    for i in range(CHANGES + 2):
        stage.root.evaluate(CHANGE, ".strip")
        page.keyboard.press("ArrowUp" if i % 2 == 0 else "ArrowDown")
        samples.append(page.evaluate("window.changed"))
        idle(page)
    samples = samples[2:]  # the first warm up
    return line(
        f"control turned to stage and strip painted, {size}×{size}",
        "ms",
        np.median(samples),
        200,
        samples,
        spread(samples),
    )


def chapters(page: Page, url: str, lesson: str) -> Line:
    """Returns the times from Next to the next chapter with its stage and strip, through the whole story."""
    first, second = (_read(page, f"{url}/{lesson}?view=story") for _ in range(2))  # the first reader waits for scenes
    detail = f"{spread(second)}; first reader median {np.median(first):.3g}, longest {max(first):.3g}"
    return line(f"chapter to chapter, {lesson}", "ms", np.median(second), 200, second, detail)


def _read(page: Page, url: str) -> list[float]:
    """Opens a story and presses Next until its last chapter. Returns the times in ms."""
    page.goto(url)
    stage, samples = Stage(page).ready(), []
    page.locator(".st-key-card_why .kt-conclusion").wait_for()
    page.wait_for_load_state("networkidle")
    following = page.get_by_role("button", name=re.compile("^Next:"))
    while following.count():
        idle(page)
        stage.root.evaluate(CHANGE, ".chapter")
        following.click()
        samples.append(page.evaluate("window.changed"))
    return samples


def visits(browser: Browser, url: str) -> Line:
    def visit() -> float:
        page = new_page(browser)
        page.goto(f"{url}/im2col?view=explore", wait_until="commit")
        milliseconds = page.evaluate(PAINTED)
        page.context.close()
        return milliseconds / 1e3

    visit()
    samples = [visit() for _ in range(VISITS)]
    return line("first paint, browser without a cache", "s", np.median(samples), 2, samples, spread(samples))


def imports() -> Line:
    def once() -> None:
        subprocess.run([sys.executable, "-c", "import kernels"], check=True, cwd=ROOT)

    once()
    samples = [seconds(once) for _ in range(IMPORTS)]
    return line("import kernels, interpreter included", "s", np.median(samples), 0.3, samples, spread(samples))


def main(out: str | None = None) -> None:
    expect.set_options(timeout=TIMEOUT_MS)
    load_average = os.getloadavg()[0]  # other programs on this machine distort the figures
    lines = [*scene(), imports()]
    with serving() as app, chromium() as browser:
        lines.append(visits(browser, app.url))
        page = new_page(browser)
        for size in (8, 32):
            lines += [frames(page, app.url, size), changes(page, app.url, size)]
        lines += [chapters(page, app.url, lesson) for lesson in STORIES]
        version = browser.version
    publish(lines, out, load_average, version)


if __name__ == "__main__":
    main(*sys.argv[1:2])
