"""The Winograd lesson without a browser: every kernel and preset, shapes that no rule allows, the chooser, Run."""

import re

import numpy as np
import pytest

from kernels import records
from kernels.conv import winograd_matrices
from kernels.conv.presets import CONV_PRESETS
from kernels.jobs.job import JobError
from kernels.ladders import find
from pages import _cards
from pages.conv.winograd import address, matrices
from pages.conv.winograd.address import KERNELS
from pages.parts.worker import worker
from tests.helpers.opened import heads, open_page, texts
from visuals.charts import units


def open_at(**params):
    chosen = {name: str(v) for name, v in params.items() if name not in address.FIELDS.of and name != "view"}
    return open_page("conv/winograd/page.py", chosen, **params)


def head(at):
    (one,) = heads(at)
    return one["meta"]


def at_preset(key):
    asked = address.replace(address.DEFAULT, shape=CONV_PRESETS[key].shape)
    return address.FIELDS.write(asked.params())


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_kernel_is_watched_and_is_the_one_that_runs(kernel):
    at = open_at(kernel=kernel)
    name, m, _ = KERNELS[kernel]
    meta = head(at)
    assert meta["key"].startswith(name) and (f"M={m}," in meta["key"] or "fused" in KERNELS[kernel][2])
    shown = texts(at)
    assert "Multiplications saved" in shown and "Digits lost" in shown and "kt-note" not in shown
    assert f"<b>{(m + 2) ** 2}</b>" in shown
    files = meta["source"]["file"]
    assert files == ("08_winograd_fused.cu" if "steps" not in kernel else "four kernels")


@pytest.mark.parametrize("key", [key for key in address.CHIPS if key != "toy"])
def test_every_chip_shows_a_scene_or_the_rule(key):
    at, shape = open_at(**at_preset(key), kernel="4x4-steps"), CONV_PRESETS[key].shape
    shown = texts(at)
    assert "kt-badge-recorded" in shown and "kt-badge-measured" in shown
    if (shape.R, shape.S) == (3, 3):
        assert head(at)["steps"] > 10 and "kt-note" not in shown
    else:
        assert not at.get("bidi_component")
        assert f"Winograd cannot run {shape}: R and S must be 3" in shown
        assert "Not at this shape: R and S must be 3" in shown and "The matrices of F(m, r)" in shown


@pytest.mark.parametrize(
    ("params", "rule"),
    [({"R": "5"}, "R and S must be 3, got 5 and 3"), ({"u": "2"}, "stride must be 1 each way"), ({"dilation_w": "2"}, "dilation must be 1 each way")],
)  # fmt: skip
def test_a_shape_outside_the_rules_names_the_rule_and_leads_to_shapes_that_fit(params, rule):
    at = open_at(**params)
    shown = texts(at)
    assert rule in shown and not at.get("bidi_component")
    labels = {link.proto.label for link in at.get("page_link")}
    assert {preset.label for preset in address.fitting()} <= labels
    assert at.button(key="run")  # the other rungs go on
    assert "not at this shape: " in shown


def test_hostile_values_are_named_and_nothing_breaks():
    at = open_at(kernel="9x9", BK="7", Fm="99", Fr="abc", H="0", W="x")
    shown = texts(at)
    assert "H must lie in 1 .. 512" in shown and "W must be a whole number" in shown
    assert head(at)["key"].startswith("conv/winograd-2x2 0,0 BK=64,BC=8")
    assert "F(2, 3): 2 outputs of 3 taps" in shown


def test_tile_sizes_of_the_watched_kernel_are_in_the_address():
    assert "BK=32,BC=4" in head(open_at(view="watch", BK="32", BC="4"))["key"]
    assert (
        "M=6,BLOCK=256,BM=128"
        in head(open_at(view="watch", kernel="6x6-steps", BLOCK="256", BM="128", BC="4"))["key"]
    )


