"""Attention's loops on this machine: python -m benchmarks.attention_loops [N ...] (256 to 4096 if none is given)

Four heads of d = 32, on one thread and on all cores, each set in one comparison with interleaved samples, cold; then
flash attention at every tile. Also the bytes that each allocates besides its inputs, measured and predicted.
NUMBA_NUM_THREADS=8 sets eight threads on fewer cores. Prints Markdown: medians with p20 to p80 and n.
"""

from __future__ import annotations

import sys

from benchmarks.loops_report import cells, machine
from kernels.attention import cpu_ladder as attention_cpu_ladder
from kernels.attention.shape import AttentionShape
from kernels.machine.processor import THREADS, cores, max_threads
from kernels.machine.timing import Budget
from kernels.runner import compare, run
from visuals import units
from visuals.attention import cpu as attention_charts

BUDGET = Budget(samples=30, seconds=8.0, min_samples=5)
EACH = Budget(samples=20, seconds=1.0, min_samples=5)
LADDER, FLASH = attention_cpu_ladder.LADDER, attention_cpu_ladder.LADDER.rung(attention_charts.FLASH)


def shape(N: int) -> AttentionShape:
    return AttentionShape(1, 4, N, 32)


def ladder(s: AttentionShape, threads: int) -> None:
    print(
        f"\n{s}, {threads} threads\n\n| rung | median (p20 to p80) | rate | bytes measured | predicted |\n{'|---' * 5}|"
    )
    tiles = {"THREADS": threads}
    names = [r.name for r in LADDER.rungs if not any(r.rules(s, r.default_tiles | tiles))]
    for r in compare(names, s, engine="cpu", tiles=tiles, budget=BUDGET):
        m = r.measurement
        allocated = [m.output_bytes + bytes_ for bytes_ in (m.workspace_bytes, r.predicted.workspace_bytes)]
        print(f"| `{r.rung}` | {cells(m, s.flops)} | {allocated[0]:,} | {allocated[1]:,} |", flush=True)


def tiles(s: AttentionShape, threads: int) -> None:
    sides = sorted(attention_cpu_ladder.SIDES)
    print(f"\n{s}, {threads} threads, flash attention: medians, Br down and Bc across\n")
    print(f"| Br | {' | '.join(map(str, sides))} |\n{'|---' * (1 + len(sides))}|")
    for Br in sides:
        tile_sets = [{"THREADS": threads, "Br": Br, "Bc": Bc} for Bc in sides]
        medians_ms = [run(FLASH.name, s, engine="cpu", tiles=t, budget=EACH).measurement.median_ms for t in tile_sets]
        print(f"| {Br} | {' | '.join(map(units.time_, medians_ms))} |", flush=True)


def main(lengths: list[int]) -> None:
    print(machine())
    for N in lengths:
        for threads in dict.fromkeys((1, cores(), max_threads()[0])):
            if threads in THREADS:
                ladder(shape(N), threads)
    tiles(shape(1024), cores())


if __name__ == "__main__":
    main([int(n) for n in sys.argv[1:]] or [256, 512, 1024, 2048, 4096])
