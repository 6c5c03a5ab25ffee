"""Tests of the lesson on choosing without a browser: guess, race, presets, invalid input, Run, map, networks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels import records
from kernels.conv.networks import NETWORKS
from kernels.conv.presets import CONV_GRID, CONV_PRESETS
from kernels.conv.shape import ConvShape
from kernels.ladders import LADDERS
from kernels.model.shape import ShapeError
from kernels.records import availability, unsupported
from pages.conv.choose import address, controls, map
from pages.conv.choose import networks as choose_networks
from tests.helpers.page_runner import finish, links, open_page, texts
from tests.helpers.race_rows import LADDER, timed
from tests.helpers.recordings import recordings
from visuals.conv.choose import notes as choose_notes

SMALL = ConvShape(1, 2, 8, 8, 3, 3, 3, pad=1)


def open_at(shape: ConvShape | None = None, **params):
    return open_page("conv/choose/page.py", **(address.at_shape(shape) if shape else {}) | params)


@pytest.fixture
def recorded(monkeypatch):
    """Replaces the recordings: rows of every rung but two, and one refusal by cuDNN.

    The shapes: the toy, the default, the points of the grid, the layers of VGG-16."""
    shapes = dict.fromkeys(
        [
            CONV_PRESETS["toy"].shape,
            address.DEFAULT,
            *(p.shape for p in CONV_GRID.values()),
            *(layer.shape for layer in NETWORKS["vgg16"].layers),
        ]
    )
    names = [r.name for r in LADDER.rungs if r.name not in ("conv/cudnn-direct", "conv/cudnn-gemm")]
    rows = tuple(timed(name, s, 1 + n / 10) for s in shapes for n, name in enumerate(reversed(names)))
    refusal = {"said": "cuDNN 9 does not support DIRECT for this shape", "device": "GPU X", "date": "2026-01-02"}
    caches = map._by_shape, choose_networks._timed, choose_notes.examples
    monkeypatch.setattr(
        unsupported, "recorded", lambda rung, shape, card=None: refusal if rung == "conv/cudnn-direct" else None
    )
    for cache in caches:
        cache.cache_clear()
    with recordings(*rows):
        yield rows
    monkeypatch.undo()
    for cache in caches:
        cache.cache_clear()


# -- the URL ---------------------------------------------------------------------------------------
SHAPES = st.builds(
    lambda **fields: fields,
    N=st.integers(1, 64),
    C=st.integers(1, 2048),
    H=st.integers(1, 512),
    W=st.integers(1, 512),
    K=st.integers(1, 2048),
    R=st.integers(1, 11),
    S=st.integers(1, 11),
    u=st.integers(1, 8),
    v=st.integers(1, 8),
    pad_h=st.integers(0, 8),
    pad_w=st.integers(0, 8),
    extra_h=st.integers(-8, 8),
    extra_w=st.just(0),
    groups=st.integers(1, 2048),
    bias=st.integers(0, 1),
    relu=st.integers(0, 1),
)


@given(SHAPES, st.sampled_from(["", address.SHOW, *address.RUNGS]))
def test_any_url_gives_a_shape_and_written_parameters_read_back_equal(fields, predict):
    values, notes = address.FIELDS.read(fields | {"predict": predict})
    shape = address.shape_of(values)
    try:
        assert not notes and shape == ConvShape(**fields)
    except (AssertionError, ShapeError):
        assert notes  # each change is noted
    assert address.shape_of(address.FIELDS.read(address.with_guess(shape, predict))[0]) == shape
    assert address.FIELDS.read(address.with_guess(shape, predict))[0]["predict"] == predict
    again = address.FIELDS.read(address.at_shape(shape, predict))[0]["predict"]
    assert again == (address.SHOW if predict == address.SHOW else "")  # a guess is only valid for its shape


@given(SHAPES)
def test_small_shape_keeps_the_filter(fields):
    shape = address.shape_of(address.FIELDS.read(fields)[0])
    small = address.small(shape)
    assert (small.R, small.S, small.stride, small.pad) == (shape.R, shape.S, shape.stride, shape.pad)
    assert small.after == shape.after
    assert small.groups == 1 and small.N == 1 and max(small.C, small.K) <= 16
    assert small.macs <= 16 * 16 * 121 * 44 * 44  # 28 x 28 pixels with the largest padding and the largest filter


# -- the guess -------------------------------------------------------------------------------------
def test_guess_comes_before_the_race(recorded):
    at = open_at()
    html = texts(at)
    assert "Guess before you look" in html and "kt-race" not in html and "kt-map" not in html
    assert "1.1 ms" not in html and "kt-totals" not in html
    chips = links(at)
    assert (
        chips["FFT"] == {"view": "explore", "predict": "fft"} and "cuDNN DIRECT" not in chips
    )  # cuDNN refused this shape
    assert chips["show without guessing"] == {"view": "explore", "predict": "show"}
    total = len(LADDERS["conv"].rungs)
    assert f"{total - 1} of {total} kernels can run this shape." in html


def test_guess_is_ranked_and_kept_in_the_url(recorded):
    at = open_at(predict="fft")
    html, n = texts(at), len(LADDER.rungs) - 2  # two rungs have no row
    rank = 1 + sum(
        row["median_ms"] < next(r for r in recorded if r["rung"] == "conv/fft")["median_ms"] for row in recorded[:n]
    )
    assert f"Your guess, FFT, is number {rank} of {n}" in html
    assert html.count('data-rung="') == n and html.count(">your guess<") == 1
    assert "cuDNN 9 does not support DIRECT for this shape (tried on GPU X, 2026-01-02)" in html
    assert "not recorded cold at this shape" in html  # cuDNN GEMM: neither a row nor a refusal
    assert links(at)["guess again"] == {"view": "explore"}
    assert "kt-map" in html and "kt-totals" in html


def test_show_skips_the_guess_and_invalid_guess_is_reported():
    assert "kt-race" in texts(open_at(predict="show")) and "Your guess" not in texts(open_at(predict="show"))
    at = open_at(predict="<b>fastest")
    assert "predict must be one of" in texts(at) and "Guess before you look" in texts(at)
    assert "<b>fastest" not in texts(at)


def test_preset_link_drops_the_guess_but_keeps_show(recorded):
    to = links(open_at(predict="fft"))["LeNet conv1"]
    assert "predict" not in to and to["H"] == "32"
    assert links(open_at(predict="show"))["LeNet conv1"]["predict"] == "show"


@pytest.mark.parametrize(("predict", "picture"), [("", "show without guessing"), ("fft", 'class="kt-race')])
def test_picture_is_above_its_controls(recorded, predict, picture):
    main = [str(element.proto) for element in open_at(predict=predict).main]
    first, run = (
        next(i for i, proto in enumerate(main) if name in proto) for name in (picture.replace('"', r"\""), "Run here")
    )
    assert first < run


def test_race_can_be_replayed(recorded):
    at = open_at(predict="fft")
    assert "kt-replay-0" in texts(at)
    at.button(key="again").click().run()
    assert "kt-replay-1" in texts(at) and not at.exception


# -- shapes ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("key", controls.CHIPS)
def test_every_preset_shows_its_lanes_and_broken_rules(key):
    shape = controls.PRESETS[key].shape
    at = open_at(shape, predict="show")
    html = texts(at)
    assert "kt-note" not in html and controls.derived(shape) in html
    if records.recorded("conv/direct-tiled", shape, LADDER.rung("conv/direct-tiled").default_tiles):
        lanes = html.count('data-rung="')
        recorded_rungs = [r for r in LADDER.rungs if records.recorded(r.name, shape, r.default_tiles)]
        assert lanes == len(recorded_rungs) > 1 and "not this shape" not in html
    if shape.groups > 1 and "kt-race" in html:
        assert f"groups must be 1, got {shape.groups}" in html


def test_invalid_input_is_named():
    at = open_at(R="99", C="7", groups="2", H="-1", predict="show")
    for message in ("R must be 1 to 11", "C and K must be multiples of groups", "H must be 1 to"):
        assert message in texts(at)


def test_nearest_recording_is_named(recorded):
    at = open_at(address.DEFAULT.with_(N=3), predict="fft")
    html = texts(at)
    assert "not this shape" in html and "recorded at N=" in html


@pytest.mark.parametrize(
    ("view", "race", "map_", "networks", "memory"),
    [("race", 1, 0, 0, 0), ("watch", 1, 0, 0, 0), ("run", 1, 0, 0, 1), ("map", 0, 1, 0, 0), ("networks", 0, 0, 1, 0)],
)
def test_each_view_shows_only_its_part(recorded, view, race, map_, networks, memory):
    html = texts(open_at(predict="fft", view=view))
    got = [name in html for name in ('class="kt-race', 'class="kt-map"', 'class="kt-layers"', ">Memory<")]
    assert got == [bool(n) for n in (race, map_, networks, memory)] and "<h1" not in html


def test_map_and_networks_views_need_no_guess(recorded):
    assert 'class="kt-map"' in texts(open_at(view="map")) and 'class="kt-layers"' in texts(open_at(view="networks"))


# -- measured here ---------------------------------------------------------------------------------
def test_measured_race_ranks_the_guess():
    at = open_at(SMALL, predict="winograd-2x2", engine="cpu")
    finish(at, "run", "job")
    html, rows = texts(at), at.session_state["ran"].rows
    assert list(rows) == [r.name for r in availability.supported_rungs(LADDER, "cpu", SMALL)]
    first = min(rows.values(), key=lambda row: row["median_ms"])
    verdict = "the fastest of 9" if first["rung"] == "conv/winograd-2x2" else "× the time of the fastest"
    assert "kt-badge-measured" in html and verdict in html
    assert "cuDNN FFT, cuDNN FFT_TILING" in html and "</b>: runs on the cuda engine only" in html
    at.number_input(key="K").set_value(4.0).run()
    assert f"stale: measured at {SMALL}" in texts(at)


def test_large_shape_links_to_a_small_one_on_cpu():
    to = next(q for label, q in links(open_at(engine="cpu")).items() if label.startswith("a shape for this processor"))
    assert address.shape_of(address.FIELDS.read(to)[0]) == address.small(address.DEFAULT)


def test_map_is_measured_cell_by_cell(monkeypatch):
    monkeypatch.setitem(map.SPANS, "cpu", {"CK": (1, 2), "H": (6, 8), "N": (1, 2)})
    monkeypatch.setattr(map, "SECONDS", 0.01)
    at = open_at(SMALL, view="map", engine="cpu")
    assert at.button(key="measure_map").label == "Measure 4 cells here"
    finish(at, "measure_map", "map")
    series = at.session_state["map"]
    assert series.tried == 4 and not series.failed
    html = texts(at)
    measured = html[html.index("kt-badge-measured") :]
    assert measured.index("Fastest in 4 cells") > 0 and measured.count('class="kt-cell') >= 4
    for shape in series.settings.shapes():
        rows = [row for row in series.rows if row["shape"] == shape.params()]
        assert [row["rung"] for row in rows] == [r.name for r in availability.supported_rungs(LADDER, "cpu", shape)]
    at.session_state["across"] = "N"
    at.run()
    assert not at.exception


# -- networks --------------------------------------------------------------------------------------
def test_network_totals_sum_recordings(recorded):
    at = open_at(view="networks", network="vgg16")
    at.run()  # without a browser the URL reaches a control one rerun later
    html = texts(at)
    assert "13 convolutions of 9 shapes, batch 32" in html and "arXiv 1409.1556" in html
    assert "best for each layer" in html and "13 ms" in html  # the first rung takes 1 ms at each
    assert html.count("cannot run 9 of 9") == 1  # cuDNN DIRECT, refused
    assert html.count("not recorded 9 of 9") == 1  # cuDNN GEMM
    at = open_at(view="networks")
    assert "shapes have no recording" in texts(at) and "version 1" in texts(at)


# -- bias, ReLU and groups ---------------------------------------------------------------------------
def test_bias_relu_and_only_valid_groups_are_offered():
    at = open_at(C="12", K="18")
    groups = next(pills for pills in at.button_group if pills.key == "groups")
    assert list(groups.options) == ["1", "2", "3", "6"]
    groups.set_value(3)
    next(pills for pills in at.button_group if pills.key == "relu").set_value(1)
    at.run()
    html = texts(at)
    assert "<b>3</b> groups" in html and "ReLU" in html and "kt-note" not in html
