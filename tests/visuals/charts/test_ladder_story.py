"""The sentences that compare the rungs of a ladder with its plainest."""

from __future__ import annotations

from kernels.pooling.shape import MaxPoolShape
from visuals.charts.ladder_story import gain

SHAPE = MaxPoolShape(64, 256, 56, 56, 3, 3, stride=2, pad=1)
BACKWARD = "max-pool-backward"


def row(rung: str, ms: float) -> dict:
    return {
        "rung": rung, "engine": "cuda", "shape": SHAPE.params(), "median_ms": ms, "p20_ms": ms, "p80_ms": ms,
        "ceilings": {"copy_bytes_per_s": 4e12},
    }  # fmt: skip


def rows(**ms: float) -> dict[str, dict]:
    names = {name: f"{BACKWARD}/{name.replace('_', '-')}" for name in ms}
    return {names[name]: row(names[name], time) for name, time in ms.items()}


def test_the_fastest_is_compared_with_the_plainest_a_library_and_a_copy():
    text = gain(BACKWARD, rows(scatter=0.4, gather=0.2, gather_patch=0.1, library=0.2))
    assert "is 4× as fast as “scatter with atomics”." in text
    assert "is 2× as fast as PyTorch" in text and "A copy that moves 308 MB takes" in text


def test_a_plainest_kernel_that_wins_is_named():
    assert "“scatter with atomics” is the fastest of our kernels" in gain(
        BACKWARD, rows(scatter=0.1, gather=0.2)
    )


def test_equal_times_are_no_gain():
    found = rows(scatter=0.2, gather=0.19)
    for one in found.values():
        one |= {"p20_ms": 0.1, "p80_ms": 0.3}
    assert "take the same time: their spreads overlap." in gain(BACKWARD, found)


def test_without_the_plainest_nothing_is_compared():
    assert gain(BACKWARD, rows(gather=0.2)) == "" == gain(BACKWARD, {})
