"""conv/direct-tiled and the implicit GEMMs on a GPU: verify them, and compare their times with cuDNN.

    python3 benchmarks/implicit.py --out OUT [--seconds 0.8] [--shapes 60]

Verifies the three rungs, and bias and ReLU after the earlier ones, at random shapes and at the presets with groups,
bias and ReLU. Then times, cold and interleaved, at the four 3x3 stages of ResNet-50 with 32 images and with one:
conv/implicit-gemm and conv/implicit-gemm-plain over tile sizes, conv/direct-tiled, im2col with cuBLAS, and cuDNN's
implicit GEMMs if cuDNN is installed. Every candidate is verified against the float64 reference at the shape it is timed
at. Prints tables with registers and spills, and writes all figures to OUT/implicit.json.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks import measure, report
from benchmarks.compiling import compile_all
from benchmarks.measure import Candidate, Verified
from benchmarks.report import Column, tiles_text
from kernels.conv import common as conv_common
from kernels.conv import implicit as conv_implicit
from kernels.conv import ladder as conv_ladder
from kernels.conv import library as conv_library
from kernels.conv import reference
from kernels.conv.presets import CONV_LAYER_PRESETS, CONV_PRESETS
from kernels.conv.shape import ConvShape
from kernels.engines import cuda
from kernels.engines.protocol import Timed
from kernels.machine.timing import Budget
from kernels.model.rung import Rung
from kernels.model.shape import ShapeError

STAGES = (2, 3, 4, 5)
DIRECT, PLAIN, IMPLICIT = conv_implicit.RUNGS
COLUMNS = conv_ladder.LADDER.rung("conv/im2col-cublas")
EARLIER = [r for r in conv_ladder.LADDER.rungs if r.name in ("conv/direct", "conv/im2col-gemm", "conv/im2col-cublas")]
BASE, MAX_ERROR, GOAL = "conv/cudnn-implicit-precomp-gemm", 1e-6, 0.7
LIBRARY = ("conv/cudnn-implicit-gemm", BASE)
# BM, BN, BK, TM, TN, STAGES
SETS = (
    (64, 64, 16, 8, 4, 3),
    (64, 64, 16, 8, 4, 2),
    (64, 64, 16, 8, 4, 4),
    (64, 64, 8, 8, 4, 4),
    (64, 64, 16, 4, 8, 3),
    (64, 64, 16, 8, 8, 3),
    (64, 64, 16, 8, 8, 2),
    (64, 64, 16, 4, 4, 3),
    (64, 128, 16, 8, 8, 3),
    (64, 128, 16, 8, 8, 2),
    (64, 128, 16, 8, 4, 3),
    (64, 128, 8, 8, 8, 4),
    (128, 64, 16, 8, 8, 3),
    (128, 64, 16, 8, 4, 3),
    (128, 128, 16, 8, 8, 3),
    (128, 128, 16, 8, 8, 2),
    (128, 128, 16, 8, 4, 3),
    (128, 128, 8, 8, 8, 4),
    (64, 32, 16, 8, 4, 3),
    (64, 32, 16, 4, 4, 3),
    (32, 64, 16, 8, 4, 3),
    (32, 64, 16, 4, 4, 3),
    (32, 32, 16, 4, 4, 4),
    (32, 128, 16, 8, 4, 3),
)
PLAIN_SETS = (SETS[0], (64, 64, 16, 8, 8, 3), (128, 128, 16, 8, 8, 3))
# TILE, TK, TP, CHUNK
DIRECT_SETS = ((16, 8, 4, 4), (8, 8, 4, 4), (16, 4, 4, 4), (8, 8, 2, 8), (16, 8, 2, 4), (32, 8, 4, 4))
DEPTHWISE_SETS = ((16, 8, 4, 4), (16, 1, 4, 1), (8, 1, 2, 1), (16, 1, 1, 1))


def with_tile_sizes(rung: Rung, sets: Sequence[tuple]) -> list[Candidate]:
    return [(rung, dict(zip(rung.tiles, values, strict=True))) for values in sets]


OURS = [*with_tile_sizes(IMPLICIT, SETS), *with_tile_sizes(PLAIN, PLAIN_SETS), *with_tile_sizes(DIRECT, DIRECT_SETS)]


DEPTHWISE = with_tile_sizes(DIRECT, DEPTHWISE_SETS)
EARLIER_CANDIDATES = [(rung, rung.default_tiles) for rung in EARLIER]
LIBRARY_CANDIDATES = [(rung, {}) for rung in conv_library.RUNGS if rung.name in LIBRARY]


def problem(s: ConvShape) -> measure.Problem:
    return measure.problem(s, conv_common.buffers(s), reference.conv)


def random_shape(rng: random.Random) -> ConvShape:
    """Returns a random shape: any extents, strides, padding, dilation, groups, bias, ReLU, small enough for a quick
    reference."""
    while True:
        groups = rng.choice((1, 1, 2, 3, 8))
        try:
            return ConvShape(
                rng.randint(1, 5),
                groups * rng.randint(1, 20),
                rng.randint(1, 40),
                rng.randint(1, 40),
                groups * rng.randint(1, 70),
                rng.randint(1, 5),
                rng.randint(1, 5),
                stride=(rng.randint(1, 3), rng.randint(1, 3)),
                pad=(rng.randint(0, 3), rng.randint(0, 3)),
                dilation=(rng.randint(1, 3), rng.randint(1, 3)),
                mode=rng.choice(("cross-correlation", "convolution")),
                groups=groups,
                bias=rng.randint(0, 1),
                relu=rng.randint(0, 1),
            )
        except ShapeError:  # the filter does not fit: try another
            continue


def verify(count: int) -> tuple[int, int]:
    """Returns (correct, tried) at random shapes and the layers' presets; wrong results are printed."""
    rng, correct, tried = random.Random(0), 0, 0
    shapes = [random_shape(rng) for _ in range(count)] + [p.shape for p in CONV_LAYER_PRESETS.values()]
    defaults = [(rung, rung.default_tiles) for rung in (*conv_implicit.RUNGS, *EARLIER)]
    for s in shapes:
        chosen = [(rung, tiles) for rung, tiles in (rng.choice(OURS), *defaults) if not any(rung.rules(s, tiles))]
        correct_here, failed = measure.verify([(chosen, problem(s))])
        tried, correct = tried + len(chosen), correct + correct_here
        print("".join(f"  {message}\n" for message in failed), end="", flush=True)
    return correct, tried


