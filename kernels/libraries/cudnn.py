"""cuDNN 9 by ctypes: its convolution forward, algorithm by algorithm, FP32 without TF32, on the current stream.

The graph interface chooses for its caller; the older one, which cuDNN 9 still has (deprecated), names its algorithms
and says what each supports and needs. Signatures and numbers are those of cudnn_graph.h, cudnn_ops.h and cudnn_cnn.h
of 9.28.
"""

from __future__ import annotations

import ctypes
import importlib.util
import sys
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from kernels.libraries import workspace as libraries_workspace
from kernels.model.program import RefusedError, RuleError, UnsupportedError

MAJOR = 9
ALGORITHMS = {  # cudnnConvolutionFwdAlgo_t
    "IMPLICIT_GEMM": 0, "IMPLICIT_PRECOMP_GEMM": 1, "GEMM": 2, "DIRECT": 3, "FFT": 4, "FFT_TILING": 5,
    "WINOGRAD": 6, "WINOGRAD_NONFUSED": 7,
}  # fmt: skip
MATH = {0: "DEFAULT", 1: "TENSOR_OP", 2: "TENSOR_OP_ALLOW_CONVERSION", 3: "FMA"}  # cudnnMathType_t
_FMA = 3  # FP32 multiply-adds alone: neither TF32 nor tensor cores
_NCHW, _FLOAT = 0, 0  # cudnnTensorFormat_t, cudnnDataType_t
_CONVOLUTION, _CROSS_CORRELATION = 0, 1  # cudnnConvolutionMode_t
_NOT_SUPPORTED = 3000  # statuses 3000 .. 3999 say so, each for its reason
_int, _size, _pointer, _text = ctypes.c_int, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_char_p
_int_p, _size_p, _pointer_p = ctypes.POINTER(_int), ctypes.POINTER(_size), ctypes.POINTER(_pointer)


class Perf(ctypes.Structure):
    """cudnnConvolutionFwdAlgoPerf_t."""

    _fields_ = (
        ("algo", _int), ("status", _int), ("time", ctypes.c_float), ("memory", _size), ("determinism", _int),
        ("mathType", _int), ("reserved", _int * 3),
    )  # fmt: skip


_ARGUMENTS = {
    "cudnnCreate": (_pointer_p,),
    "cudnnSetStream": (_pointer, _pointer),
    "cudnnCreateTensorDescriptor": (_pointer_p,),
    "cudnnSetTensor4dDescriptor": (_pointer, *(_int,) * 6),
    "cudnnDestroyTensorDescriptor": (_pointer,),
    "cudnnCreateFilterDescriptor": (_pointer_p,),
    "cudnnSetFilter4dDescriptor": (_pointer, *(_int,) * 6),
    "cudnnDestroyFilterDescriptor": (_pointer,),
    "cudnnCreateConvolutionDescriptor": (_pointer_p,),
    "cudnnSetConvolution2dDescriptor": (_pointer, *(_int,) * 8),
    "cudnnSetConvolutionGroupCount": (_pointer, _int),
    "cudnnSetConvolutionMathType": (_pointer, _int),
    "cudnnDestroyConvolutionDescriptor": (_pointer,),
    "cudnnGetConvolutionForwardWorkspaceSize": (*(_pointer,) * 5, _int, _size_p),
    "cudnnConvolutionForward": (*(_pointer,) * 7, _int, _pointer, _size, *(_pointer,) * 3),
    "cudnnGetConvolutionForwardAlgorithmMaxCount": (_pointer, _int_p),
    "cudnnGetConvolutionForwardAlgorithm_v7": (*(_pointer,) * 5, _int, _int_p, ctypes.POINTER(Perf)),
    "cudnnFindConvolutionForwardAlgorithmEx": (
        *(_pointer,) * 8, _int, _int_p, ctypes.POINTER(Perf), _pointer, _size,
    ),
}  # fmt: skip


# -- the library -----------------------------------------------------------------------------------
def where() -> str:
    """The library's file. RuleError, which says what brings it, where there is none. cuDNN itself is not asked."""
    path, why = _found()
    if not path:
        raise RuleError(
            f"cuDNN was not found on this machine; pip install nvidia-cudnn-cu13 (or -cu12) brings it ({why})"
        )
    return path


@cache
def _found() -> tuple[str, str]:
    """(path, "") or ("", why not)."""
    tried = []
    for find in (_of_pathfinder, _of_wheels, _of_system):
        try:
            if path := find():
                return path, ""
        except Exception as e:  # each way of finding it has errors of its own
            tried.append(str(e).splitlines()[0])
    return "", "; ".join(tried)


def _name() -> str:
    return f"cudnn64_{MAJOR}.dll" if sys.platform == "win32" else f"libcudnn.so.{MAJOR}"


def _of_pathfinder() -> str | None:
    from cuda.pathfinder import load_nvidia_dynamic_lib

    return load_nvidia_dynamic_lib("cudnn").abs_path


