"""The fusion lesson without a browser: its address, the chain that is built by links, its parts, Run."""

from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import records
from kernels.fusion.presets import FUSION_PRESETS
from kernels.fusion.shape import KINDS, MOST_BLOCKS, OPTIONS, ChainShape
from kernels.ladders import LADDERS
from pages import _cards
from pages.fusion import address, controls
from pages.fusion.address import ADDRESS, DEFAULT, MOST, MOST_CHAIN, rule
from pages.fusion.controls import CHIPS
from tests.helpers.opened import finish, links, open_page, stages, texts
from tests.helpers.rows_of import a_full_row
from tests.helpers.shapes import chain_shapes
from visuals.charts import roofline

open_at = partial(open_page, "fusion/page.py")
ANYTHING = st.one_of(
    st.text(max_size=60), st.text("convbiasrelu:=KR0123456789 -+.<>&\n\0", max_size=80), st.integers(), st.floats(), st.none(),
    st.sampled_from(["<script>alert(1)</script>", "conv:K=9999999999:R=3", "relu " * 500, "conv", "maxpool:900", "bn:eps=nan", "conv:K=2:R=3:K=2"]),
)  # fmt: skip


def chain(s: ChainShape, *words: str) -> ChainShape:
    return s.with_(chain=" ".join(words))


# -- the address ---------------------------------------------------------------------------------------------
@settings(max_examples=60, deadline=None)
@given(chain_shapes(most=14, most_blocks=8), st.sampled_from(list(ADDRESS.rungs)))
def test_what_is_written_reads_back(s, rung):
    first, _ = ADDRESS.read({"rung": rung})
    one = type(first)(first.rung, first.tiles, s)
    assert ADDRESS.read(ADDRESS.write(one)) == (one, [])


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from([*MOST, "chain", "rung", "BLOCK"]), ANYTHING))
def test_hostile_values_give_a_legal_state_and_say_why(raw):
    one, notes = ADDRESS.read(raw)
    assert rule(lambda: one.shape) == "" and one.rung in ADDRESS.rungs.values()
    assert all(len(note) < 400 and note.isprintable() for note in notes)


@pytest.mark.parametrize(("raw", "says"), [
    ({"chain": "conv:K=2:R=3 softmax"}, "chain: block 2 must be one of bias, bn, relu, add, conv, maxpool, avgpool, gap, got 'softmax': chain=conv:K=2:R=3 bias bn relu is used"),
    ({"chain": "conv:K=2"}, "chain: block 1 (conv) needs R: chain=conv:K=2:R=3 bias bn relu is used"),
    ({"chain": "relu " * 9}, f"chain: a chain has 1 to {MOST_BLOCKS} blocks, got 9: chain=conv:K=2:R=3 bias bn relu is used"),
    ({"chain": "x" * 500}, f"chain may have at most {MOST_CHAIN} characters, got 500: chain=conv:K=2:R=3 bias bn relu is used"),
    ({"chain": "relu maxpool:9"}, "block 2 (maxpool): its window must fit the padded map, R <= H+2*pad; there H is 4, and 9 > 4: chain=conv:K=2:R=3 bias bn relu is used"),
    ({"N": "256", "C": "4096", "H": "64", "W": "64"}, "block 1 (conv): maps may have 134,217,728 values on this page: N=1 is used"),
    ({"chain": "conv:K=8192:R=17", "H": "64"}, "block 1 (conv): R may be 16 at most on this page: chain=conv:K=2:R=3 bias bn relu is used"),
    ({"H": "0"}, "H must lie in 1 .. 1024 on this page, got “0”: H=4 is used"),
])  # fmt: skip
def test_notes_name_the_rule_and_what_is_used(raw, says):
    assert ADDRESS.read(raw)[1] == [says]


def test_a_hostile_chain_is_text_on_the_page():
    at = open_at(chain="<script>alert(1)</script> relu")
    shown = texts(at)
    assert "kt-note" in shown and "&lt;script&gt;" in shown and "<script>" not in shown
    assert stages(at) == [address.card({}).key]


# -- building a chain ----------------------------------------------------------------------------------------
@settings(max_examples=40, deadline=None)
@given(chain_shapes(most=10, most_blocks=8))
def test_every_control_leads_to_a_legal_chain_or_names_a_rule(s):
    turns = [address.without(s, at) for at in range(len(s.blocks))] if len(s.blocks) > 1 else []
    turns += [address.moved(s, at, at + 1) for at in range(len(s.blocks) - 1)]
    if len(s.blocks) < MOST_BLOCKS:
        found = address.appended(s)
        assert list(found) == list(KINDS)
        assert all(t.shape is None or t.shape.blocks[-1].kind == kind for kind, t in found.items())
        turns += found.values()
    for turn in turns:
        assert bool(turn.rule) == (turn.shape is None)
        assert turn.shape is None or rule(lambda turn=turn: turn.shape) == ""


