"""Every kernel of the ladders at small ragged shapes and at every tile size that is compiled ahead, for
compute-sanitizer. Exit status 1 if a result is wrong.

    python benchmarks/sanitize.py --compile
    compute-sanitizer --tool memcheck --error-exitcode 3 python benchmarks/sanitize.py gemm
    compute-sanitizer --tool racecheck --error-exitcode 3 python benchmarks/sanitize.py gemm

and likewise conv, attention, attention-backward, fusion, softmax and memory; all if none is named. The first line compiles everything,
several kernels at a time, into CuPy's cache: under the sanitizer nothing is left to compile. --emulator needs no GPU: the
emulator runs the same launches, with its own checks of bounds, barriers and races.

Libraries are left out: we cannot repair faults inside cuBLAS, cuFFT and cuDNN. Rungs of a library are not run. If one of
our launches reads the output of a library call, NumPy computes that output. Each array is a separate allocation (no
pool), so that memcheck knows where it ends.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks import hardware_sass, report
from benchmarks.hardware_case import Case, steps
from benchmarks.hardware_counters import emulate, launch_on_gpu
from kernels.attention import ladder as attention_ladder
from kernels.attention.backward import ladder as attention_backward_ladder
from kernels.attention.backward.shape import BackwardShape
from kernels.attention.shape import AttentionShape
from kernels.conv import ladder as conv_ladder
from kernels.conv.shape import ConvShape
from kernels.fusion import ladder as fusion_ladder
from kernels.fusion.presets import FUSION_PRESETS
from kernels.fusion.shape import ChainShape
from kernels.gemm import ladder as gemm_ladder
from kernels.gemm.shape import GemmShape
from kernels.memory import ladder as memory_ladder
from kernels.memory.shape import AddShape, BanksShape, LayoutShape, StrideShape
from kernels.model.rung import Rung
from kernels.softmax import ladder as softmax_ladder
from kernels.softmax.shape import SoftmaxShape

# For each ladder: shapes for every set of tile sizes, and shapes for the default sizes only. None is a multiple of a
# tile, but some allow float4 loads.
GEMM = (
    ((61, 45, 37, -2, 3), (36, 72, 40)),
    ((1, 1, 1, 2, -1), (129, 130, 1)),
)
CONV = (
    (ConvShape(2, 5, 11, 9, 37, 3, 3, pad=(1, 0), mode="convolution", bias=1, relu=1),),
    (
        ConvShape(1, 1, 8, 8, 2, 3, 3),
        ConvShape(2, 3, 17, 13, 5, 3, 5, stride=(2, 1), pad=(1, 2), dilation=(2, 1), bias=1),
        ConvShape(1, 40, 7, 7, 50, 1, 1, relu=1),
        ConvShape(2, 6, 11, 9, 10, 3, 3, pad=1, groups=2, bias=1, relu=1),
        ConvShape(1, 4, 8, 8, 4, 3, 3, stride=2, groups=4),
    ),
)
ATTENTION = (AttentionShape(1, 2, 61, 37), AttentionShape(2, 1, 36, 8, scale=-0.5))
CAUSAL = (AttentionShape(1, 2, 131, 96, causal=1), AttentionShape(1, 1, 1, 1, causal=1))
# In fp16 and in bf16: with and without copies of 16 bytes.
HALVES = (AttentionShape(1, 2, 61, 51), AttentionShape(2, 1, 140, 56, causal=1, scale=-0.5))
NARROW = AttentionShape(1, 1, 70, 16)  # few sums: a warp may own 32 keys with 64 queries at a time
# The chains of the presets, on maps whose size is not a multiple of float4, and two chains on maps whose size is.
FUSION = tuple(preset.shape.with_(N=2, C=3, H=11, W=9) for preset in FUSION_PRESETS.values())
FOURS = tuple(ChainShape(1, 3, 8, 8, chain) for chain in ("bias bn relu add", "conv:K=5:R=3 bias bn relu"))
SOFTMAX = ((SoftmaxShape(5, 77),), (SoftmaxShape(3, 1001), SoftmaxShape(9, 1), SoftmaxShape(2, 64)))
MEMORY = {
    "add": (AddShape(61, 45), AddShape(1, 3)),
    "stride": (StrideShape(301, 3), StrideShape(1, 7)),
    "banks": (BanksShape(301, 5, 2), BanksShape(7, 32)),
    "layout": (LayoutShape(3, 5, 7, 11), LayoutShape(1, 1, 1, 1)),
}


def runs(name: str) -> Iterator[tuple[Rung, Any, dict[str, int]]]:
    """Yields every rung of the project with each shape and tile sizes that it runs with."""
    for rung, swept, default in RUNS[name]():
        if rung.library or "cuda" not in rung.engines:
            continue
        for shape in swept:
            yield from ((rung, shape, tiles) for tiles in rung.tile_sets(shape))
        for shape in default:
            if not any(rung.rules(shape, rung.default_tiles)):
                yield rung, shape, rung.default_tiles


def _gemm():
    for rung in gemm_ladder.LADDER.rungs:
        for dtype in ("fp32", "fp16", "bf16", "int8"):
            yield rung, *([GemmShape(*shape, dtype=dtype) for shape in shapes] for shapes in GEMM)


def _conv():
    yield from ((rung, *CONV) for rung in conv_ladder.LADDER.rungs)


def _attention():
    """Yields causal shapes only for rungs without S: masked elements of S stay unwritten and cannot be compared."""
    for rung in attention_ladder.LADDER.rungs:
        fused = not rung.cost(CAUSAL[0], rung.build(CAUSAL[0], rung.default_tiles)).workspace_bytes
        yield rung, ATTENTION, CAUSAL if fused else ()
        yield from ((rung, [s.with_(dtype=dtype) for s in HALVES], ()) for dtype in ("fp16", "bf16"))


def _attention_backward():
    """Yields the shapes of the forward pass; causal ones only for rungs without P and dS, as there."""
    for rung in attention_backward_ladder.LADDER.rungs:
        swept, causal = ([BackwardShape(**s.params()) for s in shapes] for shapes in (ATTENTION, CAUSAL))
        yield rung, swept, () if rung.name.endswith("/naive") else causal
        halves = [BackwardShape(**s.params()) for s in (*HALVES, NARROW)]
        yield from ((rung, [s.with_(dtype=dtype) for s in halves], ()) for dtype in ("fp16", "bf16"))


def _memory():
    yield from ((rung, MEMORY[ladder.name], ()) for ladder in memory_ladder.LADDERS for rung in ladder.rungs)


def _fusion():
    yield from ((rung, FOURS, FUSION) for rung in fusion_ladder.LADDER.rungs)


def _softmax():
    yield from ((rung, *SOFTMAX) for rung in softmax_ladder.RUNGS)


RUNS = {
    "gemm": _gemm, "conv": _conv, "attention": _attention,
    "attention-backward": _attention_backward, "fusion": _fusion, "softmax": _softmax,
    "memory": _memory,
}  # fmt: skip


def launches(name: str) -> list[Case]:
    """Returns every launch of a ladder once: two rungs may have a launch in common."""
    cases = {}
    ours = (case for rung, shape, tiles in runs(name) for case in steps(rung, shape, **tiles))
    for case in chain(ours, _between_libraries(name)):
        step = case.launch
        args = tuple(a if isinstance(a, str) else a.tobytes() for a in step.args)
        cases.setdefault((step.source, step.defines, step.grid, step.block, args), case)
    return list(cases.values())


def _between_libraries(name: str) -> Iterator[Case]:
    """Yields our launches that only a library's rung has: the softmax with P in FP16 or BF16."""
    if name == "attention":
        for dtype in ("fp16", "bf16"):
            yield from steps(attention_ladder.CUBLAS, HALVES[0].with_(dtype=dtype), "softmax")


