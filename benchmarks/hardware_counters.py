"""Comparison of the emulator's memory counters with Nsight Compute's.

On a machine with a GPU and ncu, every case (hardware_cases.py) is launched once under the profiler and recorded. Cases
that copy by cp.async or multiply on tensor cores run once more, for metrics that need patched machine code:

    PYTHONPATH=. python benchmarks/hardware_counters.py measure counters.json

This also writes counters.csv and counters.patched.csv (the output of ncu) and counters.sass.txt (memory instructions
of the machine code). Names may follow, with * for anything, so that only those cases are measured:

    PYTHONPATH=. python benchmarks/hardware_counters.py measure counters.json "wmma-*" "shared-add-*"

On any machine the same cases run in the emulator and are printed with the measured numbers:

    PYTHONPATH=. python benchmarks/hardware_counters.py compare counters.json
"""

from __future__ import annotations

import datetime
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks import hardware_sass as sass
from benchmarks import report
from benchmarks.hardware_case import Case, poisoned
from benchmarks.hardware_cases import cases, named
from kernels import sources
from kernels.engines.emulator import ncu
from kernels.engines.emulator.ncu import number
from kernels.engines.emulator.nsight import COMPARED, COPIES, EQUAL, INSTRUCTIONS, MATCHES

# -- compared counters ----------------------------------------------------------------------------------
# Loads of matrices from shared memory, printed with those of EQUAL.
MATRICES = tuple(
    f"sm__sass_l1tex_data_{name}_mem_shared_op_ldsm.sum" for name in ("pipe_lsu_wavefronts", "bank_conflicts_pipe_lsu")
)
LANES = "smsp__thread_inst_executed_per_inst_executed.ratio"
REQUIRED = (*EQUAL.values(), INSTRUCTIONS, LANES, "sm__cycles_elapsed.max", "gpu__time_duration.sum")
# Recorded if the profiler knows them.
WANTED = (
    *(f"l1tex__t_{name}_pipe_lsu_mem_global_op_{op}.sum" for name in ("requests", "sectors") for op in ("atom", "red")),
    *(
        f"l1tex__data_{n}_mem_shared_op_{op}.sum"
        for n in ("pipe_lsu_wavefronts", "bank_conflicts_pipe_lsu")
        for op in ("atom", "ldgsts")
    ),
    "smsp__inst_executed_op_ldgsts.sum",
    "smsp__inst_executed_op_shared_ld.sum",
    "smsp__inst_executed_op_shared_st.sum",
    "smsp__inst_executed_op_shared_atom.sum",
    "smsp__inst_executed_op_shared_atom_dot_alu.sum",
    "smsp__inst_executed_op_shared_atom_dot_cas.sum",
    "smsp__inst_executed_op_global_ld.sum",
    "smsp__inst_executed_op_global_st.sum",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
)
PATCHED = (*(m for parts in COPIES.values() for m in parts), *MATRICES)


def hardware(metrics: Mapping[str, float], counter: str) -> float:
    """Returns the hardware's number for one of COMPARED."""
    if counter in COPIES:
        return sum(metrics.get(m, 0) for m in COPIES[counter])
    return metrics[EQUAL[counter]]


def is_patched(case: Case) -> bool:
    """Returns whether the metrics of PATCHED apply to a case."""
    text = sources.translation_unit(case.launch.source)
    return any(word in text for word in ("cp.async", "ldmatrix", "wmma"))


# -- in the emulator ----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Emulated:
    """Counters of one case, its outputs, and the data races, if they were checked."""

    total: dict[str, int]
    outputs: dict[str, np.ndarray]
    races: tuple[str, ...] = ()

    def counted(self, counter: str) -> int:
        """Returns the emulator's number for one of COMPARED: stores without the copies that it includes in them."""
        return int(MATCHES[counter].counted(counter, self.total))

    @property
    def lanes(self) -> float:
        return self.total["thread_instructions"] / self.total["warp_instructions"]


