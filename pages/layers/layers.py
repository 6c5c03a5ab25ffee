"""The layers of the lesson as data, one row each: its passes with their ladders, its scenes, its controls.

A new layer is one more row of LAYERS. Its passes use the same fields and the same arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kernels.attention.lse.shape import LseShape
from kernels.cross_entropy.shape import CrossEntropyShape
from kernels.elementwise.shape import MapsShape
from kernels.embedding.shape import EmbeddingShape
from kernels.heads.shape import HeadsShape
from kernels.i18n import mark
from kernels.ladders import LADDERS
from kernels.linear.shape import LinearShape
from kernels.model.preset import Preset
from kernels.model.rung import Ladder
from kernels.norm.shape import MapsShape as ChannelsShape
from kernels.norm.shape import RowsShape
from kernels.optimizer.shape import OptimizerShape, sizes_text
from kernels.pooling.shape import GlobalShape, PoolShape
from pages.layers import scenes
from pages.parts.controls import Group
from visuals.attention import lse_notes
from visuals.charts.ladder_notes import LadderNotes
from visuals.cross_entropy import notes as cross_entropy_notes
from visuals.elementwise import notes as elementwise_notes
from visuals.embedding import notes as embedding_notes
from visuals.heads import notes as heads_notes
from visuals.linear import notes as linear_notes
from visuals.norm import notes as norm_notes
from visuals.optimizer import notes as optimizer_notes
from visuals.pooling import notes as pooling_notes
from visuals.scene.scene import Scene

FORWARD, BACKWARD, STEP, UPDATE = "forward", "backward", "step", "update"
INFERENCE, WEIGHTS = "inference", "weights"
SPLIT, MERGE = "split", "merge"
NOTES: Mapping[str, LadderNotes] = {
    **elementwise_notes.NOTES,
    **pooling_notes.POOLING,
    **cross_entropy_notes.NOTES,
    **optimizer_notes.NOTES,
    **norm_notes.NOTES,
    **linear_notes.NOTES,
    **embedding_notes.NOTES,
    **heads_notes.NOTES,
    **lse_notes.NOTES,
}


@dataclass(frozen=True)
class Pass:
    """One direction of a layer: its ladder, the short name of the first rung on the stage, and the keys of two presets: the
    shape on the stage and the real one, whose times the strip shows."""

    ladder_name: str
    rung: str
    stage: str
    real: str

    @property
    def ladder(self) -> Ladder:
        return LADDERS[self.ladder_name]

    @property
    def presets(self) -> Mapping[str, Preset]:
        return self.ladder.presets

    @property
    def notes(self) -> LadderNotes:
        return NOTES[self.ladder_name]


@dataclass(frozen=True)
class Layer:
    """A layer. `name` is its name in the list of layers, `title` the page's heading, `about` HTML on the idea.

    `scene(rung, shape, tiles)` is that of any pass. `part(shape)` is the part of a shape that the stage shows if the shape
    moves more than `most` numbers. `lines` are the controls of numbers: groups of (field, label, width); `choices` those of a
    few values, with their labels and widths; `text` that of a line of text.
    """

    name: str
    title: str
    about: str
    passes: Mapping[str, Pass]
    scene: Callable[[str, Any, Mapping[str, int]], Scene]
    part: Callable[[Any], Any]
    most: int
    lines: tuple[Group, ...] = ()
    choices: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    text: Mapping[str, tuple[str, int]] = field(default_factory=dict)

    @property
    def field_names(self) -> tuple[str, ...]:
        """Returns the fields of the shape that the page sets, in the order of the controls."""
        numbers = (name for group in self.lines for name, _, _ in group)
        return (*numbers, *self.choices, *self.text)


def both(layer: str, key: str, real: str, rungs: tuple[str, str], backward_key: str = "") -> dict[str, Pass]:
    """Returns the two passes of a layer. `key` begins its presets' keys, `backward_key` those of the backward pass."""
    keys = {FORWARD: key, BACKWARD: backward_key or key}
    ladders = {FORWARD: layer, BACKWARD: f"{layer}-backward"}
    return {
        name: Pass(ladders[name], rung, f"{keys[name]}-toy", f"{keys[name]}-{real}")
        for name, rung in zip(keys, rungs, strict=True)
    }


# -- parts of large shapes -----------------------------------------------------------------------------
def _maps(s: MapsShape) -> MapsShape:
    return s.with_(N=1, C=min(s.C, 3), P=min(s.P, 6), Q=min(s.Q, 6))


