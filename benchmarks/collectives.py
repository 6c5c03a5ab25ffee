"""Collectives over all GPUs of this machine: ours and NCCL's, verified on every GPU, then timed; peer copies; topology.

    python -m benchmarks.collectives OUT.json [--ranks 2] [--seconds 85] [--commit HASH] [--part NAME]

Writes what kernels/records/collectives.json holds: rows of times, the machine, checks and errors. Rows of other machines or
numbers of GPUs that OUT.json has stay. Each part runs in a process of its own with a deadline, so that a GPU that hangs or
faults ends one part only. What a part measured before its end is kept. `--part checks` verifies and times nothing:

    compute-sanitizer --target-processes all --tool memcheck python -m benchmarks.collectives OUT.json --part checks

Our kernels have no shared memory, so racecheck, which looks there, has nothing to check.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kernels.collectives import cost, recorded
from kernels.collectives import gpus as collective_gpus
from kernels.collectives.cost import Point
from kernels.collectives.gpus import CUPY, GRAPH, JOINT, LAUNCH, NCCL, SINGLE, Gpus
from kernels.collectives.kernels import KERNELS, OUT
from kernels.collectives.shape import ALGORITHMS, ALL_REDUCE, ITEM, NAIVE, ONE_SHOT, RING, TREE, TWO_SHOT
from kernels.engines.cuda import devices
from kernels.model.program import RuleError
from kernels.records.row import commit

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
BY_FOUR = [KIB << n for n in range(0, 21, 2)]  # bytes of each rank, 1 KiB .. 1 GiB
BETWEEN = [KIB << n for n in range(1, 21, 2)]
SIZES = [*BY_FOUR, *BETWEEN]  # those that matter most first
OTHER_KINDS = [64 * KIB, MIB, 16 * MIB, 64 * MIB]
CHECKED = (1, 7, 1000, 4099, 65_536, 1_000_003)  # elements
SMALL = 16 * MIB  # up to here the host's time to launch counts, so a graph is timed too
LARGEST = {ONE_SHOT: 64 * MIB}  # bytes beyond which an algorithm is not timed
COPIES = (4, 64 * KIB, MIB, 64 * MIB, GIB)
TUNED_AT = {RING: 256 * MIB, TREE: 256 * MIB, TWO_SHOT: 256 * MIB}
# Settings that are tried, the kernel's own first. The fastest one is timed at every size.
TUNED: Mapping[str, Sequence[Mapping[str, int]]] = {
    RING: (
        {},
        {"most_blocks": 264},
        {"most_blocks": 66},
        {"most_blocks": 32},
        {"most_blocks": 264, "SLICE": 2048},
        {"most_blocks": 132, "SLICE": 8192},
        {"most_blocks": 132, "SLICE": 1024},
        {"most_blocks": 64, "SLICE": 16384},
    ),
    TWO_SHOT: ({}, {"most_blocks": 264}, {"most_blocks": 66}, {"most_blocks": 32}, {"most_blocks": 132, "UNROLL": 8}),
    TREE: (
        {},
        {"most_blocks": 264},
        {"most_blocks": 66},
        {"most_blocks": 132, "SLICE": 16384},
        {"most_blocks": 132, "SLICE": 2048},
    ),
}
LAUNCHED = 64 * KIB  # the length at which ways to launch are compared
TUNE_SAMPLES, SAMPLES = 3, 9
# Seconds that a part may take.
DEADLINES = {
    "links": 25,
    "checks": 60,
    "small": 45,
    "ring": 45,
    "tree": 30,
    "launches": 20,
    "nccl": 45,
    "nccl-graph": 25,
}
PARTS = ("links", "small", "ring", "tree", "launches", "nccl", "nccl-graph")
KILL_S = 5.0
SAFETY_S = 4.0  # a part stops measuring so long before its deadline

_HELD: list[Gpus] = []

Emit = Callable[[str, Mapping[str, Any]], None]


class Clock:
    """The time that a part has left."""

    def __init__(self, seconds: float):
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        return self._end - time.monotonic()


def attempt(emit: Emit, what: str, clock: Clock, run: Callable[[], Any]) -> Any:
    """Returns the result of `run`; None if there is no time left or it fails, which is emitted. An error of the GPU
    itself ends the part: nothing runs after it."""
    if clock.left() <= 0:
        emit("error", {"what": what, "error": "no time left"})
        return None
    try:
        return run()
    except RuleError as error:  # a wrong result, a missing peer: the GPUs are usable
        emit("error", {"what": what, "error": str(error)})
    except Exception as error:
        emit(
            "error", {"what": what, "error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc(limit=4)}
        )
        raise
    return None


# -- the parts -----------------------------------------------------------------------------------
def links(emit: Emit, clock: Clock, ranks: int, largest: int) -> None:
    """Topology, and copies from one GPU's memory to another's: one way, and both ways at once."""
    emit("machine", machine(ranks))
    found = devices.Devices(ranks)
    arrays = [[found.empty(rank, largest, "uint8") for _ in range(2)] for rank in range(ranks)]
    for nbytes, both in itertools.product((n for n in COPIES if n <= largest), (False, True)):

        def run(nbytes: int = nbytes, both: bool = both) -> None:
            for a, b in ((0, 1), (1, 0))[: 1 + both]:
                found.copy(arrays[b][1][:nbytes], b, arrays[a][0][:nbytes], a)

        def measured(run: Callable[[], None] = run, nbytes: int = nbytes, both: bool = both) -> dict[str, Any]:
            seconds = collective_gpus.samples(_Only(found), run, count=SAMPLES)
            row = collective_gpus.row("copy", "both ways" if both else "one way", 2, nbytes // ITEM, LAUNCH, seconds)
            row["bus_bytes_per_s"] = round(nbytes / (row["median_ms"] / 1e3))
            return row

        if row := attempt(emit, f"copy of {nbytes} bytes", clock, measured):
            emit("row", row)


class _Only:
    """Stands for Gpus where only the devices are needed."""

    def __init__(self, found: devices.Devices):
        self.devices = found


def checks(emit: Emit, clock: Clock, ranks: int, largest: int) -> None:
    """Every kernel of ours at lengths that nothing divides. Each array is an allocation of its own and as long as the run, so
    that memcheck knows where it ends."""
    devices.load().cuda.set_allocator(None)
    peers = devices.Devices(ranks)
    for elements in (n for n in CHECKED if n * ITEM <= largest):
        gpus = Gpus(ranks, elements, peers)
        for algorithm in KERNELS:
            check(emit, clock, gpus, ALL_REDUCE, algorithm, elements)
        gpus.close()


def check(emit: Emit, clock: Clock, gpus: Gpus, kind: str, algorithm: str, elements: int) -> bool:
    """Returns whether a collective is right at a length; emits the check."""
    error = attempt(
        emit,
        f"check of {algorithm} {kind}, {elements} elements",
        clock,
        lambda: collective_gpus.verify(gpus, kind, algorithm, elements),
    )
    if error is not None:
        emit("check", {"kind": kind, "algorithm": algorithm, "elements": elements, "error": error})
    return error is not None


def own(emit: Emit, clock: Clock, ranks: int, largest: int, algorithms: Sequence[str]) -> None:
    """Checks, tunes and times our kernels."""
    gpus = Gpus(ranks, largest // ITEM)
    for algorithm in algorithms:
        right = [check(emit, clock, gpus, ALL_REDUCE, algorithm, n) for n in CHECKED if n <= gpus.capacity]
        if not all(right):
            continue
        settings = tuned(emit, clock, gpus, algorithm)
        for nbytes in SIZES:
            if nbytes > min(largest, LARGEST.get(algorithm, GIB)):
                continue
            for launch in (LAUNCH, GRAPH) if nbytes <= SMALL else (LAUNCH,):
                timed(emit, clock, gpus, ALL_REDUCE, algorithm, nbytes, launch, settings)
    gpus.close()


def tuned(emit: Emit, clock: Clock, gpus: Gpus, algorithm: str) -> Mapping[str, int]:
    """Returns the settings of TUNED with which a kernel is fastest; {} if none was timed."""
    nbytes, found = min(TUNED_AT.get(algorithm, 0), gpus.capacity * ITEM), []
    for settings in TUNED.get(algorithm, ()):
        launch = GRAPH if nbytes <= SMALL else LAUNCH
        row = attempt(
            emit,
            f"{algorithm} with {dict(settings)}",
            clock,
            lambda settings=settings, launch=launch: collective_gpus.measure(
                gpus, ALL_REDUCE, algorithm, nbytes // ITEM, launch, TUNE_SAMPLES, **settings
            ),
        )
        if row:
            emit(
                "tuning", {"algorithm": algorithm, "settings": settings, "median_ms": row["median_ms"], "bytes": nbytes}
            )
            found.append((row["median_ms"], len(found), settings))
    return min(found)[2] if found else {}


def timed(
    emit: Emit,
    clock: Clock,
    gpus: Gpus,
    kind: str,
    algorithm: str,
    nbytes: int,
    launch: str,
    settings: Mapping[str, int] | None = None,
) -> None:
    """Emits the row of a collective; with the kernel's own settings if these fail."""
    for chosen in (settings, {}) if settings else ({},):
        row = attempt(
            emit,
            f"{algorithm} {kind}, {nbytes} bytes, {launch}, {dict(chosen)}",
            clock,
            lambda chosen=chosen: collective_gpus.measure(
                gpus, kind, algorithm, nbytes // ITEM, launch, SAMPLES, **chosen
            ),
        )
        if row:
            emit("row", row)
            return


