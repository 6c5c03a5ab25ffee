"""A child whose "out of bounds" writes far outside on the GPU, "registers" asks for too large a block,
"hang" never ends; everything else it runs as the app's own child does."""

from __future__ import annotations

from kernels.jobs.child import compare_rows, main

CODE = r"""
extern "C" __global__ void far_outside(float* out) { out[(1ull << 40) + threadIdx.x] = 1.0f; }
extern "C" __global__ void for_ever(volatile float* out) { while (out[0] == 0.0f) { } }
"""


def answer(request, progress):
    act = request.rungs[0]
    launches = {
        "out of bounds": ("far_outside", (32, 1, 1)),
        "block": ("far_outside", (4096, 1, 1)),
        "hang": ("for_ever", (1, 1, 1)),
    }
    if act not in launches and act != "allocate":
        return compare_rows(request, progress)
    import cupy

    progress(0.2, f"verifying {act}")
    if act == "allocate":
        return [{"bytes": cupy.cuda.alloc(300_000_000_000).mem.size}]
    entry, block = launches[act]
    out = cupy.cuda.alloc(1024)
    out.memset(0, 1024)
    cupy.RawModule(code=CODE).get_function(entry)((1, 1, 1), block, (out.ptr,))
    cupy.cuda.runtime.deviceSynchronize()
    return [{"rung": act}]


if __name__ == "__main__":
    main(answer)
