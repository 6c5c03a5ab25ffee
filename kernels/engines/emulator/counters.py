"""The counters of a run, instruction by instruction. nsight.py has the metrics of Nsight Compute that count the same.

requests  warps with an active lane, per global load or store
sectors   distinct 32-byte pieces per request
wavefronts, bank_conflicts  shared memory: wavefronts over 32 banks of 4 bytes, and those beyond the fewest possible.
          Atomics are not included, except the loads of those that ptxas writes as a loop (a float's sum).
          Lanes that access another block of a cluster are not included either
*_copied  the part of *_st by cp.async, which Nsight Compute counts separately. These are what the banks
          require: the hardware needs as many or more, which depends on the cache lines of the data
bulk_bytes  bytes of global memory that bulk copies (TMA) read (ld) or write (st); they are in no other counter
warp_instructions, thread_instructions  PTX instructions, not SASS.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernels.engines.emulator.ptx.kernel import Instruction, Line

SECTOR_BITS, BANKS, WORD_BITS, LANES = 5, 32, 2, 32
# PTX instructions counted for each machine instruction that an H200 executed: minimum and maximum over the cases of
# the hardware fixture (checked by tests/kernels/engines/emulator/test_hardware_counters.py). Ratios below a half are of
# kernels that mainly divide integers or load fragments by wmma, and of warps that add floats to one word of shared
# memory: there one PTX instruction is many machine instructions.
PTX_PER_MACHINE = (0.22, 1.62)
FIELDS = (
    "warp_instructions",
    "thread_instructions",
    "branches",
    "divergent_branches",
    "requests_ld",
    "requests_st",
    "sectors_ld",
    "sectors_st",
    "bytes_ld",
    "bytes_st",
    "shared_requests_ld",
    "shared_requests_st",
    "wavefronts_ld",
    "wavefronts_st",
    "bank_conflicts_ld",
    "bank_conflicts_st",
    "wavefronts_copied",
    "bank_conflicts_copied",
    "bulk_bytes_ld",
    "bulk_bytes_st",
    "atomics",
    "barriers",
    "flops_fp",
    "flops_dp4a",
    "flops_mma",
)


@dataclass(frozen=True)
class Counters:
    """Totals of a run and the same by CUDA line; keys are FIELDS. `sectors_*` times 32 is the bytes moved, `bytes_*`
    the bytes that the lanes requested."""

    total: dict[str, int]
    lines: dict[Line, dict[str, int]]
    uncounted: tuple[str, ...] = ()  # library calls: computed, not counted

    @property
    def with_derived(self) -> dict[str, float]:
        """Returns the totals, and what follows from them: bytes moved, and sectors per request."""
        return self.total | _derived(self.total)

    def to_json(self) -> dict:
        return {
            "level": "PTX",
            "total": self.with_derived,
            "uncounted": list(self.uncounted),
            "lines": [{"file": line.file, "line": line.number} | counts for line, counts in self.lines.items()],
        }


def _derived(counts: dict[str, int]) -> dict[str, float]:
    """Returns bytes moved, and sectors per request (0 if there is no request)."""
    out: dict[str, float] = {}
    for op in ("ld", "st"):
        sectors, requests = counts[f"sectors_{op}"], counts[f"requests_{op}"]
        out[f"bytes_moved_{op}"] = sectors << SECTOR_BITS
        out[f"sectors_per_request_{op}"] = sectors / requests if requests else 0.0
    return out


def add_up(parts: Sequence[Counters], uncounted: Sequence[str] = ()) -> Counters:
    """Returns the sum of the counters of several launches."""
    lines: dict[Line, dict[str, int]] = {}
    for part in parts:
        for line, counts in part.lines.items():
            sums = lines.setdefault(line, dict.fromkeys(FIELDS, 0))
            for name, count in counts.items():
                sums[name] += count
    total = {name: sum(part.total[name] for part in parts) for name in FIELDS}
    return Counters(total, lines, tuple(uncounted))


class Tally:
    """Collects counts while a kernel runs, one for each instruction and field."""

    def __init__(self, code: Sequence[Instruction]):
        self.code = code
        self.rows = {name: np.zeros(len(code), np.int64) for name in FIELDS}

    def ran(self, start: int, stop: int, warps: int, lanes: int) -> None:
        """Count that `warps` warps with `lanes` lanes in total issued instructions start .. stop-1."""
        self.rows["warp_instructions"][start:stop] += warps
        self.rows["thread_instructions"][start:stop] += lanes

    def add(self, pc: int, name: str, count: int) -> None:
        self.rows[name][pc] += count

    def global_access(self, pc: int, op: str, lines: np.ndarray, active: np.ndarray | None, width: int) -> None:
        """Count an access to global memory. `lines`: byte addresses (warps, 32); `active`: bool of the same shape, None
        for all; `width` in bytes."""
        self.rows[f"requests_{op}"][pc] += _warps(lines, active)
        self.rows[f"sectors_{op}"][pc] += distinct(lines >> np.uint64(SECTOR_BITS), active)
        self.rows[f"bytes_{op}"][pc] += width * (lines.size if active is None else int(active.sum()))

    def shared_access(self, pc: int, op: str, lines: np.ndarray, active: np.ndarray | None, width: int) -> None:
        waves, fewest = wavefronts(lines, active, width)
        self.rows[f"shared_requests_{op}"][pc] += _warps(lines, active)
        self.rows[f"wavefronts_{op}"][pc] += waves
        self.rows[f"bank_conflicts_{op}"][pc] += waves - fewest
        if self.code[pc].parts[0] == "cp":
            self.rows["wavefronts_copied"][pc] += waves
            self.rows["bank_conflicts_copied"][pc] += waves - fewest

    def counters(self) -> Counters:
        total = {name: int(row.sum()) for name, row in self.rows.items()}
        known = {instruction.line for instruction in self.code}
        lines = sorted((line for line in known if line is not None), key=lambda line: (line.file, line.number))
        number: dict[Line | None, int] = {line: n for n, line in enumerate(lines)}
        of_line = np.array([number.get(instruction.line, len(lines)) for instruction in self.code], np.int64)
        sums = np.zeros((len(lines) + 1, len(FIELDS)), np.int64)  # the last row: code without a line
        np.add.at(sums, of_line, np.stack([self.rows[name] for name in FIELDS], axis=1))
        counts = [{str(name): n for name, n in zip(FIELDS, row, strict=True)} for row in sums[:-1].tolist()]
        return Counters(total, dict(zip(lines, counts, strict=True)))


def _warps(lines: np.ndarray, active: np.ndarray | None) -> int:
    return len(lines) if active is None else int(active.any(axis=1).sum())


def distinct(values: np.ndarray, active: np.ndarray | None) -> int:
    """Returns the sum over rows of the number of different values in the row's active entries."""
    if active is not None:
        rows = active.any(axis=1)
        if not rows.all():
            values, active = values[rows], active[rows]
        if not values.size:
            return 0
        # An idle lane gets the value of an active one, which adds no new value.
        first = values[np.arange(len(values)), active.argmax(axis=1)]
        values = np.where(active, values, first[:, None])
    left, right = values[:, :-1], values[:, 1:]
    if not (right >= left).all():
        values = np.sort(values, axis=1)
        left, right = values[:, :-1], values[:, 1:]
    return len(values) + int(np.count_nonzero(right != left))


