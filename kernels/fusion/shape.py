"""A chain of blocks on maps [N, C, H, W], float32, as networks for pictures are made of: convolution, bias, batch norm,
ReLU, addition, pooling.

The chain is text, as it stands in a link: "conv:K=8:R=3 bias bn relu add maxpool:2 gap". Blocks stand in the order they
are applied, apart by blanks; what a block is told follows it behind colons (OPTIONS), its first number without a name.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

from kernels.model import numerals
from kernels.model.shape import INT_MAX, Shape, ShapeError, integer, parse

MOST_BLOCKS = 8
MOST_WINDOW = 1024  # of R, stride and pad
POINTWISE = ("bias", "bn", "relu", "add")  # each value by itself
REDUCING = ("conv", "maxpool", "avgpool", "gap")  # a value from its neighbours
KINDS = (*POINTWISE, *REDUCING)
EPS, LEAST_EPS = 1e-5, 1e-12  # of batch norm
SAME = -1  # the pad of a convolution that keeps the size at stride 1: (R - 1) / 2
# What a block may be told, in order, and what holds where it is not; None: it must be told.
_POOL = {"R": None, "stride": 0, "pad": 0}  # stride 0: the window's size
OPTIONS: dict[str, dict[str, float | None]] = {
    "conv": {"K": None, "R": None, "stride": 1, "pad": SAME},
    "bias": {},
    "bn": {"eps": EPS},
    "relu": {},
    "add": {},
    "maxpool": _POOL,
    "avgpool": _POOL,
    "gap": {},
}
# What a block reads beside the maps.
TENSORS = {"conv": ("w",), "bias": ("b",), "bn": ("gamma", "beta", "mean", "var"), "add": ("z",)}
OPERATIONS = {"bias": 1, "bn": 3, "relu": 1, "add": 1}  # FLOPs a value; ReLU's comparison counts as one
FIELDS = ("N", "C", "H", "W", "chain")
Extents = tuple[int, int, int, int]  # N, C, H, W


@dataclass(frozen=True)
class Block:
    """One block. `kind` is of KINDS. A convolution has K filters R x R, a pool windows R x R; both move by `stride` and
    have `pad` rows and columns around the map: zeros, or for maxpool nothing. `eps` is batch norm's."""

    kind: str
    K: int = 0
    R: int = 1
    stride: int = 1
    pad: int = 0
    eps: float = 0.0

    @property
    def pointwise(self) -> bool:
        return self.kind in POINTWISE

    def __str__(self) -> str:
        """As it stands in a chain; what is as usual is left out."""
        if self.kind == "conv":
            told = f"conv:K={self.K}:R={self.R}" + (f":stride={self.stride}" if self.stride != 1 else "")
            same = self.R % 2 and self.pad == self.R // 2
            return told + ("" if same else f":pad={self.pad}")
        if self.kind in ("maxpool", "avgpool"):
            told = f"{self.kind}:{self.R}" + (f":stride={self.stride}" if self.stride != self.R else "")
            return told + (f":pad={self.pad}" if self.pad else "")
        return self.kind + (f":eps={self.eps:g}" if self.kind == "bn" and self.eps != EPS else "")


@dataclass(frozen=True)
class Stage:
    """A block in its place in a chain: number `at` (from 0), maps `before` and `after` it as (N, C, H, W)."""

    at: int
    block: Block
    before: Extents
    after: Extents

    @property
    def tensors(self) -> dict[str, tuple[int, ...]]:
        """What the block reads beside the maps, by name: shape. w [K, C, R, R]; b [C]; gamma, beta, mean, var [C];
        z [N, C, H, W]."""
        b, (_, C, _, _) = self.block, self.before
        shapes = {"w": (b.K, C, b.R, b.R), "z": self.before}
        return {name: shapes.get(name, (C,)) for name in TENSORS.get(b.kind, ())}

    @property
    def flops(self) -> int:
        """Operations of the block alone: two to a multiply-add, padding counted as if it were there."""
        kind, R, (_, C, _, _) = self.block.kind, self.block.R, self.before
        if kind == "gap":
            return math.prod(self.before)
        each = {"conv": 2 * C * R * R, "maxpool": R * R, "avgpool": R * R} | OPERATIONS
        return math.prod(self.after) * each[kind]


# -- from text ---------------------------------------------------------------------------------------------
@lru_cache(maxsize=1024)
def blocks(chain: str) -> tuple[Block, ...]:
    """The blocks of a chain's text. ShapeError names the rule that one breaks."""
    words = chain.split()
    if not 1 <= len(words) <= MOST_BLOCKS:
        raise ShapeError(f"a chain has 1 to {MOST_BLOCKS} blocks, got {len(words)}")
    return tuple(_block(n, word) for n, word in enumerate(words, 1))


def _block(n: int, word: str) -> Block:
    kind, *told = word.split(":")
    where = f"block {n} ({kind})"
    if kind not in OPTIONS:
        raise ShapeError(f"block {n} must be one of {', '.join(KINDS)}, got {kind!r}")
    usual, given = OPTIONS[kind], {}
    for i, part in enumerate(told):
        name, equals, value = part.partition("=")
        if not equals:  # the first number needs no name
            name, value = (next(iter(usual), ""), part) if i == 0 else ("", part)
        if name not in usual:
            takes = ", ".join(usual) or "nothing"
            raise ShapeError(f"{where} takes {takes}; got {part!r}")
        if name in given:
            raise ShapeError(f"{where}: {name} is given twice")
        given[name] = _number(where, name, value)
    if missing := [name for name, value in usual.items() if value is None and name not in given]:
        raise ShapeError(f"{where} needs {', '.join(missing)}")
    return _checked(where, Block(kind, **(usual | given)))


