"""The lesson on choosing without a browser: the guess before the race, every preset, bad input, Run, map and networks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels import records
from kernels.conv.networks import NETWORKS
from kernels.conv.presets import CONV_GRID, CONV_PRESETS
from kernels.conv.shape import ConvShape
from kernels.model.shape import ShapeError
from kernels.records import unsupported
from pages.conv.choose import address, controls, map
from pages.conv.choose import networks as choose_networks
from tests.helpers.opened import finish, links, open_page, texts
from tests.helpers.race_rows import LADDER, timed
from visuals.conv.choose import story

SMALL = ConvShape(1, 2, 8, 8, 3, 3, 3, pad=1)


def open_at(shape: ConvShape | None = None, **params):
    return open_page("conv/choose/page.py", **(address.at(shape) if shape else {}) | params)


@pytest.fixture
def recorded(monkeypatch):
    """In place of the recordings: rows of every rung but two at the default shape, at the points of the grid, and at
    the layers of VGG-16; one refusal of cuDNN's."""
    shapes = dict.fromkeys(
        [
            CONV_PRESETS["toy"].shape,
            address.DEFAULT,
            *(p.shape for p in CONV_GRID.values()),
            *(one.shape for one in NETWORKS["vgg16"].layers),
        ]
    )
    names = [r.name for r in LADDER.rungs if r.name not in ("conv/cudnn-direct", "conv/cudnn-gemm")]
    rows = tuple(timed(name, s, 1 + n / 10) for s in shapes for n, name in enumerate(reversed(names)))
    said = {"said": "cuDNN 9 does not support DIRECT for this shape", "device": "GPU X", "date": "2026-01-02"}
    caches = (
        records._by_setting, records._by_kernel, records._nearest,
        map._by_shape, choose_networks._timed, story.examples,
    )  # fmt: skip
    monkeypatch.setattr(records, "recordings", lambda: rows)
    monkeypatch.setattr(
        unsupported, "recorded", lambda rung, shape: said if rung == "conv/cudnn-direct" else None
    )
    for cache in caches:
        cache.cache_clear()
    yield rows
    monkeypatch.undo()
    for cache in caches:
        cache.cache_clear()


# -- the address -----------------------------------------------------------------------------------
SHAPES = st.builds(
    lambda **fields: fields,
    N=st.integers(1, 64), C=st.integers(1, 2048), H=st.integers(1, 512), W=st.integers(1, 512),
    K=st.integers(1, 2048), R=st.integers(1, 11), S=st.integers(1, 11), u=st.integers(1, 8), v=st.integers(1, 8),
    pad_h=st.integers(0, 8), pad_w=st.integers(0, 8), groups=st.integers(1, 2048),
    bias=st.integers(0, 1), relu=st.integers(0, 1),
)  # fmt: skip


@given(SHAPES, st.sampled_from(["", address.OPEN, *address.RUNGS]))
def test_any_address_gives_a_shape_and_what_is_written_reads_back(fields, predict):
    values, notes = address.FIELDS.read(fields | {"predict": predict})
    shape = address.shape_of(values)
    try:
        assert not notes and shape == ConvShape(**fields)
    except (AssertionError, ShapeError):
        assert notes  # what was changed is told
    assert address.shape_of(address.FIELDS.read(address.guessed(shape, predict))[0]) == shape
    assert address.FIELDS.read(address.guessed(shape, predict))[0]["predict"] == predict
    again = address.FIELDS.read(address.at(shape, predict))[0]["predict"]
    assert again == (address.OPEN if predict == address.OPEN else "")  # a guess holds for its shape


@given(SHAPES)
def test_a_shape_for_the_processor_is_small_and_keeps_the_filter(fields):
    shape = address.shape_of(address.FIELDS.read(fields)[0])
    small = address.small(shape)
    assert (small.R, small.S, small.stride, small.pad) == (shape.R, shape.S, shape.stride, shape.pad)
    assert small.groups == 1 and small.N == 1 and max(small.C, small.K) <= 16
    assert small.macs <= 16 * 16 * 121 * 44 * 44  # 28 x 28 pixels with the widest padding, the largest filter


