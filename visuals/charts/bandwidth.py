"""The share of a device's memory bandwidth that a kernel uses: one figure for the strip, the roofline and the tables."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from kernels.ladders import find, ladder_of
from kernels.model.program import RuleError
from kernels.model.row import Row
from kernels.model.rung import Rung
from kernels.model.shape import Shape, ShapeError
from kernels.model.traffic import necessary_bytes


def bytes_of(row: Row, hot: bool = False) -> int:
    """Returns the bytes that the kernels of a row must move through memory if the caches are cold; `hot`: if they hold the
    data of the run before. 0 if the row does not say what its kernels move.

    The rung's own formula (`predicted_bytes`) leaves out elements that no kernel takes, a masked part of a matrix say. It
    may count what a kernel loads again. The buffers of the program count whole, but once per launch. Neither figure is too
    small, so the smaller one is taken.
    """
    params, tiles = (tuple(row.get(name, {}).items()) for name in ("shape", "tiles"))
    cache_bytes = (row.get("ceilings") or {}).get("cache_bytes", 0)
    return _of_row(row["rung"], params, tiles, cache_bytes, hot, row.get("predicted_bytes") or 0)


def must_move(rung: Rung, shape: Shape, tiles: Mapping[str, int], cache_bytes: int = 0) -> int:
    """Returns the same for a rung without a row, on a device whose last cache has `cache_bytes`."""
    program = rung.build(shape, tiles)
    return min(necessary_bytes(program, cache_bytes), rung.cost(shape, program).bytes)


def share(row: Row) -> float | None:
    """Returns the bytes per second as a share of the rate of a copy on the row's device; None if it was not measured. At
    most 1: reading alone can be a little faster than a copy."""
    rate = (row.get("ceilings") or {}).get("copy_bytes_per_s")
    if not (rate and row.get("predicted_bytes")):
        return None
    return min(1.0, bytes_of(row, row.get("mode") == "hot") / row["median_ms"] * 1e3 / rate)


def is_cached(row: Row) -> bool:
    """Returns whether caches held a part of the data before the run, so that memory bandwidth was no limit for it."""
    return row.get("mode") == "hot" and bytes_of(row, hot=True) < bytes_of(row)


@lru_cache(maxsize=8192)
def _of_row(rung: str, params: tuple, tiles: tuple, cache_bytes: int, hot: bool, predicted: int) -> int:
    try:
        shape = ladder_of(rung).shape(**dict(params))
        program = find(rung).build(shape, dict(tiles))
    except (RuleError, ShapeError, KeyError, TypeError):  # of another version of the app
        return predicted
    return min(necessary_bytes(program, cache_bytes, hot), predicted)