@settings(max_examples=40, deadline=None)
@given(chain_shapes(most=10, most_blocks=5))
def test_fields_reach_to_the_first_value_that_breaks_a_rule_and_no_further(s):
    for name, bound in address.bounds(s).items():
        _edges(bound, lambda v, name=name: s.with_(**{name: v}))
    for at, block in enumerate(s.blocks):
        found = address.option_bounds(s, at)
        assert set(found) == set(OPTIONS[block.kind]) - {"eps"}
        for name, bound in found.items():
            _edges(bound, lambda v, at=at, name=name: address.optioned(s, at, name, v))


def _edges(bound, make):
    assert rule(lambda: make(bound.low)) == rule(lambda: make(bound.high)) == ""
    if bound.why_high:
        assert rule(lambda: make(bound.high + 1)) == bound.why_high
    if bound.why_low:
        assert rule(lambda: make(bound.low - 1)) == bound.why_low


def test_turning_a_window_keeps_what_goes_with_it():
    same = address.optioned(DEFAULT, 0, "R", 1)
    assert same.chain.startswith("conv:K=2:R=1 ") and same.y_shape == DEFAULT.y_shape
    pool = chain(DEFAULT, "maxpool:2")
    assert address.optioned(pool, 0, "R", 4).chain == "maxpool:4"  # windows side by side stay so
    padded = chain(DEFAULT, "avgpool:4:stride=1:pad=2")
    assert address.optioned(padded, 0, "R", 2).chain == "avgpool:2:stride=1:pad=1"


def test_blocks_are_appended_removed_and_moved_by_links():
    at = open_at()
    found = links(at)
    there, notes = ADDRESS.read(found[controls.NAMES["gap"]])
    assert there.shape == chain(DEFAULT, DEFAULT.chain, "gap") and not notes
    # Of links with the same words the last is the last block's: relu before bn.
    moved, _ = ADDRESS.read(found["← one earlier"])
    assert moved.shape == chain(DEFAULT, "conv:K=2:R=3", "bias", "relu", "bn")
    removed, _ = ADDRESS.read(found["× remove"])
    assert removed.shape == chain(DEFAULT, "conv:K=2:R=3", "bias", "bn")
    at = open_at(**found[controls.NAMES["gap"]])
    assert stages(at) == [address.card({"chain": f"{DEFAULT.chain} gap"}).key]


def test_what_a_rule_forbids_is_named_where_it_would_stand():
    at = open_at(chain="gap")
    shown = texts(at)
    assert (
        "maxpool, the largest of each window: not here. block 2 (maxpool): its window must fit the padded map"
        in shown
    )
    assert controls.NAMES["maxpool"] not in links(at) and "It stays: a chain has 1 to 8 blocks." in shown
    full = open_at(chain=" ".join(["relu"] * MOST_BLOCKS))
    assert not set(controls.NAMES.values()) & set(links(full)) and "A chain has 1 to 8 blocks." in texts(full)


@pytest.mark.parametrize("more", [{"N": "3"}, {"N": "2", "H": "9", "engine": "cpu", "BLOCK": "64"}])
def test_an_option_leaves_the_fields_that_are_bound_to_other_controls(more):
    at = open_at(**more)
    (field,) = [f for f in at.number_input if f.key.startswith("option 0 K ")]
    field.set_value(3.0).run()
    assert not at.exception
    assert dict(at.query_params)["chain"] == "conv:K=3:R=3 bias bn relu"
    assert stages(at) == [address.card(more | {"chain": "conv:K=3:R=3 bias bn relu"}).key]


def test_an_option_of_a_block_is_a_bounded_field_that_sets_the_address():
    at = open_at()
    (field,) = [f for f in at.number_input if f.key.startswith("option 0 K ")]
    assert (field.value, field.min) == (2, 1) and field.max == address.option_bounds(DEFAULT, 0)["K"].high
    field.set_value(5).run()
    assert not at.exception and dict(at.query_params)["chain"] == "conv:K=5:R=3 bias bn relu"
    assert "output <b>1×5×4×4</b>" in texts(at)
    (eps,) = [f for f in at.number_input if f.key.startswith("option 2 eps ")]
    eps.set_value(0.5).run()
    assert dict(at.query_params)["chain"] == "conv:K=5:R=3 bias bn:eps=0.5 relu"


