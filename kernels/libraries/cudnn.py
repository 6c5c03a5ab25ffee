"""cuDNN 9 by ctypes: its convolution, forward and both gradients, algorithm by algorithm, FP32 without TF32, on the
current stream.

The graph interface chooses the algorithm. The older interface, deprecated in cuDNN 9, lets the caller name it, and
reports what each supports and needs. Signatures and numbers are those of cudnn_graph.h, cudnn_ops.h and cudnn_cnn.h of
9.28.
"""

from __future__ import annotations

import ctypes
import importlib.util
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from kernels.i18n import tr
from kernels.libraries import workspace as workspace_module
from kernels.model.program import RefusedError, RuleError, UnsupportedError

MAJOR = 9
ALGORITHMS = {  # cudnnConvolutionFwdAlgo_t
    "IMPLICIT_GEMM": 0,
    "IMPLICIT_PRECOMP_GEMM": 1,
    "GEMM": 2,
    "DIRECT": 3,
    "FFT": 4,
    "FFT_TILING": 5,
    "WINOGRAD": 6,
    "WINOGRAD_NONFUSED": 7,
}
DATA_ALGORITHMS = {  # cudnnConvolutionBwdDataAlgo_t
    "ALGO_0": 0,
    "ALGO_1": 1,
    "FFT": 2,
    "FFT_TILING": 3,
    "WINOGRAD": 4,
    "WINOGRAD_NONFUSED": 5,
}
FILTER_ALGORITHMS = {  # cudnnConvolutionBwdFilterAlgo_t; 4 is listed by cuDNN and not implemented
    "ALGO_0": 0,
    "ALGO_1": 1,
    "FFT": 2,
    "ALGO_3": 3,
    "WINOGRAD": 4,
    "WINOGRAD_NONFUSED": 5,
    "FFT_TILING": 6,
}
MATH = {0: "DEFAULT", 1: "TENSOR_OP", 2: "TENSOR_OP_ALLOW_CONVERSION", 3: "FMA"}  # cudnnMathType_t
_FMA = 3  # FP32 multiply-adds only: neither TF32 nor tensor cores
_NCHW, _FLOAT = 0, 0  # cudnnTensorFormat_t, cudnnDataType_t
_CONVOLUTION, _CROSS_CORRELATION = 0, 1  # cudnnConvolutionMode_t
_NOT_SUPPORTED = 3000  # statuses 3000 .. 3999, one for each reason
_int, _size, _pointer, _text = ctypes.c_int, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_char_p
_int_p, _size_p, _pointer_p = ctypes.POINTER(_int), ctypes.POINTER(_size), ctypes.POINTER(_pointer)


class Perf(ctypes.Structure):
    """cudnnConvolutionFwdAlgoPerf_t, and those of the two gradients: they have the same fields."""

    _fields_ = (
        ("algo", _int),
        ("status", _int),
        ("time", ctypes.c_float),
        ("memory", _size),
        ("determinism", _int),
        ("mathType", _int),
        ("reserved", _int * 3),
    )


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
}
for _direction in ("Forward", "BackwardData", "BackwardFilter"):  # these functions differ in their names only
    _ARGUMENTS |= {
        f"cudnnGetConvolution{_direction}WorkspaceSize": (*(_pointer,) * 5, _int, _size_p),
        f"cudnnConvolution{_direction}": (*(_pointer,) * 7, _int, _pointer, _size, *(_pointer,) * 3),
        f"cudnnGetConvolution{_direction}AlgorithmMaxCount": (_pointer, _int_p),
        f"cudnnGetConvolution{_direction}Algorithm_v7": (*(_pointer,) * 5, _int, _int_p, ctypes.POINTER(Perf)),
        f"cudnnFindConvolution{_direction}AlgorithmEx": (
            *(_pointer,) * 8,
            _int,
            _int_p,
            ctypes.POINTER(Perf),
            _pointer,
            _size,
        ),
    }


@dataclass(frozen=True)
class Direction:
    """One of cuDNN's three convolutions: its name in function names, its algorithms, and which descriptors its functions
    take in which order: two inputs, then the output."""

    name: str
    algorithms: Mapping[str, int]
    operands: tuple[str, str, str]


