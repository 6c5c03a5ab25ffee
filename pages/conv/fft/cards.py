"""The cards of the FFT lesson: spectra as pictures, wrap-around, whole images or parts, FLOPs over filter size."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

import numpy as np
import streamlit as st

from kernels import records
from kernels.i18n import tr
from kernels.records.jsontext import id_of
from pages.conv.fft import address
from pages.parts import cards
from pages.parts.run_settings import RunSettings, card_rows
from pages.parts.text import quiet
from pages.parts.theme import tokens
from visuals.charts import sweeps, units
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
    tile = address.tiles()["FFT_TILE"]
    tile = 0 if address.too_large(inputs, tile) else tile
    a = address.arrays(inputs, tile, address.padding())
    name = tr("your picture") if inputs.upload is not None else inputs.picture
    with st.container(key="card_spectra", border=True):
        st.html(f'<h2 class="kt-card">{tr("Spectra as pictures")}</h2>')
        _pictures(fft_pictures.pipeline_pictures(a, name, inputs.names()[0], inputs.shape.C))
        quiet(
            tr(
                "The picture of a spectrum shows the logarithm of its magnitudes, with frequency 0 in the middle. Half of the "
                "spectrum is not stored: it is the mirror image of the other half. A small filter has a wide, smooth spectrum."
            )
        )


def side_cards(inputs: Inputs) -> None:
    with st.container(key="asides", horizontal=True):
        wrap_around(inputs)
        with st.container(key="card_waves", border=True):
            st.html(f'<h2 class="kt-card">{tr("Two waves, two spikes")}</h2>')
            cards.chart(lambda: waves.chart(tokens()), waves.HEIGHT, "chart_waves", ())
            quiet(waves.caption())


def wrap_around(inputs: Inputs) -> None:
    """Draws the errors of a transform that is only as large as the output, beside the correct result."""
    if inputs.shape.groups > 1:
        return
    tile = address.tiles()["FFT_TILE"]
    tile = 0 if address.too_large(inputs, tile) else tile
    padded, small = (address.arrays(inputs, tile, padding) for padding in (PAD, TOO_SMALL))
    with st.container(key="card_wrap", border=True):
        st.html(f'<h2 class="kt-card">{tr("Wrap-around")}</h2>')
        caption = fft_pictures.caption(padded, small, address.expected(inputs))
        _pictures(fft_pictures.wrapped_pictures(padded, small, address.expected(inputs)), caption)


def _pictures(images: Iterable[Picture], sentence: str = "") -> None:
    """Draws pictures in a line with a sentence beside them."""
    t, text = tokens(), ""
    for values, role, caption in images:
        rgb = conv_pictures.picture_rgb(fft_pictures.smaller(values), t[role], t["ground"], t["ink"])
        uri = conv_pictures.data_uri(rgb)
        text += (
            f'<figure style="width:150px"><img style="width:150px" src="{uri}" alt="{escape(caption)}">'
            f"<figcaption>{escape(caption)}</figcaption></figure>"
        )
    if sentence:
        text += f'<p class="kt-why" style="flex:1 1 260px">{escape(sentence)}</p>'
    st.html(f'<div class="kt-pictures">{text}</div>')


# -- under the cards of Run ------------------------------------------------------------------------
def more(settings: RunSettings) -> None:
    with st.container(key="rates", horizontal=True):
        _tilings(settings)
        _curves(settings)


def _tilings(settings: RunSettings) -> None:
    """Draws a table with a column each for whole images, parts of 32 x 32 and of 16 x 16.

    Figures are predicted, and measured if there are rows."""
    with st.container(key="card_tilings", border=True):
        st.html(f'<h2 class="kt-card">{tr("Whole images or tiles")}</h2>')
        rows, kind = _rows(settings)
        columns = charts.tilings(settings.shape, settings.tiles_of(address.RUNG)["SPECTRA"], rows, kind)
        badges = units.badge("predicted")
        if rows:
            badges += " " + units.badge(kind, sweeps.provenance(list(rows.values())))
        st.html(f'<p class="kt-figures">{badges}</p>{_table(columns)}')
        quiet(
            tr(
                "Neighbouring tiles overlap by the filter’s size − 1, dilation included. The pixels of an overlap are transformed twice. As many "
                "outputs of each transform wrap around and are not used. In return, small transforms keep the padded filters "
                "small."
            )
        )


def _rows(settings: RunSettings) -> tuple[dict[int, dict], str]:
    """Returns the FFT's rows at this shape and SPECTRA by FFT_TILE, and their kind: recorded, or the one just run."""
    displayed = card_rows(settings)
    if (
        displayed.kind == "measured"
        and not displayed.stale
        and (row := displayed.rows.get(address.RUNG.name))
    ):
        return {row["tiles"]["FFT_TILE"]: row}, "measured"
    tiles = settings.tiles_of(address.RUNG)
    found = {
        tile: records.recorded(address.RUNG.name, settings.shape, tiles | {"FFT_TILE": tile}, settings.timing)
        for tile in address.RUNG.tiles["FFT_TILE"]
    }
    return {tile: row for tile, row in found.items() if row}, "recorded"


def _table(columns: dict[str, dict[str, str]]) -> str:
    """Returns HTML: a column for each tiling. Under the table is the rule of each tiling that cannot run."""
    supported = {name: lines for name, lines in columns.items() if charts.RULE not in lines}
    broken = [
        tr("{tile} cannot run: {rule}", tile=tr(name), rule=lines[charts.RULE])
        for name, lines in columns.items()
        if charts.RULE in lines
    ]
    header_cells = "".join(f'<th scope="col">{escape(tr(name))}</th>' for name in supported)
    text = f"<tr><td></td>{header_cells}</tr>"
    for line in next(iter(supported.values()), ()):
        cells = "".join(f"<td>{escape(lines[line])}</td>" for lines in supported.values())
        text += f'<tr><th scope="row">{escape(line)}</th>{cells}</tr>'
    table = (
        f'<div class="kt-scroll" tabindex="0" role="region" aria-label="{tr("Whole images or tiles")}">'
        f'<table class="kt-table">{text}</table></div>'
    )
    notes = "".join(f'<p class="kt-quiet">{escape(rule)}</p>' for rule in broken)
    return (table if supported else "") + notes


def _curves(settings: RunSettings) -> None:
    """Draws FLOPs over filter size, and times if they were recorded."""
    s = settings.shape
    with st.container(key="card_curves", border=True):
        st.html(f'<h2 class="kt-card">{tr("As the filter grows")}</h2>')
        counts = charts.curve(s, settings.tiles_of(address.RUNG))
        times = charts.recorded(settings.ladder, s, settings.tiles_of, settings.timing)
        badges = units.badge("predicted")
        if times:
            rows = [row for _, points in times for _, row in points]
            badges += " " + units.badge("recorded", f"{sweeps.provenance(rows)}, {rows[0]['date']}")
        st.html(f'<p class="kt-figures">{badges}</p>')
        cache_key = (s, settings.tiles, tuple(id_of(row) for _, points in times for _, row in points))
        cards.chart(
            lambda: charts.chart(s, counts, times, tokens()), charts.px(times), "chart_curves", cache_key
        )
        cards.sentence(f"{charts.caption(s, counts)} {charts.fastest(times)}".strip())
        quiet(
            tr("Square filters. The padding grows with R, so that the output keeps its size where possible.")
        )
