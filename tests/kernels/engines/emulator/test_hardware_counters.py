"""The emulator's memory counters equal Nsight Compute's in every measured case."""

from __future__ import annotations

import csv
import io
import itertools
import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from benchmarks import hardware_cases_rungs, hardware_cases_teaching, hardware_cases_wmma
from benchmarks import hardware_counters as bench
from benchmarks.hardware_case import Case
from benchmarks.hardware_cases import EXCLUDED, named, unmeasured
from benchmarks.hardware_sass import memory_instructions
from kernels import sources
from kernels.conv.shape import ConvShape
from kernels.engines.emulator.compiler import compile as compiler
from kernels.engines.emulator.counters import FIELDS, PTX_PER_MACHINE
from kernels.gemm.shape import GemmShape
from kernels.ladders import LADDERS
from kernels.model.program import Launch

FIXTURE = Path(__file__).parents[3] / "fixtures" / "hardware_counters_h200.json"
DOCUMENT = Path(__file__).parents[4] / "docs" / "emulator.md"
MEASURE_AGAIN = "measure it on a GPU: python benchmarks/hardware_counters.py measure counters.json"

# Counters of a source, or of one case of it, that differ from the hardware's, and why. Each must still differ in one of
# its cases, so that this list stays current.
COPY_WAVEFRONTS = (
    "Data of cp.async take more passes than the banks ask for, by which cache lines they come from. No rule was "
    "found: 448 requests alike in lanes, banks and places in their lines take 5.5 passes on average, not 4."
)
UNALIGNED_SECTORS = (
    "cp.async past L1, from rows that begin in the middle of a sector: 2,808 sectors where the lanes touch 2,592, "
    "312 where they touch 288, 456 where they touch 472, 2,356 where they touch 2,584. No rule was found."
)
EXTRA_SECTORS = (
    "cp.async past L1, mostly from rows that begin with a sector: 4 to 24 in a hundred more than the lanes touch, "
    "most where most passes more are taken to write them. No rule was found."
)
EXTRA_WAVEFRONTS = (
    "A few passes more, all of them called conflicts, that no address asks for: the same loads take 2 of them "
    "with fp16 and 1 with bf16, 4 before one transform and 5 before another, none when measured again; two "
    "measurements of one text on one device differ by up to 79 of 106,000."
)
BESIDE_COPIES = (
    "A few passes more, all of them called conflicts, that no address asks for, in kernels whose copies (TMA or "
    "cp.async) write shared memory too. Up to 26 in a thousand of many passes, 22 of 256, 4 of 8. The emulator counts "
    "each access as if it were alone."
)
REMOTE_LOADS = (
    "Passes more, all of them called conflicts, in kernels whose blocks load from each other's shared memory: 9, 12 and "
    "27 in a hundred. As if loads of other blocks took turns with the block's own; the emulator counts only those."
)
BESIDE_PRODUCTS = (
    "Up to about twice the passes that the addresses ask for, of loads and stores while wgmma reads shared memory. "
    "Most are not called conflicts. The emulator counts each access as if it were alone."
)
# Wavefronts that any case may have more, and the share of all wavefronts that a larger case may.
MAX_EXTRA = {EXTRA_WAVEFRONTS: (20, 0.006), BESIDE_COPIES: (22, 0.026), REMOTE_LOADS: (0, 0.27)}
MOVED_LOADS = "ptxas moves loads behind the test which warps have anything to write: the others never load."
UNROLLED_LOOPS = (
    "ptxas unrolls both loops that fetch (nine stores to shared memory in machine code, three in PTX): lanes "
    "with one turn and lanes with two go through different copies of a load and a store."
)
UNROLLED_SUM = (
    "ptxas unrolls the loop that adds up a plane further (29 loads in machine code, 5 in PTX): lanes with 32 turns and "
    "lanes with 31 go through different copies of 16 loads. The passes are as many, but halves of a warp conflict less."
)
UNROLLED_CASE = "global-avg-pool-global_tile-planes64-share2-N3-C37-9x7"
PARTIAL_TILE = "global-avg-pool-global_bulk-planes32-share4-N3-C37-9x7"
MORE_PASSES = "882 passes of loads, 714 by the addresses, none called a conflict. The machine code was not read."
CONTENDED_ADDS = (
    "Four warps add floats to one word at a time: the swap of one fails because of another. Two measurements had 490 and "
    "502 loads of the word, where warps that take turns have 128."
)
MERGED_STORES = (
    "ptxas merges neighbouring stores of 4 bytes into one of 8 or 16, which takes fewer passes. The sm_90 machine code of "
    "ptxas 13.0 has these. The emulator merges loads only."
)
FEWER_LOADS = (
    "Fewer requests than in PTX, and each misses one sector: as if ptxas left out loads whose values no lane of a warp "
    "uses, or that repeat one before. The machine code was not read."
)
FEWER_CONFLICTS = (  # of cp.async: 556 on the hardware, 564 by the banks; its passes are more, as in COPY_WAVEFRONTS
    "attention-backward-flash_mma_keys-bf160-bc64-br128-dp48-stages2-wm16-B1-H2-N61-d40-fp16"
)
# Sources whose extra wavefronts count as conflicts, and all that copy by cp.async.
CONFLICT_SOURCES = (
    "gemm/08_double_buffer.cu",
    "gemm/09_warp_tile.cu",
    "gemm/11_mma_sync.cu",
    "gemm/20_register_pipeline.cu",
    "gemm/21_grouped_order.cu",
    "fusion/implicit_conv_bias_bn_relu_add.cu",
    "conv/05_implicit_gemm_plain.cu",
    "conv/06_implicit_gemm.cu",
    "conv/10_fft_multiply.cu",
    "conv/24_dinput_implicit_gemm.cu",
    "conv/27_dweight_atomics.cu",
    "conv/28_dweight_implicit_gemm.cu",
    "conv/32_dweight_winograd_product.cu",
    "linear/02_linear_tile.cu",
    "linear/05_dinput_tile.cu",
    "linear/08_dweight_tile.cu",
    "attention/12_flash_mma_keys.cu",
)
FLASH = (
    "attention/05_flash_registers.cu",
    "attention/06_flash_mma.cu",
    "attention/10_flash_backward.cu",
    "attention/11_flash_keys.cu",
    "attention/11_flash_queries.cu",
    "attention/12_flash_mma_keys.cu",
    "attention/12_flash_mma_queries.cu",
    "attention/14_flash_registers_lse.cu",
    "attention/30_flash_variants.cu",
    "attention/31_flash_mma_variants.cu",
)
COPY_SOURCES = (
    *CONFLICT_SOURCES,
    *FLASH,
    "conv/08_winograd_fused.cu",
    "conv/09_winograd_product.cu",
    "conv/40_half_implicit_gemm.cu",
    "conv/52_fft_tiled_product.cu",
    "gemm/30_mma_bytes.cu",
)
# Sources with extra wavefronts, and their operations.
EXTRA_SOURCES = (
    ("gemm/11_mma_sync.cu", ("ld",)),
    ("attention/03_fused.cu", ("ld", "st")),
    ("attention/05_flash_registers.cu", ("ld", "st")),
    ("attention/09_recompute_keys.cu", ("ld",)),
    ("attention/09_recompute_queries.cu", ("ld",)),
    ("attention/12_flash_mma_keys.cu", ("ld",)),
    ("attention/12_flash_mma_queries.cu", ("ld",)),
    ("attention/14_flash_registers_lse.cu", ("ld", "st")),
    ("cross_entropy/06_split_rows.cu", ("ld",)),
    ("cross_entropy/11_shared_row.cu", ("ld",)),
    ("attention/30_flash_variants.cu", ("ld",)),
    ("attention/31_flash_mma_variants.cu", ("ld",)),
    ("attention/32_decode_parts.cu", ("ld",)),
    ("softmax/07_split_parts.cu", ("ld",)),
)
BESIDE_COPIES_SOURCES = (
    ("gemm/17_wgmma_store.cu", ("st",)),
    ("gemm/18_wgmma_cluster.cu", ("st",)),
    ("gemm/22_transposed_ring.cu", ("st",)),
    ("gemm/30_mma_bytes.cu", ("ld",)),
    ("gemm/31_wgmma_bytes.cu", ("st",)),
    ("gemm/33_wgmma_promoted.cu", ("st",)),
    ("attention/25_flash_wgmma_keys.cu", ("st",)),
    ("attention/35_decode_ring.cu", ("ld", "st")),
    ("conv/52_fft_tiled_product.cu", ("ld",)),
)
REMOTE_SOURCES = (("softmax/06_cluster.cu", ("ld",)), ("conv/44_half_halo_split.cu", ("ld",)))
KNOWN: dict[tuple[str, str], str] = {
    **{(source, "wavefronts_copied"): COPY_WAVEFRONTS for source in COPY_SOURCES},
    **{(source, "bank_conflicts_copied"): COPY_WAVEFRONTS for source in CONFLICT_SOURCES},
    **{
        (source, "sectors_ld"): UNALIGNED_SECTORS
        for source in ("gemm/11_mma_sync.cu", "gemm/30_mma_bytes.cu", "conv/09_winograd_product.cu")
    },
    **{
        (source, "sectors_ld"): EXTRA_SECTORS
        for source in (*FLASH, "conv/52_fft_tiled_product.cu", "linear/05_dinput_tile.cu", "linear/08_dweight_tile.cu")
    },
    **{
        (source, "wavefronts_st"): MERGED_STORES
        for source in (
            "cross_entropy/01_softmax_rows.cu",
            "cross_entropy/04_two_pass.cu",
            "cross_entropy/05_online.cu",
            "cross_entropy/06_split_rows.cu",
            "cross_entropy/10_fused_step.cu",
            "cross_entropy/11_shared_row.cu",
            "norm/06_bn_partial_nhwc.cu",
            "softmax/07_split_parts.cu",
            "conv/44_half_halo_split.cu",
        )
    },
    **{
        (source, "bank_conflicts_st"): MERGED_STORES
        for source in ("norm/06_bn_partial_nhwc.cu", "conv/44_half_halo_split.cu")
    },
    **{
        (source, counter): FEWER_LOADS
        for source in (
            "attention/08_softmax_gradient.cu",
            "embedding/09_sum_tokens.cu",
            "norm/01_bn_two_pass.cu",
            "norm/02_bn_welford.cu",
            "norm/03_bn_sums.cu",
            "norm/05_bn_apply.cu",
            "norm/08_bn_apply_nhwc.cu",
            "norm/28_ln_backward_registers.cu",
        )
        for counter in ("requests_ld", "sectors_ld")
    },
    **{
        (source, counter): reason
        for reason, sources_and_ops in (
            (EXTRA_WAVEFRONTS, EXTRA_SOURCES),
            (BESIDE_COPIES, BESIDE_COPIES_SOURCES),
            (REMOTE_LOADS, REMOTE_SOURCES),
        )
        for source, ops in sources_and_ops
        for op in ops
        for counter in (f"wavefronts_{op}", f"bank_conflicts_{op}")
    },
    **{
        (source, counter): reason
        for source in ("conv/07_winograd_filter.cu", "conv/08_winograd_fused.cu", "conv/30_dinput_winograd_filter.cu")
        for counter, reason in (
            ("wavefronts_ld", f"{MOVED_LOADS} {EXTRA_WAVEFRONTS}"),
            ("bank_conflicts_ld", EXTRA_WAVEFRONTS),
        )
    },
    **{("conv/08_winograd_fused.cu", counter): EXTRA_WAVEFRONTS for counter in ("wavefronts_st", "bank_conflicts_st")},
    **{
        (source, counter): BESIDE_PRODUCTS
        for source, counters in (
            ("gemm/23_tf32x3.cu", ("wavefronts_ld", "wavefronts_st", "bank_conflicts_st")),
            ("attention/24_flash_wgmma_queries.cu", ("wavefronts_ld",)),
            ("attention/25_flash_wgmma_keys.cu", ("wavefronts_ld",)),
        )
        for counter in counters
    },
    ("pooling/15_global_tile.cu", "bank_conflicts_ld"): UNROLLED_SUM,
    (PARTIAL_TILE, "wavefronts_ld"): MORE_PASSES,
    ("shared-add-float32-128-block128-share128-stride1", "wavefronts_ld"): CONTENDED_ADDS,
    **{
        ("conv/04_direct_tiled.cu", counter): UNROLLED_LOOPS
        for counter in ("requests_ld", "sectors_ld", "wavefronts_st", "bank_conflicts_st")
    },
}

