"""A child that does what the request's first rung says: "sleep 0.5", "await FILE", "hang", "die", "cuda cudaErrorIllegalAddress" ...

Its rows say which process answered.
"""

from __future__ import annotations

import os
import signal
import time

import numpy as np

from kernels.jobs.child import main


def stand_in(module: str, name: str, base: type = Exception) -> type:
    """A class as CuPy's own, which cannot be raised without a GPU."""
    return type(name, (base,), {"__module__": module})


RAISED = {
    "runtime": stand_in("cupy_backends.cuda.api.runtime", "CUDARuntimeError", RuntimeError),
    "driver": stand_in("cupy_backends.cuda.api.driver", "CUDADriverError", RuntimeError),
    "nvrtc": stand_in("cupy_backends.cuda.libs.nvrtc", "NVRTCError", RuntimeError),
    "compile": stand_in("cupy.cuda.compiler", "CompileException"),
    "memory": stand_in("cupy.cuda.memory", "OutOfMemoryError", MemoryError),
    "host": MemoryError,
    "bug": ZeroDivisionError,
}


def answer(request, progress):
    act, _, rest = request.rungs[0].partition(" ")
    progress(0.1, "computing the float64 reference")
    progress(0.2, f"verifying {request.rungs[-1]}")
    match act:
        case "sleep":
            time.sleep(float(rest))
        case "await":  # until the test makes a file
            while not os.path.exists(rest):
                time.sleep(0.01)
        case "hang":
            time.sleep(3600)
        case "die":
            os.kill(os.getpid(), getattr(signal, rest))
        case "exit":
            os._exit(int(rest))
        case "print":
            print(rest, flush=True)
            os.write(1, b"\x00not a message\n")
        case "rubbish":  # straight into the pipe, which only a broken child could do
            pipes = [fd for fd in range(3, 30) if os.path.exists(f"/proc/self/fd/{fd}")]
            os.write(pipes[0], rest.encode() * 100)
            time.sleep(3600)
        case "unpicklable":
            return [{"row": lambda: None}]
        case "raise":
            kind, _, said = rest.partition(" ")
            raise RAISED[kind](said)
        case "timing":
            progress(0.5, "timing 2 rungs, interleaved")
            raise RAISED["runtime"](rest)
        case "allocate":
            np.empty(int(rest), np.uint8)
    progress(1.0, "done")
    return [{"rung": request.rungs[0], "pid": os.getpid()}]


if __name__ == "__main__":
    main(answer)
