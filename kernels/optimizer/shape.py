"""Shapes of an optimiser's step: the sizes of the tensors that it updates, and its factors."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from functools import lru_cache
from itertools import groupby
from typing import ClassVar, TypeVar

from kernels.i18n import tr
from kernels.model.launch import ceil
from kernels.model.shape import INT_MAX, Shape, ShapeError, factor, integer, parse

MAX_TENSORS = 512
ALIGNMENT = 64  # elements: each tensor begins at a multiple of 256 bytes, as cudaMalloc gives
CHUNK = 4096  # elements that one block updates: a multiple of every block's turn
MIN_EPS = 1e-12
_SIZE = re.compile(r"([0-9]{1,10})(?:\*([0-9]{1,10}))?")
Range = tuple[int, int]  # where a tensor or a chunk begins in the allocation, and its elements


@lru_cache(maxsize=256)
def parse_sizes(text: str) -> tuple[int, ...]:
    """Returns the elements of each tensor of "150 6 768*2": one of 150, one of 6, two of 768. ShapeError if the text is
    malformed."""
    sizes: list[int] = []
    for word in text.split():
        found = _SIZE.fullmatch(word)
        if not found or not word.isascii():
            raise ShapeError(
                tr(
                    "sizes are numbers of elements, and SIZE*TIMES for equal tensors, with blanks between; got {word}",
                    word=repr(word[:24]),
                )
            )
        times = integer("TIMES", int(found[2] or 1), 1, MAX_TENSORS)
        sizes += [integer("SIZE", int(found[1]), 1)] * times
        if len(sizes) > MAX_TENSORS:
            raise ShapeError(tr("sizes must name at most {limit} tensors", limit=MAX_TENSORS))
    if not sizes:
        raise ShapeError(tr("sizes must name at least one tensor"))
    if sum(map(_padded, sizes)) > INT_MAX - CHUNK:
        raise ShapeError(tr("all tensors together must stay below 2^31 − {chunk} elements", chunk=CHUNK))
    return tuple(sizes)


def sizes_text(sizes: tuple[int, ...]) -> str:
    """Returns the shortest text of these sizes: equal neighbours as SIZE*TIMES."""
    counted = ((size, len(list(group))) for size, group in groupby(sizes))
    return " ".join(f"{size}*{times}" if times > 1 else f"{size}" for size, times in counted)


def _padded(size: int) -> int:
    return ALIGNMENT * ceil(size, ALIGNMENT)


@dataclass(frozen=True)
class OptimizerShape(Shape):
    """Tensors of these sizes, float32, in one allocation for the weights and one of the same layout for each other array.

    `sizes` is text, as in a link: "150 6 768*2". Raises ShapeError, which names the broken rule.
    """

    ARRAYS: ClassVar[int] = 0  # that are read or written per element, each access counted
    OPERATIONS: ClassVar[int] = 0  # FLOPs per element; a root and a division count as one each

    sizes: str

    def __post_init__(self):
        if not isinstance(self.sizes, str):
            raise ShapeError(tr("sizes must be text, got {value}", value=repr(self.sizes)))
        object.__setattr__(self, "sizes", sizes_text(parse_sizes(self.sizes)))

    @property
    def counts(self) -> tuple[int, ...]:
        """Returns the elements of each tensor."""
        return parse_sizes(self.sizes)

    @property
    def elements(self) -> int:
        return sum(self.counts)

    @property
    def macs(self) -> int:
        """Measure of the work."""
        return self.elements

    @property
    def tensors(self) -> tuple[Range, ...]:
        """Returns where each tensor begins in the allocation, and its elements."""
        return _tensors(self.sizes)

    @property
    def extent(self) -> int:
        """Returns the elements of the allocation: the tensors and the gaps between them."""
        return sum(map(_padded, self.counts))

    @property
    def chunks(self) -> tuple[Range, ...]:
        """Returns where each chunk begins, and its elements: at most CHUNK elements of one tensor."""
        return _chunks(self.sizes)

    @property
    def flops(self) -> int:
        return self.OPERATIONS * self.elements

    @property
    def bytes(self) -> int:
        """Minimum traffic in bytes: the gradient read once, every other array read and written once."""
        return 4 * self.ARRAYS * self.elements

    def __str__(self) -> str:
        count = len(self.counts)
        return f"{count} tensors, {self.elements:,} elements" if count > 6 else self.sizes


@lru_cache(maxsize=64)
def _tensors(sizes: str) -> tuple[Range, ...]:
    found, first = [], 0
    for size in parse_sizes(sizes):
        found.append((first, size))
        first += _padded(size)
    return tuple(found)


@lru_cache(maxsize=64)
def _chunks(sizes: str) -> tuple[Range, ...]:
    return tuple((first + at, min(CHUNK, size - at)) for first, size in _tensors(sizes) for at in range(0, size, CHUNK))


def rate(name: str, value: object) -> float:
    """Returns a finite factor of 0 or more."""
    number = factor(name, value)
    if number < 0:
        raise ShapeError(tr("{name} must not be below 0, got {number}", name=name, number=number))
    return number


def decay(name: str, value: object) -> float:
    """Returns the factor of a running average, 0 <= factor < 1."""
    number = rate(name, value)
    if number >= 1:
        raise ShapeError(tr("{name} must be below 1, got {number}", name=name, number=number))
    return number


@dataclass(frozen=True)
class SgdShape(OptimizerShape):
    """SGD with momentum, as torch.optim.SGD without dampening and Nesterov's variant, for every element:

    g' = g + weight_decay * w, v = momentum * v + g', w = w - lr * v.
    """

    ARRAYS: ClassVar[int] = 5  # g; w and v twice
    OPERATIONS: ClassVar[int] = 6

    lr: float = 0.01
    momentum: float = 0.9
    weight_decay: float = 0.0

    def __post_init__(self):
        super().__post_init__()
        self._check(("lr", "weight_decay"), rate)
        self._check(("momentum",), decay)
        if not self.momentum:
            raise ShapeError(tr("momentum must be above 0: without it there is no array v"))


@dataclass(frozen=True)
class AdamShape(OptimizerShape):
    """Adam (arXiv 1412.6980) as torch.optim.Adam, for every element, at step t = `step`, counted from 1:

    g' = g + weight_decay * w, m = beta1 * m + (1 - beta1) * g', v = beta2 * v + (1 - beta2) * g'^2,
    w = w - lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps).
    """

    ARRAYS: ClassVar[int] = 7  # g; w, m and v twice
    OPERATIONS: ClassVar[int] = 15

    step: int = 1
    lr: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0

    def __post_init__(self):
        super().__post_init__()
        self._check(("step",), integer, 1)
        self._check(("lr", "weight_decay", "eps"), rate)
        self._check(("beta1", "beta2"), decay)
        if self.eps < MIN_EPS:
            raise ShapeError(tr("eps must be at least {limit}, got {eps}", limit=MIN_EPS, eps=self.eps))

    @property
    def corrections(self) -> tuple[float, float]:
        """Returns 1 - beta1^t and 1 - beta2^t: m and v began as 0 and are too small by these factors."""
        return 1 - self.beta1**self.step, 1 - self.beta2**self.step


Parsed = TypeVar("Parsed", bound=OptimizerShape)


def parser(cls: type[Parsed]) -> Callable[[str], Parsed]:
    """Returns a function that parses "sizes=150 6 768*2,lr=0.1" into the shape. It raises ShapeError if the text is
    malformed."""
    names = [f.name for f in fields(cls)]
    needed = [f.name for f in fields(cls) if f.default is MISSING]
    floats = tuple(f.name for f in fields(cls) if isinstance(f.default, float))
    return lambda text: cls(**parse(text, names, needed, text_fields=("sizes",), float_fields=floats))
