"""Runs small kernels with Hopper's instructions in the emulator. The names of kernels/cuda/hopper.cuh can be used."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kernels import sources
from kernels.engines.emulator.compiler.compile import OPTIONS
from kernels.engines.emulator.precompiled import HOPPER
from kernels.model.program import Arg
from tests.helpers.emulated import Outcome, emulate

COMPILER = (OPTIONS[0], f"--gpu-architecture={HOPPER}", *OPTIONS[2:])


def run_hopper(
    body: str,
    args: Mapping[str, Arg],
    inputs: Mapping[str, np.ndarray] = {},
    outputs: Mapping[str, tuple] = {},
    attributes: str = "",
    prelude: str = "",
    bf16: bool = False,
    **options,
) -> Outcome:
    """Runs a kernel with this body, whose first line is line 1. `args`: by the text of each parameter, its argument."""
    header = sources.translation_unit("cuda/hopper.cuh")
    source = (
        f'#line 1 "hopper.cuh"\n{header}\n{prelude}\nextern "C" __global__ void {attributes} k({", ".join(args)}) {{\n'
        f'#line 1 "kernel.cu"\n{body}\n}}\n'
    )
    return emulate(
        source,
        inputs,
        outputs,
        args=list(args.values()),
        entry="k",
        compiler=(*COMPILER, f"-DBF16={int(bf16)}"),
        **options,
    )
