"""The cards of the first screen as data, one row per card.

A card previews one state of a lesson. Its stage shows the lesson's scene at `params` and `step`; its link opens that
state. A new lesson needs one more row here and one in pages/_lessons.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kernels.conv.presets import CONV_PRESETS
from kernels.i18n import mark
from pages.attention import address as attention_address
from pages.conv import address as conv_address
from pages.conv import scenes
from pages.conv.fft import address as fft_address
from pages.conv.winograd import address as winograd_address
from pages.fusion import address as fusion_address
from pages.gemm import address as gemm_address
from pages.gemm.scene import gemm
from pages.softmax import address as softmax_address
from visuals.scene.scene import Scene

Params = Mapping[str, str]


@dataclass(frozen=True)
class Card:
    title: str  # title and text are translated where they are shown
    text: str
    page: str
    scene: Callable[[Params], Scene]
    params: Params = field(default_factory=dict)
    step: int = 0

    def query(self) -> dict[str, str]:
        """Returns the URL parameters of the card's link."""
        return dict(self.params) | ({"step": str(self.step)} if self.step else {})

    def build_scene(self) -> Scene:
        return self.scene(self.params)


def im2col(params: Params) -> Scene:
    """Returns the scene that the page conv/im2col.py plays at `params`."""
    return scenes.im2col(conv_address.read(params)[0].inputs(), params.get("order", "explaining"))[0]


def direct(params: Params) -> Scene:
    """Returns the scene that the page conv/direct.py plays at `params`."""
    return scenes.direct(conv_address.read(params)[0].inputs(), params.get("order", "explaining"))[0]


def fft(params: Params) -> Scene:
    """Returns the scene that the page conv/fft/page.py plays at `params`."""
    tile = fft_address.TILES[params.get("transform", next(iter(fft_address.TILES)))]
    return fft_address.scene(
        conv_address.read(params)[0].inputs(),
        tile,
        params.get("room", fft_address.PADDINGS[0]),
        params.get("order", fft_address.EXPLAINING),
    )[0]


def tiling(params: Params) -> Scene:
    """Returns the scene that the page gemm/page.py plays at `params`, if the rung supports them."""
    selection, _ = gemm_address.read(params)
    order = params.get("order", "explaining")
    return gemm(selection.shape, selection.rung.name, tuple(selection.tiles.items()), order)[0]


def _preset(key: str) -> dict[str, str]:
    return conv_address.at_shape(conv_address.DEFAULT, CONV_PRESETS[key].shape)


FIRST = Card(mark("im2col"), mark("A convolution becomes one matrix product."), "conv/im2col.py", im2col)
CARDS = (
    Card(
        mark("A convolution becomes one matrix product"),
        mark("Each window of the input becomes a column."),
        "conv/im2col.py",
        im2col,
        {"picture": "numbers"},
        14,
    ),
    Card(
        mark("Seven loops, one window"),
        mark("The filter’s values are two pixels apart."),
        "conv/direct.py",
        direct,
        {"picture": "numbers", "dilation_h": "2", "dilation_w": "2", "pad_h": "1", "pad_w": "1"},
        7,
    ),
    Card(
        mark("im2col, as its warps run"),
        mark("32 lanes store 32 neighbouring columns."),
        "conv/im2col.py",
        im2col,
        {"order": "warps"},
        6,
    ),
    Card(
        mark("32 lanes, one filter value"),
        mark("One load gives all lanes the same value."),
        "conv/direct.py",
        direct,
        {"order": "warps"},
        3,
    ),
    Card(
        mark("16 multiplications instead of 36"),
        mark("Winograd computes 2 × 2 outputs at a time."),
        "conv/winograd/page.py",
        winograd_address.card,
        {"kernel": "2x2-steps", "pad_h": "1", "pad_w": "1"},
        56,
    ),
    Card(
        mark("A product of spectra"),
        mark("FFT: one multiplication per frequency."),
        "conv/fft/page.py",
        fft,
        {"picture": "numbers"},
        29,
    ),
    Card(
        mark("A tile in shared memory"),
        mark("64 threads use each loaded value eight times."),
        "gemm/page.py",
        tiling,
        {"M": "16", "N": "16", "K": "16", "BM": "8", "BN": "8", "BK": "8"},
        5,
    ),
    Card(
        mark("Four sums in registers"),
        mark("5 reads instead of 8 for 4 multiply-adds."),
        "gemm/page.py",
        tiling,
        {"M": "32", "N": "32", "K": "16", "rung": "register-tile-1d", "BM": "32", "BN": "32", "TM": "4"},
        4,
    ),
    Card(
        mark("32 sectors instead of 4"),
        mark("A warp reads down a column of A."),
        "gemm/page.py",
        tiling,
        {"M": "64", "N": "64", "K": "64", "rung": "uncoalesced", "order": "warps"},
        3,
    ),
    Card(
        mark("36 independent matrix products"),
        mark("Winograd: one product per position of a tile."),
        "conv/winograd/page.py",
        winograd_address.card,
        {"kernel": "4x4-steps"},
        22,
    ),
    Card(
        mark("The sum is rescaled when the maximum grows"),
        mark("Softmax in two passes over a row."),
        "softmax/page.py",
        softmax_address.card,
        {},
        3,
    ),
    Card(
        mark("Scores, weights, values"),
        mark("Attention with two N × N matrices in memory."),
        "attention/page.py",
        attention_address.card,
        {"N": "8", "rung": "naive"},
        13,
    ),
    Card(
        mark("A softmax, tile by tile"),
        mark("Flash attention stores no N × N matrix."),
        "attention/page.py",
        attention_address.card,
        {},
        13,
    ),
    Card(
        mark("Three blocks in one launch"),
        mark("The maps between the blocks are not stored."),
        "fusion/page.py",
        fusion_address.card,
        {"chain": " ".join(("add", "relu", "maxpool:2"))},
        3,
    ),
    Card(
        mark("A transform wraps around"),
        mark("Too small an FFT gives wrong rows."),
        "conv/fft/page.py",
        fft,
        {"room": fft_address.PADDINGS[-1], "picture": "gradient"},
        37,
    ),
    Card(
        mark("The figure of the cuDNN paper"),
        mark("Filters 2 × 12, data 12 × 4."),
        "conv/im2col.py",
        im2col,
        _preset("cudnn-paper"),
        2,
    ),
)
# Chips of well-known layers: label by preset.
LAYERS = {
    "lenet-conv1": mark("LeNet’s first layer"),
    "resnet50-conv1-n1": mark("ResNet-50’s first layer"),
    "resnet50-res3-3x3-n1": mark("ResNet-50 res3 3×3"),
    "resnet50-res2-1x1": mark("ResNet-50 1×1"),
}
