"""Winograd on a GPU: verify every rung at the 3x3 layers of ResNet-50, batch 32, and time each step.

    python3 benchmarks/winograd.py --out OUT [--tune]

Compiles and verifies every rung at every tile size, at odd shapes and at the four layers. Then times all rungs of a
layer together, cold, and each step alone. --tune adds the other tile sizes of each rung; without it the tile sizes of
M = 2, 4 and 6 are timed. Prints effective and executed TFLOP/s, registers and spills, and writes all figures to
OUT/winograd.json.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.compiling import compile_all, tiles_text
from kernels.conv import reference
from kernels.conv.shape import ConvShape
from kernels.conv.winograd import MAX_ERROR, RUNGS
from kernels.engines import cuda
from kernels.machine.timing import Budget
from kernels.model.program import INPUT, Launch, Program
from kernels.model.rung import Rung
from kernels.model.verify import agrees, relative_error
from kernels.runner import seeded_inputs

LAYERS = tuple(ConvShape(32, c, n, n, c, 3, 3, pad=1) for c, n in ((64, 56), (128, 28), (256, 14), (512, 7)))
ODD = (
    ConvShape(1, 1, 3, 3, 1, 3, 3),
    ConvShape(3, 17, 7, 9, 70, 3, 3, pad=1, mode="convolution"),
    ConvShape(2, 130, 13, 6, 33, 3, 3, pad=(3, 0), bias=1, relu=1),
    ConvShape(5, 7, 30, 31, 129, 3, 3, pad=2),
)
Candidate = tuple[Rung, Mapping[str, int]]


def candidates(shape: ConvShape, tune: bool) -> Iterator[Candidate]:
    for rung in RUNGS:
        for tiles in rung.tile_sets(shape):
            changed = {name for name, value in rung.default_tiles.items() if tiles[name] != value}
            if tune or changed <= {"M"}:
                yield rung, tiles
    if tune:  # tile sizes of the products, both sides changed together
        rung = RUNGS[-1]
        for m in (2, 4):
            for sides in ({"BM": 128, "BN": 64}, {"BM": 64, "BN": 64}, {"BM": 128}):
                yield rung, rung.default_tiles | {"M": m} | sides


def m_of(rung: Rung, tiles: Mapping[str, int]) -> int:
    return tiles.get("M") or int(rung.name[-1])


# -- compiled ----------------------------------------------------------------------------------------
def compiled(program: Program) -> dict[str, tuple[int, int]]:
    """Returns registers and bytes of local memory (spills) of each step, from the driver."""
    kernels = {
        s.name: cuda.compile_kernel(s.source, s.entry, s.defines)
        for s in program.steps
        if isinstance(s, Launch)
    }
    return {name: (int(k.num_regs), int(k.local_size_bytes)) for name, k in kernels.items()}


# -- verification ------------------------------------------------------------------------------------
def open_verified(
    shape: ConvShape, chosen: Sequence[Candidate]
) -> tuple[list[tuple[Candidate, cuda.Session, float]], list[str]]:
    """Returns each correct candidate with its session and relative L2 error, and messages about failures."""
    programs = [rung.build(shape, tiles) for rung, tiles in chosen]
    inputs = seeded_inputs(programs[0].of_role(INPUT))
    ref = expected(shape, **inputs)
    scales: dict[int, np.ndarray] = {}
    verified, failed = [], []
    for (rung, tiles), program in zip(chosen, programs, strict=True):
        m = m_of(rung, tiles)
        if m not in scales:
            scales[m] = rung.scale(shape, tiles, inputs)
        session = None
        try:
            session = cuda.open(program, inputs)
            out = session.verify_run()
            error = relative_error(out, ref)
            correct = agrees(out, ref, scales[m], rung.tolerance) and error < MAX_ERROR[m]
            message = f"error {error:.1e}"
        except Exception as e:  # a fault of one kernel is reported with the others
            correct, message = False, repr(e)
        if correct:
            verified.append(((rung, tiles), session, error))
        else:
            failed.append(f"WRONG {rung.name} {tiles_text(tiles)} at {shape}: {message}")
            if session:
                session.close()
    return verified, failed


def expected(shape: ConvShape, x: np.ndarray, w: np.ndarray, b: np.ndarray | None = None) -> np.ndarray:
    """Returns the float64 reference, without the ladder's error scale, which would double the time."""
    y = reference.conv2d(shape, x.astype("f8"), w.astype("f8"))
    y = y if b is None else y + b[:, None, None]
    return np.maximum(y, 0) if shape.relu else y


