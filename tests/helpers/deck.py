"""Helpers for the example deck, on a server beside the app, and the stages on its slides."""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.helpers.harness import ROOT, Stage

PACKAGES = ROOT / "node_modules"
npm = pytest.mark.skipif(
    not PACKAGES.exists() and not os.environ.get("CI"),
    reason="no node_modules here: npm install brings Reveal.js and axe-core",
)


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


class _Server(ThreadingHTTPServer):
    def handle_error(self, request, client_address):
        """Reports what goes wrong, but not that a page was closed while it loaded."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def serving_files(folder: Path = ROOT) -> Iterator[str]:
    """Serves the files of a folder and yields their URL."""
    with _Server(("127.0.0.1", 0), functools.partial(_Quiet, directory=folder)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class Deck:
    """The deck in a page. Slides have names: title, stage, stride, moments, end, and those of chapters."""

    def __init__(self, page: Page, address: str):
        self.page = page
        page.goto(address)
        page.wait_for_function("window.Reveal?.isReady()")

    def to(self, slide: str) -> Stage | None:
        """Goes to a slide and returns its stage, ready; None if it has none."""
        self.page.evaluate("name => Reveal.slide(Reveal.getIndices(document.getElementById(name)).h)", slide)
        self.at(slide)
        return self.stage(slide).ready() if self.page.locator(f"#{slide} iframe").count() else None

    def stage(self, slide: str) -> Stage:
        return Stage(self.page.frame_locator(f"#{slide} iframe"))

    def at(self, slide: str) -> None:
        expect(self.page.locator("section.present")).to_have_id(slide)

    def press(self, key: str) -> None:
        self.page.keyboard.press(key)

    def say(self, slide: str, message: object) -> None:
        """Posts a message from the deck's window to the frame of a slide."""
        self.page.evaluate(
            "([slide, message]) => document.querySelector(`#${slide} iframe`).contentWindow.postMessage(message, '*')",
            [slide, message],
        )
