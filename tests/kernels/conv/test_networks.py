"""The networks' convolutions against what is published of them, and the groups that a recording can be asked for."""

from __future__ import annotations

import json

import pytest

from kernels import sweep
from kernels.__main__ import main
from kernels.conv.networks import LAYERS, NETWORKS
from kernels.conv.presets import CONV_GRID, CONV_PRESETS
from kernels.records import row as records_row
from kernels.records import rows
from kernels.records.row import LEFT_OUT

RESNET, VGG = NETWORKS["resnet50"], NETWORKS["vgg16"]


@pytest.mark.parametrize(
    ("network", "convolutions", "weights", "macs"),
    [
        # Weights: of the published models (25,557,032 and 138,357,544 numbers) without the fully connected layers, the
        # biases and the normalisation. Multiply-adds of ResNet-50: the paper says 3.8 x 10^9, with its classifier.
        (RESNET, 53, 25_557_032 - 2_049_000 - 53_120, 3.86e9),
        (VGG, 13, 138_357_544 - 123_642_856 - 4_224, 15.35e9),
    ],
    ids=lambda v: getattr(v, "key", ""),
)
def test_a_network_has_the_weights_and_the_work_that_are_published(network, convolutions, weights, macs):
    layers = network.layers
    assert network.convolutions == convolutions
    assert sum(one.count * one.shape.elements["w"] for one in layers) == weights
    assert sum(one.count * one.shape.macs for one in layers) / 32 == pytest.approx(macs, rel=2e-3)
    assert len({one.shape for one in layers}) == len(layers) and all(one.shape.N == 32 for one in layers)


def test_resnet_is_version_1_its_3x3_layers_have_stride_1():
    of_three = [one.shape for one in RESNET.layers if one.shape.R == 3]
    assert len(of_three) == 4 and all(shape.stride == (1, 1) for shape in of_three)
    assert [one.shape.stride for one in RESNET.layers if one.name.endswith("_1 1×1")] == [
        (1, 1),
        *[(2, 2)] * 3,
    ]
    assert {CONV_PRESETS[f"resnet50-res{n}-3x3-n32"].shape for n in (2, 3, 4, 5)} == set(of_three)


def test_the_grid_is_two_whole_rectangles_that_cross():
    shapes = [preset.shape for preset in CONV_GRID.values()]
    assert len(set(shapes)) == len(shapes) <= 50
    three = {(s.C, s.H) for s in shapes if s.R == 3}
    assert three == {(c, h) for c, _ in three for _, h in three} and len(three) == 30
    taps = {(s.R, s.H) for s in shapes if s.C == 64 and s.H in (14, 28, 56)}
    assert taps == {(r, h) for r in (1, 3, 5, 7, 9, 11) for h in (14, 28, 56)}
    assert all((s.P, s.Q) == (s.H, s.W) and s.C == s.K for s in shapes)


# -- recorded only by name -------------------------------------------------------------------------
def groups(*names):
    return list(sweep.Sweep("cpu", names).groups())


def test_a_group_is_reached_by_its_name_alone():
    shapes = {group.shape for group in groups()}
    assert not shapes & {p.shape for p in CONV_GRID.values() if p.shape.R in (9, 11)}
    assert [group.shape for group in groups("grid")] == [p.shape for p in CONV_GRID.values()]
    both = [group.shape for group in groups("networks", "grid")]
    assert len(both) == len(set(both)) and set(both) == {
        p.shape for p in (*CONV_GRID.values(), *LAYERS.values())
    }
    assert all(g.brief and g.mode == "cold" and not g.tiles for g in groups("grid"))


def test_rows_of_a_group_are_few_samples_and_pass_as_rows(tmp_path, monkeypatch):
    small = {key: CONV_PRESETS[key] for key in ("toy", "cudnn-paper")}
    monkeypatch.setitem(sweep.GROUPS, "grid", small)
    out = tmp_path / "here.jsonl"
    told = [
        "record",
        "--out",
        str(out),
        "--engine",
        "cpu",
        "--presets",
        "grid",
        "--seconds",
        "9",
        "--modes",
        "hot",
    ]
    monkeypatch.setattr(sweep, "FEW", 7)
    assert main(told) == 0
    got = [json.loads(line) for line in out.read_text().splitlines()]
    assert {(r["shape"]["C"], r["shape"]["H"]) for r in got} == {(1, 8), (3, 3)}
    for row in got:
        rows.check(row)
        assert row["mode"] == "cold" and row["n"] == 7
        assert not set(LEFT_OUT) & row.keys()
    before = out.read_bytes()
    assert main(told) == 0 and out.read_bytes() == before  # all was there


def test_a_brief_row_leaves_memory_and_copies_out():
    from tests.helpers.rows_of import a_full_row

    row = a_full_row(3)
    brief = records_row.brief(row)
    rows.check(brief)
    assert brief == {name: value for name, value in row.items() if name not in ("timeline", "copies_ms")}
