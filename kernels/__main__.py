"""python -m kernels list | run RUNG --shape ... | emulate FILE.cu ENTRY ... | record --out FILE | ptx"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from kernels import engines, records
from kernels.engines.timing import MODES, Budget
from kernels.ladders import LADDERS, ladder_of
from kernels.program import RuleError
from kernels.records.sweep import GROUPS, Sweep, record
from kernels.runner import VerificationError, run
from kernels.shapes import ShapeError


def parser() -> argparse.ArgumentParser:
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
        "emulate", help="run any CUDA C++ file without a GPU and count what it does"
    )
    emulating.add_argument("file", type=Path)
    emulating.add_argument("entry", help='the kernel\'s name (extern "C")')
    emulating.add_argument("--grid", required=True, help="blocks: 4 or 4,4 or 4,4,1")
    emulating.add_argument("--block", required=True, help="threads of a block, likewise")
    emulating.add_argument("--arg", action="append", default=[], dest="args", metavar="ARG",
                           help="in order: f32:64x64:random, f32:64x64:zeros, i32:64x:arange, i32:64, f32:0.5")  # fmt: skip
    emulating.add_argument("--shared", type=int, default=0, help="bytes of dynamic shared memory")
    emulating.add_argument("--seed", type=int, default=0)
    emulating.add_argument("--define", action="append", default=[], metavar="NAME=VALUE")
    emulating.add_argument("--out", type=Path, help="folder: each array argument as arg0.npy, arg1.npy ...")
    emulating.add_argument("--json", action="store_true")

    commands.add_parser("ptx", help="compile every kernel's PTX anew into the tree")

    recording = commands.add_parser(
        "record",
        help="measure every rung at every preset and tile size into a file; resumes what was cut off",
    )
    recording.add_argument("--out", type=Path, required=True)
    recording.add_argument("--engine")
    recording.add_argument("--presets", default="", help="comma-separated keys, all when left out; and "
                           f"groups that are recorded only by name: {', '.join(GROUPS)}")  # fmt: skip
    recording.add_argument("--batches", default="", help="each preset at these N as well: 1,8,32")
    recording.add_argument("--modes", default=",".join(MODES))
    recording.add_argument("--seconds", type=float, default=2.0, help="time budget of one comparison")
    recording.add_argument("--commit", help="commit to name in the rows where git is not at hand")
    return top


def parse_tiles(text: str) -> dict[str, int]:
    tiles = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, _, value = part.partition("=")
        if not value.strip().isdigit():
            raise RuleError(f"tiles are NAME=NUMBER, got {part!r}")
        tiles[name.strip()] = int(value)
    return tiles


def do_list(args) -> None:
    if args.json:
        print(json.dumps(listing_json(), indent=1))
        return
    for ladder in LADDERS.values():
        for rung in ladder.rungs:
            tiles = "  ".join(f"{name}: {', '.join(map(str, sorted(c)))}" for name, c in rung.tiles.items())
            print(f"{rung.name:20} {rung.idea}\n{'':20} tiles  {tiles}")
        print("presets")
        for key, preset in ladder.presets.items():
            print(f"  {key:24} {preset.shape}")
    print("engines")
    for name, status in engines.available().items():
        print(f"  {name:6} {'ready' if status.ready else 'not here'}: {status.why}")


def listing_json() -> dict:
    return {
        "rungs": [
            {"rung": r.name, "title": r.title, "idea": r.idea, "tiles": {n: sorted(c) for n, c in r.tiles.items()}}
            for ladder in LADDERS.values()
            for r in ladder.rungs
        ],
        "presets": {
            key: preset.shape.params() for ladder in LADDERS.values() for key, preset in ladder.presets.items()
        },
        "engines": {name: {"ready": s.ready, "text": s.why} for name, s in engines.available().items()},
    }  # fmt: skip


def do_run(args) -> None:
    ladder = ladder_of(args.rung)
    preset = ladder.presets.get(args.shape)
    shape = preset.shape if preset else ladder.parse(args.shape)
    result = run(
        args.rung, shape, engine=args.engine, tiles=parse_tiles(args.tiles), seed=args.seed, mode=args.mode
    )
    if args.json:
        print(json.dumps(result.to_json()))
        return
    if result.counters:
        for name, count in result.counters.total.items():
            print(f"{name:22} {count:,}")
        print(f"error {result.error:.2e} relative L2 against float64; PTX-level counts")
        return
    m, p = result.measurement, result.predicted
    print(f"{result.rung}  {shape}  {dict(result.tiles)}  on {m.device} ({result.engine}, {m.mode})")
    print(f"  time       {m.median_ms:.4g} ms  (p20 {m.p20_ms:.4g}, p80 {m.p80_ms:.4g}, n {m.n})  measured")
    print(f"  rate       {p.flops / m.median_ms / 1e9:.4g} TFLOP/s")
    predicted = "not" if p.workspace_bytes is None else f"{p.workspace_bytes:,}"
    print(f"  workspace  {m.workspace_bytes:,} bytes measured, {predicted} predicted")
    print(f"  peak       {m.peak_bytes:,} bytes measured")
    print(f"  error      {result.error:.2e} relative L2 against float64")


def do_emulate(args) -> None:
    from kernels.engines.emulator import own

    told = own.emulate(
        args.file, args.entry, own.dim(args.grid), own.dim(args.block), args.args,
        shared=args.shared, seed=args.seed, defines=args.define, out=args.out,
    )  # fmt: skip
    print(json.dumps(told.to_json()) if args.json else told.text())


def do_ptx(args) -> None:
    from kernels.engines.emulator import stock

    for path in stock.write_all():
        print(path)


def do_record(args) -> None:
    presets = [p for p in args.presets.split(",") if p]
    known = {key for ladder in LADDERS.values() for key in ladder.presets} | GROUPS.keys()
    for key in presets:
        if key not in known:
            raise RuleError(f"no preset {key!r}; there are: {', '.join(sorted(known))}")
    modes = args.modes.split(",")
    for mode in modes:
        if mode not in MODES:
            raise RuleError(f"no mode {mode!r}; there are: {', '.join(MODES)}")
    batches = [part.strip() for part in args.batches.split(",") if part.strip()]
    for n in batches:
        if not n.isdecimal() or not int(n):
            raise RuleError(f"a batch is a whole number above 0, got {n!r}")
    engine = args.engine or engines.default()
    told = Sweep(engine, presets, modes, [int(n) for n in batches], Budget(seconds=args.seconds))
    try:
        for at in record(args.out, told, args.commit or records.commit()):
            left = "" if at.left_s is None else f", about {_duration(at.left_s)} left"
            print(f"[{at.done} of {at.total}{left}] {_line(at.row) if at.row else at.said}", flush=True)
    except KeyboardInterrupt:
        print(f"stopped; the same command goes on where {args.out} ends", file=sys.stderr)


def _line(row: dict) -> str:
    shape = ladder_of(row["rung"]).shape(**row["shape"])
    rate = row["flops"] / row["median_ms"] / 1e9
    tiles = " ".join(f"{name} {value}" for name, value in row["tiles"].items())
    return (
        f"{row['mode']:5} {row['rung']:20} {tiles} {shape}: {row['median_ms']:.4g} ms, n {row['n']}, "
        f"{rate:.3g} TFLOP/s, error {row['error']:.1e}"
    )


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return (
        f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
    )


def main(argv: list[str] | None = None) -> int:
    args = parser().parse_args(argv)
    try:
        commands = {"list": do_list, "run": do_run, "emulate": do_emulate, "ptx": do_ptx, "record": do_record}
        commands[args.command](args)
    except (ShapeError, RuleError, VerificationError, OSError) as e:
        print(f"python -m kernels: {e}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
