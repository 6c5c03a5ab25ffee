"""A chain of blocks on maps [N, C, H, W], float32, as in convolutional networks: convolution, bias, batch norm,
ReLU, addition, pooling.

The chain is text, as in a link: "conv:K=8:R=3 bias bn relu add maxpool:2 gap". Blocks are in the order in which they
are applied, separated by blanks. A block's options follow after colons (OPTIONS). The first number needs no name.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

from kernels.i18n import tr
from kernels.model import numerals
from kernels.model.row import Json, Row
from kernels.model.shape import INT_MAX, Shape, ShapeError, integer, not_a_number, parse

MAX_BLOCKS = 8
MAX_WINDOW = 1024  # of R, stride and pad
POINTWISE = ("bias", "bn", "relu", "add")  # each result from one value
REDUCING = ("conv", "maxpool", "avgpool", "gap")  # each result from several values
KINDS = (*POINTWISE, *REDUCING)
EPS, MIN_EPS = 1e-5, 1e-12  # of batch norm
KEEP_SIZE = -1  # the pad of a convolution that keeps the size at stride 1: (R - 1) / 2
# A block's options, in order, with their defaults. None: the option is required.
_POOL = {"R": None, "stride": 0, "pad": 0}  # stride 0: the window's size
OPTIONS: dict[str, dict[str, float | None]] = {
    "conv": {"K": None, "R": None, "stride": 1, "pad": KEEP_SIZE},
    "bias": {},
    "bn": {"eps": EPS},
    "relu": {},
    "add": {},
    "maxpool": _POOL,
    "avgpool": _POOL,
    "gap": {},
}
# Tensors that a block reads besides the maps.
TENSORS = {"conv": ("w",), "bias": ("b",), "bn": ("gamma", "beta", "mean", "var"), "add": ("z",)}
OPERATIONS = {"bias": 1, "bn": 3, "relu": 1, "add": 1}  # FLOPs per value; ReLU's comparison counts as one
FIELDS = ("N", "C", "H", "W", "chain")
Extents = tuple[int, int, int, int]  # N, C, H, W


@dataclass(frozen=True)
class Block:
    """One block. `kind` is one of KINDS. A convolution has K filters R x R, a pool has windows R x R.

    Both move by `stride` and have `pad` rows and columns around the map: zeros, ignored by maxpool. `eps` is that of
    batch norm.
    """

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
        """Returns the block's text in a chain, without options that have their default."""
        if self.kind == "conv":
            text = f"conv:K={self.K}:R={self.R}" + (f":stride={self.stride}" if self.stride != 1 else "")
            same = self.R % 2 and self.pad == self.R // 2
            return text + ("" if same else f":pad={self.pad}")
        if self.kind in ("maxpool", "avgpool"):
            text = f"{self.kind}:{self.R}" + (f":stride={self.stride}" if self.stride != self.R else "")
            return text + (f":pad={self.pad}" if self.pad else "")
        return self.kind + (f":eps={self.eps:g}" if self.kind == "bn" and self.eps != EPS else "")


@dataclass(frozen=True)
class Stage:
    """A block at its position in a chain: number `at` (from 0), maps `before` and `after` it as (N, C, H, W)."""

    at: int
    block: Block
    before: Extents
    after: Extents

    @property
    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Shapes, by name, of the tensors that the block reads besides the maps.

        w [K, C, R, R]; b [C]; gamma, beta, mean, var [C]; z [N, C, H, W].
        """
        b, (_, C, _, _) = self.block, self.before
        shapes = {"w": (b.K, C, b.R, b.R), "z": self.before}
        return {name: shapes.get(name, (C,)) for name in TENSORS.get(b.kind, ())}

    @property
    def flops(self) -> int:
        """Operations of the block alone: two per multiply-add. Padding counts like other values."""
        kind, R, (_, C, _, _) = self.block.kind, self.block.R, self.before
        if kind == "gap":
            return math.prod(self.before)
        per_value = {"conv": 2 * C * R * R, "maxpool": R * R, "avgpool": R * R} | OPERATIONS
        return math.prod(self.after) * per_value[kind]


# -- from text ---------------------------------------------------------------------------------------------
@lru_cache(maxsize=1024)
def blocks(chain: str) -> tuple[Block, ...]:
    """Parse a chain's text into its blocks. Raises ShapeError, which names the broken rule."""
    block_texts = chain.split()
    if not 1 <= len(block_texts) <= MAX_BLOCKS:
        raise ShapeError(tr("a chain has 1 to {limit} blocks, got {n}", limit=MAX_BLOCKS, n=len(block_texts)))
    return tuple(_block(n, block_text) for n, block_text in enumerate(block_texts, 1))


def _block(n: int, block_text: str) -> Block:
    kind, *options = block_text.split(":")
    where = tr("block {n} ({kind})", n=n, kind=kind)
    if kind not in OPTIONS:
        raise ShapeError(
            tr("block {n} must be one of {kinds}, got {kind}", n=n, kinds=", ".join(KINDS), kind=repr(kind))
        )
    defaults: Row = OPTIONS[kind]
    values: Json = {}
    for i, part in enumerate(options):
        name, equals, value = part.partition("=")
        if not equals:  # the first number needs no name
            name, value = (next(iter(defaults), ""), part) if i == 0 else ("", part)
        if name not in defaults:
            if not defaults:
                raise ShapeError(tr("{block} takes nothing; got {part}", block=where, part=repr(part)))
            allowed = ", ".join(defaults)
            raise ShapeError(tr("{block} takes {names}; got {part}", block=where, names=allowed, part=repr(part)))
        if name in values:
            raise ShapeError(tr("{block}: {name} is given twice", block=where, name=name))
        values[name] = _number(where, name, value)
    if missing := [name for name, value in defaults.items() if value is None and name not in values]:
        raise ShapeError(tr("{block} needs {names}", block=where, names=", ".join(missing)))
    return _checked(where, Block(kind, **{**defaults, **values}))


