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
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks import measure, report
from benchmarks.compiling import compile_all
from benchmarks.measure import Candidate, Verified
from benchmarks.report import Column
from kernels.engines import cuda
from kernels.engines.protocol import Timed
from kernels.fusion import ladder as fusion_ladder
from kernels.fusion.presets import FUSION_PRESETS
from kernels.fusion.shape import KINDS, MAX_BLOCKS, ChainShape
from kernels.machine.timing import Budget
from kernels.model.shape import ShapeError

LADDER = fusion_ladder.LADDER
FUSED, UNFUSED = LADDER.rung("fusion/fused"), LADDER.rung("fusion/unfused")
GOAL = 1.25  # fused time over byte floor
RANDOM_CHAINS = 50
SETS = {FUSED.name: [{"FOURS": fours} for fours in fusion_ladder.TILES["FOURS"]]}  # timed
BUDGET = Budget(samples=50, seconds=3.0, warm_up_s=0.05)
COLUMNS = (
    report.RUNG,
    report.MEDIAN_MS,
    report.SPREAD,
    report.SAMPLES,
    Column("/ floor", ".3f", "over_floor"),
    Column("x unfused", ".2f", "faster_than_unfused"),
    report.TFLOPS,
    Column("GB moved", ".3f", lambda row: row["predicted_bytes"] / 1e9),
    report.PEAK_MB,
    report.TILES,
    Column("parts", "", lambda row: ", ".join(f"{name} {ms:.4f}" for name, ms in row["parts_ms"].items())),
)


def problem(s: ChainShape) -> measure.Problem:
    return measure.problem(s, fusion_ladder.parts.buffers(s), LADDER.reference)


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


def verify_cases(shapes: Sequence[ChainShape]) -> Iterator[tuple[list[Candidate], measure.Problem]]:
    """Yields every rung with each shape, at other tile sizes from shape to shape."""
    for n, s in enumerate(shapes):
        changed = {"FOURS": (1, 2, 4)[n % 3], "BLOCK": (256, 128, 512)[n % 3]}
        chosen = measure.candidates(LADDER.rungs, s, {})
        yield (
            [(rung, tiles | {name: size for name, size in changed.items() if name in tiles}) for rung, tiles in chosen],
            problem(s),
        )


# -- timing --------------------------------------------------------------------------------------------------
def measured(key: str, s: ChainShape, ceilings: Mapping) -> tuple[list[dict], list[str]]:
    """Returns (a row for each candidate, messages about failures)."""
    verified, failed = measure.open_verified(measure.candidates(LADDER.rungs, s, SETS), problem(s))
    rows = measure.time_together(
        verified, "cold", BUDGET, lambda v, timed: row(key, s, v, timed, floor_ms(s, ceilings))
    )
    measure.close(verified)
    base = report.fastest_ms(rows, (UNFUSED.name,))
    return [r | {"faster_than_unfused": report.speed_relative_to(base, r)} for r in rows], failed


def floor_ms(s: ChainShape, ceilings: Mapping) -> float:
    return 1e3 * s.bytes / ceilings["copy_bytes_per_s"]


def row(key: str, s: ChainShape, v: Verified, timed: Timed, floor: float) -> dict:
    figures, predicted = measure.figures(timed), v.rung.cost(s, v.session.program)
    median = figures["median_ms"]
    return {
        "preset": key,
        "shape": s.params(),
        "mode": "cold",
        "rung": v.rung.name,
        "tiles": v.tiles,
        **figures,
        "parts_ms": dict(timed.parts_ms),
        "launches": len(v.session.program.steps),
        "floor_ms": floor,
        "over_floor": median / floor,
        "floor_bytes": s.bytes,
        "predicted_bytes": predicted.bytes,
        "flops": predicted.flops,
        "tflops": predicted.flops / median / 1e9,
        "peak_bytes": v.session.memory.peak,
        "workspace_bytes": v.session.memory.workspace,
        "predicted_workspace_bytes": predicted.workspace_bytes,
    }


def goal_applies(row: Mapping, ceilings: Mapping) -> bool:
    """Returns whether GOAL applies to a row: a fused chain of pointwise blocks only, larger than the L2, with default
    tile sizes."""
    s = ChainShape(**row["shape"])
    pointwise = all(block.pointwise for block in s.blocks)
    default_fused = row["rung"] == FUSED.name and row["tiles"] == FUSED.default_tiles
    return pointwise and s.bytes > ceilings["cache_bytes"] and default_fused


def missed_goal(rows: Sequence[Mapping], ceilings: Mapping) -> bool:
    """Print each row that GOAL applies to, and return whether one of them misses it."""
    missed = False
    for r in (r for r in rows if goal_applies(r, ceilings)):
        missed |= r["over_floor"] > GOAL
        message = "within" if r["over_floor"] <= GOAL else "BEYOND"
        print(f"{r['preset']}: fused / floor {r['over_floor']:.3f}, {message} {GOAL}")
    return missed


def arguments() -> argparse.Namespace:
    options = report.parser(__doc__)
    options.add_argument("--out", type=Path, required=True, help="a folder")
    options.add_argument("--seconds", type=float, default=240.0, help="nothing new is begun after so many")
    options.add_argument("--presets", nargs="*", choices=FUSION_PRESETS, default=list(FUSION_PRESETS), metavar="KEY")
    return options.parse_args()


def compile_and_verify(shapes: Sequence[ChainShape]) -> list[str]:
    """Compile everything that will run, verify random chains, and return messages about failures."""
    rng = random.Random(0)
    chains = [random_chain(rng) for _ in range(RANDOM_CHAINS)]
    compile_all(
        rung.build(s, tiles) for s in (*chains, *shapes) for rung, tiles in measure.candidates(LADDER.rungs, s, {})
    )
    correct, failed = measure.verify(verify_cases(chains))
    print(f"{len(chains)} random chains: {correct} outputs right, {len(failed)} wrong", flush=True)
    return failed


def time_presets(args: argparse.Namespace, elapsed: Callable[[], float], results: dict) -> None:
    """Time the rungs at each preset, print a table of each, and write the rows so far to the file."""
    ceilings = results["ceilings"]
    for key in report.in_time(args.presets, elapsed, args.seconds):
        s = FUSION_PRESETS[key].shape
        rows, failed = measured(key, s, ceilings)
        results["rows"] += rows
        results["failed"] += failed
        report.write_json(args.out / "fusion.json", results)
        print(f"\n{key}: {s}, floor {floor_ms(s, ceilings):.4f} ms\n{report.table(rows, COLUMNS)}", flush=True)


def main() -> int:
    args, elapsed = arguments(), report.stopwatch()
    args.out.mkdir(parents=True, exist_ok=True)
    ceilings = cuda.ceilings()
    results = {"device": cuda.device_name(), "conditions": cuda.conditions(), "ceilings": ceilings, "rows": []}
    shapes = [FUSION_PRESETS[key].shape for key in args.presets]
    measure.print_unavailable([rung for rung in LADDER.rungs if rung.library], shapes[0])
    results["failed"] = compile_and_verify(shapes)
    time_presets(args, elapsed, results)
    print("\n" + "\n".join(results["failed"]) if results["failed"] else "\nnothing wrong")
    missed = missed_goal(results["rows"], ceilings)
    print(f"{elapsed():.0f} s")
    return int(missed or bool(results["failed"]))


if __name__ == "__main__":
    sys.exit(main())
