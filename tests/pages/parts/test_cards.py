"""The cards after a run: shares, ceilings, the roof, memory per stage, and recordings of other shapes."""

import re

import pytest

from kernels import records
from kernels.conv.presets import CONV_PRESETS
from kernels.gemm.shape import GemmShape
from kernels.ladders import LADDERS
from kernels.records.nearest import Match
from pages.parts import cards, run_settings
from pages.parts.run_settings import RunSettings
from tests.helpers.page_runner import finish, open_page, texts
from tests.pages.parts.test_run import open_at
from visuals import units
from visuals.charts import bars, roofline

TOY = CONV_PRESETS["toy"].shape


def plotted(at):
    return len(at.get("plotly_chart"))


def test_run_shows_shares_ceilings_and_the_other_device():
    at = open_at(engine="cpu")
    finish(at, "run", "job")
    text, rows = texts(at), at.session_state["ran"].rows
    ceilings = rows["conv/direct"]["ceilings"]
    names = ("speed, relative to the fastest library", "rate, relative to the roof", "rate, relative to the FP32 peak")
    assert "".join(f'<th scope="col">{name}</th>' for name in (*names, "call overhead")) in text
    library = rows["conv/im2col-cublas"]["median_ms"]
    for name in ("conv/direct", "conv/im2col-gemm", "conv/im2col-cublas"):
        assert f"<td>{units.share(library / rows[name]['median_ms'])}</td>" in text
    assert f"An empty call takes {units.time_(ceilings['launch_us'] / 1e3)} (n = " in text
    roof = roofline.roof_of(rows["conv/direct"], "measured")
    assert units.badge("measured", roof.device + ", " + ceilings["date"]) in text
    assert f"Below {units.ratio(roof.ridge)} FLOP/byte bandwidth is the limit" in text
    fastest = min(records.recorded(name, TOY, row["tiles"])["median_ms"] for name, row in rows.items())
    assert re.search(
        rf"is fastest on [^<]+× the time of [^<]+ on NVIDIA H200 \({re.escape(units.time_(fastest))}, recorded\)", text
    )
    assert "Memory over time: " in text
    assert all(row["timeline"][0]["at"] == "inputs" for row in rows.values())
    assert "Copying" not in text or records.recorded("conv/direct", TOY, {"BLOCK": 256}).get("copies_ms")


def test_changed_control_fades_dots_and_marks_rungs_without_time():
    at = open_at(engine="cpu")
    finish(at, "run", "job")
    assert "faded" not in texts(at) and "Without a time at these settings" not in texts(at)
    at.number_input(key="K").set_value(5.0).run()
    text = texts(at)
    assert "faded: other settings" in text and "┊ predicted, no time at these settings" in text
    assert re.search(
        r"Without a time at these settings: the roof of [^<]+ allows at most direct, im2col [^;<]+ \d", text
    )  # equal bytes
    assert "is fastest on" not in text  # another shape is not compared


def test_nearest_recording_names_its_shape_and_is_no_dot():
    at = open_at(engine="cpu", N="2", size="stage")
    text = texts(at)
    nearest = records.nearest("conv/direct", TOY.with_(N=2), {"BLOCK": 256})
    assert not nearest.exact
    assert f'<span class="kt-elsewhere">not this shape</span>, the nearest: {nearest.caption}</p>' in text
    assert text.count("kt-badge-recorded") == 2  # over these bars and at the roof, not at memory
    assert "kt-badge-recorded" in text.partition("Roofline <small>")[2]
    assert "No run has measured what each kernel allocates." in text
    assert plotted(at) == 2  # the bars, and the recorded roof
    assert "It buys time" not in text and "◆" not in text
    finish(at, "run", "job")
    assert "is fastest on" not in texts(at) and "◆" not in texts(at)


