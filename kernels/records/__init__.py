"""Records: measurements as rows. Recordings were made on named devices: those shipped with the app, and this user's own
files. The store holds this user's own runs (kernels.records.store).

Rows are looked up on one GPU: the one that a ladder is shown from (`shown`), or the one that is named.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import cache, lru_cache

from kernels.ladders import ladder_of
from kernels.model.row import Json, Row
from kernels.model.shape import Shape
from kernels.records import files, gpus
from kernels.records import nearest as nearest_module
from kernels.records.folder import SHIPPED as FOLDER
from kernels.records.gpus import Gpu
from kernels.records.nearest import Match
from kernels.records.row import is_current, is_disturbed

__all__ = [
    "FOLDER",
    "Gpu",
    "Match",
    "comparable",
    "covering",
    "everything",
    "gpus_of",
    "nearest",
    "recorded",
    "recordings",
    "shown",
]


# -- rows ------------------------------------------------------------------------------------------
@cache
def everything() -> tuple[Json, ...]:
    """Returns every row of every GPU. Never compare rows of two GPUs as if they were of one."""
    return tuple(row_ for _, row_ in files.read())


def recordings(ladder: str = "", gpu: Gpu | None = None) -> tuple[Json, ...]:
    """Returns the rows of a ladder on a GPU, else on the GPU that the ladder is shown from. Without a ladder: the rows
    of every ladder."""
    if not ladder:
        return tuple(row_ for name in _by_ladder() for row_ in recordings(name, gpu))
    gpu = gpu or shown(ladder)
    return rows_by_gpu(ladder).get(gpu, ()) if gpu else ()


@cache
def rows_by_gpu(ladder: str) -> Mapping[Gpu, tuple[Json, ...]]:
    """Returns the rows of a ladder by GPU. If it has those of several GPUs or own ones, only rows that the kernels in
    the tree made: a GPU whose rows are of older kernels has none."""
    found = _by_ladder().get(ladder, {})
    if len(found) == 1 and not any(gpu.own for gpu in found):  # a test holds these to the kernels
        return {gpu: tuple(rows) for gpu, rows in found.items()}
    kept = {gpu: tuple(filter(is_current, rows)) for gpu, rows in found.items()}
    return {gpu: rows for gpu, rows in kept.items() if rows}


@cache
def _by_ladder() -> dict[str, dict[Gpu, list[Json]]]:
    found: dict[str, dict[Gpu, list[Json]]] = defaultdict(lambda: defaultdict(list))
    in_order = sorted(files.read(), key=lambda pair: is_disturbed(pair[1]))  # of equal settings the first is taken
    for gpu, row_ in in_order:
        found[row_["rung"].partition("/")[0]][gpu].append(row_)
    return found


# -- GPUs -----------------------------------------------------------------------------------------
def shown(*ladders: str) -> Gpu | None:
    """Returns the GPU that these ladders are shown from, one for all of them: the reader's if it has rows of each, else
    the default one. None if no GPU has rows."""
    known = gpus_of(*ladders)
    key = gpus.chosen()
    return next((gpu for gpu in known if key and gpu.key == key), known[0] if known else None)


@cache
def gpus_of(*ladders: str) -> tuple[Gpu, ...]:
    """Returns the GPUs that have rows of each of these ladders, the default one first; those of any of them if none has
    all."""
    having = [set(rows_by_gpu(name)) for name in ladders]
    known = set.intersection(*having) or set.union(*having)
    if len(known) < 2:
        return tuple(known)
    coverage = {gpu: sum(covered(name, gpu) for name in ladders) for gpu in known}
    first = gpus.default(coverage)
    return tuple(sorted(known, key=lambda gpu: (gpu != first, -coverage[gpu], gpu.key)))


def covered(ladder: str, gpu: Gpu) -> int:
    """Returns how many settings of a ladder (kernel, shape, tile sizes, mode) have a row of the GPU. Presets are a part
    of them: a chapter also needs the small shape on its stage."""
    return len(_by_setting(ladder, gpu))


def covering(*rungs: str) -> Gpu | None:
    """Returns the GPU that covers most of these rungs of one ladder, as `gpus.default` says: a lesson on a part of a
    ladder is shown from it. None if no GPU has a row of them."""
    ladder = rungs[0].partition("/")[0]
    found = {gpu: sum(key[0] in rungs for key in _by_setting(ladder, gpu)) for gpu in rows_by_gpu(ladder)}
    return gpus.default({gpu: count for gpu, count in found.items() if count})


@cache
def known_gpus() -> Mapping[str, Gpu]:
    """Returns every GPU that has a row, by its key."""
    return {gpu.key: gpu for gpu, _ in files.read()}


# -- one row ---------------------------------------------------------------------------------------
def recorded(
    rung: str, shape: Shape, tiles: Mapping[str, int], mode: str = "cold", gpu: Gpu | None = None
) -> Json | None:
    """Returns the recording of this rung at exactly this shape, tile sizes and mode, on the GPU that its ladder is
    shown from, or on the GPU given; None if there is none."""
    ladder = rung.partition("/")[0]
    return _by_setting(ladder, gpu or shown(ladder)).get(_setting(rung, shape.params(), tiles, mode))


@cache
def _by_setting(ladder: str, gpu: Gpu | None) -> dict[tuple, Json]:
    """Returns the first recording of each setting, as a table: pages look up many at every change of a control."""
    rows_by_key: dict[tuple, Json] = {}
    for row_ in recordings(ladder, gpu):
        rows_by_key.setdefault(_setting(row_["rung"], row_["shape"], row_["tiles"], row_["mode"]), row_)
    return rows_by_key


def comparable(row_: Row) -> tuple[Json, ...]:
    """Returns every recording of the row's ladder on its device, at its shape and in its cache mode, with any tile sizes."""
    ladder = row_["rung"].partition("/")[0]
    return _by_shape(ladder).get(_of_shape(row_), ())