FORWARD = Direction("Forward", ALGORITHMS, ("x", "w", "y"))
BACKWARD_DATA = Direction("BackwardData", DATA_ALGORITHMS, ("w", "y", "x"))
BACKWARD_FILTER = Direction("BackwardFilter", FILTER_ALGORITHMS, ("x", "y", "w"))


# -- the library -----------------------------------------------------------------------------------
def library_path() -> str:
    """Returns the path of the library, without loading cuDNN. RuleError says what installs it if it is missing."""
    path, reason = _search()
    if not path:
        raise RuleError(
            tr(
                "cuDNN was not found on this machine; pip install nvidia-cudnn-cu13 (or -cu12) installs it ({reason})",
                reason=reason,
            )
        )
    return path


@cache
def _search() -> tuple[str, str]:
    """Returns (path, "") or ("", reason)."""
    errors = []
    for find in (_of_pathfinder, _of_wheels, _of_system):
        try:
            if path := find():
                return path, ""
        except Exception as e:  # each of these functions raises other errors
            errors.append(str(e).splitlines()[0])
    return "", "; ".join(errors)


def _name() -> str:
    return f"cudnn64_{MAJOR}.dll" if sys.platform == "win32" else f"libcudnn.so.{MAJOR}"


def _of_pathfinder() -> str | None:
    from cuda.pathfinder import load_nvidia_dynamic_lib

    return load_nvidia_dynamic_lib("cudnn").abs_path


def _of_wheels() -> str | None:
    """Returns the path in site-packages/nvidia/cudnn, the folder of the wheel that PyTorch brings."""
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations if spec else None) or ():
        for path in sorted(Path(folder).glob(f"cudnn/*/{_name()}")):
            return str(path)
    return None


def _of_system() -> str | None:
    ctypes.CDLL(_name())  # the loader's own search; OSError if it finds none
    return _name()


class Cudnn:
    """A loaded library with declared functions. RuleError if it is not cuDNN 9."""

    def __init__(self, library: ctypes.CDLL):
        self.library = library
        library.cudnnGetVersion.argtypes, library.cudnnGetVersion.restype = (), _size
        self.version = _version_text(library.cudnnGetVersion())
        if int(self.version.partition(".")[0]) != MAJOR:
            raise RuleError(
                tr(
                    "cuDNN {installed} was found on this machine; cuDNN {needed} is needed: "
                    "pip install nvidia-cudnn-cu13 installs it",
                    installed=self.version,
                    needed=MAJOR,
                )
            )
        library.cudnnGetErrorString.argtypes, library.cudnnGetErrorString.restype = (_int,), _text
        library.cudnnGetLastErrorString.argtypes, library.cudnnGetLastErrorString.restype = ((_text, _size), None)
        for name, arguments in _ARGUMENTS.items():
            function = getattr(library, name, None)
            if function is None:
                raise RuleError(
                    tr("cuDNN {version} has no function {name} of the older interface", version=self.version, name=name)
                )
            function.argtypes, function.restype = arguments, _int
        self._handle: ctypes.c_void_p | None = None

    def status_name(self, status: int) -> str:
        """Returns cuDNN's name of a status: CUDNN_STATUS_NOT_SUPPORTED."""
        return (self.library.cudnnGetErrorString(status) or b"no name").decode("utf-8", "replace")

    def call(self, name: str, *args: object) -> None:
        if status := getattr(self.library, name)(*args):
            raise RuntimeError(
                f"{name} of cuDNN {self.version} answered {self.status_name(status)} ({status}){self._last_error()}"
            )

    def _last_error(self) -> str:
        """Returns cuDNN's message about the last error after ": "; "" if there is none."""
        text = ctypes.create_string_buffer(512)
        self.library.cudnnGetLastErrorString(text, len(text))
        message = " ".join(text.value.decode("utf-8", "replace").split())
        return f": {message}" if message else ""

    @property
    def handle(self) -> ctypes.c_void_p:
        """Returns the handle, created at the first call: then cuDNN loads its parts, hundreds of megabytes. RefusedError
        if it cannot."""
        if self._handle is None:
            handle = _pointer()
            try:
                self.call("cudnnCreate", ctypes.byref(handle))
            except RuntimeError as e:  # no memory left for its parts, or one of them is missing
                raise RefusedError(f"cuDNN does not start on this GPU: {e}") from None
            self._handle = handle
        return self._handle


