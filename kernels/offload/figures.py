"""What the measured rows of a work say: the time of a size on each side, its parts on the GPU, and where the times cross."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kernels.model.row import Row
from kernels.offload import crossover
from kernels.offload.works import NONE, PAGEABLE

MIN_PAGEABLE_MS = 0.35  # of the copies: of_gpu says why


@dataclass(frozen=True)
class Figures:
    """The time of a size in ms: median, p20, p80, n, the median of each pass, and on the GPU the parts of the median."""

    ms: float
    p20_ms: float
    p80_ms: float
    n: int
    passes: Sequence[float]
    parts: Mapping[str, float] = field(default_factory=dict)

    def in_pass(self, n: int) -> float:
        """Returns the median of a pass, from 0; that of all passes if it was not measured again."""
        return self.passes[n] if n < len(self.passes) else self.ms

    @property
    def copies_ms(self) -> float:
        return self.parts["in"] + self.parts["out"]


def of_cpu(row: Row) -> Figures:
    return Figures(row["ms"], row["p20_ms"], row["p80_ms"], row["n"], tuple(row["passes"]))


def of_gpu(row: Row, copies: str) -> Figures | None:
    """Returns the time of a size on the GPU: a call, the kernel, and copies if they count.

    The caches are overwritten before the run without copies, as before the processor's run. So call and kernel are always
    those of that run, and the copies of another run are added. Pageable copies are measured last, when a part of their code
    is in the caches. That saves up to 0.035 ms: where the copies are not ten times as long, the result is None.
    """
    found = row[copies]
    parts = dict(found["parts_ms"])
    shift = 0.0
    if copies != NONE:
        first = row[NONE]["parts_ms"]
        shift = first["call"] + first["kernel"] - parts["call"] - parts["kernel"]
        parts |= {name: first[name] for name in ("call", "kernel")}
    if copies == PAGEABLE and parts["in"] + parts["out"] < MIN_PAGEABLE_MS:
        return None
    ms, p20, p80 = (found[name] + shift for name in ("ms", "p20_ms", "p80_ms"))
    return Figures(ms, p20, p80, found["n"], tuple(one + shift for one in found["passes"]), parts)


@dataclass(frozen=True)
class Range:
    """The sizes between which the GPU becomes faster, from pass to pass. `first`: it is, from the smallest size on."""

    low: float
    high: float
    first: bool = False


def crossing(cpu: Mapping[int, Figures], gpu: Mapping[int, Figures]) -> Range | None:
    """Returns where the GPU becomes faster, among the sizes that both sides have; None if it is not at the largest one."""
    sizes = sorted(cpu.keys() & gpu.keys())
    passes = max((len(cpu[size].passes) for size in sizes), default=0)
    found = [
        crossover.crossing(sizes, [cpu[size].in_pass(n) for size in sizes], [gpu[size].in_pass(n) for size in sizes])
        for n in range(passes)
    ]
    known = [one for one in found if one is not None]
    if not known or len(known) < len(found):
        return None
    where = [one.size for one in known]
    return Range(min(where), max(where), all(one.first for one in known))


def repeats_to_win(cpu: Figures, alone: Figures, copied: Figures) -> int | None:
    """Returns how often the work must run on arrays that are copied once until the GPU is faster; None if it never is.
    `alone` is the GPU's time without copies, `copied` that with them."""
    return crossover.repeats_to_win(cpu.ms, alone.ms, copied.copies_ms)