def _number(where: str, name: str, text: str) -> float:
    number = numerals.real(text) if name == "eps" else numerals.whole(text)
    if number is None:
        raise ShapeError(not_a_number(f"{where}: {name}", text, name == "eps"))
    if name != "eps":
        max_value = INT_MAX if name == "K" else MAX_WINDOW
        return integer(f"{where}: {name}", number, 0 if name == "pad" else 1, max_value)
    if not MIN_EPS <= number <= 1:
        raise ShapeError(
            tr(
                "{name} must be in {minimum} .. {maximum}, got {number}",
                name=f"{where}: eps",
                minimum=f"{MIN_EPS:g}",
                maximum=1,
                number=f"{number:g}",
            )
        )
    return number


def _checked(where: str, b: Block) -> Block:
    """Returns the block with the options that were not given. Raises ShapeError if a rule is broken."""
    if b.kind == "conv" and b.pad == KEEP_SIZE:
        if b.R % 2 == 0:
            raise ShapeError(tr("{block}: R must be odd if no pad is given, got {R}", block=where, R=b.R))
        return replace(b, pad=b.R // 2)
    if b.kind == "conv" and b.pad >= b.R:
        raise ShapeError(tr("{block}: {rule}, got {got}", block=where, rule="pad < R", got=f"{b.pad} >= {b.R}"))
    if b.kind in ("maxpool", "avgpool"):
        if 2 * b.pad > b.R:
            raise ShapeError(tr("{block}: {rule}, got {got}", block=where, rule="2*pad <= R", got=f"2*{b.pad} > {b.R}"))
        return replace(b, stride=b.stride or b.R)
    return b


@lru_cache(maxsize=1024)
def _stages(before: Extents, chain: str) -> tuple[Stage, ...]:
    stages = []
    for at, b in enumerate(blocks(chain)):
        after = _after(tr("block {n} ({kind})", n=at + 1, kind=b.kind), b, before)
        stages.append(Stage(at, b, before, after))
        before = after
    return tuple(stages)


def _after(where: str, b: Block, before: Extents) -> Extents:
    N, C, H, W = before
    if b.pointwise:
        return before
    if b.kind == "gap":
        return N, C, 1, 1
    for name, extent in (("H", H), ("W", W)):
        if extent + 2 * b.pad < b.R:
            raise ShapeError(
                tr(
                    "{block}: its window must fit the padded map, R <= {name}+2*pad; {name} is {extent}, and {R} > {padded}",
                    block=where,
                    name=name,
                    extent=extent,
                    R=b.R,
                    padded=extent + 2 * b.pad,
                )
            )
    P, Q = ((extent + 2 * b.pad - b.R) // b.stride + 1 for extent in (H, W))
    return N, b.K or C, P, Q


# -- the shape -----------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class ChainShape(Shape):
    """Maps x [N, C, H, W], float32, and the chain of blocks applied to them (see the module's docstring).

    Two texts with the same meaning make equal shapes. Raises ShapeError, which names the broken rule.
    """

    N: int
    C: int
    H: int
    W: int
    chain: str

    def __post_init__(self):
        self._check("NCHW", integer, 1)
        if not isinstance(self.chain, str):
            raise ShapeError(tr("chain must be text, got {value}", value=repr(self.chain)))
        object.__setattr__(self, "chain", " ".join(map(str, blocks(self.chain))))
        _stages(self.x_shape, self.chain)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Every block at its position, with the maps before and after it."""
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
        """For each block its tensors: the name in Stage.tensors -> the name of the chain's input.

        The second tensor of a name gets a number: "gamma_2".
        """
        return named(list(stage.tensors) for stage in self.stages)

    @property
    def flops(self) -> int:
        return sum(stage.flops for stage in self.stages)

    @property
    def macs(self) -> int:
        """Measure of the work: half of the FLOPs, at least 1."""
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
        """Minimum traffic in bytes: every input read once, the output written once, nothing in between."""
        return 4 * sum(self.elements.values())

    def __str__(self) -> str:
        return f"N{self.N} C{self.C} {self.H}x{self.W} {self.chain}"


def named(of_blocks) -> tuple[dict[str, str], ...]:
    """Returns the names of tensors, block by block, made unique with numbers: b, b_2, b_3."""
    counts: dict[str, int] = {}
    out = []
    for names in of_blocks:
        unique_names = {}
        for name in names:
            counts[name] = counts.get(name, 0) + 1
            unique_names[name] = name if counts[name] == 1 else f"{name}_{counts[name]}"
        out.append(unique_names)
    return tuple(out)


def parse_chain(text: str) -> ChainShape:
    """Parse "N=1,C=2,H=4,W=4,chain=conv:K=2:R=3 bias relu" into a ChainShape.

    Raises ShapeError if the text is malformed.
    """
    return ChainShape(**parse(text, FIELDS, FIELDS, text_fields=("chain",)))
