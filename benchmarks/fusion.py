"""The fusion ladder on a GPU: verify every rung for any chain, and compare fused rungs with their byte floor.

    python3 benchmarks/fusion.py --out OUT [--seconds 240] [--presets KEY ...]

First every rung, including PyTorch's, is verified for random chains. Then, preset by preset, all supported rungs are
timed in the same rounds, cold: unfused, fused with 1, 2 and 4 float4 a thread, folded, PyTorch. Every output that is
timed is verified first. The byte floor of a chain is the time to move its bytes (every input read once, the output
written once) at the copy rate measured on this GPU. Prints a table for each preset; at the end, for chains of pointwise
blocks larger than the L2, whether fused time / floor is within GOAL. Writes OUT/fusion.json with every row. Exit status
1 if an output is wrong or the goal is missed. After --seconds no new timing starts, and the presets left out are
printed.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.compiling import compile_all, tiles_text
from kernels.engines import cuda
from kernels.fusion import ladder as fusion_ladder
from kernels.fusion.presets import FUSION_PRESETS
from kernels.fusion.shape import KINDS, MAX_BLOCKS, ChainShape
from kernels.machine.timing import Budget
from kernels.model.program import INPUT, RuleError, UnsupportedError
from kernels.model.rung import Rung
from kernels.model.shape import ShapeError
from kernels.model.verify import agrees, relative_error
from kernels.records import availability
from kernels.runner import seeded_inputs

LADDER = fusion_ladder.LADDER
GOAL = 1.25  # fused time over byte floor
RANDOM_CHAINS = 50
Candidate = tuple[Rung, dict[str, int]]


def candidates(s: ChainShape, every_set: bool = True) -> Iterator[Candidate]:
    """Yields each rung that supports a shape, with its default tile sizes; fused also with more float4 a thread."""
    for rung in LADDER.rungs:
        fours_choices = fusion_ladder.TILES["FOURS"] if every_set and rung.name == "fusion/fused" else (1,)
        for fours in fours_choices:
            tiles = rung.default_tiles | ({"FOURS": fours} if rung.tiles else {})
            if availability.runs(rung, s, tiles):
                yield rung, tiles


# -- verification --------------------------------------------------------------------------------------------
def random_chain(rng: random.Random) -> ChainShape:
    """Returns a chain of random blocks that fit each other."""
    s, length = None, rng.randint(1, MAX_BLOCKS)
    extents = rng.randint(1, 5), rng.randint(1, 40), rng.randint(1, 70), rng.randint(1, 70)
    while s is None or len(s.stages) < length:
        kind, R = rng.choice(KINDS), rng.randint(1, 5)
        window = f":R={R}:stride={rng.randint(1, 3)}:pad={rng.randint(0, R // 2)}"
        filters = f":K={rng.randint(1, 40)}" if kind == "conv" else ""
        block = kind + filters + (window if kind in ("conv", "maxpool", "avgpool") else "")
        try:
            s = ChainShape(*extents, f"{s.chain} {block}" if s else block)
        except ShapeError:
            continue
    return s


def verify(shapes: Sequence[ChainShape]) -> tuple[list[str], int]:
    """Returns (messages about failures, number of correct outputs)."""
    failed, correct = [], 0
    for n, s in enumerate(shapes):
        inputs, ref, scale = case_data(s)
        for rung, tiles in candidates(s, every_set=False):
            tiles = tiles | ({"FOURS": (1, 2, 4)[n % 3], "BLOCK": (256, 128, 512)[n % 3]} if tiles else {})
            session, message = open_verified(rung, s, tiles, inputs, ref, scale)
            if session:
                session.close()
                correct += 1
            elif message:
                failed.append(f"{rung.name} {s} {tiles_text(tiles)}: {message}")
    return failed, correct


def case_data(s: ChainShape):
    """Returns (inputs, reference, scale)."""
    inputs = seeded_inputs([b for b in fusion_ladder.parts.buffers(s) if b.role == INPUT])
    return inputs, *LADDER.reference(s, **inputs)


def open_verified(rung: Rung, s: ChainShape, tiles: Mapping[str, int], inputs, ref, scale):
    """Returns (a session with a correct output, "") or (None, message); "" if the library does not support the shape."""
    session = None
    try:
        session = cuda.open(rung.build(s, tiles), inputs)
        out = session.verify_run()
    except (RuleError, RuntimeError) as e:
        if session:
            session.close()
        return None, "" if isinstance(e, UnsupportedError) else str(e)
    scale = rung.scale(s, tiles, inputs) if rung.scale else scale
    if agrees(out, ref, scale, rung.tolerance):
        return session, ""
    session.close()
    return None, f"relative L2 error {relative_error(out, ref):.1e}"


# -- timing --------------------------------------------------------------------------------------------------
def measured(key: str, s: ChainShape, ceilings: Mapping, budget: Budget) -> tuple[list[dict], list[str]]:
    """Returns (a row for each candidate, messages about failures)."""
    inputs, ref, scale = case_data(s)
    sessions, failed = [], []
    for rung, tiles in candidates(s):
        session, message = open_verified(rung, s, tiles, inputs, ref, scale)
        if session:
            sessions.append((rung, tiles, session))
        elif message:
            failed.append(f"{rung.name} {key} {tiles_text(tiles)}: {message}")
    timed = cuda.sample([session for *_, session in sessions], "cold", budget)
    rows = [row(key, s, *candidate, t, ceilings) for candidate, t in zip(sessions, timed, strict=True)]
    for *_, session in sessions:
        session.close()
    base = next((r["median_ms"] for r in rows if r["rung"] == "fusion/unfused"), None)
    return [r | {"faster_than_unfused": base / r["median_ms"] if base else None} for r in rows], failed


def row(key: str, s: ChainShape, rung: Rung, tiles: Mapping, session, timed, ceilings: Mapping) -> dict:
    p20, median, p80 = np.quantile(timed.samples_ms, (0.2, 0.5, 0.8)).tolist()
    predicted = rung.cost(s, session.program)
    floor = 1e3 * s.bytes / ceilings["copy_bytes_per_s"]
    return {
        "preset": key, "shape": s.params(), "mode": "cold", "rung": rung.name, "tiles": dict(tiles),
        "n": len(timed.samples_ms), "median_ms": median, "p20_ms": p20, "p80_ms": p80,
        "parts_ms": dict(timed.parts_ms), "launches": len(session.program.steps),
        "floor_ms": floor, "over_floor": median / floor, "floor_bytes": s.bytes,
        "predicted_bytes": predicted.bytes, "flops": predicted.flops, "tflops": predicted.flops / median / 1e9,
        "peak_bytes": session.bytes["peak"], "workspace_bytes": session.bytes["workspace"],
        "predicted_workspace_bytes": predicted.workspace_bytes,
    }  # fmt: skip


def goal_applies(row: Mapping, ceilings: Mapping) -> bool:
    """Returns whether GOAL applies to a row: a fused chain of pointwise blocks only, larger than the L2, with default
    tile sizes."""
    s = ChainShape(**row["shape"])
    pointwise = all(block.pointwise for block in s.blocks)
    has_default_tiles = row["tiles"] == LADDER.rung("fusion/fused").default_tiles
    return (
        pointwise
        and s.bytes > ceilings["cache_bytes"]
        and row["rung"] == "fusion/fused"
        and has_default_tiles
    )


def table(rows: Sequence[Mapping]) -> str:
    lines = [
        f"{'':18} {'ms':>9} {'spread':>7} {'n':>3} {'/ floor':>8} {'x unfused':>9} {'TFLOP/s':>8} "
        f"{'GB moved':>8} {'peak MB':>9}  parts"
    ]
    for r in rows:
        spread = (r["p80_ms"] - r["p20_ms"]) / r["median_ms"]
        faster = f"{r['faster_than_unfused']:9.2f}" if r["faster_than_unfused"] else f"{'':9}"
        parts = ", ".join(f"{name} {ms:.4f}" for name, ms in r["parts_ms"].items())
        lines.append(
            f"{r['rung']:18} {r['median_ms']:9.4f} {spread:7.1%} {r['n']:3} {r['over_floor']:8.3f} {faster} "
            f"{r['tflops']:8.3f} {r['predicted_bytes'] / 1e9:8.3f} {r['peak_bytes'] / 1e6:9.1f}  "
            f"{tiles_text(r['tiles'])}; {parts}"
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="a folder")
    parser.add_argument("--seconds", type=float, default=240.0, help="nothing new is begun after so many")
    parser.add_argument(
        "--presets", nargs="*", choices=FUSION_PRESETS, default=list(FUSION_PRESETS), metavar="KEY"
    )
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    start, rng = time.perf_counter(), random.Random(0)
    ceilings = cuda.ceilings()
    report = {"device": cuda.device_name(), "conditions": cuda.conditions(), "ceilings": ceilings, "rows": []}
    for rung in LADDER.rungs:
        if rung.library and (
            why := list(availability.reasons(rung, FUSION_PRESETS[args.presets[0]].shape, {}))
        ):
            print(f"{rung.name}: {why[0]}")
    chains = [random_chain(rng) for _ in range(RANDOM_CHAINS)]
    shapes = [*chains, *(FUSION_PRESETS[key].shape for key in args.presets)]
    compile_all([rung.build(s, tiles) for s in shapes for rung, tiles in candidates(s, every_set=False)])
    print(f"compiled, {time.perf_counter() - start:.0f} s", flush=True)
    report["failed"], correct = verify(chains)
    print(f"{len(chains)} random chains: {correct} outputs right, {len(report['failed'])} wrong", flush=True)
    for key in args.presets:
        s = FUSION_PRESETS[key].shape
        if time.perf_counter() - start > args.seconds:
            print(f"left out for want of time: {key}")
            continue
        rows, failed = measured(key, s, ceilings, Budget(samples=50, seconds=3.0, warm_up_s=0.05))
        report["rows"] += rows
        report["failed"] += failed
        (args.out / "fusion.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
        print(
            f"\n{key}: {s}, floor {1e3 * s.bytes / ceilings['copy_bytes_per_s']:.4f} ms\n{table(rows)}",
            flush=True,
        )
    print("\n" + "\n".join(report["failed"]) if report["failed"] else "\nnothing wrong")
    missed = False
    for r in (r for r in report["rows"] if goal_applies(r, ceilings)):
        missed |= r["over_floor"] > GOAL
        message = "within" if r["over_floor"] <= GOAL else "BEYOND"
        print(f"{r['preset']}: fused / floor {r['over_floor']:.3f}, {message} {GOAL}")
    print(f"{time.perf_counter() - start:.0f} s")
    return int(missed or bool(report["failed"]))


if __name__ == "__main__":
    sys.exit(main())
