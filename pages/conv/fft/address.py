"""The FFT lesson: how an image is cut into transforms, whether they have room, and the arrays that follow."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import streamlit as st

from kernels.conv import fft
from pages.conv import address as conv_address
from pages.parts.kept import MOST_KEPT
from pages.parts.query import chosen
from pages.parts.tiles import Watched
from visuals.charts import units
from visuals.conv.fft.arrays import PAD, TOO_SMALL, Arrays, arrays_of
from visuals.conv.fft.charts import tile_words
from visuals.conv.fft.scene import fft_scene
from visuals.conv.fft.story import thrown_away
from visuals.conv.inputs import Inputs, outputs
from visuals.scene.scene import Scene

PAGE, LADDER, RUNG = "conv/fft/page.py", conv_address.ladder("fft"), fft.RUNGS[0]
TILES = {tile_words(tile): tile for tile in RUNG.tiles["FFT_TILE"]}
SPECTRA = [str(n) for n in RUNG.tiles["SPECTRA"]]
ROOMS = (PAD, TOO_SMALL)


# -- what the address asks for ---------------------------------------------------------------------
def tiles() -> dict[str, int]:
    return {
        "FFT_TILE": TILES[chosen("transform", TILES)],
        "SPECTRA": int(chosen("SPECTRA", SPECTRA)),
    }


def watched() -> Watched:
    return Watched(RUNG, tiles())


def room() -> str:
    return chosen("room", ROOMS)


def controls(inputs: Inputs) -> None:
    """How the image is cut, and with how much room; what that says of this shape."""
    with st.container(key="params_tiles", horizontal=True):
        _pills("transform", "transforms", list(TILES))
        _pills("SPECTRA", "SPECTRA", SPECTRA)
        _pills("room", "room for the window", ROOMS)
        st.html(f'<p class="kt-derived">{_derived(inputs)}</p>')


def _pills(name: str, label: str, choices) -> None:
    st.session_state[name] = chosen(name, choices)
    st.pills(label, choices, default=choices[0], required=True, key=name, bind="query-params")


def _derived(inputs: Inputs) -> str:
    """Sizes that follow, as HTML; "" where the filter does not fit a transform."""
    s, of_tiles = inputs.shape, tiles()
    if too_large(inputs, of_tiles["FFT_TILE"]):
        return ""
    of = fft.cut(s, of_tiles)
    count = int(of["down"]) * int(of["across"])
    text = f"{'a transform' if count == 1 else f'<b>{count:,}</b> transforms'} of <b>{of['rows']}×{of['columns']}</b> a map"
    text += f" · taps <b>{s.R}×{s.S}</b> become <b>{int(of['rows']) * int(of['columns']):,}</b> numbers"
    if s.stride != (1, 1):
        text += f" · the stride throws <b>{units.share(thrown_away(s))}</b> of the pixels away"
    return text


# -- what follows ----------------------------------------------------------------------------------
def too_large(inputs: Inputs, tile: int) -> bool:
    """Whether the filter does not fit a transform of that size."""
    return 0 < tile < max(inputs.shape.span_h, inputs.shape.span_w)


@lru_cache(maxsize=MOST_KEPT // 2)
def arrays(inputs: Inputs, tile: int, room: str) -> Arrays:
    """What image 0 and filter 0 become, all channels counted."""
    s, maps = inputs.shape, len(inputs.planes())
    times = np.bincount(np.arange(s.C) % maps, minlength=maps)
    return arrays_of(s, inputs.x(1, maps)[0], inputs.w(1, maps)[0], tile, room, times)


def right(inputs: Inputs) -> np.ndarray:
    """float32 [P, Q]: what image 0 and filter 0 are to become, by the definition."""
    return outputs(inputs, 1, inputs.shape.P, inputs.shape.Q)[0]


@lru_cache(maxsize=MOST_KEPT)
def scene(inputs: Inputs, tile: int, room: str) -> tuple[Scene | None, str]:
    """The scene, None where there is none, and why it is not what was asked for or what forbids to run it."""
    s = inputs.shape
    rules = list(RUNG.rules(s, {"FFT_TILE": tile, "SPECTRA": int(SPECTRA[0])}))
    said = f"{RUNG.title} cannot run so: {'; '.join(rules)}." if rules else ""
    if s.groups > 1:
        return None, said
    if too_large(inputs, tile):
        tile, said = 0, f"{said} Until then the stage shows whole images."
    elif rules:
        said += " The stage shows what it would do with one image and one filter."
    return fft_scene(arrays(inputs, tile, room), s, room, right(inputs)), said