def wavefronts(lines: np.ndarray, active: np.ndarray | None, width: int) -> tuple[int, int]:
    """Returns (wavefronts, fewest possible) of shared accesses; arguments as of global_access.

    A wavefront delivers 128 bytes. So lanes that load 4 bytes each form one group, lanes that load 8 bytes a group for
    each half of the warp, and lanes that load 16 a group for each quarter. Two groups form one if each lane loads the
    same as its neighbour, or each the same as the lane two further. A group needs as many wavefronts as the fullest bank
    has different words.
    """
    words = (lines >> np.uint64(WORD_BITS)).astype(np.int64)
    if width <= 4:
        return _group_wavefronts(words, active, 1)
    span = 256 // width  # lanes of two groups
    words = words.reshape(-1, span)
    mask = None if active is None else active.reshape(words.shape)
    together = np.zeros(len(words), bool)
    for distance in (1, 2):
        other = np.arange(span) ^ distance
        differ = words != words[:, other]
        if mask is not None:
            differ &= mask & mask[:, other]
        together |= ~differ.any(axis=1)
    total = fewest = 0
    for rows, lanes in ((together, span), (~together, span // 2)):
        if rows.any():
            part = None if mask is None else mask[rows].reshape(-1, lanes)
            waves, groups = _group_wavefronts(words[rows].reshape(-1, lanes), part, width // 4)
            total, fewest = total + waves, fewest + groups
    return total, fewest


def _group_wavefronts(words: np.ndarray, mask: np.ndarray | None, wide: int) -> tuple[int, int]:
    """Returns (wavefronts, groups); each row of lanes is a group. A lane accesses `wide` words from its word on."""
    if mask is not None:
        rows = mask.any(axis=1)
        words, mask = words[rows], mask[rows]
        if not len(words):
            return 0, 0
        first = words[np.arange(len(words)), mask.argmax(axis=1)]
        words = np.where(mask, words, first[:, None])
    if wide > 1:
        words = (words[:, :, None] + np.arange(wide)).reshape(len(words), -1)
    if not (words[:, 1:] >= words[:, :-1]).all():
        words = np.sort(words, axis=1)
    new = np.ones(words.shape, bool)
    new[:, 1:] = words[:, 1:] != words[:, :-1]
    cell = (np.arange(len(words))[:, None] * BANKS + words % BANKS)[new]
    fullest = np.bincount(cell.astype(np.intp, copy=False), minlength=len(words) * BANKS).reshape(-1, BANKS).max(axis=1)
    return int(fullest.sum()), len(words)
