"""What the attention lesson predicts, draws and says: memory over N, traffic, the story; and what its stage computes with."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.attention import traffic as attention_traffic
from kernels.attention.presets import ATTENTION_PRESETS
from kernels.attention.reference import attention as reference
from kernels.attention.shape import AttentionShape
from kernels.ladders import LADDERS
from kernels.machine import memory_levels
from kernels.runner import check_memory, run
from tests.helpers.rows_of import CEILINGS, a_full_row
from visuals.attention import charts as attention_charts
from visuals.attention import story as attention_story
from visuals.attention.charts import Room, allocated, chart_of, dots, fits, memory, words
from visuals.attention.inputs import KINDS, LARGEST, qkv
from visuals.attention.story import attention_cost, attention_gain
from visuals.palette import DARK, LIGHT

LADDER = LADDERS["attention"]
RUNGS = {rung.name.partition("/")[2]: rung for rung in LADDER.rungs}
LARGE = ATTENTION_PRESETS["attention-2048"].shape
GPU, HERE = Room("a GPU", 150_000_000_000), Room("a processor", 16_000_000_000)


# -- traffic -------------------------------------------------------------------------------------------
def loads_and_stores(name: str, s: AttentionShape, tiles: dict) -> int:
    total = run(f"attention/{name}", s, engine="emulator", tiles=tiles).counters.total
    return total["bytes_ld"] + total["bytes_st"]


def compiled(name: str, s: AttentionShape) -> list[dict]:
    return list(RUNGS[name].tile_sets(s))


@pytest.mark.parametrize("name", [name for name in attention_traffic.KERNELS if name in RUNGS])
@settings(max_examples=4, deadline=None)
@given(data=st.data())
def test_the_traffic_is_what_the_emulators_threads_ask_for(name, data):
    """To the byte, at any tile sizes that were compiled ahead."""
    dtype = "fp32" if name != "flash-mma" else data.draw(st.sampled_from(["fp16", "bf16"]))
    B, H, N, d = (data.draw(st.integers(1, most)) for most in (2, 2, 45, 20))
    s = AttentionShape(B, H, N, d, data.draw(st.integers(0, 1)), dtype=dtype)
    tiles = data.draw(st.sampled_from(compiled(name, s)))
    assert attention_traffic.asked(RUNGS[name], s, tiles) == loads_and_stores(name, s, tiles)


def test_a_library_tells_nothing_of_its_loads():
    assert {
        n for n, rung in RUNGS.items() if attention_traffic.asked(rung, LARGE, rung.default_tiles) is None
    } == {n for n, rung in RUNGS.items() if rung.library}


@given(st.integers(1, 300), st.sampled_from([4, 8, 32]), st.sampled_from([8, 16]), st.integers(0, 1))
def test_tiles_visited_are_those_in_which_a_query_sees_a_key(N, queries, keys, causal):
    s = AttentionShape(1, 1, N, 4, causal)
    seen = np.arange(N)[:, None] >= np.arange(N) if causal else np.ones((N, N), bool)
    visited = sum(
        seen[i : i + queries, j : j + keys].any() for i in range(0, N, queries) for j in range(0, N, keys)
    )
    assert attention_traffic.tiles_visited(s, queries, keys) == visited


def test_the_table_of_traffic_has_a_line_for_each_rung_that_runs():
    titles, columns = attention_charts.traffic(LADDER.rungs, LARGE, lambda rung: rung.default_tiles)
    able = [r for r in LADDER.rungs if attention_charts.runs(r, LARGE)]
    assert titles == [r.title for r in able] and {len(cells) for cells in columns.values()} == {len(able)}
    hbm, asked = (columns[name] for name in columns if "FLOP" not in name)
    assert hbm[titles.index("naive")] == "4.43 GB" and hbm[titles.index("flash attention")] == "134 MB"
    assert asked[titles.index("cuBLAS + our softmax")] == "–" and "–" not in hbm


def test_the_words_of_traffic_count_blocks_and_hidden_tiles():
    flash = RUNGS["flash"]
    (plain,) = attention_charts.traffic_words(flash, LARGE, {"Br": 32, "Bc": 32})
    assert "asked for by 64 blocks" in plain and "by 2,048" in plain
    _, hidden = attention_charts.traffic_words(flash, LARGE.with_(causal=1), {"Br": 32, "Bc": 32})
    assert "of 4,096 tiles of 32 × 32 scores a head 2,080 are visited (51 %)" in hidden
    assert attention_charts.traffic_words(RUNGS["naive"], LARGE, {"BLOCK": 16}) == []


# -- memory over N -------------------------------------------------------------------------------------
@settings(max_examples=20, deadline=None)
@given(
    st.integers(1, 4), st.integers(1, 16), st.integers(1, 128), st.sampled_from(["naive", "fused", "flash"])
)
def test_the_last_n_that_fits_fits_and_the_next_does_not(B, H, d, name):
    s, rung = AttentionShape(B, H, 1, d), RUNGS[name]
    last = fits(rung, s, GPU.bytes)
    assert allocated(rung, s.with_(N=last)) <= GPU.bytes and attention_charts.runs(rung, s.with_(N=last))
    beyond = s.with_(N=last + 1)
    full = allocated(rung, beyond) > GPU.bytes or not attention_charts.runs(rung, beyond)
    assert full or last == attention_charts.MOST_N


def test_what_no_longer_fits_is_what_a_run_refuses_with_its_bytes(monkeypatch):
    """The chart and the runner count the same bytes."""
    monkeypatch.setattr("kernels.engines.cpu.free_bytes", lambda: 10**13)
    rung = RUNGS["naive"]
    last = fits(rung, LARGE, GPU.bytes)
    engine = type("Engine", (), {"free_bytes": staticmethod(lambda: GPU.bytes)})
    monkeypatch.setattr("kernels.engines.load", lambda name: engine if name == "cuda" else type("Host", (), {"free_bytes": staticmethod(lambda: 10**13)}))  # fmt: skip
    check_memory("cuda", LARGE, [rung.build(LARGE.with_(N=last), rung.default_tiles)])
    there = LARGE.with_(N=last + 1)
    with pytest.raises(ValueError, match=f"needs {allocated(rung, there):,} bytes of memory"):
        check_memory("cuda", there, [rung.build(there, rung.default_tiles)])


def test_rungs_that_allocate_alike_share_a_line_and_a_rule_ends_one():
    chart = chart_of(LADDER.rungs, LARGE, (HERE, GPU))
    titles = [[rung.name.partition("/")[2] for rung in line.rungs] for line in chart.lines]
    assert titles == [["naive", "blocked", "cublas"], ["fused"], ["flash", "flash-registers"]]
    ends = [line.last for line in chart.lines]
    assert ends[0] is None and ends[2] is None and ends[1] == fits(RUNGS["fused"], LARGE, 10**18)
    assert chart.rooms == (GPU, HERE) and chart.right >= 4 * fits(RUNGS["naive"], LARGE, GPU.bytes)


@pytest.mark.parametrize("tokens", [LIGHT, DARK])
def test_the_figure_holds_what_is_allocated_and_each_room(tokens):
    chart = chart_of(LADDER.rungs, LARGE, (GPU, HERE))
    figure = memory(chart, tokens)
    drawn = [trace for trace in figure.data if trace.mode == "lines"]
    assert [trace.name for trace in drawn] == [line.title for line in chart.lines]
    for trace, line in zip(drawn, chart.lines, strict=True):
        assert LARGE.N in trace.x
        assert list(trace.y) == [allocated(line.rungs[0], LARGE.with_(N=N)) for N in trace.x]
    across = {shape.y0 for shape in figure.layout.shapes if shape.y0 == shape.y1}
    assert across == {GPU.bytes, HERE.bytes}
    assert [a.text for a in figure.layout.annotations] == ["a GPU: 150 GB", "a processor: 16 GB"]
    (here,) = (shape.x0 for shape in figure.layout.shapes if shape.x0 == shape.x1)
    assert here == LARGE.N


def test_the_words_say_where_each_room_ends():
    text = " ".join(words(chart_of(LADDER.rungs, LARGE, (GPU, HERE))))
    naive, flash = RUNGS["naive"], RUNGS["flash"]
    assert "At N = 2,048 naive allocates 2.28 GB, 17 times the 134 MB of flash attention" in text
    for room in (GPU, HERE):
        assert f"from N = {fits(naive, LARGE, room.bytes) + 1:,} on naive no longer fits" in text
        assert f"flash attention fits up to N = {fits(flash, LARGE, room.bytes):,}" in text
    assert "ends at N = 57,792: 4*(N + d + BLOCK) bytes of shared memory" in text


def test_a_type_that_no_rung_takes_has_no_chart_and_where_all_allocate_alike_none_is_hungriest():
    fp32 = [RUNGS[name] for name in ("naive", "fused", "flash")]
    assert chart_of(fp32, LARGE.with_(dtype="fp16"), (GPU,)) is None
    text = " ".join(words(chart_of([RUNGS["naive"]], LARGE, (GPU,))))
    assert "times the" not in text and "no longer fits" in text


def test_the_recorded_gpu_has_a_room():
    room = Room.of(memory_levels.recorded())
    assert room.device == "NVIDIA H200" and 140e9 < room.bytes < 160e9


# -- measured ------------------------------------------------------------------------------------------
def row(name: str, s: AttentionShape = LARGE, ms: float = 1.0, spread: float = 0.01, **more) -> dict:
    rung = RUNGS[name]
    program = rung.build(s, rung.default_tiles)
    return a_full_row(
        rung=rung.name, shape=s.params(), tiles=rung.default_tiles, flops=s.flops, median_ms=ms, p20_ms=ms * (1 - spread),
        p80_ms=ms * (1 + spread), predicted_bytes=rung.cost(s, program).bytes, **({"engine": "cuda", "device": "a GPU",
        "peak_bytes": program.nbytes()} | more),
    )  # fmt: skip


def rows_of(*rows: dict) -> dict[str, dict]:
    return {r["rung"]: r for r in rows}


def test_dots_are_a_gpus_peaks_at_these_heads_and_this_type():
    longer = LARGE.with_(N=8192)
    told = dots(
        [
            row("naive"), row("naive", peak_bytes=7), row("flash", longer), row("flash", LARGE.with_(causal=1, N=512)),
            row("naive", LARGE.with_(H=1)), row("naive", LARGE.with_(N=99), engine="cpu"), a_full_row(),
        ],
        LARGE, "recorded",
    )  # fmt: skip
    assert [(dot.rung, dot.N) for dot in told] == [
        ("attention/naive", 2048), ("attention/flash", 8192), ("attention/flash", 512),
    ]  # fmt: skip
    assert told[0].bytes == told[0].predicted == allocated(RUNGS["naive"], LARGE)
    assert len({*told, *told}) == 3  # pages keep charts by them
    chart = chart_of(LADDER.rungs, LARGE, (GPU,), told)
    (marks,) = [t for t in memory(chart, LIGHT).data if t.mode == "markers" and "recorded" in t.hovertemplate]
    assert list(marks.x) == [2048, 8192, 512]
    assert "All 3 measured peaks that have a prediction equal it to the byte." in words(chart)


def test_the_farthest_peak_is_told():
    there = LARGE.with_(N=8192)
    off = row("naive", there, peak_bytes=round(allocated(RUNGS["naive"], there) * 1.02))
    chart = chart_of(LADDER.rungs, LARGE, (GPU,), dots([row("flash"), off], LARGE, "recorded"))
    assert "the farthest from it is naive’s at N = 8,192" in words(chart)[-1]
    assert "2 % more" in words(chart)[-1]


# -- the story -----------------------------------------------------------------------------------------
def test_nothing_is_said_without_flash_attention():
    assert attention_gain({}) == "" and attention_gain(rows_of(row("naive"), row("cublas"))) == ""


def test_a_gain_is_against_the_fastest_with_s_and_p_and_against_the_library():
    text = attention_gain(rows_of(
        row("naive", ms=9.0), row("blocked", ms=4.0), row("flash", ms=2.0), row("flash-registers", ms=1.0),
        row("cublas", ms=3.0), row("library", ms=0.5),
    ))  # fmt: skip
    assert "Flash attention, register tiles is 3 times as fast as cuBLAS + our softmax" in text
    assert "reaches 50 % of the speed of PyTorch (memory-efficient)" in text and "loses" not in text


def test_a_loss_says_what_there_was_to_save():
    small = AttentionShape(1, 4, 128, 32)
    lost = attention_gain(rows_of(row("naive", small, 1.0), row("flash", small, 2.0)))
    assert "Flash attention loses here: it takes 2 times as long as naive" in lost
    assert (
        "S and P take 524 KB and fit in its caches (33.6 MB)" in lost
        and "Its 16 blocks walk over up to 4 tiles" in lost
    )
    far = attention_gain(rows_of(row("naive", ms=20.0), row("flash", ms=40.0)))
    saved = (row("naive")["predicted_bytes"] - row("flash")["predicted_bytes"]) / CEILINGS["copy_bytes_per_s"]
    assert (
        f"to move them takes {saved * 1e3:.3g} ms" in far
        and f"{100 * saved / 0.02:.0f} % of that time" in far
    )


def test_on_a_processor_a_loss_is_told_by_its_tiles():
    s = AttentionShape(1, 4, 1024, 32)
    text = attention_gain(rows_of(row("naive", s, 1.0, engine="cpu"), row("flash", s, 2.0, engine="cpu")))
    assert "the tiles (4,096 of 32 × 32, if none is hidden) are a handful of NumPy calls each" in text


def test_overlapping_spreads_are_no_gain():
    text = attention_gain(rows_of(row("naive", ms=1.0, spread=0.2), row("flash", ms=0.9, spread=0.2)))
    assert "cannot be told apart" in text and "times as" not in text


@given(st.integers(1, 8), st.integers(1, 16), st.integers(1, 9000), st.integers(1, 128), st.integers(0, 1))
def test_the_cost_tells_s_and_p_and_what_flash_pays(B, H, N, d, causal):
    s = AttentionShape(B, H, N, d, causal)
    text = attention_cost(s)
    assert f"S and P take {attention_story.units.bytes_(8 * B * H * N * N)}" in text
    assert f"({-(-N // 32):,} a head)" in text and ("Causal, queries see" in text) == bool(causal)


def test_of_16_bits_p_takes_half_of_s():
    assert attention_story.squares(LARGE.with_(dtype="fp16")) == 6 * 64 * 2048**2
    assert "128 × 64 scores" in attention_cost(LARGE.with_(dtype="bf16"))


def test_examples_are_computed_from_recordings(monkeypatch):
    from kernels import records

    gpt2, bert = ATTENTION_PRESETS["gpt2"].shape, ATTENTION_PRESETS["bert"].shape
    ms = {(gpt2, "naive"): 3.0, (gpt2, "flash"): 1.0, (bert, "cublas"): 1.0, (bert, "flash-registers"): 2.0}
    monkeypatch.setattr(
        records, "recorded", lambda name, s, tiles, *rest: (t := ms.get((s, name.partition("/")[2]))) and row(name.partition("/")[2], s, t)
    )  # fmt: skip
    found = attention_story.attention_examples.__wrapped__()
    assert [text for _, text in found] == ["GPT-2: 3×", "BERT: 0.5×"]


# -- what the stage computes with ----------------------------------------------------------------------
@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_finite_and_the_same_each_time(kind):
    s = AttentionShape(2, 3, 21, 5)
    one, two = qkv(s, kind), qkv(s, kind)
    for name in "QKV":
        assert one[name].shape == (1, 1, 21, 5) and one[name].dtype == np.float32
        assert np.isfinite(one[name]).all() and (one[name] == two[name]).all()


@pytest.mark.parametrize("causal", [0, 1])
def test_large_scores_overflow_without_the_maximum_and_are_finite_with_it(causal):
    s = AttentionShape(1, 1, 16, 4, causal)
    given_ = qkv(s, "large")
    scores = s.factor * given_["Q"][0, 0] @ given_["K"][0, 0].T
    assert np.abs(scores).max() == pytest.approx(LARGEST)
    with np.errstate(over="ignore"):
        assert np.isinf(np.exp(scores.astype(np.float32))).any()
    out = run("attention/flash", s, given_, engine="emulator", tiles={"Br": 4, "Bc": 8}).output
    assert np.isfinite(out).all()


def test_a_lookup_gives_the_value_asked_for():
    s = AttentionShape(1, 1, 16, 4)
    given_ = qkv(s, "lookup")
    out, _ = reference(s, **given_)
    assert out[0, 0] == pytest.approx(given_["V"][0, 0, ::-1])
