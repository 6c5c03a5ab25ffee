"""The emulator's memory counters are Nsight Compute's: every case that was measured, number for number."""

from __future__ import annotations

import csv
import io
import itertools
import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from benchmarks import hardware_counters as bench
from benchmarks.hardware_cases import APART
from benchmarks.hardware_sass import memory_instructions
from kernels import cuda as sources
from kernels.engines.emulator import compile as compiler
from kernels.engines.emulator.counters import PTX_PER_MACHINE
from kernels.engines.emulator.merge import merged
from kernels.engines.emulator.parse import Kernel, parse, type_bytes
from kernels.ladders import LADDERS
from kernels.program import Launch
from kernels.shapes import ConvShape, GemmShape

FIXTURE = Path(__file__).parents[1] / "fixtures" / "hardware_counters_h200.json"
AGAIN = "measure it on a GPU: python benchmarks/hardware_counters.py measure counters.json"

# Counters of a source that are not the hardware's, and why. Each must still differ in one of its cases, so that
# this list cannot rot.
KNOWN: dict[tuple[str, str], str] = {}

needs_nvrtc = pytest.mark.skipif(compiler.version() is None, reason="NVRTC is not installed here")


@cache
def measured() -> dict:
    assert FIXTURE.exists(), f"{FIXTURE} is missing: {AGAIN}"
    fixture = json.loads(FIXTURE.read_text(encoding="utf-8"))
    return {row["case"]: row for row in fixture["cases"]}


@cache
def emulated(name: str) -> bench.Emulated:
    return bench.emulate(bench.cases()[name])


# -- hardware and emulator --------------------------------------------------------------------------------
def told(name: str) -> dict[str, tuple[float, int]]:
    """(hardware, emulator) of each counter. Skips a case that was not measured: a test of its own tells of those."""
    if name not in measured():
        pytest.skip("not measured")
    metrics, total = measured()[name]["metrics"], emulated(name).total
    return {counter: (bench.hardware(metrics, counter), total[counter]) for counter in bench.EQUAL}


def unequal(name: str) -> dict[str, tuple[float, int]]:
    return {counter: pair for counter, pair in told(name).items() if pair[0] != pair[1]}


def test_every_case_was_measured():
    missing = [name for name in bench.cases() if name not in measured()]
    assert not missing, f"{len(missing)} cases were not measured, {missing[0]} for one: {AGAIN}"


@pytest.mark.parametrize("name", measured())
def test_the_measurement_is_of_this_text(name):
    row, case = measured()[name], bench.cases().get(name)
    assert case, f"{name} is no case any more: {AGAIN}"
    assert row["digest"] == case.digest, f"{case.launch.source} has changed: {AGAIN}"
    assert (row["grid"], row["block"]) == (list(case.launch.grid), list(case.launch.block))


@needs_nvrtc
@pytest.mark.parametrize("name", bench.cases())
def test_memory_counters_are_the_hardwares(name):
    source = bench.cases()[name].launch.source
    wrong = {counter: pair for counter, pair in unequal(name).items() if (source, counter) not in KNOWN}
    assert not wrong, f"{name}: (hardware, emulator) {wrong}"


@needs_nvrtc
@pytest.mark.parametrize("source, counter", KNOWN)
def test_what_is_known_to_differ_does(source, counter):
    names = [name for name, case in bench.cases().items() if case.launch.source == source]
    assert any(counter in unequal(name) for name in names), "they agree now: take it out of KNOWN"


@needs_nvrtc
def test_instruction_ratios_are_those_told(record_property):
    ratios = {
        name: emulated(name).total["warp_instructions"] / row["metrics"][bench.INSTRUCTIONS]
        for name, row in measured().items()
        if name in bench.cases()
    }
    record_property("ptx_per_sass", {name: round(ratio, 2) for name, ratio in ratios.items()})
    # These are the figures the pages show.
    assert (round(min(ratios.values()), 2), round(max(ratios.values()), 2)) == PTX_PER_MACHINE


# -- the cases ----------------------------------------------------------------------------------------------
@needs_nvrtc
@pytest.mark.parametrize("name", bench.cases())
def test_every_case_gives_what_its_twin_gives(name):
    assert not bench.cases()[name].wrong(emulated(name).outputs)


