"""python -m kernels list | run RUNG --shape ... | emulate FILE ENTRY ... | record [--out FILE] | ptx [TOPIC ...]"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernels import engines, precompile, records
from kernels.cases import parse_tiles, read_cases
from kernels.ladders import LADDERS, ladder_of
from kernels.machine.timing import MODES, Budget
from kernels.model import numerals
from kernels.model.names import unknown
from kernels.model.program import RuleError
from kernels.model.row import Row
from kernels.model.shape import ShapeError
from kernels.records import files
from kernels.records.row import commit
from kernels.runner import VerificationError, run
from kernels.sweep import GROUPS, Sweep, missing, record

EXAMPLES = """examples
  python -m kernels emulate naive.cu sgemm --grid 4,4 --block 16,16 \\
      --arg f32:64x64:random --arg f32:64x64:random --arg f32:64x64:empty --arg i32:64
  python -m kernels emulate tiled.cu "sgemm<16, float>" --grid 4,4 --block 16,16 -arch=sm_90 -I include \\
      --arg a.npy --arg b.npy --arg f32:64x64:empty --arg i32:64 --out results
  python -m kernels emulate filter.cu blur --grid 8 --block 128 --constant mask=f32:9:ones \\
      --arg "struct{f32:1024:random,i32:1024}" --arg i32:1024:0..8 --arg bf16:1024:empty
  python -m kernels emulate add.ptx add_kernel --grid 2 --block 128 --ncu report.csv \\
      --arg f32:2000:random --arg f32:2000:random --arg f32:2000:empty --arg i32:2000 --arg u64:0 --arg u64:0"""


def parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """Returns the parser of a command line with these arguments."""
    top = argparse.ArgumentParser(prog="python -m kernels", description=__doc__)
    commands = top.add_subparsers(dest="command", required=True)

    listing = commands.add_parser("list", help="every rung, preset and engine")
    listing.add_argument("--json", action="store_true")

    running = commands.add_parser("run", help="run, verify and time one rung")
    running.add_argument("rung", help='such as "conv/im2col-gemm"')
    running.add_argument("--shape", required=True, help='"N=1,C=3,H=8,W=8,K=4,R=3,S=3,pad=1" or a preset')
    running.add_argument("--engine", help="cuda, cpu or emulator; the GPU where there is one, else the cpu")
    running.add_argument("--tiles", default="", help='such as "TILE=16"')
    running.add_argument("--mode", default="cold", choices=MODES)
    running.add_argument("--seed", type=int, default=0)
    running.add_argument("--json", action="store_true")

    emulating = commands.add_parser(
        "emulate",
        help="run any file of CUDA C++ or PTX without a GPU and count what it does",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if "emulate" in arguments:  # the emulator takes a while to import
        emulate_options(emulating)
    watching = commands.add_parser(
        "watch",
        help="write a page on which a kernel of a file runs step by step",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if "watch" in arguments:
        watch_options(watching)
    program = commands.add_parser("program", help="run a whole program, a file with main() or solve(), without a GPU")
    if "program" in arguments:
        program_options(program)
    judging = commands.add_parser("judge", help="run a solution on the tests of a LeetGPU challenge, without a GPU")
    judging.add_argument("folder", type=Path, help="of the challenge in your checkout: it has a challenge.py")
    judging.add_argument("solution", type=Path, help="CUDA C++ with solve()")
    judging.add_argument("--json", action="store_true")
    ptx = commands.add_parser("ptx", help="compile the PTX of the kernels anew into the tree")
    ptx.add_argument("topics", nargs="*", metavar="TOPIC", help="folders of kernels/, all if left out")

    recording = commands.add_parser(
        "record", help="measure every rung at every preset and tile size into a file; resumes what was cut off"
    )
    recording.add_argument(
        "--out",
        type=Path,
        help="a file of rows; if left out, one named after the GPU in the folder of "
        "your recordings, where the app finds it when it starts",
    )
    recording.add_argument(
        "--missing", action="store_true", help="only list, for each GPU, what its recording lacks or older kernels made"
    )
    recording.add_argument("--ladders", default="", help="comma-separated, all when left out: gemm,softmax")
    recording.add_argument("--engine")
    recording.add_argument(
        "--presets",
        default="",
        help=f"comma-separated keys, all when left out; and groups that are recorded only by name: {', '.join(GROUPS)}",
    )
    recording.add_argument("--batches", default="", help="each preset at these N as well: 1,8,32")
    recording.add_argument(
        "--cases",
        type=Path,
        help='a file of cases, a line each, in place of presets: "gemm/naive; M=16,N=16,K=16; BLOCK=8"',
    )
    recording.add_argument("--modes", default=",".join(MODES))
    recording.add_argument("--seconds", type=float, default=2.0, help="time budget of one comparison")
    recording.add_argument("--commit", help="commit to name in the rows where git is not at hand")
    return top


def emulate_options(emulating: argparse.ArgumentParser) -> None:
    """Adds the options of the command `emulate`. Those that nvcc has too keep nvcc's names."""
    from kernels.engines.emulator import arguments

    emulating.epilog = f"{arguments.FORMS}\n\n{EXAMPLES}"
    launch_options(emulating)
    check_options(emulating)
    add = emulating.add_argument
    add("--out", type=Path, help="folder for arrays after the run: arg0.npy, arg1.npy, NAME.npy of a --constant")
    add(
        "--ncu",
        type=Path,
        metavar="REPORT",
        help="a file that ncu --csv printed; its numbers are shown beside the counters",
    )
    add("--sass", action="store_true", help="also show the machine code of the architecture, by line; needs nvdisasm")
    add(
        "--watch",
        default="",
        metavar="THREAD",
        help="also show what one thread does, line by line, with the values of its variables: 9 of block 0, or 2:9 of block 2",
    )
    add("--json", action="store_true")


