"""Tests of the Winograd lesson without a browser: kernels, presets, unsupported shapes, the chooser, Run."""

import re

import numpy as np
import pytest

from kernels import records
from kernels.conv import winograd_matrices
from kernels.conv.presets import CONV_PRESETS
from kernels.jobs.job import JobError
from kernels.ladders import find
from pages import _teasers
from pages.conv.controls import PRESETS
from pages.conv.winograd import address, chapters, matrices
from pages.conv.winograd.address import KERNELS
from pages.parts.worker import worker
from tests.helpers.offenders import every
from tests.helpers.page_runner import components, heads, open_page, press, stages, strip, texts
from visuals import units


def open_at(**params):
    chosen = {name: str(v) for name, v in params.items() if name not in address.FIELDS.by_name and name != "view"}
    return open_page("conv/winograd/page.py", chosen, **params)


def head(at):
    (stage_head,) = heads(at)
    return stage_head["meta"]


def at_preset(key):
    query = address.replace(address.DEFAULT, shape=PRESETS[key].shape)
    return address.FIELDS.write(query.params())


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_kernel_has_a_scene_and_its_source(kernel):
    at = open_at(kernel=kernel)
    name, m, _ = KERNELS[kernel]
    meta = head(at)
    assert meta["key"].startswith(name) and (f"M={m}," in meta["key"] or "fused" in KERNELS[kernel][2])
    html = texts(at)
    assert "Fewer multiplications" in html and "Rounding errors" in html and "kt-note" not in html
    assert f"<b>{(m + 2) ** 2}</b>" in html
    files = meta["source"]["file"]
    assert files == "07_winograd_filter.cu"


@pytest.mark.parametrize("key", [key for key in address.CHIPS if key != "toy"])
def test_every_chip_shows_a_scene_or_the_rule(key):
    at, shape = open_at(**at_preset(key), kernel="4x4-steps", size="stage"), PRESETS[key].shape
    html = texts(at)
    assert "kt-badge-recorded" in html and "kt-badge-measured" in html
    if (shape.R, shape.S) == (3, 3):
        assert head(at)["steps"] > 10 and "Winograd cannot run" not in html
    else:
        assert not stages(at)
        assert f"Winograd cannot run {shape}: R and S must be 3" in html
        assert "Not at this shape: R and S must be 3" in html and "The matrices of F(m, r)" in html


@pytest.mark.parametrize(
    ("params", "rule"),
    [
        ({"R": "5"}, "R and S must be 3, got 5 and 3"),
        ({"u": "2"}, "stride must be 1 in both axes"),
        ({"dilation_w": "2"}, "dilation must be 1 in both axes"),
    ],
)
def test_unsupported_shape_names_the_rule_and_links_to_supported_presets(params, rule):
    at = open_at(**params)
    html = texts(at)
    assert rule in html and not stages(at)
    labels = {link.proto.label for link in at.get("page_link")}
    assert {preset.label for preset in address.supported_presets()} <= labels
    assert strip(at)["run"]["can"]  # the other rungs still run
    assert "cannot run with these settings</summary>" in html


def test_invalid_values_are_named_and_ignored():
    at = open_at(kernel="9x9", BK="7", Fm="99", Fr="abc", H="0", W="x")
    html = texts(at)
    assert "H must be 1 to 512" in html and "W must be a whole number" in html
    assert head(at)["key"].startswith("conv/winograd-2x2 BK=64,BC=8")
    assert "F(2, 3), with m outputs and r taps," in html


def test_tile_sizes_of_the_kernel_come_from_the_url():
    assert "BK=32,BC=4" in head(open_at(view="watch", BK="32", BC="4"))["key"]
    assert (
        "M=6,BLOCK=256,BM=128" in head(open_at(view="watch", kernel="6x6-steps", BLOCK="256", BM="128", BC="4"))["key"]
    )


def test_the_fused_kernel_is_in_front_of_its_transform_of_the_filters():
    shape = CONV_PRESETS["toy"].shape
    assert address.main_file(address.watched_kernel("4x4", {}), shape).endswith("08_winograd_fused.cu")
    assert address.main_file(address.watched_kernel("6x6-steps", {}), shape) == ""


def test_run_request_has_the_kernel_of_the_stage(monkeypatch):
    """Checks the request sent to the worker. A browser test waits for the measurement."""
    requests = []

    def submit(request, **kwargs):
        requests.append(request)
        raise JobError("64 runs are waiting already; try again in a moment")

    at = open_at(engine="cpu", kernel="6x6-steps", C="2", H="6", W="6")
    monkeypatch.setattr(worker(), "submit", submit)
    press(at, "run", size="stage")
    assert not at.exception and "try again in a moment" in texts(at)
    (request,) = requests
    assert request.tiles["conv/winograd-nonfused"]["M"] == 6 and request.shape.C == 2
    assert {"conv/implicit-gemm", "conv/winograd-2x2", "conv/winograd-4x4"} <= set(request.rungs)