# -- the guess -------------------------------------------------------------------------------------
def test_the_reader_guesses_first(recorded):
    at = open_at()
    shown = texts(at)
    assert "Guess before you look" in shown and "kt-race" not in shown and "kt-map" not in shown
    assert "1.1 ms" not in shown and "kt-totals" not in shown
    chips = links(at)
    assert chips["FFT"] == {"predict": "fft"} and "cuDNN DIRECT" not in chips  # it was refused
    assert chips["show without guessing"] == {"predict": "show"}
    assert "keep 17 of 18 rungs from this shape" in shown


def test_a_guess_is_judged_and_stands_in_the_address(recorded):
    at = open_at(predict="fft")
    shown = texts(at)
    place = 1 + sum(row["median_ms"] < next(r for r in recorded if r["rung"] == "conv/fft")["median_ms"]
                    for row in recorded[:16])  # fmt: skip
    assert (
        f"You said FFT: {['', 'first', 'second', 'third', 'fourth', 'fifth', 'sixth', 'seventh'][place]} of 16"
        in shown
    )
    assert shown.count('data-rung="') == 16 and shown.count("your guess") == 1
    assert "cuDNN 9 does not support DIRECT for this shape, asked on an GPU X" in shown
    assert "not recorded cold at this shape" in shown  # cuDNN GEMM: neither a row nor a refusal
    assert links(at)["guess again"] == {}
    assert "kt-map" in shown and "kt-totals" in shown


def test_a_link_to_show_it_and_a_guess_that_is_none():
    assert "kt-race" in texts(open_at(predict="show")) and "You said" not in texts(open_at(predict="show"))
    at = open_at(predict="<b>fastest")
    assert "predict must be one of" in texts(at) and "Guess before you look" in texts(at)
    assert "<b>fastest" not in texts(at)


def test_another_preset_asks_anew_unless_the_reader_wants_no_guessing(recorded):
    to = links(open_at(predict="fft"))["LeNet conv1"]
    assert "predict" not in to and to["H"] == "32"
    assert links(open_at(predict="show"))["LeNet conv1"]["predict"] == "show"


def test_the_picture_runs_again(recorded):
    at = open_at(predict="fft")
    assert "kt-turn-0" in texts(at)
    at.button(key="again").click().run()
    assert "kt-turn-1" in texts(at) and not at.exception


# -- shapes ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("key", controls.CHIPS)
def test_every_preset_shows_who_runs_and_why_the_others_do_not(key):
    shape = controls.PRESETS[key].shape
    at = open_at(shape, predict="show")
    shown = texts(at)
    assert "kt-note" not in shown and controls.derived(shape) in shown
    if records.recorded("conv/direct-tiled", shape, LADDER.rung("conv/direct-tiled").default_tiles):
        lanes = shown.count('data-rung="')
        there = [r for r in LADDER.rungs if records.recorded(r.name, shape, r.default_tiles)]
        assert lanes == len(there) > 1 and "not this shape" not in shown
    if shape.groups > 1 and "kt-race" in shown:
        assert f"groups must be 1, got {shape.groups}" in shown


def test_bad_input_is_named():
    at = open_at(R="99", C="7", groups="2", H="-1", predict="show")
    for words in ("R must lie in 1 .. 11", "C and K must be multiples of groups", "H must lie in"):
        assert words in texts(at)


def test_a_shape_without_a_recording_says_which_one_is_shown(recorded):
    at = open_at(address.DEFAULT.with_(N=3), predict="fft")
    shown = texts(at)
    assert "not this shape" in shown and "recorded at N=" in shown


