"""The strip says what the rows behind it say: times, comparisons, memory, limits; and nothing where nothing was measured."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import records
from kernels.attention.presets import ATTENTION_PRESETS
from kernels.gemm.shape import GemmShape
from kernels.ladders import LADDERS, find, ladder_of
from kernels.records import files
from kernels.records.statistics import same_time, within_ratio, within_spread
from tests.helpers.offenders import over
from visuals import units
from visuals.charts import products, roofline
from visuals.strip import limits as limits_module
from visuals.strip.evidence import Evidence
from visuals.strip.facts import FASTER, SAME, SLOWER, against, facts, faster_than, limited_by, short
from visuals.strip.limits import LAUNCH, LIMIT, NEAR, limiting
from visuals.strip.memory import memory
from visuals.strip.strip import Run, Size, strip
from visuals.strip.times import MAX_BARS, neighbours

LADDER = LADDERS["gemm"]
SHAPES = [
    GemmShape(n, n, n, dtype=dtype) for n, dtype in ((64, "fp32"), (1024, "fp32"), (4096, "fp32"), (4096, "fp16"))
]


def evidence(shape: Any, name: str) -> Evidence:
    rung, ladder = find(name), ladder_of(name)
    rows = {r.name: records.recorded(r.name, shape, r.default_tiles, "cold") for r in ladder.rungs}
    return Evidence(ladder, rung, shape, str(shape), rung.default_tiles, {n: row for n, row in rows.items() if row})


def recorded_rungs() -> list[tuple[GemmShape, str]]:
    return [(shape, name) for shape in SHAPES for name in evidence(shape, "gemm/naive").rows]


@over([(f"{shape} {name}", (shape, name)) for shape, name in recorded_rungs()])
def test_figures_are_those_of_the_rows(case: tuple[GemmShape, str]) -> None:
    known, name = evidence(*case), case[1]
    (size,) = strip([Size("stage", known)], "stage", Run())["sizes"]
    row = known.rows[name]
    assert size["time"]["value"] == units.time_(row["median_ms"])
    assert f"n = {row['n']}" in size["time"]["badge"]["text"] and size["time"]["badge"]["kind"] == "recorded"
    hint = size["time"]["badge"]["hint"]
    assert f"median of {row['n']} runs" in hint and f"({row['mode']})" in hint
    assert all(line["hint"] for line in size["limits"]["rows"][:3])
    bars = size["time"]["bars"]
    assert 1 <= len(bars) <= MAX_BARS and [bar["current"] for bar in bars].count(True) == 1
    assert all(0 < bar["low"] <= bar["share"] <= bar["high"] <= 1 for bar in bars)
    parts = size["memory"]["parts"]
    assert sum(part["share"] for part in parts) == pytest.approx(1)
    assert {part["role"]: part["text"] for part in parts} == {
        role: units.bytes_(row[f"{role}_bytes"]) for role in ("input", "output", "workspace") if row[f"{role}_bytes"]
    }
    assert units.bytes_(row["peak_bytes"]) in size["memory"]["badge"]["text"]
    for line in size["limits"]["rows"]:
        assert line["share"] is None or 0 <= line["share"] <= 1


def test_the_share_of_the_workspace_is_that_of_all_memory() -> None:
    known = evidence(GemmShape(64, 64, 64), "gemm/naive")
    others = known.row["input_bytes"] + known.row["output_bytes"]
    row = known.row | {"workspace_bytes": 3 * others, "peak_bytes": 4 * others}
    assert units.share(3 / 4) in memory(replace(known, rows={known.rung.name: row}))["text"]


@over([(f"{shape} {name}", (shape, name)) for shape, name in recorded_rungs()])
def test_comparison_is_never_against_the_rows(case: tuple[GemmShape, str]) -> None:
    known, name = evidence(*case), case[1]
    text = strip([Size("stage", known)], "stage", Run())["sizes"][0]["time"]["text"]
    own = known.rows[name]
    named = [r for r in known.rows.values() if f"{find(r['rung']).title}" in text.partition(". ")[0] and r is not own]
    if "spreads overlap" in text:
        assert any(within_spread(own, row) for row in named)
    elif "within 5 %" in text:
        assert any(within_ratio(own, row) for row in named)
    elif "× the time of" in text:
        assert any(own["median_ms"] > row["median_ms"] for row in named)
    elif "× as fast as" in text:
        assert any(own["median_ms"] < row["median_ms"] for row in named)


OURS_FP32 = [rung.name for rung in LADDER.rungs if not rung.library]


def test_neighbours_keep_the_ladders_order_and_hold_our_fastest_and_the_library() -> None:
    known = evidence(SHAPES[2], "gemm/vectorized")
    names = [row["rung"] for row in neighbours(known)]
    order = [rung.name for rung in LADDER.rungs]
    ours = min((known.rows[name]["median_ms"], name) for name in OURS_FP32 if name in known.rows)[1]
    assert names == sorted(names, key=order.index)
    assert {"gemm/vectorized", "gemm/register-tile-2d", ours, "gemm/cublas"} == set(names)


def test_our_fastest_is_named_as_such() -> None:
    known = evidence(GemmShape(4096, 4096, 4096, dtype="fp16"), "gemm/mma-sync")
    (size,) = strip([Size("real", known)], "real", Run())["sizes"]
    tags = {bar["tag"]: bar["title"] for bar in size["time"]["bars"] if bar["tag"]}
    ours = min((row["median_ms"], name) for name, row in known.rows.items() if not find(name).library)[1]
    assert tags == {"our fastest": find(ours).title}  # cuBLAS has its name in the title


def test_without_the_kernels_of_later_chapters_it_is_the_fastest_so_far() -> None:
    known = replace(evidence(SHAPES[2], "gemm/naive"), hides_fastest=True)
    (size,) = strip([Size("real", known)], "real", Run())["sizes"]
    assert {bar["tag"] for bar in size["time"]["bars"] if bar["tag"]} == {"fastest so far"}


def test_a_library_whose_title_is_a_function_is_named_as_such() -> None:
    row = next(row for _, row in files.read() if row["rung"] == "gemm-8bit/torch-int8")
    ladder = LADDERS["gemm-8bit"]
    rung, shape = ladder.rung(row["rung"]), ladder.shape(**row["shape"])
    known = Evidence(ladder, rung, shape, str(shape), {}, {rung.name: row})
    (size,) = strip([Size("real", known)], "real", Run())["sizes"]
    assert [(bar["tag"], bar["title"]) for bar in size["time"]["bars"]] == [("library", "torch._int_mm")]


def test_a_kernel_of_ours_alone_is_not_named_the_fastest() -> None:
    known = evidence(SHAPES[2], "gemm/naive")
    rows = {name: known.rows[name] for name in ("gemm/naive", "gemm/cublas")}
    (size,) = strip([Size("real", replace(known, rows=rows))], "real", Run())["sizes"]
    assert [bar["tag"] for bar in size["time"]["bars"]] == ["", ""]


def test_neighbours_of_our_last_kernel_are_ours_and_the_fastest_library() -> None:
    known = evidence(SHAPES[2], "gemm/warp-tile")
    shown = ["gemm/bank-free", "gemm/double-buffer", "gemm/warp-tile", "gemm/cublas"]
    rows = {name: row for name, row in known.rows.items() if name in (*shown, "gemm/cublas-tf32")}
    assert [row["rung"] for row in neighbours(replace(known, rows=rows))] == shown


def test_without_a_row_nothing_is_measured() -> None:
    known = replace(evidence(SHAPES[0], "gemm/naive"), rows={})
    (size,) = strip([Size("stage", known)], "stage", Run())["sizes"]
    assert size["time"]["value"] == "–" and size["time"]["badge"] is None and not size["time"]["bars"]
    assert "No recording exists" in size["time"]["text"]
    assert size["memory"]["badge"]["kind"] == "predicted"
    assert all(line["share"] is None for line in size["limits"]["rows"])


def test_sectors_are_those_that_were_counted() -> None:
    totals = {"sectors_ld": 260.0, "requests_ld": 100.0}
    known = replace(evidence(SHAPES[0], "gemm/naive"), totals=totals)
    line = strip([Size("stage", known)], "stage", Run())["sizes"][0]["limits"]["rows"][3]
    assert line["text"] == "2.6" and line["share"] == pytest.approx(2.6 / 32)


SHARE = st.floats(0, 2)


@settings(max_examples=25)
@given(st.fixed_dictionaries({}, optional={"launch": SHARE, "memory": SHARE, "arithmetic": SHARE}))
def test_the_limit_is_the_largest_ceiling_that_is_near_else_launches(shares: dict[str, float]) -> None:
    limit = limiting(shares)
    ceilings = {name: share for name, share in shares.items() if name != "launch"}
    if ceilings and max(ceilings.values()) >= NEAR:
        assert shares[limit] == max(ceilings.values())
    elif shares.get("launch", 0) >= LAUNCH:
        assert limit == "launch"
    else:
        assert limit == ""


def limits_of(known: Evidence) -> dict:
    return strip([Size("real", known)], "real", Run())["sizes"][0]["limits"]


def test_a_kernel_on_tensor_cores_is_compared_with_the_fastest_recorded_product() -> None:
    """No ceiling of the strip is that of the tensor cores."""
    shape = GemmShape(4096, 4096, 4096, dtype="fp16")
    known = evidence(shape, "gemm/wgmma-turns")
    product = products.beside(known.row)
    share = units.share(products.rate(known.row) / product.flops_per_s)
    found = limits_of(known)
    assert found["text"] == f"It reaches {share} of the fastest FP16 product recorded on this GPU ({product.text})."
    line = found["rows"][2]
    assert (line["label"], line["text"], line["main"]) == ("arithmetic (FP16)", share, True)
    assert "was not measured" in line["hint"]
    slow = replace(known, rows={known.rung.name: known.row | {"median_ms": 2 * known.row["median_ms"]}})
    assert not limits_of(slow)["rows"][2]["main"]
    best = replace(known, rows={known.rung.name: product.row})
    assert limits_of(best)["text"] == f"No faster FP16 product is recorded on this GPU: {product.text}."


def test_a_kernel_on_tensor_cores_nearer_to_the_rate_of_memory_is_not_compared_with_a_product() -> None:
    """One query over 8,192 keys: hardly any operations for its bytes."""
    shape = ATTENTION_PRESETS["llama-decode"].shape
    found = limits_of(evidence(shape, "attention/flash-decode"))
    assert found["rows"][1]["share"] > found["rows"][2]["share"]
    assert found["text"] == "It is far from every ceiling."
    assert "product recorded" in found["rows"][2]["hint"]


@pytest.mark.parametrize(
    ("rung", "device", "sentence"),
    [
        ("gemm/naive", "NVIDIA H200", "It is far from every ceiling."),
        (
            "gemm/cublas-tf32",
            "NVIDIA H200",
            "It uses tensor cores. The peak of tensor cores on this GPU was not measured.",
        ),
        ("gemm/naive", "another GPU", "It is far from every ceiling."),
    ],
)
def test_units_without_a_measured_rate_are_named(rung, device, sentence) -> None:
    known = evidence(GemmShape(4096, 4096, 4096), rung)
    known = replace(known, rows={rung: known.row | {"device": device}})
    assert limits_of(known)["text"] == sentence


SOFTMAX = ladder_of("softmax/unsafe").shape(M=32768, N=1024)


def test_a_kernel_that_moves_as_many_bytes_faster_disproves_the_limit() -> None:
    known = evidence(SOFTMAX, "softmax/unsafe")
    other = limits_module.rival(known)
    assert find(other["rung"]).title in limits_of(known)["text"]
    assert not any(row["main"] for row in limits_of(known)["rows"][:3])
    assert limited_by("real")({"real": known}) == 3  # none of these
    alone = replace(known, rows={known.rung.name: known.row})  # later chapters have the others
    assert "another kernel" in limits_of(alone)["text"]
    elsewhere = replace(alone, rows={known.rung.name: known.row | {"device": "another GPU"}})
    assert limited_by("real")({"real": elsewhere}) == 1


def test_a_kernel_near_the_rate_of_a_copy_is_limited_by_memory_bandwidth() -> None:
    known = evidence(SOFTMAX, "softmax/registers")
    assert limits_module.shares(known)["memory"] >= LIMIT
    assert limits_of(known)["text"] == limits_module.LIMITING["memory"]
    assert limited_by("real")({"real": known}) == 1
    slower = known.row | {"median_ms": known.row["median_ms"] * 1.15}
    near = replace(known, rows={known.rung.name: slower | {"device": "another GPU"}})
    assert limits_of(near)["text"] == limits_module.NEARING["memory"]


def test_the_strip_and_the_roofline_have_one_share_of_memory_bandwidth() -> None:
    for rung in ("softmax/unsafe", "softmax/three-pass", "softmax/registers"):
        known = evidence(SOFTMAX, rung)
        share = limits_module.shares(known)["memory"]
        assert roofline.Dot(1, "", known.row, "recorded").share_of(known.roof()) == share
        assert facts({"real": known})["real_memory"] == units.share(share)


def test_what_a_library_moves_inside_is_not_called_far_from_a_ceiling() -> None:
    known = evidence(GemmShape(64, 64, 64), "gemm/cublas")
    row = known.row | {"predicted_workspace_bytes": None, "median_ms": 100.0}
    assert "library" in limits_of(replace(known, rows={known.rung.name: row}))["text"]


def test_an_answer_within_five_percent_is_the_same_and_so_is_its_sentence() -> None:
    """Over all pairs of the recorded products: the right answer and the sentence beside it agree."""
    wrong = []
    for shape in SHAPES:
        known = evidence(shape, "gemm/naive")
        for name, row in known.rows.items():
            here = replace(known, rung=find(name))
            for other_name, other in known.rows.items():
                if other is row:
                    continue
                answer = against(other_name, "real")({"real": here})
                text = facts({"real": here})[f"real_against_{short(other_name)}"]
                words = {FASTER: "× as fast", SLOWER: "× the time", SAME: "As fast as"}[answer]
                ratio = max(row["median_ms"], other["median_ms"]) / min(row["median_ms"], other["median_ms"])
                if words not in text or (answer == SAME) != same_time(row, other) or (ratio <= 1.05 and answer != SAME):
                    wrong.append((name, other_name, answer, text))
    assert not wrong


def test_too_few_runs_have_no_right_answer() -> None:
    known = evidence(SHAPES[0], "gemm/naive")
    few = {"p20_ms": 0.5, "p80_ms": 2.0, "n": 3}
    rows = {
        "gemm/naive": known.row | few | {"median_ms": 1.0},
        "gemm/cublas": known.rows["gemm/cublas"] | few | {"median_ms": 1.3},
    }
    known = replace(known, rows=rows)
    assert against("gemm/cublas", "real")({"real": known}) is None
    assert "Too few runs" in facts({"real": known})["real_against_cublas"]
    assert faster_than("real", "gemm/cublas")({"real": known}) is None


def test_tile_sizes_that_are_not_on_the_stage_are_named() -> None:
    known = evidence(SHAPES[0], "gemm/shared-tile")
    same = Size("real", known), Size("stage", known)
    assert [size["shape"] for size in strip(same, "real", Run())["sizes"]] == [known.shape_text] * 2
    watched = Size("stage", replace(known, tiles={"BM": 8, "BN": 8, "BK": 4}))
    real, stage = strip([Size("real", known), watched], "real", Run())["sizes"]
    sizes = known.rung.default_tiles
    assert real["shape"] == f"{known.shape_text}, BM {sizes['BM']}, BN {sizes['BN']}, BK {sizes['BK']}"
    assert stage["shape"] == known.shape_text


def test_a_shape_too_large_to_count_shows_the_sectors_of_the_stage_and_says_so() -> None:
    toy = replace(evidence(SHAPES[0], "gemm/naive"), totals={"requests_ld": 4, "sectors_ld": 26})
    real = replace(evidence(SHAPES[2], "gemm/naive"), counting="Too large to count.")
    at_real, at_toy = (
        size["limits"]["rows"][-1] for size in strip([Size("real", real), Size("stage", toy)], "real", Run())["sizes"]
    )
    assert (at_toy["label"], at_toy["text"]) == ("sectors per load", "6.5")
    assert (at_real["label"], at_real["text"], at_real["share"]) == ("sectors, on the stage", "6.5", 6.5 / 32)
    assert toy.shape_text in at_real["hint"] and "Too large to count." in at_real["hint"]
    (alone,) = strip([Size("real", real)], "real", Run())["sizes"]
    assert alone["limits"]["rows"][-1]["text"] == "–"


def test_a_disturbed_time_is_marked_beside_the_figure() -> None:
    known = evidence(SHAPES[0], "gemm/naive")
    rows = {name: row | {"disturbed": "cores"} for name, row in known.rows.items()}
    sizes = [Size("stage", known), Size("real", replace(known, rows=rows))]
    quiet, disturbed = strip(sizes, "stage", Run())["sizes"]
    assert quiet["disturbed"] == "" and disturbed["disturbed"] == "disturbed: other programs used the cores"