def on_gpu(case: Case) -> str:
    return case.wrong(launch_on_gpu(case))


def in_emulator(case: Case) -> str:
    run = emulate(case, races=True)
    return "; ".join(filter(None, (case.wrong(run.outputs), *run.races)))


def run(name: str, check: Callable[[Case], str]) -> int:
    """Returns how many launches of a ladder fail."""
    chosen, failures = launches(name), 0
    for case in chosen:
        try:
            problem = check(case)
        except Exception as e:  # printed; the others still run
            problem = f"{type(e).__name__}: {e}"
        if problem:
            failures += 1
            print(f"WRONG {case.name}: {problem}", flush=True)
    print(f"{name}: {len(chosen)} launches, {failures} wrong", flush=True)
    return failures


def main() -> int:
    parser = report.parser(__doc__)
    names = tuple(RUNS)
    parser.add_argument("ladder", nargs="*", metavar="|".join(names), help="all when left out")
    parser.add_argument("--compile", action="store_true", help="compile, and run nothing")
    parser.add_argument("--emulator", action="store_true", help="run in the emulator, without a GPU")
    args = parser.parse_args()
    if unknown := set(args.ladder) - set(names):
        parser.error(f"no ladder {', '.join(sorted(unknown))}; there are: {', '.join(names)}")
    chosen = args.ladder or names
    if args.compile:
        cases = [case for name in chosen for case in launches(name)]
        print(hardware_sass.compile_all(cases, hardware_sass.compile_one))
        return 0
    if not args.emulator:
        import cupy

        cupy.cuda.set_allocator(None)
    return int(sum(run(name, in_emulator if args.emulator else on_gpu) for name in chosen) > 0)


if __name__ == "__main__":
    sys.exit(main())
