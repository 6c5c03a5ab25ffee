"""Shapes of the ladder on instructions."""

from __future__ import annotations

from kernels.i18n import mark
from kernels.model.preset import Preset
from kernels.precision.shape import RateShape

RATE_PRESETS = {
    preset.key: preset
    for preset in (
        Preset("rate-toy", mark("Toy: one warp, one turn"), RateShape(1, 1), mark("every instruction is a step")),
        Preset("rate-odd", mark("13 warps, 37 turns"), RateShape(13, 37), mark("counts that no block divides")),
        Preset(
            "rate-full",
            mark("132 SMs × 512 warps, 1,024 turns"),
            RateShape(132 * 512, 1024),
            mark(
                "every place for warps of an H200 filled eight times; C has 35 MB, which take few of the microseconds"
            ),
        ),
    )
}
