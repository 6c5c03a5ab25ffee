"""What is computed, run and measured. Knows no Streamlit and no Plotly."""

from contextlib import suppress

with suppress(ImportError):  # Python in a browser has none: BF16 and FP8 arrays cannot be made there
    import ml_dtypes  # noqa: F401  # gives NumPy its dtype "bfloat16"

from kernels import ladders
from kernels.attention.shape import AttentionShape
from kernels.conv.shape import ConvShape
from kernels.fusion.shape import ChainShape
from kernels.gemm.shape import GemmShape
from kernels.model.program import RuleError
from kernels.model.result import Result
from kernels.model.shape import ShapeError
from kernels.runner import compare, run

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
