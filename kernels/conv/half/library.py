"""cuDNN's FP16 convolution, called by PyTorch on arrays of CuPy with the channels last."""

from __future__ import annotations

from collections.abc import Iterator

from kernels.conv.common import equal_padding_rules, struct
from kernels.conv.half import common
from kernels.conv.half.reference import TOLERANCE
from kernels.conv.half.shape import HalfShape
from kernels.i18n import mark, tr
from kernels.libraries import torch as torch_library
from kernels.model.program import LibraryCall, Program, Tiles
from kernels.model.rung import TENSOR_CORES, Cost, Rung


class Convolution(torch_library.Call):
    """torch.nn.functional.conv2d of x [N,H,W,C] and w [K,R,S,C/groups]; copy_result() copies its result to y [N,P,Q,K].

    Before the first run PyTorch lets cuDNN try its algorithms and keeps the fastest (torch.backends.cudnn.benchmark).
    """

    def __init__(self, x, w, y, s):
        super().__init__(x, w, y)
        # Of the same memory, with the extents in PyTorch's order: its layout channels_last.
        self._x, self._w, self._y = (tensor.permute(0, 3, 1, 2) for tensor in self.tensors)
        self._settings = tuple(
            (int(s[a]), int(s[b])) for a, b in (("u", "v"), ("pad_h", "pad_w"), ("dilation_h", "dilation_w"))
        )
        self._groups = int(s["C"]) // int(w.shape[3])

    def run(self):
        with self.torch.backends.cudnn.flags(enabled=True, benchmark=True, allow_tf32=False):
            return self.torch.conv2d(self._x, self._w, None, *self._settings, self._groups)

    def copy(self) -> None:
        self._y.copy_(self.results)


def build(s: HalfShape, tiles: Tiles) -> Program:
    call = LibraryCall("torch_conv2d", ("x", "w", "y", struct(s)), None, Convolution)
    return Program(common.buffers(s), (call,))


def rules(s: HalfShape, tiles: Tiles) -> Iterator[str]:
    yield from common.plain_rules(s)
    yield from equal_padding_rules(s)
    if s.flip:
        yield tr("mode must be cross-correlation, got {mode}", mode=s.mode)


def cost(s: HalfShape, program: Program) -> Cost:
    """Returns the FLOPs of the definition and the bytes of the tensors. cuDNN's workspace is not known ahead."""
    return Cost(s.flops, s.bytes, None)


RUNG = Rung(
    name="conv-fp16/cudnn",
    title=mark("cuDNN's fastest in FP16"),
    idea=mark("PyTorch lets cuDNN try its algorithms at this shape and keeps the fastest. The channels are last."),
    build=build,
    cost=cost,
    rules=rules,
    tolerance=TOLERANCE,
    library="PyTorch",
    find_library=lambda: torch_library.find(),
    engines=("cuda",),
    units=TENSOR_CORES,
)
