"""What is known of a transfer program: its operations, its timeline measured, recorded or predicted, and figures of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from kernels.i18n import tr
from kernels.model.row import Row
from kernels.transfers import model, recorded
from kernels.transfers.operations import COMPUTE, HOST, IN, OUT, Op, Timeline, memory_after
from kernels.transfers.rates import Rates, rates
from kernels.transfers.scenarios import PIECES, SCENARIOS, Settings, operations
from visuals import units

ROWS = 8192  # of the stories; LARGE_ROWS of the overlap that counts
LARGE_ROWS, LARGE_PIECES = 32_768, 32


@dataclass(frozen=True)
class TransferEvidence:
    """A scenario at a size. `measured`: the row of a run here, if there is one."""

    settings: Settings
    measured: Row | None = None

    @cached_property
    def ops(self) -> tuple[Op, ...]:
        return operations(self.settings)

    @cached_property
    def found(self) -> Row | None:
        """Returns the row of this scenario that was measured here, else the recorded one, if its operations are these."""
        s = self.settings
        row = self.measured or recorded.scenario(s.scenario, 1 if s.short else s.rows, s.n)
        return row if row and row["ops"] == len(self.ops) else None

    @cached_property
    def timeline(self) -> Timeline:
        return recorded.timeline(self.found) if self.found else model.predicted(self.settings)

    @cached_property
    def recorded_ms(self) -> float | None:
        """Returns a recorded total that has no timeline: of a batch in pieces."""
        s = self.settings
        return recorded.pieces_ms(s.rows).get(s.n) if s.scenario == "pieces" and not self.found else None

    @property
    def kind(self) -> str:
        """Returns the kind of the total. The timeline is predicted if `found` is None."""
        if self.found and self.measured:
            return "measured"
        return "recorded" if self.found or self.recorded_ms else "predicted"

    @property
    def source(self) -> str:
        """Returns where the times come from: the device, and for a prediction the rates."""
        if self.found and self.measured:
            return str(self.found["device"])
        if self.kind == "recorded" and (record := recorded.newest()):
            return str(record["device"]).removeprefix("NVIDIA ")
        return tr("{device}’s rates", device=rates().device.removeprefix("NVIDIA "))

    @property
    def total_ms(self) -> float:
        return self.found["total_ms"] if self.found else self.recorded_ms or self.timeline.total_ms

    @property
    def unknown(self) -> tuple[str, ...]:
        """Returns the kinds of operations that a prediction leaves out."""
        return () if self.found else model.unknown(self.ops, rates())

    @property
    def total_text(self) -> str:
        """Returns the total; "–" if a part of it is not known."""
        return "–" if self.unknown else units.time_(self.total_ms)

    @cached_property
    def memory(self) -> list[int]:
        """Returns the bytes on the GPU after each operation, without the arrays that are there before."""
        return memory_after(self.ops)

    @property
    def size_text(self) -> str:
        s = self.settings
        parts = [] if s.short else [tr("{rows} rows", rows=units.whole(s.rows))]
        if s.row.n:
            parts.append(tr("{n} {what}", n=s.n, what=tr(s.row.n)))
        return ", ".join(parts) or tr("{n} launches", n=s.n)

    def with_(self, scenario: str, n: int | None = None) -> TransferEvidence:
        """Returns another scenario at the same rows, with its usual number or `n`; at most one piece for each row."""
        row, rows = SCENARIOS[scenario], self.settings.rows
        usual = self.settings.n if row.n and row.n == self.settings.row.n else row.default_n
        wanted = usual if n is None else n
        return TransferEvidence(Settings(scenario, rows, min(wanted, rows) if row.n == PIECES else wanted))


def of(scenario: str, rows: int = ROWS, n: int | None = None) -> TransferEvidence:
    """Returns a scenario of the stories."""
    return TransferEvidence(Settings(scenario, rows, n if n is not None else SCENARIOS[scenario].default_n))


def rival(found: TransferEvidence) -> TransferEvidence | None:
    """Returns the scenario that one is compared with."""
    key = found.settings.row.rival
    return found.with_(key) if key else None


def group(found: TransferEvidence) -> list[TransferEvidence]:
    """Returns the scenarios beside which one is shown, itself among them, in the order of SCENARIOS."""
    keys = {found.settings.scenario}
    for _ in range(3):
        keys |= {s.rival for s in SCENARIOS.values() if s.key in keys and s.rival}
        keys |= {s.key for s in SCENARIOS.values() if s.rival in keys}
    own = found.settings.scenario
    return [found if key == own else found.with_(key) for key in SCENARIOS if key in keys]


def facts(found: TransferEvidence) -> dict[str, str]:
    """Returns the fields of sentences about a scenario; "" for what is not known. `total` is of runs without events, `timed`
    and all times of queues are of the timeline, whose events take time too."""
    t, busy = found.timeline, found.timeline.busy
    known = not found.unknown
    other = rival(found)
    ratio = other.total_ms / found.total_ms if other and known and not other.unknown else None
    return {
        "title": tr(found.settings.row.title),
        "total": units.time_(found.total_ms) if known else "",
        "in": units.time_(busy[IN]),
        "compute": units.time_(busy[COMPUTE]),
        "out": units.time_(busy[OUT]),
        "host": units.time_(busy[HOST]),
        "longest": units.time_(t.longest),
        "timed": units.time_(t.total_ms) if known else "",
        "over_longest": units.ratio(t.total_ms / t.longest) if known and t.longest else "",
        "sum": units.time_(busy[IN] + busy[COMPUTE] + busy[OUT]),
        "bytes": units.bytes_(bytes_in(found)),
        "rate_in": units.bandwidth(_two_digits(bytes_in(found) / busy[IN] * 1e3)) if busy[IN] else "",
        "memory": units.bytes_(max(found.memory, default=0)),
        "last_memory": units.bytes_(found.memory[-1]) if found.memory else "",
        "n": str(found.settings.n),
        "rows": units.whole(found.settings.rows),
        "rival": other.total_text.replace("–", "") if other else "",
        "gain": units.ratio(ratio) if ratio else "",
        "kind": tr(found.kind),
        "source": tr("{kind} ({source})", kind=tr(found.kind), source=found.source),
    }


def bytes_in(found: TransferEvidence) -> int:
    """Returns the bytes that are copied to the GPU."""
    return sum(op.nbytes for op in found.ops if op.queue == IN)


def _two_digits(number: float) -> float:
    """Returns a quotient of two figures that are shown with three digits each: the third digit of theirs would differ."""
    return float(f"{number:.2g}")


def bandwidth(way: str, r: Rates | None = None) -> str:
    """Returns the bandwidth of large copies: "54.7 GB/s"."""
    return units.bandwidth((r or rates()).copies[way].bytes_per_s)
