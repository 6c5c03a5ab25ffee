"""The operations of a first convolution, counted in two ways: multiply-adds, and multiplications and additions."""

from __future__ import annotations

from collections.abc import Iterator

from kernels.conv.presets import CONV_PRESETS
from kernels.conv.shape import ConvShape
from kernels.i18n import decimal, tr
from kernels.training.graph import FORWARD
from visuals import units
from visuals.training.evidence import StepEvidence

RESNET = CONV_PRESETS["resnet50-conv1-n1"].shape


def first_convolution(found: StepEvidence) -> ConvShape | None:
    """Returns the first convolution of a network for one image, or None if it has none."""
    nodes = (node for node in found.plan.graph.nodes if node.phase == FORWARD)
    return next((node.shape.with_(N=1, bias=0) for node in nodes if isinstance(node.shape, ConvShape)), None)


def product(s: ConvShape) -> str:
    """Returns the factors of the multiply-adds of one image: filters, depth, window, outputs."""
    return f"{s.K}·{s.C}·{s.R}·{s.S}·{s.P}·{s.Q}"


def rows(found: StepEvidence) -> Iterator[tuple[str, str, str, str]]:
    """Yields name, factors, multiply-adds and FLOPs of ResNet's first convolution and of the network's, for one image, then
    for the images of a step."""
    named = [(tr("ResNet-50, one image"), RESNET)]
    if own := first_convolution(found):
        named += [(tr("{network}, one image", network=found.title), own)]
        named += [(tr("{network}, {n} images", network=found.title, n=found.batch), own.with_(N=found.batch))]
    for name, s in named:
        factors = f"{s.N}·{product(s)}" if s.N > 1 else product(s)
        yield name, factors, decimal(f"{s.macs:,}"), decimal(f"{s.flops:,}")


def explained() -> str:
    """Returns where the literature's figure comes from."""
    return tr(
        "{product} = {macs}: {filters} filters, each {C} × {R} × {S}, at {P} × {Q} places. That is 1.2 · 10⁸. Each multiply-add "
        "is one multiplication and one addition, so our figure is twice as large: {flops}.",
        product=product(RESNET),
        macs=decimal(f"{RESNET.macs:,}"),
        filters=RESNET.K,
        C=RESNET.C,
        R=RESNET.R,
        S=RESNET.S,
        P=RESNET.P,
        Q=RESNET.Q,
        flops=units.count(RESNET.flops),
    )
