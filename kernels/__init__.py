"""What is computed, run and measured. Knows no Streamlit and no Plotly."""

import ml_dtypes  # noqa: F401  # gives NumPy its dtype "bfloat16"

from kernels import ladders
from kernels.program import Result, RuleError
from kernels.runner import compare, run
from kernels.shapes import ConvShape, GemmShape, ShapeError
from kernels.shapes_attention import AttentionShape
from kernels.shapes_fusion import ChainShape

__all__ = [
    "AttentionShape",
    "ChainShape",
    "ConvShape",
    "GemmShape",
    "Result",
    "RuleError",
    "ShapeError",
    "compare",
    "ladders",
    "run",
]
