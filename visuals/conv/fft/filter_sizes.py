"""From which filter size on our FFT was recorded as the fastest kernel, and how it does in layers of real networks.

The fastest of our FFTs, at the fastest size of a transform, is compared with every kernel of the convolution ladder
without an FFT, libraries included, at the default tile sizes.
"""

from __future__ import annotations

from collections.abc import Mapping

from kernels import records
from kernels.conv import fft, fft_tiled
from kernels.conv.presets import CONV_PRESETS
from kernels.conv.shape import ConvShape
from kernels.ladders import LADDERS
from kernels.model.preset import Preset
from kernels.records.gpus import cached
from kernels.records.statistics import fastest, within_spread
from visuals.charts.ladder_notes import Row, recorded_at
from visuals.conv.fft.charts import TAPS, with_taps

OURS = (*fft.RUNGS, fft_tiled.RUNG)
NETWORKS = ("lenet", "resnet50", "vgg")  # how the keys of their presets begin
Pair = tuple[Row, Row]  # our fastest FFT, the fastest kernel without an FFT


@cached(None)
def pair_at(s: ConvShape) -> Pair | None:
    """Returns both recordings at a shape; None if one is missing."""
    others = [rung.name for rung in LADDERS["conv"].rungs if "fft" not in rung.name]
    ours = [
        records.recorded(rung.name, s, rung.default_tiles | {"FFT_TILE": tile})
        for rung in OURS
        for tile in rung.tiles["FFT_TILE"]
    ]
    best, other = fastest(filter(None, ours)), fastest(recorded_at(s, others).values())
    return (best, other) if best and other else None


@cached(None)
def by_filter_size(s: ConvShape) -> Mapping[int, Pair]:
    """Returns both recordings by R, for square filters with the rest of the shape as given."""
    found = {taps: pair_at(with_taps(s, taps)) for taps in TAPS}
    return {taps: pair for taps, pair in found.items() if pair}


def is_faster(pair: Pair) -> bool:
    ours, other = pair
    return ours["median_ms"] < other["median_ms"] and not within_spread(ours, other)


def wins_from(s: ConvShape) -> int | None:
    """Returns the smallest recorded R from which on our FFT is the faster one; None if it is not at the largest."""
    found = None
    for taps, pair in sorted(by_filter_size(s).items(), reverse=True):
        if not is_faster(pair):
            break
        found = taps
    return found


@cached(None)
def best_network_layer() -> tuple[Preset, float]:
    """Returns the layer of a network at which our FFT compares best, and its time over that of the fastest other kernel."""
    found = {
        key: pair[0]["median_ms"] / pair[1]["median_ms"]
        for key, preset in CONV_PRESETS.items()
        if key.startswith(NETWORKS) and (pair := pair_at(preset.shape))
    }
    best = min(found, key=lambda key: found[key])
    return CONV_PRESETS[best], found[best]
