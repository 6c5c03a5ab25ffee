"""The rates of a machine, from which a timeline is predicted. Each is measured, and its source is named.

Until kernels/records/transfers.json exists, the rates of copies and launches come from the recordings of all kernels: each
was copied to the GPU and back. What no recording has is None, and the prediction leaves it out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from kernels import records
from kernels.gemm.shape import GemmShape
from kernels.i18n import mark, tr
from kernels.ladders import find, ladder_of
from kernels.model.row import Row
from kernels.model.rung import Rung
from kernels.model.shape import Shape
from kernels.records import Gpu, files
from kernels.transfers import recorded
from kernels.transfers.gpu import GEMM
from kernels.transfers.operations import COMPUTE, CUDA_MALLOC
from kernels.transfers.scenarios import WIDTH

SMALL, LARGE = 16_384, 50_000_000  # bytes: copies below show the latency, those above the bandwidth
WAYS = ("h2d_pinned", "h2d_pageable", "d2h_pinned", "d2h_pageable")
LADDERS = ("gemm", "add")  # of the kernels that the scenarios launch
PRODUCT = {"M": 4096, "N": 4096, "K": 4096}  # the recorded product from which times of others follow
SMS = 132  # streaming multiprocessors of an H200
COPIES_OF_ROWS = mark("copies of the inputs and outputs of {n} recorded kernels")
COPIES_OF_RECORD = mark("copies of this lesson, n = {n}")


@dataclass(frozen=True)
class Rate:
    """A copy takes `latency_ms` and its bytes at `bytes_per_s`."""

    latency_ms: float
    bytes_per_s: float

    def ms(self, nbytes: float) -> float:
        return self.latency_ms + 1e3 * nbytes / self.bytes_per_s


@dataclass(frozen=True)
class Rates:
    """The rates of one machine. `copies`: by WAYS. Times are ms; None was not measured. `kernel_ms(rung, shape)`: of one
    launch on the GPU."""

    device: str
    source: str
    copies: Mapping[str, Rate]
    call_ms: float  # until a call returns that does not wait
    gap_ms: float  # from one launch in a queue to the next, of an empty kernel
    kernel_ms: Callable[[str, Mapping[str, int]], float]
    malloc_ms: float | None = None  # cudaMalloc
    free_ms: float | None = None  # cudaFree
    pool_ms: float | None = None  # an array from the pool that has it
    extra: Row = field(default_factory=dict)

    def copy(self, way: str, pinned: bool) -> Rate:
        return self.copies[f"{way}_{'pinned' if pinned else 'pageable'}"]

    def allocation_ms(self, memory: str, release: bool) -> float | None:
        if memory != CUDA_MALLOC:
            return self.pool_ms
        return self.free_ms if release else self.malloc_ms


def rate_of(points: Sequence[tuple[float, float]]) -> Rate:
    """Returns the rate of copies as (bytes, ms): the median time of the small ones, the median bandwidth of the large ones.

    ValueError if there are none of either.
    """
    small = [ms for nbytes, ms in points if 0 < nbytes <= SMALL]
    large = [nbytes / ms for nbytes, ms in points if nbytes >= LARGE]
    if not small or not large:
        raise ValueError("a rate needs small and large copies")
    return Rate(float(np.median(small)), 1e3 * float(np.median(large)))


@cache
def rates() -> Rates:
    """Returns the rates of the recorded GPU: of transfers.json if it exists, else of the recordings of kernels."""
    record = recorded.newest()
    return from_record(record) if record else from_rows(rows_of_gpu())


@cache
def gpu() -> Gpu | None:
    """Returns the GPU whose recordings fill what the record lacks: that of the record, else the one that has most. A
    reader's choice changes nothing: the record is of one GPU."""
    device, found = (recorded.newest() or {}).get("device"), records.gpus_of(*LADDERS)
    return next((gpu for gpu in found if gpu.device == device), found[0] if found else None)


def rows_of_gpu() -> list[Row]:
    """Returns the recordings of the GPU."""
    return [row for of, row in files.read() if of == gpu()]


