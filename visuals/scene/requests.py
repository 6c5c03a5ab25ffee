"""What scenes of warps have in common: a request's sectors, its passes over the banks, a line's margin.

A request is one memory instruction of one warp: where each of its 32 lanes begins, in bytes, which of them ask
(`mask`, bit i: lane i) and how many bytes each asks for. The rules are those of the counters.
"""

from __future__ import annotations

import numpy as np

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
