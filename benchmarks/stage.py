"""Speed and size of the stage alone, in Chromium, from a file: python -m benchmarks.stage [OUT.json]

Frames are timed as in benchmarks/browser.py. The scene has 20,000 cells on the stage, of which each step copies 200.
"""

from __future__ import annotations

import gzip
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

import numpy as np
from playwright.sync_api import Browser, Page

from benchmarks.browser import FRAMES, chromium, late, new_page, played
from benchmarks.targets import Line, line, publish, spread
from tests.helpers import scenes
from tests.helpers.harness import Stage, serving, truth
from visuals import stage as stage_module
from visuals.scene.scene import Scene
from visuals.stage.standalone import standalone, takeaway

PLAY_S, DRAG_S = 8, 3
PRESSES = 40

# From the key event to the change of the step, and on to the first frame that shows it.
PRESSED = """root => { window.pressed = new Promise(done => {
  let start;
  document.addEventListener("keydown", () => { start = performance.now(); }, { capture: true, once: true });
  new MutationObserver((_, watcher) => {
    const drawn = performance.now() - start;
    watcher.disconnect();
    requestAnimationFrame(() => done([drawn, performance.now() - start]));
  }).observe(root, { attributes: true, attributeFilter: ["data-step"] });
}); }"""


def figure(what: str, unit: str, value: float, detail: str = "") -> Line:
    """Returns a figure without a target."""
    return Line(what, unit, value, "–", True, 1, detail, [value])


@contextmanager
def open_page(browser: Browser, scene: Scene, **context) -> Iterator[Page]:
    """Yields a page of the scene, opened from a file."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "scene.html"
        path.write_text(standalone(stage_module.message(scene)), encoding="utf-8")
        page = new_page(browser, **context)
        page.goto(path.as_uri())
        Stage(page).ready()
        yield page
        page.context.close()


def playing(browser: Browser) -> list[Line]:
    lines = []
    with open_page(browser, scenes.big()) as page:
        stage = Stage(page)
        for speed in (1, 2, 4):  # the last two: steps of 300 and 150 ms, still animated
            lines.append(played(f"20,000 cells, 200 moving, at {speed}×", stage, PLAY_S))
            stage.do("play")
            stage.root.focus()
            page.keyboard.press("+")
    return lines


def presses(browser: Browser, motion: str) -> Line:
    """Returns the time of one step by key. With reduced motion the frame is the whole step, else the first of its
    animation."""
    samples = []
    with open_page(browser, scenes.big(), reduced_motion=motion) as page:
        stage = Stage(page)
        stage.root.focus()
        for i in range(PRESSES + 5):
            # After the previous animation, at any moment of a frame.
            page.wait_for_timeout(700 + 7 * i % 16)
            stage.root.evaluate(PRESSED)
            page.keyboard.press("ArrowRight")
            samples.append(page.evaluate("window.pressed"))
    step_ms, frame_ms = np.array(samples[5:]).T  # the first warm up
    what = "step to its frame, less motion" if motion == "reduce" else "step to its first frame, with flights"
    return line(
        f"{what}, 20,000 cells",
        "ms",
        np.median(frame_ms),
        16,
        frame_ms,
        f"{spread(frame_ms)}; drawn after {np.median(step_ms):.1f} ms",
    )


def dragging(browser: Browser) -> list[Line]:
    """Returns frame intervals while the wheel zooms and while the zoomed picture is dragged."""
    lines = []
    with open_page(browser, scenes.big()) as page:
        box = page.locator("canvas").bounding_box()
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        page.mouse.move(x, y)

        def timed(what, move) -> None:
            page.evaluate(f"seconds => {{ window.timed = ({FRAMES})(seconds); }}", DRAG_S)
            page.evaluate("() => { window.over = false; window.timed.then(() => { window.over = true; }); }")
            n = 0
            while not page.evaluate("window.over"):
                move(n)
                n += 1
            gaps = np.diff(page.evaluate("window.timed"))
            detail = f"p95 {np.percentile(gaps, 95):.1f} ms, {late(gaps)}; {n} events"
            lines.append(line(f"{what}, 20,000 cells: frame interval", "ms", np.median(gaps), 17, gaps, detail))

        page.keyboard.down("Control")
        timed("zooming", lambda n: page.mouse.wheel(0, -20 if n // 40 % 2 == 0 else 20))
        for _ in range(10):
            page.mouse.wheel(0, -60)
        page.keyboard.up("Control")
        assert "zoomed" in page.locator("canvas").get_attribute("class"), "the wheel zoomed nothing"
        page.mouse.down()
        timed("dragging", lambda n: page.mouse.move(x + 60 * np.sin(n / 9), y + 40 * np.cos(n / 9)))
        page.mouse.up()
    return lines


def sizes() -> list[Line]:
    def kilobytes(what, data: bytes, target=None, detail="") -> Line:
        size = len(data) / 1e3
        return figure(what, "KB", size, detail) if target is None else line(what, "KB", size, target, [size], detail)

    script = stage_module.script().encode()
    source_bytes = sum((stage_module.HERE / f"{name}.js").stat().st_size for name in stage_module.SCRIPTS)
    detail = f"{source_bytes / 1e3:.1f} KB as written, {len(gzip.compress(script, 9)) / 1e3:.1f} KB under gzip"
    page = standalone(stage_module.message(truth().scene)).encode()
    tiled_scene = scenes.tiled(20, 24, 24, 30)
    return [
        kilobytes("player", script, 40, detail),
        kilobytes("what takes scenes away, loaded when asked for", takeaway().encode()),
        kilobytes("HTML export of the toy scene", page, 100),
        kilobytes("im2col, 1,000 steps", stage_module.message(scenes.long(1_000)), 60),
        kilobytes("im2col 32×32, 900 columns", stage_module.message(truth(H="32", W="32").scene), 50),
        kilobytes(
            f"tiled product, {tiled_scene.steps:,} steps of up to 16 new sums", stage_module.message(tiled_scene)
        ),
    ]


def requests(browser: Browser, url: str) -> Line:
    """Returns how many requests of the lesson's page go to other machines."""
    urls = []
    page = new_page(browser)
    page.on("request", lambda request: urls.append(request.url))
    page.on("websocket", lambda socket: urls.append(socket.url))
    page.goto(f"{url}/im2col?view=explore")
    stage = Stage(page).ready()
    page.wait_for_load_state("networkidle")
    stage.do("play")
    page.wait_for_timeout(3_000)
    network_urls = [url_ for url_ in urls if urlsplit(url_).scheme not in ("data", "blob")]
    own_host = urlsplit(url).hostname
    other_hosts = {urlsplit(url_).hostname for url_ in network_urls} - {own_host}
    count = sum(urlsplit(url_).hostname != own_host for url_ in network_urls)
    return line(
        "requests of the lesson that leave the machine",
        "requests",
        count,
        0,
        [count],
        f"{len(network_urls)} requests in all{': ' * bool(other_hosts)}{', '.join(sorted(map(str, other_hosts)))}",
    )


def main(out: str | None = None) -> None:
    load_average = os.getloadavg()[0]  # other programs on this machine distort the figures
    lines = sizes()
    with chromium() as browser:
        lines += playing(browser)
        lines += [presses(browser, motion) for motion in ("reduce", "no-preference")]
        lines += dragging(browser)
        with serving() as app:
            lines.append(requests(browser, app.url))
        version = browser.version
    publish(lines, out, load_average, version)


if __name__ == "__main__":
    main(*sys.argv[1:2])
