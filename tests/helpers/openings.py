"""Every page of the app at every preset: the file of the page and its URL parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from kernels.conv.presets import CONV_LAYER_PRESETS, CONV_PRESETS
from pages.attention import address as attention_address
from pages.conv.choose import address as choose_address
from pages.fusion import address as fusion_address
from pages.gemm import address as gemm_address
from pages.memory import address as memory_address
from pages.softmax import address as softmax_address

CONVOLUTIONS = (
    "conv/direct.py",
    "conv/im2col.py",
    "conv/implicit/page.py",
    "conv/winograd/page.py",
    "conv/fft/page.py",
)
LADDERS = {
    "gemm/page.py": gemm_address.ADDRESS,
    "softmax/page.py": softmax_address.ADDRESS,
    "attention/page.py": attention_address.ADDRESS,
    "fusion/page.py": fusion_address.ADDRESS,
}


class Opening(NamedTuple):
    page: str
    key: str  # of the preset
    params: Mapping[str, Any]
    shape: Any = None  # that Run measures; None if the page has none

    def __str__(self) -> str:
        return f"{self.page.removesuffix('.py')}-{self.key}"


def openings() -> list[Opening]:
    return [*_small(), *_convolutions(), *_choices(), *_ladders()]


def _small() -> Iterator[Opening]:
    yield Opening("home.py", "first", {})
    yield Opening("history/page.py", "empty", {})
    for topic, fields in memory_address.TOPIC_FIELDS.items():
        for name in ("mapping", "row", "along"):
            for value in getattr(fields.get(name), "choices", ()):
                yield Opening("memory/page.py", f"{topic}-{value}", {"topic": topic, name: value})
    yield Opening("memory/page.py", "coalescing", {"topic": "coalescing"})


def _convolutions() -> Iterator[Opening]:
    for page in CONVOLUTIONS:
        for key, preset in CONV_PRESETS.items():
            yield Opening(page, key, preset.shape.params(), preset.shape)


def _choices() -> Iterator[Opening]:
    for key, preset in (CONV_PRESETS | CONV_LAYER_PRESETS).items():
        yield Opening("conv/choose/page.py", key, choose_address.at_shape(preset.shape, choose_address.SHOW))
    yield Opening("conv/choose/page.py", "unguessed", {})


def _ladders() -> Iterator[Opening]:
    for page, address in LADDERS.items():
        default, _ = address.read({})
        for key, preset in address.ladder.presets.items():
            yield Opening(page, key, address.at_shape(default, preset.shape), preset.shape)