@cache
def _by_shape(ladder: str) -> dict[tuple, tuple[Json, ...]]:
    rows_by_key: dict[tuple, list[Json]] = defaultdict(list)
    for rows in rows_by_gpu(ladder).values():
        for row_ in rows:
            rows_by_key[_of_shape(row_)].append(row_)
    return {key: tuple(rows) for key, rows in rows_by_key.items()}


def _of_shape(row_: Row) -> tuple:
    params = ladder_of(row_["rung"]).later_fields | row_["shape"]
    return row_["device"], row_["mode"], frozenset(params.items())


def _setting(rung: str, params: Mapping, tiles: Mapping, mode: str) -> tuple:
    return rung, frozenset(params.items()), frozenset(tiles.items()), mode


def nearest(rung: str, shape: Shape, tiles: Mapping[str, int], mode: str = "cold") -> Match | None:
    """Returns the recording at this shape or at the nearest one, with a caption; see kernels.records.nearest."""
    return _nearest(rung, shape, tuple(tiles.items()), mode, shown(rung.partition("/")[0]))


@lru_cache(maxsize=512)
def _nearest(rung: str, shape: Shape, tiles: tuple[tuple[str, int], ...], mode: str, gpu: Gpu | None) -> Match | None:
    ladder = ladder_of(rung)
    fields = nearest_module.matching_fields(ladder, vars(shape))
    rows = _by_kernel(ladder.name, gpu).get((rung, mode, fields), ())
    return nearest_module.nearest(rung, shape, dict(tiles), mode, rows)


@cache
def _by_kernel(ladder: str, gpu: Gpu | None) -> dict[tuple, list[Json]]:
    """Returns the recordings grouped by rung, mode and matching fields: a search reads a few of the hundreds."""
    rows_by_key: dict[tuple, list[Json]] = {}
    for row_ in recordings(ladder, gpu):
        fields = nearest_module.matching_fields(ladder_of(row_["rung"]), row_["shape"])
        rows_by_key.setdefault((row_["rung"], row_["mode"], fields), []).append(row_)
    return rows_by_key


def forget() -> None:
    """Forgets all that was read, so that the next look reads the files anew."""
    files.forget()
    for function in (
        everything,
        rows_by_gpu,
        _by_ladder,
        gpus_of,
        known_gpus,
        _by_setting,
        _by_shape,
        _nearest,
        _by_kernel,
    ):
        function.cache_clear()
