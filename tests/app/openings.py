"""Every page of the app at every preset, as a reader reaches it: the file of the page and the parameters of its address."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from kernels.presets import CONV_LAYER_PRESETS, CONV_PRESETS
from pages import _attention, _choose, _fusion, _gemm, _softmax, _threads

CONVOLUTIONS = ("direct.py", "im2col.py", "implicit.py", "winograd.py", "fft.py")
LADDERS = {
    "tiling.py": _gemm.ADDRESS,
    "softmax.py": _softmax.ADDRESS,
    "attention.py": _attention.ADDRESS,
    "fusion.py": _fusion.ADDRESS,
}


class Opening(NamedTuple):
    page: str
    key: str  # of the preset
    params: Mapping[str, Any]
    shape: Any = None  # that Run measures; None where the page has none of its own

    def __str__(self) -> str:
        return f"{self.page.removesuffix('.py')}-{self.key}"


def openings() -> list[Opening]:
    return [*_small(), *_convolutions(), *_choices(), *_ladders()]


def _small() -> Iterator[Opening]:
    yield Opening("home.py", "first", {})
    yield Opening("history.py", "empty", {})
    for topic, fields in _threads.OF.items():
        for name in ("mapping", "row", "along"):
            for value in getattr(fields.get(name), "choices", ()):
                yield Opening("threads.py", f"{topic}-{value}", {"topic": topic, name: value})
    yield Opening("threads.py", "coalescing", {"topic": "coalescing"})


def _convolutions() -> Iterator[Opening]:
    for page in CONVOLUTIONS:
        for key, preset in CONV_PRESETS.items():
            yield Opening(page, key, preset.shape.params(), preset.shape)


def _choices() -> Iterator[Opening]:
    for key, preset in (CONV_PRESETS | CONV_LAYER_PRESETS).items():
        yield Opening("choose.py", key, _choose.at(preset.shape, _choose.OPEN))
    yield Opening("choose.py", "unguessed", {})


def _ladders() -> Iterator[Opening]:
    for page, address in LADDERS.items():
        first, _ = address.read({})
        for key, preset in address.ladder.presets.items():
            yield Opening(page, key, address.at_shape(first, preset.shape), preset.shape)
