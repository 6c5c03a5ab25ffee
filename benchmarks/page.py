"""Speed of the page, in Chromium, with the app started here: python -m benchmarks.page [OUT.json]

Prints a Markdown table of measured figures and targets, and writes every sample to OUT.json.
Frames are timed by requestAnimationFrame in a headless Chromium without a GPU: all drawing is done in software.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from playwright.sync_api import Browser, Page, sync_playwright

from kernels.conv.shape import ConvShape
from kernels.machine.processor import device_name
from tests.conftest import CHROMIUM
from tests.helpers.harness import ARGS, ROOT, Stage, serving
from visuals import stage as stage_module
from visuals.conv import pictures as conv_pictures
from visuals.conv.im2col.scene import im2col_scene
from visuals.conv.inputs import Inputs, outputs
from visuals.conv.part import part_of

PLAY_S = 4.5
CHANGES, VISITS, IMPORTS, BUILDS = 12, 5, 7, 50

FRAMES = """seconds => new Promise(done => {
  const times = [], start = performance.now();
  const frame = now => { times.push(now); now - start < seconds * 1e3 ? requestAnimationFrame(frame) : done(times); };
  requestAnimationFrame(frame);
})"""

# From the key event on the focused field to the frame after the stage has taken its new scene.
CHANGE = """root => { window.changed = new Promise(done => {
  let start;
  document.addEventListener("keydown", () => { start = performance.now(); }, { capture: true, once: true });
  new MutationObserver((_, watcher) => {
    watcher.disconnect();
    requestAnimationFrame(() => done(performance.now() - start));
  }).observe(root, { attributes: true, attributeFilter: ["data-scene"] });
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


@dataclass(frozen=True)
class Line:
    """One measurement: a figure, its target, and every sample."""

    what: str
    unit: str
    value: float
    target: str
    met: bool
    n: int
    detail: str
    samples: list[float]


def line(what, unit, value, target_value, samples, detail="", at_least=False) -> Line:
    met = value >= target_value if at_least else value <= target_value
    target = f"{'≥' if at_least else '≤'} {target_value:g} {unit}"
    return Line(
        what, unit, float(value), target, bool(met), len(samples), detail, [float(s) for s in samples]
    )


def spread(samples: Sequence[float]) -> str:
    low, high = np.percentile(samples, [20, 80])
    return f"p20 {low:.3g}, p80 {high:.3g}"


def frames(page: Page, url: str, size: int) -> Line:
    page.goto(f"{url}/im2col?H={size}&W={size}")
    stage = Stage(page).ready()
    page.locator(".st-key-card_why table").wait_for()
    page.wait_for_load_state("networkidle")
    stage.do("play")
    gaps = np.diff(page.evaluate(FRAMES, PLAY_S))
    assert stage.root.get_attribute("data-playing") == "true", "the scene ended while it was timed"
    steps = (size - 2) ** 2
    rate = 1e3 * len(gaps) / gaps.sum()
    detail = f"frame interval median {np.median(gaps):.1f} ms, p95 {np.percentile(gaps, 95):.1f} ms, {np.mean(gaps > 25):.1%} over 25 ms"
    return line(f"playing {size}×{size}, {steps} steps", "frames/s", rate, 59, gaps, detail, at_least=True)


def scene() -> list[Line]:
    """Returns the server's work for the stage at 32x32: inputs, outputs, scene, message."""
    s = ConvShape(1, 1, 32, 32, 2, 3, 3)

    def build() -> bytes:
        conv_pictures.planes.cache_clear()  # as on a first visit
        inputs = Inputs(s, "digit", "sobel-x")
        part = part_of(s, inputs.planes()[0])
        y = outputs(inputs, part.K, part.P, part.Q, part.p, part.q)
        return stage_module.message(im2col_scene(s, part, inputs.x(1, part.C), inputs.w(part.K, part.C), y))

    samples, size = timed(build, BUILDS), len(build())
    return [
        line(
            "scene built in Python, 32×32, 900 steps", "ms", np.median(samples), 20, samples, spread(samples)
        ),
        line("its payload", "KB", size / 1e3, 50, [size / 1e3]),
    ]


def timed(work: Callable[[], object], n: int) -> list[float]:
    samples = []
    for _ in range(n):
        start = time.perf_counter()
        work()
        samples.append((time.perf_counter() - start) * 1e3)
    return samples


def changes(page: Page, url: str, size: int) -> Line:
    page.goto(f"{url}/im2col?H={size}&W={size}")
    stage = Stage(page).ready()
    page.locator(".st-key-card_why table").wait_for()
    page.wait_for_load_state("networkidle")
    field, samples = page.get_by_label("K", exact=True), []
    field.focus()
    for i in range(CHANGES + 2):
        stage.root.evaluate(CHANGE)
        page.keyboard.press("ArrowUp" if i % 2 == 0 else "ArrowDown")
        samples.append(page.evaluate("window.changed"))
        page.locator("[data-testid=stApp][data-test-script-state=notRunning]").wait_for()
    samples = samples[2:]  # the first warm up
    return line(
        f"control turned to stage painted, {size}×{size}",
        "ms",
        np.median(samples),
        200,
        samples,
        spread(samples),
    )


def visits(browser: Browser, url: str) -> Line:
    def visit() -> float:
        context = browser.new_context(viewport={"width": 1440, "height": 900})
        page = context.new_page()
        page.goto(f"{url}/im2col", wait_until="commit")
        milliseconds = page.evaluate(PAINTED)
        context.close()
        return milliseconds / 1e3

    visit()
    samples = [visit() for _ in range(VISITS)]
    return line("first paint, browser without a cache", "s", np.median(samples), 2, samples, spread(samples))


def imports() -> Line:
    def once() -> None:
        subprocess.run([sys.executable, "-c", "import kernels"], check=True, cwd=ROOT)

    once()
    samples = [ms / 1e3 for ms in timed(once, IMPORTS)]
    return line(
        "import kernels, interpreter included", "s", np.median(samples), 0.3, samples, spread(samples)
    )


def main() -> None:
    load_average = os.getloadavg()[0]  # other programs on this machine distort the figures
    lines = [*scene(), imports()]
    with serving() as app, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGS)
        lines.append(visits(browser, app.url))
        page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
        for size in (8, 32):
            lines += [frames(page, app.url, size), changes(page, app.url, size)]
        version = browser.version
        browser.close()
    publish(lines, version, load_average)


def publish(lines: list[Line], chromium: str, load_average: float) -> None:
    """Print the table, and write all samples to the file that the command line names."""
    browser = f"Chromium {chromium}, headless, no GPU, 1440 × 900; " if chromium else ""
    about = (
        f"{device_name()}; {browser}Python {sys.version.split()[0]}; load average before {load_average:.1f}"
    )
    print(f"{about}\n\n| what | measured | target | met | n | spread |\n|---|---|---|---|---|---|")
    for measured_line in lines:
        met = "yes" if measured_line.met else "**no**"
        print(
            f"| {measured_line.what} | {measured_line.value:.3g} {measured_line.unit} | {measured_line.target} | {met} | {measured_line.n} | {measured_line.detail} |"
        )
    if len(sys.argv) > 1:
        with open(sys.argv[1], "w", encoding="utf-8") as file:
            json.dump(
                {"about": about, "lines": [asdict(measured_line) for measured_line in lines]}, file, indent=1
            )


if __name__ == "__main__":
    main()
