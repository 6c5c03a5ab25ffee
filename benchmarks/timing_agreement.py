"""Do our cold times agree with Triton's do_bench? Run on a GPU: python benchmarks/timing_agreement.py

Both flush the L2 before each sample and time with CUDA events; the medians should lie within 3 %.
"""

from __future__ import annotations

import json
import sys

import numpy as np


def main() -> None:
    import cupy
    import torch
    from triton.testing import do_bench

    from kernels.engines import cuda
    from kernels.engines.timing import Budget
    from kernels.ladders import conv
    from kernels.presets import CONV_PRESETS
    from kernels.program import INPUT
    from kernels.runner import seeded_inputs

    torch.zeros(1, device="cuda")
    stream = torch.cuda.ExternalStream(cuda._stream().ptr)
    rows = []
    for key in (
        "toy",
        "resnet50-res5-3x3-n1",
        "resnet50-res2-3x3-n1",
        "resnet50-res3-3x3-n32",
        "vgg-conv1_2",
    ):
        shape = CONV_PRESETS[key].shape
        for rung in conv.LADDER.rungs:
            program = rung.build(shape, rung.default_tiles)
            session = cuda.open(program, seeded_inputs(program.of_role(INPUT)))
            session.verify_run()
            ours = float(np.median(cuda.sample([session], "cold", Budget())[0].samples_ms))
            with torch.cuda.stream(stream), cuda._stream():
                theirs = do_bench(session.run, warmup=100, rep=500, return_mode="median")
            session.close()
            rows.append({"preset": key, "rung": rung.name, "ours_ms": ours, "do_bench_ms": theirs})
            print(f"{key:24} {rung.name:20} {ours:9.4f} {theirs:9.4f} ms  {100 * (ours / theirs - 1):+.1f} %")
    print(f"device {cuda.device_name()}, floor {cuda.floor_ms() * 1e3:.2f} us, CuPy {cupy.__version__}")
    if len(sys.argv) > 1:
        with open(sys.argv[1], "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
