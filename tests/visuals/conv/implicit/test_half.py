"""The figures of FP16 convolutions: our speed relative to cuDNN's."""

from __future__ import annotations

from kernels.conv.half.presets import SWEPT
from visuals import units
from visuals.conv.implicit import half


def test_a_layer_that_takes_twice_as_long_as_cudnn_is_half_as_fast():
    preset = half.LADDER.presets[SWEPT[0]]
    ours, library = (
        next(r for r in half.LADDER.rungs if bool(r.library) == is_library) for is_library in (False, True)
    )
    row = {"rung": ours.name, "median_ms": 2.0, "tiles": ours.default_tiles, "engine": "cuda"}
    layer = half.Layer(preset, row, row | {"rung": library.name, "median_ms": 1.0})
    assert layer.share == 0.5
    _, ((*_, time, other, share),) = half.lines([layer])
    assert (time, other, share) == (units.time_(2.0), units.time_(1.0), "0.5")
