"""The types of C++ variables: the numbers in them, and where each is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

MAX_NUMBERS = 4096  # in a variable: a larger one is not watched


@dataclass(frozen=True)
class Leaf:
    """A number in a variable: its place in bytes, its NumPy type ("f4"; addresses are "u8") and its path (".m", "[0][3]")."""

    offset: int
    dtype: str
    path: str


@dataclass(frozen=True)
class Type:
    """`leaves`: () of a type whose numbers are not watched. `shape`: of an array. `target`: of a pointer or a reference, what it points to."""

    name: str
    size: int
    leaves: tuple[Leaf, ...] = ()
    shape: tuple[int, ...] = ()
    target: Type | None = None


UNKNOWN = Type("", 0)


def number(name: str, size: int, kind: str) -> Type:
    """Returns a type of one number. kind: NumPy's letter."""
    return Type(name, size, (Leaf(0, f"{kind}{size}", ""),))


def pointer(to: Type) -> Type:
    return Type(f"{to.name}*", 8, (Leaf(0, "u8", ""),), target=to)


def struct(name: str, size: int, members: Sequence[tuple[str, int, Type]]) -> Type:
    """Returns a structure of members: name, place in bytes, type. A base class is a member without a name."""
    leaves = tuple(
        Leaf(start + leaf.offset, leaf.dtype, (f".{member}" if member else "") + leaf.path)
        for member, start, type_ in members
        for leaf in type_.leaves
    )
    return Type(name, size, leaves if len(leaves) <= MAX_NUMBERS else ())


def array(of: Type, shape: tuple[int, ...]) -> Type:
    size = of.size * int(np.prod(shape))
    if len(of.leaves) * int(np.prod(shape)) > MAX_NUMBERS:
        return Type(of.name, size, (), (*shape, *of.shape))
    return Type(of.name, size, tuple(_elements(of, shape)), (*shape, *of.shape))


def _elements(of: Type, shape: tuple[int, ...]) -> Iterator[Leaf]:
    for n, index in enumerate(np.ndindex(*shape)):
        path = "".join(f"[{i}]" for i in index)
        for leaf in of.leaves:
            yield Leaf(n * of.size + leaf.offset, leaf.dtype, path + leaf.path)
