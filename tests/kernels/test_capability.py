"""The compute capability that each rung needs, compared with its PTX and with NVRTC's result for an older one."""

from __future__ import annotations

import re

import pytest

from kernels import sources
from kernels.engines.emulator import precompiled
from kernels.engines.emulator.compiler import compile
from kernels.ladders import LADDERS, find
from kernels.model.program import Launch
from kernels.model.rung import MIN_CAPABILITY
from kernels.records import availability

AMPERE, HOPPER = (8, 0), (9, 0)
# By the PTX ISA's "Target ISA notes" each requires sm_80.
NEEDS_AMPERE = re.compile(r"cp\.async|m16n8k(?:16|32)|cvt\.\S*(?:f16x2|bf16x2)\.f32|mma\.\S*\.bf16|\.tf32")
NEEDS_HOPPER = re.compile(
    r"wgmma\.|cp\.async\.bulk|setmaxnreg|mbarrier\.try_wait|barrier\.cluster|mapa\."
)  # these sm_90
needs_nvrtc = pytest.mark.skipif(compile.version() is None, reason="NVRTC is not installed")


def launches(rung, shape) -> list[Launch]:
    steps = rung.build(shape, rung.default_tiles).steps
    return [step for step in steps if isinstance(step, Launch)]


@pytest.mark.parametrize("ladder", LADDERS.values(), ids=LADDERS)
def test_capability_of_a_rung_is_what_its_kernels_need(ladder):
    """At every preset that it supports. A library call may need more than the kernels around it."""
    for rung in ladder.rungs:
        for preset in ladder.presets.values():
            if not availability.runs(rung, preset.shape, rung.default_tiles):
                continue
            needed = max(map(_needed, launches(rung, preset.shape)), default=MIN_CAPABILITY)
            reported = rung.capability(preset.shape)
            assert reported in (MIN_CAPABILITY, AMPERE, HOPPER)
            if needed > MIN_CAPABILITY or not rung.library:
                assert reported == needed, (rung.name, preset.shape)


def _needed(step: Launch) -> tuple[int, int]:
    """Returns the compute capability that the instructions of a kernel need."""
    ptx = precompiled.ptx(step.source, step.defines)
    if NEEDS_HOPPER.search(ptx):
        return HOPPER
    return AMPERE if NEEDS_AMPERE.search(ptx) else MIN_CAPABILITY


def test_cublas_multiplies_tf32_and_bf16_from_capability_8_0_on():
    gemm = LADDERS["gemm"].presets
    assert find("gemm/cublas-tf32").capability(gemm["square-64"].shape) == AMPERE
    halves = find("gemm/cublas-fp16")
    shape = gemm["square-4096-fp16"].shape
    assert halves.capability(shape) == MIN_CAPABILITY
    assert halves.capability(shape.with_(dtype="bf16")) == AMPERE


@needs_nvrtc
@pytest.mark.parametrize(
    ("rung", "preset", "dtype"),
    [
        ("gemm/naive", "square-64", "fp32"),
        ("gemm/double-buffer", "square-64", "fp32"),
        ("gemm/wmma", "square-64", "fp16"),
        ("gemm/wmma", "square-64", "bf16"),
        ("attention/cublas", "attention-16", "fp32"),
        ("attention/cublas", "attention-16", "fp16"),
    ],
)
def test_nvrtc_compiles_for_7_5_the_rungs_that_run_there(rung, preset, dtype):
    rung_ = find(rung)
    shape = LADDERS[rung.partition("/")[0]].presets[preset].shape.with_(dtype=dtype)
    options = "--std=c++17", "--gpu-architecture=sm_75"
    for step in launches(rung_, shape):
        arguments = (*options, *(f"-D{name}={value}" for name, value in step.defines))
        text = sources.translation_unit(step.source)
        if rung_.capability(shape) == MIN_CAPABILITY:
            assert ".target sm_75" in compile.compile_ptx(text, step.source, arguments)
        else:
            with pytest.raises(compile.CompileError, match=r"sm_80 or higher|incomplete type"):
                compile.compile_ptx(text, step.source, arguments)
