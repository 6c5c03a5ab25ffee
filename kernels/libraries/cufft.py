"""cuFFT by ctypes: batched 2-D transforms of float32, planned when bound, run on the current stream. CuPy's plans manage
memory and stream themselves. Signatures and numbers are those of cufft.h, cuFFT 11 and 12."""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Callable
from functools import cache

from kernels.libraries import wheels, workspace
from kernels.model.program import RefusedError

_R2C, _C2R = 0x2A, 0x2C  # cufftType
_ALLOC_FAILED = 0x2
_ERRORS = {
    0x1: "CUFFT_INVALID_PLAN",
    0x2: "CUFFT_ALLOC_FAILED",
    0x3: "CUFFT_INVALID_TYPE",
    0x4: "CUFFT_INVALID_VALUE",
    0x5: "CUFFT_INTERNAL_ERROR",
    0x6: "CUFFT_EXEC_FAILED",
    0x7: "CUFFT_SETUP_FAILED",
    0x8: "CUFFT_INVALID_SIZE",
    0x9: "CUFFT_UNALIGNED_DATA",
    0xB: "CUFFT_INVALID_DEVICE",
    0xD: "CUFFT_NO_WORKSPACE",
    0xE: "CUFFT_NOT_IMPLEMENTED",
    0x10: "CUFFT_NOT_SUPPORTED",
    0x11: "CUFFT_MISSING_DEPENDENCY",
    0x12: "CUFFT_NVRTC_FAILURE",
    0x13: "CUFFT_NVJITLINK_FAILURE",
    0x14: "CUFFT_NVSHMEM_FAILURE",
}
_plan, _pointer, _int, _size = ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
_int_p, _size_p = ctypes.POINTER(_int), ctypes.POINTER(_size)
_ARGUMENTS = {
    "cufftCreate": (ctypes.POINTER(_plan),),
    "cufftDestroy": (_plan,),
    "cufftSetAutoAllocation": (_plan, _int),
    "cufftMakePlanMany": (_plan, _int, _int_p, _int_p, _int, _int, _int_p, _int, _int, _int, _int, _size_p),
    "cufftSetWorkArea": (_plan, _pointer),
    "cufftSetStream": (_plan, _pointer),
    "cufftExecR2C": (_plan, _pointer, _pointer),
    "cufftExecC2R": (_plan, _pointer, _pointer),
    "cufftGetVersion": (_int_p,),
}


@cache
def _cufft() -> ctypes.CDLL:
    library = wheels.load("cufft")
    for name, arguments in _ARGUMENTS.items():
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, ctypes.c_int
    return library


def _check(status: int) -> None:
    if status == _ALLOC_FAILED:
        raise RefusedError("cuFFT has no room: the GPU's memory is full; take a smaller shape or batch")
    if status:
        raise RuntimeError(f"cuFFT answered {_ERRORS.get(status, 'with status')} ({status})")


class Plan:
    """A plan of `batch` contiguous transforms of rows x columns. `nbytes`: bytes of the work area that cuFFT needs."""

    def __init__(self, kind: int, batch: int, rows: int, columns: int):
        self._library, self._exec = _cufft(), {_R2C: "cufftExecR2C", _C2R: "cufftExecC2R"}[kind]
        handle, nbytes, extents = _plan(), _size(), (_int * 2)(rows, columns)
        _check(self._library.cufftCreate(ctypes.byref(handle)))
        self._handle = handle.value
        weakref.finalize(self, self._library.cufftDestroy, self._handle).atexit = False
        _check(self._library.cufftSetAutoAllocation(self._handle, 0))
        _check(
            self._library.cufftMakePlanMany(
                self._handle, 2, extents, None, 1, 0, None, 1, 0, kind, batch, ctypes.byref(nbytes)
            )
        )
        self.nbytes = nbytes.value
        self._area = workspace.lazy_workspace(self.nbytes, "cuFFT")
        self._area_set = False

    def run(self, source: int, destination: int, stream: int) -> None:
        """Queue the transforms from one address on the GPU to another. Transforms to reals overwrite their source."""
        if not self._area_set and self.nbytes:
            _check(self._library.cufftSetWorkArea(self._handle, self._area()))
        self._area_set = True
        _check(self._library.cufftSetStream(self._handle, stream))
        _check(getattr(self._library, self._exec)(self._handle, source, destination))


def _bind(kind: int, reals, source, destination) -> Callable[[], None]:
    import cupy

    *batch, rows, columns = reals.shape
    plan = Plan(kind, math.prod(batch), rows, columns)
    return lambda: plan.run(source.data.ptr, destination.data.ptr, cupy.cuda.get_current_stream().ptr)


def forward(padded, spectra) -> Callable[[], None]:
    """Bind the transform of float32 arrays [..., rows, columns] to spectra [..., rows, columns//2 + 1, 2]."""
    return _bind(_R2C, padded, padded, spectra)


def inverse(spectra, dense) -> Callable[[], None]:
    """Bind the inverse transform, without the factor 1 / (rows*columns). The spectra are overwritten."""
    return _bind(_C2R, dense, spectra, dense)


def workspace_bytes(reals: tuple[int, ...], inverse: bool = False) -> int:
    """Returns the bytes that cuFFT needs besides input and output, to transform arrays of this shape."""
    *batch, rows, columns = reals
    return Plan(_C2R if inverse else _R2C, math.prod(batch), rows, columns).nbytes


def version() -> str | None:
    """Returns cuFFT's version, "12.5.0"; None if it is missing."""
    try:
        library = _cufft()
    except RefusedError:
        return None
    number = _int()
    _check(library.cufftGetVersion(ctypes.byref(number)))
    n = number.value
    return f"{n // 1000}.{n % 1000 // 100}.{n % 100}"
