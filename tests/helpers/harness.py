"""The app on a server, and the stage in a page, for the tests and for benchmarks/."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import Locator, Page, TimeoutError, expect

from kernels.conv.shape import ConvShape
from kernels.jobs import settings
from kernels.records import folder
from pages._lessons import entries
from pages.conv import address as conv_address
from visuals.conv.im2col.scene import im2col_scene
from visuals.conv.inputs import Inputs
from visuals.conv.part import part_of
from visuals.palette import DARK, LIGHT
from visuals.scene.scene import Scene

ROOT = Path(__file__).resolve().parents[2]
ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
TIMEOUT_MS = 30_000  # ms to wait for anything to appear: long, because the machine may be busy
TOY_COLUMNS = 36  # of its data matrix: the first steps of im2col
TOY_STEPS = TOY_COLUMNS + 3 * 5  # three blocks load, wait, multiply, wait and store
PADDED = {"C": "3", "H": "6", "W": "5", "pad_h": "1", "pad_w": "2", "u": "2", "picture": "numbers"}
PALETTES = {"light": LIGHT, "dark": DARK}
VGG = {"C": "64", "H": "224", "W": "224", "K": "64", "pad_h": "1", "pad_w": "1"}

# A script of a page: while `held` is a list, the messages of the server wait in it. `sent` counts those to the server.
HOLD = """window.WebSocket = class extends WebSocket {
  addEventListener(type, listen, ...more) {
    const handle = (event) => (type === "message" && window.held ? window.held.push(() => listen(event)) : listen(event));
    super.addEventListener(type, handle, ...more);
  }
  send(...data) {
    window.sent = (window.sent ?? 0) + 1;
    super.send(...data);
  }
};"""
RELEASE = "() => { const held = window.held; window.held = null; held.forEach((handle) => handle()); }"


@dataclass(frozen=True)
class Server:
    url: str
    pid: int


@contextmanager
def serving(app: str = "app.py", jobs: str = "", log: int = subprocess.DEVNULL, **more: str) -> Iterator[Server]:
    """Starts a server of the app (or of another file) on a free port and yields it. `jobs`: what runs kernels
    (kernels.jobs.settings); `log`: the file that gets what it prints; `more` are options of Streamlit's server: baseUrlPath.

    Its measurements are stored in a temporary folder unless the environment names one, never in the user's store.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    health = "/".join(filter(None, (url, more.get("baseUrlPath", ""), "_stcore/health")))
    options = {"port": port, "address": "127.0.0.1", "headless": "true", "fileWatcherType": "none", **more}
    data = tempfile.TemporaryDirectory(prefix="kernel-theatre-", ignore_cleanup_errors=True)
    process = subprocess.Popen(
        [sys.executable, "-m", "streamlit", "run", app]
        + [f"--server.{name}={value}" for name, value in options.items()],
        cwd=ROOT,
        env={folder.VARIABLE: data.name} | os.environ | {settings.VARIABLE: jobs},
        stdout=log,
        stderr=log,
    )
    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(health).close()
                break
            except OSError:
                assert process.poll() is None, "the server ended"
                time.sleep(0.1)
        yield Server(url, process.pid)
    finally:
        process.terminate()
        process.wait()
        data.cleanup()


class Stage:
    """The stage of a page: the positions of its cells, and its texts."""

    def __init__(self, page: Page):
        self.page, self.root = page, page.locator(".stage")
        self.caption = page.locator("[data-part=caption]")
        self.explanation = page.locator("[data-part=explanation]")

    def ready(self) -> Stage:
        expect(self.root).to_have_attribute("data-ready", "true")
        return self

    @property
    def step(self) -> int:
        return int(self.root.get_attribute("data-step"))

    def at_step(self, step: int) -> None:
        expect(self.root).to_have_attribute("data-step", str(step))

    def playing(self, yes: bool) -> None:
        expect(self.root).to_have_attribute("data-playing", "true" if yes else "false")

    def do(self, name: str) -> None:
        """Presses a control. Where the transport is narrow, some are behind "more", which goes once the stage has its width."""
        control = self.root.locator(f"[data-do={name}]")
        while not control.is_visible():
            with suppress(TimeoutError):
                self.root.locator("[data-do=more]").click(timeout=2000)
        control.click()

    def cell(self, name: str, index: int) -> dict[str, float]:
        """Returns the rectangle of a cell in pixels of the window."""
        return self.root.evaluate("(root, [name, index]) => root.player.cellRect(name, index)", [name, int(index)])

    def point_at(self, name: str, index: int) -> str:
        """Moves the mouse over a cell and returns the stage's explanation of it."""
        self._move_mouse_to(name, index)
        expect(self.root).to_have_attribute("data-hover", f"{name}:{index}")
        return self.explanation.inner_text()

    def click(self, name: str, index: int) -> None:
        self.page.mouse.click(*self._move_mouse_to(name, index))

    def _move_mouse_to(self, name: str, index: int) -> tuple[float, float]:
        """Moves the mouse over a cell. Content that loads above the stage shifts it, so this repeats until it hits."""
        for _ in range(20):
            rect = self.cell(name, index)
            x, y = rect["x"] + rect["width"] / 2, rect["y"] + rect["height"] / 2
            self.page.mouse.move(x, y)
            rect_after = self.cell(name, index)
            if (rect_after["x"], rect_after["y"]) == (rect["x"], rect["y"]):
                break
        return x, y


