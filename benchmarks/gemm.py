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

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.compiling import compile_all, tiles_text
from kernels.engines import cuda
from kernels.gemm.shape import GemmShape
from kernels.ladders import LADDERS
from kernels.machine.timing import Budget
from kernels.model.program import INPUT, Launch, Program, RuleError
from kernels.model.rung import Rung
from kernels.model.verify import agrees
from kernels.records import row as records_row
from kernels.records.row import commit
from kernels.runner import VerificationError, compare, seeded_inputs

LADDER = LADDERS["gemm"]
DTYPES = ("fp32", "fp16", "bf16", "int8")
# The rung that a type is compared with; INT8 is compared with FP32, which is timed first.
LIBRARY = {
    "fp32": "gemm/cublas",
    "fp16": "gemm/cublas-fp16",
    "bf16": "gemm/cublas-fp16",
    "int8": "gemm/cublas",
}
ODD = (
    (1, 1, 1), (61, 45, 37), (129, 130, 17), (1, 1000, 129), (1000, 1, 63), (513, 1023, 1), (1021, 1022, 1023),
)  # fmt: skip
MAX_EMULATED_S = 1.0
SLOW = "gemm/uncoalesced"
MAX_SLOW_SIZE = 4096
# The most important sizes come first; 8192 takes longest, in its reference too.
SIZES = ((4096, "fp32"), (4096, "fp16"), (4096, "bf16"), (4096, "int8"),
         *((n, "fp32") for n in (1024, 2048, 512, 256, 128, 8192)), (8192, "fp16"))  # fmt: skip


def supported_rungs(shape: GemmShape) -> list[str]:
    return [r.name for r in LADDER.rungs if not any(r.rules(shape, r.default_tiles))]


def compiled(program: Program) -> dict[str, int]:
    """Returns registers, bytes of local memory (spills) and static shared memory, from the driver."""
    for step in program.steps:
        if isinstance(step, Launch):
            kernel = cuda.compile_kernel(step.source, step.entry, step.defines)
            names = {"registers": "num_regs", "local": "local_size_bytes", "shared": "shared_size_bytes"}
            return {name: int(getattr(kernel, attribute)) for name, attribute in names.items()}
    return {}


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


def measure(shape: GemmShape, rungs: Sequence[str], budget: Budget, commit_hash: str) -> list[dict]:
    """Returns rows of a recording."""
    results = compare(rungs, shape, engine="cuda", budget=budget)
    return [records_row.row(r, LADDER.rung(r.rung).build(shape, r.tiles), commit_hash) for r in results]


