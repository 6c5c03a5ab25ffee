"""The HTML of tables in the cards of the convolution lessons."""

from __future__ import annotations

from html import escape


def scrolled(name: str, lines: str) -> str:
    """Returns the HTML of a table of `lines`, trusted HTML, that scrolls sideways on a narrow page."""
    return (
        f'<div class="kt-scroll" tabindex="0" role="region" aria-label="{escape(name)}">'
        f'<table class="kt-table">{lines}</table></div>'
    )
