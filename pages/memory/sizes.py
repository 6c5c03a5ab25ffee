"""The strip's two sizes in the lesson on threads and memory: what the stage shows, and a shape beyond the caches."""

from __future__ import annotations

from kernels.i18n import decimal, tr
from kernels.memory.shape import AddShape, BanksShape, BranchShape, LayoutShape, MemoryShape, StrideShape
from kernels.model.rung import Rung
from kernels.model.shape import Shape
from pages.memory import address
from pages.parts.sizes import Sizes


def sizes(topic: str, values: address.Values) -> Sizes:
    """Returns how the strip names a shape, and the shape that the recordings of this topic have."""
    return Sizes(name, lambda shape: real(topic, values))


def real(topic: str, values: address.Values) -> MemoryShape:
    """Returns the recorded shape with the stage's stride."""
    size = address.SIZES["cuda"]
    if topic == "coalescing":
        return StrideShape(size["stride"], values["stride"])
    if topic == "banks":
        return BanksShape(1 << 18, values["stride"], 64)
    return size[address.TOPICS[topic]]


def stage_rung(topic: str, values: address.Values) -> Rung:
    return address.ladder(topic).rung(address.rung(topic, values))


def name(shape: Shape) -> str:
    """Returns a shape in a few words."""
    match shape:
        case AddShape():
            return f"{_count(shape.M)} × {_count(shape.N)}"
        case StrideShape() | BanksShape():
            return tr("{n} loads with stride {stride}", n=_count(shape.n), stride=shape.stride)
        case BranchShape():
            return tr("{n} threads, {rounds} rounds", n=_count(shape.n), rounds=_count(shape.rounds))
        case LayoutShape():
            return f"N {shape.N}, C {shape.C}, {shape.H}×{shape.W}"
    return str(shape)


def _count(n: int) -> str:
    return decimal(f"{n:,}")
