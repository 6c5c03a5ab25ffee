"""The modifier .ftz: subnormal operands and results become zeros of the same sign."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kernels.engines.emulator.operations.floats import flushed
from kernels.engines.emulator.ptx.kernel import Instruction, Operand
from kernels.engines.emulator.state import Machine


class Flushing:
    """A machine as an instruction with .ftz sees it. Its other attributes are the machine's.

    A conversion flushes float32 only, any other instruction the type that it computes in. A conversion from float32 to
    float16 flushes nothing, as on an H200: .rm and .rp round a subnormal float32 away from zero.
    """

    def __init__(self, m: Machine, i: Instruction):
        self._m = m
        if i.parts[0] == "cvt":
            self._types = set() if i.parts[-2:] == ["f16", "f32"] else {"f32"}
        else:
            self._types = {"f32", i.parts[-1]}

    def __getattr__(self, name: str):
        return getattr(self._m, name)

    def reader(self, o: Operand, type_: str) -> Callable[[], np.ndarray]:
        read, flush = self._m.reader(o, type_), self._flush(type_)
        return (lambda: flush(read())) if flush else read

    def writer(self, o: Operand, type_: str) -> Callable[[np.ndarray], None]:
        put, flush = self._m.writer(o, type_), self._flush(type_)
        return (lambda value: put(flush(value))) if flush else put

    def _flush(self, type_: str) -> Callable | None:
        """Returns what flushes values of a type, None for a type that stays as it is. A pair of halves is read as b32."""
        if type_ == "b32" and "f16x2" in self._types:
            return _flushed_pair
        if type_ not in self._types:
            return None
        return {"f32": flushed, "f16": flushed, "f64": flushed, "bf16": _flushed_bf16}.get(type_)


def _flushed_bf16(bits: np.ndarray) -> np.ndarray:
    return np.where(bits & np.uint16(0x7F80), bits, bits & np.uint16(0x8000))[()]


def _flushed_pair(bits: np.ndarray) -> np.ndarray:
    """Returns pairs of halves (uint32) with zeros for the subnormal ones."""
    keep = np.uint32(0x80008000)
    for half in (np.uint32(0xFFFF), np.uint32(0xFFFF0000)):
        keep = keep | np.where(bits & half & np.uint32(0x7C007C00), half, np.uint32(0))
    return (bits & keep)[()]
