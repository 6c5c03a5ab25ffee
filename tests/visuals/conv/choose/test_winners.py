"""The map of winners and the networks' layers: every cell and every sum is compared with a search of all rows."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.conv.networks import NETWORKS
from kernels.conv.presets import CONV_GRID
from kernels.conv.shape import ConvShape
from kernels.ladders import find
from kernels.model.shape import ShapeError
from tests.helpers.race_rows import LADDER, timed
from visuals.conv.choose import layers, winners
from visuals.conv.choose.winners import AXES, fixed_values

NAMES = [rung.name for rung in LADDER.rungs]
BASE = ConvShape(2, 8, 14, 14, 8, 3, 3, pad=1)
pairs = st.sampled_from([(a, d) for a in AXES for d in winners.compatible_axes(a)])


@st.composite
def recordings(draw):
    """Draws rows of some rungs at some shapes along two axes through BASE, and some at other shapes; and the
    axes."""
    across, down = (AXES[key] for key in draw(pairs))
    shapes = {
        down.with_value(across.with_value(BASE, a), d)
        for a, d in draw(st.lists(st.tuples(st.sampled_from((4, 8, 16)), st.sampled_from((3, 5, 7))), min_size=1))
    }
    shapes |= {BASE.with_(u=2), BASE.with_(pad_h=0), BASE.with_(C=4, K=16)}
    rows = []
    for shape in sorted(shapes, key=str):
        for name in draw(st.sets(st.sampled_from(NAMES), min_size=1, max_size=4)):
            rows.append(timed(name, shape, draw(st.floats(0.01, 10))))
    return draw(st.permutations(rows)), across, down


def same_but(s: ConvShape, fields, around: ConvShape) -> bool:
    """Returns whether two shapes are equal in all but the fields, computed independently."""
    own_params, theirs = s.params(), around.params()
    return all(own_params[name] == theirs[name] for name in own_params if name not in fields)


@settings(max_examples=20)
@given(recordings())
def test_each_cell_has_the_fastest_of_its_rows(case):
    rows, across, down = case
    winner_map = winners.winners(winners.by_shape(rows, "cold"), BASE, across, down)
    if winner_map is None:
        return
    fields = {*across.fields, *down.fields}
    first = next(iter(winner_map.cells.values())).shape
    for (a, d), cell in winner_map.cells.items():
        assert (across.value(cell.shape), down.value(cell.shape)) == (a, d)
        assert same_but(cell.shape, fields, first)
        times = sorted(r["median_ms"] for r in rows if r["shape"] == cell.shape.params())
        assert [row["median_ms"] for row in cell.rows] == times
        assert cell.lead == (times[1] / times[0] if len(times) > 1 else None)
    assert sum(winners.counts(winner_map).values()) == len(winner_map.cells)


@settings(max_examples=20)
@given(recordings())
def test_map_contains_every_matching_shape(case):
    rows, across, down = case
    winner_map = winners.winners(winners.by_shape(rows, "cold"), BASE, across, down)
    if winner_map is None or not winners.is_on_map(winner_map, BASE):
        return
    fields = {*across.fields, *down.fields}
    for shape in {ConvShape(**row["shape"]) for row in rows}:
        matches = same_but(shape, fields, BASE) and None not in (across.value(shape), down.value(shape))
        if "R" in fields:
            matches = matches and shape.pad == (shape.R // 2, shape.S // 2)
        in_map = shape in {cell.shape for cell in winner_map.cells.values()}
        assert matches or not in_map
        if matches and not in_map:  # it was alone in its line or its column
            others = {ConvShape(**row["shape"]) for row in rows} - {shape}
            beside = [
                s
                for s in others
                if fixed_values(s, across, down) == fixed_values(shape, across, down)
                and None not in (across.value(s), down.value(s))
            ]
            assert min(sum(axis.value(s) == axis.value(shape) for s in beside) for axis in (across, down)) == 0


def test_fastest_row_wins_and_other_settings_are_ignored():
    rows = [timed("conv/direct", BASE, 2.0), timed("conv/fft", BASE, 1.0)]
    found = winners.by_shape(rows, "cold")
    assert [row["rung"] for row in found[BASE]] == ["conv/fft", "conv/direct"]
    other = [
        timed("conv/fft", BASE, 0.5, mode="hot"),
        timed("conv/fft", BASE, 0.5, tiles={"FFT_TILE": 16, "SPECTRA": 8}),
        timed("conv/fft", BASE, 0.5, device="another GPU"),
    ]
    assert winners.by_shape([*rows, *other], "cold") == found  # other settings are ignored


@settings(max_examples=25)
@given(pairs, st.integers(1, 64), st.integers(1, 13))
def test_axis_value_round_trip(pair, a, d):
    across, down = (AXES[key] for key in pair)
    try:
        moved = down.with_value(across.with_value(BASE, a), d)
    except ShapeError:
        return
    assert (across.value(moved), down.value(moved)) == (a, d)
    assert winners.fixed_values(moved, across, down) == winners.fixed_values(BASE, across, down)


def test_unrecorded_shape_gets_the_largest_map():
    rows = [timed("conv/direct", preset.shape, 1.0) for preset in CONV_GRID.values()]
    found = winners.by_shape(rows, "cold")
    odd = ConvShape(3, 20, 30, 30, 20, 3, 3)
    winner_map = winners.winners(found, odd, AXES["CK"], AXES["H"])
    assert len(winner_map.cells) == 30 and not winners.is_on_map(winner_map, odd)
    recorded = CONV_GRID["grid-5x5-c64-h28"].shape
    winner_map = winners.winners(found, recorded, AXES["R"], AXES["H"])
    assert len(winner_map.cells) == 18 and winners.is_on_map(
        winner_map, recorded
    )  # 7 x 7 and 112 x 112 exist only for 3x3
    assert winners.fixed_values_text(winner_map) == "N=32, C=64, K=64, padding that keeps the size"
    assert winners.winners(found, recorded, AXES["N"], AXES["H"]) is None  # a single batch size is no map


def test_html_names_the_winner_and_every_time():
    times = {
        BASE: (2.0, 1.0),
        BASE.with_(N=4): (1.0, 1.0005),
        BASE.with_(H=28, W=28): (3.0, 4.5),
        BASE.with_(H=28, W=28, N=4): (2.0, 1.5),
    }
    rows = [timed(n, s, ms) for s, two in times.items() for n, ms in zip(("conv/direct", "conv/fft"), two, strict=True)]
    winner_map = winners.winners(winners.by_shape(rows, "cold"), BASE, AXES["N"], AXES["H"])
    text = winners.html(winner_map, BASE, lambda s: "" if s == BASE else f"?N={s.N}&x=<")
    cells = re.findall(r"<b>([^<]*)</b><small>([^<]*)</small>", text)
    direct, fft = (find(f"conv/{name}").short_title for name in ("direct", "fft"))
    assert cells == [(fft, "2.00×"), (direct, "≈ tie"), (direct, "1.50×"), (fft, "1.33×")]
    assert text.count("kt-here") == 1 and 'href="?N=4&amp;x=&lt;"' in text
    assert text.count("<li>") == 8 and "FFT</span> <b>1 ms</b>" in text
    assert winners.summary(winner_map) == (
        "Fastest in 4 cells: direct 2, FFT 2. In 1 of them, the first two show no measurable difference: their spreads "
        "overlap. Not timed: im2col, implicit GEMM, Winograd, cuDNN."
    )


def test_family_with_times_in_only_some_cells_is_named():
    """Otherwise it would seem to lose in cells where it was not recorded."""
    cells = [BASE, BASE.with_(N=4), BASE.with_(H=28, W=28), BASE.with_(H=28, W=28, N=4)]
    rows = [timed("conv/direct", s, 2.0) for s in cells] + [timed("conv/cudnn-gemm", cells[1], 3.0)]
    winner_map = winners.winners(winners.by_shape(rows, "cold"), BASE, AXES["N"], AXES["H"])
    assert "Timed in only some of the cells: cuDNN 1. Not timed: im2col" in winners.summary(winner_map)


# -- networks --------------------------------------------------------------------------------------
@st.composite
def timed_networks(draw):
    network = NETWORKS[draw(st.sampled_from(list(NETWORKS)))]
    times_by_shape = {
        layer.shape: {
            name: draw(st.floats(0.01, 9)) for name in draw(st.sets(st.sampled_from(NAMES), min_size=1, max_size=5))
        }
        for layer in network.layers
    }

    def recorded(rung, shape, tiles):
        assert tiles == LADDER.rung(rung).default_tiles
        return timed(rung, shape, times_by_shape[shape][rung]) if rung in times_by_shape[shape] else None

    return network, times_by_shape, layers.timed(network, recorded, lambda rung, shape: "")


@settings(max_examples=20)
@given(timed_networks())
def test_totals_are_sums_over_every_convolution(case):
    network, times_by_shape, timed_layers = case
    best = sum(layer.count * min(times_by_shape[layer.shape].values()) for layer in network.layers)
    assert layers.total(timed_layers, lambda entry: entry.best) == pytest.approx(best)
    for entry in layers.single_rung_totals(timed_layers):
        missing = sum(entry.rung not in times for times in times_by_shape.values())
        assert entry.missing == missing and (entry.ms is None) == (missing > 0)
        if entry.ms is not None:
            expected = sum(layer.count * times_by_shape[layer.shape][entry.rung] for layer in network.layers)
            assert entry.ms == pytest.approx(expected) and entry.ms >= best * (1 - 1e-9)
    cudnn = [{n: t for n, t in times.items() if "cudnn" in n} for times in times_by_shape.values()]
    among = layers.total(timed_layers, lambda entry: entry.library)
    assert (among is None) == (not all(cudnn))
    if among is not None:
        assert among == pytest.approx(
            sum(o.layer.count * min(c.values()) for o, c in zip(timed_layers, cudnn, strict=True))
        )


@settings(max_examples=20)
@given(timed_networks())
def test_shares_add_up_and_every_layer_has_a_line(case):
    network, _, timed_layers = case
    text = layers.html(timed_layers, lambda shape: "?x")
    shares = [float(part) for part in re.findall(r"<span>(?:< )?([\d.]+) %</span>", text)]
    assert len(shares) == len(network.layers) and sum(shares) == pytest.approx(100, abs=len(shares) * 0.5)
    assert text.count("<tr") == len(network.layers) + 1
    assert layers.totals(timed_layers).count("not recorded ") == sum(
        o.ms is None for o in layers.single_rung_totals(timed_layers)
    )


def test_a_layer_without_a_time_has_none_and_no_total():
    timed_layers = layers.timed(NETWORKS["vgg16"], lambda rung, shape, tiles: None, lambda rung, shape: "")
    assert layers.total(timed_layers, lambda entry: entry.best) is None and layers.summary(timed_layers) == ""


def test_unsupported_and_unrecorded_shapes_are_counted_separately():
    network, name = NETWORKS["vgg16"], "conv/winograd-2x2"
    first, _, *others = [layer.shape for layer in network.layers]

    def recorded(rung, shape, tiles):
        return timed(rung, shape, 1.0) if rung == "conv/direct" or shape in others else None

    timed_layers = layers.timed(network, recorded, lambda rung, shape: "a rule" if shape == first else "")
    entry = next(entry for entry in layers.single_rung_totals(timed_layers) if entry.rung == name)
    assert (entry.missing, entry.cannot) == (2, 1)
    assert f"cannot run 1 of {len(timed_layers)}, not recorded 1 of {len(timed_layers)}" in layers.totals(timed_layers)


def test_no_comparison_with_cudnn_without_recordings_of_it():
    def text(*rungs):
        timed_layers = layers.timed(
            NETWORKS["vgg16"],
            lambda rung, shape, tiles: timed(rung, shape, 1.0) if rung in rungs else None,
            lambda rung, shape: "",
        )
        return layers.html(timed_layers, lambda shape: "") + layers.summary(timed_layers)

    alone, beside = text("conv/direct"), text("conv/direct", "conv/cudnn-gemm")
    assert "best of cuDNN" in beside and "Without the kernels of cuDNN" in beside
    assert "best of" not in alone and "cuDNN" not in alone