def _plane(s: PoolShape) -> PoolShape:
    """Returns one plane of pooling, cut to a few windows each way."""
    size = {
        name: min(getattr(s, name), getattr(s, dilation) * (getattr(s, window) - 1) + 1 + 3 * getattr(s, stride))
        for name, window, stride, dilation in (("H", "R", "u", "dilation_h"), ("W", "S", "v", "dilation_w"))
    }
    return s.with_(N=1, C=1, **size)


def _planes(s: GlobalShape) -> GlobalShape:
    return s.with_(N=1, C=min(s.C, 4), H=min(s.H, 7), W=min(s.W, 7))


def _rows(s: CrossEntropyShape) -> CrossEntropyShape:
    return s.with_(M=min(s.M, 3), N=min(s.N, 40))


def _channels(s: ChannelsShape) -> ChannelsShape:
    return s.with_(N=min(s.N, 2), C=min(s.C, 2), H=min(s.H, 2), W=min(s.W, 4))


def _short_rows(s: RowsShape) -> RowsShape:
    return s.with_(M=min(s.M, 3), N=min(s.N, 16))


def _products(s: LinearShape) -> LinearShape:
    return s.with_(M=min(s.M, 6), N=min(s.N, 8), K=min(s.K, 10))


def _head(s: LseShape) -> LseShape:
    return s.with_(B=1, H=1, N=min(s.N, 16), d=min(s.d, 8))


def _heads(s: HeadsShape) -> HeadsShape:
    return s.with_(N=1, T=min(s.T, 4), h=min(s.h, 2), d=min(s.d, 8))


def _tokens(s: EmbeddingShape) -> EmbeddingShape:
    return s.with_(M=min(s.M, 8), V=min(s.V, 6), d=min(s.d, 4))


def _tensors(s: OptimizerShape) -> OptimizerShape:
    return s.with_(sizes=sizes_text(tuple(min(count, 40) for count in s.counts[:4])))