def _of_wheels() -> str | None:
    """In site-packages/nvidia/cudnn, where the wheel that PyTorch brings puts it."""
    found = importlib.util.find_spec("nvidia")
    for folder in (found.submodule_search_locations if found else None) or ():
        for path in sorted(Path(folder).glob(f"cudnn/*/{_name()}")):
            return str(path)
    return None


def _of_system() -> str | None:
    ctypes.CDLL(_name())  # the loader's own search; OSError where it finds none
    return _name()


class Cudnn:
    """A loaded library, its functions declared. RuleError where it is not cuDNN 9."""

    def __init__(self, library: Any):
        self.library = library
        library.cudnnGetVersion.argtypes, library.cudnnGetVersion.restype = (), _size
        self.version = _words(library.cudnnGetVersion())
        if int(self.version.partition(".")[0]) != MAJOR:
            raise RuleError(
                f"cuDNN {self.version} was found on this machine; cuDNN {MAJOR} is needed: "
                "pip install nvidia-cudnn-cu13 brings it"
            )
        library.cudnnGetErrorString.argtypes, library.cudnnGetErrorString.restype = (_int,), _text
        library.cudnnGetLastErrorString.argtypes, library.cudnnGetLastErrorString.restype = (
            (_text, _size),
            None,
        )
        for name, arguments in _ARGUMENTS.items():
            function = getattr(library, name, None)
            if function is None:
                raise RuleError(f"cuDNN {self.version} has no {name}: its older interface is gone")
            function.argtypes, function.restype = arguments, _int
        self._handle: _pointer | None = None

    def said(self, status: int) -> str:
        """A status as cuDNN names it: CUDNN_STATUS_NOT_SUPPORTED."""
        return (self.library.cudnnGetErrorString(status) or b"no name").decode("utf-8", "replace")

    def call(self, name: str, *args: Any) -> None:
        if status := getattr(self.library, name)(*args):
            raise RuntimeError(
                f"{name} of cuDNN {self.version} answered {self.said(status)} ({status}){self._more()}"
            )

    def _more(self) -> str:
        """The last error in cuDNN's own words, where it has some."""
        text = ctypes.create_string_buffer(512)
        self.library.cudnnGetLastErrorString(text, len(text))
        told = " ".join(text.value.decode("utf-8", "replace").split())
        return f": {told}" if told else ""

    @property
    def handle(self) -> _pointer:
        """Made when first needed: then cuDNN loads its parts, hundreds of megabytes. RefusedError where it cannot."""
        if self._handle is None:
            handle = _pointer()
            try:
                self.call("cudnnCreate", ctypes.byref(handle))
            except RuntimeError as e:  # no memory left for its parts, or one of them missing
                raise RefusedError(f"cuDNN does not start on this GPU: {e}") from None
            self._handle = handle
        return self._handle


def _words(number: int) -> str:
    """92800 is 9.28.0; up to cuDNN 8 8907 was 8.9.7."""
    base = 10_000 if number >= 10_000 else 1_000
    return f"{number // base}.{number % base // 100}.{number % 100}"


@cache
def load() -> Cudnn:
    """RuleError where there is no cuDNN 9 here."""
    path = where()
    try:
        return Cudnn(ctypes.CDLL(path))
    except OSError as e:
        raise RuleError(f"cuDNN was found at {path} but does not load: {e}") from None


def version() -> str | None:
    """cuDNN's version, "9.28.0"; None where there is none that can be used."""
    try:
        return load().version
    except RuleError:
        return None


# -- a convolution ---------------------------------------------------------------------------------
@dataclass(frozen=True)
class Told:
    """What cuDNN says of one algorithm: its status in its words, time in ms (0 or less: not measured), workspace
    bytes, math."""

    algorithm: str
    status: str
    supported: bool
    ms: float
    nbytes: int
    math: str


