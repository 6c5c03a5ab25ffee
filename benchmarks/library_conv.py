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

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from kernels.conv import common as conv_common
from kernels.conv import fft as conv_fft
from kernels.conv import ladder as conv_ladder
from kernels.conv import library as conv_library
from kernels.conv import reference
from kernels.conv.presets import CONV_PRESETS
from kernels.conv.shape import ConvShape
from kernels.engines import cuda
from kernels.libraries import cudnn as cudnn_module
from kernels.libraries import cufft
from kernels.machine.timing import Budget
from kernels.model.program import INPUT, WORKSPACE, Program, RuleError, UnsupportedError
from kernels.model.rung import Rung
from kernels.model.verify import agrees, relative_error
from kernels.runner import seeded_inputs

PRESETS = (*(f"resnet50-res{stage}-3x3-n32" for stage in (2, 3, 4, 5)), "vgg-conv1_2")
POOL_GRAIN = 512  # CuPy's pool allocates multiples of this
FIND_BYTES = 2**30  # workspace that cuDNN may use while it tries them all
BUDGET = Budget(samples=50, seconds=2.5, min_samples=5)
FFT = conv_fft.RUNGS[0]


def candidates() -> Iterator[tuple[Rung, dict[str, int]]]:
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
    import cupy

    print(f"{gpu.text}; cuDNN at {cudnn_module.library_path()}")
    cudnn = cudnn_module.load()
    print(f"cuDNN {cudnn.version}, cuFFT {cufft.version()}", flush=True)
    s = CONV_PRESETS[PRESETS[0]].shape
    x, w, y = (cupy.empty(n, "f4") for n in (s.x_shape, s.w_shape, s.y_shape))
    for array in (x, w):
        array.data.memset(0, array.nbytes)
    convolution = cudnn_module.Convolution(cudnn, conv_common.struct(s), s.maps)
    print(f"\n{s}, asked one by one (FMA math):")
    for algorithm in cudnn_module.ALGORITHMS:
        try:
            print(f"  {algorithm:24} workspace {convolution.workspace_bytes(algorithm):,} bytes")
        except UnsupportedError as e:
            print(f"  {e}")
    scratch = cupy.cuda.alloc(FIND_BYTES)
    queries = {
        "by its rules of thumb": convolution.ranked,
        "found by running": lambda: convolution.measured(
            x.data.ptr, w.data.ptr, y.data.ptr, scratch.ptr, FIND_BYTES
        ),
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
    print(f"transform of 2 x 12 x 10: off by {transform():.1e} from NumPy's", flush=True)


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
    inputs = seeded_inputs([b for b in conv_common.buffers(s) if b.role == INPUT])
    ref, scale = reference.conv(s, **inputs)
    rows, sessions = [], []
    for rung, tiles in candidates():
        row = {"rung": rung.name, "shape": s.params(), "tiles": tiles}
        rows.append(row)
        session = None
        try:
            program = rung.build(s, rung.check(s, tiles))
            session = cuda.open(program, inputs)
            out = session.verify_run()
        except (RuleError, RuntimeError, MemoryError) as e:
            row |= {"supported": not isinstance(e, UnsupportedError), "said": str(e)}
            if session:
                session.close()
            continue
        bound = rung.scale(s, tiles, inputs) if rung.scale else scale
        row |= {
            "error": relative_error(out, ref),
            "of_scale": float((np.abs(out - ref) / np.maximum(bound, 1e-30)).max() / rung.tolerance),
            **workspace(s, rung, tiles, program, session),
        }
        if agrees(out, ref, bound, rung.tolerance):
            sessions.append((row, session))
        else:
            row["said"] = f"WRONG: relative L2 error {row['error']:.1e}"
            session.close()
    timed = cuda.sample([session for _, session in sessions], "cold", BUDGET)
    for (row, session), t in zip(sessions, timed, strict=True):
        p20, median, p80 = np.quantile(t.samples_ms, (0.2, 0.5, 0.8)).tolist()
        row |= {
            "median_ms": median, "p20_ms": p20, "p80_ms": p80, "n": len(t.samples_ms),
            "tflops": s.flops / median / 1e9, "parts_ms": dict(t.parts_ms),
        }  # fmt: skip
        session.close()
    return rows


def workspace(s: ConvShape, rung: Rung, tiles: dict, program: Program, session) -> dict[str, int]:
    """Returns bytes of workspace: measured, those of the program's own buffers, and those the library requested, in the
    pool's granularity."""
    requested = []
    if rung is FFT:
        shapes = {b.name: b.shape for b in program.of_role(WORKSPACE)}
        requested = [cufft.workspace_bytes(shapes[f"{n}_padded"], n == "y") for n in "xwy"]
    elif rung in conv_library.RUNGS:
        algorithm = program.steps[0].routine.removeprefix("cudnn_").upper()
        convolution = cudnn_module.Convolution(cudnn_module.load(), conv_common.struct(s), s.maps)
        requested = [convolution.workspace_bytes(algorithm)]
    return {
        "workspace_bytes": session.bytes["workspace"],
        "predicted_bytes": sum(-(-b.nbytes // POOL_GRAIN) * POOL_GRAIN for b in program.of_role(WORKSPACE)),
        "library_bytes": sum(-(-n // POOL_GRAIN) * POOL_GRAIN for n in requested),
    }


def table(rows: Sequence[dict]) -> str:
    base = next((r.get("median_ms") for r in rows if r["rung"] == "conv/cudnn-implicit-precomp-gemm"), None)
    lines = [
        f"{'':32} {'tiles':24} {'ms':>8} {'spread':>7} {'n':>3} {'TFLOP/s':>8} {'of precomp':>10} {'error':>8} "
        f"{'of tol':>6} {'workspace':>15} {'predicted':>15} {'library':>15}"
    ]
    for r in rows:
        head = f"{r['rung']:32} {' '.join(f'{n}={v}' for n, v in r['tiles'].items()):24}"
        if "median_ms" not in r:
            lines.append(f"{head} {r['said']}")
            continue
        share = f"{base / r['median_ms']:10.1%}" if base else ""
        spread = (r["p80_ms"] - r["p20_ms"]) / r["median_ms"]
        equal = r["workspace_bytes"] == r["predicted_bytes"] + r["library_bytes"]
        lines.append(
            f"{head} {r['median_ms']:8.4f} {spread:7.1%} {r['n']:3} {r['tflops']:8.2f} {share:>10} {r['error']:8.1e} "
            f"{r['of_scale']:6.2f} {r['workspace_bytes']:15,} {r['predicted_bytes']:15,} {r['library_bytes']:15,}"
            + ("" if equal else "  workspace is not predicted + library")
        )
        if r["rung"] == FFT.name:
            steps = "  ".join(f"{name} {ms * 1e3:.1f}" for name, ms in r["parts_ms"].items())
            lines.append(f"{'':58}steps in us: {steps}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--probe", action="store_true", help="only say what is there")
    parser.add_argument("--out", type=Path, help="a folder")
    args = parser.parse_args()
    if not (args.probe or args.out):
        parser.error("--probe or --out is needed")
    start = time.perf_counter()
    try:
        probe()
    except (RuleError, RuntimeError) as e:
        print(f"the probe failed: {type(e).__name__}: {e}")
        return 2
    print(f"probed, {time.perf_counter() - start:.0f} s", flush=True)
    if args.probe:
        return 0
    args.out.mkdir(parents=True, exist_ok=True)
    report = {"device": cuda.device_name(), "conditions": cuda.conditions(), "rows": []}
    for key in PRESETS:
        s = CONV_PRESETS[key].shape
        rows = measured(s)
        report["rows"] += rows
        (args.out / "library_conv.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
        print(f"\n{key}: {s}, {time.perf_counter() - start:.0f} s so far\n{table(rows)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
