"""The cards of the FFT lesson: spectra as pictures, wrap-around, whole images or parts, FLOPs over filter size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

import numpy as np
import streamlit as st

from kernels import records
from kernels.i18n import tr
from kernels.records.jsontext import Row, id_of
from pages.conv.fft import address
from pages.conv.tables import scrolled
from pages.parts import cards
from pages.parts.run_settings import RunSettings, card_rows
from pages.parts.text import card_title, conclusion, details, paragraph, together
from pages.parts.theme import tokens
from visuals import units
from visuals.charts import sweeps
from visuals.charts.bars import bar_line
from visuals.conv import pictures as conv_pictures
from visuals.conv.fft import charts, waves
from visuals.conv.fft import pictures as fft_pictures
from visuals.conv.fft.arrays import PAD, TOO_SMALL
from visuals.conv.inputs import Inputs

Picture = tuple[np.ndarray, str, str]  # values, role, caption


# -- pictures --------------------------------------------------------------------------------------
def spectra(inputs: Inputs) -> None:
    """Draws each array as a picture: input, both spectra, their product, its inverse transform, the output."""
    if inputs.shape.groups > 1:
        return
    tile = address.tile_of(inputs.shape, address.watched())
    tile = 0 if address.too_large(inputs, tile) else tile
    a = address.arrays(inputs, tile, address.padding())
    name = tr("your picture") if inputs.upload is not None else inputs.picture
    with st.container(key="card_spectra", border=True):
        method = tr(
            "The picture of a spectrum shows the logarithm of its magnitudes, with frequency 0 in the middle. The picture of a "
            "phase shows angles from −180 to 180 degrees. Half of the spectrum is not stored: it is the mirror image of the "
            "other half."
        )
        together(
            card_title(tr("Spectra as pictures")),
            conclusion(tr("A small filter has a wide, smooth spectrum.")),
            _pictures(fft_pictures.pipeline_pictures(a, name, inputs.names()[0], inputs.shape.C)),
            details(paragraph(method)),
        )


def side_cards(inputs: Inputs) -> None:
    with st.container(key="asides", horizontal=True):
        wrap_around(inputs)
        with st.container(key="card_waves", border=True):
            together(card_title(tr("Two waves, two spikes")), conclusion(waves.sentence()))
            cards.chart(lambda: waves.chart(tokens()), waves.HEIGHT, "chart_waves", ())
            together(details(paragraph(waves.caption())))


def wrap_around(inputs: Inputs) -> None:
    """Draws the errors of a transform that is only as large as the output, beside the correct result."""
    if inputs.shape.groups > 1:
        return
    tile = address.tile_of(inputs.shape, address.watched())
    tile = 0 if address.too_large(inputs, tile) else tile
    padded, small = (address.arrays(inputs, tile, padding) for padding in (PAD, TOO_SMALL))
    with st.container(key="card_wrap", border=True):
        expected = address.expected(inputs)
        together(
            card_title(tr("Wrap-around")),
            conclusion(fft_pictures.sentence(small, expected)),
            _pictures(fft_pictures.wrapped_pictures(padded, small, expected)),
            details(paragraph(fft_pictures.reason(padded, small))),
        )


def _pictures(images: Iterable[Picture]) -> str:
    """Returns the HTML of pictures in a line."""
    t, text = tokens(), ""
    for values, role, caption in images:
        rgb = conv_pictures.picture_rgb(fft_pictures.smaller(values), t[role], t["ground"], t["ink"])
        uri = conv_pictures.data_uri(rgb)
        text += (
            f'<figure style="width:150px"><img style="width:150px" src="{uri}" alt="{escape(caption)}">'
            f"<figcaption>{escape(caption)}</figcaption></figure>"
        )
    return f'<div class="kt-pictures">{text}</div>'


# -- under the cards of Run ------------------------------------------------------------------------
def more(settings: RunSettings) -> None:
    with st.container(key="rates", horizontal=True):
        _tilings(settings)
        _curves(settings)


def _tilings(settings: RunSettings) -> None:
    """Draws which of whole images, tiles of 32 x 32 and of 16 x 16 is fastest, or executes the fewest FLOPs.

    The folded table has a column for each. Its figures are predicted, and measured if there are rows."""
    with st.container(key="card_tilings", border=True):
        rows, kind = _rows(settings)
        s, spectra = settings.shape, settings.tiles_of(address.RUNG)["SPECTRA"]
        columns = charts.tilings(s, spectra, rows, kind)
        badges = units.badge("predicted")
        if rows:
            badges += " " + units.badge(kind, sweeps.provenance(list(rows.values())))
        overlap = tr(
            "Neighbouring tiles overlap by the filter’s size − 1, dilation included. The pixels of an overlap are "
            "transformed twice. As many outputs of each transform wrap around and are not used. In return, small transforms "
            "keep the padded filters small."
        )
        together(
            card_title(tr("Whole images or tiles")),
            conclusion(charts.tiling_sentence(s, spectra, rows)),
            f'<p class="kt-figures">{badges}</p>',
            _bars(charts.tiling_bars(s, spectra, rows)),
            details(_table(columns), *map(paragraph, _broken_rules(columns)), paragraph(overlap)),
        )


def _bars(lengths: Sequence[tuple[str, float, str]]) -> str:
    """Returns the HTML of a bar for each (title, length, text)."""
    longest = max((length for _, length, _ in lengths), default=1)
    lines = "".join(bar_line(title, length / longest, text, "output") for title, length, text in lengths)
    return f'<dl class="kt-bars">{lines}</dl>' if lines else ""


def _rows(settings: RunSettings) -> tuple[dict[int, Row], str]:
    """Returns the FFT's rows at this shape and SPECTRA by FFT_TILE, and their kind: recorded, or the one just run."""
    displayed = card_rows(settings)
    if displayed.kind == "measured" and not displayed.stale and (row := displayed.rows.get(address.RUNG.name)):
        return {row["tiles"]["FFT_TILE"]: row}, "measured"
    tiles = settings.tiles_of(address.RUNG)
    found = {
        tile: records.recorded(address.RUNG.name, settings.shape, tiles | {"FFT_TILE": tile}, settings.timing)
        for tile in address.RUNG.tiles["FFT_TILE"]
    }
    return {tile: row for tile, row in found.items() if row}, "recorded"