def small(emit: Emit, clock: Clock, ranks: int, largest: int) -> None:
    """One-shot and two-shot."""
    own(emit, clock, ranks, largest, (ONE_SHOT, TWO_SHOT))


def ring(emit: Emit, clock: Clock, ranks: int, largest: int) -> None:
    """The ring, and all through one GPU."""
    own(emit, clock, ranks, largest, (RING, NAIVE))


def tree(emit: Emit, clock: Clock, ranks: int, largest: int) -> None:
    """The tree."""
    own(emit, clock, ranks, largest, (TREE,))


def launches(emit: Emit, clock: Clock, ranks: int, largest: int) -> None:
    """One-shot at a small length, launched in every way that there is."""
    gpus = Gpus(ranks, min(largest, LAUNCHED) // ITEM)
    for launch in (CUPY, SINGLE, JOINT, LAUNCH):
        timed(emit, clock, gpus, ALL_REDUCE, ONE_SHOT, gpus.capacity * ITEM, launch)
    gpus.close()


def without_peers(ranks: int, capacity: int) -> Gpus:
    """Returns GPUs for NCCL, which finds its own way between them. They are kept until the process ends: a communicator's
    destructor may wait for a GPU that is lost."""
    _HELD.append(Gpus(ranks, capacity, devices.Devices(ranks, peers=False)))
    return _HELD[-1]


def nccl(emit: Emit, clock: Clock, ranks: int, largest: int) -> None:
    """NCCL's all-reduce at every size, its other kinds at some."""
    gpus = without_peers(ranks, largest // ITEM)
    for nbytes in (n for n in SIZES if n <= largest):
        timed(emit, clock, gpus, ALL_REDUCE, NCCL, nbytes, LAUNCH)
    for kind, nbytes in itertools.product(ALGORITHMS, OTHER_KINDS):
        if kind != ALL_REDUCE and nbytes <= largest:
            timed(emit, clock, gpus, kind, NCCL, nbytes, LAUNCH)


def nccl_graph(emit: Emit, clock: Clock, ranks: int, largest: int) -> None:
    """NCCL's all-reduce in graphs, as ours are timed at small sizes."""
    gpus = without_peers(ranks, min(largest, SMALL) // ITEM)
    for nbytes in (n for n in SIZES if n <= gpus.capacity * ITEM):
        row = attempt(
            emit, f"nccl in a graph, {nbytes} bytes", clock, lambda nbytes=nbytes: _nccl_graph_row(gpus, nbytes // ITEM)
        )
        if row:
            emit("row", row)


def _nccl_graph_row(gpus: Gpus, elements: int) -> dict[str, Any]:
    """Returns the row of NCCL's all-reduce, verified, then timed in a graph of many runs on each GPU."""
    error = collective_gpus.verify(gpus, ALL_REDUCE, NCCL, elements)
    call = gpus.nccl.call(ALL_REDUCE, gpus.arrays("in", elements), gpus.arrays(OUT, elements))

    def queue(rank: int) -> None:
        with gpus.devices.on(rank):
            gpus.nccl.one(call, rank)

    runs = collective_gpus.GRAPH_RUNS
    found = collective_gpus.samples(gpus, gpus.devices.graphs(queue, runs), runs, SAMPLES)
    return collective_gpus.row(ALL_REDUCE, NCCL, gpus.ranks, elements, GRAPH, found) | {"error": error}


RUN: Mapping[str, Callable[[Emit, Clock, int, int], None]] = {
    "links": links,
    "checks": checks,
    "small": small,
    "ring": ring,
    "tree": tree,
    "launches": launches,
    "nccl": nccl,
    "nccl-graph": nccl_graph,
}


# -- the machine ---------------------------------------------------------------------------------
def machine(ranks: int) -> dict[str, Any]:
    """Returns names and links of the GPUs, and versions. What a tool does not report is its error's text."""
    cupy = devices.load()
    found: dict[str, Any] = {"ranks": ranks}
    for name, report in {
        "devices": lambda: [_name(cupy, rank) for rank in range(ranks)],
        "nccl": devices.nccl_version,
        "cupy": lambda: cupy.__version__,
        "cuda": lambda: cupy.cuda.runtime.runtimeGetVersion(),
        "driver": lambda: _output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader").split()[0],
        "topology": lambda: _output("nvidia-smi", "topo", "-m"),
        "links": lambda: re.sub(r" \(UUID[^)]*\)", "", _output("nvidia-smi", "nvlink", "--status", "-i", "0")),
    }.items():
        try:
            found[name] = report()
        except Exception as error:  # each line stands alone
            found[name] = f"{type(error).__name__}: {error}"
    return found


def _name(cupy: Any, rank: int) -> str:
    name = cupy.cuda.runtime.getDeviceProperties(rank)["name"]
    return name.decode() if isinstance(name, bytes) else name


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout


# -- all parts -----------------------------------------------------------------------------------
def run_part(name: str, path: Path, ranks: int, seconds: float, largest: int) -> None:
    """Runs a part in this process. Each line of the file is a pair of what it is and the thing itself."""
    with path.open("a", encoding="utf-8") as file:

        def emit(what: str, content: Mapping[str, Any]) -> None:
            file.write(json.dumps([what, content]) + "\n")
            file.flush()

        clock, began = Clock(seconds - SAFETY_S), time.monotonic()
        try:
            RUN[name](emit, clock, ranks, largest)
        except Exception as error:
            emit("error", {"what": f"part {name}", "error": f"{type(error).__name__}: {error}"})
        emit("part", {"name": name, "seconds": round(time.monotonic() - began, 2)})


def run_parts(names: Sequence[str], ranks: int, seconds: float, largest: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields what each part emits. A part that does not end by its deadline is killed."""
    clock = Clock(seconds)
    for name in names:
        limit = min(DEADLINES[name], clock.left())
        if limit < SAFETY_S:
            yield "error", {"what": f"part {name}", "error": "no time left"}
            continue
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "lines"
            path.touch()
            settings = f"--ranks={ranks}", f"--seconds={limit}", f"--largest={largest}"
            command = [sys.executable, "-m", __spec__.name, str(path), "--child", "--part", name, *settings]
            process = subprocess.Popen(command)
            try:
                code = process.wait(limit)
            except subprocess.TimeoutExpired:
                process.kill()
                with contextlib.suppress(subprocess.TimeoutExpired):  # a process stuck in the driver ends later
                    process.wait(KILL_S)
                code = f"killed after {limit:.0f} s"
            yield from (tuple(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines())
            if code:
                yield "error", {"what": f"part {name}", "error": f"its process ended with {code}"}
            print(f"{name}: {code or 'done'}, {clock.left():.0f} s left", flush=True)


def collected(lines: Iterator[tuple[str, dict[str, Any]]], at: str) -> dict[str, Any]:
    """Returns a run as kernels/records/collectives.json holds it: its machine, and lists of what was emitted."""
    found: dict[str, Any] = {"machine": {}, "rows": [], "tuning": [], "checks": [], "errors": [], "parts": []}
    names = {"row": "rows", "tuning": "tuning", "check": "checks", "error": "errors", "part": "parts"}
    for what, content in lines:
        if what == "machine":
            found["machine"] = content
        else:
            found[names[what]].append(content)
    devices_ = found["machine"].get("devices")
    device = devices_[0] if isinstance(devices_, list) and devices_ else "unknown"
    same = {"device": device, "date": datetime.now(UTC).date().isoformat(), "commit": at}
    return found | same


def merged(runs: Sequence[Mapping[str, Any]], new: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Returns the runs with the new one in the place of an older one of the same device and number of GPUs."""

    def key(run: Mapping[str, Any]) -> tuple:
        return run["device"], run["machine"].get("ranks")

    return [*(run for run in runs if key(run) != key(new)), new]


def summary(run: Mapping[str, Any]) -> Iterator[str]:
    """Yields a line for each row, each tuned setting and each error."""
    for row in run["rows"]:
        yield (
            f"{row['kind']:14} {row['algorithm']:9} {row['launch']:7} {row['bytes']:>12,} B "
            f"{1e3 * row['median_ms']:>10.2f} us {row['bus_bytes_per_s'] / 1e9:>8.2f} GB/s"
        )
    for tuning in run["tuning"]:
        yield f"{tuning['algorithm']:9} {tuning['settings']} {1e3 * tuning['median_ms']:.2f} us"
    yield f"{len(run['checks'])} checks passed, {len(run['errors'])} errors"
    for error in run["errors"]:
        yield f"ERROR {error['what']}: {error['error']}"


def goals(run: Mapping[str, Any]) -> Iterator[str]:
    """Yields how our all-reduce compares with NCCL's launched in the same way, and how far the cost model is off: of the
    faster way to launch at each length, as the lesson uses it, and of launches one by one."""
    times = {
        (row["algorithm"], row["launch"], row["bytes"]): row["median_ms"]
        for row in run["rows"]
        if row["kind"] == ALL_REDUCE
    }
    for (name, launch, nbytes), ms in times.items():
        theirs = times.get((NCCL, launch, nbytes))
        if name != NCCL and theirs and (nbytes >= 64 * MIB or nbytes == 64 * KIB):
            yield f"{name}, {nbytes:,} bytes, {launch}: {theirs / ms:.2f} of NCCL's speed"
    ranks = next((row["ranks"] for row in run["rows"] if row["kind"] == ALL_REDUCE), 0)
    for name in dict.fromkeys(name for name, _, _ in times):
        launched = {nbytes: ms for (n, how, nbytes), ms in times.items() if (n, how) == (name, LAUNCH)}
        best = {n: min(ms, times.get((name, GRAPH, n), ms)) for n, ms in launched.items()}
        yield from _fitted(name, ranks, best, "")
        yield from _fitted(name, ranks, launched, " launched one by one")


def _fitted(name: str, ranks: int, ms: Mapping[int, float], how: str) -> Iterator[str]:
    """Yields how far a fit to these times is off at most."""
    points = [Point(recorded.traffic(ALL_REDUCE, name, ranks, n), t / 1e3) for n, t in ms.items()]
    if len(points) >= recorded.MIN_POINTS:
        fit = cost.fit(points)
        yield f"model of {name}{how}: at most {100 * fit.worst:.1f} % off at {len(points)} lengths ({fit.link})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--ranks", type=int, default=0, help="GPUs, all by default")
    parser.add_argument("--seconds", type=float, default=85.0)
    parser.add_argument("--largest", type=int, default=GIB, help="bytes of the longest array")
    parser.add_argument("--part", choices=RUN, action="append")
    parser.add_argument("--commit", default="")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    ranks = options.ranks or devices.count()
    if options.child:
        run_part(options.part[0], options.out, ranks, options.seconds, options.largest)
        sys.stdout.flush()
        os._exit(0)  # a destructor that waits for a lost GPU would take the time of the other parts
    lines = run_parts(options.part or PARTS, ranks, options.seconds, options.largest)
    run = collected(lines, options.commit or commit())
    older = json.loads(options.out.read_text(encoding="utf-8")) if options.out.exists() else []
    options.out.write_text(json.dumps(merged(older, run), indent=0) + "\n", encoding="utf-8")
    print("\n".join([*summary(run), *goals(run)]))


if __name__ == "__main__":
    main()
