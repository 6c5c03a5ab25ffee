"""The ladders: every rung of the project, as data."""

from __future__ import annotations

from typing import Any

from kernels.attention import cpu_ladder as attention_cpu_ladder
from kernels.attention import ladder as attention_ladder
from kernels.attention.backward import ladder as attention_backward_ladder
from kernels.attention.lse import ladder as attention_lse_ladder
from kernels.conv import ladder as conv_ladder
from kernels.conv.backward import ladder as conv_backward
from kernels.conv.backward.transpose import TRANSPOSE
from kernels.conv.half import ladder as conv_half_ladder
from kernels.cross_entropy import ladder as cross_entropy_ladder
from kernels.elementwise import ladder as elementwise_ladder
from kernels.embedding import ladder as embedding_ladder
from kernels.fusion import ladder as fusion_ladder
from kernels.fusion.half import ladder as fusion_half_ladder
from kernels.gemm import cpu_ladder as gemm_cpu_ladder
from kernels.gemm import ladder as gemm_ladder
from kernels.gemm.eight_bit import ladder as eight_bit_ladder
from kernels.heads import ladder as heads_ladder
from kernels.linear import ladder as linear_ladder
from kernels.memory import ladder as memory_ladder
from kernels.model.names import unknown
from kernels.model.program import RuleError
from kernels.model.rung import Ladder, Rung
from kernels.model.shape import Shape, ShapeError
from kernels.norm import ladder as norm_ladder
from kernels.optimizer import ladder as optimizer_ladder
from kernels.pooling import ladder as pooling_ladder
from kernels.precision import ladder as precision_ladder
from kernels.softmax import ladder as softmax_ladder

LADDERS: dict[str, Ladder] = {
    ladder.name: ladder
    for ladder in (
        conv_ladder.LADDER,
        gemm_ladder.LADDER,
        eight_bit_ladder.LADDER,
        attention_ladder.LADDER,
        attention_lse_ladder.LADDER,
        attention_backward_ladder.LADDER,
        softmax_ladder.LADDER,
        fusion_ladder.LADDER,
        gemm_cpu_ladder.LADDER,
        attention_cpu_ladder.LADDER,
        *memory_ladder.LADDERS,
        *elementwise_ladder.LADDERS,
        *optimizer_ladder.LADDERS,
        *pooling_ladder.LADDERS,
        conv_backward.DINPUT,
        conv_backward.DWEIGHT,
        TRANSPOSE,
        conv_half_ladder.LADDER,
        fusion_half_ladder.LADDER,
        *cross_entropy_ladder.LADDERS,
        *norm_ladder.LADDERS,
        *linear_ladder.LADDERS,
        *embedding_ladder.LADDERS,
        *heads_ladder.LADDERS,
        precision_ladder.LADDER,
    )
}


def ladder_of(rung_name: str) -> Ladder:
    """Returns the ladder that a rung name ("conv/direct") belongs to. RuleError if there is none."""
    name = rung_name.partition("/")[0]
    if name not in LADDERS:
        raise RuleError(unknown("ladder", name, LADDERS))
    return LADDERS[name]


def find(rung_name: str) -> Rung:
    return ladder_of(rung_name).rung(rung_name)


def shape(ladder: str, preset: str = "", /, **fields: Any) -> Shape:
    """Returns a shape of a ladder: that of a preset's name, or one with these fields.

    The fields are the arguments of the ladder's shape class: shape("max-pool", N=1, C=3, H=8, W=8, R=2, S=2).
    ShapeError lists the presets or the fields if there is none of a name. RuleError lists the ladders.
    """
    found = ladder_of(ladder)
    if preset and fields:
        raise ShapeError(
            f"a shape has a preset's name or fields, got {preset!r} and {', '.join(fields)}; "
            f"shape({ladder!r}, {preset!r}).with_(...) changes fields of a preset"
        )
    return found.shape_of(preset) if preset else found.shape_with(fields)