def from_rows(rows: Sequence[Row]) -> Rates:
    """Returns the rates that recordings of kernels show: their copies and the ceilings of their GPU."""
    timed = [row for row in rows if row.get("copies_ms")]
    copies = {}
    for way in WAYS:
        size = "input_bytes" if way.startswith("h2d") else "output_bytes"
        copies[way] = rate_of([(row[size], row["copies_ms"][way]) for row in timed])
    ceilings = [row["ceilings"] for row in timed if row.get("ceilings")]
    call, gap = (float(np.median([c[k] for c in ceilings])) / 1e3 for k in ("launch_host_us", "launch_us"))
    return Rates(timed[0]["device"], tr(COPIES_OF_ROWS, n=len(timed)), copies, call, gap, kernel_ms_of_recordings)


def from_record(record: Row) -> Rates:
    """Returns the rates that benchmarks.transfers recorded, with those of kernels.records where one failed."""
    base = from_rows(rows_of_gpu())
    copies, counts = dict(base.copies), []
    for way in WAYS:
        points = [(p["bytes"], p["ms"]) for p in record["copies"].get(way, ())]
        if points:
            copies[way] = rate_of(points)
            counts += [p["n"] for p in record["copies"][way]]
    costs = record.get("costs", {})
    return Rates(
        record["device"],
        tr(COPIES_OF_RECORD, n=min(counts, default=0)),
        copies,
        costs.get("call_ms", base.call_ms),
        costs.get("gap_ms", base.gap_ms),
        kernel_ms_of_pieces(record),
        costs.get("malloc_ms"),
        costs.get("free_ms"),
        costs.get("pool_ms"),
    )


# -- kernels -----------------------------------------------------------------------------------------
def kernel_ms_of_pieces(record: Row) -> Callable[[str, Mapping[str, int]], float]:
    """Returns the ms of a launch by rung and shape: a product with the weights from the recorded pieces of a batch, between the
    recorded rows next to its own, other launches from the recordings of kernels. Beside copies a product takes longer."""
    rows = record.get("scenarios", {}).get("pieces", {}).get("settings", {}).get("rows", 0)
    points = sorted((rows / p["n"], p["busy_ms"][COMPUTE] / p["n"]) for p in record.get("pieces", ()))

    def kernel_ms(rung: str, shape: Mapping[str, int]) -> float:
        same = rung == GEMM and (shape["N"], shape["K"]) == (WIDTH, WIDTH)
        if same and points and points[0][0] <= shape["M"] <= points[-1][0]:
            pieces, ms = zip(*points, strict=True)
            return float(np.interp(shape["M"], pieces, ms))
        return kernel_ms_of_recordings(rung, shape)

    return kernel_ms


def kernel_ms_of_recordings(rung: str, shape: Mapping[str, int]) -> float:
    """Returns the ms of a launch, from recordings. ValueError if there is none."""
    s = ladder_of(rung).shape(**shape)
    return product_ms(s) if rung == GEMM else sum_ms(rung, s)


def product_ms(s: GemmShape) -> float:
    """Returns the ms of the tiled product: as long as the SM with most blocks computes.

    It follows from one recording. A block multiplies K steps, so its time grows with K. Blocks beyond a multiple of the SMs
    cost a whole round more.
    """
    found, other = find(GEMM), ladder_of(GEMM).shape(**PRODUCT)
    row = records.recorded(GEMM, other, found.default_tiles, gpu=gpu())
    if row is None:
        raise ValueError(f"no recording of {GEMM} at {other}")
    ms = row["median_ms"] - row.get("event_floor_ms", 0.0)
    return ms * s.K * rounds(found, s) / (other.K * rounds(found, other))


def rounds(rung: Rung, shape: Shape) -> int:
    """Returns how many blocks the SM with most of them computes."""
    (step,) = rung.build(shape, rung.default_tiles).launches
    return math.ceil(math.prod(step.grid) / SMS)


def sum_ms(rung: str, s: Shape) -> float:
    """Returns the ms of a short kernel with warm caches, between the recorded sizes next to this one."""
    tiles = dict(find(rung).default_tiles)
    points = sorted(
        (ladder_of(rung).shape(**row["shape"]).bytes, row["median_ms"])
        for row in records.recordings(rung.partition("/")[0], gpu())
        if (row["rung"], row["mode"], row["tiles"]) == (rung, "hot", tiles)
    )
    if not points:
        raise ValueError(f"no recording of {rung}")
    nbytes, ms = zip(*points, strict=True)
    return float(np.interp(s.bytes, nbytes, ms))
