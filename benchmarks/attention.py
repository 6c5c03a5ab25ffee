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
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks import measure, report
from benchmarks.compiling import compile_all
from benchmarks.measure import Candidate, Verified
from benchmarks.report import Column
from kernels.attention import ladder as attention_ladder
from kernels.attention.shape import AttentionShape, parse_attention
from kernels.engines import cuda
from kernels.engines.protocol import Timed
from kernels.machine.timing import MODES, Budget
from kernels.model.program import Program
from kernels.records import availability

LADDER = attention_ladder.LADDER
PYTORCH = tuple(rung for rung in LADDER.rungs if rung.library == "PyTorch")
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
BUDGET = Budget(samples=50, seconds=3.0, warm_up_s=0.05)
COLUMNS = (
    report.RUNG,
    report.MEDIAN_MS,
    report.SPREAD,
    report.SAMPLES,
    report.TFLOPS,
    Column("of lib", ".1%", "of_library"),
    report.ERROR,
    report.PEAK_MB,
    Column("predicted", ".1f", lambda row: row["predicted_peak_bytes"] / 1e6),
    report.REGISTERS,
    report.LOCAL,
    report.TILES,
)
MEMORY_COLUMNS = (
    report.RUNG,
    Column("", "", lambda row: row["shape"]["dtype"]),
    Column("measured", ",", "peak_bytes"),
    Column("predicted", ",", "predicted_peak_bytes"),
    Column("difference", "+.3%", lambda row: row["peak_bytes"] / row["predicted_peak_bytes"] - 1),
    report.TILES,
)


def candidates(s: AttentionShape) -> list[Candidate]:
    """Returns each rung that supports a shape, with its default tile sizes and those of FLASH_SETS."""
    return list(measure.candidates(LADDER.rungs, s, FLASH_SETS))


def problem(s: AttentionShape) -> measure.Problem:
    return measure.problem(s, attention_ladder.parts.buffers(s), LADDER.reference)


# -- verification --------------------------------------------------------------------------------------
def random_shape(rng: random.Random, causal: int) -> AttentionShape:
    """Returns an odd shape of any type. d is one of few values, because each is compiled separately."""
    return AttentionShape(
        rng.randint(1, 3),
        rng.randint(1, 5),
        rng.choice([1, rng.randint(2, 40), rng.randint(41, 700)]),
        rng.choice([1, 5, 32, 40, 64, 90, 128]),
        causal,
        rng.choice([0.0, 0.0, 1.0, -0.5]),
        rng.choice(["fp32", "fp32", "fp16", "bf16"]),
    )


def random_cases(rng: random.Random) -> list[tuple[AttentionShape, list[Candidate]]]:
    """Returns random shapes, each with every rung that supports it: half with default tile sizes, half with any legal
    ones."""
    cases = []
    for i in range(RANDOM_SHAPES):
        s, chosen = random_shape(rng, i % 2), []
        for rung, tiles in measure.candidates(LADDER.rungs, s, {}):
            if i % 4 >= 2:
                random_tiles = {name: rng.choice(choices) for name, choices in rung.tiles.items()}
                tiles = random_tiles if availability.runs(rung, s, random_tiles) else tiles
            chosen.append((rung, tiles))
        cases.append((s, chosen))
    return cases


# -- timing --------------------------------------------------------------------------------------------
def measured(s: AttentionShape, mode: str) -> list[dict]:
    """Returns a row for each candidate with a correct result; the others are printed."""
    verified, _ = measure.open_verified(candidates(s), problem(s))
    rows = measure.time_together(verified, mode, BUDGET, lambda v, timed: row(s, mode, v, timed))
    measure.close(verified)
    base = report.fastest_ms(rows, [rung.name for rung in PYTORCH])
    return [r | {"of_library": report.speed_relative_to(base, r)} for r in rows]


