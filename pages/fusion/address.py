"""The URL of the fusion lesson: maps, chain of blocks, rung on the stage, tile sizes.

Also the edits of a chain and its scene. Pure functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from kernels.engines.emulator.compiler.compile import CompilerMissing
from kernels.fusion import codegen, ladder
from kernels.fusion.presets import FUSION_PRESETS
from kernels.fusion.shape import KINDS, MIN_EPS, OPTIONS, Block, ChainShape
from kernels.fusion.shape import blocks as parse_blocks
from kernels.i18n import cached, decimal, mark, tr
from kernels.ladders import LADDERS
from kernels.model.rung import Rung
from kernels.model.shape import Bound, ShapeError
from pages.parts import rules, rung_address
from pages.parts.address import Field, Number, Value, Values
from visuals.fusion import notes
from visuals.fusion.gpu_map import fusion_map
from visuals.fusion.scene import fusion_scene
from visuals.gpu_map.scene import map_scene
from visuals.gpu_map.texts import DESCRIPTION, MAP, NO_MAP
from visuals.scene.scene import MAX_CACHED_SCENES, Scene, required

LADDER = LADDERS["fusion"]
STAGE_RUNGS = LADDER.only(*ladder.PLANS)  # the rungs whose kernels can be shown on the stage
DEFAULT = FUSION_PRESETS["fusion-toy"].shape
DEFAULT_RUNG = "fused"
MAX = {"N": 256, "C": 8192, "H": 1024, "W": 1024}
MAX_OPTIONS = {"K": 8192, "R": 16, "stride": 16, "pad": 8}
MAX_VALUES = 2**27  # of maps or weights: 512 MiB in FP32
MAX_FLOPS = 2**40
MAX_CHAIN, MAX_MESSAGE = 400, 160  # characters of a chain, and of the message about an invalid one


@dataclass(frozen=True)
class Chain:
    """The URL field that holds a chain as text."""

    default: str

    def parse(self, name: str, value: Value) -> str:
        text = str(value)
        if len(text) > MAX_CHAIN:
            raise ShapeError(
                tr(
                    "{name} may have at most {max} characters, got {n}",
                    name=name,
                    max=MAX_CHAIN,
                    n=decimal(f"{len(text):,}"),
                )
            )
        try:
            found = parse_blocks(text)
        except ShapeError as error:
            raise ShapeError(f"{name}: {_message(error)}") from None
        return " ".join(map(str, found))


def _message(error: ShapeError) -> str:
    """Returns the error of a chain, which may quote anything, as one short printable line."""
    text = "".join(c if c.isprintable() else " " for c in str(error))
    return text if len(text) <= MAX_MESSAGE else f"{text[: MAX_MESSAGE - 1]}…"


FIELDS: dict[str, Field] = {
    **{name: Number(getattr(DEFAULT, name), 1, maximum) for name, maximum in MAX.items()},
    "chain": Chain(DEFAULT.chain),
}


# -- what fits the page ------------------------------------------------------------------------------------
def rule(make: Callable[[], ChainShape]) -> str:
    """Returns the rule of chains or of this page that a shape breaks; "" if it breaks none."""
    try:
        s = make()
    except ShapeError as error:
        return _message(error)
    for stage in s.stages:
        where = {"n": stage.at + 1, "kind": stage.block.kind}
        for name in stage.tensors:
            if math.prod(stage.tensors[name]) > MAX_VALUES:
                return tr(
                    "block {n} ({kind}): {name} may have at most {max} values on this page",
                    name=name,
                    max=decimal(f"{MAX_VALUES:,}"),
                    **where,
                )
        if max(math.prod(stage.before), math.prod(stage.after)) > MAX_VALUES:
            return tr(
                "block {n} ({kind}): maps may have at most {max} values on this page",
                max=decimal(f"{MAX_VALUES:,}"),
                **where,
            )
        for name, maximum in MAX_OPTIONS.items():
            if getattr(stage.block, name) > maximum:
                return tr(
                    "block {n} ({kind}): {name} may be at most {max} on this page",
                    name=name,
                    max=decimal(f"{maximum:,}"),
                    **where,
                )
    if s.flops > MAX_FLOPS:
        return tr("a chain may have at most {max} FLOPs on this page", max=decimal(f"{MAX_FLOPS:,}"))
    return ""


def _broken(values: Values) -> str:
    return rule(lambda: ChainShape(**{name: values[name] for name in FIELDS}))


FIX = rules.fix(DEFAULT.params(), rules.Rule(_broken, tuple(FIELDS)))


def _default_tiles(rung: Rung, shape: ChainShape) -> dict[str, int]:
    return rung.default_tiles


ADDRESS = rung_address.Address(STAGE_RUNGS, FIELDS, DEFAULT_RUNG, FIX, fit=_default_tiles)


def bounds(s: ChainShape) -> dict[str, Bound]:
    """Returns, for each extent, the values that keep every rule while all else stays the same."""
    return rules.bounds(FIELDS, s.params(), _broken)


# -- editing a chain -----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Edit:
    """The chain that a control leads to, or the rule that forbids it."""

    shape: ChainShape | None
    rule: str = ""


def edited(s: ChainShape, blocks: list[Block]) -> Edit:
    make = lambda: s.with_(chain=" ".join(map(str, blocks)))  # noqa: E731
    broken = rule(make)
    return Edit(None, broken) if broken else Edit(make())


def appended(s: ChainShape) -> dict[str, Edit]:
    """Returns, by kind, the chain with one more block at its end."""
    maps = s.y_shape[1]
    new_blocks = {
        "conv": Block("conv", min(maps, MAX_OPTIONS["K"]), 3, 1, 1),
        "maxpool": Block("maxpool", 0, 2, 2),
        "avgpool": Block("avgpool", 0, 2, 2),
        "bn": Block("bn", eps=OPTIONS["bn"]["eps"] or 0.0),
    }
    return {kind: edited(s, [*s.blocks, new_blocks.get(kind, Block(kind))]) for kind in KINDS}


def without(s: ChainShape, at: int) -> Edit:
    return edited(s, [b for n, b in enumerate(s.blocks) if n != at])


def moved(s: ChainShape, at: int, to: int) -> Edit:
    blocks = list(s.blocks)
    blocks.insert(to, blocks.pop(at))
    return edited(s, blocks)


def with_option(s: ChainShape, at: int, name: str, value: float) -> ChainShape:
    """Returns the chain with one option of a block changed. Raises ShapeError if the new chain is invalid.

    A convolution that keeps the map's size still does. A pool's stride still equals its window if it did before. The
    padding stays within its rule.
    """
    b = s.blocks[at]
    new = replace(b, **{name: value})
    if name == "R" and b.kind == "conv":
        new = replace(new, pad=new.R // 2 if b.pad == b.R // 2 else min(b.pad, new.R - 1))
    elif name == "R":
        new = replace(new, stride=new.R if b.stride == b.R else b.stride, pad=min(b.pad, new.R // 2))
    return s.with_(chain=" ".join(str(new if n == at else other) for n, other in enumerate(s.blocks)))


def option_bounds(s: ChainShape, at: int) -> dict[str, Bound]:
    """Returns, for each option of a block except eps, the values that its field may take."""
    options = {name: (getattr(s.blocks[at], name), int(name != "pad")) for name in OPTIONS[s.blocks[at].kind]}
    return {
        name: rules.bound(
            now,
            Number(now, low, MAX_OPTIONS[name]),
            lambda value, name=name: rule(lambda: with_option(s, at, name, value)),
        )
        for name, (now, low) in options.items()
        if name != "eps"
    }


EPS = Bound(MIN_EPS, 1)


# -- the stage -----------------------------------------------------------------------------------------------
ORDERS = {"explaining": mark("launch after launch, the first threads of each"), MAP: DESCRIPTION}


@cached(MAX_CACHED_SCENES)
def _scene(s: ChainShape, rung: str, tiles: tuple[tuple[str, int], ...], order: str) -> tuple[Scene | None, str]:
    note = ""
    if order == MAP:
        if found := fusion_map(s, rung, dict(tiles)):
            return map_scene(found), ""
        note = tr(NO_MAP)
    try:
        return fusion_scene(s, rung, dict(tiles)), note
    except CompilerMissing as missing:
        return None, str(missing)


def scene(query: rung_address.Selection, order: str = "explaining") -> tuple[Scene | None, str]:
    """Returns the scene of the selected rung in one of ORDERS, None if a rule forbids it; and why it differs from the
    request."""
    if query.broken:
        return None, ""
    return _scene(query.shape, query.rung.name, tuple(query.tiles.items()), order)


def scene_at(params: Mapping[str, str]) -> Scene:
    """Returns the scene of the page at `params`, provided that the rung can run with them."""
    return required(scene(ADDRESS.read(params)[0]))


def first_source(query: rung_address.Selection) -> str:
    """Returns the source file to show first: the first kernel generated for the chain, else the rung's first."""
    parts = notes.parts(query.rung.name, query.shape)
    sources = [part.launch.source for part in parts]
    return next((s for s in sources if s.startswith(codegen.PREFIXES)), sources[0] if sources else "")