def test_every_kernel_is_a_case_at_two_shapes():
    seen: dict[str, set] = {}
    for case in bench.cases().values():
        seen.setdefault(case.launch.source, set()).add(case.shape)
    files = {p.relative_to(sources.ROOT).as_posix() for p in sources.ROOT.rglob("*.cu")}
    assert set(seen) == {name for name in files if not name.startswith(tuple(APART))}
    for place in APART:  # none is left over
        assert any(name.startswith(place) for name in files), place
    assert all(len(shapes) > 1 for shapes in seen.values())


def test_every_rung_is_a_case_at_its_default_tiles_and_at_others():
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
                    assert not step.defines or len(seen[step.source]) > 1, step.source


def test_teaching_kernels_fit_a_narrow_column():
    for path in (sources.ROOT / "teaching").glob("*.cu"):
        lines = path.read_text(encoding="utf-8").splitlines()
        assert lines[0].startswith("// ") and all(len(line) <= 66 for line in lines), path


def test_a_wrong_output_is_told_apart():
    case = next(iter(bench.cases().values()))
    right = case.expected()
    assert not case.wrong(right)
    (name,) = case.outputs
    right[name][7] = np.nan
    assert case.wrong(right).startswith(f"{name}[7] is nan")


# -- reading ncu ----------------------------------------------------------------------------------------------
COLUMNS = "ID,Process ID,Process Name,Host Name,Kernel Name,Context,Stream,Block Size,Grid Size,Device,CC".split(",")  # fmt: skip


def printed(rows: list[tuple[bench.Case, dict]]) -> str:
    """These launches as `ncu --csv --page raw` prints them, in disorder, amid other lines."""
    metrics = (*bench.REQUIRED, "launch__func_cache_config")
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerow((*COLUMNS, *metrics))
    writer.writerow(("",) * len(COLUMNS) + ("sector",) * len(metrics))
    for n, (case, values) in reversed(list(enumerate(rows))):
        grid, block = (f"({', '.join(map(str, dim))})" for dim in (case.launch.grid, case.launch.block))
        name = case.launch.entry + ("(const float *, float *, int)" if n % 2 else "")
        told = [f"{values[m]:,}" if m in values else "n/a" for m in metrics]
        writer.writerow((n, 4711, "python3.12", "127.0.0.1", name, 1, 7, block, grid, 0, "9.0", *told))
        out.write(
            '==PROF== Profiling "x": 0%....50%....100% - 7 passes\nthe program says, "hello", and more\n'
        )
    return "==PROF== Connected to process 4711\n" + out.getvalue() + "==PROF== Disconnected\n"


def made_up(case: bench.Case, **other) -> dict:
    total = dict.fromkeys(bench.EQUAL, 16_384) | other
    return {metric: total[name] for name, metric in bench.EQUAL.items()} | {
        bench.INSTRUCTIONS: 1_234_567,
        bench.LANES: 31.5,
        "sm__cycles_elapsed.max": 12_345.5,
        "gpu__time_duration.sum": 2_304,
    }


def test_ncu_rows_become_the_fixture():
    chosen = [*list(bench.cases().values())[:3], list(bench.cases().values())[-1]]
    rows = bench.parse_ncu(printed([(case, made_up(case, sectors_ld=n)) for n, case in enumerate(chosen)]))
    assert [row["ID"] for row in rows] == [0, 1, 2, 3]
    fixture = bench.match(chosen, rows)
    assert [entry["case"] for entry in fixture] == [case.name for case in chosen]
    assert [entry["metrics"][bench.EQUAL["sectors_ld"]] for entry in fixture] == [0, 1, 2, 3]
    assert fixture[0]["metrics"] == made_up(chosen[0], sectors_ld=0)
    json.dumps(fixture)


def test_asynchronous_copies_are_added_to_what_the_hardware_calls_loads():
    case = next(iter(bench.cases().values()))
    metrics = made_up(case, sectors_ld=100)
    assert bench.hardware(metrics, "sectors_ld") == 100
    access, bypass = bench.COPIES["sectors_ld"]
    assert bench.hardware(metrics | {access: 20, bypass: 3}, "sectors_ld") == 123
    assert bench.hardware(metrics | {access: 20, bypass: 3}, "sectors_st") == 16_384


def test_patched_metrics_are_asked_where_there_are_such_instructions():
    patched = {case.launch.source for case in bench.cases().values() if bench.is_patched(case)}
    assert {"gemm/08_double_buffer.cu", "gemm/10_wmma.cu", "conv/06_implicit_gemm.cu"} <= patched
    assert not patched & {"gemm/02_naive.cu", "conv/10_fft_pick.cu"}


