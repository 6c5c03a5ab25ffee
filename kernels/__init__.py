"""What is computed, run and measured. Knows no Streamlit and no Plotly."""

from contextlib import suppress

with suppress(ImportError):  # Python in a browser has none: BF16 and FP8 arrays cannot be made there
    import ml_dtypes  # noqa: F401  # gives NumPy its dtype "bfloat16"

from kernels import ladders
from kernels.attention.backward.shape import AttentionBackwardShape
from kernels.attention.lse.shape import LseShape
from kernels.attention.shape import AttentionShape
from kernels.conv.backward.transpose_shape import TransposeShape
from kernels.conv.half.shape import HalfShape
from kernels.conv.shape import ConvShape
from kernels.cross_entropy.shape import CrossEntropyBackwardShape, CrossEntropyShape, CrossEntropyStepShape
from kernels.elementwise.shape import (
    BiasBackwardShape,
    BiasShape,
    GeluBackwardShape,
    GeluShape,
    ReluBackwardShape,
    ReluShape,
    ResidualBackwardShape,
    ResidualShape,
)
from kernels.embedding.shape import EmbeddingBackwardShape, EmbeddingShape
from kernels.fusion.half.shape import HalfChainShape
from kernels.fusion.shape import ChainShape
from kernels.gemm.eight_bit.shape import EightBitShape
from kernels.gemm.shape import GemmShape
from kernels.heads.shape import HeadsShape
from kernels.ladders import shape
from kernels.linear.shape import InputGradientShape, LinearShape, WeightGradientShape
from kernels.machine.timing import Budget
from kernels.memory.shape import AddShape, BanksShape, BranchShape, LayoutShape, StrideShape
from kernels.model.program import RuleError
from kernels.model.result import Result
from kernels.model.shape import ShapeError
from kernels.norm.shape import (
    BatchNormBackwardShape,
    BatchNormInferenceShape,
    BatchNormShape,
    LayerNormBackwardShape,
    LayerNormShape,
    RmsNormBackwardShape,
    RmsNormShape,
)
from kernels.optimizer.shape import AdamShape, SgdShape
from kernels.pooling.shape import AvgPoolShape, GlobalShape, MaxPoolShape
from kernels.precision.shape import RateShape
from kernels.runner import VerificationError, compare, run
from kernels.softmax.shape import SoftmaxShape

__all__ = [
    "AdamShape",
    "AddShape",
    "AttentionBackwardShape",
    "AttentionShape",
    "AvgPoolShape",
    "BanksShape",
    "BatchNormBackwardShape",
    "BatchNormInferenceShape",
    "BatchNormShape",
    "BiasBackwardShape",
    "BiasShape",
    "BranchShape",
    "Budget",
    "ChainShape",
    "ConvShape",
    "CrossEntropyBackwardShape",
    "CrossEntropyShape",
    "CrossEntropyStepShape",
    "EightBitShape",
    "EmbeddingBackwardShape",
    "EmbeddingShape",
    "GeluBackwardShape",
    "GeluShape",
    "GemmShape",
    "GlobalShape",
    "HalfChainShape",
    "HalfShape",
    "HeadsShape",
    "InputGradientShape",
    "LayerNormBackwardShape",
    "LayerNormShape",
    "LayoutShape",
    "LinearShape",
    "LseShape",
    "MaxPoolShape",
    "RateShape",
    "ReluBackwardShape",
    "ReluShape",
    "ResidualBackwardShape",
    "ResidualShape",
    "Result",
    "RmsNormBackwardShape",
    "RmsNormShape",
    "RuleError",
    "SgdShape",
    "ShapeError",
    "SoftmaxShape",
    "StrideShape",
    "TransposeShape",
    "VerificationError",
    "WeightGradientShape",
    "compare",
    "ladders",
    "run",
    "shape",
]
