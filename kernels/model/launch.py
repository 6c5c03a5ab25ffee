"""Helpers to build the rungs of every ladder: launches, capabilities, rungs with shared settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from kernels.model.program import Arg, Launch, Program, Tiles
from kernels.model.rung import HOPPER, Cost, Rung, any_gpu
from kernels.model.shape import S

WARP = 32


def ceil(a: int, b: int) -> int:
    return -(-a // b)


def launch(
    source: str,
    grid: tuple[int, ...],
    block: int | tuple[int, ...],
    args: tuple[Arg, ...],
    cpu: Callable[..., object],
    defines: Mapping[str, int] | None = None,
    shared: int = 0,
    cpu_name: str = "",
) -> Launch:
    """Returns a launch of `source` ("gemm/02_naive.cu" is kernels/gemm/cuda/02_naive.cu). Its entry point is the file's
    name without the number. Grid and block may omit trailing extents of 1."""
    entry = source.rpartition("/")[2].partition("_")[2].removesuffix(".cu")
    threads = (block,) if isinstance(block, int) else block
    options = tuple(sorted((defines or {}).items()))  # a kernel's digest must not depend on their order
    return Launch(source, entry, _three(grid), _three(threads), args, cpu, options, shared, cpu_name=cpu_name)


def _three(extents: tuple[int, ...]) -> tuple[int, int, int]:
    x, y, z = (*extents, 1, 1)[:3]
    return x, y, z


class _Typed(Protocol):
    """A shape with an element type."""

    @property
    def dtype(self) -> str: ...


def ampere(shape: object) -> tuple[int, int]:
    """Returns the compute capability that brought cp.async, mma.sync with K = 16 and TF32 (PTX ISA, "Target ISA notes")."""
    return 8, 0


def hopper(shape: object) -> tuple[int, int]:
    """Returns the compute capability that has wgmma and setmaxnreg (PTX ISA, "Target ISA notes"). Later ones lack them."""
    return HOPPER


def clusters(shape: object) -> tuple[int, int]:
    """Returns the compute capability that brought clusters (PTX ISA, "mapa", "Target ISA notes"). Later ones have them."""
    return 9, 0


def ampere_for(*dtypes: str) -> Callable[[_Typed], tuple[int, int]]:
    """Returns the capability of a rung that needs `ampere` only for these element types."""
    return lambda shape: ampere(shape) if shape.dtype in dtypes else any_gpu(shape)


def rung_factory(ladder: str, cost: Callable[[S, Program], Cost], tolerance: float) -> Callable[..., Rung]:
    """Returns a function that creates rungs with the same cost and tolerance. Its last arguments are the sets of tile
    sizes that are compiled ahead, and by keyword any other field of a rung."""

    def rung(name: str, title: str, idea: str, build, rules, tiles, *sets: Tiles, **facts: Any) -> Rung:
        return Rung(f"{ladder}/{name}", title, idea, build, cost, rules, tolerance, tiles, sets=sets or None, **facts)

    return rung
