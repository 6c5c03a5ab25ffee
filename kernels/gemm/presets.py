"""Well-known shapes of matrix products: squares, layers of networks."""

from __future__ import annotations

from kernels.gemm.shape import GemmShape
from kernels.model.preset import Preset

_GPT2 = "GPT-2 small (Radford et al. 2019), 1,024 tokens, width 768"


def _square(n: int, label: str, source: str, dtype: str = "fp32") -> Preset:
    suffix = "" if dtype == "fp32" else f"-{dtype}"
    return Preset(f"square-{n}{suffix}", label, GemmShape(n, n, n, dtype=dtype), source)


def _layer(key: str, label: str, M: int, N: int, K: int, source: str) -> Preset:
    """Returns a preset of Y = X W^T + b as one product: beta is 1 and C0 holds b in each of its rows."""
    return Preset(key, label, GemmShape(M, N, K, beta=1.0), source)


GEMM_PRESETS: dict[str, Preset] = {
    preset.key: preset
    for preset in (
        _square(8, "Toy 8×8", "small enough to follow every number"),
        _square(16, "16×16", "four tiles of 8 x 8"),
        _square(64, "64×64", "what every rung runs in the emulator within a second"),
        Preset("odd", "61×45×37", GemmShape(61, 45, 37), "a multiple of nothing: remainders on every side"),
        _square(1024, "1024³", "square, too small to fill a large GPU with large tiles"),
        _square(4096, "4096³", "square, the size at which GEMM kernels are usually compared"),
        Preset(
            "odd-4095",
            "4095×4097×4093",
            GemmShape(4095, 4097, 4093),
            "4096 missed by one or more: rows do not begin on 16 bytes",
        ),
        Preset("tall", "65536×64×64", GemmShape(65_536, 64, 64), "tall and thin: bound by memory"),
        Preset("deep", "64×64×65536", GemmShape(64, 64, 65_536), "few results, long sums: few blocks have work"),
        _layer(
            "fc-vgg16-fc6", "VGG-16 fc6", 32, 4096, 25_088,
            "VGG-16 (arXiv 1409.1556), the first fully connected layer, batch 32",
        ),
        _layer(
            "fc-resnet50", "ResNet-50 fc", 32, 1000, 2048,
            "ResNet-50 (arXiv 1512.03385), the classifier, batch 32",
        ),
        _layer("gpt2-qkv", "GPT-2 QKV", 1024, 2304, 768, f"{_GPT2}: queries, keys and values at once"),
        _layer("gpt2-mlp-up", "GPT-2 MLP up", 1024, 3072, 768, f"{_GPT2}: into the MLP"),
        _layer("gpt2-mlp-down", "GPT-2 MLP down", 1024, 768, 3072, f"{_GPT2}: out of the MLP"),
        *(
            _square(n, f"{n}³ {name}", f"{'small' if n == 64 else 'the same product'}, A and B in {name}", dtype)
            for dtype, name in (("fp16", "FP16"), ("bf16", "BF16"), ("int8", "INT8"))
            for n in (64, 4096)
        ),
    )
}  # fmt: skip