def _number(where: str, name: str, text: str) -> float:
    kind = "number" if name == "eps" else "whole number"
    number = numerals.real(text) if name == "eps" else numerals.whole(text)
    if number is None:
        raise ShapeError(f"{where}: {name} must be a {kind}, got {text!r}")
    if name != "eps":
        most = INT_MAX if name == "K" else MOST_WINDOW
        return integer(f"{where}: {name}", number, 0 if name == "pad" else 1, most)
    if not LEAST_EPS <= number <= 1:
        raise ShapeError(f"{where}: eps must lie in {LEAST_EPS:g} .. 1, got {number:g}")
    return number


def _checked(where: str, b: Block) -> Block:
    """The block with what it was not told filled in."""
    if b.kind == "conv" and b.pad == SAME:
        if b.R % 2 == 0:
            raise ShapeError(f"{where}: R must be odd where no pad is given, got {b.R}")
        return replace(b, pad=b.R // 2)
    if b.kind == "conv" and b.pad >= b.R:
        raise ShapeError(f"{where}: pad < R, got {b.pad} >= {b.R}")
    if b.kind in ("maxpool", "avgpool"):
        if 2 * b.pad > b.R:
            raise ShapeError(f"{where}: 2*pad <= R, got 2*{b.pad} > {b.R}")
        return replace(b, stride=b.stride or b.R)
    return b


@lru_cache(maxsize=1024)
def _stages(before: Extents, chain: str) -> tuple[Stage, ...]:
    found = []
    for at, b in enumerate(blocks(chain)):
        after = _after(f"block {at + 1} ({b.kind})", b, before)
        found.append(Stage(at, b, before, after))
        before = after
    return tuple(found)


def _after(where: str, b: Block, before: Extents) -> Extents:
    N, C, H, W = before
    if b.pointwise:
        return before
    if b.kind == "gap":
        return N, C, 1, 1
    for name, extent in (("H", H), ("W", W)):
        if extent + 2 * b.pad < b.R:
            raise ShapeError(
                f"{where}: its window must fit the padded map, R <= {name}+2*pad; "
                f"there {name} is {extent}, and {b.R} > {extent + 2 * b.pad}"
            )
    P, Q = ((extent + 2 * b.pad - b.R) // b.stride + 1 for extent in (H, W))
    return N, b.K or C, P, Q


# -- the shape -----------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class ChainShape(Shape):
    """Maps x [N, C, H, W], float32, and the chain of blocks that they go through (see the module's words).

    Two texts that say the same make equal shapes. Raises ShapeError naming the rule that is broken.
    """

    N: int
    C: int
    H: int
    W: int
    chain: str

    def __post_init__(self):
        self._check("NCHW", integer, 1)
        if not isinstance(self.chain, str):
            raise ShapeError(f"chain must be text, got {self.chain!r}")
        object.__setattr__(self, "chain", " ".join(map(str, blocks(self.chain))))
        _stages(self.x_shape, self.chain)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Every block in its place, with the maps before and after it."""
        return _stages(self.x_shape, self.chain)

    @property
    def blocks(self) -> tuple[Block, ...]:
        return blocks(self.chain)

    @property
    def x_shape(self) -> Extents:
        return self.N, self.C, self.H, self.W

    @property
    def y_shape(self) -> Extents:
        return self.stages[-1].after

    @property
    def tensors(self) -> tuple[dict[str, str], ...]:
        """For each block its tensors: the name in Stage.tensors -> the name of the chain's input. The second of a
        kind is told apart by a number: "gamma_2"."""
        return named(list(stage.tensors) for stage in self.stages)

    @property
    def flops(self) -> int:
        return sum(stage.flops for stage in self.stages)

    @property
    def macs(self) -> int:
        """What the work grows with: two FLOPs to one, at least 1."""
        return max(1, self.flops // 2)

    @property
    def elements(self) -> dict[str, int]:
        """Numbers in each input and in the output, by name."""
        inputs = {
            name: math.prod(stage.tensors[tensor])
            for stage, names in zip(self.stages, self.tensors, strict=True)
            for tensor, name in names.items()
        }
        return {"x": math.prod(self.x_shape), **inputs, "y": math.prod(self.y_shape)}

    @property
    def bytes(self) -> int:
        """Least traffic in bytes: every input read once, the output written once, nothing in between."""
        return 4 * sum(self.elements.values())

    def __str__(self) -> str:
        return f"N{self.N} C{self.C} {self.H}x{self.W} {self.chain}"


def named(of_blocks) -> tuple[dict[str, str], ...]:
    """Names of tensors, block by block, each made the only one of its name: b, b_2, b_3."""
    seen: dict[str, int] = {}
    out = []
    for names in of_blocks:
        told = {}
        for name in names:
            seen[name] = seen.get(name, 0) + 1
            told[name] = name if seen[name] == 1 else f"{name}_{seen[name]}"
        out.append(told)
    return tuple(out)


def parse_chain(text: str) -> ChainShape:
    """ChainShape from "N=1,C=2,H=4,W=4,chain=conv:K=2:R=3 bias relu"; ShapeError where it is malformed."""
    return ChainShape(**parse(text, FIELDS, FIELDS, words=("chain",)))
