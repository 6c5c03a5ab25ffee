"""What is computed, run and measured. Knows no Streamlit and no Plotly."""

from kernels import ladders
from kernels.program import Result, RuleError
from kernels.runner import compare, run
from kernels.shapes import ConvShape, ShapeError

__all__ = ["ConvShape", "Result", "RuleError", "ShapeError", "compare", "ladders", "run"]
