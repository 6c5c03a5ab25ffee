"""Well-known shapes of matrix products: squares, layers of networks."""

from __future__ import annotations

from kernels.gemm.shape import GemmShape
from kernels.i18n import mark
from kernels.model.preset import Preset


def _square(n: int, label: str, source: str, dtype: str = "fp32") -> Preset:
    suffix = "" if dtype == "fp32" else f"-{dtype}"
    return Preset(f"square-{n}{suffix}", label, GemmShape(n, n, n, dtype=dtype), source, {"dtype": dtype.upper()})


def _layer(key: str, label: str, M: int, N: int, K: int, source: str) -> Preset:
    """Returns a preset of Y = X W^T + b as one product: beta is 1 and C0 holds b in each of its rows."""
    return Preset(key, label, GemmShape(M, N, K, beta=1.0), source)


def _gpt2(dtype: str) -> tuple[Preset, ...]:
    """Returns the three products of GPT-2 small, whose width is 768, for 1,024 tokens, as `_layer` does."""
    is_fp32 = dtype == "fp32"
    return tuple(
        Preset(
            f"gpt2-{key}" + ("" if is_fp32 else f"-{dtype}"),
            label if is_fp32 else label_16_bits,
            GemmShape(1024, N, K, beta=1.0, dtype=dtype),
            source,
            {"dtype": dtype.upper()},
        )
        for key, label, label_16_bits, N, K, source in (
            (
                "qkv",
                mark("GPT-2 QKV"),
                mark("GPT-2 QKV {dtype}"),
                2304,
                768,
                mark(
                    "GPT-2 small (Radford et al. 2019), 1,024 tokens, width 768: queries, keys and values in one product"
                ),
            ),
            (
                "mlp-up",
                mark("GPT-2 MLP up"),
                mark("GPT-2 MLP up {dtype}"),
                3072,
                768,
                mark("GPT-2 small (Radford et al. 2019), 1,024 tokens, width 768: the first product of the MLP"),
            ),
            (
                "mlp-down",
                mark("GPT-2 MLP down"),
                mark("GPT-2 MLP down {dtype}"),
                768,
                3072,
                mark("GPT-2 small (Radford et al. 2019), 1,024 tokens, width 768: the second product of the MLP"),
            ),
        )
    )


GEMM_PRESETS: dict[str, Preset] = {
    preset.key: preset
    for preset in (
        _square(8, mark("Toy 8×8"), mark("small enough to follow every number")),
        _square(16, "16×16", mark("four tiles of 8 x 8")),
        _square(64, "64×64", mark("the emulator runs every kernel at this size within a second")),
        Preset(
            "odd",
            "61×45×37",
            GemmShape(61, 45, 37),
            mark("a multiple of no tile size: the last tiles are partly empty"),
        ),
        _square(1024, "1024³", mark("square, too small to fill a large GPU with large tiles")),
        _square(4096, "4096³", mark("square, the size at which GEMM kernels are usually compared")),
        Preset(
            "odd-4095",
            "4095×4097×4093",
            GemmShape(4095, 4097, 4093),
            mark("a little less and more than 4096: rows are not aligned to 16 bytes"),
        ),
        Preset("tall", "65536×64×64", GemmShape(65_536, 64, 64), mark("tall and narrow: memory limits it")),
        Preset("deep", "64×64×65536", GemmShape(64, 64, 65_536), mark("few results, long sums: few blocks have work")),
        _layer(
            "fc-vgg16-fc6",
            "VGG-16 fc6",
            32,
            4096,
            25_088,
            mark("VGG-16 (arXiv 1409.1556), the first fully connected layer, batch 32"),
        ),
        _layer(
            "fc-resnet50",
            "ResNet-50 fc",
            32,
            1000,
            2048,
            mark("ResNet-50 (arXiv 1512.03385), the classifier, batch 32"),
        ),
        *_gpt2("fp32"),
        *(
            _square(n, f"{n}³ {dtype.upper()}", source, dtype)
            for dtype in ("fp16", "bf16", "int8")
            for n, source in (
                (64, mark("small, A and B in {dtype}")),
                (4096, mark("the same product, A and B in {dtype}")),
            )
        ),
        *(
            preset
            for dtype in ("fp16", "bf16")
            for preset in (
                _square(
                    8192, f"8192³ {dtype.upper()}", mark("square, large enough to fill a large GPU many times"), dtype
                ),
                *_gpt2(dtype),
            )
        ),
    )
}