@pytest.mark.parametrize(
    ("view", "stages", "cards"), [("watch", 1, 0), ("counts", 0, 1), ("errors", 0, 1), ("matrices", 0, 1)]
)
def test_each_view_shows_only_its_part(view, stages, cards):
    at = open_at(view=view)
    html = texts(at)
    assert len(components(at)) == stages and "<h1" not in html and not at.number_input
    titles = ("Fewer multiplications", "Rounding errors", "The matrices of F(m, r)")
    assert sum(title in html for title in titles) == cards


def test_home_card_shows_the_scene_of_the_lesson():
    teaser = _teasers.BY_PAGE["conv/winograd/page.py"]
    assert 0 < teaser.step < teaser.build_scene().steps
    assert head(open_at(**teaser.params))["key"] == teaser.build_scene().key


def test_effective_and_actual_rates_use_different_flops():
    """Effective rates use the definition's FLOPs, actual rates those executed. For cuDNN only the library knows them."""
    shape = CONV_PRESETS["resnet50-res4-3x3-n32"].shape
    html = texts(open_at(**at_preset("resnet50-res4-3x3-n32")))
    assert "FLOPs executed" in html and ">FLOPs of direct convolution<" not in html
    row = records.recorded("conv/winograd-2x2", shape, find("conv/winograd-2x2").default_tiles)
    assert row["flops"] < shape.flops
    for flops in (shape.flops, row["flops"]):
        assert f"<td>{units.rate(flops, row['median_ms'])}</td>" in html
    cells = re.search(r"<td>actual rate: FLOPs executed ÷ time</td>(.*?)</tr>", html).group(1)
    assert cells.count("<td>") >= 4


# -- the chooser -------------------------------------------------------------------------------------
@every("m", matrices.OUTPUTS)
@every("r", matrices.TAPS)
def test_matrices_on_the_page_are_the_derived_ones(m, r):
    html, t = matrices.transforms(m, r), winograd_matrices.derive(m, r)
    for X in (t.AT, t.G, t.BT):
        rows = "".join("<tr>" + "".join(f"<td>{e}</td>" for e in row) + "</tr>" for row in X).replace("-", "−")
        assert rows in html.replace(' class="kt-zero"', "")
    assert f"{m} + {r} − 1 = {m + r - 1} multiplications instead of {m} · {r} = {m * r}." in html
    assert f"The matrices use {m + r - 1} point" in matrices.derivation(m, r)


def test_identity_is_checked_on_other_numbers():
    at = open_at(view="matrices", Fm="4", Fr="5")
    before = texts(at)
    assert "<b>0</b> in exact fractions" in before
    at.button(key="other_numbers").click().run()
    after = texts(at)
    assert "<b>0</b> in exact fractions" in after and after != before


@every(("m", "r"), [(1, 1), (1, 5), (2, 3), (4, 3), (6, 3), (6, 5)])
def test_differences_are_rounding_errors_only(m, r):
    exact, double, single = matrices.differences.__wrapped__(m, r, 0)
    assert exact == 0 and double < 1e-9 and single < 0.1
    assert double < single or m * r == 1


def test_a_wrong_matrix_gives_a_difference(monkeypatch):
    right = winograd_matrices.derive(3, 3)
    wrong = winograd_matrices.Transforms(3, 3, right.AT, right.G, right.BT[::-1])
    monkeypatch.setattr(winograd_matrices, "derive", lambda m, r: wrong)
    exact, double, single = matrices.differences.__wrapped__(3, 3, 0)
    assert exact >= 1 and double > 0.1 and single > 0.1 and np.isfinite(double)


# -- orders --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kernel", ["2x2", "6x6-steps"])
@pytest.mark.parametrize("order", [address.DERIVE, address.NESTED])
def test_each_order_plays_at_the_tile_size_of_the_kernel(order, kernel):
    meta = head(open_at(view="watch", order=order, kernel=kernel))
    assert f"{order} {KERNELS[kernel][1]}" in meta["key"]
    assert meta["orderNote"]


def test_an_order_says_when_the_shape_has_no_winograd():
    assert not stages(open_at(view="watch", order=address.DERIVE, R="5", S="5"))


def test_recorded_errors_grow_with_the_tile():
    """The chapter on digits states them; they are those of the recordings at the real size."""
    shape = CONV_PRESETS["resnet50-res3-3x3-n32"].shape
    errors = chapters.recorded_errors(shape)
    assert list(errors) == [0, 2, 4, 6] and list(errors.values()) == sorted(errors.values())
    steps = find("conv/winograd-nonfused")
    for m in (2, 4, 6):
        row = records.recorded(steps.name, shape, steps.default_tiles | {"M": m})
        assert errors[m] == row["error"]
    assert errors[0] == records.recorded("conv/direct", shape, find("conv/direct").default_tiles)["error"]
