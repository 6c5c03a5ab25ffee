"""The attention ladder on a GPU: verify every rung, and compare its time with PyTorch's.

    python3 benchmarks/attention.py --out OUT [--seconds 300] [--shapes B=4,H=16,N=2048,d=64 ...]

First every rung, including PyTorch's, is verified at random shapes, types and tile sizes. Then all rungs that support a
shape are timed in the same rounds, cold, flash attention at several sets of tile sizes. The first shape of each type is
also timed hot, where a sample is a captured graph. Every output that is timed is verified first. Prints a table for
each shape, and the memory of each rung at N = 8,192 with the prediction. Writes OUT/attention.json: rows with times,
FLOP/s, the share of the fastest of PyTorch's backends for that type, error, bytes allocated and predicted, registers.
After --seconds no new timing starts, and the shapes left out are printed.
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
from kernels.attention import ladder as attention_ladder
from kernels.attention.shape import AttentionShape, parse_attention
from kernels.engines import cuda
from kernels.machine.timing import MODES, Budget
from kernels.model.program import INPUT, Launch, Program, RuleError, UnsupportedError
from kernels.model.rung import Rung
from kernels.model.verify import agrees, relative_error
from kernels.records import availability
from kernels.runner import seeded_inputs

LADDER = attention_ladder.LADDER
RANDOM_SHAPES = 40
LONG = 8192  # keys, where memory is reported
SHAPES = (
    AttentionShape(4, 16, 2048, 64, dtype="fp16"),
    AttentionShape(4, 16, 2048, 64),
    AttentionShape(4, 16, 2048, 64, dtype="bf16"),
    AttentionShape(1, 8, LONG, 64),
    AttentionShape(1, 8, LONG, 64, dtype="fp16"),
    AttentionShape(4, 16, 2048, 64, causal=1, dtype="fp16"),
    AttentionShape(4, 16, 2048, 64, causal=1),
    AttentionShape(2, 16, 2048, 128, dtype="fp16"),
    AttentionShape(2, 16, 2048, 128),
    AttentionShape(1, 12, 1024, 64, causal=1),
    AttentionShape(1, 12, 1024, 64, causal=1, dtype="fp16"),
    AttentionShape(1, 12, 512, 64),
)
# Sets of tile sizes timed besides the default.
FLASH_SETS = {
    "attention/flash": ({"Br": 16}, {"Br": 16, "Bc": 16}),
    "attention/flash-registers": (
        *({"Br": br, "Bc": bc, "TM": tm} for br in (128, 64) for bc in (64, 32) for tm in (8, 4)),
        {"Br": 32, "Bc": 64, "TM": 4},
        {"Br": 128, "Bc": 16, "TM": 8},
    ),
    "attention/flash-mma": (
        *({"Br": br, "Bc": bc, "WM": wm} for br in (128, 64, 256) for bc in (64, 128, 32) for wm in (32, 16)),
        {"STAGES": 3},
        {"STAGES": 3, "Bc": 32},
        {"STAGES": 3, "WM": 16},
    ),
}
Candidate = tuple[Rung, dict[str, int]]


def candidates(s: AttentionShape, every_set: bool = True) -> Iterator[Candidate]:
    """Yields each rung that supports a shape, with its default tile sizes and those of FLASH_SETS."""
    for rung in LADDER.rungs:
        sets = [rung.default_tiles]
        sets += [rung.default_tiles | t for t in FLASH_SETS.get(rung.name, ())] if every_set else []
        for tiles in (dict(t) for t in dict.fromkeys(tuple(t.items()) for t in sets)):
            if availability.runs(rung, s, tiles):
                yield rung, tiles


# -- compiling -----------------------------------------------------------------------------------------
def compiled(program: Program) -> dict[str, int]:
    """Returns registers and bytes of local memory (spills) of the kernel with most registers, from the driver."""
    kernels = [
        cuda.compile_kernel(t.source, t.entry, t.defines) for t in program.steps if isinstance(t, Launch)
    ]
    largest = max(kernels, key=lambda kernel: kernel.num_regs, default=None)
    return {"registers": int(largest.num_regs), "local": int(largest.local_size_bytes)} if largest else {}


# -- verification --------------------------------------------------------------------------------------
def random_cases(rng: random.Random) -> list[tuple[AttentionShape, list[Candidate]]]:
    """Returns odd shapes of any type, each with every rung that supports it: half with default tile sizes, half with any
    legal ones. d is one of few values, because each is compiled separately."""
    cases = []
    for i in range(RANDOM_SHAPES):
        s = AttentionShape(
            rng.randint(1, 3), rng.randint(1, 5), rng.choice([1, rng.randint(2, 40), rng.randint(41, 700)]),
            rng.choice([1, 5, 32, 40, 64, 90, 128]), i % 2, rng.choice([0.0, 0.0, 1.0, -0.5]),
            rng.choice(["fp32", "fp32", "fp16", "bf16"]),
        )  # fmt: skip
        chosen = []
        for rung, tiles in candidates(s, every_set=False):
            if i % 4 >= 2:
                random_tiles = {name: rng.choice(choices) for name, choices in rung.tiles.items()}
                tiles = random_tiles if availability.runs(rung, s, random_tiles) else tiles
            chosen.append((rung, tiles))
        cases.append((s, chosen))
    return cases


def verify(cases: Sequence[tuple[AttentionShape, Sequence[Candidate]]]) -> tuple[list[str], int]:
    """Returns (messages about failures, number of correct outputs). Shapes that PyTorch does not support count as
    neither."""
    failed, correct = [], 0
    for s, chosen in cases:
        inputs = seeded_inputs([b for b in attention_ladder.parts.buffers(s) if b.role == INPUT])
        ref, scale = LADDER.reference(s, **inputs)
        for rung, tiles in chosen:
            try:
                session = cuda.open(rung.build(s, tiles), inputs)
                out = session.verify_run()
                session.close()
            except UnsupportedError:
                continue
            except (RuleError, RuntimeError) as e:
                failed.append(f"{rung.name} {s} {tiles}: {e}")
                continue
            if agrees(out, ref, scale, rung.tolerance):
                correct += 1
            else:
                error = relative_error(out, ref)
                failed.append(f"{rung.name} {s} {tiles}: relative L2 error {error:.1e}")
    return failed, correct


# -- timing --------------------------------------------------------------------------------------------
def measured(s: AttentionShape, mode: str, budget: Budget) -> list[dict]:
    """Returns a row for each candidate with a correct result; the others are printed."""
    inputs = seeded_inputs([b for b in attention_ladder.parts.buffers(s) if b.role == INPUT])
    ref, scale = LADDER.reference(s, **inputs)
    sessions = []
    for rung, tiles in candidates(s):
        program = rung.build(s, tiles)
        try:
            session = cuda.open(program, inputs)
            out = session.verify_run()
        except (RuleError, RuntimeError) as e:
            print(f"{rung.name} {tiles_text(tiles)}: {e}", flush=True)
            continue
        if agrees(out, ref, scale, rung.tolerance):
            sessions.append((rung, tiles, session, relative_error(out, ref)))
        else:
            print(f"WRONG {rung.name} {tiles_text(tiles)}: {relative_error(out, ref):.1e}", flush=True)
            session.close()
    timed = cuda.sample([session for _, _, session, _ in sessions], mode, budget)
    rows = [row(s, mode, *candidate, t) for candidate, t in zip(sessions, timed, strict=True)]
    for _, _, session, _ in sessions:
        session.close()
    base = max((r["tflops"] for r in rows if LADDER.rung(r["rung"]).library == "PyTorch"), default=None)
    return [r | {"of_library": r["tflops"] / base if base else None} for r in rows]


def row(s: AttentionShape, mode: str, rung: Rung, tiles: Mapping, session, error: float, timed) -> dict:
    p20, median, p80 = np.quantile(timed.samples_ms, (0.2, 0.5, 0.8)).tolist()
    predicted = rung.cost(s, session.program)
    return {
        "shape": s.params(), "mode": mode, "rung": rung.name, "title": rung.title, "tiles": dict(tiles),
        "n": len(timed.samples_ms), "median_ms": median, "p20_ms": p20, "p80_ms": p80,
        "parts_ms": dict(timed.parts_ms), "tflops": s.flops / median / 1e9, "error": error,
        "peak_bytes": session.bytes["peak"], "workspace_bytes": session.bytes["workspace"],
        "predicted_peak_bytes": session.program.nbytes(), "predicted_workspace_bytes": predicted.workspace_bytes,
        **compiled(session.program),
    }  # fmt: skip


def table(rows: Sequence[Mapping]) -> str:
    head = (
        f"{'':26} {'ms':>9} {'spread':>7} {'n':>3} {'TFLOP/s':>8} {'of lib':>7} {'error':>8} {'peak MB':>9}"
    )
    lines = [f"{head} {'predicted':>9} regs local"]
    for r in sorted(rows, key=lambda r: -r["median_ms"]):
        share = f"{r['of_library']:7.1%}" if r["of_library"] else ""
        spread = (r["p80_ms"] - r["p20_ms"]) / r["median_ms"]
        lines.append(
            f"{r['rung']:26} {r['median_ms']:9.4f} {spread:7.1%} {r['n']:3} {r['tflops']:8.2f} {share:>7} "
            f"{r['error']:8.1e} {r['peak_bytes'] / 1e6:9.1f} {r['predicted_peak_bytes'] / 1e6:9.1f} "
            f"{r.get('registers', ''):>4} {r.get('local', ''):>5}  {tiles_text(r['tiles'])}"
        )
    return "\n".join(lines)


def memory(rows: Sequence[Mapping]) -> str:
    """Returns a table of the bytes of each rung at LONG keys: measured, predicted and their difference."""
    rows_at_long = [r for r in rows if r["shape"]["N"] == LONG and r["predicted_workspace_bytes"] is not None]
    lines = (
        f"{r['rung']:26} {r['shape']['dtype']} {r['peak_bytes']:15,} {r['predicted_peak_bytes']:15,} "
        f"{r['peak_bytes'] / r['predicted_peak_bytes'] - 1:+.3%}  {tiles_text(r['tiles'])}"
        for r in rows_at_long
    )
    return "\n".join((f"\npeak bytes at N = {LONG:,}: measured, predicted", *lines))


def timed_runs(shapes: Sequence[AttentionShape]) -> list[tuple[AttentionShape, str]]:
    """Returns (shape, mode): the first shape of each type in both modes, the others cold."""
    firsts = {s.dtype: s for s in reversed(shapes)}
    return [(s, mode) for s in shapes for mode in (MODES if s is firsts[s.dtype] else MODES[:1])]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="a folder")
    parser.add_argument("--seconds", type=float, default=300.0, help="nothing new is begun after so many")
    parser.add_argument("--shapes", type=parse_attention, nargs="*", default=SHAPES)
    parser.add_argument("--no-verify", action="store_true", help="time at once")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    report = {"device": cuda.device_name(), "conditions": cuda.conditions(), "failed": [], "rows": []}

    def elapsed() -> float:
        return time.perf_counter() - start

    def save() -> None:
        (args.out / "attention.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")

    for rung in LADDER.rungs:
        if rung.library == "PyTorch" and (why := list(availability.reasons(rung, args.shapes[0], {}))):
            print(f"{rung.name}: {why[0]}")
    cases = [] if args.no_verify else random_cases(random.Random(0))
    all_cases = [*cases, *((s, list(candidates(s))) for s in args.shapes)]
    compile_all([rung.build(s, tiles) for s, chosen in all_cases for rung, tiles in chosen])
    print(f"compiled, {elapsed():.0f} s", flush=True)
    report["failed"], correct = verify(cases)
    print(
        f"{len(cases)} random shapes: {correct} outputs right, {len(report['failed'])} wrong, {elapsed():.0f} s"
    )
    print("\n".join(report["failed"]), flush=True)
    for s, mode in timed_runs(args.shapes):
        if elapsed() > args.seconds:
            print(f"left out for want of time: {s}, {mode}")
            continue
        if not any(candidates(s, every_set=False)):
            print(f"no rung runs {s} here")
            continue
        rows = measured(s, mode, Budget(samples=50, seconds=3.0, warm_up_s=0.05))
        report["rows"] += rows
        save()
        print(f"\n{s}, {mode}, {elapsed():.0f} s so far\n{table(rows)}", flush=True)
    print(memory(report["rows"]))
    report["conditions_after"] = cuda.conditions()
    save()
    print(f"{elapsed():.0f} s")


if __name__ == "__main__":
    main()
