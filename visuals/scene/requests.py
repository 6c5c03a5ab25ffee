"""Memory requests of a warp, for scenes: the sectors of a request and its wavefronts over the banks.

A request is one memory instruction of one warp: the byte at which each of its 32 lanes begins, which lanes are active
(`mask`, bit i: lane i) and how many bytes each lane requests. The rules are those of the counters.
"""

from __future__ import annotations

import numpy as np

from kernels.i18n import mark

SECTOR, BANKS, WORD, LANES = 32, 32, 4, 32  # bytes, banks, bytes of a bank's word, lanes of a warp
WORDS = SECTOR // WORD  # of a sector
BITS = (16, 8, 4, 2, 1)  # of a lane's number: its partner in each exchange of a butterfly differs in this bit

ORDER = mark("as the warps run")
ORDER_NOTE = mark(
    "On a GPU the scheduler chooses the order of the warps. Other blocks run on other SMs at the same time."
)


def lanes_of(mask: int) -> np.ndarray:
    """Returns int64[n]: the lanes whose bit is set."""
    return np.flatnonzero(int(mask) >> np.arange(LANES, dtype=np.int64) & 1)


def mask_of(lanes: np.ndarray) -> int:
    return int((np.uint64(1) << np.asarray(lanes).astype(np.uint64)).sum())


def sectors(elements: np.ndarray) -> int:
    """Count the different 32-byte sectors of float32 elements of an aligned buffer."""
    return len(np.unique(elements * 4 // SECTOR))


def traffic(elements: np.ndarray) -> tuple[int, int, int]:
    """Returns (lanes, sectors, fewest possible sectors) of one access to float32 elements."""
    return len(elements), sectors(elements), -(-len(elements) * 4 // SECTOR)


def requested_sectors(byte: np.ndarray, mask: int, width: int) -> tuple[int, int]:
    """Returns (sectors that a global request touches, fewest sectors that hold its bytes)."""
    _, word = _words(byte, lanes_of(mask), width)
    return len(np.unique(word // WORDS)), -(-len(word) // WORDS)


def bank_wavefronts(byte: np.ndarray, mask: int, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns (wavefront, bank, lane), one entry per word that a shared request touches. In a wavefront each bank
    delivers one word, to every lane that requests it; two words of one bank need two wavefronts. Wide requests are
    split into parts of the warp, as counters.wavefronts says."""
    first, parts = 0, []
    for lanes in _lane_groups(byte, lanes_of(mask), width):
        lane, word = _words(byte, lanes, width)
        wavefront = np.zeros(len(word), int)
        for bank in np.unique(word % BANKS):
            same_bank = np.flatnonzero(word % BANKS == bank)
            wavefront[same_bank] = np.arange(len(same_bank))
        parts.append((first + wavefront, word % BANKS, lane))
        first += int(wavefront.max()) + 1
    first, second, third = (np.concatenate(column) for column in zip(*parts, strict=True))
    return first, second, third


def _words(byte: np.ndarray, lanes: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns (lane, word) of the different words that lanes request, each with the first lane that requests it."""
    words_per_lane = max(1, width // WORD)
    word = (byte[lanes].astype(np.int64)[:, None] // WORD + np.arange(words_per_lane)).ravel()
    _, first = np.unique(word, return_index=True)
    first.sort()
    return np.repeat(lanes, words_per_lane)[first], word[first]


def _lane_groups(byte: np.ndarray, lanes: np.ndarray, width: int) -> list[np.ndarray]:
    """Returns the groups of lanes that share wavefronts: all lanes for up to 4 bytes a lane, halves of the warp for 8,
    quarters for 16. Two such parts still share if neighbouring lanes request the same word."""
    if width <= WORD:
        return [lanes]
    is_active = np.zeros(LANES, bool)
    is_active[lanes] = True
    span, groups = 256 // width, []
    for start in range(0, LANES, span):
        group_lanes = np.arange(start, start + span)
        same = False
        for distance in (1, 2):
            neighbours = group_lanes ^ distance
            both_active = is_active[group_lanes] & is_active[neighbours]
            same |= not (byte[group_lanes] // WORD != byte[neighbours] // WORD)[both_active].any()
        groups += [group_lanes] if same else [group_lanes[: span // 2], group_lanes[span // 2 :]]
    return [active for g in groups if len(active := g[is_active[g]])]


def min_wavefronts(byte: np.ndarray, mask: int, width: int) -> int:
    """Count the wavefronts that a shared request takes without bank conflicts."""
    return len(_lane_groups(byte, lanes_of(mask), width))
