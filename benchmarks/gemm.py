"""The GEMM ladder on a GPU: verify every rung, and compare its time with cuBLAS.

    python3 benchmarks/gemm.py --out OUT
    python3 benchmarks/gemm.py --out OUT --tune gemm/warp-tile [--fix TM=8,TN=16] [--most 80] [--n 4096]
    python3 benchmarks/gemm.py --emulator

The first verifies every rung at odd shapes and times all rungs of a type together, cold, with the library's rung in the
same rounds: FP32 from 128 to 8192, the other types at 4096, FP16 also at 8192. gemm/uncoalesced is timed alone, and not
at 8192, where one run takes 2 s. Rows go to OUT/gemm.jsonl as `python -m kernels record` writes them, so that they can
be appended to a recording. After --seconds no new timing starts, and the rungs left out are printed. The second times
the tile sizes of one rung, each verified, and the library's rung: OUT/tune-RUNG.json. The third needs no GPU: every rung
at 64 x 64 x 64 in the emulator, which must not take longer than a second.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks import measure, report
from benchmarks.compiling import compile_all
from benchmarks.measure import Candidate, Verified
from benchmarks.report import Column
from kernels.engines import cuda
from kernels.engines.protocol import Timed
from kernels.gemm.shape import GemmShape
from kernels.ladders import LADDERS
from kernels.machine.timing import Budget
from kernels.model.program import INPUT, RuleError
from kernels.model.rung import Rung
from kernels.records import row as records_row
from kernels.records.row import commit
from kernels.runner import VerificationError, compare

LADDER = LADDERS["gemm"]
DTYPES = ("fp32", "fp16", "bf16", "int8")
# The rung that a type is compared with; INT8 is compared with FP32, which is timed first.
LIBRARY = {"fp32": "gemm/cublas", "fp16": "gemm/cublas-fp16", "bf16": "gemm/cublas-fp16", "int8": "gemm/cublas"}
ODD = ((1, 1, 1), (61, 45, 37), (129, 130, 17), (1, 1000, 129), (1000, 1, 63), (513, 1023, 1), (1021, 1022, 1023))
MAX_EMULATED_S = 1.0
SLOW = "gemm/uncoalesced"
MAX_SLOW_SIZE = 4096
# The most important sizes come first; 8192 takes longest, in its reference too.
SIZES = (
    (4096, "fp32"),
    (4096, "fp16"),
    (4096, "bf16"),
    (4096, "int8"),
    *((n, "fp32") for n in (1024, 2048, 512, 256, 128, 8192)),
    (8192, "fp16"),
)


def supported_rungs(shape: GemmShape) -> list[str]:
    return [r.name for r in LADDER.rungs if not any(r.rules(shape, r.default_tiles))]


# -- the whole ladder --------------------------------------------------------------------------------
def verify() -> list[str]:
    """Verify every rung at each odd shape and type, with and without C0, and return messages about failures."""
    failed = []
    for (M, N, K), dtype, (alpha, beta) in itertools.product(ODD, DTYPES, ((1, 0), (-2, 3))):
        shape = GemmShape(M, N, K, alpha, beta, dtype)
        for rung in supported_rungs(shape):
            try:
                compare([rung], shape, engine="cuda", measure=False)
            except (VerificationError, RuleError, RuntimeError) as e:
                failed.append(f"{rung} {shape}: {e}")
    return failed


def groups(n: int, dtype: str) -> Iterator[tuple[GemmShape, list[str], Budget]]:
    """Yields the rungs that are timed together: with the slowest one among them, the others would get few rounds."""
    shape = GemmShape(n, n, n, dtype=dtype)
    rungs = supported_rungs(shape)
    yield shape, [r for r in rungs if r != SLOW], Budget(samples=50, seconds=2.0 if n >= 4096 else 1.0)
    if SLOW in rungs and n <= MAX_SLOW_SIZE:
        yield shape, [SLOW], Budget(samples=50, seconds=0.5, min_samples=3, warm_up_s=0.01)


def measured(shape: GemmShape, rungs: Sequence[str], budget: Budget, commit_hash: str) -> list[dict]:
    """Returns rows of a recording."""
    results = compare(rungs, shape, engine="cuda", budget=budget)
    return [records_row.row(r, LADDER.rung(r.rung).build(shape, r.tiles), commit_hash) for r in results]


def ladder(sizes: Sequence[tuple[int, str]], seconds: float, commit_hash: str, out: Path) -> None:
    """Verify every rung, time the groups of each size, and write their rows as a recording."""
    elapsed = report.stopwatch()
    cubes = [GemmShape(64, 64, 64, dtype=dtype) for dtype in DTYPES]
    rungs = [(LADDER.rung(name), s) for s in cubes for name in supported_rungs(s)]
    compile_all(rung.build(s, rung.default_tiles) for rung, s in rungs)
    failed = verify()
    print(f"{len(ODD) * len(DTYPES) * 2} odd shapes: {len(failed)} failures, {elapsed():.0f} s")
    print("\n".join(failed), flush=True)
    conditions = {"device": cuda.device_name(), "conditions": cuda.conditions(), "failed": failed}
    report.write_json(out / "gemm.json", conditions)
    bases: dict[tuple[int, str], float] = {}  # medians of the libraries in ms
    with (out / "gemm.jsonl").open("w", encoding="utf-8") as file:
        all_groups = itertools.chain.from_iterable(itertools.starmap(groups, sizes))
        for shape, names, budget in report.in_time(
            all_groups, elapsed, seconds, lambda group: f"{group[0]}, {', '.join(group[1])}"
        ):
            rows = measured(shape, names, budget, commit_hash)
            file.writelines(json.dumps(row) + "\n" for row in rows)
            file.flush()
            bases |= {(shape.M, row["rung"]): row["median_ms"] for row in rows}
            base = bases.get((shape.M, LIBRARY[shape.dtype]))
            print(f"\n{shape}, {elapsed():.0f} s so far")
            print(report.table([described(shape, row) for row in rows], columns(base)), flush=True)
    print(f"{elapsed():.0f} s")


def described(shape: GemmShape, row: Mapping) -> dict:
    """Returns a row with the further figures of the table."""
    program = LADDER.rung(row["rung"]).build(shape, row["tiles"])
    return {**row, "tflops": shape.flops / row["median_ms"] / 1e9, **measure.compiled_first(program)}


def columns(base_ms: float | None) -> tuple[Column, ...]:
    share = Column("of lib", ".1%", lambda row: report.speed_relative_to(base_ms, row))
    return (
        report.RUNG,
        report.MEDIAN_MS,
        report.SPREAD,
        report.SAMPLES,
        report.TFLOPS,
        share,
        report.ERROR,
        report.REGISTERS,
        report.LOCAL,
        Column("shared", "d", "shared"),
    )


# -- the tile sizes of one rung ----------------------------------------------------------------------
def choices(rung: Rung, shape: GemmShape, fixed: Mapping[str, int], maximum: int) -> list[dict[str, int]]:
    """Returns every legal set of tile sizes, the default first; a seeded sample of `maximum` if there are more."""
    values = ([fixed[name]] if name in fixed else choices_ for name, choices_ in rung.tiles.items())
    sets = [dict(zip(rung.tiles, v, strict=True)) for v in itertools.product(*values)]
    legal = [tiles for tiles in sets if not any(rung.rules(shape, tiles))]
    if len(legal) <= maximum:
        return legal
    first = [tiles for tiles in legal if tiles == rung.default_tiles]
    return first + random.Random(0).sample(legal, maximum - len(first))


def tune(name: str, n: int, fixed: Mapping[str, int], maximum: int, dtype: str, out: Path) -> None:
    """Time the sets of tile sizes of a rung and the library's rung, then the best ones again, and write their rows."""
    elapsed, rung = report.stopwatch(), LADDER.rung(name)
    shapes = [GemmShape(n, n, n, dtype=d) for d in (dtype, *DTYPES) if d]
    shape = next(s for s in shapes if not any(rung.rules(s, rung.default_tiles)))
    library = LADDER.rung(LIBRARY[shape.dtype])
    verified = open_sets(rung, library, shape, choices(rung, shape, fixed, maximum))

    def timed(chosen: Sequence[Verified], budget: Budget) -> list[dict]:
        return measure.time_together(chosen, "cold", budget, lambda v, timed: row(shape, v, timed))

    rows = timed(verified, Budget(samples=12, seconds=15.0, min_samples=3, warm_up_s=0.01))
    print(f"all timed, {elapsed():.0f} s")
    best = sorted(zip(rows, verified, strict=True), key=lambda pair: pair[0]["median_ms"])[:8]
    fastest = [v for v in verified if v.rung is library or any(v is other for _, other in best)]
    best_rows = timed(fastest, Budget(samples=60, seconds=6.0, min_samples=5))
    measure.close(verified)
    tuned_columns = (*columns(report.fastest_ms(best_rows, (library.name,))), report.TILES)
    for title, part in (("the best, again", best_rows), ("all", rows)):
        fastest_first = sorted(part, key=lambda r: r["median_ms"])
        print(f"\n{title}\n{report.table(fastest_first, tuned_columns)}")
    report.write_json(out, {"device": cuda.device_name(), "best": best_rows, "all": rows})
    print(f"{elapsed():.0f} s")


