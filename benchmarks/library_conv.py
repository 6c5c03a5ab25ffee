"""The vendor's convolutions on a GPU: time, workspace and error of each algorithm of cuDNN, and of conv/fft.

    python3 benchmarks/library_conv.py --probe
    python3 benchmarks/library_conv.py --out OUT

The first only loads cuDNN and cuFFT, prints their versions and cuDNN's reports of each algorithm at one shape, and runs
one transform. If something is missing it prints what, and ends with status 2. The second does the same, then runs each
3x3 stage of ResNet-50 with 32 images and VGG's conv1_2: every algorithm's cold time, workspace and error against the
float64 reference, or that cuDNN does not support it; conv/fft whole and tiled likewise, with its steps and with the
workspace predicted, requested by cuFFT and measured. Prints a table, and writes all figures to OUT/library_conv.json.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks import measure, report
from benchmarks.measure import Candidate, Problem, Verified
from benchmarks.report import Column
from kernels.conv import common as conv_common
from kernels.conv import fft as conv_fft
from kernels.conv import ladder as conv_ladder
from kernels.conv import library as conv_library
from kernels.conv import reference
from kernels.conv.presets import CONV_PRESETS
from kernels.conv.shape import ConvShape
from kernels.engines import cuda
from kernels.engines.protocol import Timed
from kernels.libraries import cudnn as cudnn_module
from kernels.libraries import cufft
from kernels.machine.timing import Budget
from kernels.model.program import WORKSPACE, RuleError, UnsupportedError
from kernels.model.rung import Rung
from kernels.model.verify import relative_error

PRESETS = (*(f"resnet50-res{stage}-3x3-n32" for stage in (2, 3, 4, 5)), "vgg-conv1_2")
POOL_GRAIN = 512  # CuPy's pool allocates multiples of this
FIND_BYTES = 2**30  # workspace that cuDNN may use while it tries them all
BUDGET = Budget(samples=50, seconds=2.5, min_samples=5)
FFT = conv_fft.RUNGS[0]
BASE = "conv/cudnn-implicit-precomp-gemm"


def candidates() -> Iterator[Candidate]:
    for rung in conv_library.RUNGS:
        yield rung, {}
    for tile in FFT.tiles["FFT_TILE"]:
        for spectra in FFT.tiles["SPECTRA"]:
            yield FFT, {"FFT_TILE": tile, "SPECTRA": spectra}
    columns = conv_ladder.LADDER.rung("conv/im2col-cublas")
    yield columns, columns.default_tiles


# -- libraries on this machine -----------------------------------------------------------------------
def probe() -> None:
    """Print what the libraries report. RuleError or RuntimeError if one is missing or does not work."""
    gpu = cuda.status()
    if not gpu.ready:
        raise RuleError(gpu.text)
    print(f"{gpu.text}; cuDNN at {cudnn_module.library_path()}")
    cudnn = cudnn_module.load()
    print(f"cuDNN {cudnn.version}, cuFFT {cufft.version()}", flush=True)
    s = CONV_PRESETS[PRESETS[0]].shape
    convolution = cudnn_module.Convolution(cudnn, conv_common.struct(s), s.maps)
    print(f"\n{s}, asked one by one (FMA math):")
    for algorithm in cudnn_module.ALGORITHMS:
        try:
            print(f"  {algorithm:24} workspace {convolution.workspace_bytes(algorithm):,} bytes")
        except UnsupportedError as e:
            print(f"  {e}")
    print_ranking(s, convolution)
    print(f"transform of 2 x 12 x 10: off by {transform():.1e} from NumPy's", flush=True)


def print_ranking(s: ConvShape, convolution: cudnn_module.Convolution) -> None:
    """Print cuDNN's order of its algorithms at a shape: by its heuristics, and by running them."""
    import cupy

    x, w, y = (cupy.empty(n, "f4") for n in (s.x_shape, s.w_shape, s.y_shape))
    for array in (x, w):
        array.data.memset(0, array.nbytes)
    scratch = cupy.cuda.alloc(FIND_BYTES)
    queries = {
        "by its rules of thumb": convolution.ranked,
        "found by running": lambda: convolution.measured(x.data.ptr, w.data.ptr, y.data.ptr, scratch.ptr, FIND_BYTES),
    }
    for title, query in queries.items():
        print(f"{title}:")
        try:
            reports = query()
        except RuntimeError as e:  # the rungs do not need it
            print(f"  {e}")
            continue
        for t in reports:
            print(f"  {t.algorithm:24} {t.math:12} {t.ms:8.4f} ms {t.nbytes:14,} bytes  {t.status}")


def transform() -> float:
    """Returns the relative error of a forward and inverse transform of cuFFT against NumPy's float64. RuntimeError if it
    is wrong."""
    import cupy

    values = np.random.default_rng(0).standard_normal((2, 12, 10)).astype("f4")
    source, spectra, back = (cupy.empty(n, "f4") for n in ((2, 12, 10), (2, 12, 6, 2), (2, 12, 10)))
    source.set(values)
    cufft.forward(source, spectra)()
    transformed = spectra.get().view(np.complex64)[..., 0]
    cufft.inverse(spectra, back)()
    error = max(
        relative_error(transformed, np.fft.rfft2(values.astype("f8"))),
        relative_error(back.get() / 120, values.astype("f8")),
    )
    if not error < 1e-6:
        raise RuntimeError(f"cuFFT's transform is off by {error:.1e}")
    return error