def test_a_run_is_of_what_is_watched(monkeypatch):
    """What is sent to the worker; a browser test waits for the measurement."""
    sent = []

    def submit(request, **how):
        sent.append(request)
        raise JobError("64 runs are waiting already; try again in a moment")

    at = open_at(engine="cpu", kernel="6x6-steps", C="2", H="6", W="6")
    monkeypatch.setattr(worker(), "submit", submit)
    at.button(key="run").click().run()
    assert not at.exception and "try again in a moment" in texts(at)
    (request,) = sent
    assert request.tiles["conv/winograd-nonfused"]["M"] == 6 and request.shape.C == 2
    assert {"conv/implicit-gemm", "conv/winograd-2x2", "conv/winograd-4x4"} <= set(request.rungs)


@pytest.mark.parametrize(
    ("view", "stages", "cards"), [("watch", 1, 0), ("counts", 0, 1), ("errors", 0, 1), ("matrices", 0, 1)]
)
def test_each_view_is_its_part_alone(view, stages, cards):
    at = open_at(view=view)
    shown = texts(at)
    assert len(at.get("bidi_component")) == stages and "<h1" not in shown and not at.number_input
    titles = ("Multiplications saved", "Digits lost", "The matrices of F(m, r)")
    assert sum(title in shown for title in titles) == cards


def test_the_cards_of_the_first_page_show_the_lessons_own_scene():
    cards = [card for card in _cards.CARDS if card.page == "conv/winograd/page.py"]
    assert len(cards) == 2
    for card in cards:
        assert 0 < card.step < card.shown().steps
        assert head(open_at(**card.params))["key"] == card.shown().key


def test_what_winograd_executes_is_not_told_as_what_the_definition_has():
    """Effective rates by the definition's FLOPs, actual by those executed; of cuDNN only the library knows."""
    shape = CONV_PRESETS["resnet50-res4-3x3-n32"].shape
    shown = texts(open_at(**at_preset("resnet50-res4-3x3-n32")))
    assert "FLOPs executed" in shown and "FLOPs of direct convolution" not in shown
    row = records.recorded("conv/winograd-2x2", shape, find("conv/winograd-2x2").default_tiles)
    assert row["flops"] < shape.flops
    for flops in (shape.flops, row["flops"]):
        assert f"<td>{units.rate(flops, row['median_ms'])}</td>" in shown
    cells = re.search(r"<td>actual rate: FLOPs executed</td>(.*?)</tr>", shown).group(1)
    assert cells.count("<td>") >= 4


# -- the chooser -------------------------------------------------------------------------------------
@pytest.mark.parametrize("m", matrices.OUTPUTS)
@pytest.mark.parametrize("r", matrices.TAPS)
def test_the_matrices_told_are_those_derived(m, r):
    shown, t = matrices.told(m, r), winograd_matrices.derive(m, r)
    for X in (t.AT, t.G, t.BT):
        rows = "".join("<tr>" + "".join(f"<td>{e}</td>" for e in row) + "</tr>" for row in X).replace(
            "-", "−"
        )
        assert rows in shown.replace(' class="kt-zero"', "")
    assert f"<b>{m + r - 1}</b> multiplication" in shown and f"instead of {m * r}" in shown


def test_the_identity_is_tried_on_other_numbers():
    at = open_at(view="matrices", Fm="4", Fr="5")
    before = texts(at)
    assert "<b>0</b> in exact fractions" in before
    at.button(key="other_numbers").click().run()
    after = texts(at)
    assert "<b>0</b> in exact fractions" in after and after != before


@pytest.mark.parametrize(("m", "r"), [(1, 1), (1, 5), (2, 3), (4, 3), (6, 3), (6, 5)])
def test_differences_are_rounding_alone(m, r):
    exact, double, single = matrices.differences.__wrapped__(m, r, 0)
    assert exact == 0 and double < 1e-9 and single < 0.1
    assert double < single or m * r == 1


def test_a_wrong_matrix_gives_a_difference(monkeypatch):
    right = winograd_matrices.derive(3, 3)
    wrong = winograd_matrices.Transforms(3, 3, right.AT, right.G, right.BT[::-1])
    monkeypatch.setattr(winograd_matrices, "derive", lambda m, r: wrong)
    exact, double, single = matrices.differences.__wrapped__(3, 3, 0)
    assert exact >= 1 and double > 0.1 and single > 0.1 and np.isfinite(double)