def emulate(case: Case, races: bool = False) -> Emulated:
    from kernels.engines.emulator import precompiled
    from kernels.engines.emulator.launch import Options, device_memory, launch

    step, arrays = case.launch, case.arrays()
    ptx = precompiled.ptx(step.source, step.defines)
    memory = device_memory(arrays, [name for name in arrays if name not in case.outputs or not poisoned(arrays[name])])
    run = launch(
        ptx, step.entry, step.grid, step.block, step.args, memory, step.shared, Options(races=races), step.source
    )
    return Emulated(run.counters.total, {name: memory.array(name) for name in case.outputs}, run.races)


# -- on the GPU ---------------------------------------------------------------------------------------------
def launch_on_gpu(case: Case) -> dict[str, np.ndarray]:
    """Launch once and return the outputs. Only copies and the kernel itself run."""
    import cupy

    from kernels.engines.cuda import compile_kernel
    from kernels.engines.cuda.session import argument, bits, stored
    from kernels.model.rules import MAX_STATIC_SHARED

    step = case.launch
    kernel = compile_kernel(step.source, step.entry, step.defines)
    on_gpu = {}
    for name, array in case.arrays().items():
        on_gpu[name] = cupy.empty(array.shape, stored(array.dtype))
        on_gpu[name].set(bits(array))
        if on_gpu[name].data.ptr % 256:
            raise RuntimeError(f"{name} starts at {on_gpu[name].data.ptr:#x}, not at a multiple of 256")
    args = tuple(argument(a, on_gpu) for a in step.args)
    if step.shared > MAX_STATIC_SHARED:  # above this limit a kernel needs an attribute
        kernel.max_dynamic_shared_size_bytes = step.shared
    kernel(step.grid, step.block, args, shared_mem=step.shared)
    cupy.cuda.get_current_stream().synchronize()
    return {name: on_gpu[name].get() for name in case.outputs}


def measure(out: Path, *patterns: str) -> int:
    """Verify each case with a matching name, profile the correct ones, write the fixture, and return the exit status."""
    import cupy

    elapsed, ncu = report.stopwatch(), sass.tool("ncu")
    if ncu is None:
        print("ncu (Nsight Compute) is not on the PATH")
        return 2
    chosen = named(*patterns).values()
    listings = sass.compile_all(chosen)
    out.with_suffix(".sass.txt").write_text(listings, encoding="utf-8")
    print(f"compiled, {elapsed():.0f} s", flush=True)
    correct = []
    for case in chosen:
        try:
            problem = case.wrong(launch_on_gpu(case))
        except Exception as e:  # printed; the others are still measured
            problem = f"{type(e).__name__}: {e}"
        print(f"{case.name}: {problem or 'output as in NumPy'}")
        if not problem:
            correct.append(case)
    print(f"verified, {elapsed():.0f} s", flush=True)
    entries = match(correct, _rows(ncu, REQUIRED, WANTED, correct, out.with_suffix(".csv")))
    print(f"profiled, {elapsed():.0f} s", flush=True)
    by_name = {entry["case"]: entry for entry in entries}
    patched = [case for case in correct if is_patched(case)]
    for entry in _patched(ncu, patched, out.with_suffix(".patched.csv")):
        by_name[entry["case"]]["metrics"] |= entry["metrics"]
    fixture = _machine_fields(cupy, ncu) | {"cases": entries}
    report.write_json(out, fixture)
    print(f"{len(entries)} of {len(chosen)} cases are in {out}, {elapsed():.0f} s")
    return 0 if len(entries) == len(chosen) else 1


