"""The URL of the FFT lesson: cut of the image into transforms and their padding. Also the resulting arrays."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import streamlit as st

from kernels.conv import fft
from pages.conv import address as conv_address
from pages.parts.query import chosen
from pages.parts.tiles import SelectedRung
from visuals.charts import units
from visuals.conv.fft.arrays import PAD, TOO_SMALL, Arrays, arrays_of
from visuals.conv.fft.charts import tile_name
from visuals.conv.fft.scene import fft_scene
from visuals.conv.fft.story import discarded_share
from visuals.conv.inputs import Inputs, outputs
from visuals.scene.scene import MAX_CACHED_SCENES, Scene

PAGE, LADDER, RUNG = "conv/fft/page.py", conv_address.ladder("fft"), fft.RUNGS[0]
TILES = {tile_name(tile): tile for tile in RUNG.tiles["FFT_TILE"]}
SPECTRA = [str(n) for n in RUNG.tiles["SPECTRA"]]
PADDINGS = (PAD, TOO_SMALL)


# -- settings in the URL ---------------------------------------------------------------------------
def tiles() -> dict[str, int]:
    return {
        "FFT_TILE": TILES[chosen("transform", TILES)],
        "SPECTRA": int(chosen("SPECTRA", SPECTRA)),
    }


def watched() -> SelectedRung:
    return SelectedRung(RUNG, tiles())


def padding() -> str:
    return chosen("room", PADDINGS)


def controls(inputs: Inputs) -> None:
    """Draws the controls for cut and padding, and the sizes derived from them."""
    with st.container(key="params_tiles", horizontal=True):
        _pills("transform", "transforms", list(TILES))
        _pills("SPECTRA", "SPECTRA", SPECTRA)
        _pills("room", "room for the window", PADDINGS)
        st.html(f'<p class="kt-derived">{_derived(inputs)}</p>')


def _pills(name: str, label: str, choices) -> None:
    st.session_state[name] = chosen(name, choices)
    st.pills(label, choices, default=choices[0], required=True, key=name, bind="query-params")


def _derived(inputs: Inputs) -> str:
    """Returns derived sizes as HTML; "" if the filter does not fit into a transform."""
    s, tile_sizes = inputs.shape, tiles()
    if too_large(inputs, tile_sizes["FFT_TILE"]):
        return ""
    cut = fft.cut(s, tile_sizes)
    count = int(cut["down"]) * int(cut["across"])
    text = f"{'a transform' if count == 1 else f'<b>{count:,}</b> transforms'} of <b>{cut['rows']}×{cut['columns']}</b> a map"
    text += f" · taps <b>{s.R}×{s.S}</b> become <b>{int(cut['rows']) * int(cut['columns']):,}</b> numbers"
    if s.stride != (1, 1):
        text += f" · the stride throws <b>{units.share(discarded_share(s))}</b> of the pixels away"
    return text


# -- arrays and scene ------------------------------------------------------------------------------
def too_large(inputs: Inputs, tile: int) -> bool:
    """Returns whether the filter is too large for a transform of that size."""
    return 0 < tile < max(inputs.shape.span_h, inputs.shape.span_w)


@lru_cache(maxsize=MAX_CACHED_SCENES // 2)
def arrays(inputs: Inputs, tile: int, padding: str) -> Arrays:
    """Returns the arrays of image 0 and filter 0, with all channels counted."""
    s, maps = inputs.shape, len(inputs.planes())
    times = np.bincount(np.arange(s.C) % maps, minlength=maps)
    return arrays_of(s, inputs.x(1, maps)[0], inputs.w(1, maps)[0], tile, padding, times)


def expected(inputs: Inputs) -> np.ndarray:
    """Returns float32 [P, Q]: the output of image 0 and filter 0 by the definition."""
    return outputs(inputs, 1, inputs.shape.P, inputs.shape.Q)[0]


@lru_cache(maxsize=MAX_CACHED_SCENES)
def scene(inputs: Inputs, tile: int, padding: str) -> tuple[Scene | None, str]:
    """Returns the scene, or None, and the reason why it differs from the settings or cannot run."""
    s = inputs.shape
    rules = list(RUNG.rules(s, {"FFT_TILE": tile, "SPECTRA": int(SPECTRA[0])}))
    reason = f"{RUNG.title} cannot run so: {'; '.join(rules)}." if rules else ""
    if s.groups > 1:
        return None, reason
    if too_large(inputs, tile):
        tile, reason = 0, f"{reason} Until then the stage shows whole images."
    elif rules:
        reason += " The stage shows what it would do with one image and one filter."
    return fft_scene(arrays(inputs, tile, padding), s, padding, expected(inputs)), reason
