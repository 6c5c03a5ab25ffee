"""The lessons as data: a row for each page, and a row for each card of the first screen.

A card previews one state of a lesson: the stage in it is the lesson's own scene at `params` and `step`,
and its link leads to just that. A new lesson is one more row in each table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kernels.presets import CONV_PRESETS
from pages import _attention, _conv, _fft, _fusion, _gemm, _scenes, _softmax, _winograd
from visuals.scene import Scene

Params = Mapping[str, str]


@dataclass(frozen=True)
class Lesson:
    page: str  # its file, and without the ending its address
    title: str  # in the line of lessons

    @property
    def path(self) -> str:
        return self.page.removesuffix(".py")


@dataclass(frozen=True)
class Card:
    title: str
    text: str
    page: str
    scene: Callable[[Params], Scene]
    params: Params = field(default_factory=dict)
    step: int = 0

    def query(self) -> dict[str, str]:
        """The parameters of the address it leads to."""
        return dict(self.params) | ({"step": str(self.step)} if self.step else {})

    def shown(self) -> Scene:
        return self.scene(self.params)


def im2col(params: Params) -> Scene:
    """What the page im2col.py plays at `params`."""
    return _scenes.im2col(_conv.read(params)[0].inputs(), params.get("order", "explaining"))[0]


def direct(params: Params) -> Scene:
    """What the page direct.py plays at `params`."""
    return _scenes.direct(_conv.read(params)[0].inputs(), params.get("order", "explaining"))[0]


def fft(params: Params) -> Scene:
    """What the page fft.py plays at `params`."""
    tile = _fft.TILES[params.get("transform", next(iter(_fft.TILES)))]
    return _fft.scene(_conv.read(params)[0].inputs(), tile, params.get("room", _fft.ROOMS[0]))[0]


def tiling(params: Params) -> Scene:
    """What the page tiling.py plays at `params`, where the rung can run so."""
    asked, _ = _gemm.read(params)
    order = params.get("order", "explaining")
    return _scenes.gemm(asked.shape, asked.rung.name, tuple(asked.tiles.items()), order)[0]


def _preset(key: str) -> dict[str, str]:
    return _conv.at(_conv.DEFAULT, CONV_PRESETS[key].shape)


LESSONS = (
    Lesson("threads.py", "threads"),
    Lesson("tiling.py", "tiling"),
    Lesson("direct.py", "direct"),
    Lesson("im2col.py", "im2col"),
    Lesson("implicit.py", "implicit GEMM"),
    Lesson("winograd.py", "Winograd"),
    Lesson("fft.py", "FFT"),
    Lesson("choose.py", "choose"),
    Lesson("softmax.py", "softmax"),
    Lesson("attention.py", "attention"),
    Lesson("fusion.py", "fusion"),
)
FIRST = Card("im2col", "A convolution becomes one matrix product.", "im2col.py", im2col)
CARDS = (
    Card(
        "A convolution becomes one matrix product",
        "Every window of the input is copied into a column; the filters times the columns are the output.",
        "im2col.py",
        im2col,
        {"picture": "numbers"},
        14,
    ),
    Card(
        "Seven loops, one window",
        "Each output pixel is the sum of its window times the taps, product by product, here with taps two pixels apart.",
        "direct.py",
        direct,
        {"picture": "numbers", "dilation_h": "2", "dilation_w": "2", "pad_h": "1", "pad_w": "1"},
        7,
    ),
    Card(
        "The same kernel, as its warps run",
        "32 lanes store 32 neighbouring columns: the order, the sectors and the counts of the CUDA kernel.",
        "im2col.py",
        im2col,
        {"order": "warps"},
        6,
    ),
    Card(
        "32 lanes, one tap",
        "A warp of the direct kernel asks for 32 neighbouring pixels and for one tap, which a single load gives to all lanes.",
        "direct.py",
        direct,
        {"order": "warps"},
        3,
    ),
    Card(
        "16 multiplications instead of 36",
        "Tiles of 4 × 4 pixels and filters, both transformed, meet in 16 products; back come 2 × 2 outputs at once.",
        "winograd.py",
        _winograd.card,
        {"kernel": "2x2-steps", "pad_h": "1", "pad_w": "1"},
        36,
    ),
    Card(
        "A product of spectra",
        "Input and filter are transformed at one size, multiplied frequency by frequency, and transformed back.",
        "fft.py",
        fft,
        {"picture": "numbers"},
        29,
    ),
    Card(
        "A tile in shared memory",
        "A block fetches 8 × 8 values of A and of B once, and its 64 threads use each of them eight times.",
        "tiling.py",
        tiling,
        {"M": "16", "N": "16", "K": "16", "BM": "8", "BN": "8", "BK": "8"},
        6,
    ),
    Card(
        "Four sums in the registers of a thread",
        "A value of B meets four of A: 5 reads of shared memory for 4 multiply-adds, where a sum a thread takes 8.",
        "tiling.py",
        tiling,
        {"M": "32", "N": "32", "K": "16", "rung": "register-tile-1d", "BM": "32", "BN": "32", "TM": "4"},
        4,
    ),
    Card(
        "32 sectors where 4 would do",
        "A warp that reads down a column of A asks for 32 bytes a lane and uses 4 of them.",
        "tiling.py",
        tiling,
        {"M": "64", "N": "64", "K": "64", "rung": "uncoalesced", "order": "warps"},
        3,
    ),
    Card(
        "36 products that know nothing of each other",
        "Winograd in steps: every position of a tile is a matrix product of its own, in three workspaces.",
        "winograd.py",
        _winograd.card,
        {"kernel": "4x4-steps"},
        16,
    ),
    Card(
        "The sum is mended as the maximum grows",
        "Softmax in two passes: where a thread meets a larger number, what it has summed is rescaled to it.",
        "softmax.py",
        _softmax.card,
        {},
        3,
    ),
    Card(
        "Scores, weights, values",
        "Every query is multiplied with every key, the rows become weights that sum to 1, and the values are added up by them: two N × N matrices.",
        "attention.py",
        _attention.card,
        {"N": "8", "rung": "naive"},
        13,
    ),
    Card(
        "A softmax that begins before its row is known",
        "Flash attention: keys come by the tile, and a larger maximum shrinks what was summed before. No N × N matrix is stored.",
        "attention.py",
        _attention.card,
        {},
        13,
    ),
    Card(
        "Three blocks in one launch",
        "Addition, ReLU and a pool: a window’s values go through all three in registers, and the maps between never exist.",
        "fusion.py",
        _fusion.card,
        {"chain": "add relu maxpool:2"},
        3,
    ),
    Card(
        "A transform is a circle",
        "Where it is too small, windows run over the end and go on at the start: the last rows and columns are wrong.",
        "fft.py",
        fft,
        {"room": "too small", "picture": "gradient"},
        37,
    ),
    Card(
        "The figure of the cuDNN paper",
        "A filter matrix of 2 × 12, a data matrix of 12 × 4; the filters flipped, as mathematics has it.",
        "im2col.py",
        im2col,
        _preset("cudnn-paper"),
        2,
    ),
)
# Layers readers know, as chips: words by preset.
LAYERS = {
    "lenet-conv1": "LeNet’s first layer",
    "resnet50-conv1-n1": "ResNet-50’s first layer",
    "resnet50-res3-3x3-n1": "ResNet-50 res3 3×3",
    "resnet50-res2-1x1": "ResNet-50 1×1",
}
