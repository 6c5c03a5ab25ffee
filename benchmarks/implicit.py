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
import json
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.compiling import compile_all, tiles_text
from benchmarks.gemm import compiled
from kernels.conv import common as conv_common
from kernels.conv import implicit as conv_implicit
from kernels.conv import ladder as conv_ladder
from kernels.conv import reference
from kernels.conv.presets import CONV_LAYER_PRESETS, CONV_PRESETS
from kernels.conv.shape import ConvShape
from kernels.engines import cuda
from kernels.machine.timing import Budget
from kernels.model.program import INPUT, Program, RuleError
from kernels.model.rung import Rung
from kernels.model.shape import ShapeError
from kernels.model.verify import agrees, relative_error
from kernels.runner import seeded_inputs

try:
    from kernels.conv import library as conv_library
except ImportError:  # not a part of this checkout
    conv_library = None

STAGES = (2, 3, 4, 5)
DIRECT, PLAIN, IMPLICIT = conv_implicit.RUNGS
COLUMNS = conv_ladder.LADDER.rung("conv/im2col-cublas")
EARLIER = [
    r for r in conv_ladder.LADDER.rungs if r.name in ("conv/direct", "conv/im2col-gemm", "conv/im2col-cublas")
]
BASE, MAX_ERROR, GOAL = "conv/cudnn-implicit-precomp-gemm", 1e-6, 0.7
LIBRARY = ("conv/cudnn-implicit-gemm", BASE)
# BM, BN, BK, TM, TN, STAGES
SETS = (
    (64, 64, 16, 8, 4, 3), (64, 64, 16, 8, 4, 2), (64, 64, 16, 8, 4, 4), (64, 64, 8, 8, 4, 4), (64, 64, 16, 4, 8, 3),
    (64, 64, 16, 8, 8, 3), (64, 64, 16, 8, 8, 2), (64, 64, 16, 4, 4, 3), (64, 128, 16, 8, 8, 3), (64, 128, 16, 8, 8, 2),
    (64, 128, 16, 8, 4, 3), (64, 128, 8, 8, 8, 4), (128, 64, 16, 8, 8, 3), (128, 64, 16, 8, 4, 3),
    (128, 128, 16, 8, 8, 3), (128, 128, 16, 8, 8, 2), (128, 128, 16, 8, 4, 3), (128, 128, 8, 8, 8, 4),
    (64, 32, 16, 8, 4, 3), (64, 32, 16, 4, 4, 3), (32, 64, 16, 8, 4, 3), (32, 64, 16, 4, 4, 3), (32, 32, 16, 4, 4, 4),
    (32, 128, 16, 8, 4, 3),
)  # fmt: skip
PLAIN_SETS = (SETS[0], (64, 64, 16, 8, 8, 3), (128, 128, 16, 8, 8, 3))
# TILE, TK, TP, CHUNK
DIRECT_SETS = ((16, 8, 4, 4), (8, 8, 4, 4), (16, 4, 4, 4), (8, 8, 2, 8), (16, 8, 2, 4), (32, 8, 4, 4))
DEPTHWISE_SETS = ((16, 8, 4, 4), (16, 1, 4, 1), (8, 1, 2, 1), (16, 1, 1, 1))
Candidate = tuple[Rung, dict[str, int]]


def with_tile_sizes(rung: Rung, sets: Sequence[tuple]) -> list[Candidate]:
    return [(rung, dict(zip(rung.tiles, values, strict=True))) for values in sets]


OURS = [
    *with_tile_sizes(IMPLICIT, SETS),
    *with_tile_sizes(PLAIN, PLAIN_SETS),
    *with_tile_sizes(DIRECT, DIRECT_SETS),
]


def library() -> list[Candidate]:
    return [(r, {}) for r in conv_library.RUNGS if r.name in LIBRARY] if conv_library else []


def random_shape(rng: random.Random) -> ConvShape:
    """Returns a random shape: any extents, strides, padding, dilation, groups, bias, ReLU, small enough for a quick
    reference."""
    while True:
        groups = rng.choice((1, 1, 2, 3, 8))
        try:
            return ConvShape(
                rng.randint(1, 5), groups * rng.randint(1, 20), rng.randint(1, 40), rng.randint(1, 40),
                groups * rng.randint(1, 70), rng.randint(1, 5), rng.randint(1, 5),
                stride=(rng.randint(1, 3), rng.randint(1, 3)), pad=(rng.randint(0, 3), rng.randint(0, 3)),
                dilation=(rng.randint(1, 3), rng.randint(1, 3)), mode=rng.choice(("cross-correlation", "convolution")),
                groups=groups, bias=rng.randint(0, 1), relu=rng.randint(0, 1),
            )  # fmt: skip
        except ShapeError:  # the filter does not fit: try another
            continue


