"""Screenshots of the app for its documentation: python -m benchmarks.screenshots [FOLDER]

Writes docs/screenshots/*.png if no folder is given; starts the app and runs the kernels once.
"""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, expect

from benchmarks.browser import WIDE, chromium, new_page
from tests.helpers.harness import ROOT, TIMEOUT_MS, Stage, serving
from visuals.conv.choose.race import SECONDS

NARROW = (390, 844)
MAX_BYTES = 250_000


def open_(browser: Browser, url: str, scheme: str = "light", size: tuple[int, int] = WIDE, scale: int = 1) -> Page:
    page = new_page(browser, size, color_scheme=scheme, device_scale_factor=scale)
    page.set_default_timeout(TIMEOUT_MS)
    page.goto(url)
    return page


def lesson(browser: Browser, url: str, query: str, **options) -> tuple[Page, Stage]:
    """Open the lesson and wait until everything on it is drawn."""
    page = open_(browser, f"{url}/im2col?{query}", **options)
    stage = Stage(page).ready()
    expect(page.locator(".st-key-card_why .kt-conclusion")).to_be_visible()
    expect(page.locator("[data-testid=stApp][data-test-script-state=notRunning]")).to_be_visible()
    expect(page.get_by_test_id("stCode").locator("visible=true").first).to_be_visible()  # charts and listings load last
    for chart in page.get_by_test_id("stPlotlyChart").all():
        expect(chart.locator(".cartesianlayer").first).to_be_attached()
    expect(page.locator(".kt-pictures img")).to_have_count(2)
    return page, stage


def set_height(page: Page, height: int) -> None:
    page.set_viewport_size({"width": page.viewport_size["width"], "height": height})


def save(page: Page, folder: Path, name: str) -> None:
    """Save a PNG of at most 256 colours: it halves the size of charts and text without a visible difference."""
    page.evaluate("document.fonts.ready")
    image = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    image = image.quantize(256, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    path = folder / f"{name}.png"
    image.save(path, optimize=True)
    print(f"{path}: {image.width} × {image.height}, {path.stat().st_size:,} bytes")
    assert path.stat().st_size < MAX_BYTES
    page.context.close()


def home(browser: Browser, url: str, folder: Path, scheme: str) -> None:
    page = open_(browser, url, scheme)
    expect(page.get_by_text("On this machine", exact=True)).to_be_visible()
    save(page, folder, f"home-{scheme}")


def im2col(browser: Browser, url: str, folder: Path) -> None:
    """Save the whole lesson after a run, with the pointer at an input pixel."""
    page, stage = lesson(browser, url, "engine=cpu&picture=numbers&step=21")
    page.get_by_role("button", name="Run here").click()
    expect(page.locator(".st-key-chart_times_measured .bars .point")).to_have_count(3, timeout=60_000)
    expect(page.get_by_role("button", name="Run here")).to_be_visible()
    content = page.evaluate("document.querySelector('[data-testid=stMainBlockContainer]').scrollHeight")
    controls_bottom = page.locator(".st-key-below").bounding_box()["y"]
    set_height(page, round(min(content, controls_bottom)))
    stage.point_at("x", 3 * 8 + 3)
    save(page, folder, "im2col-light")


def recorded_lesson(
    browser: Browser, url: str, folder: Path, name: str, address: str, height: int, scheme: str
) -> None:
    """Save a lesson of recorded figures with its charts."""
    page = open_(browser, f"{url}/{address}", scheme)
    Stage(page).ready()
    expect(page.locator(".st-key-card_time [data-testid=stPlotlyChart] .cartesianlayer").first).to_be_attached()
    expect(page.locator("[data-testid=stApp][data-test-script-state=notRunning]")).to_be_visible()
    set_height(page, height)
    save(page, folder, name)


def first_screen(browser: Browser, url: str, folder: Path, name: str, address: str, scheme: str) -> None:
    """Save the first screen of a lesson, with its stage at the step of the address."""
    page = open_(browser, f"{url}/{address}", scheme)
    Stage(page).ready()
    expect(page.locator("[data-testid=stApp][data-test-script-state=notRunning]")).to_be_visible()
    save(page, folder, name)


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    expect.set_options(timeout=TIMEOUT_MS)
    with serving() as app, chromium() as browser:
        for scheme in ("light", "dark"):
            home(browser, app.url, folder, scheme)
        im2col(browser, app.url, folder)
        page, stage = lesson(browser, app.url, "C=3&H=6&W=6&pad_h=1&pad_w=1&picture=gradient&step=16", scheme="dark")
        stage.point_at("y", 16)
        save(page, folder, "im2col-dark")
        page, stage = lesson(browser, app.url, "H=32&W=32&step=450")
        stage.point_at("x", 5 * 32 + 16)
        save(page, folder, "im2col-32x32")
        page, stage = lesson(browser, app.url, "order=warps&step=8")
        save(page, folder, "im2col-warps")
        page, stage = lesson(browser, app.url, "step=21", size=NARROW, scale=2)
        expect(stage.root).to_have_attribute("data-step", re.compile("21"))
        save(page, folder, "im2col-narrow")
        tiling = "tiling?M=4096&N=4096&K=4096&rung=register-tile-2d&step=12"
        recorded_lesson(browser, app.url, folder, "tiling-light", tiling, 1800, "light")
        recorded_lesson(browser, app.url, folder, "banks-dark", "threads?topic=banks&step=3", 1150, "dark")
        recorded_lesson(browser, app.url, folder, "winograd-dark", "winograd?pad_h=1&pad_w=1&step=9", 900, "dark")
        first_screen(browser, app.url, folder, "story-light", "tiling?view=story&chapter=3&step=2", "light")
        first_screen(browser, app.url, folder, "divergence-light", "threads?view=story&chapter=3", "light")
        first_screen(browser, app.url, folder, "waves-light", "fft?view=story&chapter=1&step=21", "light")
        first_screen(browser, app.url, folder, "direct-light", "direct?view=story&chapter=1&step=9", "light")
        first_screen(browser, app.url, folder, "implicit-light", "implicit?view=story&chapter=3&step=11", "light")
        first_screen(browser, app.url, folder, "backward-dark", "backward?view=story&chapter=3&step=9", "dark")
        first_screen(browser, app.url, folder, "layers-light", "layers?view=story&chapter=5&step=4", "light")
        first_screen(browser, app.url, folder, "explore-light", "layers?view=explore&layer=linear&step=4", "light")
        first_screen(browser, app.url, folder, "softmax-light", "softmax?step=6", "light")
        first_screen(browser, app.url, folder, "attention-light", "attention?view=story&chapter=7", "light")
        first_screen(browser, app.url, folder, "train-light", "train?network=residual&batch=256&step=45", "light")
        first_screen(browser, app.url, folder, "fusion-dark", "fusion?step=4", "dark")
        page = open_(browser, f"{app.url}/choose?predict=implicit-gemm")
        expect(page.locator(".st-key-card_networks table")).to_be_visible()
        set_height(page, 1250)
        page.wait_for_timeout(1e3 * (SECONDS + 1))  # the race
        save(page, folder, "choose-light")


if __name__ == "__main__":
    main()
