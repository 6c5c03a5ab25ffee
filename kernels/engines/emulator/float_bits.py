"""Floats whose bits an atomic compares as whole numbers: of two negative ones, the larger has the smaller bits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from kernels.engines.emulator.memory import GLOBAL_BASE, Region
from kernels.engines.emulator.ptx.kernel import Instruction, Operand
from kernels.engines.emulator.ptx.registers import names, written
from kernels.engines.emulator.state import Machine


class FloatBits:
    """The atomics of a launch that compared negative floats by their bits. `found`: messages, by instruction."""

    def __init__(self, m: Machine):
        self.m = m
        self.found: dict[int, str] = {}
        self._signs: dict[int, set[bool]] = {}  # by instruction: whether its floats were negative
        self._floats = {name for i in m.kernel.code if i.parts[-1] == "f32" for name in written(i)}
        if any(i.parts[0] in ("atom", "red") and {"min", "max"} & set(i.parts) for i in m.kernel.code):
            self._add_loaded_and_moved(m.kernel.code)

    def _add_loaded_and_moved(self, code: Sequence[Instruction]) -> None:
        """Add the registers into which whole numbers are loaded from buffers of float32, and those to which floats are moved."""
        writers: dict[str, list[Instruction]] = {}
        for i in code:
            for name in written(i):
                writers.setdefault(name, []).append(i)
        for i in code:
            if i.parts[0] == "ld" and i.parts[-1] in ("u32", "s32", "b32"):
                regions = [region for at in self._pointers(i.operands[1], writers) if (region := self._region(at))]
                if regions and all(region.dtype == np.float32 for region in regions):
                    self._floats |= written(i)
            elif i.parts[0] in ("mov", "selp", "shfl") and any(map(self.is_float, i.operands[1:])):
                self._floats |= written(i)

    def _pointers(self, address: Operand, writers: Mapping[str, Sequence[Instruction]]) -> list[int]:
        """Returns the offsets in global memory that the pointers among the parameters have from which an address is made."""
        seen, found, todo = set[str](), list[int](), [*names(address)]
        while todo:
            name = todo.pop()
            for i in writers.get(name, ()) if name not in seen else ():
                if i.parts[0] == "ld" and "param" in i.parts and i.parts[-1] == "u64":
                    source = i.operands[1]
                    offset = source.offset + source.root.offset
                    found += [at - GLOBAL_BASE for at in self.m.pointers_in(source.root.name, offset)]
                elif i.parts[0] != "ld":
                    todo += [source for o in i.operands[1:] for source in names(o)]
            seen.add(name)
        return found

    def is_float(self, value: Operand) -> bool:
        """Returns whether the register of an operand holds a float32."""
        return bool(names(value) & self._floats)

    def check(
        self, pc: int, i: Instruction, value: Operand, before: np.ndarray, values: np.ndarray, offset: int
    ) -> None:
        """Check a minimum or maximum of whole numbers: the old content of each element, and what it was compared with. `offset`:
        of the first element in global memory, negative in shared memory."""
        region = self._region(offset)
        if pc in self.found or not ((region and region.dtype == np.float32) or self.is_float(value)):
            return
        old, new = (v.view(np.int32) for v in (before, values.astype(before.dtype)))
        negative = new < 0
        self._signs.setdefault(pc, set()).update(negative.tolist())
        unsigned = i.parts[-1] == "u32"
        wrong = negative & (old < 0) & (old != new) if not unsigned else negative & (len(self._signs[pc]) == 2)
        if wrong.any():
            at = int(np.flatnonzero(wrong)[0])
            slot = self.m.slot_of(at)
            a, b = (float(v[at : at + 1].view(np.float32)[0]) for v in (old, new))
            self.found[pc] = (
                f"{self.m.where(pc)}: this atomic compares the floats {a:.6g} and {b:.6g} as whole numbers of their bits, whose order "
                f"is not that of negative floats, by thread {self.m.threads.thread(slot)} of block {self.m.threads.block_at(slot)}"
            )

    def _region(self, offset: int) -> Region | None:
        return next((r for r in self.m.memory.regions if offset >= 0 and r.start <= offset < r.stop), None)
