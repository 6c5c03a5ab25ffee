"""One HTML file that plays a scene from a disk or an e-mail: no server, no request, nothing to install."""

from __future__ import annotations

import re
from base64 import b64encode
from gzip import compress
from html import escape

from kernels.i18n import language, mark, tr
from visuals import stage
from visuals.palette import DARK, LIGHT

# Replaced by a scene in a template, as in takeaway.js. It is valid base64, but no scene.
SCENE_PLACEHOLDER = "KERNEL/THEATRE/SCENE"
_NAME = mark("Kernel Theatre")


def takeaway() -> str:
    """Returns the module that the player loads for a download; it imports nothing."""
    return stage.bundle(*stage.DOWNLOADS) + "\nexport{panels};\n"


def standalone(message: bytes | None = None, title: str = _NAME) -> str:
    """Returns the page that plays a `stage.message`; without one, a template with SCENE_PLACEHOLDER instead of its
    base64."""
    scene = SCENE_PLACEHOLDER if message is None else b64encode(message).decode()
    name, css, html = escape(tr(title)), _escape_css(stage.css()), stage.html()
    footer = escape(tr("Made with Kernel Theatre"))
    return f"""<!doctype html>
<html lang="{language().replace("_", "-")}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>{name}</title>
<script type="text/plain" id="scene">{scene}</script>
<style>
{_colours()}
{_PAGE_CSS}
{css}
</style>
</head>
<body>
<main>
{html}
</main>
<footer>{footer}</footer>
<script type="text/plain" id="player">{_compressed(stage.script())}</script>
<script type="text/plain" id="takeaway">{_compressed(takeaway())}</script>
<script type="module">
{_STARTUP}
</script>
</body>
</html>
"""


# Only code in the file runs, and it cannot send requests.
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' data:; style-src 'unsafe-inline'; img-src data: blob:; "
    "media-src blob:; base-uri 'none'; form-action 'none'"
)
_PAGE_CSS = """body { margin: 0; background: var(--page); color: var(--small); font: 13px/1.5 system-ui, sans-serif; }
main, footer { max-width: 1600px; margin: 0 auto; padding: 16px 16px 0; }
footer { padding: 8px 16px 16px; }"""

# The code in the page is compressed to a quarter of its size. The theme may change while the page is open.
_STARTUP = """const bytes = (id) => Uint8Array.from(atob(document.getElementById(id).textContent.trim()), (c) => c.charCodeAt(0));
const module = async (id) => {
  const unzipped = new Blob([bytes(id)]).stream().pipeThrough(new DecompressionStream("gzip"));
  return "data:text/javascript;charset=utf-8," + encodeURIComponent(await new Response(unzipped).text());
};
const parentElement = document.querySelector("main");
const data = bytes("scene");
const { default: stage } = await import(await module("player"));
parentElement.assets = { module: module("takeaway"), template: null, gif: null };
const show = () => stage({ data, parentElement });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
show();"""


def _colours() -> str:
    def root(colours):
        return f":root {{ --page: {colours['ground']}; --small: {colours['dim']}; }}"

    return f"{root(LIGHT)}\n@media (prefers-color-scheme: dark) {{ {root(DARK)} }}"


def _compressed(code: str) -> str:
    return b64encode(compress(code.encode(), mtime=0)).decode()


def _escape_css(css: str) -> str:
    return re.sub(r"<(?=/style)", r"\\3c ", css, flags=re.IGNORECASE)