def launch_options(command: argparse.ArgumentParser) -> None:
    """Adds a kernel of a file, its launch and the options of the compiler."""
    from kernels.engines.emulator import iterations

    add = command.add_argument
    add("file", type=Path, help="CUDA C++ without host code (keep it out by #ifndef __CUDACC_RTC__), or PTX (.ptx)")
    add("entry", help='the kernel\'s name in C++: naive, ns::naive, "sgemm<16, float>"')
    add("--grid", required=True, help="blocks: 4 or 4,4 or 4,4,1")
    add("--block", required=True, help="threads of a block, in the same form")
    add("--arg", action="append", default=[], dest="args", metavar="ARG", help="one for each parameter, in order")
    add(
        "--constant",
        action="append",
        default=[],
        dest="constants",
        metavar="NAME=ARG",
        help="value of a __constant__ or __device__ variable before the launch",
    )
    add("--shared", type=int, default=0, help="bytes of dynamic shared memory")
    add("--seed", type=int, default=0, help="of random values")
    add(
        "--order",
        default="forward",
        help="of the warps: forward, reversed, blocks (one after the other) or random:SEED. A short launch in forward order is run again",
    )
    add(
        "--seconds",
        type=float,
        default=iterations.SECONDS,
        help=f"of processor time, after which a loop is stopped: it may be endless; {iterations.SECONDS:g} if left out",
    )
    compiler_options(command)


def watch_options(watching: argparse.ArgumentParser) -> None:
    """Adds the options of the command `watch`."""
    from kernels.engines.emulator import arguments

    watching.epilog = f"{arguments.FORMS}\n\n{EXAMPLES.replace(' emulate ', ' watch ')}"
    launch_options(watching)
    add = watching.add_argument
    add("--thread", default="0", help="that is followed: 9 of block 0, or 2:9 of block 2; 0 if left out")
    add(
        "--out", type=Path, metavar="PAGE", help="the page that is written; the name of the file with .html if left out"
    )


