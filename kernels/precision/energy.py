"""The energy of an instruction's arithmetic beside that of its control, as published for one generation of GPUs.

Source: W. J. Dally's talks on hardware for deep learning, whose overheads of 2,000, 500 and 27 % follow from these energies.
Fetching and decoding an instruction and fetching its operands takes about 30 pJ whatever it computes. None was measured
here.
"""

from __future__ import annotations

from dataclasses import dataclass

CONTROL_PJ = 30.0


@dataclass(frozen=True)
class Instruction:
    """An instruction of the source: its multiply-adds, the energy of its arithmetic in pJ, and the rung that is nearest to
    it."""

    name: str
    macs: int
    math_pj: float
    rung: str

    @property
    def overhead(self) -> float:
        """Returns the energy of control relative to that of the arithmetic."""
        return CONTROL_PJ / self.math_pj

    @property
    def pj_per_mac(self) -> float:
        return (self.math_pj + CONTROL_PJ) / self.macs


INSTRUCTIONS = (
    Instruction("HFMA", 1, 1.5, "instruction-rate/hfma2"),
    Instruction("HDP4A", 4, 6.0, "instruction-rate/dp4a"),
    Instruction("HMMA", 64, 110.0, "instruction-rate/mma-fp16"),
)
