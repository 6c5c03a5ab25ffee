"""The pictures of the first screen as data: one moment of each lesson whose stage is not too tall for a teaser.

A new lesson needs one more row here and one in pages/_lessons.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pages.attention import address as attention_address
from pages.attention.backward import address as attention_backward_address
from pages.collectives import address as collectives_address
from pages.conv import address as conv_address
from pages.conv import scenes
from pages.conv.backward import address as backward_address
from pages.conv.fft import address as fft_address
from pages.conv.winograd import address as winograd_address
from pages.fusion import address as fusion_address
from pages.gemm import address as gemm_address
from pages.gemm.scene import gemm
from pages.hopper import address as hopper_address
from pages.layers import address as layers_address
from pages.memory import address as memory_address
from pages.offload import address as offload_address
from pages.parallel import address as parallel_address
from pages.parts.query import explored
from pages.parts.tiles import SelectedRung
from pages.precision import address as precision_address
from pages.softmax import address as softmax_address
from pages.train import address as train_address
from pages.transfers import address as transfers_address
from visuals.scene.scene import Scene, required

Params = Mapping[str, str]


@dataclass(frozen=True)
class Teaser:
    """A moment of a lesson: the scene that its page plays at `params`, at a step."""

    page: str
    scene: Callable[[Params], Scene]
    params: Params = field(default_factory=dict)
    step: int = 0

    def query(self) -> dict[str, str]:
        """Returns the URL parameters at which the lesson shows this moment, in Explore."""
        return explored(dict(self.params) | ({"step": str(self.step)} if self.step else {}))

    def build_scene(self) -> Scene:
        return self.scene(self.params)


def threads(params: Params) -> Scene:
    """Returns the scene that the page memory/page.py plays at `params`."""
    topic = memory_address.topic(params)
    return memory_address.scene(topic, memory_address.fields(topic).read(params)[0])


def im2col(params: Params) -> Scene:
    """Returns the scene that the page conv/im2col.py plays at `params`."""
    return scenes.im2col(conv_address.read(params)[0].inputs(), params.get("order", "explaining"))[0]


def direct(params: Params) -> Scene:
    """Returns the scene that the page conv/direct.py plays at `params`."""
    return scenes.direct(conv_address.read(params)[0].inputs(), params.get("order", "explaining"))[0]


def fft(params: Params) -> Scene:
    """Returns the scene that the page conv/fft/page.py plays at `params`."""
    rung, inputs = (
        fft_address.RUNGS[params.get("rung", next(iter(fft_address.RUNGS)))],
        conv_address.read(params)[0].inputs(),
    )
    room, order = params.get("room", fft_address.PADDINGS[0]), params.get("order", fft_address.EXPLAINING)
    return required(fft_address.scene(inputs, SelectedRung(rung, rung.default_tiles), room, order))


def tiling(params: Params) -> Scene:
    """Returns the scene that the page gemm/page.py plays at `params`, if the rung supports them."""
    selection, _ = gemm_address.read(params)
    order = params.get("order", "explaining")
    return required(gemm(selection.shape, selection.rung.name, tuple(selection.tiles.items()), order))


FIRST = Teaser("conv/im2col.py", im2col, {"order": "library"})
TEASERS = (
    Teaser("memory/page.py", threads, {}, 2),
    Teaser("gemm/page.py", tiling, {"M": "16", "N": "16", "K": "16", "BM": "8", "BN": "8", "BK": "8"}, 5),
    Teaser("hopper/page.py", hopper_address.scene_at, {}, 10),
    Teaser(
        "conv/direct.py",
        direct,
        {"picture": "numbers", "dilation_h": "2", "dilation_w": "2", "pad_h": "1", "pad_w": "1"},
        7,
    ),
    Teaser("conv/im2col.py", im2col, {"picture": "numbers"}, 14),
    Teaser("conv/winograd/page.py", winograd_address.scene_at, {"order": "nested", "picture": "numbers"}, 12),
    Teaser("conv/fft/page.py", fft, {"picture": "numbers"}, 6),
    Teaser("conv/backward/page.py", backward_address.scene_at, {}, 12),
    Teaser("softmax/page.py", softmax_address.scene_at, {}, 3),
    Teaser("layers/page.py", layers_address.scene_at, {"layer": "max-pool", "pass": "backward"}, 4),
    Teaser("train/page.py", train_address.scene_at, {}, 24),
    Teaser("precision/page.py", precision_address.scene_at, {"topic": "gradients"}, 12),
    Teaser("attention/page.py", attention_address.scene_at, {}, 11),
    Teaser("attention/backward/page.py", attention_backward_address.scene_at, {"order": "memory"}, 9),
    Teaser("fusion/page.py", fusion_address.scene_at, {"chain": " ".join(("add", "relu", "maxpool:2"))}, 3),
    Teaser("transfers/page.py", transfers_address.scene_at, {"scenario": "pieces", "n": "4"}, 12),
    Teaser("offload/page.py", offload_address.scene_at, {"n": "512", "copies": "pinned"}, 3),
    Teaser("collectives/page.py", collectives_address.scene_at, {"ranks": "3", "elements": "6"}, 3),
    Teaser("parallel/page.py", parallel_address.scene_at, {"network": "lenet5", "gpus": "2", "batch": "4096"}, 12),
)
BY_PAGE = {teaser.page: teaser for teaser in TEASERS}