def measured(s: ConvShape, candidates: Sequence[Candidate], seconds: float) -> list[dict]:
    """Returns a row for each candidate with a correct result; the others are printed."""
    verified, _ = measure.open_verified(candidates, problem(s))
    budget = Budget(samples=60, seconds=seconds, min_samples=7, warm_up_s=0.01)
    rows = measure.time_together(verified, "cold", budget, lambda v, timed: row(s, v, timed))
    measure.close(verified)
    return rows


def row(s: ConvShape, v: Verified, timed: Timed) -> dict:
    figures = measure.figures(timed)
    return {
        "rung": v.rung.name,
        "shape": s.params(),
        "tiles": v.tiles,
        "error": v.error,
        **figures,
        "tflops": s.flops / figures["median_ms"] / 1e9,
        **measure.compiled_first(v.session.program),
    }


def table(rows: Sequence[report.Row]) -> str:
    base = report.fastest_ms(rows, (BASE,))
    columns = (
        report.RUNG,
        report.TILES,
        report.MEDIAN_MS,
        report.SPREAD,
        report.TFLOPS,
        Column("of cuDNN", ".1%", lambda row: report.speed_relative_to(base, row)),
        report.ERROR,
        report.REGISTERS,
        report.LOCAL,
    )
    return report.table(sorted(rows, key=lambda r: r["median_ms"]), columns)


def summary(stages: Sequence[Sequence[report.Row]]) -> str:
    """Returns geometric means over the stages of the speed relative to cuDNN: of each set of tiles, and of the best set
    at each stage."""
    by_set: dict[tuple[str, str], list[float]] = {}
    best: dict[str, list[float]] = {}
    for rows in stages:
        base = report.fastest_ms(rows, (BASE,)) or report.fastest_ms(rows, (COLUMNS.name,))
        best_at_stage: dict[str, float] = {}
        for r in rows:
            share = base / r["median_ms"]
            by_set.setdefault((r["rung"], tiles_text(r["tiles"])), []).append(share)
            best_at_stage[r["rung"]] = max(share, best_at_stage.get(r["rung"], 0))
        for rung, share in best_at_stage.items():
            best.setdefault(rung, []).append(share)
    means = {key: mean(v) for key, v in by_set.items() if len(v) == len(stages)}
    lines = [f"  {m:7.1%}  {rung:34} {tiles}" for (rung, tiles), m in sorted(means.items(), key=lambda kv: -kv[1])]
    lines += [f"  {mean(v):7.1%}  {rung:34} the best tiles of each stage" for rung, v in best.items()]
    return "\n".join(lines)


