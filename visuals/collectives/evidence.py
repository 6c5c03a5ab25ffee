"""What is known of a collective at one length: times measured here or recorded, else predicted; its bytes and rounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from kernels.collectives import cost, recorded
from kernels.collectives.recorded import NCCL
from kernels.collectives.shape import ALGORITHMS, CollectiveShape
from kernels.i18n import tr, trn
from kernels.model.row import Row
from visuals import units
from visuals.collectives.captions import ALGORITHM_TITLES, TITLES

SIZES = {
    name: (1 << power)
    for name, power in {
        "1 KiB": 10,
        "4 KiB": 12,
        "16 KiB": 14,
        "64 KiB": 16,
        "256 KiB": 18,
        "1 MiB": 20,
        "4 MiB": 22,
        "16 MiB": 24,
        "64 MiB": 26,
        "256 MiB": 28,
        "1 GiB": 30,
    }.items()
}


@dataclass(frozen=True)
class CollectiveEvidence:
    """A collective at a length: `shape.elements` float32 on each rank. measured: rows by algorithm, of this machine."""

    shape: CollectiveShape
    measured: Mapping[str, Row] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return tr(
            "{kind}, {algorithm}",
            kind=tr(TITLES[self.shape.kind]),
            algorithm=tr(ALGORITHM_TITLES[self.shape.algorithm]),
        )

    @property
    def shape_text(self) -> str:
        """Returns GPUs and length in words."""
        gpus = trn("{n} GPU", "{n} GPUs", self.shape.ranks)
        return tr("{gpus}, {bytes} each", gpus=gpus, bytes=length(self.shape.nbytes))

    @property
    def algorithms(self) -> tuple[str, ...]:
        """Returns our algorithms of the kind, then NCCL."""
        return (*ALGORITHMS[self.shape.kind], NCCL)

    def row(self, algorithm: str) -> Row | None:
        """Returns a row measured here, else a recorded one, None if there is none."""
        s = self.shape
        return self.measured.get(algorithm) or recorded.nearest(s.kind, algorithm, s.ranks, s.nbytes)

    def ms(self, algorithm: str) -> float:
        """Returns the measured or recorded ms, else the predicted ones."""
        row = self.row(algorithm)
        return row["median_ms"] if row else self.predicted_ms(algorithm)

    def predicted_ms(self, algorithm: str) -> float:
        s = self.shape
        return recorded.predicted_ms(s.kind, algorithm, s.ranks, s.nbytes)

    def kind_of(self, algorithm: str) -> str:
        """Returns the kind of a time: "measured", "recorded" or "predicted"."""
        if algorithm in self.measured:
            return "measured"
        return "recorded" if self.row(algorithm) else "predicted"

    @cached_property
    def traffic(self) -> cost.Traffic:
        s = self.shape
        return recorded.traffic(s.kind, s.algorithm, s.ranks, s.nbytes)

    @property
    def rounds(self) -> int:
        return sum(n for n, _ in self.traffic)

    @property
    def port_bytes(self) -> float:
        """Returns what the busiest port moves in all rounds together."""
        return sum(n * nbytes for n, nbytes in self.traffic)

    @property
    def least_bytes(self) -> float:
        """Returns the bytes that must cross each port at least."""
        return cost.bus_factor(self.shape.kind, self.shape.ranks) * self.shape.nbytes

    @cached_property
    def shares(self) -> tuple[float, float]:
        """Returns the shares of latency and of transfer in their sum, by the model."""
        link, _ = recorded.link(self.shape.kind, self.shape.algorithm, self.shape.ranks)
        waits, moves = self.rounds * link.latency, self.port_bytes / link.bandwidth
        return (waits / (waits + moves), moves / (waits + moves)) if waits + moves else (0.0, 0.0)

    @property
    def badge(self) -> dict[str, str]:
        """Returns the kind of the time on the stage and its source."""
        algorithm, kind = self.shape.algorithm, self.kind_of(self.shape.algorithm)
        row = self.row(algorithm)
        if row:
            words = tr("measured here") if kind == "measured" else tr("recorded")
            name = f"{row['ranks']} × {str(row['device']).removeprefix('NVIDIA ')}"
            return {"kind": kind, "text": f"{words} · {name} · n = {row['n']}"}
        device = recorded.link(self.shape.kind, algorithm, self.shape.ranks)[1].replace("NVIDIA ", "")
        hint = tr("A model of latency and bandwidth, fitted to times that were measured on {device}.", device=device)
        return {"kind": kind, "text": tr("predicted · from {device}", device=device), "hint": hint}


def length(nbytes: int) -> str:
    """Returns a length as the page names it: "64 KiB", else in bytes."""
    return next((name for name, size in SIZES.items() if size == nbytes), "") or units.bytes_(nbytes)


def crossover(a: str, b: str, ranks: int, kind: str) -> str:
    """Returns the first length of SIZES at which algorithm b is predicted to be faster than a; "" if at none."""
    for name, nbytes in SIZES.items():
        if recorded.predicted_ms(kind, b, ranks, nbytes) < recorded.predicted_ms(kind, a, ranks, nbytes):
            return name
    return ""


def facts(evidence: CollectiveEvidence) -> dict[str, str]:
    """Returns the fields of sentences about a collective."""
    s = evidence.shape
    waits, moves = evidence.shares
    return {
        "ranks": str(s.ranks),
        "elements": units.whole(s.elements),
        "length": length(s.nbytes),
        "rounds": str(evidence.rounds),
        "port": units.bytes_(evidence.port_bytes),
        "times": units.ratio(evidence.port_bytes / s.nbytes),
        "least": units.ratio(evidence.least_bytes / s.nbytes),
        "predicted": units.time_(evidence.predicted_ms(s.algorithm)),
        "waits": units.share(waits),
        "moves": units.share(moves),
        **{
            f"predicted_{name.replace('-', '_')}": units.time_(evidence.predicted_ms(name))
            for name in evidence.algorithms
        },
    }
