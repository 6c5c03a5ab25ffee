"""Examples of the lessons: the presets with the largest and smallest gain, from recordings only."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kernels import records
from kernels.conv.presets import CONV_PRESETS
from kernels.ladders import find
from tests.helpers.recordings import recordings
from visuals import units
from visuals.charts import ladder_notes
from visuals.conv.im2col.notes import im2col_examples

RATIOS = st.dictionaries(st.sampled_from(list(CONV_PRESETS)), st.floats(1e-3, 1e3))


@given(RATIOS)
def test_extremes_are_the_largest_and_smallest_known_ratios(ratios):
    ratio_of = {CONV_PRESETS[key].shape: ratio for key, ratio in ratios.items()}
    examples = ladder_notes.extremes(ratio_of.get)
    actual = [ratios[preset.key] for preset, _ in examples]
    falling = sorted(ratios.values(), reverse=True)
    assert actual == (falling if len(falling) <= 4 else falling[:2] + falling[-2:])
    assert len({preset.key for preset, _ in examples}) == len(examples)
    for preset, label in examples:
        assert label == f"{preset.label}: {units.ratio(ratios[preset.key])}×"


def test_im2col_examples_use_the_times_of_im2col_rungs():
    assert len(im2col_examples()) == 4
    for preset, label in im2col_examples():
        direct, *gemms = (
            records.recorded(name, preset.shape, find(name).default_tiles)
            for name in ("conv/direct", "conv/im2col-gemm", "conv/im2col-cublas")
        )
        best = min(row["median_ms"] for row in gemms if row)
        assert label == f"{preset.label}: {direct['median_ms'] / best:.2g}×"


def test_recorded_at_takes_only_recordings_of_its_mode_and_default_tiles():
    shape, rung = CONV_PRESETS["toy"].shape, find("conv/direct")
    default_row = {
        "rung": rung.name,
        "shape": shape.params(),
        "tiles": rung.default_tiles,
        "mode": "cold",
        "device": "a GPU",
    }
    rows = (default_row | {"mode": "hot"}, default_row | {"tiles": {"BLOCK": 32}})
    with recordings(*rows):
        assert ladder_notes.recorded_at(shape, [rung.name, "conv/fft"]) == {}
    with recordings(*rows, default_row):
        assert ladder_notes.recorded_at(shape, [rung.name, "conv/fft"]) == {rung.name: default_row}
        assert ladder_notes.recorded_at(shape, [rung.name], "hot") == {rung.name: rows[0]}