def open_verified(
    s: ConvShape, candidates: Sequence[Candidate]
) -> Iterator[tuple[Candidate, Program, Any, float]]:
    """Yields (candidate, program, session, error) of each with a correct result; prints a line about each other one."""
    inputs = seeded_inputs([b for b in conv_common.buffers(s) if b.role == INPUT])
    ref, scale = reference.conv(s, **inputs)
    for rung, tiles in candidates:
        try:
            program = rung.build(s, rung.check(s, tiles))
            session = cuda.open(program, inputs)
            out = session.verify_run()
        except (RuleError, RuntimeError) as e:
            print(f"  {rung.name} {tiles_text(tiles)} {s}: {e}", flush=True)
            continue
        error = relative_error(out, ref)
        if agrees(out, ref, scale, rung.tolerance):
            yield (rung, tiles), program, session, error
        else:
            print(f"  WRONG {rung.name} {tiles_text(tiles)} {s}: relative L2 error {error:.1e}", flush=True)
            session.close()


def verify(count: int) -> tuple[int, int]:
    """Returns (correct, tried) at random shapes and the layers' presets; wrong results are printed."""
    rng, correct, tried = random.Random(0), 0, 0
    shapes = [random_shape(rng) for _ in range(count)] + [p.shape for p in CONV_LAYER_PRESETS.values()]
    for s in shapes:
        supported_candidates = [
            (rung, tiles)
            for rung, tiles in [
                rng.choice(OURS),
                *((r, r.default_tiles) for r in (*conv_implicit.RUNGS, *EARLIER)),
            ]
            if not any(rung.rules(s, tiles))
        ]
        tried += len(supported_candidates)
        for _, _, session, _ in open_verified(s, supported_candidates):
            correct += 1
            session.close()
    return correct, tried


def measured(s: ConvShape, candidates: Sequence[Candidate], seconds: float) -> list[dict]:
    sessions = list(open_verified(s, candidates))
    budget = Budget(samples=60, seconds=seconds, min_samples=7, warm_up_s=0.01)
    timed = cuda.sample([session for _, _, session, _ in sessions], "cold", budget)
    rows = []
    for ((rung, tiles), program, session, error), t in zip(sessions, timed, strict=True):
        p20, median, p80 = np.quantile(t.samples_ms, (0.2, 0.5, 0.8)).tolist()
        rows.append({
            "rung": rung.name, "shape": s.params(), "tiles": tiles, "error": error, "n": len(t.samples_ms),
            "median_ms": median, "p20_ms": p20, "p80_ms": p80, "tflops": s.flops / median / 1e9, **compiled(program),
        })  # fmt: skip
        session.close()
    return rows


def table(rows: Sequence[Mapping]) -> str:
    base = next((r["median_ms"] for r in rows if r["rung"] == BASE), None)
    lines = [
        f"{'':34} {'tiles':42} {'ms':>8} {'spread':>7} {'TFLOP/s':>8} {'of cuDNN':>8} {'error':>8} regs local"
    ]
    for r in sorted(rows, key=lambda r: r["median_ms"]):
        share = f"{base / r['median_ms']:8.1%}" if base else f"{'':8}"
        spread = (r["p80_ms"] - r["p20_ms"]) / r["median_ms"]
        lines.append(
            f"{r['rung']:34} {tiles_text(r['tiles']):42} {r['median_ms']:8.4f} {spread:7.1%} {r['tflops']:8.2f} {share} "
            f"{r['error']:8.1e} {r.get('registers', ''):>4} {r.get('local', ''):>5}"
        )
    return "\n".join(lines)


