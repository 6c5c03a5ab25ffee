"""Coarse pictures of five pages in both themes: python -m tests.helpers.pictures makes those of tests/pages/pictures anew.

Each pixel is the mean of a square of SCALE pixels of the window, in grey. So a letter that another version of a font draws
otherwise changes little, and a line that moves changes much.
"""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import streamlit as st
from PIL import Image
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.conftest import CHROMIUM
from tests.helpers.harness import ARGS, ROOT, TIMEOUT_MS, frames, serving, settled

FOLDER = ROOT / "tests" / "pages" / "pictures"
MADE_WITH = FOLDER / "made_with.json"
SIZE = {"width": 1440, "height": 1400}
SCALE = 8
SCHEMES = ("light", "dark")
# By the name of the picture: the path, and what is there once the page is whole.
PAGES = {
    "home": ("", ".st-key-lessons [class*=st-key-lesson_] .kt-question"),
    "im2col": ("im2col?view=explore", ".st-key-below [data-testid=stCode] code", ".st-key-card_why .kt-badge-counted"),
    "tiling": ("tiling?view=story&chapter=3", ".st-key-card_time .cartesianlayer"),
    "precision": ("precision?view=explore", ".st-key-controls .stNumberInput input"),
    "history": ("history", ".st-key-history"),
}
# The player, the charts and the listings have tests of their own, and what they show changes with kernels and recordings.
STILL = """
*, *::before, *::after { animation: none !important; transition: none !important; caret-color: transparent !important; }
[data-testid="stPlotlyChart"], [data-testid="stCode"], .st-key-hero_stage *, [class*="st-key-preview_"] * { visibility: hidden !important; }
"""
# The stage of a lesson is as high as the window. Without it the cards are in the picture.
NO_STAGES = """() => {
  for (const node of document.querySelectorAll("*"))
    if (node.matches(".stage") || node.shadowRoot?.querySelector(".stage"))
      node.closest("[data-testid=stElementContainer]").style.display = "none";
}"""
# The width of a text in the two families of the page: machines on which they are equal have the same fonts.
FONTS = """() => [getComputedStyle(document.querySelector("h1, p")).fontFamily, "ui-monospace, monospace"].map(family => {
  const context = document.createElement("canvas").getContext("2d");
  context.font = `100px ${family}`;
  return Math.round(context.measureText("Kernel Theatre, 0123456789").width);
})"""


def made_with(page: Page) -> dict[str, object]:
    """Returns what decides how a page looks beside its rules: the version of Streamlit, and the widths of its fonts."""
    return {"streamlit": st.__version__, "fonts": page.evaluate(FONTS)}


def open_page(page: Page, url: str, name: str) -> None:
    """Opens a page, and waits until nothing is missing and nothing moves."""
    path, *whole = PAGES[name]
    page.goto(f"{url}/{path}")
    for selector in whole:
        page.locator(selector).first.wait_for(state="attached")
    if name != "history":
        page.locator(".stage").first.wait_for(state="attached")
        expect(page.locator(".stage:not([data-ready=true])")).to_have_count(0)
    if name != "home":
        page.evaluate(NO_STAGES)
    page.add_style_tag(content=STILL)
    page.evaluate("document.fonts.ready")
    expect(page.get_by_test_id("stApp")).to_have_attribute("data-test-script-state", "notRunning")
    expect(page.get_by_test_id("stSkeleton")).to_have_count(0)
    frames(page, 2)
    settled(page, lambda: picture(page).tobytes())


def picture(page: Page) -> np.ndarray:
    """Returns what the window shows, uint8[height / SCALE, width / SCALE]."""
    image = Image.open(io.BytesIO(page.screenshot())).convert("L")
    return np.asarray(image.resize((image.width // SCALE, image.height // SCALE), Image.Resampling.BOX))


def saved(name: str, scheme: str) -> np.ndarray:
    return np.asarray(Image.open(path_of(name, scheme)))


def path_of(name: str, scheme: str) -> Path:
    return FOLDER / f"{name}-{scheme}.png"


def new_window(browser: Browser, scheme: str) -> Page:
    page = browser.new_context(viewport=SIZE, color_scheme=scheme, reduced_motion="reduce").new_page()
    page.set_default_timeout(4 * TIMEOUT_MS)
    return page


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    expect.set_options(timeout=4 * TIMEOUT_MS)
    with serving() as app, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGS)
        for scheme in SCHEMES:
            page = new_window(browser, scheme)
            for name in PAGES:
                open_page(page, app.url, name)
                Image.fromarray(picture(page)).save(path_of(name, scheme), optimize=True)
                print(f"{path_of(name, scheme)}: {path_of(name, scheme).stat().st_size:,} bytes", flush=True)
            MADE_WITH.write_text(json.dumps(made_with(page)) + "\n", encoding="utf-8")
        browser.close()


if __name__ == "__main__":
    main()
