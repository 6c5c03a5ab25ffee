"""The networks' convolutions compared with published numbers, and the groups that can be recorded by name."""

from __future__ import annotations

import json

import pytest

from kernels import sweep
from kernels.__main__ import main
from kernels.conv.backward.presets import BACKWARD_PADDING
from kernels.conv.networks import LAYERS, NETWORKS
from kernels.conv.presets import CONV_GRID, CONV_PADDING, CONV_PRESETS
from kernels.engines import cpu
from kernels.records import availability, rows
from kernels.records import row as records_row
from kernels.records.row import CHART_FIELDS

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
def test_network_has_the_published_weights_and_multiply_adds(network, convolutions, weights, macs):
    layers = network.layers
    assert network.convolutions == convolutions
    assert sum(layer.count * layer.shape.elements["w"] for layer in layers) == weights
    assert sum(layer.count * layer.shape.macs for layer in layers) / 32 == pytest.approx(macs, rel=2e-3)
    assert len({layer.shape for layer in layers}) == len(layers) and all(layer.shape.N == 32 for layer in layers)


def test_resnet_is_version_1_with_stride_1_in_3x3_layers():
    shapes_3x3 = [layer.shape for layer in RESNET.layers if layer.shape.R == 3]
    assert len(shapes_3x3) == 4 and all(shape.stride == (1, 1) for shape in shapes_3x3)
    assert [layer.shape.stride for layer in RESNET.layers if layer.name.endswith("_1 1×1")] == [(1, 1), *[(2, 2)] * 3]
    assert {CONV_PRESETS[f"resnet50-res{n}-3x3-n32"].shape for n in (2, 3, 4, 5)} == set(shapes_3x3)


def test_grid_is_two_overlapping_rectangles():
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


def test_group_is_recorded_only_by_name():
    shapes = {group.shape for group in groups()}
    assert not shapes & {p.shape for p in CONV_GRID.values() if p.shape.R in (9, 11)}
    assert [group.shape for group in groups("grid")] == [p.shape for p in CONV_GRID.values()]
    both = [group.shape for group in groups("networks", "grid")]
    assert len(both) == len(set(both)) and set(both) == {p.shape for p in (*CONV_GRID.values(), *LAYERS.values())}
    assert all(g.brief and g.mode == "cold" and not g.tiles for g in groups("grid"))


@pytest.mark.parametrize(
    ("name", "ladders", "presets"),
    [("padding", ["conv"], CONV_PADDING), ("backward-padding", ["conv-dinput", "conv-dweight"], BACKWARD_PADDING)],
)
def test_layers_with_padding_at_one_end_are_recorded_whole_by_every_rung_that_runs_them(name, ladders, presets):
    for engine in ("cuda", "cpu"):
        found = list(sweep.Sweep(engine, (name,)).groups())
        assert {(g.ladder.name, g.shape) for g in found} == {(n, p.shape) for n in ladders for p in presets.values()}
        for group in found:
            assert not group.brief and group.mode == "cold" and not group.tiles
            runs = [r.name for r in availability.supported_rungs(group.ladder, engine, group.shape)]
            assert list(group.rungs) == runs
    for group in sweep.Sweep("cuda", ("padding",)).groups():
        if any((group.shape.extra_h, group.shape.extra_w)):
            assert not any("cudnn" in rung for rung in group.rungs)


def test_rows_of_a_group_have_few_samples_and_are_valid(tmp_path, monkeypatch):
    small = {key: CONV_PRESETS[key] for key in ("cudnn-paper",)}
    monkeypatch.setitem(sweep.GROUPS, "grid", small)
    out = tmp_path / "here.jsonl"
    arguments = [
        "record",
        "--out",
        str(out),
        "--engine",
        "cpu",
        "--presets",
        "grid",
        "--seconds",
        "600",  # never reached: the samples end it
        "--modes",
        "hot",
    ]
    monkeypatch.setattr(sweep, "FEW", 4)
    # Overwriting a processor's caches takes 95 % of the time of a small cold sample; here only their number matters.
    monkeypatch.setattr(cpu, "flusher", lambda: lambda: None)
    assert main(arguments) == 0
    rows_written = [json.loads(line) for line in out.read_text().splitlines()]
    assert {(r["shape"]["C"], r["shape"]["H"]) for r in rows_written} == {(3, 3)}
    for row in rows_written:
        rows.check(row)
        assert row["mode"] == "cold" and row["n"] == 4
        assert not set(CHART_FIELDS) & row.keys()
    before = out.read_bytes()
    assert main(arguments) == 0 and out.read_bytes() == before  # all rows existed


def test_brief_row_omits_timeline_and_copies():
    from tests.helpers.rows_of import a_full_row

    row = a_full_row(3)
    brief = records_row.brief(row)
    rows.check(brief)
    assert brief == {name: value for name, value in row.items() if name not in ("timeline", "copies_ms")}
