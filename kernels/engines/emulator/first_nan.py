"""The first NaN and the first infinity that the arithmetic of a launch makes of finite numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from kernels.engines.emulator.instructions.closure import Run
from kernels.engines.emulator.memory import Region
from kernels.engines.emulator.operations.dtypes import from_bf16, halves
from kernels.engines.emulator.ptx.kernel import Instruction, Operand
from kernels.engines.emulator.state import Machine

_TEXT = {
    "add": "{} + {}",
    "sub": "{} - {}",
    "mul": "{} * {}",
    "fma": "{} * {} + {}",
    "mad": "{} * {} + {}",
    "div": "{} / {}",
    "rcp": "1 / {}",
    "sqrt": "the square root of {}",
    "rsqrt": "1 / the square root of {}",
    "ex2": "2 to the power of {}",
    "lg2": "the logarithm of {}",
    "sin": "the sine of {}",
    "cos": "the cosine of {}",
    "cvt": "{} in fewer bits",
}
_BITS = {"f16x2": "b32", "bf16x2": "b32"}
Read = Callable[[], np.ndarray]


def _floats(bits: np.ndarray, type_: str) -> tuple[np.ndarray, ...]:
    """Returns the numbers of a register: one, or the two of a pair."""
    if type_ in _BITS:
        return halves(bits, type_)
    return (from_bf16(bits) if type_ == "bf16" else bits,)


class FirstNan:
    """`found`: of "NaN" and "infinity", where the first one was made of other numbers."""

    def __init__(self, m: Machine):
        self.m = m
        self.found: dict[str, str] = {}

    def around(self, pc: int, i: Instruction, run: Run) -> Run:
        """Returns `run` with a check of its result, if it computes with floats."""
        text, type_ = _TEXT.get(i.parts[0]), i.parts[-2] if i.parts[0] == "cvt" else i.parts[-1]
        source = i.parts[-1]
        if text is None or not {type_, source} <= {"f16", "bf16", "f32", "f64", "f16x2", "bf16x2"}:
            return run
        if i.operands[0].kind != "reg" or (i.parts[0] == "cvt" and len(i.operands) != 2):
            return run
        m = self.m
        reads = [m.reader(o, _BITS.get(source, source)) for o in i.operands[1:]]
        result = m.reader(Operand("reg", i.operands[0].name), _BITS.get(type_, type_))

        def checked() -> None:
            if len(self.found) == 2:
                run()
                return
            operands = [read() for read in reads]
            run()
            for n, values in enumerate(_floats(result(), type_)):
                # A sum is NaN or infinite if one of its terms is, and rarely otherwise.
                if not np.isfinite(np.add.reduce(values, axis=None)):
                    self._check(pc, values, [_floats(o, source)[n] for o in operands], text)

        return checked

    def _check(self, pc: int, values: np.ndarray, operands: Sequence[np.ndarray], text: str) -> None:
        m = self.m
        slots = m.active_slots()
        values, *operands = (np.broadcast_to(v, m.slots)[slots] for v in (values, *operands))
        for name, is_one in (("NaN", np.isnan), ("infinity", lambda v: ~np.isfinite(v))):
            made = is_one(values)
            for operand in operands:
                made &= ~is_one(operand)
            if made.any() and name not in self.found:
                at = int(np.flatnonzero(made)[0])
                slot = int(slots[at])
                numbers = (_number(float(operand[at])) for operand in operands)
                self.found[name] = (
                    f"{m.where(pc)}: the first {name} is {text.format(*numbers)}, by thread {m.threads.thread(slot)} of block "
                    f"{m.threads.block_at(slot)}"
                )

    def messages(self) -> Iterator[str]:
        """Yields where the first NaN and the first infinity were made, if the launch wrote such a number to an array."""
        for name, message in self.found.items():
            reached = [line for line in (self._reached(region, name) for region in self.m.memory.regions) if line]
            if reached:
                yield f"{message}; it is in {' and '.join(reached)}"

    def _reached(self, region: Region, name: str) -> str:
        """Returns how many elements of an array the launch wrote that are NaN or infinite; "" for none."""
        if region.dtype.kind != "f":
            return ""
        values = self.m.memory.array(region.name).reshape(-1)
        _, written = self.m.races["global"].accessed(region.start, region.stop, region.dtype.itemsize)
        count = np.count_nonzero(written & (np.isnan(values) if name == "NaN" else np.isinf(values)))
        return f"{count:,} of {values.size:,} elements of {region.name}" if count else ""


def _number(value: float) -> str:
    return f"({value:.6g})" if value < 0 else f"{value:.6g}"