def mean(values: Sequence[float]) -> float:
    return float(np.exp(np.mean(np.log(values))))


def speed_up_of_magic_division(rows: Sequence[report.Row]) -> str:
    """Returns the speed-up by division through multiplication, at equal tiles."""
    magic_ms = {tiles_text(r["tiles"]): r["median_ms"] for r in rows if r["rung"] == IMPLICIT.name}
    plain_ms = {tiles_text(r["tiles"]): r["median_ms"] for r in rows if r["rung"] == PLAIN.name}
    return ", ".join(f"{plain_ms[t] / magic_ms[t]:.3f} ({t})" for t in plain_ms if t in magic_ms)


def time_stages(seconds: float, elapsed: Callable[[], float]) -> Iterator[dict]:
    """Time the candidates at the four stages, with 32 images and with one, and yield the rows."""
    candidates = [*OURS, (COLUMNS, COLUMNS.default_tiles), *LIBRARY_CANDIDATES]
    for n, seconds_of_shape in ((32, seconds), (1, seconds / 2)):
        stages = []
        for s in (CONV_PRESETS[f"resnet50-res{i}-3x3-n{n}"].shape for i in STAGES):
            stages.append(rows := measured(s, candidates, seconds_of_shape))
            print(f"\n{s}, {elapsed():.0f} s so far\n{table(rows)}")
            print(f"magic divisions make it {speed_up_of_magic_division(rows)} times as fast", flush=True)
            yield from rows
        print(f"\nN={n}, geometric mean of the four stages, of {BASE} (without cuDNN: of {COLUMNS.name}):")
        print(summary(stages))


def time_layers(seconds: float) -> Iterator[dict]:
    """Time the candidates at the presets with groups, bias and ReLU, and yield the rows."""
    defaults = [(rung, rung.default_tiles) for rung in (PLAIN, IMPLICIT)]
    candidates = [*DEPTHWISE, *defaults, *EARLIER_CANDIDATES, *LIBRARY_CANDIDATES]
    for preset in CONV_LAYER_PRESETS.values():
        s = preset.shape
        supported = [(r, t) for r, t in candidates if r.name in LIBRARY or not any(r.rules(s, t))]
        yield from (rows := measured(s, supported, seconds))
        print(f"\n{preset.label}: {s}\n{table(rows)}", flush=True)


def arguments() -> argparse.Namespace:
    options = report.parser(__doc__)
    options.add_argument("--out", type=Path, required=True, help="a folder")
    options.add_argument("--seconds", type=float, default=0.8, help="of timing at a shape")
    options.add_argument("--shapes", type=int, default=60, help="random shapes to verify")
    return options.parse_args()


def main() -> None:
    args, elapsed = arguments(), report.stopwatch()
    args.out.mkdir(parents=True, exist_ok=True)
    toy = CONV_PRESETS["toy"].shape.with_(relu=1)
    compile_all(rung.build(toy, tiles) for rung, tiles in (*OURS, *DEPTHWISE, *EARLIER_CANDIDATES))
    correct, tried = verify(args.shapes)
    print(f"{correct} of {tried} right at {args.shapes} random shapes and the layers, {elapsed():.0f} s")
    results = {"device": cuda.device_name(), "conditions": cuda.conditions(), "right": correct, "tried": tried}
    rows = list(time_stages(args.seconds, elapsed))
    worst = max(r["error"] for r in rows if r["rung"] in (DIRECT.name, PLAIN.name, IMPLICIT.name))
    print(f"\nlargest relative L2 error of ours {worst:.2e}, {MAX_ERROR:g} is allowed; the goal is {GOAL:.0%}")
    rows += time_layers(args.seconds / 2)
    report.write_json(args.out / "implicit.json", results | {"rows": rows})
    print(f"{elapsed():.0f} s")


if __name__ == "__main__":
    main()
