"""The cards of the FFT lesson: spectra as pictures, wrap-around, whole images or parts, FLOPs over the filter's size."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

import numpy as np
import streamlit as st

from kernels import records
from kernels.records.jsontext import id_of
from pages.conv.fft import address
from pages.parts import cards
from pages.parts.run_settings import Asked, shown
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
    """Every array of the way as a picture: in, its spectrum, the filter's, the product, back, what is kept."""
    if inputs.shape.groups > 1:
        return
    tile = address.tiles()["FFT_TILE"]
    tile = 0 if address.too_large(inputs, tile) else tile
    a = address.arrays(inputs, tile, address.room())
    name = "your picture" if inputs.upload is not None else inputs.picture
    with st.container(key="card_spectra", border=True):
        st.html('<h2 class="kt-card">Spectra as pictures</h2>')
        _pictures(fft_pictures.way(a, name, inputs.names()[0], inputs.shape.C))
        quiet(
            "Of a spectrum the logarithm of the magnitude is drawn, frequency 0 in the middle; the half that is "
            "not stored is drawn from its mirror image. A small filter has a wide, smooth spectrum."
        )


def asides(inputs: Inputs) -> None:
    with st.container(key="asides", horizontal=True):
        wrap(inputs)
        with st.container(key="card_waves", border=True):
            st.html('<h2 class="kt-card">Two waves, two spikes</h2>')
            cards.chart(lambda: waves.chart(tokens()), waves.HEIGHT, "chart_waves", ())
            quiet(waves.words())


def wrap(inputs: Inputs) -> None:
    """What goes wrong where a transform is only as large as the output, beside what is right."""
    if inputs.shape.groups > 1:
        return
    tile = address.tiles()["FFT_TILE"]
    tile = 0 if address.too_large(inputs, tile) else tile
    enough, small = (address.arrays(inputs, tile, room) for room in (PAD, TOO_SMALL))
    with st.container(key="card_wrap", border=True):
        st.html('<h2 class="kt-card">Wrap-around</h2>')
        told = fft_pictures.words(enough, small, address.right(inputs))
        _pictures(fft_pictures.wrapped(enough, small, address.right(inputs)), told)


def _pictures(shown: Iterable[Picture], words: str = "") -> None:
    """Pictures in a line, and what they say beside them."""
    t, text = tokens(), ""
    for values, role, caption in shown:
        rgb = conv_pictures.picture_rgb(fft_pictures.smaller(values), t[role], t["ground"], t["ink"])
        uri = conv_pictures.data_uri(rgb)
        text += (
            f'<figure style="width:150px"><img style="width:150px" src="{uri}" alt="{escape(caption)}">'
            f"<figcaption>{escape(caption)}</figcaption></figure>"
        )
    if words:
        text += f'<p class="kt-why" style="flex:1 1 260px">{escape(words)}</p>'
    st.html(f'<div class="kt-pictures">{text}</div>')


# -- under the cards of Run ------------------------------------------------------------------------
def more(asked: Asked) -> None:
    with st.container(key="rates", horizontal=True):
        _tilings(asked)
        _curves(asked)


def _tilings(asked: Asked) -> None:
    """Whole images, parts of 32 x 32 and of 16 x 16: a column each, predicted, and measured where there are rows."""
    with st.container(key="card_tilings", border=True):
        st.html('<h2 class="kt-card">Whole images or parts of them</h2>')
        rows, kind = _rows(asked)
        told = charts.tilings(asked.shape, asked.tiles_of(address.RUNG)["SPECTRA"], rows, kind)
        badges = units.badge("predicted")
        if rows:
            badges += " " + units.badge(kind, sweeps.provenance(list(rows.values())))
        st.html(f'<p class="kt-figures">{badges}</p>{_table(told)}')
        quiet(
            "A part overlaps the next by what the filter covers less one: those pixels are transformed twice, and as many "
            "of each transform wrap and are not picked. Small transforms keep the padded filters small."
        )


def _rows(asked: Asked) -> tuple[dict[int, dict], str]:
    """By FFT_TILE, the rows of the FFT at this shape and SPECTRA: those recorded, or the one just run."""
    now = shown(asked)
    if now.kind == "measured" and not now.stale and (row := now.rows.get(address.RUNG.name)):
        return {row["tiles"]["FFT_TILE"]: row}, "measured"
    of = asked.tiles_of(address.RUNG)
    found = {
        tile: records.recorded(address.RUNG.name, asked.shape, of | {"FFT_TILE": tile}, asked.timing)
        for tile in address.RUNG.tiles["FFT_TILE"]
    }
    return {tile: row for tile, row in found.items() if row}, "recorded"


def _table(told: dict[str, dict[str, str]]) -> str:
    """A column a tiling; a rule that forbids one stands under the table."""
    able = {name: lines for name, lines in told.items() if "cannot run" not in lines}
    broken = [f"{name}: {lines['cannot run']}" for name, lines in told.items() if "cannot run" in lines]
    heads = "".join(f'<th scope="col">{escape(name)}</th>' for name in able)
    text = f"<tr><td></td>{heads}</tr>"
    for line in next(iter(able.values()), ()):
        cells = "".join(f"<td>{escape(lines[line])}</td>" for lines in able.values())
        text += f'<tr><th scope="row">{escape(line)}</th>{cells}</tr>'
    table = (
        '<div class="kt-scroll" tabindex="0" role="region" aria-label="Whole images or parts of them">'
        f'<table class="kt-table">{text}</table></div>'
    )
    notes = "".join(f'<p class="kt-quiet">cannot run: {escape(rule)}</p>' for rule in broken)
    return (table if able else "") + notes


def _curves(asked: Asked) -> None:
    """FLOPs over the filter's size, and times where they were recorded."""
    s = asked.shape
    with st.container(key="card_curves", border=True):
        st.html('<h2 class="kt-card">As the filter grows</h2>')
        told = charts.curve(s, asked.tiles_of(address.RUNG))
        times = charts.recorded(asked.ladder, s, asked.tiles_of, asked.timing)
        badges = units.badge("predicted")
        if times:
            rows = [row for _, points in times for _, row in points]
            badges += " " + units.badge("recorded", f"{sweeps.provenance(rows)}, {rows[0]['date']}")
        st.html(f'<p class="kt-figures">{badges}</p>')
        made_of = (s, asked.tiles, tuple(id_of(row) for _, points in times for _, row in points))
        cards.chart(lambda: charts.chart(s, told, times, tokens()), charts.px(times), "chart_curves", made_of)
        cards.sentence(f"{charts.words(s, told)} {charts.fastest(times)}".strip())
        quiet(
            "Square filters; the padding grows with R, so that the output keeps its size, as far as it can."
        )