# -- the page ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("key", ["fusion-toy-pool", "fusion-ragged", "fusion-eight", "resnet50-stem-n32"])
def test_a_preset_shows_every_part(key):
    shape = FUSION_PRESETS[key].shape
    first, _ = ADDRESS.read({})
    at = open_at(**ADDRESS.at_shape(first, shape))
    shown = texts(at)
    assert "kt-note" not in shown
    for part in ("Time", "Memory", "Roofline", "Why", "Launch by launch", "What fusing saves, and when it does not pay", "Kernel"):  # fmt: skip
        assert f'<h2 class="kt-card">{part}</h2>' in shown, part
    assert at.code and at.button(key="run").label == "Run here"
    (scene,) = stages(at)
    assert scene.startswith("fusion/fused ") and f" of {shape} " in scene


def test_every_chip_is_a_preset_and_leads_to_it_whatever_is_watched():
    for rung in ("folded", "unfused"):
        found = links(open_at(rung=rung))
        for key, label in CHIPS.items():
            there, notes = ADDRESS.read(found.get(label) or found[f"**{label}**"])
            assert there.shape == FUSION_PRESETS[key].shape and not notes and not there.broken


def test_the_kernels_are_there_written_and_by_hand():
    at = open_at(chain="bn relu maxpool:2", rung="unfused")
    names = [tab.label for tab in at.tabs]
    assert names == ["03_bn.cu", "04_relu.cu", "06_maxpool.cu", "fused_bn_relu_maxpool.cu", "fusion.cuh"]
    assert any("bn_relu_maxpool(" in code.value and "u = positive(u);" in code.value for code in at.code)
    assert "registers a thread" in texts(at)


def test_the_kernel_written_for_the_chain_stands_in_front():
    def front(**params):
        return address.front(ADDRESS.read(params)[0])

    assert front() == "fusion/fused_conv_bias_bn_relu.cu" and front(rung="unfused") == "fusion/01_conv.cu"
    assert front(rung="folded") == "fusion/fused_conv_bias_relu.cu"
    assert front(chain="gap") == "fusion/08_gap.cu"


def test_a_chain_with_nothing_to_fold_names_the_rule_and_goes_on():
    at = open_at(chain="bn relu", rung="folded")
    shown = texts(at)
    assert "there is no such pair" in shown and not stages(at)
    assert '<h2 class="kt-card">Launch by launch</h2>' in shown and "fused" in links(at)


@pytest.mark.parametrize("view", ["watch", "run", "kernel"])
def test_each_view_is_its_part_alone(view):
    at = open_at(view=view)
    shown = texts(at)
    assert "kt-title" not in shown and bool(stages(at)) == (view == "watch")
    assert ("Launch by launch" in shown) == (view == "run") and bool(at.code) == (view == "kernel")


def test_a_run_stands_as_bars_a_launch_and_over_the_floor():
    at = open_at(engine="cpu")
    finish(at, "run", "job")
    shown = texts(at)
    assert "A bar a launch" in shown and "a call of nothing" in shown and "once for all images" in shown
    assert "times as long" in shown and "a copy of the least bytes" in shown
    charts = [c.proto.id for c in at.get("plotly_chart")]
    assert any("chart_fusion_launches" in c for c in charts)


def test_recordings_of_a_gpu_stand_beside_each_other_with_the_library(monkeypatch):
    shape, found = FUSION_PRESETS["resnet50-res2-3x3-bn-relu-n32"].shape, []
    times = {"unfused": {"conv": 0.5, "bn": 0.02, "relu": 0.02}, "fused": {}, "folded": {"fold": 0.003, "conv_bias_relu": 0.4}, "torch": {}}  # fmt: skip
    for n, (name, parts) in enumerate(times.items()):
        rung = LADDERS["fusion"].rung(f"fusion/{name}")
        ms = sum(parts.values()) or 0.45
        found.append(a_full_row(
            n, samples=[ms, ms * 1.01, ms * 1.02], rung=rung.name, shape=shape.params(), tiles=rung.default_tiles, engine="cuda",
            device="a GPU", parts_ms=parts, flops=shape.flops, predicted_bytes=shape.bytes,
        ))  # fmt: skip
    monkeypatch.setattr(records, "recordings", lambda: found)
    for cache in (records._by_setting, records._by_kernel, records._nearest, roofline.recorded_roofs):
        cache.cache_clear()
    try:
        at = open_at(**ADDRESS.at_shape(ADDRESS.read({})[0], shape))
    finally:
        monkeypatch.undo()
        for cache in (records._by_setting, records._by_kernel, records._nearest, roofline.recorded_roofs):
            cache.cache_clear()
    shown = texts(at)
    assert (
        "recorded a GPU, cold, n = 3, 2026-01-02" in shown
        and "A bar a launch" in shown
        and "a launch of nothing" in shown
    )
    assert "of the speed of PyTorch, eager" in shown and "times as long" in shown


def test_the_card_of_the_first_screen_is_a_step_of_the_lesson():
    card = next(c for c in _cards.CARDS if c.page == "fusion/page.py")
    scene = card.shown()
    assert card.step < scene.steps and "the largest of 4 values" in scene.caption(card.step)
