"""CUDA kernels of the project, executed without a GPU: correct at any shape, in any order of the warps."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from zipfile import ZipFile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import precompile, sources
from kernels.conv import ladder as conv_ladder
from kernels.conv.shape import ConvShape
from kernels.engines import emulator
from kernels.engines.emulator import precompiled, ptx_archive
from kernels.engines.emulator.compiler import compile
from kernels.engines.emulator.launch import Options
from kernels.engines.emulator.ptx_archive import Compiled
from kernels.engines.emulator.watch import build as watch
from kernels.engines.emulator.watch import debug_info
from kernels.ladders import LADDERS
from kernels.model.program import RuleError
from kernels.runner import compare, run, seeded_inputs
from tests.helpers.shapes import conv_shapes

RUNGS = [r.name for r in conv_ladder.BASIC_RUNGS]  # the others have tests of their own
needs_nvrtc = pytest.mark.skipif(compile.version() is None, reason="NVRTC is not installed")


@settings(max_examples=12)
@given(
    shape=conv_shapes(max_extent=3), tile=st.sampled_from(conv_ladder.TILES), block=st.sampled_from(conv_ladder.BLOCKS)
)
def test_every_rung_agrees_at_any_shape(shape, tile, block):
    for result in compare(RUNGS, shape, engine="emulator", tiles={"TILE": tile, "BLOCK": block}):
        assert result.output.shape == shape.y_shape  # compare() verified each element
        assert result.measurement is None
        library = result.rung == "conv/im2col-cublas"
        assert result.counters.uncounted == (("cublas_sgemm",) if library else ())


@settings(max_examples=6)
@given(shape=conv_shapes(max_extent=3), order=st.sampled_from(["reversed", 1, 2]))
def test_order_of_warps_changes_nothing(shape, order):
    rung = LADDERS["conv"].rung("conv/im2col-gemm")
    program = rung.build(shape, rung.default_tiles)
    inputs = seeded_inputs(program.of_role("input"))
    outputs = []
    for warp_order in ("forward", order):
        session = emulator.Session(program, inputs, Options(order=warp_order, races=True))
        outputs.append((session.verify_run(), session.counters.total))
    np.testing.assert_array_equal(outputs[0][0], outputs[1][0])
    assert outputs[0][1] == outputs[1][1]


def test_counters_of_the_toy():
    s = ConvShape(1, 1, 8, 8, 2, 3, 3)
    r = run("conv/im2col-gemm", s, engine="emulator", trace=0)
    total = r.counters.total
    # 36 windows are 2 warps; each of the 9 taps is one load and one store of both.
    im2col = [c for line, c in r.counters.lines.items() if line.file == "02_im2col.cu"]
    assert sum(c["requests_st"] for c in im2col) == sum(c["requests_ld"] for c in im2col) == 18
    assert sum(c["bytes_st"] for c in im2col) == 4 * 9 * 36
    assert total["barriers"] == 2 * 3 * 8  # one tile of the inner dimension, 3 blocks of 8 warps
    for name, count in total.items():
        assert sum(c[name] for c in r.counters.lines.values()) == count, name
    assert [t.block for t in r.trace] == [0, 0] and r.trace[0].nbytes < 200_000


def test_fault_names_the_rung(monkeypatch):
    monkeypatch.setattr(emulator, "Options", lambda **options: Options(**options | {"seconds": 0}))
    with pytest.raises(RuleError, match=r"^conv/direct: direct, 01_direct.cu:\d+: stopped after 0 seconds"):
        run("conv/direct", ConvShape(1, 1, 8, 8, 2, 3, 3), engine="emulator")


def test_derived_figures():
    totals = run("conv/im2col-gemm", ConvShape(1, 1, 8, 8, 2, 3, 3), engine="emulator").to_json()["counters"]["total"]
    assert totals["bytes_moved_ld"] == 32 * totals["sectors_ld"]
    assert totals["sectors_per_request_ld"] == totals["sectors_ld"] / totals["requests_ld"]


def test_only_the_emulator_traces():
    with pytest.raises(RuleError, match="only the emulator engine can trace"):
        run("conv/direct", ConvShape(1, 1, 8, 8, 2, 3, 3), engine="cpu", trace=0)


MAX_DIFFERENCE = 8  # instructions; six conversions of an address in decode_ring


def opcodes(ptx: str) -> Counter[str]:
    return Counter(re.findall(r"^\s+(?:@!?%p\d+ )?([a-z][\w.]+)\s", ptx, re.MULTILINE))


def one_of_each_topic() -> list[tuple]:
    """Returns the kernel with the shortest source of each topic. The digests of all are compared below."""
    by_length = sorted(precompile.kernels(), key=lambda kernel: -len(sources.translation_unit(kernel[0])))
    return list({source.partition("/")[0]: (source, *rest) for source, *rest in by_length}.values())


@needs_nvrtc
def test_the_list_of_the_archives_is_of_todays_sources():
    """Compare digests of source and options, and NVRTC's version, of every kernel."""
    for source, entry, defines in precompile.kernels():
        topic, name = precompiled.archive_entry(source, defines)
        listed = ptx_archive.listed(precompiled.FOLDER, topic)[name]
        text = sources.translation_unit(source)
        assert listed["digest"] == compile.digest(text, precompiled.options(defines, source)), (
            "run: python -m kernels ptx"
        )
        assert ptx_archive.nvrtc(precompiled.FOLDER, topic) == compile.version(), "run: python -m kernels ptx"
        assert f".entry {entry}" in ptx_archive.read(precompiled.FOLDER, topic, name)
        assert listed["registers"] > 0


