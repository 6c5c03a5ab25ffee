"""Calls of cuBLAS by ctypes, on the current stream, so that they can be captured into a graph like any kernel. CuPy's
own wrappers cannot be captured."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

from kernels.libraries import wheels
from kernels.model.program import RefusedError, UnsupportedError

_NO_TRANSPOSE, _TRANSPOSE = 0, 1
_DEFAULT_MATH = 0  # FP32 in FP32: TF32 stays off
_COMPUTE_FP32, _COMPUTE_TF32 = 68, 77  # CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_TF32
_DEFAULT_ALGORITHM = -1  # CUBLAS_GEMM_DEFAULT: cuBLAS chooses
_TYPES = {"float32": 0, "float16": 2, "bfloat16": 14}  # cudaDataType
_DEVICE_TO_DEVICE = 3
_STATUS = {  # cublasStatus_t
    1: "CUBLAS_STATUS_NOT_INITIALIZED",
    3: "CUBLAS_STATUS_ALLOC_FAILED, the GPU's memory is full",
    7: "CUBLAS_STATUS_INVALID_VALUE",
    8: "CUBLAS_STATUS_ARCH_MISMATCH",
    11: "CUBLAS_STATUS_MAPPING_ERROR",
    13: "CUBLAS_STATUS_EXECUTION_FAILED",
    14: "CUBLAS_STATUS_INTERNAL_ERROR",
    15: "CUBLAS_STATUS_NOT_SUPPORTED",
}
_REFUSALS = 8, 15


@cache
def _cublas():
    import cupy

    library, handle = wheels.load("cublas"), ctypes.c_void_p()
    if status := library.cublasCreate_v2(ctypes.byref(handle)):
        raise RefusedError(f"cuBLAS does not start on this GPU: {_status_name(status)}")
    _check(library.cublasSetMathMode(handle, _DEFAULT_MATH))
    return library, handle, cupy


def _check(status: int) -> None:
    if status in _REFUSALS:
        raise UnsupportedError(f"cuBLAS does not support this shape on this GPU: {_status_name(status)}")
    if status:
        raise RuntimeError(f"cuBLAS failed: {_status_name(status)}")


def _status_name(status: int) -> str:
    return _STATUS.get(status, f"status {status}")


def sgemm(A, B, C, rows, cols, inner) -> Callable[[], None]:
    """Bind C[n] = A x B[n] for row-major float32 A [rows, inner], B [n, inner, cols], C [n, rows, cols].

    cuBLAS is column-major: it reads the same bytes as C^T = B^T A^T.
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


def gemm(A, B, _, C, M, N, K, alpha, beta, compute: int = _COMPUTE_FP32) -> Callable[[], None]:
    """Bind C = alpha * A x B + beta * C in place, row-major: A [M, K] and B [K, N] of one type (float32, float16,
    bfloat16), C [M, N] float32, sums in FP32. As above, cuBLAS computes C^T = B^T A^T.
    """
    library, handle, cupy = _cublas()
    M, N, K = int(M), int(N), int(K)
    factors = ctypes.c_float(alpha), ctypes.c_float(beta)  # read at each call: keep them alive
    a, b, c = (ctypes.c_void_p(array.data.ptr) for array in (A, B, C))
    ab, cd = _TYPES[A.dtype.name], _TYPES[C.dtype.name]
    args = (
        handle,
        _NO_TRANSPOSE,
        _NO_TRANSPOSE,
        N,
        M,
        K,
        ctypes.byref(factors[0]),
        b,
        ab,
        N,
        a,
        ab,
        K,
        ctypes.byref(factors[1]),
        c,
        cd,
        N,
        compute,
        _DEFAULT_ALGORITHM,
    )

    def call() -> None:
        _check(library.cublasSetStream_v2(handle, ctypes.c_void_p(cupy.cuda.get_current_stream().ptr)))
        _check(library.cublasGemmEx(*args))

    return call


def gemm_tf32(*args) -> Callable[[], None]:
    """Bind `gemm` with the factors rounded to TF32, on tensor cores."""
    return gemm(*args, compute=_COMPUTE_TF32)


