"""A small site for the tests, built once in a process of its own: Streamlit's stand-in never reaches the tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from gzip import decompress
from pathlib import Path
from typing import Any

from tests.helpers.harness import ROOT

PAGES = ("transfers", "softmax", "glossary", "history")  # and the first screen
OPTIONS = ("--pages", ",".join(PAGES), "--depth", "0")


def build(out: Path, *options: str) -> str:
    """Builds a site of a few pages and returns what the build printed."""
    command = [sys.executable, "-m", "visuals.site", str(out), "--jobs", "1", *options]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"OPENBLAS_NUM_THREADS": "1"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class Site:
    """The files of a site, read without a browser."""

    def __init__(self, out: Path):
        self.out = out

    def config(self, path: str) -> dict[str, Any]:
        text = (self.out / path / "index.html").read_text("utf-8")
        return json.loads(text.partition('id="site">')[2].partition("</script>")[0])

    def bytes(self, name: str) -> bytes:
        return decompress((self.out / "files" / f"{name}.bin").read_bytes())

    def json(self, name: str) -> Any:
        return json.loads(self.bytes(name))

    def index(self, path: str) -> dict[str, str]:
        """Returns the addresses of a page by key."""
        return self.json(self.config("")["pages"][path]["index"])["docs"]

    def page(self, path: str, key: str) -> list[dict[str, Any]]:
        """Returns the elements of an address, with those of its files that are elements."""
        return list(self._whole(self.json(self.index(path)[key])["c"]))

    def _whole(self, elements: list) -> Iterator[dict[str, Any]]:
        for element in elements:
            yield self._inside(self.json(element["ref"]) if element["t"] == "ref" else element)

    def _inside(self, element: dict[str, Any]) -> dict[str, Any]:
        if element["t"] == "tabs":
            return element | {"c": [list(self._whole(part)) for part in element["c"]]}
        return element | {"c": list(self._whole(element["c"]))} if "c" in element else element
