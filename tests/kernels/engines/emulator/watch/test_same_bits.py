"""The build for watching computes the bits of the measured build: every rung, at its smallest preset or at a smaller shape."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from kernels.engines import emulator
from kernels.engines.emulator.launch import Options
from kernels.ladders import LADDERS
from kernels.model.program import Launch
from kernels.model.rung import Ladder, Rung
from kernels.runner import inputs_of
from tests.helpers.emulated import needs_nvrtc

pytestmark = needs_nvrtc
# Rungs whose smallest preset is large.
SHAPES = {
    "attention/flash-mma-variants": "B=1,H=2,N=40,d=32,causal=1,dtype=fp16,kv_heads=1",
    "attention/flash-wgmma-variants": "B=1,H=2,N=40,d=32,causal=1,dtype=fp16,kv_heads=1",
    "attention/flash-decode-ring": "B=1,H=4,N=1,d=64,causal=1,M=300,dtype=fp16,kv_heads=1",
    "conv-fp16/halo-split": "N=1,C=128,H=8,W=8,K=64,R=1,S=1",
}
# Rungs that fill a GPU at any shape.
TILES = {"softmax/split": {"BLOCKS": 4, "BLOCK": 32}, "softmax/one-launch": {"BLOCKS": 4, "BLOCK": 32}}
# The optimiser unrolls their loops and fuses products with sums of other iterations. The largest difference, as a part of the largest
# number of the output.
DIFFERENT: dict[str, float] = {
    "conv/winograd-4x4": 1e-6,
    "conv/winograd-nonfused": 1e-6,
    "conv/fft-tiled": 1e-6,
    "conv-dinput/winograd": 1e-6,
    "conv-dweight/winograd": 1e-6,
}


def extent(shape: object) -> int:
    return prod(n for name in vars(shape) if isinstance(n := getattr(shape, name), int) and n > 1)


def smallest(ladder: Ladder, rung: Rung):
    """Returns a small shape that a rung computes; None if no preset is one."""
    if rung.name in SHAPES:
        return ladder.parse(SHAPES[rung.name])
    shapes = (preset.shape for preset in ladder.presets.values())
    return min((s for s in shapes if not any(rung.rules(s, rung.default_tiles))), key=extent, default=None)


def outputs(ladder: Ladder, rung: Rung, shape, watch: bool) -> dict[str, np.ndarray]:
    program = rung.build(shape, rung.check(shape, TILES.get(rung.name)))
    session = emulator.Session(
        program, inputs_of(ladder, shape, program), Options(watch=watch, count=False, seconds=120)
    )
    with np.errstate(all="ignore"):
        session.verify_run()
    return {buffer.name: session.fetch(buffer.name) for buffer in program.outputs}


def difference(ladder: Ladder, rung: Rung) -> float | None:
    """Returns how much the outputs differ, as a part of the largest number; 0 for equal bits, None of a rung without kernels."""
    shape = smallest(ladder, rung)
    if shape is None or not any(isinstance(s, Launch) for s in rung.build(shape, rung.default_tiles).steps):
        return None
    measured, watched = (outputs(ladder, rung, shape, watch) for watch in (False, True))
    most = 0.0
    for name, array in measured.items():
        if array.tobytes() != watched[name].tobytes():
            a, b = array.astype(np.float64), watched[name].astype(np.float64)
            most = max(most, float(np.nanmax(np.abs(a - b)) / np.nanmax(np.abs(a))))
    return most


@pytest.mark.parametrize("name", LADDERS)
def test_every_rung(name):
    ladder = LADDERS[name]
    found = {rung.name: difference(ladder, rung) for rung in ladder.rungs}
    wrong = {rung: most for rung, most in found.items() if most and most > DIFFERENT.get(rung, 0)}
    assert not wrong
    assert not [rung for rung in DIFFERENT if rung in found and not found[rung]]  # they are equal now
