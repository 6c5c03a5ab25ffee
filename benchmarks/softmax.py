"""The softmax ladder on a GPU: verify every rung, and compare its time with PyTorch's and with a copy.

    python3 benchmarks/softmax.py --out OUT [--seconds 100] [--shapes M=8192,N=1024 ...]

All rungs that support a shape, at several sets of tile sizes, and PyTorch's if it is installed, are verified and timed in
the same rounds, cold and hot. A row's share of the copy is the time to read x and write y once at the copy rate measured
on this device, divided by its own time: 100 % is the limit of memory. A hot x that fits into the L2 may exceed it. Prints
a table for each shape and mode, and writes OUT/softmax.json: rows with times, GB/s, both shares, error, bytes, registers.
After --seconds no new timing starts, and the shapes left out are printed.
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
from benchmarks.compiling import tiles_text
from kernels.engines import cuda
from kernels.machine.timing import MODES, Budget
from kernels.model.program import INPUT, Launch, RuleError
from kernels.model.rung import Rung
from kernels.model.verify import agrees, relative_error
from kernels.records import availability
from kernels.runner import seeded_inputs
from kernels.softmax import ladder as softmax_ladder
from kernels.softmax.shape import SoftmaxShape, parse_softmax

LADDER, BASE = softmax_ladder.LADDER, softmax_ladder.LIBRARY.name
SHAPES = (
    SoftmaxShape(8192, 1024),
    SoftmaxShape(32768, 1024),
    SoftmaxShape(64, 50257),
    SoftmaxShape(65536, 128),
    SoftmaxShape(4096, 8192),
    SoftmaxShape(1001, 777),
    SoftmaxShape(128, 128),
    SoftmaxShape(4, 2**20),
)
SETS = {  # of tile sizes, besides the default
    **{f"softmax/{name}": [{"BLOCK": b} for b in (128, 512, 1024)] for name in ("unsafe", "three-pass", "online")},
    "softmax/warp-shuffle": [{"WARPS": 4}],
    "softmax/registers": [
        {"PER": 2}, {"PER": 8}, {"PER": 16}, {"PER": 32}, {"BLOCK": 128}, {"BLOCK": 128, "PER": 8}, {"BLOCK": 512},
        {"BLOCK": 1024}, {"BLOCK": 1024, "PER": 8}, {"BLOCK": 32}, {"BLOCK": 32, "PER": 32},
    ],
}  # fmt: skip
Candidate = tuple[Rung, dict[str, int]]


def candidates(s: SoftmaxShape) -> Iterator[Candidate]:
    for rung in LADDER.rungs:
        for tiles in ({}, *SETS.get(rung.name, ())):
            all_tiles = rung.default_tiles | tiles
            if availability.runs(rung, s, all_tiles):
                yield rung, all_tiles


def measured(s: SoftmaxShape, copy_bytes_per_s: float, budget: Budget) -> list[dict]:
    """Returns a row in each mode for each candidate with a correct result; the others are printed."""
    inputs = seeded_inputs([b for b in softmax_ladder.buffers(s) if b.role == INPUT])
    ref, scale = LADDER.reference(s, **inputs)
    sessions = []
    for rung, tiles in candidates(s):
        try:
            session = cuda.open(rung.build(s, tiles), inputs)
            y = session.verify_run()
        except (RuleError, RuntimeError) as e:
            print(f"{rung.name} {tiles_text(tiles)}: {e}", flush=True)
            continue
        error = relative_error(y, ref)
        if agrees(y, ref, scale, rung.tolerance):
            sessions.append((rung, tiles, session, error))
        else:
            print(f"WRONG {rung.name} {tiles_text(tiles)} {s}: {error:.1e}", flush=True)
            session.close()
    rows = []
    for mode in MODES:
        timed = cuda.sample([session for _, _, session, _ in sessions], mode, budget)
        mode_rows = [
            row(s, mode, copy_bytes_per_s, *candidate, t)
            for candidate, t in zip(sessions, timed, strict=True)
        ]
        base = next((r["median_ms"] for r in mode_rows if r["rung"] == BASE), None)
        rows += [r | {"of_library": base / r["median_ms"] if base else None} for r in mode_rows]
    for _, _, session, _ in sessions:
        session.close()
    return rows


def row(
    s: SoftmaxShape, mode: str, copy: float, rung: Rung, tiles: Mapping, session, error: float, timed
) -> dict:
    p20, median, p80 = np.quantile(timed.samples_ms, (0.2, 0.5, 0.8)).tolist()
    kernels = [
        cuda.compile_kernel(t.source, t.entry, t.defines)
        for t in session.program.steps
        if isinstance(t, Launch)
    ]
    return {
        "shape": s.params(), "mode": mode, "rung": rung.name, "tiles": dict(tiles), "n": len(timed.samples_ms),
        "median_ms": median, "p20_ms": p20, "p80_ms": p80, "gb_per_s": s.bytes / median / 1e6,
        "of_copy": s.bytes / copy * 1e3 / median, "error": error,
        "predicted_bytes": rung.cost(s, session.program).bytes, "workspace_bytes": session.bytes["workspace"],
        "registers": max((k.num_regs for k in kernels), default=None),
        "local": max((k.local_size_bytes for k in kernels), default=None),
    }  # fmt: skip


def table(rows: Sequence[Mapping]) -> str:
    lines = [
        f"{'':24}{'us':>9} {'spread':>7} {'n':>4} {'GB/s':>7} {'of copy':>8} {'of lib':>7} {'error':>8} regs"
    ]
    for r in sorted(rows, key=lambda r: -r["median_ms"]):
        spread = (r["p80_ms"] - r["p20_ms"]) / r["median_ms"]
        share = f"{r['of_library']:7.1%}" if r["of_library"] else f"{'':7}"
        lines.append(
            f"{r['rung']:24}{1e3 * r['median_ms']:9.2f} {spread:7.1%} {r['n']:4} {r['gb_per_s']:7.0f} {r['of_copy']:8.1%} "
            f"{share} {r['error']:8.1e} {r['registers'] or '':>4}  {tiles_text(r['tiles'])}"
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="a folder")
    parser.add_argument("--seconds", type=float, default=100.0, help="nothing new is begun after so many")
    parser.add_argument("--shapes", type=parse_softmax, nargs="*", default=SHAPES)
    args = parser.parse_args()
    start = time.perf_counter()
    if not (status := cuda.status()).ready:
        print(status.text)
        return 1
    args.out.mkdir(parents=True, exist_ok=True)
    for why in availability.reasons(softmax_ladder.LIBRARY, args.shapes[0], {}):
        print(f"{BASE}: {why}")
    ceilings = cuda.ceilings()
    copy = ceilings["copy_bytes_per_s"]
    report = {"device": cuda.device_name(), "conditions": cuda.conditions(), "ceilings": ceilings, "rows": []}
    print(f"{report['device']}, copy {copy / 1e9:,.0f} GB/s (bytes read and written)", flush=True)
    for s in args.shapes:
        if time.perf_counter() - start > args.seconds:
            print(f"left out for want of time: {s}")
            continue
        rows = measured(s, copy, Budget(samples=100, seconds=3.0, warm_up_s=0.05))
        report["rows"] += rows
        (args.out / "softmax.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
        for mode in MODES:
            text = table([r for r in rows if r["mode"] == mode])
            print(f"\n{s}, {mode}, {time.perf_counter() - start:.0f} s so far\n{text}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