def test_unknown_metrics_are_asked_no_more():
    asked = (*bench.REQUIRED, *bench.WANTED)
    said = f"==ERROR== Failed to find metric {bench.WANTED[0]}\nother lines, {bench.WANTED[1]}"
    assert bench._without_unknown(asked, bench.REQUIRED, said) == (*bench.REQUIRED, *bench.WANTED[1:])
    assert bench._without_unknown(asked, bench.REQUIRED, "") == bench.REQUIRED


def test_what_ncu_does_not_know_is_asked_of_one_case_alone(monkeypatch, tmp_path):
    chosen, calls = list(bench.cases().values())[:3], []
    unknown = bench.WANTED[2]

    def profile(ncu, metrics, of):
        calls.append((unknown in metrics, len(of)))
        if unknown in metrics:
            return f"==ERROR== Failed to find metric {unknown}"
        return printed([(case, made_up(case)) for case in of])

    monkeypatch.setattr(bench, "_profile", profile)
    rows = bench._rows("ncu", bench.REQUIRED, bench.WANTED, chosen, tmp_path / "out.csv")
    assert calls == [(True, 1), (False, 1), (False, 3)]
    assert [entry["case"] for entry in bench.match(chosen, rows)] == [case.name for case in chosen]
    assert bench.parse_ncu((tmp_path / "out.csv").read_text(encoding="utf-8")) == rows


def test_rows_of_other_launches_are_refused():
    first, *_, last = bench.cases().values()
    rows = bench.parse_ncu(printed([(first, made_up(first))]))
    with pytest.raises(ValueError, match="ncu tells of kernel"):
        bench.match([last], rows)
    with pytest.raises(ValueError, match="2 launches"):
        bench.match([first, last], rows)
    rows[0]["Grid Size"] = "(9, 9, 9)"
    with pytest.raises(ValueError, match="Grid Size"):
        bench.match([first], rows)


@pytest.mark.parametrize(
    "cell, value", [("16,384", 16384), ("1,234.50", 1234.5), ("0", 0), ("n/a", None), ("", None)]
)
def test_numbers_of_ncu(cell, value):
    assert bench.number(cell) == value


def test_memory_instructions_of_a_listing():
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
def test_compare_prints_what_differs(tmp_path, capsys):
    chosen = list(bench.cases().values())[:2]
    rows = [made_up(c, **{k: bench.emulate(c).total[k] for k in bench.EQUAL}) for c in chosen]
    rows[1][bench.EQUAL["sectors_ld"]] += 1
    entries = bench.match(chosen, bench.parse_ncu(printed(list(zip(chosen, rows, strict=True)))))
    path = tmp_path / "counters.json"
    path.write_text(
        json.dumps({"device": "D", "driver": "1", "ncu": "2", "date": "today", "cases": entries}),
        encoding="utf-8",
    )
    assert bench.compare(path) == 1
    told = capsys.readouterr().out
    assert f"{chosen[0].name}: equal" in told and f"{chosen[1].name}: NOT EQUAL" in told
    assert "sectors_ld 1,025 / 1,024 !" in told and "1 of 2 cases equal" in told