needs_nvrtc = pytest.mark.skipif(compiler.version() is None, reason="NVRTC is not installed here")


@cache
def measured() -> dict:
    assert FIXTURE.exists(), f"{FIXTURE} is missing: {MEASURE_AGAIN}"
    fixture = json.loads(FIXTURE.read_text(encoding="utf-8"))
    return {row["case"]: row for row in fixture["cases"]}


@cache
def emulated(name: str) -> bench.Emulated:
    return bench.emulate(bench.cases()[name])


# -- hardware and emulator --------------------------------------------------------------------------------
def compared_counters(name: str) -> dict[str, tuple[float, int]]:
    """Returns (hardware, emulator) of each counter."""
    assert name in measured(), f"{name} was not measured: {MEASURE_AGAIN}"
    metrics, got = measured()[name]["metrics"], emulated(name)
    return {counter: (bench.hardware(metrics, counter), got.counted(counter)) for counter in bench.COMPARED}


def topic_of(name: str) -> str:
    """Returns the folder of a case's source, "" of a kernel in one of the case files."""
    return bench.cases()[name].launch.source.rpartition("/")[0]


def unequal(name: str) -> dict[str, tuple[float, int]]:
    return {counter: pair for counter, pair in compared_counters(name).items() if pair[0] != pair[1]}


