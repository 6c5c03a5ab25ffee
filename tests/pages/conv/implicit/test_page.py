"""Tests of the lesson on implicit GEMM without a browser: URL, tile sizes, broken rules."""

from functools import partial
from html import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.conv.presets import CONV_PRESETS
from kernels.ladders import LADDERS, find
from pages.conv.implicit import address, half
from pages.conv.implicit.address import DEFAULT, FIELDS, RUNGS, TILES
from pages.parts import tiles as tile_sizes
from tests.helpers.page_runner import finish, heads, links, open_page, stages, texts

open_at = partial(open_page, "conv/implicit/page.py")
ANYTHING = st.one_of(
    st.text("0123456789.-+eE_<>'&x\0", max_size=20), st.integers(), st.sampled_from(["nan", "inf", "9" * 400, *RUNGS])
)


def at_preset(key: str) -> dict[str, str]:
    return FIELDS.write(DEFAULT.params() | CONV_PRESETS[key].shape.params())


@given(
    st.sampled_from(list(RUNGS)),
    st.fixed_dictionaries({n: st.sampled_from(v) for n, v in RUNGS["implicit-gemm"].tiles.items()}),
)
def test_written_parameters_read_back_equal(rung, tiles):
    watched = address.Watched(RUNGS[rung], tiles)
    assert address.watched_in(TILES.read(TILES.write(watched.params()))[0]) == watched


@given(st.dictionaries(st.sampled_from(["H", "R", "pad_h", "rung", "BM", "STAGES"]), ANYTHING))
def test_invalid_values_give_a_valid_state(raw):
    query, watched = address.read(raw)
    assert query.shape.P >= 1 and watched.rung in RUNGS.values()
    assert all(watched.tiles[name] in choices for name, choices in watched.rung.tiles.items())


@pytest.mark.parametrize("key", ["one-tile", "toy", "lenet-conv1", "resnet50-res3-3x3-n1", "resnet50-conv1-n32"])
def test_a_preset_shows_every_part(key):
    at = open_at(**at_preset(key))
    html = texts(at)
    assert ("The stage shows a smaller convolution" in html) == (key not in ("one-tile", "toy"))
    for part in ("Time", "Memory", "Roofline", "Why", "Kernel"):
        assert f'<h2 class="kt-card">{part}' in html, part
    assert stages(at)[0].startswith("conv/implicit-gemm N") and "BM=64,BN=64,BK=16,TM=4,TN=8,STAGES=3" in stages(at)[0]
    assert "A stored data matrix would take" in html
    assert {"05_implicit_gemm_plain.cu", "06_implicit_gemm.cu", "implicit.cuh"} <= {tab.label for tab in at.tabs}


def test_default_shape_fills_its_tile():
    shape, tiles = DEFAULT.shape, RUNGS["implicit-gemm"].default_tiles
    assert (tiles["BM"], tiles["BN"]) == (shape.K, shape.N * shape.PQ)


@pytest.mark.parametrize("rung", RUNGS)
def test_stage_shows_the_selected_rung_and_tiles(rung):
    at = open_at(rung=rung, BM=32, BN=32, TM=4, TN=4, STAGES=2)
    assert stages(at)[0].startswith(f"conv/{rung} ") and "BM=32,BN=32,BK=16,TM=4,TN=4,STAGES=2" in stages(at)[0]


def test_illegal_tiles_are_named_with_a_link_to_the_nearest_legal_ones():
    at = open_at(BM=32, TM=8)
    html = texts(at)
    assert "Implicit GEMM cannot run with these settings: BM % 64 == 0, got 32." in html and not stages(at)
    assert at.selectbox(key="BM").value == 32
    (label,) = [label for label in links(at) if label.startswith("nearest sizes that run")]
    query, watched = address.read(links(at)[label])
    assert query == DEFAULT and not tile_sizes.broken(watched.rung, query.shape, watched.tiles)


def test_watch_view_names_the_broken_rule():
    at = open_at(view="watch", BM=32, TM=8)
    assert not stages(at) and "BM % 64 == 0, got 32" in texts(at)


def test_invalid_parameters_are_named_and_escaped():
    at = open_at(H="abc", rung="<script>alert(1)</script>", BM="17", K="5")
    html = texts(at)
    assert "H must be a whole number" in html and "BM must be one of 32, 64, 128" in html and "<script" not in html
    assert at.number_input(key="K").value == 5 and at.number_input(key="H").value == DEFAULT.shape.H


def test_run_uses_the_tiles_of_the_page():
    tiles = {"BM": 32, "BN": 32, "BK": 16, "TM": 4, "TN": 4, "STAGES": 2}
    at = open_at(engine="cpu", C=1, H=5, W=5, K=2, **tiles)
    finish(at, "run", "job")
    rows = at.session_state["ran"].rows
    assert rows["conv/implicit-gemm"]["tiles"] == tiles
    other = rows["conv/im2col-cublas"]["tiles"]
    assert other == find("conv/im2col-cublas").default_tiles and "kt-badge-measured" in texts(at)
    assert "conv/implicit-gemm-plain" not in rows and "NumPy divides one way only" in texts(at)


def test_the_map_of_a_launch():
    assert stages(open_at(order="map", N=32, C=128, H=28, W=28, K=128))[0].startswith("map conv/implicit-gemm")


def test_the_timeline_is_an_order_of_play():
    at = open_at(order="timeline")
    assert stages(at)[0].endswith("timeline")
    assert [order["name"] for order in heads(at)[0]["orders"]] == ["explaining", "timeline", "map"]
    assert not stages(open_at(order="no such"))[0].endswith("timeline")


def test_the_card_on_fp16_without_recordings_says_so():
    html = texts(open_at())
    assert '<h2 class="kt-card">Implicit GEMM in FP16' in html
    assert "No recording exists of these kernels." in html or "times as fast as cuDNN" in html
    for rung in LADDERS["conv-fp16"].rungs:
        assert (escape(rung.idea) in html) == (not rung.library)


def test_the_card_on_fp16_shows_every_kernel():
    assert list(half.files()) == [
        "40_half_implicit_gemm.cu",
        "41_half_boxes.cu",
        "42_half_im2col.cu",
        "43_half_halo.cu",
        "44_half_halo_split.cu",
    ]