def _batched(A, B, C, rows: int, cols: int, inner: int, alpha: float, transposed: bool) -> Callable[[], None]:
    """Bind C[n] = alpha * A[n] x B[n] for row-major A [n, rows, inner], B [n, inner, cols] and C [n, rows, cols]. If
    `transposed`, B is [n, cols, inner] and its transpose is multiplied. n stands for all leading axes. A and B have one
    type (float32, float16, bfloat16), C has that type or float32; sums in FP32."""
    library, handle, cupy = _cublas()
    factor, zero = ctypes.c_float(alpha), ctypes.c_float(0)  # read at each call: keep them alive
    a, b, c = (ctypes.c_void_p(array.data.ptr) for array in (A, B, C))
    ab, cd = _TYPES[A.dtype.name], _TYPES[C.dtype.name]
    step_a, step_b, step_c = (ctypes.c_longlong(n) for n in (rows * inner, inner * cols, rows * cols))
    args = (
        handle, _TRANSPOSE if transposed else _NO_TRANSPOSE, _NO_TRANSPOSE, cols, rows, inner, ctypes.byref(factor),
        b, ab, inner if transposed else cols, step_b, a, ab, inner, step_a, ctypes.byref(zero), c, cd, cols, step_c,
        C.size // (rows * cols), _COMPUTE_FP32, _DEFAULT_ALGORITHM,
    )  # fmt: skip

    def call() -> None:
        _check(library.cublasSetStream_v2(handle, ctypes.c_void_p(cupy.cuda.get_current_stream().ptr)))
        _check(library.cublasGemmStridedBatchedEx(*args))

    return call


def scores(Q, K, S, N, d, scale) -> Callable[[], None]:
    """Bind S = scale * Q K^T for each head: Q, K [B, H, N, d], S [B, H, N, N]."""
    return _batched(Q, K, S, int(N), int(N), int(d), float(scale), transposed=True)


def values(P, V, out, N, d) -> Callable[[], None]:
    """Bind out = P V for each head: P [B, H, N, N], V and out [B, H, N, d]."""
    return _batched(P, V, out, int(N), int(d), int(N), 1.0, transposed=False)


def product(A, B, C, sizes, transposed: tuple[bool, bool] = (False, False), add: bool = False) -> Callable[[], None]:
    """Bind C = A B, or C = A B + C with `add`, row-major float32: A [rows, inner], B [inner, cols] and C [rows, cols], with
    sizes (rows, cols, inner). Where `transposed` says so, the array holds the transpose of A or of B.

    cuBLAS is column-major: it reads the same bytes as C^T = B^T A^T.
    """
    library, handle, cupy = _cublas()
    rows, cols, inner = (int(size) for size in sizes)
    one, old = ctypes.c_float(1), ctypes.c_float(1 if add else 0)  # read at each call: keep them alive
    a, b, c = (ctypes.c_void_p(array.data.ptr) for array in (A, B, C))
    operations = [_TRANSPOSE if is_transposed else _NO_TRANSPOSE for is_transposed in transposed]
    lda, ldb = (rows if transposed[0] else inner), (inner if transposed[1] else cols)
    args = (
        handle,
        operations[1],
        operations[0],
        cols,
        rows,
        inner,
        ctypes.byref(one),
        b,
        ldb,
        a,
        lda,
        ctypes.byref(old),
        c,
        cols,
    )

    def call() -> None:
        _check(library.cublasSetStream_v2(handle, ctypes.c_void_p(cupy.cuda.get_current_stream().ptr)))
        _check(library.cublasSgemm_v2(*args))

    return call


def column_sums(A, sums, rows, cols) -> Callable[[], None]:
    """Bind sums = the sums of the columns of row-major float32 A [rows, cols]: A^T times a vector of ones."""
    library, handle, cupy = _cublas()
    rows, cols = int(rows), int(cols)
    ones = cupy.ones(rows, cupy.float32)
    one, zero = ctypes.c_float(1), ctypes.c_float(0)  # read at each call: keep them alive
    a, x, y = (ctypes.c_void_p(array.data.ptr) for array in (A, ones, sums))
    args = (handle, _NO_TRANSPOSE, cols, rows, ctypes.byref(one), a, cols, x, 1, ctypes.byref(zero), y, 1)

    def call(_ones=ones) -> None:  # keeps the vector alive
        _check(library.cublasSetStream_v2(handle, ctypes.c_void_p(cupy.cuda.get_current_stream().ptr)))
        _check(library.cublasSgemv_v2(*args))

    return call


def copy(source, destination) -> Callable[[], None]:
    """Bind a copy of one array on the GPU to another."""
    import cupy

    def call() -> None:
        stream = cupy.cuda.get_current_stream().ptr
        cupy.cuda.runtime.memcpyAsync(destination.data.ptr, source.data.ptr, source.nbytes, _DEVICE_TO_DEVICE, stream)

    return call


def version() -> str | None:
    """Returns cuBLAS's version, "13.0.2"; None if it is missing."""
    try:
        library, handle, _ = _cublas()
    except RefusedError:
        return None
    number = ctypes.c_int()
    _check(library.cublasGetVersion_v2(handle, ctypes.byref(number)))
    n = number.value
    return f"{n // 10000}.{n % 10000 // 100}.{n % 100}"