CASES = [name for name, case in bench.cases().items() if case.launch.source not in unmeasured()]
LISTED = [
    case
    for module in (hardware_cases_rungs, hardware_cases_teaching, hardware_cases_wmma)
    for listed in vars(module).values()
    if isinstance(listed, tuple)
    for case in listed
    if isinstance(case, Case)
]


def test_every_case_is_listed():
    assert set(bench.cases()) <= {case.name for case in LISTED}


def test_every_case_is_measured_or_excluded_with_a_reason():
    wrong = []
    for case in LISTED:
        reasons = [reason for prefix, reason in EXCLUDED.items() if case.launch.source.startswith(prefix)]
        waits = case.launch.source in unmeasured()
        if not all(reasons) or bool(reasons) == (case.name in bench.cases()):
            wrong.append(f"{case.name}: excluded, or a case, not both")
        if (bool(reasons) or waits) == (case.name in measured()):
            wrong.append(f"{case.name}: {'it is counted: its row says unmeasured' if waits else MEASURE_AGAIN}")
    assert wrong == []


def test_measurements_are_of_the_current_sources():
    wrong = []
    for name, row in measured().items():
        case = bench.cases().get(name)
        now = case and (case.digest, list(case.launch.grid), list(case.launch.block))
        if now != (row["digest"], row["grid"], row["block"]):
            wrong.append(f"{name} has changed: {MEASURE_AGAIN}")
    assert wrong == []