def _broken_rules(columns: dict[str, dict[str, str]]) -> list[str]:
    """Returns the rule of each tiling that cannot run."""
    return [
        tr("{tile} cannot run: {rule}", tile=tr(name), rule=lines[charts.RULE])
        for name, lines in columns.items()
        if charts.RULE in lines
    ]


def _table(columns: dict[str, dict[str, str]]) -> str:
    """Returns HTML: a column for each tiling that can run; "" if none can."""
    supported = {name: lines for name, lines in columns.items() if charts.RULE not in lines}
    if not supported:
        return ""
    header_cells = "".join(f'<th scope="col">{escape(tr(name))}</th>' for name in supported)
    text = f"<tr><td></td>{header_cells}</tr>"
    for line in next(iter(supported.values())):
        cells = "".join(f"<td>{escape(lines[line])}</td>" for lines in supported.values())
        text += f'<tr><th scope="row">{escape(line)}</th>{cells}</tr>'
    return scrolled(tr("Whole images or tiles"), text)


def _curves(settings: RunSettings) -> None:
    """Draws FLOPs over filter size, and times if they were recorded."""
    s = settings.shape
    with st.container(key="card_curves", border=True):
        counts = charts.curve(s, settings.tiles_of(address.RUNG))
        times = charts.recorded(settings.ladder, s, settings.tiles_of, settings.timing)
        compared, on_flops = charts.fft_sentence(times), charts.flops_sentence(s, counts)
        badges = units.badge("predicted")
        if times:
            rows = [row for _, points in times for _, row in points]
            badges += " " + units.badge("recorded", f"{sweeps.provenance(rows)}, {rows[0]['date']}")
        together(
            card_title(tr("As the filter grows")),
            conclusion(compared or on_flops),
            f'<p class="kt-figures">{badges}</p>',
        )
        cache_key = (s, settings.tiles, tuple(id_of(row) for _, points in times for _, row in points))
        cards.chart(lambda: charts.chart(s, counts, times, tokens()), charts.px(times), "chart_curves", cache_key)
        method = tr(
            "Square filters. The padding grows with R, so that the output keeps its size where possible. The padding makes "
            "the transforms of a small image larger."
        )
        texts = (on_flops if compared else "", charts.caption(s, counts), charts.fastest(times))
        together(details(paragraph(" ".join(filter(None, texts)), "why"), paragraph(method)))