# -- timing ------------------------------------------------------------------------------------------
def layer(shape: ConvShape, tune: bool) -> tuple[list[dict], list[str]]:
    verified, failed = open_verified(shape, list(candidates(shape, tune)))
    timed = cuda.sample(
        [session for _, session, _ in verified], "cold", Budget(samples=40, seconds=1.2, min_samples=5)
    )
    rows = []
    for ((rung, tiles), session, error), t in zip(verified, timed, strict=True):
        p20, median, p80 = np.quantile(t.samples_ms, (0.2, 0.5, 0.8)).tolist()
        cost = rung.cost(shape, session.program)
        rows.append({
            "rung": rung.name, "shape": shape.params(), "tiles": dict(tiles), "error": error,
            "n": len(t.samples_ms), "median_ms": median, "p20_ms": p20, "p80_ms": p80,
            "effective_tflops": shape.flops / median / 1e9, "executed_tflops": cost.flops / median / 1e9,
            "workspace_bytes": cost.workspace_bytes, "steps_ms": dict(t.parts_ms),
            "compiled": compiled(session.program),
        })  # fmt: skip
        session.close()
    return sorted(rows, key=lambda r: r["median_ms"]), failed


def print_table(rows: Sequence[Mapping]) -> None:
    print(f"{'':24} {'ms':>8} {'spread':>6} {'effective':>9} {'executed':>8} {'MB':>6} {'error':>8}")
    for r in rows:
        spread, total = (r["p80_ms"] - r["p20_ms"]) / r["median_ms"], sum(r["steps_ms"].values())
        print(
            f"{r['rung']:24} {r['median_ms']:8.4f} {spread:6.1%} {r['effective_tflops']:9.2f} "
            f"{r['executed_tflops']:8.2f} {r['workspace_bytes'] / 1e6:6.1f} {r['error']:8.1e}  {tiles_text(r['tiles'])}"
        )
        steps = (
            f"{name.removeprefix('winograd_')} {ms:.4f} ms {ms / total:.0%} ({regs} registers, {local} B local)"
            for (name, ms), (regs, local) in zip(r["steps_ms"].items(), r["compiled"].values(), strict=True)
        )
        print(f"{'':24} {' | '.join(steps)}", flush=True)


def main() -> None:
    top = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    top.add_argument("--out", type=Path, required=True, help="a folder")
    top.add_argument("--tune", action="store_true", help="other tile sizes too")
    args = top.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    compile_all([r.build(s, t) for s in (LAYERS[0], ODD[2]) for r, t in candidates(s, tune=True)])
    print(f"compiled, {time.perf_counter() - start:.0f} s", flush=True)
    failed = []
    for shape in (*ODD, *(s.with_(N=1) for s in LAYERS)):
        verified, messages = open_verified(shape, list(candidates(shape, tune=True)))
        failed += messages
        for _, session, _ in verified:
            session.close()
    print(f"every tile size at {len(ODD) + len(LAYERS)} shapes: {len(failed)} failures", "\n".join(failed))
    report = {"device": cuda.device_name(), "conditions": cuda.conditions(), "failed": failed, "rows": []}
    for shape in LAYERS:
        rows, messages = layer(shape, args.tune)
        report["rows"] += rows
        report["failed"] += messages
        (args.out / "winograd.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
        print(f"\n{shape}, {time.perf_counter() - start:.0f} s so far", "\n".join(messages))
        print_table(rows)


if __name__ == "__main__":
    main()