@needs_nvrtc
@pytest.mark.parametrize("topic", sorted({topic_of(name) for name in CASES}))
def test_outputs_and_memory_counters_of_every_case(topic):
    """Outputs equal the case's own, counters the hardware's, and copies take at least the counted wavefronts."""
    wrong = []
    for name in filter(lambda name: topic_of(name) == topic, CASES):
        case = bench.cases()[name]
        known = {counter for of, counter in KNOWN if of in (name, case.launch.source)}
        if differences := {counter: pair for counter, pair in unequal(name).items() if counter not in known}:
            wrong.append(f"{name}: (hardware, emulator) {differences}")
        if output := case.wrong(emulated(name).outputs):
            wrong.append(f"{name}: {output}")
        for counter in bench.COPIES if bench.is_patched(case) else ():
            hardware, counted = compared_counters(name)[counter]
            if hardware < counted and (name, counter) != (FEWER_CONFLICTS, "bank_conflicts_copied"):
                wrong.append(f"{name}: {counter} of the hardware {hardware}, of the emulator {counted}")
    assert wrong == []


@needs_nvrtc
def test_known_differences_still_differ():
    agree = [
        (of, counter)
        for of, counter in KNOWN
        if not any(counter in unequal(name) for name in CASES if of in (name, bench.cases()[name].launch.source))
    ]
    assert agree == [], "they agree now: take them out of KNOWN"


def names_of(source: str) -> list[str]:
    return [name for name in CASES if bench.cases()[name].launch.source == source]


