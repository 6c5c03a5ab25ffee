"""Sentences on the times of a layer's ladder: their figures, and when they are left out."""

from __future__ import annotations

import pytest

from kernels.cross_entropy.presets import FORWARD_PRESETS
from visuals.charts import layer_notes

PLAIN, FAST, LIBRARY = "cross-entropy/unfused", "cross-entropy/online", "cross-entropy/library"
SHAPE = FORWARD_PRESETS["ce-gpt2"].shape
gain = layer_notes.gain(PLAIN)


def row(rung: str, ms: float, **more):
    return {"rung": rung, "engine": "cuda", "shape": SHAPE.params(), "median_ms": ms, "p20_ms": ms, "p80_ms": ms} | more


def rows(*all_rows):
    return {r["rung"]: r for r in all_rows}


def test_the_fastest_kernel_is_compared_with_the_plainest_the_library_and_a_copy():
    ceilings = {"copy_bytes_per_s": 4e12, "launch_us": 2.0}
    text = gain(rows(row(PLAIN, 0.5), row(FAST, 0.05, ceilings=ceilings), row(LIBRARY, 0.2)))
    assert "“one read, online” is 10× as fast as “softmax, logarithm, pick”." in text
    assert "“one read, online” is 4× as fast as PyTorch cross_entropy." in text
    share = round(100 * SHAPE.bytes / 4e12 * 1e3 / 0.05)
    assert f"{share} % of this time." in text


@pytest.mark.parametrize(
    ("ms", "words"), [(0.1, "reaches 50 % of the speed"), (0.05, "is as fast as"), (0.025, "is 2× as fast as")]
)
def test_the_library_may_be_faster_or_slower(ms, words):
    assert words in gain(rows(row(PLAIN, 1.0), row(FAST, ms), row(LIBRARY, 0.05)))


def test_a_plain_kernel_that_is_fastest_is_named_so():
    text = gain(rows(row(PLAIN, 0.05), row(FAST, 0.06)))
    assert text == "“softmax, logarithm, pick” is the fastest of our kernels at this size."


def test_equal_times_are_no_gain():
    slow, fast = row(PLAIN, 0.0501, p20_ms=0.049), row(FAST, 0.05, p80_ms=0.051)
    assert "take the same time" in gain(rows(slow, fast))


def test_nothing_is_said_without_both():
    assert gain({}) == gain(rows(row(FAST, 0.05))) == gain(rows(row(LIBRARY, 0.1))) == ""


def test_a_copy_shorter_than_a_launch_is_not_compared():
    ceilings = {"copy_bytes_per_s": 4e12, "launch_us": 1e6}
    assert "A copy" not in gain(rows(row(PLAIN, 0.5), row(FAST, 0.05, ceilings=ceilings)))
