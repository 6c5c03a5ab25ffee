"""The fusion ladder on a GPU: is every rung right for any chain, and how near does a fused one come to its byte floor?

    python3 benchmarks/fusion.py --out OUT [--seconds 240] [--presets KEY ...]

First every rung, PyTorch's among them, is verified for random chains. Then, preset by preset, all that run are timed in
the same rounds, cold: unfused, fused with 1, 2 and 4 float4 a thread, folded, PyTorch. Every output that is timed is
verified first. The byte floor of a chain is what it must move (every input read once, the output written once) at the
rate at which this GPU was measured to copy. A table for each preset; at the end, for chains of pointwise blocks beyond
the L2, whether fused time / floor is within GOAL; and OUT/fusion.json with every row. Exit status 1 where an output is
wrong or the goal is missed. Past --seconds nothing new is begun, and what is left out is told.
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
from benchmarks.compiling import compile_all, words
from kernels.engines import cuda
from kernels.fusion import ladder as fusion_ladder
from kernels.fusion.presets import FUSION_PRESETS
from kernels.fusion.shape import KINDS, MOST_BLOCKS, ChainShape
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
    """Each rung that may run a shape, at its usual tile sizes; fused with more float4 a thread too."""
    for rung in LADDER.rungs:
        more = fusion_ladder.TILES["FOURS"] if every_set and rung.name == "fusion/fused" else (1,)
        for fours in more:
            tiles = rung.default_tiles | ({"FOURS": fours} if rung.tiles else {})
            if availability.runs(rung, s, tiles):
                yield rung, tiles


# -- right? --------------------------------------------------------------------------------------------------
def random_chain(rng: random.Random) -> ChainShape:
    """Blocks at random, those that do not fit left out."""
    s, wanted = None, rng.randint(1, MOST_BLOCKS)
    extents = rng.randint(1, 5), rng.randint(1, 40), rng.randint(1, 70), rng.randint(1, 70)
    while s is None or len(s.stages) < wanted:
        kind, R = rng.choice(KINDS), rng.randint(1, 5)
        window = f":R={R}:stride={rng.randint(1, 3)}:pad={rng.randint(0, R // 2)}"
        filters = f":K={rng.randint(1, 40)}" if kind == "conv" else ""
        word = kind + filters + (window if kind in ("conv", "maxpool", "avgpool") else "")
        try:
            s = ChainShape(*extents, f"{s.chain} {word}" if s else word)
        except ShapeError:
            continue
    return s


def verify(shapes: Sequence[ChainShape]) -> tuple[list[str], int]:
    """(what failed, in words; how many outputs were right)."""
    failed, right = [], 0
    for n, s in enumerate(shapes):
        inputs, ref, scale = asked(s)
        for rung, tiles in candidates(s, every_set=False):
            tiles = tiles | ({"FOURS": (1, 2, 4)[n % 3], "BLOCK": (256, 128, 512)[n % 3]} if tiles else {})
            session, said = opened(rung, s, tiles, inputs, ref, scale)
            if session:
                session.close()
                right += 1
            elif said:
                failed.append(f"{rung.name} {s} {words(tiles)}: {said}")
    return failed, right


def asked(s: ChainShape):
    """(inputs, reference, scale)."""
    inputs = seeded_inputs([b for b in fusion_ladder.parts.buffers(s) if b.role == INPUT])
    return inputs, *LADDER.reference(s, **inputs)


def opened(rung: Rung, s: ChainShape, tiles: Mapping[str, int], inputs, ref, scale):
    """(a session whose output is right, ""); (None, what is wrong, "" where the library does not support it)."""
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


# -- how fast? -----------------------------------------------------------------------------------------------
def measured(key: str, s: ChainShape, ceilings: Mapping, budget: Budget) -> tuple[list[dict], list[str]]:
    """(a row for each candidate, what failed)."""
    inputs, ref, scale = asked(s)
    held, failed = [], []
    for rung, tiles in candidates(s):
        session, said = opened(rung, s, tiles, inputs, ref, scale)
        if session:
            held.append((rung, tiles, session))
        elif said:
            failed.append(f"{rung.name} {key} {words(tiles)}: {said}")
    timed = cuda.sample([session for *_, session in held], "cold", budget)
    rows = [row(key, s, *of, t, ceilings) for of, t in zip(held, timed, strict=True)]
    for *_, session in held:
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


def held_to_the_goal(row: Mapping, ceilings: Mapping) -> bool:
    """Fused chains of pointwise blocks alone that the L2 cannot hold, at the usual tile sizes."""
    s = ChainShape(**row["shape"])
    pointwise = all(block.pointwise for block in s.blocks)
    usual = row["tiles"] == LADDER.rung("fusion/fused").default_tiles
    return pointwise and s.bytes > ceilings["cache_bytes"] and row["rung"] == "fusion/fused" and usual


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
            f"{words(r['tiles'])}; {parts}"
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
    told = {"device": cuda.device_name(), "conditions": cuda.conditions(), "ceilings": ceilings, "rows": []}
    for rung in LADDER.rungs:
        if rung.library and (
            why := list(availability.reasons(rung, FUSION_PRESETS[args.presets[0]].shape, {}))
        ):
            print(f"{rung.name}: {why[0]}")
    chains = [random_chain(rng) for _ in range(RANDOM_CHAINS)]
    shapes = [*chains, *(FUSION_PRESETS[key].shape for key in args.presets)]
    compile_all([rung.build(s, tiles) for s in shapes for rung, tiles in candidates(s, every_set=False)])
    print(f"compiled, {time.perf_counter() - start:.0f} s", flush=True)
    told["failed"], right = verify(chains)
    print(f"{len(chains)} random chains: {right} outputs right, {len(told['failed'])} wrong", flush=True)
    for key in args.presets:
        s = FUSION_PRESETS[key].shape
        if time.perf_counter() - start > args.seconds:
            print(f"left out for want of time: {key}")
            continue
        rows, failed = measured(key, s, ceilings, Budget(samples=50, seconds=3.0, warm_up_s=0.05))
        told["rows"] += rows
        told["failed"] += failed
        (args.out / "fusion.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
        print(
            f"\n{key}: {s}, floor {1e3 * s.bytes / ceilings['copy_bytes_per_s']:.4f} ms\n{table(rows)}",
            flush=True,
        )
    print("\n" + "\n".join(told["failed"]) if told["failed"] else "\nnothing wrong")
    missed = False
    for r in (r for r in told["rows"] if held_to_the_goal(r, ceilings)):
        missed |= r["over_floor"] > GOAL
        said = "within" if r["over_floor"] <= GOAL else "BEYOND"
        print(f"{r['preset']}: fused / floor {r['over_floor']:.3f}, {said} {GOAL}")
    print(f"{time.perf_counter() - start:.0f} s")
    return int(missed or bool(told["failed"]))


if __name__ == "__main__":
    sys.exit(main())