@needs_nvrtc
def test_extra_wavefronts_are_few_and_are_conflicts():
    """Without them the hardware's wavefronts equal the emulator's, unless ptxas has moved loads."""
    for source, counter in (key for key, reason in KNOWN.items() if reason in MAX_EXTRA):
        op, (few, share) = counter.rpartition("_")[2], MAX_EXTRA[KNOWN[source, counter]]
        moved = MOVED_LOADS in KNOWN[source, f"wavefronts_{op}"]
        for name in names_of(source):
            waves, conflicts = (compared_counters(name)[f"{what}_{op}"] for what in ("wavefronts", "bank_conflicts"))
            assert 0 <= conflicts[0] - conflicts[1] <= max(few, share * waves[1]), name
            fewest = waves[0] - conflicts[0], waves[1] - conflicts[1]
            assert fewest[0] <= fewest[1] if moved else fewest[0] == fewest[1], name


@needs_nvrtc
def test_passes_beside_products_are_at_most_twice_the_counted_ones():
    for source, counter in (key for key, reason in KNOWN.items() if reason == BESIDE_PRODUCTS):
        op = counter.rpartition("_")[2]
        for name in names_of(source):
            pairs = compared_counters(name)
            hardware, counted = pairs[f"wavefronts_{op}"]
            assert counted <= hardware <= 2 * counted + 2, name
            assert 0 <= pairs[f"bank_conflicts_{op}"][0] <= hardware - counted, name


@needs_nvrtc
def test_further_unrolled_sums_take_as_many_passes():
    metrics, pairs = measured()[UNROLLED_CASE]["metrics"], compared_counters(UNROLLED_CASE)
    waves, counted = pairs["wavefronts_ld"]
    executed = metrics["smsp__inst_executed_op_shared_ld.sum"]
    assert waves == counted and waves - pairs["bank_conflicts_ld"][0] == executed


@needs_nvrtc
def test_moved_loads_are_at_most_the_counted_ones():
    """Nine taps of a warp that writes are one wavefront each; the other warps load at most as many."""
    for name in (name for name in CASES if "07_winograd_filter" in bench.cases()[name].launch.source):
        metrics, (waves, counted) = measured()[name]["metrics"], compared_counters(name)["wavefronts_ld"]
        executed = metrics["smsp__inst_executed_op_shared_ld.sum"]
        assert waves - compared_counters(name)["bank_conflicts_ld"][0] == executed <= counted, name


@needs_nvrtc
def test_figures_of_pages_and_documents_are_those_of_the_cases(record_property):
    ratios = {
        name: emulated(name).total["warp_instructions"] / row["metrics"][bench.INSTRUCTIONS]
        for name, row in measured().items()
        if name in bench.cases()
    }
    record_property("ptx_per_sass", {name: round(ratio, 2) for name, ratio in ratios.items()})
    # The pages show these figures.
    assert (round(min(ratios.values()), 2), round(max(ratios.values()), 2)) == PTX_PER_MACHINE
    equal = sum(not unequal(name) for name in ratios)
    text = DOCUMENT.read_text(encoding="utf-8")
    assert f"Nsight Compute's numbers in {equal} of {len(ratios)} cases.**" in text
    assert f"### The {len(ratios) - equal} cases that differ" in text


# -- the cases ----------------------------------------------------------------------------------------------
def test_every_kernel_is_a_case_at_two_shapes():
    seen: dict[str, set] = {}
    for case in bench.cases().values():
        seen.setdefault(case.launch.source, set()).add(case.shape)
    files = {path for path in sources.paths() if path.endswith(".cu")}
    generated = {name for name in seen if name.startswith(sources.GENERATED)}
    assert len(generated) > 1 and not generated & files
    assert seen.keys() - generated == {name for name in files if not name.startswith(tuple(EXCLUDED))}
    for prefix in EXCLUDED:  # every prefix matches a file
        assert any(name.startswith(prefix) for name in files), prefix
    assert all(len(seen[name]) > 1 for name in seen.keys() - generated)


def test_every_rung_is_a_case_at_default_and_other_tiles():
    seen: dict[str, set] = {}
    for case in bench.cases().values():
        seen.setdefault(case.launch.source, set()).add(case.launch.defines)
    plain = {
        "gemm": [GemmShape(64, 64, 64, dtype=dtype) for dtype in ("fp32", "fp16", "bf16", "int8")],
        "conv": [ConvShape(1, 3, 12, 12, 8, 3, 3, bias=1)],
    }
    for name, shapes in plain.items():
        for rung, s in itertools.product(LADDERS[name].rungs, shapes):
            if rung.library or any(rung.rules(s, rung.default_tiles)):
                continue
            for step in rung.build(s, rung.default_tiles).steps:
                if isinstance(step, Launch):
                    assert step.defines in seen[step.source], f"{rung.name} {step.source} {step.defines}"
                    others = step.defines and any(dict(tiles) != rung.default_tiles for tiles in rung.tile_sets(s))
                    assert not others or len(seen[step.source]) > 1, step.source