def open_sets(rung: Rung, library: Rung, shape: GemmShape, sets: Sequence[dict[str, int]]) -> list[Verified]:
    """Returns the library's rung, if it runs the shape, and a rung with each set of tile sizes; those that are not
    correct are printed."""
    programs = [rung.build(shape, tiles) for tiles in sets]
    print(f"{rung.name}, {shape}: {len(sets)} sets of tile sizes", flush=True)
    compile_all(programs)
    chosen: list[Candidate] = [(rung, tiles) for tiles in sets]
    if not any(library.rules(shape, {})):
        chosen = [(library, {}), *chosen]
    problem = measure.problem(shape, programs[0].of_role(INPUT), LADDER.reference)
    return measure.open_verified(chosen, problem)[0]


def row(shape: GemmShape, v: Verified, timed: Timed) -> dict:
    figures = measure.figures(timed)
    return {
        "rung": v.rung.name,
        "tiles": v.tiles,
        **figures,
        "tflops": shape.flops / figures["median_ms"] / 1e9,
        "error": 0.0,
        "tuned": True,
        **measure.compiled_first(v.session.program),
    }


# -- without a GPU -----------------------------------------------------------------------------------
def emulate() -> None:
    """Time every rung at 64 x 64 x 64 in the emulator. AssertionError if one takes too long."""
    slow = []
    for dtype in DTYPES:
        shape = GemmShape(64, 64, 64, dtype=dtype)
        for rung in supported_rungs(shape):
            durations = []
            for _ in range(3):  # the first run compiles and parses, if that was not done before
                start = time.perf_counter()
                counters = compare([rung], shape, engine="emulator")[0].counters
                durations.append(time.perf_counter() - start)
            instructions = counters.total["warp_instructions"]
            text = f"{rung:24} {shape!s:20} {instructions:9,} warp instructions"
            print(f"{text}  {durations[0]:.2f} s, again {min(durations):.2f} s")
            slow += [rung] if min(durations) > MAX_EMULATED_S else []
    assert not slow, f"longer than {MAX_EMULATED_S} s at 64 x 64 x 64: {slow}"


