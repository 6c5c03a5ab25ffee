"""Every kernel of the ladders at small ragged shapes and at every tile size that is compiled ahead, for
compute-sanitizer. Exit status 1 where a result is wrong.

    python benchmarks/sanitize.py --compile
    compute-sanitizer --tool memcheck --error-exitcode 3 python benchmarks/sanitize.py gemm
    compute-sanitizer --tool racecheck --error-exitcode 3 python benchmarks/sanitize.py gemm

and likewise conv, attention, fusion, softmax and memory; all where none is named. The first line compiles everything, several kernels at a
time, into CuPy's cache: under the sanitizer nothing is left to compile. --emulator needs no GPU: the emulator runs the
same launches, with its own checks of bounds, barriers and races.

Libraries are left out: what cuBLAS, cuFFT and cuDNN do inside is not ours to repair. Rungs that are a library's are not
run, and where a launch of ours reads what a library call left, NumPy does the call. Each array is an allocation of its
own (no pool), so that memcheck knows where it ends.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks import hardware_sass
from benchmarks.hardware_case import Case, steps
from benchmarks.hardware_counters import emulate, launch_on_gpu
from kernels.attention import ladder as attention_ladder
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

# Of each ladder: shapes at which every set of tile sizes runs, and shapes for the default sizes alone. None is a
# multiple of a tile, but what can be read by fours is there too.
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
# In fp16 and in bf16: copies of 16 bytes and none.
HALVES = (AttentionShape(1, 2, 61, 51), AttentionShape(2, 1, 140, 56, causal=1, scale=-0.5))
# The chains of the presets, on maps that no float4 divides and, the first of them, on maps that one does.
FUSION = tuple(preset.shape.with_(N=2, C=3, H=11, W=9) for preset in FUSION_PRESETS.values())
FOURS = tuple(ChainShape(1, 3, 8, 8, chain) for chain in ("bias bn relu add", "conv:K=5:R=3 bias bn relu"))
SOFTMAX = ((SoftmaxShape(5, 77),), (SoftmaxShape(3, 1001), SoftmaxShape(9, 1), SoftmaxShape(2, 64)))
MEMORY = {
    "add": (AddShape(61, 45), AddShape(1, 3)),
    "stride": (StrideShape(301, 3), StrideShape(1, 7)),
    "banks": (BanksShape(301, 5, 2), BanksShape(7, 32)),
    "layout": (LayoutShape(3, 5, 7, 11), LayoutShape(1, 1, 1, 1)),
}


def asked(name: str) -> Iterator[tuple[Rung, Any, dict[str, int]]]:
    """Every rung of ours with each shape and tiles it is run at."""
    for rung, every, default in ASKED[name]():
        if rung.library or "cuda" not in rung.engines:
            continue
        for shape in every:
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
    """Causal where there is no S: what is hidden of it is left unwritten, and could not be compared."""
    for rung in attention_ladder.LADDER.rungs:
        fused = not rung.cost(CAUSAL[0], rung.build(CAUSAL[0], rung.default_tiles)).workspace_bytes
        yield rung, ATTENTION, CAUSAL if fused else ()
        yield from ((rung, [s.with_(dtype=dtype) for s in HALVES], ()) for dtype in ("fp16", "bf16"))


def _memory():
    yield from ((rung, MEMORY[ladder.name], ()) for ladder in memory_ladder.LADDERS for rung in ladder.rungs)


def _fusion():
    yield from ((rung, FOURS, FUSION) for rung in fusion_ladder.LADDER.rungs)


def _softmax():
    yield from ((rung, *SOFTMAX) for rung in softmax_ladder.RUNGS)


ASKED = {
    "gemm": _gemm, "conv": _conv, "attention": _attention, "fusion": _fusion, "softmax": _softmax,
    "memory": _memory,
}  # fmt: skip


def launches(name: str) -> list[Case]:
    """Every launch of a ladder once: two rungs may have one in common."""
    found = {}
    ours = (case for rung, shape, tiles in asked(name) for case in steps(rung, shape, **tiles))
    for case in chain(ours, _between_libraries(name)):
        step = case.launch
        args = tuple(a if isinstance(a, str) else a.tobytes() for a in step.args)
        found.setdefault((step.source, step.defines, step.grid, step.block, args), case)
    return list(found.values())


def _between_libraries(name: str) -> Iterator[Case]:
    """Launches of ours that a library's rung alone has: the softmax whose P is in halves."""
    if name == "attention":
        for dtype in ("fp16", "bf16"):
            yield from steps(attention_ladder.CUBLAS, HALVES[0].with_(dtype=dtype), "softmax")


def on_gpu(case: Case) -> str:
    return case.wrong(launch_on_gpu(case))


def in_emulator(case: Case) -> str:
    run = emulate(case, races=True)
    return "; ".join(filter(None, (case.wrong(run.outputs), *run.races)))


def run(name: str, of: Callable[[Case], str]) -> int:
    """How many launches of a ladder went wrong."""
    chosen, wrong = launches(name), 0
    for case in chosen:
        try:
            problem = of(case)
        except Exception as e:  # told, and the others still run
            problem = f"{type(e).__name__}: {e}"
        if problem:
            wrong += 1
            print(f"WRONG {case.name}: {problem}", flush=True)
    print(f"{name}: {len(chosen)} launches, {wrong} wrong", flush=True)
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = tuple(ASKED)
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
