"""The ladders: every rung of the project, as data."""

from __future__ import annotations

from kernels.ladders import attention, attention_loops, conv, fusion, gemm, loops, memory, softmax
from kernels.program import Ladder, RuleError, Rung

LADDERS: dict[str, Ladder] = {
    ladder.name: ladder
    for ladder in (
        conv.LADDER,
        gemm.LADDER,
        attention.LADDER,
        softmax.LADDER,
        fusion.LADDER,
        loops.LADDER,
        attention_loops.LADDER,
        *memory.LADDERS,
    )
}


def ladder_of(rung_name: str) -> Ladder:
    """The ladder a rung name ("conv/direct") belongs to."""
    name = rung_name.partition("/")[0]
    if name not in LADDERS:
        raise RuleError(f"no ladder {name!r}; there are: {', '.join(LADDERS)}")
    return LADDERS[name]


def find(rung_name: str) -> Rung:
    return ladder_of(rung_name).rung(rung_name)