def arguments() -> argparse.Namespace:
    options = report.parser(__doc__)
    options.add_argument("--out", type=Path, help="a folder")
    options.add_argument("--emulator", action="store_true", help="time the emulator instead")
    options.add_argument("--sizes", default="", help="of those timed, such as 1024,4096; all when left out")
    options.add_argument("--seconds", type=float, default=85.0, help="nothing new is begun after so many")
    options.add_argument("--commit", help="commit to name in the rows where git is not at hand")
    options.add_argument("--tune", action="append", default=[], metavar="RUNG")
    options.add_argument("--fix", default="", help="tile sizes that stay: BK=8,STAGES=3")
    options.add_argument("--most", type=int, default=80, help="sets of tile sizes tried at most")
    options.add_argument("--n", type=int, default=4096)
    options.add_argument("--dtype", default="", help="of the rung tuned, where it takes several")
    args = options.parse_args()
    if not (args.emulator or args.out):
        options.error("--out is needed")
    return args


def main() -> None:
    args = arguments()
    if args.emulator:
        return emulate()
    args.out.mkdir(parents=True, exist_ok=True)
    fixed = {name: int(value) for name, _, value in (p.partition("=") for p in args.fix.split(",") if p)}
    for rung in args.tune:
        tune(rung, args.n, fixed, args.most, args.dtype, args.out / f"tune-{rung.partition('/')[2]}.json")
    if not args.tune:
        wanted = {int(n) for n in args.sizes.split(",") if n}
        sizes = [(n, dtype) for n, dtype in SIZES if not wanted or n in wanted]
        ladder(sizes, args.seconds, args.commit or commit(), args.out)


if __name__ == "__main__":
    main()