# -- the layers ----------------------------------------------------------------------------------------
MAPS = ((("N", "N", 78),), (("C", "C", 86),), (("P", "P", 72), ("Q", "Q", 72)))
PLANES = ((("N", "N", 78),), (("C", "C", 86),), (("H", "H", 72), ("W", "W", 72)))
ROWS = ((("M", "M", 104), ("N", "N", 112)),)
WINDOW = (
    (("R", "R", 60), ("S", "S", 60)),
    (("u", "stride u", 96), ("v", "v", 56)),
    (("pad_h", "pad h", 88), ("pad_w", "w", 60)),
)
DILATION = ((("dilation_h", "dilation h", 112), ("dilation_w", "w", 60)),)
LAYERS: dict[str, Layer] = {
    "relu": Layer(
        mark("ReLU"),
        mark("ReLU: numbers below 0 become 0"),
        mark(
            'ReLU computes <span class="kt-math">y = max(x, 0)</span> for each element. Its gradient is '
            '<span class="kt-math">dx = dy</span> where x was positive, and 0 elsewhere. So the forward pass must keep where x was '
            "positive: in y itself, in a mask of bytes or in a mask of bits. Memory limits all of these kernels."
        ),
        both("relu", "relu", "res2-n64", ("scalar", "scalar"), "relu-backward"),
        scenes.elementwise, _maps, 1024, MAPS, {"keep": (mark("kept"), 118)},
    ),
    "gelu": Layer(
        mark("GELU"),
        mark("GELU: a smooth curve in place of ReLU’s corner"),
        mark(
            'GELU computes <span class="kt-math">y = x · Φ(x)</span> for each element. Φ(x) is the share of normal random numbers below x. '
            "The exact form uses erf, as BERT and PyTorch’s default do. GPT-2 approximates it by tanh. The backward pass needs x. "
            "Memory limits these kernels too. The transformer in the lesson Train uses ReLU."
        ),
        both("gelu", "gelu", "gpt2", ("scalar", "scalar"), "gelu-backward"),
        scenes.elementwise, _maps, 1024, MAPS, {"form": (mark("form"), 118)},
    ),
    "bias": Layer(
        mark("bias"),
        mark("Bias: one number for each channel"),
        mark(
            'A bias adds one number to each channel: <span class="kt-math">y[n, c, p, q] = x[n, c, p, q] + b[c]</span>. Each element of b is '
            'used in all images and at all pixels. So its gradient is a sum over all of them: <span class="kt-math">db[c] = '
            "Σ dy[n, c, p, q]</span>. Many threads add to few numbers. The kernels differ in how they share this sum."
        ),
        both("bias", "bias", "res2-n64", ("scalar", "block"), "bias-backward"),
        scenes.elementwise, _maps, 1024, MAPS, {"layout": (mark("layout"), 132)},
    ),
    "residual": Layer(
        mark("residual"),
        mark("Residual: addition, then ReLU"),
        mark(
            'A residual block ends with <span class="kt-math">y = max(a + b, 0)</span>, a of its branch and b of its shortcut. Both get the '
            "same gradient. The shortcut has another use, whose gradient may exist already. So the kernel adds to db instead "
            "of overwriting it."
        ),
        both("residual", "residual", "res2-n64", ("scalar", "scalar"), "residual-backward"),
        scenes.elementwise, _maps, 1024, MAPS,
    ),
    "max-pool": Layer(
        mark("max pooling"),
        mark("Max pooling: the largest of each window"),
        mark(
            "Each output is the largest pixel of its window. The forward pass also keeps the place of that pixel. In the "
            "backward pass, only this pixel gets the gradient of the output. Windows can overlap. Then one pixel can get several "
            "gradients. A scatter adds them with atomics. A gather reads them from the side of the pixel."
        ),
        both("max-pool", "maxpool", "large", ("window", "scatter")),
        scenes.pooling, _plane, 1024, (*PLANES, *WINDOW, *DILATION), {"ceil": (mark("ceil mode"), 128)},
    ),
    "avg-pool": Layer(
        mark("average pooling"),
        mark("Average pooling: the mean of each window"),
        mark(
            "Each output is the mean of its window. In the backward pass, every pixel of the window gets an equal share of the "
            "gradient. Pixels of the padding can count in the mean or not. They get no gradient."
        ),
        both("avg-pool", "avgpool", "large", ("window", "scatter")),
        scenes.pooling, _plane, 1024, (*PLANES, *WINDOW),
        {"ceil": (mark("ceil mode"), 128), "include_pad": (mark("count padding"), 158)},
    ),
    "global-avg-pool": Layer(
        mark("global average pooling"),
        mark("Global average pooling: one mean per plane"),
        mark(
            "Each plane becomes one number, the mean of its pixels. In the backward pass, each pixel gets the gradient of its "
            "plane, divided by the number of pixels."
        ),
        both("global-avg-pool", "gap", "large", ("warp", "pixel")),
        scenes.pooling, _planes, 320, PLANES,
    ),
    "batch-norm": Layer(
        mark("batch norm"),
        mark("Batch norm: each channel with mean 0 and variance 1"),
        mark(
            "Batch norm subtracts the mean of a channel and divides by its standard deviation, over all images and pixels. Then "
            "gamma scales and beta shifts. So x is read twice: for the statistics, then for the results. Sums of x and of x² "
            "need one pass, but they lose digits if the mean is large. Welford’s rule does not."
        ),
        both("batch-norm", "batch-norm", "res2", ("two-pass", "two-pass"), "batch-norm-backward")
        | {INFERENCE: Pass("batch-norm-inference", "formula", "batch-norm-inference-toy", "batch-norm-inference-res2")},
        scenes.norm, _channels, 256, PLANES, {"layout": (mark("layout"), 132)},
    ),
    "layer-norm": Layer(
        mark("layer norm"),
        mark("Layer norm: each row with mean 0 and variance 1"),
        mark(
            "Layer norm computes mean and variance of each row, so rows do not depend on each other. The kernels differ in how "
            "often they read a row. In the backward pass, the gradients of gamma and beta are sums over all rows."
        ),
        both("layer-norm", "layer-norm", "gpt2", ("three-reads", "atomics"), "layer-norm-backward"),
        scenes.norm, _short_rows, 96, ROWS,
    ),
    "rms-norm": Layer(
        mark("RMS norm"),
        mark("RMS norm: each row divided by its root mean square"),
        mark(
            "RMS norm leaves out the mean. Each row is divided by the root of the mean of its squares, and gamma scales it. It "
            "needs one sum for each row, where layer norm needs two."
        ),
        both("rms-norm", "rms-norm", "gpt2", ("two-reads", "atomics"), "rms-norm-backward"),
        scenes.norm, _short_rows, 96, ROWS,
    ),
    "linear": Layer(
        mark("linear"),
        mark("Linear: one matrix product forward, two backward"),
        mark(
            'A fully connected layer is <span class="kt-math">y = x W<sup>T</sup> + b</span>. Its gradients are two more products: '
            '<span class="kt-math">dx = dy W</span> and <span class="kt-math">dW = dy<sup>T</sup> x</span>. Each product reads one factor in '
            "another order. A tile is transposed while it is copied to shared memory."
        ),
        {
            FORWARD: Pass("linear", "naive", "linear-toy", "linear-gpt2-up"),
            BACKWARD: Pass("linear-dinput", "naive", "linear-dinput-toy", "linear-dinput-gpt2-up"),
            WEIGHTS: Pass("linear-dweight", "naive", "linear-dweight-toy", "linear-dweight-gpt2-up"),
        },
        scenes.linear, _products, 600, ((("M", "M", 104), ("N", "N", 112), ("K", "K", 104)),),
    ),
    "heads": Layer(
        mark("heads"),
        mark("Heads: rows of tokens become heads, and back"),
        mark(
            "A token’s row holds its heads one after another: h times d numbers, for queries, keys and values. Attention reads all "
            "tokens of one head. So the axes of token and head are exchanged by a copy. The merge is the inverse copy. Each is the "
            "gradient of the other."
        ),
        {
            SPLIT: Pass("split-heads", "elements", "split-heads-toy-qkv", "split-heads-large"),
            MERGE: Pass("merge-heads", "elements", "merge-heads-toy-qkv", "merge-heads-large"),
        },
        scenes.heads, _heads, 640, ((("N", "N", 78),), (("T", "T", 92), ("h", "h", 72), ("d", "d", 78))), {"parts": (mark("parts"), 104)},
    ),
    "attention": Layer(
        mark("attention, with L"),
        mark("Attention in training: one more number for each query"),
        mark(
            'The backward pass needs every weight again. So the forward pass also stores <span class="kt-math">L = m + log(l)</span>, the '
            "logarithm of each row’s sum of exponentials. That is one number for each query instead of N weights. Then "
            '<span class="kt-math">P = exp(S − L)</span>.'
        ),
        {FORWARD: Pass("attention-lse", "blocked", "lse-toy", "lse-2048")},
        scenes.attention, _head, 1024,
        ((("B", "B", 64), ("H", "H", 70)), (("N", "N", 92), ("d", "d", 70))), {"causal": (mark("causal"), 112)},
    ),
    "embedding": Layer(
        mark("embedding"),
        mark("Embedding: a row of a table for each token"),
        mark(
            "Each token selects a row of the table. In the backward pass, the gradient of each token is added to its row. Equal "
            "tokens add to one row. Atomics do that in any order. Sorted tokens let one block add all rows of a token, with "
            "the same bits in each run."
        ),
        both("embedding", "embedding", "uniform", ("elements", "atomics"), "embedding-backward"),
        scenes.embedding, _tokens, 128, ((("M", "M", 104), ("V", "V", 104), ("d", "d", 92)),), {"tokens": (mark("tokens"), 160)},
    ),
    "cross-entropy": Layer(
        mark("softmax + cross-entropy"),
        mark("Softmax and cross-entropy: the loss"),
        mark(
            'The loss of a row is <span class="kt-math">lse − x[label]</span>. Here lse is the logarithm of the sum of all exp(x). Its '
            'gradient is <span class="kt-math">softmax(x) − 1</span> at the label and <span class="kt-math">softmax(x)</span> elsewhere, times the '
            "weight g of the row. With lse saved, no matrix of softmax is needed. If g is known before, one kernel computes both."
        ),
        both("cross-entropy", "ce", "gpt2", ("online", "rows"), "ce-backward")
        | {STEP: Pass("cross-entropy-step", "fused", "ce-step-toy", "ce-step-gpt2")},
        scenes.cross_entropy, _rows, 256, ((("M", "M", 104), ("N", "N", 112)),),
    ),
    "sgd": Layer(
        mark("SGD"),
        mark("SGD: the weights follow their gradients"),
        mark(
            'SGD with momentum updates every weight: <span class="kt-math">v = 0.9 v + g</span>, then '
            '<span class="kt-math">w = w − lr · v</span>. A network has many small tensors. A launch for each costs more than the work. '
            "A table of chunks lets one launch update all tensors."
        ),
        {UPDATE: Pass("sgd", "one-launch", "sgd-toy", "sgd-resnet18")},
        scenes.optimizer, _tensors, 1024, text={"sizes": (mark("elements of each tensor"), 330)},
    ),
    "adam": Layer(
        mark("Adam"),
        mark("Adam: each weight with a rate of its own"),
        mark(
            "Adam keeps two averages for each weight: m of its gradients and v of their squares. It divides m by the root of v. So "
            "the optimiser’s memory is that of two more copies of the weights, and each step reads and writes all of it."
        ),
        {UPDATE: Pass("adam", "one-launch", "adam-toy", "adam-resnet18")},
        scenes.optimizer, _tensors, 1024, text={"sizes": (mark("elements of each tensor"), 330)},
    ),
}  # fmt: skip