def ladder(sizes: Sequence[tuple[int, str]], seconds: float, commit_hash: str, out: Path) -> None:
    start = time.perf_counter()

    def elapsed() -> float:
        return time.perf_counter() - start

    cubes = [GemmShape(64, 64, 64, dtype=dtype) for dtype in DTYPES]
    rungs = [(LADDER.rung(name), s) for s in cubes for name in supported_rungs(s)]
    compile_all([rung.build(s, rung.default_tiles) for rung, s in rungs])
    print(f"compiled, {elapsed():.0f} s", flush=True)
    failed = verify()
    print(f"{len(ODD) * len(DTYPES) * 2} odd shapes: {len(failed)} failures, {elapsed():.0f} s")
    print("\n".join(failed), flush=True)
    report = {"device": cuda.device_name(), "conditions": cuda.conditions(), "failed": failed}
    (out / "gemm.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    bases: dict[tuple[int, str], float] = {}  # TFLOP/s of the libraries
    with (out / "gemm.jsonl").open("w", encoding="utf-8") as file:
        for shape, rungs, budget in (g for size in sizes for g in groups(*size)):
            if elapsed() > seconds:
                print(f"left out for want of time: {shape}, {', '.join(rungs)}")
                continue
            rows = measure(shape, rungs, budget, commit_hash)
            file.writelines(json.dumps(row) + "\n" for row in rows)
            file.flush()
            table_rows = [figures(shape, row) for row in rows]
            bases |= {(shape.M, r["rung"]): r["tflops"] for r in table_rows}
            print(f"\n{shape}, {elapsed():.0f} s so far")
            print(table(table_rows, bases.get((shape.M, LIBRARY[shape.dtype]))), flush=True)
    print(f"{elapsed():.0f} s")


def figures(shape: GemmShape, row: Mapping) -> dict:
    """Returns a row with the further figures of the table."""
    program = LADDER.rung(row["rung"]).build(shape, row["tiles"])
    return {**row, "tflops": shape.flops / row["median_ms"] / 1e9, **compiled(program)}


def table(rows: Sequence[Mapping], base: float | None) -> str:
    lines = [
        f"{'':24} {'ms':>9} {'spread':>7} {'n':>3} {'TFLOP/s':>8} {'of lib':>7} {'error':>8} regs local shared"
    ]
    for r in rows:
        share = f"{r['tflops'] / base:7.1%}" if base else ""
        spread = (r["p80_ms"] - r["p20_ms"]) / r["median_ms"]
        lines.append(
            f"{r['rung']:24} {r['median_ms']:9.4f} {spread:7.1%} {r['n']:3} {r['tflops']:8.2f} {share:>7} "
            f"{r['error']:8.1e} {r.get('registers', ''):>4} {r.get('local', ''):>5} {r.get('shared', ''):>6}"
            + ("  " + tiles_text(r["tiles"]) if r.get("tuned") else "")
        )
    return "\n".join(lines)


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


def sessions(
    programs: Sequence[Program], inputs: Mapping[str, np.ndarray], shape: GemmShape, tolerance: float
) -> Iterator[cuda.Session | None]:
    """Yields a verified session for each program; None if its result is wrong or it does not run."""
    ref, scale = LADDER.reference(shape, **inputs)
    for program in programs:
        try:
            session = cuda.open(program, inputs)
            correct = agrees(session.verify_run(), ref, scale, tolerance)
        except (RuleError, RuntimeError) as e:
            print(e)
            correct = False
        yield session if correct else None


def tune(name: str, n: int, fixed: Mapping[str, int], maximum: int, dtype: str, out: Path) -> None:
    start = time.perf_counter()
    rung = LADDER.rung(name)
    dtypes = [
        d
        for d in (dtype, *DTYPES)
        if d and not any(rung.rules(GemmShape(n, n, n, dtype=d), rung.default_tiles))
    ]
    shape = GemmShape(n, n, n, dtype=dtypes[0])
    library = LADDER.rung(LIBRARY[shape.dtype])
    sets = choices(rung, shape, fixed, maximum)
    programs = [rung.build(shape, tiles) for tiles in sets]
    compile_all(programs)
    print(
        f"{name}, {shape}: {len(sets)} sets of tile sizes compiled, {time.perf_counter() - start:.0f} s",
        flush=True,
    )
    if not any(library.rules(shape, {})):
        sets, programs = [{}, *sets], [library.build(shape, {}), *programs]
    inputs = seeded_inputs(programs[0].of_role(INPUT))
    opened_sessions = list(sessions(programs, inputs, shape, max(rung.tolerance, library.tolerance)))
    for tiles, session in zip(sets, opened_sessions, strict=True):
        if session is None:
            print("WRONG", tiles_text(tiles))
    verified = [(t, p, s) for t, p, s in zip(sets, programs, opened_sessions, strict=True) if s]
    rows = timed(
        name, library.name, shape, verified, Budget(samples=12, seconds=15.0, min_samples=3, warm_up_s=0.01)
    )
    best = {tiles_text(r["tiles"]) for r in sorted(rows, key=lambda r: r["median_ms"])[:8]} | {""}
    best_sets = [g for g in verified if tiles_text(g[0]) in best]
    print(f"all timed, {time.perf_counter() - start:.0f} s")
    best_rows = timed(name, library.name, shape, best_sets, Budget(samples=60, seconds=6.0, min_samples=5))
    base = next((r["tflops"] for r in best_rows if r["rung"] == library.name), None)
    for title, part in (("the best, again", best_rows), ("all", rows)):
        print(f"\n{title}\n{table(sorted(part, key=lambda r: r['median_ms']), base)}")
    out.write_text(
        json.dumps({"device": cuda.device_name(), "best": best_rows, "all": rows}, indent=1) + "\n"
    )
    print(f"{time.perf_counter() - start:.0f} s")


def timed(name: str, library: str, shape: GemmShape, verified: Sequence[tuple], budget: Budget) -> list[dict]:
    samples = [t.samples_ms for t in cuda.sample([session for _, _, session in verified], "cold", budget)]
    rows = []
    for (tiles, program, _), ms in zip(verified, samples, strict=True):
        p20, median, p80 = np.quantile(ms, (0.2, 0.5, 0.8)).tolist()
        rows.append({
            "rung": name if tiles else library, "tiles": tiles, "n": len(ms), "median_ms": median, "p20_ms": p20,
            "p80_ms": p80, "tflops": shape.flops / median / 1e9, "error": 0.0, "tuned": True, **compiled(program),
        })  # fmt: skip
    return rows


# -- without a GPU -----------------------------------------------------------------------------------
def emulate() -> None:
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
            print(
                f"{rung:24} {shape!s:20} {instructions:9,} warp instructions  {durations[0]:.2f} s, again {min(durations):.2f} s"
            )
            slow += [rung] if min(durations) > MAX_EMULATED_S else []
    assert not slow, f"longer than {MAX_EMULATED_S} s at 64 x 64 x 64: {slow}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="a folder")
    parser.add_argument("--emulator", action="store_true", help="time the emulator instead")
    parser.add_argument("--sizes", default="", help="of those timed, such as 1024,4096; all when left out")
    parser.add_argument("--seconds", type=float, default=85.0, help="nothing new is begun after so many")
    parser.add_argument("--commit", help="commit to name in the rows where git is not at hand")
    parser.add_argument("--tune", action="append", default=[], metavar="RUNG")
    parser.add_argument("--fix", default="", help="tile sizes that stay: BK=8,STAGES=3")
    parser.add_argument("--most", type=int, default=80, help="sets of tile sizes tried at most")
    parser.add_argument("--n", type=int, default=4096)
    parser.add_argument("--dtype", default="", help="of the rung tuned, where it takes several")
    args = parser.parse_args()
    if args.emulator:
        return emulate()
    if not args.out:
        parser.error("--out is needed")
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
