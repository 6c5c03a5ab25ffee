"""HTML of a page that the browser replaces when the server has news, without a rerun of the page."""

from __future__ import annotations

from pathlib import Path

from pages.parts.component import component
from pages.parts.watch import Watch

SCRIPT = Path(__file__).with_name("live.js")


def live(html: str, key: str, part: str, watch: Watch | None, alone: bool) -> None:
    """Draws trusted HTML. `part`: its name in the answers about `watch`. `alone`: no stage on the page asks for them."""
    data = {"html": html, "part": part, "watch": watch.path if watch else "", "alone": alone}
    component("live", SCRIPT)(key=key, data=data, height="content")