# -- merged loads -----------------------------------------------------------------------------------------------
def shared_at(kernel: Kernel) -> dict[str, int]:
    """Where the kernel's shared arrays start, one after the other."""
    out, at = {}, 0
    for v in kernel.variables:
        if v.space == "shared":
            out[v.name] = at = -(-at // v.align) * v.align
            at += v.size
    return out


def widths(kernel: Kernel) -> list[int]:
    """Bytes of each load from shared memory that is left, the widest first."""
    merge = merged(kernel.code, shared_at(kernel))
    out = []
    for pc, i in enumerate(kernel.code):
        if i.opcode.startswith("ld.shared"):
            own = type_bytes(i.parts[-1]) * next((int(p[1:]) for p in i.parts if p in ("v2", "v4")), 1)
            out.append(merge.get(pc, own))
    return sorted((w for w in out if w), reverse=True)


@needs_nvrtc
@pytest.mark.parametrize(
    "tile, wide, single", [(8, 6, 24), (16, 4, 16), (32, 8, 32)]
)  # as counted in sm_90 machine code
def test_rows_of_the_tiled_product_are_read_by_16_bytes(tile, wide, single):
    options = (*compiler.OPTIONS, f"-DTILE={tile}")
    ptx = compiler.compile_ptx(sources.translation_unit("conv/03_gemm.cu"), "03_gemm.cu", options)
    assert widths(parse(ptx, "gemm")) == [16] * wide + [4] * single


def written(body: str, arrays: str = ".shared .align 4 .b8 a[4096];") -> Kernel:
    registers = ".reg .b32 %r<20>; .reg .f32 %f<20>; .reg .b64 %rd<9>; .reg .pred %p<3>;"
    ptx = f".entry k()\n{{\n{registers}\n{arrays}\n{body}\nret;\n}}\n"
    return parse(ptx.replace("; ", ";\n"), "k")


ROW = "mov.u32 %r0, %tid.y; shl.b32 %r1, %r0, 4; mov.u32 %r2, a; add.s32 %r3, %r2, %r1; "  # 16-aligned


def loads(*offsets: int, base: str = "%r3") -> str:
    return " ".join(f"ld.shared.f32 %f{n}, [{base}+{at}];" for n, at in enumerate(offsets)) + " "


@pytest.mark.parametrize(
    "body, want",
    [
        (ROW + loads(0, 4, 8, 12), [16]),
        (ROW + loads(12, 4, 0, 8), [16]),
        (ROW + loads(0, 4, 8), [16]),  # three of four are enough
        (ROW + loads(4, 8, 12), [16]),
        (ROW + loads(0, 12), [4, 4]),
        (ROW + loads(4, 8), [4, 4]),  # no aligned pair
        (ROW + loads(8, 12), [8]),
        (ROW + loads(4, 8, 12, 16, 20), [16, 8]),
        (ROW + loads(0, 8, 16, 24), [4] * 4),
        (ROW.replace("shl.b32 %r1, %r0, 4", "mul.lo.s32 %r1, %r0, 132") + loads(0, 4, 8, 12), [4] * 4),
        (ROW.replace("shl.b32 %r1, %r0, 4", "mul.lo.s32 %r1, %r0, 136") + loads(0, 4, 8, 12), [8, 8]),
        (ROW + "add.s32 %r4, %r3, 8; " + loads(0, 4) + loads(0, 4, base="%r4"), [16]),
        # What may write in between keeps loads apart.
        (ROW + loads(0, 4) + "bar.sync 0; " + loads(8, 12), [8, 8]),
        (ROW + loads(0, 4) + "bar.warp.sync -1; " + loads(8, 12), [8, 8]),
        (ROW + loads(0, 4) + "st.shared.f32 [%r1], %f0; " + loads(8, 12), [8, 8]),
        (ROW + loads(0, 4) + "st.shared.f32 [%r3+8], %f0; " + loads(8, 12), [8, 8]),
        (ROW + loads(0, 4) + "st.shared.f32 [%r3+64], %f0; " + loads(8, 12), [16]),
        (ROW + loads(0, 4) + "st.global.f32 [%rd1], %f0; " + loads(8, 12), [16]),
        # A base that moves is another base.
        (ROW + loads(0, 4) + "add.s32 %r3, %r3, 16; " + loads(8, 12), [8, 8]),
        # A pointer that starts 8 bytes in and walks by 16 is known to be 8-aligned, no more.
        (ROW + "add.s32 %r5, %r3, 8; $L:\n " + loads(-8, -4, 0, 4, base="%r5") + "add.s32 %r5, %r5, 16; @%p1 bra $L; ", [8, 8]),
    ],
)  # fmt: skip
def test_which_loads_become_one(body, want):
    assert widths(written(body)) == want


def test_a_store_to_another_array_forbids_nothing():
    arrays = ".shared .align 4 .b8 a[4096];\n.shared .align 4 .b8 b[4096];"
    other = "mov.u32 %r8, b; add.s32 %r9, %r8, %r0; "
    body = ROW + other + loads(0, 4) + "st.shared.f32 [%r9], %f0; " + loads(8, 12)
    assert widths(written(body, arrays)) == [16]


def test_arrays_lie_where_they_are_placed():
    """After five floats the next array starts at byte 20: three of its words share an aligned piece."""
    arrays = ".shared .align 4 .b8 a[20];\n.shared .align 4 .b8 b[256];"
    assert widths(written(loads(0, 4, 8, 12, base="b"), arrays)) == [16, 4]


def test_the_lowest_address_leads():
    kernel = written(ROW + loads(8, 0, 4))
    places = [pc for pc, i in enumerate(kernel.code) if i.opcode.startswith("ld.shared")]
    assert merged(kernel.code, shared_at(kernel)) == {places[0]: 0, places[1]: 16, places[2]: 0}
