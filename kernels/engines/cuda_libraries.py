"""Library calls of the cuda engine. By ctypes, on the current stream, so that they can be captured
into a graph like any kernel (CuPy's own wrappers refuse to be)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache, partial

from kernels.engines import cuda_cudnn, cuda_cufft
from kernels.program import RuleError

_NO_TRANSPOSE = 0
_DEFAULT_MATH = 0  # FP32 in FP32: TF32 stays off
_COMPUTE_FP32, _COMPUTE_TF32 = 68, 77  # CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_TF32
_DEFAULT_ALGORITHM = -1  # CUBLAS_GEMM_DEFAULT: cuBLAS chooses
_TYPES = {"float32": 0, "float16": 2, "bfloat16": 14}  # cudaDataType
_DEVICE_TO_DEVICE = 3


def bind(routine: str, args: tuple) -> Callable[[], None]:
    """`routine` with its arguments fixed, ready to be called many times."""
    ours = {
        "cublas_sgemm": _sgemm,
        "cublas_gemm": _gemm,
        "cublas_gemm_tf32": partial(_gemm, compute=_COMPUTE_TF32),
        "copy": _copy,
    }
    return (ours | cuda_cufft.ROUTINES | cuda_cudnn.ROUTINES)[routine](*args)


@cache
def _cublas():
    import cupy

    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        library = ctypes.CDLL(load_nvidia_dynamic_lib("cublas").abs_path)
    except Exception as e:  # the loader has errors of its own; all mean the same to a reader
        raise RuleError(f"cuBLAS was not found on this machine: {e}") from None
    handle = ctypes.c_void_p()
    _check(library.cublasCreate_v2(ctypes.byref(handle)))
    _check(library.cublasSetMathMode(handle, _DEFAULT_MATH))
    return library, handle, cupy


def _check(status: int) -> None:
    if status:
        raise RuntimeError(f"cuBLAS answered with status {status}")


def _sgemm(A, B, C, rows, cols, inner) -> Callable[[], None]:
    """C[n] = A x B[n] for row-major float32 A [rows, inner], B [n, inner, cols], C [n, rows, cols].

    cuBLAS thinks in columns: read column-major the same bytes are C^T = B^T A^T.
    """
    library, handle, cupy = _cublas()
    rows, cols, inner, batch = int(rows), int(cols), int(inner), len(B)
    one, zero = ctypes.byref(ctypes.c_float(1)), ctypes.byref(ctypes.c_float(0))
    a, b, c = (ctypes.c_void_p(array.data.ptr) for array in (A, B, C))
    size = ctypes.c_longlong
    head = (handle, _NO_TRANSPOSE, _NO_TRANSPOSE, cols, rows, inner, one)
    if batch == 1:
        routine, tail = library.cublasSgemm_v2, (b, cols, a, inner, zero, c, cols)
    else:
        routine = library.cublasSgemmStridedBatched
        tail = (b, cols, size(inner * cols), a, inner, size(0), zero, c, cols, size(rows * cols), batch)

    def call() -> None:
        _check(library.cublasSetStream_v2(handle, ctypes.c_void_p(cupy.cuda.get_current_stream().ptr)))
        _check(routine(*head, *tail))

    return call


def _gemm(A, B, _, C, M, N, K, alpha, beta, compute: int = _COMPUTE_FP32) -> Callable[[], None]:
    """C = alpha * A x B + beta * C in place, row-major: A [M, K] and B [K, N] of one type (float32, float16,
    bfloat16), C [M, N] float32, sums in FP32. As above, cuBLAS is asked for C^T = B^T A^T.
    """
    library, handle, cupy = _cublas()
    M, N, K = int(M), int(N), int(K)
    factors = ctypes.c_float(alpha), ctypes.c_float(beta)  # read at each call: they must live on
    a, b, c = (ctypes.c_void_p(array.data.ptr) for array in (A, B, C))
    ab, cd = _TYPES[A.dtype.name], _TYPES[C.dtype.name]
    args = (
        handle, _NO_TRANSPOSE, _NO_TRANSPOSE, N, M, K, ctypes.byref(factors[0]), b, ab, N, a, ab, K,
        ctypes.byref(factors[1]), c, cd, N, compute, _DEFAULT_ALGORITHM,
    )  # fmt: skip

    def call() -> None:
        _check(library.cublasSetStream_v2(handle, ctypes.c_void_p(cupy.cuda.get_current_stream().ptr)))
        _check(library.cublasGemmEx(*args))

    return call


def _copy(source, to) -> Callable[[], None]:
    """Bytes from one array on the GPU to another."""
    import cupy

    def call() -> None:
        stream = cupy.cuda.get_current_stream().ptr
        cupy.cuda.runtime.memcpyAsync(to.data.ptr, source.data.ptr, source.nbytes, _DEVICE_TO_DEVICE, stream)

    return call


def version() -> str | None:
    """cuBLAS's version, "13.0.2"; None where it is missing."""
    try:
        library, handle, _ = _cublas()
    except RuleError:
        return None
    number = ctypes.c_int()
    _check(library.cublasGetVersion_v2(handle, ctypes.byref(number)))
    n = number.value
    return f"{n // 10000}.{n % 10000 // 100}.{n % 100}"
