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

# The beginning of a kernel: bytes 16 to 111 of x go to the shared memory `s`, and the mbarrier `full` counts them.
LOAD_96_BYTES = """
  extern __shared__ __align__(128) char s[]; __shared__ Barrier full;
  if (threadIdx.x == 0) { init_barrier(&full, 1); publish_barriers(); }
  __syncthreads();
  if (threadIdx.x == 0) {
    arrive_expecting(&full, 96);
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
      :: "r"(shared_address(s)), "l"(x + 16), "r"(96), "r"(shared_address(&full)) : "memory");
  }
  wait(&full, 0);
"""


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