def test_teaching_kernels_fit_a_narrow_column():
    for path in sources.ROOT.glob("teaching/cuda/*.cu"):
        lines = path.read_text(encoding="utf-8").splitlines()
        assert lines[0].startswith("// ") and all(len(line) <= 66 for line in lines), path


def test_cases_by_name():
    assert named() == bench.cases()
    chosen = named("transpose-*", "reduction-1001")
    assert {name.partition("-")[0] for name in chosen} == {"transpose", "reduction"} and len(chosen) == 5
    with pytest.raises(ValueError, match="no case is named like nothing-"):
        named("nothing-*")


def test_wrong_output_is_detected():
    case = next(iter(bench.cases().values()))
    right = case.expected()
    assert not case.wrong(right)
    (name,) = case.outputs
    right[name][7] = np.nan
    assert case.wrong(right).startswith(f"{name}[7] is nan")


# -- reading ncu ----------------------------------------------------------------------------------------------
COLUMNS = "ID,Process ID,Process Name,Host Name,Kernel Name,Context,Stream,Block Size,Grid Size,Device,CC".split(",")


def ncu_output(rows: list[tuple[bench.Case, dict]]) -> str:
    """Returns these launches as `ncu --csv --page raw` prints them, unordered, among other lines."""
    metrics = (*bench.REQUIRED, "launch__func_cache_config")
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerow((*COLUMNS, *metrics))
    writer.writerow(("",) * len(COLUMNS) + ("sector",) * len(metrics))
    for n, (case, values) in reversed(list(enumerate(rows))):
        grid, block = (f"({', '.join(map(str, dim))})" for dim in (case.launch.grid, case.launch.block))
        name = case.launch.entry + ("(const float *, float *, int)" if n % 2 else "")
        cells = [f"{values[m]:,}" if m in values else "n/a" for m in metrics]
        writer.writerow((n, 4711, "python3.12", "127.0.0.1", name, 1, 7, block, grid, 0, "9.0", *cells))
        out.write('==PROF== Profiling "x": 0%....50%....100% - 7 passes\nthe program says, "hello", and more\n')
    return "==PROF== Connected to process 4711\n" + out.getvalue() + "==PROF== Disconnected\n"


def fake_metrics(case: bench.Case, **other) -> dict:
    total = dict.fromkeys(bench.EQUAL, 16_384) | other
    return {metric: total[name] for name, metric in bench.EQUAL.items()} | {
        bench.INSTRUCTIONS: 1_234_567,
        bench.LANES: 31.5,
        "sm__cycles_elapsed.max": 12_345.5,
        "gpu__time_duration.sum": 2_304,
    }


def test_ncu_rows_are_matched_to_cases():
    chosen = [*list(bench.cases().values())[:3], list(bench.cases().values())[-1]]
    rows = bench.parse_ncu(ncu_output([(case, fake_metrics(case, sectors_ld=n)) for n, case in enumerate(chosen)]))
    assert [row["ID"] for row in rows] == [0, 1, 2, 3]
    fixture = bench.match(chosen, rows)
    assert [entry["case"] for entry in fixture] == [case.name for case in chosen]
    assert [entry["metrics"][bench.EQUAL["sectors_ld"]] for entry in fixture] == [0, 1, 2, 3]
    assert fixture[0]["metrics"] == fake_metrics(chosen[0], sectors_ld=0)
    json.dumps(fixture)


def test_hardware_counts_async_copies_separately_from_stores():
    case = next(iter(bench.cases().values()))
    access, bypass = bench.COPIES["wavefronts_copied"]
    metrics = fake_metrics(case, wavefronts_st=100) | {access: 20, bypass: 3}
    assert bench.hardware(metrics, "wavefronts_st") == 100
    assert bench.hardware(metrics, "wavefronts_copied") == 23
    assert bench.hardware(metrics, "bank_conflicts_copied") == 0
    total = dict.fromkeys(FIELDS, 0) | {"wavefronts_st": 123, "wavefronts_copied": 23, "wavefronts_ld": 5}
    got = bench.Emulated(total, {})
    assert [got.counted(f"wavefronts_{op}") for op in ("ld", "st", "copied")] == [5, 100, 23]


