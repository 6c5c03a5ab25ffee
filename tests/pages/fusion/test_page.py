"""Tests of the fusion lesson without a browser: URL, editing the chain by links, parts, Run."""

import re
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.fusion.presets import FUSION_PRESETS
from kernels.fusion.shape import KINDS, MAX_BLOCKS, OPTIONS, ChainShape
from kernels.ladders import LADDERS
from pages import _teasers
from pages.fusion import address, controls
from pages.fusion.address import ADDRESS, DEFAULT, MAX, MAX_CHAIN, rule
from pages.fusion.controls import CHIPS
from tests.helpers.chapters import WITH_STORY, open_chapter, story
from tests.helpers.offenders import every
from tests.helpers.page_runner import finish, links, open_page, stages, strip, texts
from tests.helpers.recordings import recordings
from tests.helpers.rows_of import a_full_row
from tests.helpers.shapes import chain_shapes
from visuals import units
from visuals.fusion import notes as fusion_notes

open_at = partial(open_page, "fusion/page.py")
ANYTHING = st.one_of(
    st.text(max_size=60),
    st.text("convbiasrelu:=KR0123456789 -+.<>&\n\0", max_size=80),
    st.integers(),
    st.floats(),
    st.none(),
    st.sampled_from(
        [
            "<script>alert(1)</script>",
            "conv:K=9999999999:R=3",
            "relu " * 500,
            "conv",
            "maxpool:900",
            "bn:eps=nan",
            "conv:K=2:R=3:K=2",
        ]
    ),
)


def chain(s: ChainShape, *blocks: str) -> ChainShape:
    return s.with_(chain=" ".join(blocks))


# -- the URL -------------------------------------------------------------------------------------------------
@settings(max_examples=60)
@given(chain_shapes(max_extent=14, max_blocks=8), st.sampled_from(list(ADDRESS.rungs)))
def test_written_parameters_read_back_equal(s, rung):
    first, _ = ADDRESS.read({"rung": rung})
    query = type(first)(first.rung, first.tiles, s)
    assert ADDRESS.read(ADDRESS.write(query)) == (query, [])


@settings(max_examples=200)
@given(st.dictionaries(st.sampled_from([*MAX, "chain", "rung", "BLOCK"]), ANYTHING))
def test_invalid_values_give_a_legal_state_and_notes(raw):
    query, notes = ADDRESS.read(raw)
    assert rule(lambda: query.shape) == "" and query.rung in ADDRESS.rungs.values()
    assert all(len(note) < 400 and note.isprintable() for note in notes)


@every(("raw", "says"), [
    ({"chain": "conv:K=2:R=3 softmax"}, "chain: block 2 must be one of bias, bn, relu, add, conv, maxpool, avgpool, gap, got 'softmax': chain=conv:K=2:R=3 bias bn relu is used"),
    ({"chain": "conv:K=2"}, "chain: block 1 (conv) needs R: chain=conv:K=2:R=3 bias bn relu is used"),
    ({"chain": "relu " * 9}, f"chain: a chain has 1 to {MAX_BLOCKS} blocks, got 9: chain=conv:K=2:R=3 bias bn relu is used"),
    ({"chain": "x" * 500}, f"chain may have at most {MAX_CHAIN} characters, got 500: chain=conv:K=2:R=3 bias bn relu is used"),
    ({"chain": "relu maxpool:9"}, "block 2 (maxpool): its window must fit the padded map, R <= H+2*pad; H is 4, and 9 > 4: chain=conv:K=2:R=3 bias bn relu is used"),
    ({"N": "256", "C": "4096", "H": "64", "W": "64"}, "block 1 (conv): maps may have at most 134,217,728 values on this page: N=1 is used"),
    ({"chain": "conv:K=8192:R=17", "H": "64"}, "block 1 (conv): R may be at most 16 on this page: chain=conv:K=2:R=3 bias bn relu is used"),
    ({"H": "0"}, "H must be 1 to 1,024 on this page, got “0”: H=4 is used"),
])  # fmt: skip
def test_notes_name_rule_and_value_used(raw, says):
    assert ADDRESS.read(raw)[1] == [says]


def test_markup_in_a_chain_is_escaped():
    at = open_at(chain="<script>alert(1)</script> relu")
    html = texts(at)
    assert "kt-note" in html and "&lt;script&gt;" in html and "<script>" not in html
    assert stages(at) == [address.scene_at({}).key]


# -- editing a chain -----------------------------------------------------------------------------------------
@settings(max_examples=40)
@given(chain_shapes(max_extent=10, max_blocks=8))
def test_every_edit_gives_a_legal_chain_or_a_rule(s):
    edits = [address.without(s, at) for at in range(len(s.blocks))] if len(s.blocks) > 1 else []
    edits += [address.moved(s, at, at + 1) for at in range(len(s.blocks) - 1)]
    if len(s.blocks) < MAX_BLOCKS:
        found = address.appended(s)
        assert list(found) == list(KINDS)
        assert all(t.shape is None or t.shape.blocks[-1].kind == kind for kind, t in found.items())
        edits += found.values()
    for edit in edits:
        assert bool(edit.rule) == (edit.shape is None)
        assert edit.shape is None or rule(lambda edit=edit: edit.shape) == ""


