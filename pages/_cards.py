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
        conv_address.read(params)[0].inputs(), tile, params.get("room", fft_address.PADDINGS[0])
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
        mark(
            "Each window of the input is copied into a column. The filters times the columns are the output."
        ),
        "conv/im2col.py",
        im2col,
        {"picture": "numbers"},
        14,
    ),
    Card(
        mark("Seven loops, one window"),
        mark(
            "Each output pixel is the sum of its window times the filter. Here the filter’s values are two pixels apart."
        ),
        "conv/direct.py",
        direct,
        {"picture": "numbers", "dilation_h": "2", "dilation_w": "2", "pad_h": "1", "pad_w": "1"},
        7,
    ),
    Card(
        mark("The same kernel, as its warps run"),
        mark(
            "32 lanes store 32 neighbouring columns. Order, sectors (32 bytes) and counts are those of the CUDA kernel."
        ),
        "conv/im2col.py",
        im2col,
        {"order": "warps"},
        6,
    ),
    Card(
        mark("32 lanes, one filter value"),
        mark(
            "A warp of the direct kernel loads 32 neighbouring pixels. One load gives the same filter value to all lanes."
        ),
        "conv/direct.py",
        direct,
        {"order": "warps"},
        3,
    ),
    Card(
        mark("16 multiplications instead of 36"),
        mark(
            "Tiles of 4 × 4 pixels and the filters are transformed. 16 products of them give 2 × 2 outputs."
        ),
        "conv/winograd/page.py",
        winograd_address.card,
        {"kernel": "2x2-steps", "pad_h": "1", "pad_w": "1"},
        36,
    ),
    Card(
        mark("A product of spectra"),
        mark(
            "Input and filter are transformed at one size. They are multiplied frequency by frequency and transformed back."
        ),
        "conv/fft/page.py",
        fft,
        {"picture": "numbers"},
        29,
    ),
    Card(
        mark("A tile in shared memory"),
        mark("A block loads 8 × 8 values of A and of B once. Its 64 threads use each value eight times."),
        "gemm/page.py",
        tiling,
        {"M": "16", "N": "16", "K": "16", "BM": "8", "BN": "8", "BK": "8"},
        6,
    ),
    Card(
        mark("Four sums in the registers of a thread"),
        mark(
            "A thread multiplies one value of B by four of A: 5 reads for 4 multiply-adds. With one sum per thread, 4 multiply-adds need 8 reads."
        ),
        "gemm/page.py",
        tiling,
        {"M": "32", "N": "32", "K": "16", "rung": "register-tile-1d", "BM": "32", "BN": "32", "TM": "4"},
        4,
    ),
    Card(
        mark("32 sectors instead of 4"),
        mark("A warp reads down a column of A. Each lane loads a sector of 32 bytes and uses 4 of them."),
        "gemm/page.py",
        tiling,
        {"M": "64", "N": "64", "K": "64", "rung": "uncoalesced", "order": "warps"},
        3,
    ),
    Card(
        mark("36 independent matrix products"),
        mark(
            "Winograd in steps: each position of a tile has its own matrix product. Three workspaces hold the transformed values."
        ),
        "conv/winograd/page.py",
        winograd_address.card,
        {"kernel": "4x4-steps"},
        16,
    ),
    Card(
        mark("The sum is rescaled when the maximum grows"),
        mark(
            "Softmax in two passes: when a thread reads a larger number, it rescales its sum to the new maximum."
        ),
        "softmax/page.py",
        softmax_address.card,
        {},
        3,
    ),
    Card(
        mark("Scores, weights, values"),
        mark(
            "Every query is compared with every key. The scores become weights, and the weights average the values. Scores and weights are N × N matrices."
        ),
        "attention/page.py",
        attention_address.card,
        {"N": "8", "rung": "naive"},
        13,
    ),
    Card(
        mark("A softmax that begins before its row is known"),
        mark(
            "Flash attention reads the keys tile by tile. A larger maximum rescales the earlier sums. No N × N matrix is stored."
        ),
        "attention/page.py",
        attention_address.card,
        {},
        13,
    ),
    Card(
        mark("Three blocks in one launch"),
        mark(
            "Addition, ReLU and a pool run in one kernel. A window’s values stay in registers. The maps between the blocks are not stored."
        ),
        "fusion/page.py",
        fusion_address.card,
        {"chain": " ".join(("add", "relu", "maxpool:2"))},
        3,
    ),
    Card(
        mark("A transform wraps around"),
        mark(
            "If the transform is too small, windows at the end continue at the start. The last rows and columns are then wrong."
        ),
        "conv/fft/page.py",
        fft,
        {"room": fft_address.PADDINGS[-1], "picture": "gradient"},
        37,
    ),
    Card(
        mark("The figure of the cuDNN paper"),
        mark(
            "The filter matrix is 2 × 12, the data matrix 12 × 4. The filters are flipped, as in mathematics."
        ),
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