def check_options(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add(
        "--check",
        default="",
        dest="check",
        metavar="EXPRESSION",
        help='NumPy, of the arguments before the launch, that an array must equal: "arg2 = arg0 @ arg1", or without the name if one '
        "argument is an empty array",
    )
    add(
        "--tolerance",
        type=float,
        help="the largest error for --check, as a share of the largest number; by the type if left out",
    )


def compiler_options(command: argparse.ArgumentParser) -> None:
    """Adds the options that nvcc has too, with nvcc's names."""
    from kernels.engines.emulator.compiler import source

    add = command.add_argument
    add("-D", "--define", action="append", default=[], metavar="NAME=VALUE")
    add(
        "-I",
        "--include-path",
        action="append",
        default=[],
        dest="folders",
        metavar="FOLDER",
        help="one more folder of headers, before the file's own",
    )
    add(
        "-arch",
        "--arch",
        "--gpu-architecture",
        default="",
        metavar="ARCH",
        help=f"{', '.join(source.ARCHITECTURES)}; sm_80 if left out",
    )
    add("-std", "--std", default="", help=f"{', '.join(source.STANDARDS)}; c++17 if left out")


def program_options(program: argparse.ArgumentParser) -> None:
    """Adds the options of the command `program`."""
    from kernels.engines.emulator.program.run import SECONDS

    program.add_argument("file", type=Path, help="CUDA C++ with main() or solve()")
    program.add_argument("arguments", nargs="*", help="of the program; after -- if one begins with -")
    program.add_argument(
        "--seconds",
        type=float,
        default=SECONDS,
        help=f"of processor time, after which a loop is stopped; {SECONDS:g} if left out",
    )
    program.add_argument(
        "--arg",
        action="append",
        default=[],
        dest="args",
        metavar="ARG",
        help="of the function solve(), if the file has no main()",
    )
    check_options(program)
    program.add_argument("--seed", type=int, default=0, help="of random values")
    compiler_options(program)
    program.add_argument("--json", action="store_true")


def do_list(args) -> None:
    if args.json:
        print(json.dumps(listing_json(), indent=1, allow_nan=False))
        return
    for ladder in LADDERS.values():
        for rung in ladder.rungs:
            tiles = "  ".join(f"{name}: {', '.join(map(str, sorted(c)))}" for name, c in rung.tiles.items())
            print(f"{rung.name:20} {rung.idea}\n{'':20} tiles  {tiles}")
            if rung.needs:
                print(f"{'':20} cuda   {rung.needs}")
            if "cpu" in rung.engines and "cuda" in ladder.engines:
                print(f"{'':20} cpu    {rung.title_on('cpu')}")
            elif rung.not_on_cpu:
                print(f"{'':20} cpu    no: {rung.why_not_on('cpu')}")
        print("presets")
        for key, preset in ladder.presets.items():
            print(f"  {key:24} {preset.shape}")
    print("engines")
    for name, status in engines.available().items():
        print(f"  {name:6} {'ready' if status.ready else 'not here'}: {status.why}")


def listing_json() -> dict:
    return {
        "rungs": [
            {
                "rung": r.name,
                "title": r.title,
                "idea": r.idea,
                "tiles": {n: sorted(c) for n, c in r.tiles.items()},
                "engines": {e: r.title_on(e) for e in ladder.engines if e in r.engines},
                "not on": {e: r.why_not_on(e) for e in ladder.engines if e not in r.engines},
                "needs": r.needs,
            }
            for ladder in LADDERS.values()
            for r in ladder.rungs
        ],
        "presets": {  # a name may mean other shapes on another ladder
            ladder.name: {key: preset.shape.params() for key, preset in ladder.presets.items()}
            for ladder in LADDERS.values()
        },
        "engines": {name: {"ready": s.ready, "text": s.why} for name, s in engines.available().items()},
    }


def do_run(args) -> None:
    ladder = ladder_of(args.rung)
    shape = ladder.shape_of(args.shape)
    result = run(args.rung, shape, engine=args.engine, tiles=parse_tiles(args.tiles), seed=args.seed, mode=args.mode)
    title = ladder.rung(args.rung).title_on(result.engine)
    if args.json:
        print(json.dumps({"title": title} | result.to_json(), allow_nan=False))
        return
    if result.counters:
        from kernels.engines.emulator import nsight

        print("\n".join(nsight.table(result.counters.total)))
        print(f"error {result.error:.2e} relative L2 against float64; PTX-level counts")
        return
    m, p = result.timed, result.predicted
    print(f"{title}  ({result.rung})  {shape}  {dict(result.tiles)}  on {m.device} ({result.engine}, {m.mode})")
    print(f"  time       {m.median_ms:.4g} ms  (p20 {m.p20_ms:.4g}, p80 {m.p80_ms:.4g}, n {m.n})  measured")
    if used := m.conditions.get("disturbed"):
        print(f"             disturbed: other programs used the {used}")
    basis = "the definition's FLOPs" if p.executed_flops is None else "FLOPs executed"
    print(f"  rate       {p.flops / m.median_ms / 1e9:.4g} TFLOP/s, {basis}")
    predicted = (
        "unknown to all but the library" if p.workspace_bytes is None else f"{p.workspace_bytes:,} bytes predicted"
    )
    print(f"  workspace  {m.workspace_bytes:,} bytes measured, {predicted}")
    print(f"  peak       {m.peak_bytes:,} bytes measured")
    print(f"  error      {result.error:.2e} relative L2 against float64")


def launch_settings(args: argparse.Namespace) -> dict[str, Any]:
    """Returns the keywords of `user_kernel.prepared` that launch_options read."""
    from kernels.engines.emulator import user_kernel

    return {
        "shared": args.shared,
        "seed": args.seed,
        "defines": args.define,
        "folders": args.folders,
        "arch": args.arch,
        "standard": args.std,
        "constants": args.constants,
        "seconds": args.seconds,
        "order": user_kernel.order_of(args.order),
    }


def do_emulate(args) -> int:
    from kernels.engines.emulator import user_kernel

    result = user_kernel.emulate(
        args.file,
        args.entry,
        user_kernel.dim(args.grid),
        user_kernel.dim(args.block),
        args.args,
        **launch_settings(args),
        check=args.check,
        tolerance=args.tolerance,
        out=args.out,
        report=args.ncu,
        sass=args.sass,
        watch=args.watch,
    )
    print(json.dumps(result.to_json(), allow_nan=False) if args.json else result.text())
    return 1 if result.compared and not result.compared.right else 0


def do_watch(args) -> None:
    from kernels.engines.emulator import user_kernel
    from visuals.stage import own_kernel  # this command line is of all layers

    grid, block = user_kernel.dim(args.grid), user_kernel.dim(args.block)
    page = own_kernel.page(
        args.file,
        args.entry,
        grid,
        block,
        args.args,
        user_kernel.watched_thread(args.thread, grid, block),
        **launch_settings(args),
    )
    out = args.out or Path(f"{args.file.stem}.html")
    out.write_text(page, encoding="utf-8")
    print(out)


def do_program(args) -> int:
    from kernels.engines.emulator.program import run as programs

    def write(text: bytes) -> None:
        sys.stdout.write(text.decode("utf-8", "replace"))
        sys.stdout.flush()

    compiler = {
        "defines": args.define,
        "folders": args.folders,
        "arch": args.arch or "sm_80",
        "standard": args.std or "c++17",
    }
    output = (lambda text: None) if args.json else write
    if args.args:
        ended = programs.solve(
            args.file,
            args.args,
            check=args.check,
            tolerance=args.tolerance,
            seed=args.seed,
            seconds=args.seconds,
            write=output,
            **compiler,
        )
    else:
        ended = programs.run(args.file, args.arguments, seconds=args.seconds, write=output, **compiler)
    if args.json:
        print(json.dumps(ended.to_json(), allow_nan=False))
    else:
        print(ended.text(), file=sys.stderr)
    return 1 if ended.compared and not ended.compared.right else ended.status


def do_judge(args) -> int:
    from kernels.engines.emulator.program.judge import judge

    judged = judge(args.folder, args.solution)
    print(json.dumps(judged.to_json(), allow_nan=False) if args.json else judged.text())
    return 0 if judged.right else 1


def do_ptx(args) -> None:

    for path in precompile.write(args.topics):
        print(path)


def do_record(args) -> None:
    sweep = _sweep(args)
    if args.missing:
        _print_missing(sweep)
        return
    out = args.out or _own_file(sweep.engine)
    try:
        for progress in record(out, sweep, args.commit or commit()):
            left = "" if progress.left_s is None else f", about {_duration(progress.left_s)} left"
            print(
                f"[{progress.done} of {progress.total}{left}] {_line(progress.row) if progress.row else progress.note}",
                flush=True,
            )
    except KeyboardInterrupt:
        print(f"stopped; the same command goes on where {out} ends", file=sys.stderr)
        return
    if not args.out:
        print(f"The rows are in {out}. The app shows them from its next start.")


def _own_file(engine: str) -> Path:
    """Returns the file of this machine's GPU in the folder of this user's recordings, and makes the folder."""
    if engine != files.GPU:
        raise RuleError(
            f"the pages compare GPUs: with the {engine} engine, name a file by --out. Or there is no GPU here: "
            f"{engines.load(files.GPU).status().text}"
        )
    status = engines.load(engine).status()
    if not status.ready:
        raise RuleError(f"engine {engine!r} cannot run here: {status.text}")
    out = files.default_path(status.text)
    out.parent.mkdir(parents=True, exist_ok=True)
    return out


def _print_missing(sweep: Sweep) -> None:
    """Prints for each GPU what the sweep would measure there, and the command that does so."""
    sweep = replace(sweep, engine=files.GPU)
    for gpu in records.known_gpus().values():
        found = missing(gpu, sweep)
        lacking = sum(found.rungs.values())
        print(f"{gpu.device} ({found.file}): {lacking:,} of {found.total:,} are missing")
        if found.superseded:
            print(f"  {found.superseded:,} rows of the file are of older kernels")
        for rung, n in sorted(found.rungs.items()):
            print(f"  {rung:32} {n:,}")
        if lacking:
            ladders = ",".join(dict.fromkeys(rung.partition("/")[0] for rung in sorted(found.rungs)))
            print(f"  on that GPU: python -m kernels record --ladders {ladders} --out {found.file}")


def _sweep(args) -> Sweep:
    presets = [p for p in args.presets.split(",") if p]
    known = {key for ladder in LADDERS.values() for key in ladder.presets} | GROUPS.keys()
    for key in presets:
        if key not in known:
            raise RuleError(unknown("preset", key, sorted(known)))
    modes = args.modes.split(",")
    for mode in modes:
        if mode not in MODES:
            raise RuleError(f"no mode {mode!r}; there are: {', '.join(MODES)}")
    batches = [part.strip() for part in args.batches.split(",") if part.strip()]
    counts: list[int] = []
    for n in batches:
        count = numerals.count(n)
        if count is None:
            raise RuleError(f"a batch is a whole number above 0, got {n!r}")
        counts.append(count)
    numerals.check_positive("--seconds", args.seconds)
    engine = args.engine or engines.default()
    if args.cases and (presets or batches):
        raise RuleError("--cases goes without --presets and --batches")
    cases = read_cases(args.cases.read_text(encoding="utf-8")) if args.cases else ()
    ladders = [name for name in args.ladders.split(",") if name]
    for name in ladders:
        if name not in LADDERS:
            raise RuleError(unknown("ladder", name, LADDERS))
    budget = Budget(seconds=args.seconds)
    return Sweep(engine, presets, modes, counts, budget, cases, ladders)


def _line(row: Row) -> str:
    shape = ladder_of(row["rung"]).shape(**row["shape"])
    rate = row["flops"] / row["median_ms"] / 1e9
    tiles = " ".join(f"{name} {value}" for name, value in row["tiles"].items())
    return (
        f"{row['mode']:5} {row['rung']:20} {tiles} {shape}: {row['median_ms']:.4g} ms, n {row['n']}, "
        f"{rate:.3g} TFLOP/s, error {row['error']:.1e}"
        f"{', disturbed: other programs used the ' + row['disturbed'] if row.get('disturbed') else ''}"
    )


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s" if minutes else f"{seconds} s"


def main(argv: list[str] | None = None) -> int:
    """Run a command and return its exit code. A broken rule prints a sentence on the error stream and gives 2,
    a wrong output under --check 1."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a character that the terminal cannot print becomes "?"
            stream.reconfigure(errors="replace")
    arguments = sys.argv[1:] if argv is None else argv
    top = parser(arguments)
    if malformed := [argument for argument in arguments if argument.startswith("-") and argument.endswith("=--")]:
        top.error(f"{malformed[0]}: -- is no value")  # argparse would make an empty list of it
    args = top.parse_args(arguments)
    try:
        commands = {
            "list": do_list,
            "run": do_run,
            "emulate": do_emulate,
            "watch": do_watch,
            "program": do_program,
            "judge": do_judge,
            "ptx": do_ptx,
            "record": do_record,
        }
        code = commands[args.command](args)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of the output has closed it, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (ShapeError, RuleError, VerificationError, OSError, MemoryError) as e:
        print(f"python -m kernels: {e or 'there is not enough memory'}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("python -m kernels: stopped", file=sys.stderr)
        return 130
    return code or 0


if __name__ == "__main__":
    sys.exit(main())