@settings(max_examples=40)
@given(chain_shapes(max_extent=10, max_blocks=5))
def test_field_bounds_end_at_the_first_illegal_value(s):
    for name, bound in address.bounds(s).items():
        _edges(bound, lambda v, name=name: s.with_(**{name: v}))
    for at, block in enumerate(s.blocks):
        found = address.option_bounds(s, at)
        assert set(found) == set(OPTIONS[block.kind]) - {"eps"}
        for name, bound in found.items():
            _edges(bound, lambda v, at=at, name=name: address.with_option(s, at, name, v))


def _edges(bound, make):
    assert rule(lambda: make(bound.low)) == rule(lambda: make(bound.high)) == ""
    if bound.why_high:
        assert rule(lambda: make(bound.high + 1)).startswith(bound.why_high)
    if bound.why_low:
        assert rule(lambda: make(bound.low - 1)).startswith(bound.why_low)


def test_changing_a_window_adjusts_stride_and_padding():
    same = address.with_option(DEFAULT, 0, "R", 1)
    assert same.chain.startswith("conv:K=2:R=1 ") and same.y_shape == DEFAULT.y_shape
    pool = chain(DEFAULT, "maxpool:2")
    assert address.with_option(pool, 0, "R", 4).chain == "maxpool:4"  # adjacent windows stay adjacent
    padded = chain(DEFAULT, "avgpool:4:stride=1:pad=2")
    assert address.with_option(padded, 0, "R", 2).chain == "avgpool:2:stride=1:pad=1"


def test_blocks_are_appended_removed_and_moved_by_links():
    at = open_at()
    found = links(at)
    target, notes = ADDRESS.read(found[controls.NAMES["gap"]])
    assert target.shape == chain(DEFAULT, DEFAULT.chain, "gap") and not notes
    # Of links with the same label, the last belongs to the last block: relu moves before bn.
    moved, _ = ADDRESS.read(found["← move earlier"])
    assert moved.shape == chain(DEFAULT, "conv:K=2:R=3", "bias", "relu", "bn")
    removed, _ = ADDRESS.read(found["× remove"])
    assert removed.shape == chain(DEFAULT, "conv:K=2:R=3", "bias", "bn")
    at = open_at(**found[controls.NAMES["gap"]])
    assert stages(at) == [address.scene_at({"chain": f"{DEFAULT.chain} gap"}).key]


def test_forbidden_edit_names_its_rule():
    at = open_at(chain="gap")
    html = texts(at)
    assert (
        "maxpool, the largest value of each window: not possible here. block 2 (maxpool): its window must fit the padded map"
        in html
    )
    assert (
        controls.NAMES["maxpool"] not in links(at)
        and "The only block cannot be removed: a chain has 1 to 8 blocks." in html
    )
    full = open_at(chain=" ".join(["relu"] * MAX_BLOCKS))
    assert not set(controls.NAMES.values()) & set(links(full)) and "A chain has 1 to 8 blocks." in texts(full)


@pytest.mark.parametrize("more", [{"N": "3"}, {"N": "2", "H": "9", "engine": "cpu", "BLOCK": "64"}])
def test_option_keeps_the_parameters_of_other_controls(more):
    at = open_at(**more)
    (field,) = [f for f in at.number_input if f.key.startswith("option 0 K ")]
    field.set_value(3.0).run()
    assert not at.exception
    assert dict(at.query_params)["chain"] == "conv:K=3:R=3 bias bn relu"
    assert stages(at) == [address.scene_at(more | {"chain": "conv:K=3:R=3 bias bn relu"}).key]


def test_block_option_is_a_bounded_field_that_sets_the_url():
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
    html = texts(at)
    assert "kt-note" not in html
    for part in ("Time", "Memory", "Roofline", "Why", "Launch by launch", "What fusion saves", "Kernel"):
        assert f'<h2 class="kt-card">{part}' in html, part
    assert at.code and strip(at)["run"]["label"] == "Run here"
    (scene,) = stages(at)
    assert scene.startswith("fusion/fused ") and scene.endswith(f" of {shape}")


def test_every_chip_links_to_its_preset_for_any_rung():
    for rung in ("folded", "unfused"):
        found = links(open_at(rung=rung))
        for key, label in CHIPS.items():
            target, notes = ADDRESS.read(found.get(label) or found[f"**{label}**"])
            assert target.shape == FUSION_PRESETS[key].shape and not notes and not target.broken


def test_generated_and_handwritten_kernels_are_shown():
    names = ["03_bn.cu", "04_relu.cu", "06_maxpool.cu", "fused_bn_relu_maxpool.cu", "fusion.cuh"]
    for rung, part in (("unfused", "bn("), ("fused", "bn_relu_maxpool(")):
        at = open_at(chain="bn relu maxpool:2", rung=rung)
        assert [tab.label for tab in at.tabs] == names
        (code,) = at.code  # of the tab in front
        assert part in code.value
    assert "u = positive(u);" in code.value
    assert "registers per thread" in texts(at)