# -- measurement -------------------------------------------------------------------------------------
def measured(s: ConvShape) -> list[dict[str, Any]]:
    """Returns a row for each candidate: figures, or why there are none ("said")."""
    problem = measure.problem(s, conv_common.buffers(s), reference.conv)
    rows, verified = [], []
    for rung, tiles in candidates():
        row, candidate = open_candidate(problem, rung, tiles)
        rows.append({"rung": rung.name, "shape": s.params(), "tiles": tiles, **row})
        if candidate:
            verified.append((rows[-1], candidate))
    timed = measure.time_together([v for _, v in verified], "cold", BUDGET, lambda v, timed: times(s, timed))
    for (row, _), figures in zip(verified, timed, strict=True):
        row |= figures
    measure.close(v for _, v in verified)
    return rows


def open_candidate(problem: Problem, rung: Rung, tiles: dict[str, int]) -> tuple[dict, Verified | None]:
    """Returns (error and workspace, or why the rung does not run; the candidate if its output is correct)."""
    s = problem.shape
    try:
        session, out = measure.opened(rung.build(s, rung.check(s, tiles)), problem.inputs)
    except measure.ERRORS as e:
        return {"supported": not isinstance(e, UnsupportedError), "said": str(e)}, None
    bound = problem.scale_of(rung, tiles)
    error = relative_error(out, problem.ref, bound, rung.tolerance)
    row = {
        "error": error,
        "of_scale": float((np.abs(out - problem.ref) / np.maximum(bound, 1e-30)).max() / rung.tolerance),
        **workspace(s, rung, session),
    }
    if problem.correct(rung, tiles, out, error):
        return row, Verified(rung, tiles, session, error)
    session.close()
    return row | {"said": f"WRONG: relative L2 error {error:.1e}"}, None


def times(s: ConvShape, timed: Timed) -> dict[str, Any]:
    figures = measure.figures(timed)
    return figures | {"tflops": s.flops / figures["median_ms"] / 1e9, "parts_ms": dict(timed.parts_ms)}


def workspace(s: ConvShape, rung: Rung, session: cuda.Session) -> dict[str, int]:
    """Returns bytes of workspace: measured, those of the program's own buffers, and those the library requested, in the
    pool's granularity."""
    program, requested = session.program, []
    if rung is FFT:
        shapes = {b.name: b.shape for b in program.of_role(WORKSPACE)}
        requested = [cufft.workspace_bytes(shapes[f"{n}_padded"], n == "y") for n in "xwy"]
    elif rung in conv_library.RUNGS:
        algorithm = program.steps[0].routine.removeprefix("cudnn_").upper()
        convolution = cudnn_module.Convolution(cudnn_module.load(), conv_common.struct(s), s.maps)
        requested = [convolution.workspace_bytes(algorithm)]
    return {
        "workspace_bytes": session.memory.workspace,
        "predicted_bytes": sum(-(-b.nbytes // POOL_GRAIN) * POOL_GRAIN for b in program.of_role(WORKSPACE)),
        "library_bytes": sum(-(-n // POOL_GRAIN) * POOL_GRAIN for n in requested),
    }


def table(rows: Sequence[report.Row]) -> str:
    base = report.fastest_ms(rows, (BASE,))
    columns = (
        report.RUNG,
        report.TILES,
        report.MEDIAN_MS,
        report.SPREAD,
        report.SAMPLES,
        report.TFLOPS,
        Column("of precomp", ".1%", lambda row: report.speed_relative_to(base, row)),
        report.ERROR,
        Column("of tol", ".2f", "of_scale"),
        Column("workspace", ",", "workspace_bytes"),
        Column("predicted", ",", "predicted_bytes"),
        Column("library", ",", "library_bytes"),
        Column("", "", note),
    )
    return report.table(rows, columns, steps_text)


def note(row: report.Row) -> str:
    """Returns why a row has no times, or that its workspace is not as predicted."""
    if "said" in row:
        return row["said"]
    equal = row["workspace_bytes"] == row["predicted_bytes"] + row["library_bytes"]
    return "" if equal else "workspace is not predicted + library"


def steps_text(row: report.Row) -> str:
    """Returns the time of each step of conv/fft."""
    if row["rung"] != FFT.name or "parts_ms" not in row:
        return ""
    steps = "  ".join(f"{name} {ms * 1e3:.1f}" for name, ms in row["parts_ms"].items())
    return f"{'':58}steps in us: {steps}"


def time_presets(out: Path, elapsed: Callable[[], float]) -> None:
    """Time the candidates at each preset, print a table of each, and write the rows so far to the file."""
    results = {"device": cuda.device_name(), "conditions": cuda.conditions(), "rows": []}
    for key in PRESETS:
        s = CONV_PRESETS[key].shape
        rows = measured(s)
        results["rows"] += rows
        report.write_json(out / "library_conv.json", results)
        print(f"\n{key}: {s}, {elapsed():.0f} s so far\n{table(rows)}", flush=True)


def main() -> int:
    options = report.parser(__doc__)
    options.add_argument("--probe", action="store_true", help="only say what is there")
    options.add_argument("--out", type=Path, help="a folder")
    args, elapsed = options.parse_args(), report.stopwatch()
    if not (args.probe or args.out):
        options.error("--probe or --out is needed")
    try:
        probe()
    except (RuleError, RuntimeError) as e:
        print(f"the probe failed: {type(e).__name__}: {e}")
        return 2
    print(f"probed, {elapsed():.0f} s", flush=True)
    if not args.probe:
        args.out.mkdir(parents=True, exist_ok=True)
        time_presets(args.out, elapsed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
