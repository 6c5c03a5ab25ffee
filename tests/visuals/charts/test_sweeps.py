"""Charts of sweeps have the numbers of the rows; a diff has every change and nothing else."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import sources
from kernels.gemm.shape import GemmShape
from visuals.charts import source_diff, sweeps
from visuals.gemm import notes as gemm_notes
from visuals.palette import LIGHT

TEXTS = st.lists(st.sampled_from(["a", "b", "", "  c <d> & e", "}"]), max_size=12).map("\n".join)


def row(rung="gemm/naive", ms=1.0, tiles=None, spread=0.1, **shape):
    """Returns a row as a measurement would make it, with times chosen here."""
    shape = GemmShape(**({"M": 64, "N": 64, "K": 64} | shape))
    return {
        "rung": rung,
        "shape": shape.params(),
        "tiles": tiles or {"BLOCK": 32},
        "engine": "cuda",
        "device": "a GPU",
        "mode": "cold",
        "n": 100,
        "flops": shape.flops,
        "median_ms": ms,
        "p20_ms": ms * (1 - spread),
        "p80_ms": ms * (1 + spread),
    }


# -- diff ------------------------------------------------------------------------------------------
def rebuilt(before: str, after: str) -> list[str]:
    """Returns the lines of `after`, rebuilt from `before` and the diff."""
    old, out, at = before.splitlines(), [], 0
    for sign, text, i, _ in source_diff.lines(before, after):
        if sign in " -":
            out += old[at : i - 1]
            at = i
        if sign in " +":
            out.append(text)
    return out + old[at:]


@settings(max_examples=25)
@given(TEXTS, TEXTS)
def test_diff_rebuilds_the_second_text(before, after):
    assert rebuilt(before, after) == after.splitlines()


@given(TEXTS)
def test_equal_texts_have_no_diff(text):
    assert list(source_diff.lines(text, text)) == [] and source_diff.counts(text, text) == (0, 0)


def test_diff_of_kernels_is_escaped():
    before, after = (sources.text(f"gemm/{name}") for name in ("01_uncoalesced.cu", "02_naive.cu"))
    html = source_diff.html(before, after, 'a "b" <c>')
    added, removed = source_diff.counts(before, after)
    assert html.count('class="kt-add"') == added > 0 and html.count('class="kt-del"') == removed > 0
    assert "<c>" not in html and "&lt;" in html and "<script" not in source_diff.html("", "<script>", "x")


# -- tile sizes ------------------------------------------------------------------------------------
def swept():
    return [
        row(ms=ms, tiles={"BM": bm, "BN": bn, "BK": 8}, spread=0.01)
        for (bm, bn), ms in {(8, 8): 4.0, (16, 8): 3.0, (8, 16): 2.0, (16, 16): 1.0}.items()
    ]


def test_each_varied_tile_size_has_a_panel_with_every_combination():
    rows = swept()
    assert sweeps.varied_tiles(rows) == ["BM", "BN"]
    figure = sweeps.tiles(rows, {"BM": 8, "BN": 8, "BK": 8}, LIGHT)
    titles = [axis.title.text for axis in figure.select_xaxes()]
    assert titles == ["BM", "BN"]
    dots = [trace for trace in figure.data if trace.mode == "markers" and trace.error_y.array is not None]
    assert [len(trace.x) for trace in dots] == [4, 4]
    rates = sorted(sweeps.rate(r) for r in rows)
    scale = 1e6
    for trace in dots:
        assert sorted(y * scale for y in trace.y) == pytest.approx(rates)
    lines = [trace for trace in figure.data if trace.mode == "lines"]
    for trace, peaks in zip(lines, ((rows[2], rows[3]), (rows[1], rows[3])), strict=True):  # the best at each value
        assert [y * scale for y in trace.y] == pytest.approx([sweeps.rate(r) for r in peaks])
    stars = [trace for trace in figure.data if trace.marker.symbol == "star"]
    assert [trace.y[0] * scale for trace in stars] == pytest.approx([sweeps.rate(rows[3])] * 2)


def test_sentence_names_best_default_and_worst():
    rows = swept()
    text = sweeps.tiles_sentence(rows, {"BM": 8, "BN": 16, "BK": 8})
    assert text.startswith("BM 16, BN 16, BK 8 is fastest: 1 ms (")
    assert "The default, BM 8, BN 16, BK 8, takes 2× the time." in text and "overlap" not in text
    assert text.endswith("The slowest, BM 8, BN 8, BK 8, takes 4× the time.")
    assert "This is the default." in sweeps.tiles_sentence(rows, rows[3]["tiles"])
    close = [row(ms=1.0, tiles={"BM": 8}, spread=0.2), row(ms=1.1, tiles={"BM": 16}, spread=0.2)]
    assert "The spread of the default, BM 16, overlaps with it (1.1× the time)." in sweeps.tiles_sentence(
        close, {"BM": 16}
    )


def test_many_tile_sizes_are_in_lines_of_four_panels():
    names = ["BM", "BN", "BK", "TM", "TN", "WM"]
    rows = [row(ms=1 + n, tiles={name: 8 << (n == k) for k, name in enumerate(names)}) for n in range(6)]
    assert sweeps.tiles_px(rows) == 2 * sweeps.TILES_PX
    assert len(list(sweeps.tiles(rows, rows[0]["tiles"], LIGHT).select_xaxes())) == 6


# -- ladder and sizes ------------------------------------------------------------------------------
def test_ladder_has_rates_and_shares_of_the_library():
    rows = [row(ms=4.0), row("gemm/cublas", 1.0, {})]
    figure = sweeps.ladder([("naive", rows[0]), ("cuBLAS", rows[1])], rows[1], LIGHT)
    assert list(figure.data[0].x) == pytest.approx([sweeps.rate(r) for r in rows])
    assert [re.findall(r"\d+ %", a.text) for a in figure.layout.annotations] == [["25 %"], ["100 %"]]
    assert list(figure.layout.yaxis.ticktext) == ["naive", "cuBLAS"]
    assert all("%" not in a.text for a in sweeps.ladder([("naive", rows[0])], None, LIGHT).layout.annotations)


def test_a_bar_far_longer_than_the_others_is_cut():
    rows = [row(ms=4.0), row("gemm/naive", 2.0), row("gemm/cublas-tf32", 0.1, {})]
    titled = [(r["rung"], r) for r in rows]
    figure = sweeps.ladder(titled, None, LIGHT)
    (arrow,) = (t for t in figure.data if t.type == "scatter")
    assert list(arrow.y) == [2] and figure.layout.xaxis.range[1] < sweeps.rate(rows[2]) / 10
    assert not [t for t in sweeps.ladder(titled[:2], None, LIGHT).data if t.type == "scatter"]


def test_points_are_at_their_recorded_sizes():
    points = [(n, row(M=n, N=n, K=n, ms=n / 64)) for n in (64, 128, 4096)]
    figure = sweeps.sizes([("naive", points)], "M = N = K", 128, LIGHT)
    assert list(figure.data[0].x) == [64, 128, 4096]
    top = 1e12
    assert [y * top for y in figure.data[0].y] == pytest.approx([sweeps.rate(r) for _, r in points])
    assert len(figure.layout.shapes) == 1
    assert not sweeps.sizes([("naive", points)], "M = N = K", 8192, LIGHT).layout.shapes


def test_four_of_eleven_lines_have_a_name():
    names = ("uncoalesced", "naive", "shared-tile", "cublas", "cublas-tf32")
    ms = (9.0, 3.0, 2.0, 1.0, 0.1)
    lines = [
        (n, [(64, row(f"gemm/{n}", t, {})), (128, row(f"gemm/{n}", t, {}))]) for n, t in zip(names, ms, strict=True)
    ]
    named = {"uncoalesced": "filter", "shared-tile": "input", "cublas": "output", "cublas-tf32": "workspace"}
    assert sweeps.named_lines(lines) == named
    figure = sweeps.sizes(lines, "M = N = K", 64, LIGHT)
    assert {t.name for t in figure.data if t.mode == "lines+markers"} == named.keys()
    assert {t.name for t in figure.data} == set(names)


# -- the notes -------------------------------------------------------------------------------------
def test_gain_compares_with_the_first_rung_and_the_library_of_the_same_precision():
    rows = {r["rung"]: r for r in (row("gemm/uncoalesced", 8.0), row("gemm/naive", 2.0), row("gemm/cublas", 1.0, {}))}
    assert gemm_notes.best_kernel(rows) is rows["gemm/naive"]
    assert gemm_notes.gemm_gain(rows) == (
        "Naive, coalesced is 4× as fast as uncoalesced. Naive, coalesced reaches 50 % of the speed of cuBLAS FP32."
    )
    close_rows = rows | {"gemm/naive": row("gemm/naive", 1.05)}
    assert gemm_notes.gemm_gain(close_rows).endswith(
        "Naive, coalesced and cuBLAS FP32 have no measurable difference: their spreads overlap."
    )
    same = {r["rung"]: r for r in (row("gemm/uncoalesced", 1.05), row("gemm/naive", 1.0))}
    assert "their spreads overlap" in gemm_notes.gemm_gain(same) and "×" not in gemm_notes.gemm_gain(same)
    assert gemm_notes.gemm_gain({"gemm/cublas": rows["gemm/cublas"]}) == ""
    assert gemm_notes.library_row({"gemm/naive": row(dtype="int8")}) is None
    on_cpu = {
        r["rung"]: r | {"engine": "cpu"}
        for r in (row("gemm/naive", 8.0), row("gemm/shared-tile", 2.0), row("gemm/cublas", 1.0, {}))
    }
    assert gemm_notes.gemm_gain(on_cpu) == (
        "Blocked, BLAS in each block is 4× as fast as naive loop (NumPy einsum). Blocked, BLAS in each block reaches 50 % "
        "of the speed of NumPy BLAS."
    )


@given(st.integers(1, 5000), st.integers(1, 5000), st.integers(1, 5000), st.sampled_from(["fp32", "fp16", "int8"]))
def test_cost_counts_the_loads_of_one_thread_per_result(M, N, K, dtype):
    text = gemm_notes.gemm_cost(GemmShape(M, N, K, dtype=dtype))
    for name, count in (("A", N), ("B", M)):
        assert f"Each element of {name} is loaded {count:,} time{'s' * (count > 1)}." in text