class Convolution:
    """cuDNN's descriptors of one convolution: `s` as the kernels' struct Conv, `maps` those of a filter (C/groups)."""

    def __init__(self, cudnn: Cudnn, s: Any, maps: int):
        self.cudnn = cudnn
        N, C, H, W, K, R, S, P, Q = (int(s[name]) for name in "NCHWKRSPQ")
        u, v, pad_h, pad_w = (int(s[name]) for name in ("u", "v", "pad_h", "pad_w"))
        mode = _CONVOLUTION if s["flip"] else _CROSS_CORRELATION
        self._x = self._made("Tensor", "Tensor4d", _NCHW, _FLOAT, N, C, H, W)
        self._w = self._made("Filter", "Filter4d", _FLOAT, _NCHW, K, maps, R, S)
        self._y = self._made("Tensor", "Tensor4d", _NCHW, _FLOAT, N, K, P, Q)
        dilation = int(s["dilation_h"]), int(s["dilation_w"])
        self._conv = self._made("Convolution", "Convolution2d", pad_h, pad_w, u, v, *dilation, mode, _FLOAT)
        cudnn.call("cudnnSetConvolutionGroupCount", self._conv, C // maps)
        cudnn.call("cudnnSetConvolutionMathType", self._conv, _FMA)
        self._one, self._zero = ctypes.c_float(1), ctypes.c_float(0)

    def _made(self, kind: str, form: str, *fields: int) -> _pointer:
        descriptor = _pointer()
        self.cudnn.call(f"cudnnCreate{kind}Descriptor", ctypes.byref(descriptor))
        destroy = getattr(self.cudnn.library, f"cudnnDestroy{kind}Descriptor")
        weakref.finalize(self, destroy, descriptor).atexit = False
        self.cudnn.call(f"cudnnSet{form}Descriptor", descriptor, *fields)
        return descriptor

    def _checked(self, algorithm: str, status: int, name: str) -> None:
        """UnsupportedError, RuntimeError or nothing, by the status of a call for one algorithm."""
        if status // 1000 * 1000 == _NOT_SUPPORTED:
            raise UnsupportedError(
                f"cuDNN {self.cudnn.version} does not support {algorithm} for this shape "
                f"({self.cudnn.said(status)})"
            )
        if status:
            raise RuntimeError(
                f"{name} of cuDNN {self.cudnn.version} answered {self.cudnn.said(status)} ({status}) to "
                f"{algorithm}{self.cudnn._more()}"
            )

    def workspace_bytes(self, algorithm: str) -> int:
        """What the algorithm asks for. UnsupportedError where cuDNN does not run it at this shape."""
        nbytes, name = _size(), "cudnnGetConvolutionForwardWorkspaceSize"
        status = getattr(self.cudnn.library, name)(
            self.cudnn.handle,
            self._x,
            self._w,
            self._conv,
            self._y,
            ALGORITHMS[algorithm],
            ctypes.byref(nbytes),
        )
        self._checked(algorithm, status, name)
        return nbytes.value

    def forward(
        self, algorithm: str, x: int, w: int, y: int, workspace: int, nbytes: int, stream: int
    ) -> None:
        """Queue y = x * w, each an address on the GPU. UnsupportedError as above: some are found out only now."""
        name = "cudnnConvolutionForward"
        self.cudnn.call("cudnnSetStream", self.cudnn.handle, stream)
        status = getattr(self.cudnn.library, name)(
            self.cudnn.handle, ctypes.addressof(self._one), self._x, x, self._w, w, self._conv,
            ALGORITHMS[algorithm], workspace, nbytes, ctypes.addressof(self._zero), self._y, y,
        )  # fmt: skip
        self._checked(algorithm, status, name)

    # -- what cuDNN says when it is asked for all of them --------------------------------------------
    def listed(self) -> list[Told]:
        """By its rules of thumb, best first; nothing runs."""
        return self._asked(
            "cudnnGetConvolutionForwardAlgorithm_v7", (self._x, self._w, self._conv, self._y), ()
        )

    def found(self, x: int, w: int, y: int, workspace: int, nbytes: int) -> list[Told]:
        """By running each; y is overwritten."""
        return self._asked(
            "cudnnFindConvolutionForwardAlgorithmEx",
            (self._x, x, self._w, w, self._conv, self._y, y),
            (workspace, nbytes),
        )

    def _asked(self, name: str, before: tuple, after: tuple) -> list[Told]:
        most, count = _int(), _int()
        self.cudnn.call("cudnnGetConvolutionForwardAlgorithmMaxCount", self.cudnn.handle, ctypes.byref(most))
        perfs = (Perf * most.value)()
        self.cudnn.call(name, self.cudnn.handle, *before, most.value, ctypes.byref(count), perfs, *after)
        return list(self._told(perfs[: count.value]))

    def _told(self, perfs: list[Perf]) -> Iterator[Told]:
        names = {number: name for name, number in ALGORITHMS.items()}
        for p in perfs:
            yield Told(
                names.get(p.algo, f"algorithm {p.algo}"), self.cudnn.said(p.status), p.status == 0,
                p.time, p.memory, MATH.get(p.mathType, f"math {p.mathType}"),
            )  # fmt: skip


def bind(algorithm: str, x, w, y, s) -> Callable[[], None]:
    """One algorithm on float32 arrays of CuPy: x [N,C,H,W], w [K,C/groups,R,S], y [N,K,P,Q]."""
    import cupy

    convolution = Convolution(load(), s, w.shape[1])
    nbytes = convolution.workspace_bytes(algorithm)
    workspace = libraries_workspace.taker(nbytes, f"cuDNN {algorithm}")

    def call() -> None:
        stream = cupy.cuda.get_current_stream().ptr
        convolution.forward(algorithm, x.data.ptr, w.data.ptr, y.data.ptr, workspace(), nbytes, stream)

    return call
