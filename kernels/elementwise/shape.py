"""Shapes of elementwise layers and their gradients: maps [N, C, P, Q] of float32, one class per ladder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import ClassVar, TypeVar

from kernels.i18n import tr
from kernels.model.launch import ceil
from kernels.model.shape import INT_MAX, Shape, ShapeError, integer, one_of, parse

EXTENTS = ("N", "C", "P", "Q")
OUTPUT, BYTES, BITS = KEPT = ("y", "bytes", "bits")  # what ReLU keeps for its backward pass
ERF, TANH = FORMS = ("erf", "tanh")  # how GELU is computed
NCHW, NHWC = LAYOUTS = ("nchw", "nhwc")
WORD = 32  # bits of a word of a mask


@dataclass(frozen=True)
class MapsShape(Shape):
    """N images of C maps with P rows and Q columns, float32. Raises ShapeError, which names the broken rule."""

    PASSES: ClassVar[int] = 2  # how often an element is read or written at least
    OPERATIONS: ClassVar[int] = 1  # FLOPs per element; a comparison counts as one

    N: int
    C: int
    P: int
    Q: int

    def __post_init__(self):
        self._check(EXTENTS, integer, 1)
        if self.elements > INT_MAX:
            raise ShapeError(tr("N*C*P*Q must stay below 2^31, got {count}", count=f"{self.elements:,}"))

    @property
    def elements(self) -> int:
        return self.N * self.C * self.P * self.Q

    @property
    def macs(self) -> int:
        """Measure of the work."""
        return self.elements

    @property
    def maps(self) -> tuple[int, int, int, int]:
        """Returns the extents of a tensor in the order of memory."""
        return self.N, self.C, self.P, self.Q

    @property
    def flops(self) -> int:
        return self.OPERATIONS * self.elements

    @property
    def bytes(self) -> int:
        """Minimum traffic in bytes: each tensor read or written once."""
        return 4 * self.PASSES * self.elements

    def __str__(self) -> str:
        return f"N{self.N} C{self.C} {self.P}x{self.Q}"


@dataclass(frozen=True)
class ReluShape(MapsShape):
    """y = max(x, 0). `keep` is what the backward pass gets: y itself, or a mask of `bytes` or of `bits`."""

    keep: str = OUTPUT

    def __post_init__(self):
        super().__post_init__()
        self._check(("keep",), one_of, KEPT)

    @property
    def mask_bytes(self) -> int:
        """Returns the bytes of the mask; 0 if y is kept."""
        return {OUTPUT: 0, BYTES: self.elements, BITS: 4 * self.words}[self.keep]

    @property
    def words(self) -> int:
        """Returns the 32-bit words of a mask of bits."""
        return ceil(self.elements, WORD)

    @property
    def bytes(self) -> int:
        return super().bytes + self.mask_bytes

    def __str__(self) -> str:
        return f"{super().__str__()} keep {self.keep}"


@dataclass(frozen=True)
class ReluBackwardShape(ReluShape):
    """dx = dy where x > 0, else 0, from what ReLU kept."""

    @property
    def bytes(self) -> int:
        return super().bytes + (4 * self.elements if self.keep == OUTPUT else 0)


@dataclass(frozen=True)
class GeluShape(MapsShape):
    """y = x times the share of normal numbers below x (arXiv 1606.08415). `form`: exact by erf, or approximated by tanh. An
    erf, a tanh and an exponential count as one operation each."""

    FORM_OPERATIONS: ClassVar[Mapping[str, int]] = {ERF: 5, TANH: 9}

    form: str = ERF

    def __post_init__(self):
        super().__post_init__()
        self._check(("form",), one_of, FORMS)

    @property
    def flops(self) -> int:
        return self.FORM_OPERATIONS[self.form] * self.elements

    def __str__(self) -> str:
        return f"{super().__str__()} {self.form}"


@dataclass(frozen=True)
class GeluBackwardShape(GeluShape):
    """dx = dy times the slope of GELU at x, which is kept: y does not say which x it came from."""

    PASSES: ClassVar[int] = 3
    FORM_OPERATIONS: ClassVar[Mapping[str, int]] = {ERF: 11, TANH: 18}


@dataclass(frozen=True)
class BiasShape(MapsShape):
    """y[n, c, p, q] = x[n, c, p, q] + b[c]. `layout` is the order in memory. Rows of C numbers are nhwc with P = Q = 1."""

    layout: str = NCHW

    def __post_init__(self):
        super().__post_init__()
        self._check(("layout",), one_of, LAYOUTS)

    @property
    def maps(self) -> tuple[int, int, int, int]:
        nhwc = self.N, self.P, self.Q, self.C
        return super().maps if self.layout == NCHW else nhwc

    @property
    def inner(self) -> int:
        """Returns the elements of one channel that are neighbours in memory."""
        return self.P * self.Q if self.layout == NCHW else 1

    @property
    def per_channel(self) -> int:
        return self.N * self.P * self.Q

    @property
    def axes(self) -> tuple[int, int, int]:
        """Returns the axes of a tensor over which the gradient of b is a sum."""
        return (0, 2, 3) if self.layout == NCHW else (0, 1, 2)

    @property
    def bytes(self) -> int:
        return super().bytes + 4 * self.C

    def __str__(self) -> str:
        return f"{super().__str__()} {self.layout}"


@dataclass(frozen=True)
class BiasBackwardShape(BiasShape):
    """db[c] = the sum over n, p and q of dy[n, c, p, q]."""

    PASSES: ClassVar[int] = 1


@dataclass(frozen=True)
class ResidualShape(MapsShape):
    """y = max(a + b, 0): the end of a residual block, a of its branch and b of its shortcut."""

    PASSES: ClassVar[int] = 3
    OPERATIONS: ClassVar[int] = 2


@dataclass(frozen=True)
class ResidualBackwardShape(MapsShape):
    """g = dy where y > 0, else 0; da = g and db += g: db holds the gradient of another use of b."""

    PASSES: ClassVar[int] = 5
    OPERATIONS: ClassVar[int] = 2


Parsed = TypeVar("Parsed", bound=MapsShape)


def parser(cls: type[Parsed]) -> Callable[[str], Parsed]:
    """Returns a function that parses "N=2,C=3,P=4,Q=5" into the shape. It raises ShapeError if the text is malformed."""
    names = [f.name for f in fields(cls)]
    needed = [f.name for f in fields(cls) if f.default is MISSING]
    texts = tuple(name for name in names if name not in EXTENTS)
    return lambda text: cls(**parse(text, names, needed, text_fields=texts))