def test_patched_cases_have_such_instructions():
    patched = {case.launch.source for case in bench.cases().values() if bench.is_patched(case)}
    assert {"gemm/08_double_buffer.cu", "gemm/10_wmma.cu", "conv/06_implicit_gemm.cu"} <= patched
    assert not patched & {"gemm/02_naive.cu", "conv/10_fft_pick.cu"}


def test_unknown_metrics_are_removed():
    requested = (*bench.REQUIRED, *bench.WANTED)
    output = f"==ERROR== Failed to find metric {bench.WANTED[0]}\nother lines, {bench.WANTED[1]}"
    assert bench._without_unknown(requested, bench.REQUIRED, output) == (*bench.REQUIRED, *bench.WANTED[1:])
    assert bench._without_unknown(requested, bench.REQUIRED, "") == bench.REQUIRED


def test_unknown_metrics_are_tried_on_one_case_only(monkeypatch, tmp_path):
    chosen, calls = list(bench.cases().values())[:3], []
    unknown = bench.WANTED[2]

    def profile(ncu, metrics, of):
        calls.append((unknown in metrics, len(of)))
        if unknown in metrics:
            return f"==ERROR== Failed to find metric {unknown}"
        return ncu_output([(case, fake_metrics(case)) for case in of])

    monkeypatch.setattr(bench, "_profile", profile)
    rows = bench._rows("ncu", bench.REQUIRED, bench.WANTED, chosen, tmp_path / "out.csv")
    assert calls == [(True, 1), (False, 1), (False, 3)]
    assert [entry["case"] for entry in bench.match(chosen, rows)] == [case.name for case in chosen]
    assert bench.parse_ncu((tmp_path / "out.csv").read_text(encoding="utf-8")) == rows


def test_rows_of_other_launches_are_rejected():
    first, *_, last = bench.cases().values()
    rows = bench.parse_ncu(ncu_output([(first, fake_metrics(first))]))
    with pytest.raises(ValueError, match="ncu tells of kernel"):
        bench.match([last], rows)
    with pytest.raises(ValueError, match="2 launches"):
        bench.match([first, last], rows)
    rows[0]["Grid Size"] = "(9, 9, 9)"
    with pytest.raises(ValueError, match="Grid Size"):
        bench.match([first], rows)


@pytest.mark.parametrize("cell, value", [("16,384", 16384), ("1,234.50", 1234.5), ("0", 0), ("n/a", None), ("", None)])
def test_parse_ncu_number(cell, value):
    assert bench.number(cell) == value


def test_memory_instructions_of_a_sass_listing():
    sass = """
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0040*/              @!P0 LDG.E.CONSTANT R4, desc[UR4][R4.64] ;   /* 0x0000000404048981 */
        /*0050*/                   LDGDEPBAR ;
        /*0060*/                   LDS.128 R8, [R5+0x70] ;
        /*0070*/                   REDG.E.ADD.STRONG.GPU desc[UR4][R2.64], R7 ;
        /*0080*/                   FFMA R0, R1, R2, R3 ;
    """
    found = memory_instructions(sass)
    assert [text.split()[-3] for text in found[:1]] == ["LDG.E.CONSTANT"]
    assert [text.split()[0] for text in found] == ["@!P0", "LDS.128", "REDG.E.ADD.STRONG.GPU"]


@needs_nvrtc
def test_compare_prints_differences(tmp_path, capsys):
    chosen = list(bench.cases().values())[:2]
    rows = [fake_metrics(c, **{k: bench.emulate(c).total[k] for k in bench.EQUAL}) for c in chosen]
    rows[1][bench.EQUAL["sectors_ld"]] += 1
    entries = bench.match(chosen, bench.parse_ncu(ncu_output(list(zip(chosen, rows, strict=True)))))
    path = tmp_path / "counters.json"
    path.write_text(
        json.dumps({"device": "D", "driver": "1", "ncu": "2", "date": "today", "cases": entries}), encoding="utf-8"
    )
    assert bench.compare(path) == 1
    text = capsys.readouterr().out
    assert f"{chosen[0].name}: equal" in text and f"{chosen[1].name}: NOT EQUAL" in text
    assert "sectors_ld 1,025 / 1,024 !" in text and "1 of 2 cases equal" in text
