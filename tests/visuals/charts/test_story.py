"""Examples of the lessons: presets at which something gains most and least, by what was recorded of it alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kernels import records
from kernels.conv.presets import CONV_PRESETS
from kernels.ladders import find
from visuals.charts import story as charts_story
from visuals.charts import units
from visuals.conv.im2col.story import im2col_examples

RATIOS = st.dictionaries(st.sampled_from(list(CONV_PRESETS)), st.floats(1e-3, 1e3))


@given(RATIOS)
def test_extremes_are_the_largest_and_the_smallest_of_those_that_are_known(ratios):
    of = {CONV_PRESETS[key].shape: ratio for key, ratio in ratios.items()}
    told = charts_story.extremes(of.get)
    got = [ratios[preset.key] for preset, _ in told]
    falling = sorted(ratios.values(), reverse=True)
    assert got == (falling if len(falling) <= 4 else falling[:2] + falling[-2:])
    assert len({preset.key for preset, _ in told}) == len(told)
    for preset, words in told:
        assert words == f"{preset.label}: {units.ratio(ratios[preset.key])}×"


def test_examples_of_im2col_tell_the_times_of_im2col_and_not_of_what_is_faster():
    assert len(im2col_examples()) == 4
    for preset, words in im2col_examples():
        direct, *gemms = (
            records.recorded(name, preset.shape, find(name).default_tiles)
            for name in ("conv/direct", "conv/im2col-gemm", "conv/im2col-cublas")
        )
        best = min(row["median_ms"] for row in gemms if row)
        assert words == f"{preset.label}: {direct['median_ms'] / best:.2g}×"


def test_only_cold_recordings_at_the_usual_tile_sizes_count(monkeypatch):
    shape, rung = CONV_PRESETS["toy"].shape, find("conv/direct")
    usual = {"rung": rung.name, "shape": shape.params(), "tiles": rung.default_tiles, "mode": "cold"}
    rows = (usual | {"mode": "hot"}, usual | {"tiles": {"BLOCK": 32}})
    monkeypatch.setattr(records, "_by_setting", records._by_setting.__wrapped__)
    monkeypatch.setattr(records, "recordings", lambda: rows)
    assert charts_story.recorded_at(shape, [rung.name, "conv/fft"]) == {}
    monkeypatch.setattr(records, "recordings", lambda: (*rows, usual))
    assert charts_story.recorded_at(shape, [rung.name, "conv/fft"]) == {rung.name: usual}
    assert charts_story.recorded_at(shape, [rung.name], "hot") == {rung.name: rows[0]}
