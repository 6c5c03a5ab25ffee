"""The cards of the first screen as data, one row per card.

A card previews one state of a lesson. Its stage shows the lesson's scene at `params` and `step`; its link opens that
state. A new lesson needs one more row here and one in pages/_lessons.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kernels.conv.presets import CONV_PRESETS
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
    title: str
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


FIRST = Card("im2col", "A convolution becomes one matrix product.", "conv/im2col.py", im2col)
CARDS = (
    Card(
        "A convolution becomes one matrix product",
        "Every window of the input is copied into a column; the filters times the columns are the output.",
        "conv/im2col.py",
        im2col,
        {"picture": "numbers"},
        14,
    ),
    Card(
        "Seven loops, one window",
        "Each output pixel is the sum of its window times the taps, product by product, here with taps two pixels apart.",
        "conv/direct.py",
        direct,
        {"picture": "numbers", "dilation_h": "2", "dilation_w": "2", "pad_h": "1", "pad_w": "1"},
        7,
    ),
    Card(
        "The same kernel, as its warps run",
        "32 lanes store 32 neighbouring columns: the order, the sectors and the counts of the CUDA kernel.",
        "conv/im2col.py",
        im2col,
        {"order": "warps"},
        6,
    ),
    Card(
        "32 lanes, one tap",
        "A warp of the direct kernel asks for 32 neighbouring pixels and for one tap, which a single load gives to all lanes.",
        "conv/direct.py",
        direct,
        {"order": "warps"},
        3,
    ),
    Card(
        "16 multiplications instead of 36",
        "Tiles of 4 × 4 pixels and filters, both transformed, meet in 16 products; back come 2 × 2 outputs at once.",
        "conv/winograd/page.py",
        winograd_address.card,
        {"kernel": "2x2-steps", "pad_h": "1", "pad_w": "1"},
        36,
    ),
    Card(
        "A product of spectra",
        "Input and filter are transformed at one size, multiplied frequency by frequency, and transformed back.",
        "conv/fft/page.py",
        fft,
        {"picture": "numbers"},
        29,
    ),
    Card(
        "A tile in shared memory",
        "A block fetches 8 × 8 values of A and of B once, and its 64 threads use each of them eight times.",
        "gemm/page.py",
        tiling,
        {"M": "16", "N": "16", "K": "16", "BM": "8", "BN": "8", "BK": "8"},
        6,
    ),
    Card(
        "Four sums in the registers of a thread",
        "A value of B meets four of A: 5 reads of shared memory for 4 multiply-adds, where a sum a thread takes 8.",
        "gemm/page.py",
        tiling,
        {"M": "32", "N": "32", "K": "16", "rung": "register-tile-1d", "BM": "32", "BN": "32", "TM": "4"},
        4,
    ),
    Card(
        "32 sectors where 4 would do",
        "A warp that reads down a column of A asks for 32 bytes a lane and uses 4 of them.",
        "gemm/page.py",
        tiling,
        {"M": "64", "N": "64", "K": "64", "rung": "uncoalesced", "order": "warps"},
        3,
    ),
    Card(
        "36 products that know nothing of each other",
        "Winograd in steps: every position of a tile is a matrix product of its own, in three workspaces.",
        "conv/winograd/page.py",
        winograd_address.card,
        {"kernel": "4x4-steps"},
        16,
    ),
    Card(
        "The sum is mended as the maximum grows",
        "Softmax in two passes: where a thread meets a larger number, what it has summed is rescaled to it.",
        "softmax/page.py",
        softmax_address.card,
        {},
        3,
    ),
    Card(
        "Scores, weights, values",
        "Every query is multiplied with every key, the rows become weights that sum to 1, and the values are added up by them: two N × N matrices.",
        "attention/page.py",
        attention_address.card,
        {"N": "8", "rung": "naive"},
        13,
    ),
    Card(
        "A softmax that begins before its row is known",
        "Flash attention: keys come by the tile, and a larger maximum shrinks what was summed before. No N × N matrix is stored.",
        "attention/page.py",
        attention_address.card,
        {},
        13,
    ),
    Card(
        "Three blocks in one launch",
        "Addition, ReLU and a pool: a window’s values go through all three in registers, and the maps between never exist.",
        "fusion/page.py",
        fusion_address.card,
        {"chain": "add relu maxpool:2"},
        3,
    ),
    Card(
        "A transform is a circle",
        "Where it is too small, windows run over the end and go on at the start: the last rows and columns are wrong.",
        "conv/fft/page.py",
        fft,
        {"room": "too small", "picture": "gradient"},
        37,
    ),
    Card(
        "The figure of the cuDNN paper",
        "A filter matrix of 2 × 12, a data matrix of 12 × 4; the filters flipped, as mathematics has it.",
        "conv/im2col.py",
        im2col,
        _preset("cudnn-paper"),
        2,
    ),
)
# Chips of well-known layers: label by preset.
LAYERS = {
    "lenet-conv1": "LeNet’s first layer",
    "resnet50-conv1-n1": "ResNet-50’s first layer",
    "resnet50-res3-3x3-n1": "ResNet-50 res3 3×3",
    "resnet50-res2-1x1": "ResNet-50 1×1",
}
