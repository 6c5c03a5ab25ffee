"""What scenes of warps have in common: a request's sectors, its passes over the banks, a line's margin.

A request is one memory instruction of one warp: where each of its 32 lanes begins, in bytes, which of them ask
(`mask`, bit i: lane i) and how many bytes each asks for. The rules are those of the counters.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from kernels import cuda
from kernels.engines.emulator import precompiled
from kernels.engines.emulator.counters import Counters
from kernels.engines.emulator.occupancy import occupancy
from kernels.program import Launch
from visuals.scene import Source

SECTOR, BANKS, WORD, LANES = 32, 32, 4, 32  # bytes, banks, bytes of a bank's word, lanes of a warp
WORDS = SECTOR // WORD  # of a sector

ORDER = "as the warps run"
ORDER_NOTE = (
    "On a GPU the warps of a block run in an order of the scheduler's choosing, and other blocks at the "
    "same time on other SMs."
)


def lanes_of(mask: int) -> np.ndarray:
    """int64[n]: the lanes whose bit is set."""
    return np.flatnonzero(int(mask) >> np.arange(LANES) & 1)


def mask_of(lanes: np.ndarray) -> int:
    """The bits of some lanes."""
    return int((np.uint64(1) << np.asarray(lanes).astype(np.uint64)).sum())


def sectors(elements: np.ndarray) -> int:
    """Different 32-byte sectors under float32 elements of a buffer that starts aligned."""
    return len(np.unique(elements * 4 // SECTOR))


def traffic(elements: np.ndarray) -> tuple[int, int, int]:
    """(lanes, sectors, fewest possible sectors) of one access to float32 elements."""
    return len(elements), sectors(elements), -(-len(elements) * 4 // SECTOR)


def sectors_asked(byte: np.ndarray, mask: int, width: int) -> tuple[int, int]:
    """(sectors that a global request touches, fewest that would hold what it asks for)."""
    _, word = _words(byte, lanes_of(mask), width)
    return len(np.unique(word // WORDS)), -(-len(word) // WORDS)


def bank_places(byte: np.ndarray, mask: int, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(pass, bank, lane), one entry a word that a shared request touches. In a pass each bank serves one
    word, to every lane that asks for it; words that meet in a bank take turns. Wide requests go by parts of
    the warp, as counters.wavefronts says."""
    first, parts = 0, []
    for lanes in _together(byte, lanes_of(mask), width):
        lane, word = _words(byte, lanes, width)
        turn = np.zeros(len(word), int)
        for bank in np.unique(word % BANKS):
            here = np.flatnonzero(word % BANKS == bank)
            turn[here] = np.arange(len(here))
        parts.append((first + turn, word % BANKS, lane))
        first += int(turn.max()) + 1
    return tuple(np.concatenate(column) for column in zip(*parts, strict=True))


def _words(byte: np.ndarray, lanes: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """(lane, word) of the different words that lanes ask for, each with the first lane that does."""
    wide = max(1, width // WORD)
    word = (byte[lanes].astype(np.int64)[:, None] // WORD + np.arange(wide)).ravel()
    _, first = np.unique(word, return_index=True)
    first.sort()
    return np.repeat(lanes, wide)[first], word[first]


def _together(byte: np.ndarray, lanes: np.ndarray, width: int) -> list[np.ndarray]:
    """The lanes that are served together: all of them for up to 4 bytes a lane, halves of the warp for 8,
    quarters for 16; two such parts still go together where neighbours ask for the same."""
    if width <= WORD:
        return [lanes]
    on = np.zeros(LANES, bool)
    on[lanes] = True
    span, groups = 256 // width, []
    for start in range(0, LANES, span):
        at = np.arange(start, start + span)
        same = False
        for apart in (1, 2):
            other = at ^ apart
            both = on[at] & on[other]
            same |= not (byte[at] // WORD != byte[other] // WORD)[both].any()
        groups += [at] if same else [at[: span // 2], at[span // 2 :]]
    return [kept for g in groups if len(kept := g[on[g]])]


def fewest_passes(byte: np.ndarray, mask: int, width: int) -> int:
    """Passes over the banks that a shared request takes where no two words meet in one."""
    return len(_together(byte, lanes_of(mask), width))


def margin(counters: Counters, file: str) -> dict[int, str]:
    """By line of `file`: what the launch moved, the passes over the banks, and where warps parted."""
    notes = {}
    for line, c in counters.lines.items():
        parts = []
        for op in ("ld", "st"):
            if c[f"sectors_{op}"]:
                parts.append(f"{op} {c[f'sectors_{op}']:,} sect")
            if c[f"wavefronts_{op}"]:
                parts.append(f"{op} {c[f'wavefronts_{op}']:,} waves")
        if conflicts := c["bank_conflicts_ld"] + c["bank_conflicts_st"]:
            parts.append(f"{conflicts:,} conflicts")
        if c["divergent_branches"]:
            parts.append(f"div {c['divergent_branches'] / c['branches']:.0%}")
        if line.file == file and parts:
            notes[line.number] = ", ".join(parts)
    return notes


def source_of(file: str, marks: Sequence[str | re.Pattern], kind: np.ndarray, **more) -> Source:
    """A CUDA source without its opening comment; at a step of kind n the first line with marks[n], a text or a
    pattern, is lit. ValueError where a mark stands nowhere: then the file has changed and the marks have not."""
    lines = cuda.text(file).splitlines()
    first = next(i for i, line in enumerate(lines) if line and not line.startswith("//"))
    lit = []
    for mark in marks:
        found = re.compile(re.escape(mark)) if isinstance(mark, str) else mark
        lit.append(next((i + 1 for i in range(first, len(lines)) if found.search(lines[i])), 0))
    if 0 in lit:
        raise ValueError(f"{file} has no line like {marks[lit.index(0)]!r}")
    text = "\n".join(lines[first:])
    return Source(file.rpartition("/")[2], text, np.array(lit)[kind], first + 1, **more)


def resources(launch: Launch) -> str:
    """Registers and shared memory as ptxas reports them for sm_90, and the occupancy they allow there; "" for
    a kernel that is not among those compiled."""
    told = precompiled.resources(launch.source, launch.defines)
    if not told:
        return ""
    shared = told["shared_bytes"] + launch.shared
    fits = occupancy(told["registers"], shared, int(np.prod(launch.block)))
    return f"{told['registers']} registers, {shared:,} B shared, occupancy {fits.share:.0%} (H200)"
