"""Shapes of 8-bit products: squares, one with ragged tiles, and the layers of a large language model."""

from __future__ import annotations

from kernels.gemm.eight_bit.shape import FP8, INT8, EightBitShape
from kernels.i18n import mark
from kernels.model.preset import Preset

NAMES = {INT8: "INT8", FP8: "FP8"}


def _preset(key: str, label: str, extents: tuple[int, int, int], dtype: str, source: str) -> Preset:
    shape = EightBitShape(*extents, dtype)
    return Preset(f"8bit-{key}-{dtype}", f"{label} {NAMES[dtype]}", shape, source)


EIGHT_BIT_PRESETS: dict[str, Preset] = {
    preset.key: preset
    for dtype in (INT8, FP8)
    for preset in (
        _preset("64", "64³", (64, 64, 64), dtype, mark("small: the emulator runs every kernel at this size")),
        _preset(
            "odd",
            "72×80×208",
            (72, 80, 208),
            dtype,
            mark("a multiple of no tile size: the last tiles are partly empty"),
        ),
        _preset(
            "4096",
            "4096³",
            (4096, 4096, 4096),
            dtype,
            mark("square, the size at which GEMM kernels are usually compared"),
        ),
        _preset(
            "8192", "8192³", (8192, 8192, 8192), dtype, mark("square, large enough to fill a large GPU many times")
        ),
        _preset(
            "llama-up",
            "Llama 3 8B MLP up",
            (4096, 14_336, 4096),
            dtype,
            mark("Llama 3 8B (arXiv 2407.21783), 4,096 tokens, width 4,096: the first product of the MLP"),
        ),
    )
}
