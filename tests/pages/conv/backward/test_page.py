"""Tests of the lesson on convolution backward without a browser: gradients, presets, kernels, bad input, links."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels import records
from kernels.conv.backward.presets import BACKWARD_PADDING
from kernels.conv.backward.transpose_shape import TransposeShape
from kernels.conv.shape import ConvShape
from kernels.ladders import find
from kernels.model.shape import ShapeError
from kernels.runner import run
from pages import _teasers
from pages.conv.backward import address, chapters, controls
from pages.conv.backward.address import ADDRESSES, GRADIENTS
from tests.helpers.page_runner import finish, heads, links, open_page, stages, strip, texts
from tests.helpers.shapes import conv_shapes, transpose_shapes

open_at = partial(open_page, "conv/backward/page.py")
RUNGS = [
    pytest.param(gradient, name, id=f"{gradient}-{name}")
    for gradient, of in ADDRESSES.items()
    for name, rung in of.rungs.items()
    if not rung.library and not rung.no_scene
]
WITHOUT_STEPS = [
    pytest.param(gradient, name, id=f"{gradient}-{name}")
    for gradient, of in ADDRESSES.items()
    for name, rung in of.rungs.items()
    if rung.library or rung.no_scene
]
ANYTHING = st.one_of(
    st.text("0123456789.-+eE_<>'&x\0", max_size=20), st.integers(-2, 40), st.sampled_from(["nan", "inf", "9" * 400])
)


def at_preset(gradient: str, key: str) -> dict[str, str]:
    of = ADDRESSES[gradient]
    return {"gradient": gradient} | of.at_shape(of.read({})[0], address.presets(gradient)[key].shape)


# -- the page ------------------------------------------------------------------------------------
@pytest.mark.parametrize("gradient", GRADIENTS)
def test_a_preset_of_a_gradient_opens_every_part(gradient):
    presets = address.presets(gradient)
    assert not [key for key in presets if ADDRESSES[gradient].read(at_preset(gradient, key))[1]]
    whole = [preset.shape == address.shown(preset.shape, GRADIENTS[gradient]) for preset in presets.values()]
    for key in (list(presets)[whole.index(True)], list(presets)[whole.index(False)]):
        at = open_at(**at_preset(gradient, key))
        html, shape = texts(at), presets[key].shape
        for part in ("Time", "Memory", "Roofline", "Why", "Kernel"):
            assert f'<h2 class="kt-card">{part}' in html, part
        assert [key for key in stages(at) if key.startswith(f"{GRADIENTS[gradient]}/direct ")]
        assert ("The stage shows a smaller convolution" in html) == (address.shown(shape, GRADIENTS[gradient]) != shape)


@pytest.mark.parametrize(("gradient", "rung"), RUNGS)
def test_a_kernel_is_on_the_stage_and_in_front_of_the_listing(gradient, rung):
    at = open_at(gradient=gradient, rung=rung, **({"u": 1, "v": 1} if rung == "winograd" else {}))
    assert stages(at)[0].startswith(f"{GRADIENTS[gradient]}/{rung} ")
    assert "kt-note" not in texts(at)
    assert any(tab.label.endswith(".cu") for tab in at.tabs)


@pytest.mark.parametrize(("gradient", "rung"), WITHOUT_STEPS)
def test_a_rung_without_steps_says_why(gradient, rung):
    at = open_at(gradient=gradient, rung=rung)
    assert stages(at) == [] and len(heads(at)) == 1
    assert "kt-note" in texts(at) or "cannot run with these settings" in texts(at)


@pytest.mark.parametrize("gradient", GRADIENTS)
def test_the_stage_alone(gradient):
    at = open_at(gradient=gradient, view="watch")
    assert len(heads(at)) == 1 and "<h1" not in texts(at)
    assert [size["key"] for size in strip(at)["sizes"]] == ["real", "stage"]


@pytest.mark.parametrize("n", range(1, len(chapters.CHAPTERS) + 1))
def test_a_chapter_has_a_scene_and_no_note_without_recordings(n):
    at = open_at(view="story", chapter=n)
    chapter = chapters.CHAPTERS[n - 1]
    head = heads(at)[0]
    assert head["chapter"]["title"] == chapter.title
    assert chapter.step < head["meta"]["steps"]
    assert not chapter.loop or chapter.loop[1] < head["meta"]["steps"]
    assert len(head["chapter"]["text"]) == len(chapter.text)
    assert "kt-note" not in texts(at)


def test_run_measures_on_this_processor():
    at = open_at(gradient="filters", engine="cpu", u=1, v=1)  # every kernel can run without a stride
    finish(at, "run", "job")
    rows = at.session_state["ran"].rows
    own = {rung.name for rung in address.ladder("filters").rungs if "cpu" in rung.engines and rung.cpu_title}
    assert own <= set(rows) and all(row["median_ms"] > 0 for row in rows.values())
    assert "kt-badge-measured" in texts(at)


# -- bad input -----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"gradient": "weights"}, "gradient must be one of input, filters, transposed"),
        ({"gradient": "<script>alert(1)</script>"}, "gradient must be one of"),
        ({"H": "abc"}, "H must be a whole number"),
        ({"H": "1", "R": "9", "pad_h": "0"}, "The filter must fit the padded input"),
        ({"groups": "2"}, "C must be a multiple of groups, got 1 % 2"),
        ({"gradient": "transposed", "output_pad_h": "2"}, "output_pad_h must be below the stride u"),
        ({"gradient": "transposed", "H": "1", "pad_h": "5"}, "the padding must leave an output"),
        ({"extra_h": "-2"}, "extra_h &gt;= -pad_h, but -2 &lt; -1"),
        ({"gradient": "transposed", "extra_w": "-2"}, "extra_w &gt;= -pad_w, but -2 &lt; -1"),
        ({"rung": "implicit-gemm", "BM": "7"}, "BM must be one of"),
    ],
)
def test_an_invalid_value_is_named(params, expected):
    at = open_at(view="watch", **params)
    assert expected in texts(at) and "<script" not in texts(at)
    assert len(stages(at)) == 1


def test_too_many_phases_have_no_picture_and_the_page_says_why():
    at = open_at(view="watch", rung="implicit-gemm", u=4, v=4)
    assert stages(at) == [] and "makes 16 phases. The stage shows at most 9" in texts(at)


@pytest.mark.parametrize("gradient", ["input", "filters"])
def test_winograd_names_the_stride_that_it_cannot_run(gradient):
    at = open_at(gradient=gradient, rung="winograd")
    assert stages(at) == [] and "cannot run with these settings" in texts(at)


def test_groups_are_refused_by_a_kernel_without_them():
    at = open_at(rung="gemm-gather", C=2, groups=2)
    assert "cannot run with these settings" in texts(at) and stages(at) == []


@given(
    st.sampled_from(list(GRADIENTS)),
    st.dictionaries(
        st.sampled_from(
            ["C", "K", "H", "R", "u", "pad_h", "extra_h", "dilation_h", "output_pad_h", "groups", "rung", "BM"]
        ),
        ANYTHING,
    ),
)
def test_any_values_give_a_valid_state(gradient, raw):
    selection, _ = ADDRESSES[gradient].read(raw)
    assert selection.shape.P >= 1 and selection.rung in ADDRESSES[gradient].rungs.values()


# -- shapes --------------------------------------------------------------------------------------
def test_the_file_in_front_is_one_of_the_rung_s():
    for name, file in address.FILES.items():
        rung = find(name)
        shape = ADDRESSES[next(g for g, of in GRADIENTS.items() if name.startswith(of))].read({})[0].shape
        assert file in [step.source for step in rung.build(shape, rung.default_tiles).steps]


@given(st.one_of(conv_shapes(max_extent=5), transpose_shapes(max_extent=4)))
def test_each_end_of_a_field_s_range_is_valid_and_the_next_value_is_not(s):
    for name, bound in address.bounds(s).items():
        if name == "groups":
            continue
        for value in (bound.low, bound.high):
            s.with_(**{name: value})
        if isinstance(s, TransposeShape) and (bound.low > 1 or name.startswith("extra")):
            with pytest.raises(ShapeError):
                s.with_(**{name: bound.low - 1})


@given(st.one_of(conv_shapes(max_extent=4), transpose_shapes(max_extent=3)))
def test_the_part_on_the_stage_is_of_the_same_kind(s):
    part = address.shown(s)
    assert (part.R, part.S, part.u, part.v) == (s.R, s.S, s.u, s.v) and part.groups == 1
    assert part.macs <= s.macs


def test_another_gradient_keeps_the_convolution():
    at = open_at(N=2, H=7, u=1)
    assert links(at)["filters"] == {"gradient": "filters", "N": "2", "H": "7", "u": "1"}
    transposed, notes = ADDRESSES["transposed"].read(links(at)["transposed"])
    assert not notes
    assert transposed.shape.conv == ConvShape(2, 1, 7, 6, 2, 3, 3, stride=(1, 2), pad=1)
    at = open_at(**links(at)["transposed"])
    back = ADDRESSES["input"].read(links(at)["input"])[0]
    assert back.shape == transposed.shape.conv and "gradient" not in links(at)["input"]


@pytest.mark.parametrize("gradient", list(GRADIENTS))
def test_presets_of_padding_open_with_a_stage(gradient):
    for preset in address.presets(gradient).values():
        if not (preset.shape.extra_h or preset.shape.extra_w):
            continue
        selection, notes = ADDRESSES[gradient].read(preset.shape.params())
        scene, _ = address.scene(selection)
        assert selection.shape == preset.shape and not notes and scene


def test_a_causal_convolution_stays_causal_at_another_gradient():
    causal = BACKWARD_PADDING["backward-signal-causal"].shape
    transposed = (
        ADDRESSES["transposed"]
        .read(address.at_gradient(ADDRESSES["input"].read(causal.params())[0], "transposed"))[0]
        .shape
    )
    assert transposed.conv == causal


def test_shapes_have_names():
    assert controls.name(address.DEFAULT) == "Toy, stride 2"
    assert controls.name(address.TRANSPOSE_DEFAULT) == "1 image, 1 channel, 3×3; 2 maps 5×5"


# -- truth ---------------------------------------------------------------------------------------
def test_the_card_ends_with_what_the_kernel_stored():
    teaser = _teasers.BY_PAGE["conv/backward/page.py"]
    scene = teaser.build_scene()
    given_inputs = address.inputs("conv-dinput/direct", address.DEFAULT)
    stored = run("conv-dinput/direct", address.DEFAULT, given_inputs, engine="emulator", measure=False).output
    np.testing.assert_array_equal(scene.cells("dx"), stored[0].ravel())
    assert teaser.step < scene.steps


def test_the_chapters_count_what_the_stage_counts():
    counts = chapters._counts(address.DEFAULT)
    scene = address.scene_at({"rung": "gemm-atomics"})
    assert counts["additions"] == f"{int(scene.readings[0].values[-1])}"
    assert max(scene.annotations[0].captions.args[:, 0]) == int(counts["most"])
    fed = ADDRESSES["input"].read({"u": "1", "v": "1"})[0].shape
    assert "Outputs of each filter that it fed: " + chapters._counts(fed)["most"] in address.scene_at(
        {"u": "1", "v": "1"}
    ).caption(15)


def test_strip_of_a_chapter_without_a_time_on_the_stage_shows_the_real_size(monkeypatch):
    """With a recording the strip shows the stage's size. The same chapter without it shows the real size."""
    stage, recorded = ADDRESSES["input"].read(chapters.DENSE)[0].shape, records.recorded

    def opened() -> tuple[bool, bool, str]:
        shown = strip(open_page("conv/backward/page.py", view="story"))
        timed = {size["key"]: size["time"]["value"] != "–" for size in shown["sizes"]}
        return timed["stage"], timed["real"], shown["selected"]

    assert opened() == (True, True, "stage")
    monkeypatch.setattr(
        records, "recorded", lambda rung, shape, *args: None if shape == stage else recorded(rung, shape, *args)
    )
    assert opened() == (False, True, "real")