@pytest.mark.parametrize(
    ("view", "race", "map_", "networks", "memory"),
    [
        ("race", 1, 0, 0, 0),
        ("watch", 1, 0, 0, 0),
        ("run", 1, 0, 0, 1),
        ("map", 0, 1, 0, 0),
        ("networks", 0, 0, 1, 0),
    ],
)
def test_each_view_is_its_part_alone(recorded, view, race, map_, networks, memory):
    shown = texts(open_at(predict="fft", view=view))
    got = [name in shown for name in ('class="kt-race', 'class="kt-map"', 'class="kt-layers"', ">Memory<")]
    assert got == [bool(n) for n in (race, map_, networks, memory)] and "<h1" not in shown


def test_a_map_alone_needs_no_guess(recorded):
    assert 'class="kt-map"' in texts(open_at(view="map")) and 'class="kt-layers"' in texts(
        open_at(view="networks")
    )


# -- measured here ---------------------------------------------------------------------------------
def test_a_race_here_is_measured_and_judged():
    at = open_at(SMALL, predict="winograd-2x2", engine="cpu")
    finish(at, "run", "job")
    shown, rows = texts(at), at.session_state["ran"].rows
    assert list(rows) == [r.name for r in LADDER.able("cpu", SMALL)]
    first = min(rows.values(), key=lambda row: row["median_ms"])
    said = "first of 10" if first["rung"] == "conv/winograd-2x2" else "times the time of the first"
    assert "kt-badge-measured" in shown and said in shown
    assert "cuDNN FFT, cuDNN FFT_TILING" in shown and "</b>: runs on the cuda engine only" in shown
    at.number_input(key="K").set_value(4.0).run()
    assert f"stale: measured at {SMALL}" in texts(at)


def test_a_large_shape_offers_a_small_one_to_a_processor():
    to = next(
        q
        for label, q in links(open_at(engine="cpu")).items()
        if label.startswith("a shape for this processor")
    )
    assert address.shape_of(address.FIELDS.read(to)[0]) == address.small(address.DEFAULT)


def test_a_map_is_measured_here_cell_by_cell(monkeypatch):
    monkeypatch.setitem(map.SPANS, "cpu", {"CK": (1, 2), "H": (6, 8), "N": (1, 2)})
    monkeypatch.setattr(map, "SECONDS", 0.01)
    at = open_at(SMALL, view="map", engine="cpu")
    assert at.button(key="measure_map").label == "Measure 4 cells here"
    finish(at, "measure_map", "map")
    series = at.session_state["map"]
    assert series.tried == 4 and not series.failed
    shown = texts(at)
    measured = shown[shown.index("kt-badge-measured") :]
    assert measured.index("Of 4 cells") > 0 and measured.count('class="kt-cell') >= 4
    for shape in series.asked.shapes():
        rows = [row for row in series.rows if row["shape"] == shape.params()]
        assert [row["rung"] for row in rows] == [r.name for r in LADDER.able("cpu", shape)]
    at.session_state["across"] = "N"
    at.run()
    assert not at.exception


# -- networks --------------------------------------------------------------------------------------
def test_networks_are_summed_from_recordings(recorded):
    at = open_at(view="networks", network="vgg16")
    at.run()  # where there is no browser the address reaches a control a run later
    shown = texts(at)
    assert "13 convolutions of 9 shapes, batch 32" in shown and "arXiv 1409.1556" in shown
    assert "best of each layer" in shown and "13 ms" in shown  # the first rung takes 1 ms at each
    assert shown.count("cannot 9 of 9") == 1  # cuDNN DIRECT, refused
    assert shown.count("not recorded 9 of 9") == 1  # cuDNN GEMM
    at = open_at(view="networks")
    assert "shapes have no recording" in texts(at) and "version 1" in texts(at)


# -- what a layer does besides ----------------------------------------------------------------------
def test_bias_relu_and_only_groups_that_part_the_channels_can_be_asked_for():
    at = open_at(C="12", K="18")
    groups = next(pills for pills in at.button_group if pills.key == "groups")
    assert list(groups.options) == ["1", "2", "3", "6"]
    groups.set_value(3)
    next(pills for pills in at.button_group if pills.key == "relu").set_value(1)
    at.run()
    shown = texts(at)
    assert "<b>3</b> groups" in shown and "ReLU" in shown and "kt-note" not in shown
