"""What the cards say of a run: shares, ceilings, the roof, memory stage by stage, and recordings of other shapes."""

import re

import pytest

from kernels import records
from kernels.conv.presets import CONV_PRESETS
from kernels.ladders import LADDERS
from kernels.records.nearest import Near
from pages.parts import cards, run_settings
from pages.parts.run_settings import Asked
from tests.helpers.opened import finish, texts
from tests.pages.parts.test_run import open_at
from visuals.charts import bars, roofline, units

TOY = CONV_PRESETS["toy"].shape


def plotted(at):
    return len(at.get("plotly_chart"))


def test_a_run_tells_its_shares_its_ceilings_and_the_other_device():
    at = open_at(engine="cpu")
    finish(at, "run", "job")
    said, rows = texts(at), at.session_state["ran"].rows
    told = rows["conv/direct"]["ceilings"]
    head = '<th scope="col">of the fastest library&#x27;s speed</th><th scope="col">of its roof</th>'
    assert head + '<th scope="col">of the FP32 peak</th><th scope="col">calls of nothing</th>' in said
    library = rows["conv/im2col-cublas"]["median_ms"]
    for name in ("conv/direct", "conv/im2col-gemm", "conv/im2col-cublas"):
        assert f"<td>{units.share(library / rows[name]['median_ms'])}</td>" in said
    assert f"calls of nothing: {units.time_(told['launch_us'] / 1e3)} each" in said
    roof = roofline.roof_of(rows["conv/direct"], "measured")
    assert f"{units.badge('measured', roof.device + ', ' + told['date'])} copy " in said
    assert f"They meet at {units.ratio(roof.ridge)} FLOP per byte" in said
    fastest = min(records.recorded(name, TOY, row["tiles"])["median_ms"] for name, row in rows.items())
    assert re.search(rf"The fastest here, [^<]+ recorded on NVIDIA H200, [^<]+ \({re.escape(units.time_(fastest))}\)", said)  # fmt: skip
    assert "As the program goes on" in said
    assert all(row["timeline"][0]["at"] == "inputs" for row in rows.values())
    assert "Copying" not in said or records.recorded("conv/direct", TOY, {"BLOCK": 256}).get("copies_ms")


def test_a_turned_control_fades_the_dots_and_marks_where_the_rungs_would_stand():
    at = open_at(engine="cpu")
    finish(at, "run", "job")
    assert "faded" not in texts(at) and "Not run at this shape" not in texts(at)
    at.number_input(key="K").set_value(5.0).run()
    said = texts(at)
    assert "faded: at the settings before" in said and "┊ predicted, with no time at this shape" in said
    assert re.search(r"Not run at this shape; by the roofs direct at most \d", said)
    assert "The fastest here" not in said  # another shape is not compared


def test_where_nothing_was_recorded_the_nearest_says_which_it_is_and_is_no_dot():
    at = open_at(engine="cpu", N="2")
    said = texts(at)
    near = records.nearest("conv/direct", TOY.with_(N=2), {"BLOCK": 256})
    assert not near.exact
    assert f'<span class="kt-elsewhere">not this shape</span>, the nearest: {near.words}</p>' in said
    assert said.count("kt-badge-recorded") == 2  # over these bars and at the roof: memory tells of none
    assert "kt-badge-recorded" in said.partition("Roofline</h2>")[2]
    assert (
        "What each rung allocates" not in said and "Press Run: what each rung allocates is measured" in said
    )
    assert plotted(at) == 2  # the bars, and the recorded roof
    assert "It buys time" not in said and "◆" not in said
    finish(at, "run", "job")
    assert "The fastest here" not in texts(at) and "◆" not in texts(at)


def test_a_rung_recorded_with_other_tiles_only_says_with_which():
    at = open_at(engine="cpu", caches="hot", TILE="8")
    at.run()  # without a browser the options hold what the address says only now
    said = texts(at)
    assert "not this shape" not in said
    row = records.recorded("conv/im2col-gemm", TOY, {"BLOCK": 256, "TILE": 16}, "hot")
    assert (
        "im2col + our GEMM has no recording with these options; the nearest: "
        f"{units.time_(row['median_ms'])}, recorded at this shape, with BLOCK 256, TILE 16." in said
    )
    assert "direct has no recording" not in said


def test_a_shape_that_no_recording_speaks_of_says_so():
    said = texts(open_at(engine="cpu", dilation_h="3", H="19"))
    assert "No recording speaks of this shape at these options" in said
    assert said.count("kt-badge-recorded") == 1  # the roof's
    assert "kt-badge-recorded" in said.partition("Roofline</h2>")[2]


@pytest.fixture
def draws(monkeypatch):
    """How often each chart was drawn, from nothing."""
    counts = dict.fromkeys(("times", "memory", "timeline", "roofline"), 0)

    def counted(name, draw):
        def one(*args):
            counts[name] += 1
            return draw(*args)

        return one

    for name in ("times", "memory", "timeline"):
        monkeypatch.setattr(bars, name, counted(name, getattr(bars, name)))
    monkeypatch.setattr(roofline, "chart", counted("roofline", roofline.chart))
    cards._drawn.cache_clear()
    return counts


def test_a_rerun_draws_nothing_anew(draws):
    at = open_at(engine="cpu")
    finish(at, "run", "job")
    before = dict(draws)
    assert all(before.values()) and plotted(at) >= 5
    at.run()
    assert draws == before and not at.exception
    at.number_input(key="K").set_value(6.0).run()
    assert draws["times"] == before["times"] + 1  # of the nearest recording; the run's own bars stay
    assert draws["memory"] == before["memory"] and draws["roofline"] == before["roofline"] + 1


def test_the_nearest_are_all_at_the_shape_that_most_rungs_were_recorded_at(monkeypatch):
    """Else one rung with a recording of its own would stand alone, and the others could not be compared."""

    def nearest(rung, shape, tiles, mode):
        there = TOY.with_(N=4 if rung == "conv/direct" else 8)
        return Near({"rung": rung, "shape": there.params()}, False, "")

    monkeypatch.setattr(run_settings.records, "nearest", nearest)
    ladder = LADDERS["conv"]
    tiles = tuple(
        {name: value for rung in ladder.rungs for name, value in rung.default_tiles.items()}.items()
    )
    asked = Asked(ladder, TOY.with_(N=2), "cpu", "cold", tiles)
    rungs = {rung.name for rung in asked.able()}
    assert asked.near().keys() == rungs - {"conv/direct"} != set()