def test_rung_recorded_only_with_other_tiles_names_them():
    at = open_at(engine="cpu", caches="hot", TILE="8", size="stage")
    at.run()  # without a browser the options have the values of the URL only now
    text = texts(at)
    assert "not this shape" not in text
    row = records.recorded("conv/im2col-gemm", TOY, {"BLOCK": 256, "TILE": 16}, "hot")
    assert (
        f"im2col + our GEMM: {units.time_(row['median_ms'])}, recorded at this shape, with BLOCK 256, TILE 16." in text
    )
    assert "1 kernel was recorded only with other options" in text


def charts(at):
    return {e.proto.id.rpartition("-")[2] for e in at.get("plotly_chart")}


def test_equal_memory_is_a_sentence_and_needs_no_chart():
    same, different = open_page("gemm/page.py", view="run"), open_at(view="run")
    shape = GemmShape(64, 64, 64)
    able = [rung for rung in LADDERS["gemm"].rungs if not any(rung.rules(shape, rung.default_tiles))]
    assert f"All {len(able)} kernels allocate 49.2 KB. The largest part: inputs, 32.8 KB." in texts(same)
    assert "chart_memory" not in charts(same) and "chart_memory" in charts(different)
    assert "chart_times_recorded" in charts(same)


def test_roofline_names_only_rungs_in_its_chart():
    html = texts(open_page("gemm/page.py", view="run")).partition("Roofline</h2>")[2].partition("<h2")[0]
    assert "<b>15</b> cuBLAS TF32" in html and "<b>16</b>" not in html and "dp4a" not in html


def test_rung_on_the_stage_without_a_recording_is_named():
    html = texts(open_page("softmax/page.py", view="run", BLOCK="4"))
    assert "No recording exists for “online: two passes” with these tile sizes. The nearest: " in html
    assert "Not run at this shape" not in html and "Without a time at these settings" in html


def test_shape_without_recording_is_reported():
    text = texts(open_at(engine="cpu", dilation_h="3", H="19", size="stage"))
    assert "No recording exists for this shape with these options" in text
    assert text.count("kt-badge-recorded") == 1  # the roof's
    assert "kt-badge-recorded" in text.partition("Roofline <small>")[2]


@pytest.fixture
def draw_counts(monkeypatch):
    """Returns how often each chart was drawn, with an empty cache at first."""
    counts = dict.fromkeys(("times", "memory", "roofline"), 0)

    def counting(name, draw):
        def wrapper(*args):
            counts[name] += 1
            return draw(*args)

        return wrapper

    for name in ("times", "memory"):
        monkeypatch.setattr(bars, name, counting(name, getattr(bars, name)))
    monkeypatch.setattr(roofline, "chart", counting("roofline", roofline.chart))
    cards._cached_figure.cache_clear()
    return counts


def test_rerun_uses_cached_figures(draw_counts):
    at = open_at(engine="cpu")
    finish(at, "run", "job")
    counts_before = dict(draw_counts)
    assert all(counts_before.values()) and plotted(at) == 4
    at.run()
    assert draw_counts == counts_before and not at.exception
    at.number_input(key="K").set_value(6.0).run()
    assert draw_counts["times"] == counts_before["times"] + 1  # of the nearest recording; the run's own bars stay
    assert draw_counts["memory"] == counts_before["memory"] and draw_counts["roofline"] == counts_before["roofline"] + 1


def test_nearest_recordings_have_the_shape_most_rungs_have(monkeypatch):
    """With different shapes the rungs could not be compared."""

    def nearest(rung, shape, tiles, mode):
        recorded_shape = TOY.with_(N=4 if rung == "conv/direct" else 8)
        return Match({"rung": rung, "shape": recorded_shape.params()}, False, "")

    monkeypatch.setattr(run_settings.records, "nearest", nearest)
    ladder = LADDERS["conv"]
    tiles = tuple({name: value for rung in ladder.rungs for name, value in rung.default_tiles.items()}.items())
    settings = RunSettings(ladder, TOY.with_(N=2), "cpu", "cold", tiles)
    rungs = {rung.name for rung in settings.supported_rungs()}
    assert settings.nearest().keys() == rungs - {"conv/direct"} != set()