def summary(stages: Sequence[Sequence[Mapping]]) -> str:
    """Returns geometric means over the stages of the speed relative to cuDNN: of each set of tiles, and of the best set
    at each stage."""
    by_set: dict[tuple[str, str], list[float]] = {}
    best: dict[str, list[float]] = {}
    for rows in stages:
        base = next((r["median_ms"] for r in rows if r["rung"] == BASE), None)
        base = base or next(r["median_ms"] for r in rows if r["rung"] == COLUMNS.name)
        best_at_stage: dict[str, float] = {}
        for r in rows:
            share = base / r["median_ms"]
            by_set.setdefault((r["rung"], tiles_text(r["tiles"])), []).append(share)
            best_at_stage[r["rung"]] = max(share, best_at_stage.get(r["rung"], 0))
        for rung, share in best_at_stage.items():
            best.setdefault(rung, []).append(share)
    means = {key: mean(v) for key, v in by_set.items() if len(v) == len(stages)}
    lines = [
        f"  {m:7.1%}  {rung:34} {tiles}" for (rung, tiles), m in sorted(means.items(), key=lambda kv: -kv[1])
    ]
    lines += [f"  {mean(v):7.1%}  {rung:34} the best tiles of each stage" for rung, v in best.items()]
    return "\n".join(lines)


def mean(values: Sequence[float]) -> float:
    return float(np.exp(np.mean(np.log(values))))


def speed_up_of_magic_division(rows: Sequence[Mapping]) -> str:
    """Returns the speed-up by division through multiplication, at equal tiles."""
    magic_ms = {tiles_text(r["tiles"]): r["median_ms"] for r in rows if r["rung"] == IMPLICIT.name}
    plain_ms = {tiles_text(r["tiles"]): r["median_ms"] for r in rows if r["rung"] == PLAIN.name}
    return ", ".join(f"{plain_ms[t] / magic_ms[t]:.3f} ({t})" for t in plain_ms if t in magic_ms)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="a folder")
    parser.add_argument("--seconds", type=float, default=0.8, help="of timing at a shape")
    parser.add_argument("--shapes", type=int, default=60, help="random shapes to verify")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    stages = {n: [CONV_PRESETS[f"resnet50-res{i}-3x3-n{n}"].shape for i in STAGES] for n in (32, 1)}
    depthwise = with_tile_sizes(DIRECT, DEPTHWISE_SETS)
    toy = CONV_PRESETS["toy"].shape.with_(relu=1)
    earlier_candidates = [(r, r.default_tiles) for r in EARLIER]
    compile_all([r.build(toy, t) for r, t in (*OURS, *depthwise, *earlier_candidates)])
    print(f"compiled, {time.perf_counter() - start:.0f} s", flush=True)
    correct, tried = verify(args.shapes)
    print(
        f"{correct} of {tried} right at {args.shapes} random shapes and the layers, {time.perf_counter() - start:.0f} s"
    )
    report = {
        "device": cuda.device_name(),
        "conditions": cuda.conditions(),
        "right": correct,
        "tried": tried,
        "rows": [],
    }
    for n, shapes in stages.items():
        all_rows = []
        for s in shapes:
            candidates = [*OURS, (COLUMNS, COLUMNS.default_tiles), *library()]
            all_rows.append(rows := measured(s, candidates, args.seconds if n > 1 else args.seconds / 2))
            print(f"\n{s}, {time.perf_counter() - start:.0f} s so far\n{table(rows)}")
            print(f"magic divisions make it {speed_up_of_magic_division(rows)} times as fast", flush=True)
        print(f"\nN={n}, geometric mean of the four stages, of {BASE} (without cuDNN: of {COLUMNS.name}):")
        print(summary(all_rows))
        report["rows"] += [row for rows in all_rows for row in rows]
    worst = max(r["error"] for r in report["rows"] if r["rung"] in (DIRECT.name, PLAIN.name, IMPLICIT.name))
    print(
        f"\nlargest relative L2 error of ours {worst:.2e}, {MAX_ERROR:g} is allowed; the goal is {GOAL:.0%}"
    )
    for preset in CONV_LAYER_PRESETS.values():
        candidates = [*depthwise, *((r, r.default_tiles) for r in (PLAIN, IMPLICIT, *EARLIER)), *library()]
        supported_candidates = [
            (r, t) for r, t in candidates if r.name in LIBRARY or not any(r.rules(preset.shape, t))
        ]
        report["rows"] += (rows := measured(preset.shape, supported_candidates, args.seconds / 2))
        print(f"\n{preset.label}: {preset.shape}\n{table(rows)}", flush=True)
    (args.out / "implicit.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