def _machine_fields(cupy, ncu: str) -> dict:
    properties = cupy.cuda.runtime.getDeviceProperties(0)
    version = subprocess.run([ncu, "--version"], capture_output=True, text=True, check=False).stdout
    return {
        "device": properties["name"].decode(),
        "compute_capability": f"{properties['major']}.{properties['minor']}",
        "driver": _first_line("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"),
        "ncu": (re.findall(r"Version\s+(\S+)", version) or [version.strip()])[0],
        "cuda": _version(cupy.cuda.runtime.runtimeGetVersion()),
        "nvrtc": ".".join(map(str, cupy.cuda.nvrtc.getVersion())),
        "cupy": cupy.__version__,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


def _rows(ncu: str, required: Sequence[str], wanted: Sequence[str], chosen: Sequence[Case], csv_: Path) -> list:
    """Returns ncu's rows of these cases. The first case alone shows which of the metrics ncu knows."""
    metrics = (*required, *wanted)
    while len(metrics) > len(required):
        text = _profile(ncu, metrics, chosen[:1])
        if len(rows := parse_ncu(text)) == 1 and all(rows[0].get(m) is not None for m in required):
            break
        metrics = _without_unknown(metrics, required, text)
    text = _profile(ncu, metrics, chosen)
    csv_.write_text(text, encoding="utf-8")
    return parse_ncu(text)


def _patched(ncu: str, chosen: Sequence[Case], csv_: Path) -> list[dict]:
    if not chosen:
        return []
    try:
        return match(chosen, _rows(ncu, (), PATCHED, chosen, csv_), PATCHED)
    except ValueError as e:
        print(f"what takes patched machine code is left out: {e}; see {csv_}")
        return []


def _without_unknown(metrics: Sequence[str], required: Sequence[str], text: str) -> tuple[str, ...]:
    """Returns the metrics without those in ncu's complaints; if it names none of them, the required ones."""
    complaints = "\n".join(line for line in text.splitlines() if line.startswith(("==ERROR==", "==WARNING==")))
    print(complaints)
    known = tuple(m for m in metrics if m in required or m.rpartition(".")[0] not in complaints)
    return known if len(known) < len(metrics) else tuple(required)


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def _first_line(*command: str) -> str | None:
    try:
        output = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stdout
    except OSError:
        return None
    return output.strip().splitlines()[0] if output.strip() else None


def _profile(ncu: str, metrics: Sequence[str], chosen: Sequence[Case]) -> str:
    """Returns the output of ncu for these cases: this script runs again under it and launches each once, in order."""
    entries = "|".join(sorted({case.launch.entry for case in chosen}))
    root = str(Path(__file__).resolve().parents[1])
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    with tempfile.TemporaryDirectory() as folder:
        names, log = Path(folder) / "cases.json", Path(folder) / "ncu.csv"
        names.write_text(json.dumps([case.name for case in chosen]), encoding="utf-8")
        command = [
            ncu,
            "--clock-control",
            "none",
            "--target-processes",
            "all",
            "--kernel-name-base",
            "function",
            "--kernel-name",
            f"regex:^({entries})$",
            "--csv",
            "--page",
            "raw",
            "--print-units",
            "base",
            "--log-file",
            str(log),
            "--metrics",
            ",".join(metrics),
            sys.executable,
            str(Path(__file__).resolve()),
            "launch",
            str(names),
        ]
        completed = subprocess.run(
            command, capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": path, "LC_ALL": "C"}
        )
        if completed.returncode:
            print(f"ncu ended with {completed.returncode}\n{completed.stdout[-3000:]}\n{completed.stderr[-3000:]}")
        log_text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
        return f"{log_text}\n{completed.stdout}"


def launch_all(names: Path) -> int:
    """Launch each case once; this runs under ncu."""
    for name in json.loads(names.read_text(encoding="utf-8")):
        launch_on_gpu(cases()[name])
    return 0


# -- reading ncu ----------------------------------------------------------------------------------------------
def parse_ncu(text: str) -> list[dict]:
    """Returns the rows of `ncu --csv --page raw`, in the order of their ID: "Kernel Name", "Grid Size" and "Block Size"
    as text, the other columns as numbers. Other lines are skipped: ncu's "==PROF==" lines, the profiled program's
    output, the row of units."""
    rows = [
        {name: cell if name in (ncu.KERNEL, *ncu.SIZES) else number(cell) for name, cell in row.items()}
        for row in ncu.table(text)
        if row[ncu.ID].strip().isdigit()
    ]
    return sorted(rows, key=lambda row: row[ncu.ID])


def match(chosen: Sequence[Case], rows: Sequence[dict], metrics: Sequence[str] = (*REQUIRED, *WANTED)) -> list[dict]:
    """Returns the fixture's entry of each case. ValueError if the rows are not these launches in this order."""
    if len(rows) != len(chosen):
        raise ValueError(f"{len(chosen)} launches, but ncu tells of {len(rows)}")
    out = []
    for case, row in zip(chosen, rows, strict=True):
        step = case.launch
        kernel_name = row["Kernel Name"].partition("(")[0].split()[-1]
        if kernel_name != step.entry:
            raise ValueError(f"{case.name}: ncu tells of kernel {kernel_name}, not {step.entry}")
        for column, dim in (("Grid Size", step.grid), ("Block Size", step.block)):
            extents = tuple(map(int, re.findall(r"\d+", row.get(column, ""))))
            if extents and extents != tuple(dim):
                raise ValueError(f"{case.name}: {column} is {extents}, not {dim}")
        out.append(
            {
                "case": case.name,
                "kernel": step.entry,
                "source": step.source,
                "digest": case.digest,
                "defines": dict(step.defines),
                "shape": case.shape,
                "grid": list(step.grid),
                "block": list(step.block),
                "args": case.describe(),
                "metrics": {m: row[m] for m in metrics if row.get(m) is not None},
            }
        )
    return out


# -- side by side -----------------------------------------------------------------------------------------------
def compare(fixture: Path) -> int:
    """Print the numbers of hardware and emulator for each case. Returns 1 if a counter that must be equal is not."""
    measured = json.loads(fixture.read_text(encoding="utf-8"))
    print(f"{measured['device']}, driver {measured['driver']}, ncu {measured['ncu']}, {measured['date']}")
    print("hardware / emulator; one number where both are equal")
    compared = [compare_case(row) for row in measured["cases"]]
    equal, ratios = sum(is_equal for is_equal, _ in compared), [ratio for _, ratio in compared if ratio]
    print(f"\n{equal} of {len(compared)} cases equal")
    if ratios:
        print(f"PTX/SASS instructions {min(ratios):.2f} .. {max(ratios):.2f}")
    if missing := set(cases()) - {row["case"] for row in measured["cases"]}:
        print(f"not measured: {', '.join(sorted(missing))}")
    return int(equal < len(compared) or bool(missing))


def compare_case(row: Mapping) -> tuple[bool, float | None]:
    """Print the numbers of a case. Returns whether they are equal, and the ratio of PTX to SASS instructions."""
    case = cases().get(row["case"])
    if case is None or case.digest != row["digest"]:
        print(f"\n{row['case']}: measured on another text; measure again")
        return False, None
    emulated, metrics = emulate(case), row["metrics"]
    problem = case.wrong(emulated.outputs)
    pairs = {name: (hardware(metrics, name), emulated.counted(name)) for name in COMPARED}
    equal = not problem and all(a == b for a, b in pairs.values())
    print(f"\n{case.name}: {'equal' if equal else 'NOT EQUAL'} {problem}")
    texts = (f"{n} {a:,}" if a == b else f"{n} {a:,} / {b:,} !" for n, (a, b) in pairs.items())
    print("  " + "  ".join(texts))
    if not equal:
        print_copies(metrics)
    ratio = emulated.total["warp_instructions"] / metrics[INSTRUCTIONS]
    print(f"  PTX/SASS instructions {ratio:.2f}, lanes {metrics[LANES]:.1f} / {emulated.lanes:.1f}")
    return equal, ratio


def print_copies(metrics: Mapping[str, float]) -> None:
    """Print the hardware's numbers of asynchronous copies and of matrices loaded from shared memory."""
    for metric in (*WANTED, *PATCHED):
        if ("ldgsts" in metric or "ldsm" in metric) and metrics.get(metric):
            print(f"  {metric} {metrics[metric]:,}")


def main(arguments: Sequence[str]) -> int:
    modes = {"measure": measure, "compare": compare, "launch": launch_all}
    if len(arguments) < 2 or arguments[0] not in modes or (len(arguments) > 2 and arguments[0] != "measure"):
        print(__doc__)
        return 2
    mode, path, *patterns = arguments
    return modes[mode](Path(path), *patterns)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
