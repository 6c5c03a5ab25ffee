"""What the address of the fusion lesson means: the maps, the chain of blocks, the rung that is watched, its tile sizes; what
a chain can be turned to; and its scene. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from kernels.fusion import codegen, ladder
from kernels.fusion.presets import FUSION_PRESETS
from kernels.fusion.shape import KINDS, LEAST_EPS, OPTIONS, Block, ChainShape
from kernels.fusion.shape import blocks as parse_blocks
from kernels.ladders import LADDERS
from kernels.model.rung import Rung
from kernels.model.shape import Bound, ShapeError
from pages.parts import rung_address
from pages.parts.address import Number, Value, Values, fewest_back
from pages.parts.kept import MOST_KEPT
from visuals.fusion import story
from visuals.fusion.scene import fusion_scene
from visuals.scene.scene import Scene

LADDER = LADDERS["fusion"]
OURS = LADDER.only(*ladder.PLANS)  # those with kernels to watch
DEFAULT = FUSION_PRESETS["fusion-toy"].shape
DEFAULT_RUNG = "fused"
MOST = {"N": 256, "C": 8192, "H": 1024, "W": 1024}
MOST_OPTIONS = {"K": 8192, "R": 16, "stride": 16, "pad": 8}
MOST_VALUES = 2**27  # of maps, weights: 512 MiB
MOST_FLOPS = 2**40
MOST_CHAIN, MOST_SAID = 400, 160  # characters of a chain, and of what is said of a wrong one


@dataclass(frozen=True)
class Chain:
    """The field of the address that holds a chain as text."""

    usual: str

    def take(self, name: str, value: Value) -> str:
        text = str(value)
        if len(text) > MOST_CHAIN:
            raise ShapeError(f"{name} may have at most {MOST_CHAIN} characters, got {len(text)}")
        try:
            found = parse_blocks(text)
        except ShapeError as error:
            raise ShapeError(f"{name}: {_said(error)}") from None
        return " ".join(map(str, found))


def _said(error: ShapeError) -> str:
    """What is wrong with a chain, which may quote anything: short and in one line."""
    text = "".join(c if c.isprintable() else " " for c in str(error))
    return text if len(text) <= MOST_SAID else f"{text[: MOST_SAID - 1]}…"


FIELDS = {name: Number(getattr(DEFAULT, name), 1, most) for name, most in MOST.items()} | {
    "chain": Chain(DEFAULT.chain)
}


# -- what fits the page ------------------------------------------------------------------------------------
def rule(make: Callable[[], ChainShape]) -> str:
    """The rule that a shape breaks, of chains or of this page; "" where it breaks none."""
    try:
        s = make()
    except ShapeError as error:
        return _said(error)
    for stage in s.stages:
        where = f"block {stage.at + 1} ({stage.block.kind})"
        for name in stage.tensors:
            if math.prod(stage.tensors[name]) > MOST_VALUES:
                return f"{where}: {name} may have {MOST_VALUES:,} values on this page"
        if max(math.prod(stage.before), math.prod(stage.after)) > MOST_VALUES:
            return f"{where}: maps may have {MOST_VALUES:,} values on this page"
        for name, most in MOST_OPTIONS.items():
            if getattr(stage.block, name) > most:
                return f"{where}: {name} may be {most:,} at most on this page"
    if s.flops > MOST_FLOPS:
        return f"a chain may have {MOST_FLOPS:,} FLOPs on this page"
    return ""


def _mend(values: Values) -> Iterator[tuple[str, Values]]:
    if broken := rule(lambda: ChainShape(**{name: values[name] for name in FIELDS})):
        fits = lambda v: not rule(lambda: ChainShape(**{name: v[name] for name in FIELDS}))  # noqa: E731
        yield broken, fewest_back(values, DEFAULT.params(), tuple(FIELDS), fits)


def _usual(rung: Rung, shape: ChainShape) -> dict[str, int]:
    return rung.default_tiles


ADDRESS = rung_address.Address(OURS, FIELDS, DEFAULT_RUNG, _mend, fit=_usual)


def bounds(s: ChainShape) -> dict[str, Bound]:
    """For each extent the values that keep every rule with all else as it is."""
    return {
        name: bound(getattr(s, name), 1, most, lambda v, name=name: s.with_(**{name: v}))
        for name, most in MOST.items()
    }


def bound(now: int, least: int, most: int, make: Callable[[int], ChainShape]) -> Bound:
    """The values round `now`, which is legal, up to the first that is not each way, and the rules that it breaks."""
    low, why_low = _edge(now, least, make)
    high, why_high = _edge(now, most, make)
    return Bound(low, high, why_low=why_low, why_high=why_high)


def _edge(good: int, end: int, make: Callable[[int], ChainShape]) -> tuple[int, str]:
    """The last legal value from `good` towards `end`, by halves, and the rule that the next one breaks."""
    if not (why := rule(lambda: make(end))):
        return end, ""
    bad = end
    while abs(bad - good) > 1:
        middle = (good + bad) // 2
        if said := rule(lambda middle=middle: make(middle)):
            bad, why = middle, said
        else:
            good = middle
    return good, why


# -- turning a chain -----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Turn:
    """A chain that a control would lead to, or the rule that forbids it."""

    shape: ChainShape | None
    rule: str = ""


def turned(s: ChainShape, blocks: list[Block]) -> Turn:
    make = lambda: s.with_(chain=" ".join(map(str, blocks)))  # noqa: E731
    broken = rule(make)
    return Turn(None, broken) if broken else Turn(make())


def appended(s: ChainShape) -> dict[str, Turn]:
    """By kind, the chain with one more block at its end."""
    maps = s.y_shape[1]
    usual = {
        "conv": Block("conv", min(maps, MOST_OPTIONS["K"]), 3, 1, 1),
        "maxpool": Block("maxpool", 0, 2, 2),
        "avgpool": Block("avgpool", 0, 2, 2),
        "bn": Block("bn", eps=OPTIONS["bn"]["eps"]),
    }
    return {kind: turned(s, [*s.blocks, usual.get(kind, Block(kind))]) for kind in KINDS}


def without(s: ChainShape, at: int) -> Turn:
    return turned(s, [b for n, b in enumerate(s.blocks) if n != at])


def moved(s: ChainShape, at: int, to: int) -> Turn:
    blocks = list(s.blocks)
    blocks.insert(to, blocks.pop(at))
    return turned(s, blocks)


def optioned(s: ChainShape, at: int, name: str, value: float) -> ChainShape:
    """The chain with an option of a block turned. A convolution that keeps the size goes on keeping it, a pool whose
    stride is its window too; the padding stays within its rule. ShapeError where no chain is left."""
    b = s.blocks[at]
    new = replace(b, **{name: value})
    if name == "R" and b.kind == "conv":
        new = replace(new, pad=new.R // 2 if b.pad == b.R // 2 else min(b.pad, new.R - 1))
    elif name == "R":
        new = replace(new, stride=new.R if b.stride == b.R else b.stride, pad=min(b.pad, new.R // 2))
    return s.with_(chain=" ".join(str(new if n == at else other) for n, other in enumerate(s.blocks)))


def option_bounds(s: ChainShape, at: int) -> dict[str, Bound]:
    """By option of a block, but eps, what its field may be turned to."""
    b = s.blocks[at]
    return {
        name: bound(
            getattr(b, name),
            0 if name == "pad" else 1,
            MOST_OPTIONS[name],
            lambda v, name=name: optioned(s, at, name, v),
        )
        for name in OPTIONS[b.kind]
        if name != "eps"
    }


EPS = Bound(LEAST_EPS, 1)


# -- the stage -----------------------------------------------------------------------------------------------
@lru_cache(maxsize=MOST_KEPT)
def _scene(s: ChainShape, rung: str, tiles: tuple[tuple[str, int], ...]) -> Scene:
    return fusion_scene(s, rung, dict(tiles))


def scene(asked: rung_address.Asked) -> Scene | None:
    """The scene of the rung that is watched; None where a rule forbids it."""
    return None if asked.broken else _scene(asked.shape, asked.rung.name, tuple(asked.tiles.items()))


def card(params: Mapping[str, str]) -> Scene:
    """What the page fusion.py plays at `params`, where the rung can run so."""
    return scene(ADDRESS.read(params)[0])


def front(asked: rung_address.Asked) -> str:
    """Of the kernels of the rung that is watched the one to read first: the first that was written for the chain."""
    told = story.parts(asked.rung.name, asked.shape)
    sources = [part.launch.source for part in told]
    return next((s for s in sources if s.startswith(codegen.PREFIX)), sources[0] if sources else "")
