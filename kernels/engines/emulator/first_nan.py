"""The first NaN and the first infinity that the arithmetic of a launch makes of finite numbers.

Which numbers an element was made of is not known. So nothing is said of NaN, or of an infinity with its sign, if it is among the
numbers in memory before the launch or among the kernel's constants: what the kernel makes may be dropped, as in 1 / (1 + exp(x)).
"""

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


# What a number is that is not finite.
_KINDS: dict[str, Callable[[np.ndarray], np.ndarray]] = {"NaN": np.isnan, "inf": np.isposinf, "-inf": np.isneginf}
# A float that is written as a whole number: infinities and the usual NaN. Other whole numbers are masks and numbers.
_BITS_OF_FLOATS = (0x7F800000, 0xFF800000, 0x7FC00000)
_NAMES = {"NaN": ("NaN",), "infinity": ("inf", "-inf")}


def _kinds_before(m: Machine) -> set[str]:
    """Returns the kinds that are in memory before a launch, or among the constants that it selects or stores."""
    arrays = [m.memory.array(region.name) for region in m.memory.regions if region.dtype.kind == "f"]
    chosen = (i for i in m.kernel.code if i.parts[0] in ("mov", "selp", "min", "max", "st"))
    constants = {o.value for i in chosen for o in i.operands if o.kind == "imm"}
    floats = [value for value in constants if isinstance(value, float)]
    bits = [np.uint32(bits) for bits in _BITS_OF_FLOATS if {bits, bits - (1 << 32)} & constants]
    arrays += [np.array(floats, np.float64), np.array(bits, np.uint32).view(np.float32)]
    return {name for name, is_one in _KINDS.items() for array in arrays if is_one(array).any()}


class FirstNan:
    """`found`: of "NaN" and "infinity", where the first one was made of other numbers."""

    def __init__(self, m: Machine):
        self.m = m
        self.found: dict[str, str] = {}
        before = _kinds_before(m)
        self._wanted = {name: [kind for kind in kinds if kind not in before] for name, kinds in _NAMES.items()}

    def looks_for(self, name: str) -> bool:
        return name not in self.found and bool(self._wanted[name])

    def _is_wanted(self, name: str, values: np.ndarray) -> np.ndarray:
        return np.logical_or.reduce([_KINDS[kind](values) for kind in self._wanted[name]])

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
            if not any(map(self.looks_for, _NAMES)):
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
        for name in filter(self.looks_for, _NAMES):
            made = self._is_wanted(name, values)
            for operand in operands:
                made &= ~(np.isnan(operand) if name == "NaN" else ~np.isfinite(operand))
            if made.any():
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
        count = np.count_nonzero(written & self._is_wanted(name, values))
        return f"{count:,} of {values.size:,} elements of {region.name}" if count else ""


def _number(value: float) -> str:
    return f"({value:.6g})" if value < 0 else f"{value:.6g}"