@needs_nvrtc
@pytest.mark.parametrize("key", one_of_each_topic(), ids=str)
def test_checked_in_ptx_equals_what_the_sources_compile_to(key):
    """Compare the output of ptxas and the instructions. For some kernels NVRTC's text varies by a few names and a load."""
    source, _, defines = key
    topic, name = precompiled.archive_entry(source, defines)
    archived, built = ptx_archive.read(precompiled.FOLDER, topic, name), precompile.build(source, defines)
    listed = {"digest": built.digest, **built.resources}
    assert ptx_archive.listed(precompiled.FOLDER, topic)[name] == listed, "run: python -m kernels ptx"
    archived_opcodes, rebuilt_opcodes = opcodes(archived), opcodes(built.ptx)
    assert (
        sum(((archived_opcodes - rebuilt_opcodes) + (rebuilt_opcodes - archived_opcodes)).values()) <= MAX_DIFFERENCE
    ), "run: python -m kernels ptx"


def test_archives_have_exactly_the_listed_kernels():
    archived_names = {}
    for archive in precompiled.FOLDER.glob("*/ptx.zip"):
        topic = archive.parent.name
        with ZipFile(archive) as file:
            archived_names[topic] = {name.removesuffix(".ptx") for name in file.namelist()}
        assert archived_names[topic] == ptx_archive.listed(precompiled.FOLDER, topic).keys()
    expected: dict[str, set[str]] = {}
    for source, _, defines in precompile.kernels():
        topic, name = precompiled.archive_entry(source, defines)
        expected.setdefault(topic, set()).add(name)
    assert archived_names == expected, "run: python -m kernels ptx"


@needs_nvrtc
def test_the_archives_for_watching_are_of_todays_sources_and_compiler():
    """Compare the digests, and of one kernel of each topic the text, but for the names that NVRTC varies."""
    expected: dict[str, dict[str, tuple]] = {}
    for source, _, defines in precompile.kernels():
        topic, name = precompiled.archive_entry(source, defines)
        expected.setdefault(topic, {})[name] = source, defines
    stem = ptx_archive.WATCHED
    for topic, kernels in expected.items():
        digests = {name: {"digest": precompile.digest_for_watching(*kernel)} for name, kernel in kernels.items()}
        assert ptx_archive.listed(precompiled.FOLDER, topic, stem) == digests, "run: python -m kernels ptx"
        name, kernel = next(iter(kernels.items()))
        archived = ptx_archive.read(precompiled.FOLDER, topic, name, stem)
        built = precompile.build_for_watching(*kernel).ptx
        assert opcodes(archived) == opcodes(built), "run: python -m kernels ptx"
        assert debug_info.functions(archived).keys() == debug_info.functions(built).keys()


def test_archive_is_deterministic_and_reads_back(tmp_path):
    kernels = {
        name: Compiled(f".version 8.0\n// {name} ×\n" * 9, "0" * 16, {"registers": 8, "spill_bytes": 0})
        for name in ("b.TILE16", "a")
    }
    first = [p.read_bytes() for p in ptx_archive.write(tmp_path / "1", "t", "13.5", kernels)]
    reversed_kernels = dict(reversed(kernels.items()))
    assert first == [p.read_bytes() for p in ptx_archive.write(tmp_path / "2", "t", "13.5", reversed_kernels)]
    for name, kernel in kernels.items():
        assert ptx_archive.read(tmp_path / "1", "t", name) == kernel.ptx
    assert list(ptx_archive.listed(tmp_path / "1", "t")) == ["a", "b.TILE16"]
    assert ptx_archive.listed(tmp_path, "t") == {}


def test_without_nvrtc_precompiled_kernels_run_and_others_list_them(monkeypatch):
    def no_nvrtc(*args):
        raise compile.CompilerMissing("NVRTC is not installed")

    monkeypatch.setattr(compile, "compile_ptx", no_nvrtc)
    s = ConvShape(1, 1, 8, 8, 2, 3, 3)
    assert run("conv/im2col-gemm", s, engine="emulator", tiles={"TILE": 32}).error < 1e-5
    assert ".debug_info" in watch.ptx("softmax/03_online.cu", (("BLOCK", 8),))
    with pytest.raises(RuleError, match=r"BLOCK=16 is not among the compiled kernels \(03_online.BLOCK1024, "):
        watch.ptx("softmax/03_online.cu", (("BLOCK", 16),))
    with pytest.raises(RuleError, match=r"TILE=4 is not among the compiled kernels \(03_gemm.TILE16, "):
        precompiled.ptx("conv/03_gemm.cu", (("TILE", 4),))


def test_read_beyond_the_input_is_an_error():
    """im2col gets a larger H than its input has: the error names the access, with line, thread and block."""
    s = ConvShape(1, 1, 8, 8, 1, 3, 3)
    rung = LADDERS["conv"].rung("conv/im2col-gemm")
    program = rung.build(s, rung.default_tiles)
    taller = conv_ladder.struct(s.with_(H=20))
    step = dataclasses.replace(program.steps[0], args=("x", "col", taller))
    session = emulator.Session(
        dataclasses.replace(program, steps=(step,)), seeded_inputs(program.of_role("input")), Options()
    )
    with pytest.raises(
        RuleError,
        match=r"im2col, 02_im2col.cu:35 \(in code from conv.cuh:\d+\): out-of-bounds read .* x \[1, 1, 8, 8\], by thread \(\d",
    ):
        session.verify_run()