def _version_text(number: int) -> str:
    """Returns a version number as text: 92800 is 9.28.0; up to cuDNN 8, 8907 was 8.9.7."""
    base = 10_000 if number >= 10_000 else 1_000
    return f"{number // base}.{number % base // 100}.{number % 100}"


@cache
def load() -> Cudnn:
    """Returns the loaded library. RuleError if there is no cuDNN 9 here."""
    path = library_path()
    try:
        return Cudnn(ctypes.CDLL(path))
    except OSError as e:
        raise RuleError(tr("cuDNN was found at {path} but does not load: {error}", path=path, error=e)) from None


def version() -> str | None:
    """Returns cuDNN's version, "9.28.0"; None if none can be used."""
    try:
        return load().version
    except RuleError:
        return None


# -- a convolution ---------------------------------------------------------------------------------
@dataclass(frozen=True)
class AlgorithmReport:
    """What cuDNN reports of one algorithm: the name of its status, time in ms (0 or less: not measured), workspace
    bytes, math type."""

    algorithm: str
    status: str
    supported: bool
    ms: float
    nbytes: int
    math: str


class Convolution:
    """cuDNN's descriptors of one convolution: `s` is the kernels' struct Conv, `maps` the channels of a filter
    (C/groups), `direction` what is computed."""

    def __init__(self, cudnn: Cudnn, s: np.void, maps: int, direction: Direction = FORWARD):
        self.cudnn, self.direction = cudnn, direction
        N, C, H, W, K, R, S, P, Q = (int(s[name]) for name in "NCHWKRSPQ")
        u, v, pad_h, pad_w = (int(s[name]) for name in ("u", "v", "pad_h", "pad_w"))
        mode = _CONVOLUTION if s["flip"] else _CROSS_CORRELATION
        self._x = self._descriptor("Tensor", "Tensor4d", _NCHW, _FLOAT, N, C, H, W)
        self._w = self._descriptor("Filter", "Filter4d", _FLOAT, _NCHW, K, maps, R, S)
        self._y = self._descriptor("Tensor", "Tensor4d", _NCHW, _FLOAT, N, K, P, Q)
        dilation = int(s["dilation_h"]), int(s["dilation_w"])
        self._conv = self._descriptor("Convolution", "Convolution2d", pad_h, pad_w, u, v, *dilation, mode, _FLOAT)
        cudnn.call("cudnnSetConvolutionGroupCount", self._conv, C // maps)
        cudnn.call("cudnnSetConvolutionMathType", self._conv, _FMA)
        descriptors = {"x": self._x, "w": self._w, "y": self._y}
        self._operands = tuple(descriptors[name] for name in direction.operands)
        self._one, self._zero = ctypes.c_float(1), ctypes.c_float(0)

    def _descriptor(self, kind: str, form: str, *fields: int) -> ctypes.c_void_p:
        descriptor = _pointer()
        self.cudnn.call(f"cudnnCreate{kind}Descriptor", ctypes.byref(descriptor))
        destroy = getattr(self.cudnn.library, f"cudnnDestroy{kind}Descriptor")
        weakref.finalize(self, destroy, descriptor).atexit = False
        self.cudnn.call(f"cudnnSet{form}Descriptor", descriptor, *fields)
        return descriptor

    def _checked(self, algorithm: str, status: int, name: str) -> None:
        """Check the status of a call for one algorithm: UnsupportedError or RuntimeError if it failed."""
        if status // 1000 * 1000 == _NOT_SUPPORTED:
            raise UnsupportedError(
                f"cuDNN {self.cudnn.version} does not support {algorithm} for this shape "
                f"({self.cudnn.status_name(status)})"
            )
        if status:
            raise RuntimeError(
                f"{name} of cuDNN {self.cudnn.version} answered {self.cudnn.status_name(status)} ({status}) to "
                f"{algorithm}{self.cudnn._last_error()}"
            )

    def workspace_bytes(self, algorithm: str) -> int:
        """Returns the bytes that the algorithm needs. UnsupportedError if cuDNN does not run it at this shape."""
        nbytes, name = _size(), self._function("Get", "WorkspaceSize")
        first, second, out = self._operands
        status = getattr(self.cudnn.library, name)(
            self.cudnn.handle,
            first,
            second,
            self._conv,
            out,
            self.direction.algorithms[algorithm],
            ctypes.byref(nbytes),
        )
        self._checked(algorithm, status, name)
        return nbytes.value

    def _function(self, before: str, after: str = "") -> str:
        return f"cudnn{before}Convolution{self.direction.name}{after}"

    def run(self, algorithm: str, first: int, second: int, out: int, workspace: int, nbytes: int, stream: int) -> None:
        """Queue the convolution of the direction's two inputs, each an address on the GPU.

        UnsupportedError as above: cuDNN reports some cases only here.
        """
        name, operands = self._function(""), self._operands
        self.cudnn.call("cudnnSetStream", self.cudnn.handle, stream)
        status = getattr(self.cudnn.library, name)(
            self.cudnn.handle,
            ctypes.addressof(self._one),
            operands[0],
            first,
            operands[1],
            second,
            self._conv,
            self.direction.algorithms[algorithm],
            workspace,
            nbytes,
            ctypes.addressof(self._zero),
            operands[2],
            out,
        )
        self._checked(algorithm, status, name)

    # -- reports of all algorithms -------------------------------------------------------------------
    def ranked(self) -> list[AlgorithmReport]:
        """Returns all algorithms by cuDNN's heuristic, best first; nothing runs."""
        first, second, out = self._operands
        return self._reports(self._function("Get", "Algorithm_v7"), (first, second, self._conv, out), ())

    def measured(self, first: int, second: int, out: int, workspace: int, nbytes: int) -> list[AlgorithmReport]:
        """Returns all algorithms with their times: cuDNN runs each. The output is overwritten."""
        operands = self._operands
        return self._reports(
            self._function("Find", "AlgorithmEx"),
            (operands[0], first, operands[1], second, self._conv, operands[2], out),
            (workspace, nbytes),
        )

    def _reports(self, name: str, before: tuple, after: tuple) -> list[AlgorithmReport]:
        max_count, count = _int(), _int()
        self.cudnn.call(self._function("Get", "AlgorithmMaxCount"), self.cudnn.handle, ctypes.byref(max_count))
        perfs = (Perf * max_count.value)()
        self.cudnn.call(name, self.cudnn.handle, *before, max_count.value, ctypes.byref(count), perfs, *after)
        return list(self._parse_reports(perfs[: count.value]))

    def _parse_reports(self, perfs: list[Perf]) -> Iterator[AlgorithmReport]:
        names = {number: name for name, number in self.direction.algorithms.items()}
        for p in perfs:
            yield AlgorithmReport(
                names.get(p.algo, f"algorithm {p.algo}"),
                self.cudnn.status_name(p.status),
                p.status == 0,
                p.time,
                p.memory,
                MATH.get(p.mathType, f"math {p.mathType}"),
            )


def bind(algorithm: str, x, w, y, s) -> Callable[[], None]:
    """Bind one forward algorithm to float32 arrays of CuPy: x [N,C,H,W], w [K,C/groups,R,S], y [N,K,P,Q]."""
    return _bound(algorithm, Convolution(load(), s, w.shape[1]), x, w, y)


def bind_data(algorithm: str, dy, w, dx, s) -> Callable[[], None]:
    """Bind one algorithm of the input's gradient: dy [N,K,P,Q], w [K,C/groups,R,S], dx [N,C,H,W]."""
    return _bound(algorithm, Convolution(load(), s, w.shape[1], BACKWARD_DATA), w, dy, dx)


def bind_filter(algorithm: str, x, dy, dw, s) -> Callable[[], None]:
    """Bind one algorithm of the filters' gradient: x [N,C,H,W], dy [N,K,P,Q], dw [K,C/groups,R,S]."""
    return _bound(algorithm, Convolution(load(), s, dw.shape[1], BACKWARD_FILTER), x, dy, dw)


def _bound(algorithm: str, convolution: Convolution, first, second, out) -> Callable[[], None]:
    """Bind one algorithm to the arrays of a direction, in the order of its operands."""
    import cupy

    nbytes = convolution.workspace_bytes(algorithm)
    workspace = workspace_module.lazy_workspace(nbytes, f"cuDNN {algorithm}")

    def call() -> None:
        stream = cupy.cuda.get_current_stream().ptr
        addresses = first.data.ptr, second.data.ptr, out.data.ptr
        convolution.run(algorithm, *addresses, workspace(), nbytes, stream)

    return call