def test_generated_kernel_comes_first():
    def first_source(**params):
        return address.first_source(ADDRESS.read(params)[0])

    assert first_source() == "fusion/fused_conv_bias_bn_relu.cu" and first_source(rung="unfused") == "fusion/01_conv.cu"
    assert first_source(rung="folded") == "fusion/fused_conv_bias_relu.cu"
    assert first_source(chain="gap") == "fusion/08_gap.cu"


def test_chain_without_a_foldable_pair_names_the_rule():
    at = open_at(chain="bn relu", rung="folded")
    html = texts(at)
    assert "the chain has no batch norm that can be folded" in html and not stages(at)
    assert '<h2 class="kt-card">Launch by launch</h2>' in html and "fused" in links(at)


@pytest.mark.parametrize("view", ["watch", "run", "kernel"])
def test_each_view_shows_only_its_part(view):
    at = open_at(view=view)
    html = texts(at)
    assert "kt-title" not in html and bool(stages(at)) == (view == "watch")
    assert ("Launch by launch" in html) == (view == "run") and bool(at.code) == (view == "kernel")


def test_run_draws_launch_bars_and_the_copy_time():
    at = open_at(engine="cpu")
    finish(at, "run", "job")
    html = texts(at)
    assert "Each bar is one call" in html and "an empty call" in html and "once, before all images" in html
    assert "time / copy" in html and "copy of the minimum bytes" in html
    charts = [c.proto.id for c in at.get("plotly_chart")]
    assert any("chart_fusion_launches" in c for c in charts)


def test_the_table_of_launches_has_the_bytes_read_and_written():
    found = re.findall(
        r'<tr><th scope="row">\d [^<]*</th><td>[^<]*</td><td>([^<]*)</td><td>([^<]*)</td>', texts(open_at(size="stage"))
    )
    launches = [part for rung in fusion_notes.PLANS for part in fusion_notes.parts(rung, DEFAULT)]
    assert found == [(units.bytes_(part.reads), units.bytes_(part.writes)) for part in launches]
    assert any(part.reads != part.writes for part in launches)


def test_gpu_recordings_are_compared_with_the_library():
    shape, found = FUSION_PRESETS["resnet50-res2-3x3-bn-relu-n32"].shape, []
    times = {
        "unfused": {"conv": 0.5, "bn": 0.02, "relu": 0.02},
        "fused": {},
        "folded": {"fold": 0.003, "conv_bias_relu": 0.4},
        "torch": {},
    }
    for n, (name, parts) in enumerate(times.items()):
        rung = LADDERS["fusion"].rung(f"fusion/{name}")
        ms = sum(parts.values()) or 0.45
        found.append(
            a_full_row(
                n,
                samples=[ms, ms * 1.01, ms * 1.02],
                rung=rung.name,
                shape=shape.params(),
                tiles=rung.default_tiles,
                engine="cuda",
                device="a GPU",
                parts_ms=parts,
                flops=shape.flops,
                predicted_bytes=shape.bytes,
            )
        )
    with recordings(*found):
        at = open_at(**ADDRESS.at_shape(ADDRESS.read({})[0], shape))
    html = texts(at)
    assert (
        units.badge("recorded", "a GPU, cold, n = 3, 2026-01-02") in html
        and "Each bar is one launch" in html
        and "an empty launch" in html
    )
    assert "as fast as PyTorch, eager" in html and "time / copy" in html


def test_home_card_shows_a_step_of_the_lesson():
    teaser = next(c for c in _teasers.TEASERS if c.page == "fusion/page.py")
    scene = teaser.build_scene()
    assert teaser.step < scene.steps and "The largest of the 4 values" in scene.caption(teaser.step)


def test_the_map_of_the_launches():
    for rung in ("unfused", "fused", "folded"):
        assert stages(open_at(order="map", rung=rung))[0].startswith(f"map fusion/{rung}")


def chapter_and_rows(title):
    """Returns the texts of a chapter, and the rows of its kernels at the real size."""
    lesson = next(lesson for lesson in WITH_STORY if lesson.path == "fusion")
    n = next(n for n, chapter in enumerate(story(lesson).chapters) if chapter.title == title)
    _, panel, evidences = open_chapter(lesson, n)
    question = panel["question"] or {"reveal": ""}
    return " ".join([*panel["text"], question["reveal"]]), evidences["real"].rows


def test_the_time_of_a_folded_kernel_names_the_launch_that_is_in_it():
    text, rows = chapter_and_rows("Fold it away")
    folded, fused = rows["fusion/folded"], rows["fusion/fused"]
    assert set(folded["parts_ms"]) == {"fold", "conv_bias_relu"} and not fused["parts_ms"]
    for ms in (folded["parts_ms"]["fold"], folded["median_ms"], fused["median_ms"]):
        assert units.time_(ms) in text


def test_the_share_of_the_convolution_is_that_of_its_launch():
    text, rows = chapter_and_rows("On real maps, with a convolution")
    parts = rows["fusion/unfused"]["parts_ms"]
    assert len(parts) == 4 and parts["conv"] / sum(parts.values()) > 0.95
    assert units.share(parts["conv"] / sum(parts.values())) in text