def go_to_lesson(page: Page, title: str) -> None:
    """Follows the bar's link to a lesson. Some are in the menu of a group."""
    bar = page.locator(".st-key-nav")
    group = next((group for group, lessons in entries() if title in [one.title for one in lessons]), "")
    if group:
        bar.get_by_role("button", name=group, exact=True).click()
    bar.get_by_role("link", name=title, exact=True).click()


@dataclass(frozen=True)
class Truth:
    """The expected content of the page at some parameters, computed here."""

    shape: ConvShape
    inputs: Inputs
    scene: Scene
    y: np.ndarray  # float64[K, P, Q], by NumPy's windows, not by the app's code

    @property
    def index(self) -> np.ndarray:
        """Returns the input pixel that each element of the data matrix is a copy of, -1 for a zero of the padding."""
        write = self.scene.write("D")
        index = np.full(self.scene.tensor("D").size, -1)
        index[write.cells] = write.index
        return index.reshape(-1, self.scene.tensor("D").cols)

    def steps_of(self, i: int) -> np.ndarray:
        """Returns the steps that copy input pixel i into the data matrix, one entry per copy."""
        write = self.scene.write("D")
        return write.steps[write.index == i]


def truth(**params) -> Truth:
    settings, notes = conv_address.read(params)
    assert not notes
    s = settings.shape
    inputs = Inputs(s, settings.picture, settings.filter, settings.seed)
    y = convolution(s, inputs.x(1)[0], inputs.w())
    part = part_of(s, inputs.planes()[0])
    return Truth(s, inputs, im2col_scene(s, part, inputs.x(1), inputs.w()), y)


def convolution(s: ConvShape, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Returns the convolution of one image x [C, H, W], float64[K, P, Q]."""
    x = np.pad(x.astype(np.float64), ((0, 0), (s.pad_h, s.pad_h), (s.pad_w, s.pad_w)))
    windows = np.lib.stride_tricks.sliding_window_view(x, (s.span_h, s.span_w), axis=(1, 2))
    windows = windows[:, :: s.u, :: s.v, :: s.dilation_h, :: s.dilation_w]
    if s.flip:
        w = w[:, :, ::-1, ::-1]
    return np.einsum("cpqrs,kcrs->kpq", windows, w.astype(np.float64), optimize=True)


# -- small things ---------------------------------------------------------------------------------
def query(params):
    return "&".join(f"{name}={value}" for name, value in params.items())


def rgb(colour: str) -> str:
    """Returns "rgb(r, g, b)" of "#rrggbb", as a browser computes it."""
    return f"rgb({', '.join(str(int(colour[at : at + 2], 16)) for at in (1, 3, 5))})"


def frames(page, n):
    """Waits for n frames."""
    page.evaluate(
        "n => new Promise(done => { const f = () => (n-- > 0 ? requestAnimationFrame(f) : done()); f(); })", n
    )


def settled(page: Page, measure: Callable[[], Any]) -> Any:
    """Returns a measure of the page once it has been the same for ten frames."""
    before = measure()
    while True:
        frames(page, 10)
        if (now := measure()) == before:
            return now
        before = now


def holds(page: Page, check: str, arg: object = None) -> None:
    """Waits until a check finds nothing wrong. Fails with what is wrong."""
    with suppress(TimeoutError):
        page.wait_for_function(f"(arg) => !({check})(arg).length", arg=arg)
        return
    wrong = page.evaluate(check, arg)
    assert wrong == [], wrong


def faster(stage):
    """Makes the stage eight times as fast: a step in 113 ms."""
    stage.root.focus()
    for _ in range(3):
        stage.page.keyboard.press("+")


def scrolled(page):
    return page.evaluate("[document.querySelector('[data-testid=stMain]').scrollTop, window.scrollY, window.scrollX]")


def idle(page: Page) -> None:
    """Waits until no rerun of the page is under way: it would draw what a click meets anew."""
    expect(page.get_by_test_id("stApp")).to_have_attribute("data-test-script-state", "notRunning")


def answered(page: Page, *pairs: str) -> None:
    """Waits until the server has answered an input and rests: its link to Explore has the pairs `name=value`.

    The browser writes the URL before the server has the input. Back while it works on it would be one request with it.
    """
    link = page.locator(".st-key-title_row").get_by_role("link", name="Explore", exact=True)
    for pair in pairs:
        expect(link).to_have_attribute("href", re.compile(rf"[?&]{re.escape(pair)}(&|$)"))
    idle(page)


def preset(page: Page, name: str) -> Locator:
    """Returns the link of a preset in its popover, which is opened."""
    idle(page)
    link = page.locator(".st-key-chips_presets").get_by_role("link", name=name, exact=True)
    if not link.is_visible():
        page.locator(".st-key-presets button").first.click()
    return link


def tile_size(page: Page, name: str) -> Locator:
    """Returns the field of a tile size; many of them are in a popover, which is opened."""
    field = page.locator(f".st-key-{name}")
    page.locator(f".st-key-{name}, .st-key-tiles button").first.wait_for()
    if not field.is_visible():
        page.locator(".st-key-tiles button").first.click()
    return field
