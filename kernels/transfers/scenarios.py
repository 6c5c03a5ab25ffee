"""The scenarios as rows: which program, with which arrays in which memory, and what its number means."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from kernels.i18n import mark, tr
from kernels.model.program import RuleError
from kernels.transfers import programs
from kernels.transfers.gpu import FILE, FLOAT, DeviceArray, Dry, Gpu, HostArray
from kernels.transfers.operations import Op, memory_after

WIDTH = 2048  # columns of a batch and of its result: w is WIDTH x WIDTH
SHORT = (64, 256)  # the arrays of a kernel that is shorter than its launch
MAX_ROWS, MAX_N = 1 << 20, 64
BATCH, BATCHES, SHORT_KERNELS, ALLOCATIONS = ("batch", "batches", "launches", "allocations")  # kinds of arguments
TOLERANCE = 1e-5  # of the sum of absolute products, as the ladder of GEMM has it


@dataclass(frozen=True)
class Scenario:
    """One way to move data. `kind`: the arrays of its program; `pinned`: of those on the host; `n`: what the number is, ""
    if there is none, and its usual value; `rival`: the scenario that it is compared with."""

    key: str
    title: str
    program: Callable[..., object]
    kind: str
    pinned: bool = True
    n: str = ""
    default_n: int = 1
    rival: str = ""

    def source(self) -> tuple[str, int]:
        """Returns the text of the program and the number of its first line in its file."""
        lines, first = inspect.getsourcelines(self.program)
        return "".join(lines).rstrip("\n"), first


PIECES, BATCH_COUNT, LAUNCHES, STEPS = mark("pieces"), mark("batches"), mark("launches"), mark("steps")
SCENARIOS: Mapping[str, Scenario] = {
    s.key: s
    for s in (
        Scenario("pageable", mark("pageable memory"), programs.one_batch, BATCH, pinned=False),
        Scenario("pinned", mark("pinned memory"), programs.one_batch, BATCH, rival="pageable"),
        Scenario(
            "pieces", mark("in pieces, with streams"), programs.pieces, BATCH, n=PIECES, default_n=8, rival="pinned"
        ),
        Scenario("waiting", mark("batch after batch"), programs.waiting, BATCHES, n=BATCH_COUNT, default_n=4),
        Scenario(
            "prefetch",
            mark("next batch prefetched"),
            programs.prefetch,
            BATCHES,
            n=BATCH_COUNT,
            default_n=4,
            rival="waiting",
        ),
        Scenario("launches", mark("launches one by one"), programs.launches, SHORT_KERNELS, n=LAUNCHES, default_n=20),
        Scenario(
            "graph", mark("one CUDA graph"), programs.graph, SHORT_KERNELS, n=LAUNCHES, default_n=20, rival="launches"
        ),
        Scenario("malloc", mark("cudaMalloc each time"), programs.malloc, ALLOCATIONS, n=STEPS, default_n=8),
        Scenario("pool", mark("memory pool"), programs.pool, ALLOCATIONS, n=STEPS, default_n=8, rival="malloc"),
        Scenario("managed", mark("unified memory"), programs.managed, BATCH, rival="pinned"),
        Scenario("leak", mark("a leak"), programs.leak, BATCHES, n=STEPS, default_n=6, rival="no_leak"),
        Scenario("no_leak", mark("the leak repaired"), programs.no_leak, BATCHES, n=STEPS, default_n=6, rival="leak"),
    )
}


@dataclass(frozen=True)
class Settings:
    """A scenario at a size. `rows`: of a batch; `n`: its number. RuleError names the rule that is broken."""

    scenario: str
    rows: int = 8192
    n: int = 1

    def __post_init__(self):
        if self.scenario not in SCENARIOS:
            raise RuleError(tr("no scenario {name}; there are: {all}", name=self.scenario, all=", ".join(SCENARIOS)))
        for name, value, most in (("rows", self.rows, MAX_ROWS), ("n", self.n, MAX_N)):
            if not isinstance(value, int) or not 1 <= value <= most:
                raise RuleError(tr("{name} must be 1 to {most}, got {value}", name=name, most=most, value=value))
        if self.row.n == PIECES and self.n > self.rows:
            raise RuleError(tr("{rows} rows can be cut into 1 to {rows} pieces, got {n}", rows=self.rows, n=self.n))

    @property
    def row(self) -> Scenario:
        return SCENARIOS[self.scenario]

    @property
    def batches(self) -> int:
        return self.n if self.row.kind == BATCHES else 1

    @property
    def short(self) -> bool:
        """Returns whether its arrays have a fixed, small size."""
        return self.row.kind in (SHORT_KERNELS, ALLOCATIONS)

    @property
    def host_bytes(self) -> int:
        """Returns the bytes of its arrays on the host."""
        return FLOAT * int(np.prod(SHORT)) if self.short else FLOAT * WIDTH * self.rows * (self.batches + 1)

    @property
    def device_bytes(self) -> int:
        """Returns the most bytes that exist on the GPU at a time, w included."""
        resident = 4 * FLOAT * int(np.prod(SHORT)) if self.short else FLOAT * WIDTH * WIDTH
        return resident + max(memory_after(operations(self)), default=0)

    def check_memory(self, host_free: int, device_free: int) -> None:
        """Raise RuleError if the arrays do not fit."""
        for needed, free, where in (
            (self.host_bytes, host_free, tr("this machine")),
            (self.device_bytes, device_free, tr("the GPU")),
        ):
            if needed > free:
                raise RuleError(
                    tr(
                        "the arrays need {needed} bytes on {where}, {free} bytes are free; take fewer rows",
                        needed=f"{needed:,}",
                        where=where,
                        free=f"{free:,}",
                    )
                )


@dataclass
class Arrays:
    """The arguments of a program, and what its result must be."""

    settings: Settings
    args: tuple[object, ...]
    out: HostArray
    batches: tuple[HostArray, ...] = ()
    weights: np.ndarray | None = None
    total: np.ndarray | None = None  # the result of short kernels

    def check(self) -> float:
        """Returns the largest error over its scale, and raises RuntimeError if a result is wrong.

        Some rows are compared in float64: the first and the last of each piece, and 64 between them. All must be finite.
        """
        out = self.out.array
        if not np.isfinite(out).all():
            raise RuntimeError(f"{self.settings.scenario}: a result is not finite")
        if self.total is not None:
            error = float(np.abs(out - self.total).max() / np.abs(self.total).max())
        else:
            assert self.weights is not None  # of every scenario with products
            rows = self._rows()
            x, w = self.batches[-1].array[rows].astype(np.float64), self.weights.astype(np.float64)
            error = float((np.abs(out[rows] - x @ w) / (np.abs(x) @ np.abs(w))).max())
        if not error <= TOLERANCE:
            raise RuntimeError(f"{self.settings.scenario}: the result is off by {error:.2g} of its scale")
        return error

    def _rows(self) -> np.ndarray:
        rows, n = self.settings.rows, self.settings.n if self.settings.row.n == PIECES else 1
        ends = [k for part in Gpu.cut(rows, n) for k in (part.start, part.stop - 1)]
        return np.unique([*ends, *np.linspace(0, rows - 1, 64).astype(int)])

    def on(self, gpu: Gpu) -> Arrays:
        """Returns the same arrays, whose copies another Gpu notes."""

        def moved(arg: object) -> object:
            return DeviceArray(gpu, arg.shape, arg.memory) if isinstance(arg, DeviceArray) else arg

        return replace(self, args=tuple(map(moved, self.args)))

    def reset(self, gpu: Gpu) -> None:
        """Fills the result with NaN, and sums on the GPU with zeros."""
        self.out.array[...] = np.nan
        if self.settings.short:
            for array in self.args[-4:-2]:  # c and d
                if isinstance(array, DeviceArray):
                    gpu.backend.zero(array.buffer)


def arrays(gpu: Gpu, s: Settings, empty: Callable[[tuple[int, ...], bool], HostArray], seed: int = 0) -> Arrays:
    """Returns the arguments of a scenario: seeded random batches, or small whole numbers whose sums are exact.

    `empty(shape, pinned)` allocates on the host.
    """
    rng = np.random.default_rng(seed)
    if s.short:
        return _short(gpu, s, empty, rng)
    weights = (rng.random((WIDTH, WIDTH), np.float32) - np.float32(0.5)).astype(np.float32)
    batches = []
    for _ in range(s.batches):
        host = empty((s.rows, WIDTH), s.row.pinned)
        rng.random(out=host.array, dtype=np.float32)
        host.array -= np.float32(0.5)
        batches.append(host)
    out = empty((s.rows, WIDTH), s.row.pinned)
    x = batches if s.row.kind == BATCHES else batches[0]
    number = (s.n,) if s.row.n == PIECES else ()
    return Arrays(s, (x, gpu.resident(weights), out, *number), out, tuple(batches), weights)


def _short(gpu: Gpu, s: Settings, empty: Callable, rng: np.random.Generator) -> Arrays:
    a, b = (rng.integers(1, 8, SHORT).astype(np.float32) for _ in range(2))
    out, zero = empty(SHORT, pinned=True), np.zeros(SHORT, np.float32)
    on_gpu = [gpu.resident(a)] + ([gpu.resident(b)] if s.row.kind == ALLOCATIONS else [])
    on_gpu += [gpu.resident(zero), gpu.resident(zero)]
    total = s.n * (a + b) if s.row.kind == ALLOCATIONS else s.n * a
    return Arrays(s, (*on_gpu, out, s.n), out, total=total)


def run(gpu: Gpu, s: Settings, args: tuple[object, ...]) -> tuple[Op, ...]:
    """Runs the program of a scenario and returns its operations."""
    gpu.ops.clear()
    kept = s.row.program(gpu, *args)  # a leak's tensors exist until the program's end
    found = tuple(gpu.ops)
    del kept
    return found


@lru_cache(maxsize=256)
def operations(s: Settings) -> tuple[Op, ...]:
    """Returns the operations of a scenario, without executing any. RuleError names a rule that its kernel breaks."""
    gpu = Gpu(Dry())
    return run(gpu, s, _without_numbers(gpu, s))


def _without_numbers(gpu: Gpu, s: Settings) -> tuple[object, ...]:
    """Returns the arguments of a scenario as views of one zero."""

    def zero(shape: tuple[int, ...], pinned: bool = True) -> HostArray:
        return HostArray(np.broadcast_to(np.float32(0), shape), pinned)

    if s.short:
        count = 4 if s.row.kind == ALLOCATIONS else 3
        return (*(gpu.resident(zero(SHORT).array) for _ in range(count)), zero(SHORT), s.n)
    batches = [zero((s.rows, WIDTH), s.row.pinned) for _ in range(s.batches)]
    x = batches if s.row.kind == BATCHES else batches[0]
    number = (s.n,) if s.row.n == PIECES else ()
    return (x, gpu.resident(zero((WIDTH, WIDTH)).array), zero((s.rows, WIDTH), s.row.pinned), *number)


__all__ = ["FILE", "SCENARIOS", "Arrays", "Scenario", "Settings", "arrays", "operations", "run"]