def row(s: AttentionShape, mode: str, v: Verified, timed: Timed) -> dict:
    figures, program = measure.figures(timed), v.session.program
    return {
        "shape": s.params(),
        "mode": mode,
        "rung": v.rung.name,
        "title": v.rung.title,
        "tiles": v.tiles,
        **figures,
        "parts_ms": dict(timed.parts_ms),
        "tflops": s.flops / figures["median_ms"] / 1e9,
        "error": v.error,
        "peak_bytes": v.session.memory.peak,
        "workspace_bytes": v.session.memory.workspace,
        "predicted_peak_bytes": program.nbytes(),
        "predicted_workspace_bytes": v.rung.cost(s, program).workspace_bytes,
        **compiled(program),
    }


def compiled(program: Program) -> dict[str, int]:
    """Returns registers and bytes of local memory (spills) of the kernel with most registers; {} without a kernel."""
    kernels = measure.compiled(program).values()
    largest = max(kernels, key=lambda kernel: kernel["registers"], default={})
    return {name: value for name, value in largest.items() if name != "shared"}


def memory(rows: Sequence[Mapping]) -> str:
    """Returns a table of the bytes of each rung at LONG keys: measured, predicted and their difference."""
    rows_at_long = [r for r in rows if r["shape"]["N"] == LONG and r["predicted_workspace_bytes"] is not None]
    return f"\npeak bytes at N = {LONG:,}\n{report.table(rows_at_long, MEMORY_COLUMNS)}"


def timed_runs(shapes: Sequence[AttentionShape]) -> list[tuple[AttentionShape, str]]:
    """Returns (shape, mode): the first shape of each type in both modes, the others cold."""
    firsts = {s.dtype: s for s in reversed(shapes)}
    return [(s, mode) for s in shapes for mode in (MODES if s is firsts[s.dtype] else MODES[:1])]


def arguments() -> argparse.Namespace:
    options = report.parser(__doc__)
    options.add_argument("--out", type=Path, required=True, help="a folder")
    options.add_argument("--seconds", type=float, default=300.0, help="nothing new is begun after so many")
    options.add_argument("--shapes", type=parse_attention, nargs="*", default=SHAPES)
    options.add_argument("--no-verify", action="store_true", help="time at once")
    return options.parse_args()


def compile_and_verify(
    shapes: Sequence[AttentionShape], cases: Sequence[tuple[AttentionShape, list[Candidate]]]
) -> list[str]:
    """Compile everything that will run, verify the cases, and return messages about failures."""
    all_cases = [*cases, *((s, candidates(s)) for s in shapes)]
    compile_all([rung.build(s, tiles) for s, chosen in all_cases for rung, tiles in chosen])
    correct, failed = measure.verify((chosen, problem(s)) for s, chosen in cases)
    print(f"{len(cases)} random shapes: {correct} outputs right, {len(failed)} wrong")
    print("\n".join(failed), flush=True)
    return failed


def time_shapes(args: argparse.Namespace, elapsed: Callable[[], float], results: dict) -> None:
    """Time the rungs at each shape, print a table of each, and write the rows so far to the file."""
    runs = timed_runs(args.shapes)
    for s, mode in report.in_time(runs, elapsed, args.seconds, lambda run: f"{run[0]}, {run[1]}"):
        if not any(measure.candidates(LADDER.rungs, s, {})):
            print(f"no rung runs {s} here")
            continue
        rows = measured(s, mode)
        results["rows"] += rows
        report.write_json(args.out / "attention.json", results)
        slowest_first = sorted(rows, key=lambda r: -r["median_ms"])
        print(f"\n{s}, {mode}, {elapsed():.0f} s so far\n{report.table(slowest_first, COLUMNS)}", flush=True)


def main() -> None:
    args, elapsed = arguments(), report.stopwatch()
    args.out.mkdir(parents=True, exist_ok=True)
    results = {"device": cuda.device_name(), "conditions": cuda.conditions(), "failed": [], "rows": []}
    measure.print_unavailable(PYTORCH, args.shapes[0])
    cases = [] if args.no_verify else random_cases(random.Random(0))
    results["failed"] = compile_and_verify(args.shapes, cases)
    time_shapes(args, elapsed, results)
    print(memory(results["rows"]))
    results["conditions_after"] = cuda.conditions()
    report.write_json(args.out / "attention.json", results)
    print(f"{elapsed():.0f} s")


if __name__ == "__main__":
    main()
