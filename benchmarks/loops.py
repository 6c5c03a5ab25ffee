"""The loops of kernels/gemm/cpu_loops.py on this machine: python -m benchmarks.loops [n ...] (512 and 1024 if none is given)

Every rung on one core and on all, each number of threads in one comparison with interleaved samples, cold; then the
blocked loops at every BLOCK. Prints Markdown: medians with p20 to p80 and n.
"""

from __future__ import annotations

import sys

from benchmarks.loops_report import cells, machine
from kernels.gemm import cpu_ladder as gemm_cpu_ladder
from kernels.gemm.cpu_traffic import traffic_ratio
from kernels.gemm.shape import GemmShape
from kernels.machine.memory_levels import caches
from kernels.machine.processor import cores
from kernels.machine.timing import Budget
from kernels.runner import compare, run
from visuals import units
from visuals.gemm import cpu_curve

BUDGET = Budget(samples=30, seconds=6.0, min_samples=5)
EACH = Budget(samples=30, seconds=1.5, min_samples=5)


def ladder(n: int) -> None:
    s = GemmShape(n, n, n)
    print(f"\n{n} x {n} x {n}\n\n| rung | threads | median (p20 to p80) | rate |\n|---|---|---|---|")
    for threads in dict.fromkeys((1, cores())):
        names = [rung.name for rung in gemm_cpu_ladder.LADDER.rungs]
        for r in compare(names, s, engine="cpu", tiles={"THREADS": threads}, budget=BUDGET):
            tiles = f", BLOCK {r.tiles['BLOCK']}" if "BLOCK" in r.tiles else ""
            print(f"| `{r.rung}`{tiles} | {threads} | {cells(r.measurement, s.flops)} |", flush=True)


def curve(n: int, threads: int) -> None:
    s = GemmShape(n, n, n)
    names = " | ".join(f"past {c.name}" for c in caches())
    print(f"\n{n} x {n} x {n}, {threads} threads; bytes past each cache, predicted, as a share of naive's\n")
    print(f"| BLOCK | median (p20 to p80) | rate | {names} |\n|{'---|' * (3 + len(caches()))}")
    for block in sorted(gemm_cpu_ladder.BLOCKS):
        tiles = {"BLOCK": block, "THREADS": threads}
        r = run("loops/blocked", s, engine="cpu", tiles=tiles, budget=EACH)
        shares = [units.share(traffic_ratio(s, block, c.line_bytes, c.bytes)) for c in caches()]
        print(f"| {block} | {cells(r.measurement, s.flops)} | {' | '.join(shares)} |", flush=True)


def main(sizes: list[int]) -> None:
    print(machine())
    print(cpu_curve.caches_sentence(caches(), cpu_curve.block_tile(GemmShape(1, 1, 1))))
    for n in sizes:
        ladder(n)
        curve(n, 1)


if __name__ == "__main__":
    main([int(n) for n in sys.argv[1:]] or [512, 1024])
