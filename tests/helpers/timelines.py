"""What a trace says of the tiles of a block, warp by warp: the proof of its timeline.

Which tile a copy belongs to follows from the addresses in global memory that it reads, not from the order of copies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from kernels.engines.emulator.trace import BARRIER, WAIT, BlockTrace
from visuals.scene.program_order import Fill, ProgramOrder, Region, first_bytes
from visuals.scene.scene import Scene

TileOf = Callable[[str, int], int | None]  # (buffer in global memory, byte) -> the tile that it belongs to


@dataclass(eq=False)
class Run:
    """Copies of a warp into one buffer. `tiles`: those that the bytes that it reads belong to."""

    tiles: set[int] = field(default_factory=set)

    @property
    def tile(self) -> int | None:
        assert len(self.tiles) <= 1, self.tiles
        return next(iter(self.tiles), None)


@dataclass(frozen=True)
class Token:
    """An access of a warp to a tile, or its wait or barrier. `barriers`: how many the warp was at before."""

    kind: str  # "copy", "use", "wait", "barrier"
    name: str = ""  # of the stream or the use
    stream: str = ""
    lane: int = 0
    run: Run | None = None
    barriers: int = 0

    @property
    def tile(self) -> int | None:
        return self.barriers + 1 if self.kind == "barrier" else self.run and self.run.tile


def replay(trace: BlockTrace, warp: int, regions: Sequence[Region], tile_of: TileOf) -> list[Token]:
    """Returns the tokens of a warp in the order in which it executed them."""
    requests, syncs, first = trace.requests, trace.syncs, first_bytes(trace.requests)
    mine = [(int(n), 1, int(n)) for n in np.flatnonzero(requests.warp == warp)]
    mine += [(int(syncs.requests[n]), 0, n) for n in range(len(syncs)) if int(syncs.warps[n]) >> warp & 1]
    tokens: list[Token] = []
    runs: dict[tuple[str, int], Run] = {}  # by buffer: the copies into it that no use followed yet
    used: dict[tuple[str, int], Run] = {}
    read: set[int] = set()  # tiles read from global memory since the last copy
    barriers = 0
    for _, is_request, n in sorted(mine):
        if not is_request:
            if syncs.kind[n] == BARRIER:
                tokens.append(Token("barrier", barriers=barriers))
                barriers += 1
            elif syncs.kind[n] == WAIT:
                tokens.append(Token("wait", barriers=barriers))
            continue
        name, byte = trace.buffers[requests.buffer[n]], int(first[n])
        if (tile := tile_of(name, byte)) is not None and not requests.write[n]:
            read.add(tile)
        region = next((r for r in regions if r.buffer == name and r.start <= byte < r.stop), None)
        if region is None:
            continue
        at = region.stream, region.lane
        if requests.write[n]:
            if used.pop(at, None):
                del runs[at]
            run = runs.setdefault(at, Run())
            run.tiles |= read
            read = set()
            tokens.append(Token("copy", region.stream, *at, run, barriers))
        else:
            used[at] = runs[at]
            tokens.append(Token("use", region.use, *at, runs[at], barriers))
    return tokens


def assert_proved(order: ProgramOrder, trace: BlockTrace, regions: Sequence[Region], tile_of: TileOf) -> None:
    """Checks each column against each warp: what is in it, and that no warp executes it out of order."""
    warps = range(trace.masks.shape[1])
    shown, barriers = _columns(order), max(slot.barrier for slot in order.slots)
    for warp in warps:
        tokens = replay(trace, warp, regions, tile_of)
        spans: dict[tuple[str, str, int], tuple[int, int]] = {}
        for n, token in enumerate(tokens):
            if token.kind == "wait" or token.tile is None:
                continue
            if (
                token.barriers + (token.kind == "barrier") > barriers
            ):  # after the loop, results go through the same memory
                continue
            key = token.kind, token.name, token.tile
            spans[key] = spans.get(key, (n, n))[0], n
        assert spans.keys() <= shown.keys(), (warp, spans.keys() - shown.keys())
        ordered = sorted(spans, key=lambda key: shown[key])
        for one, other in pairwise(ordered):
            if shown[one] < shown[other]:
                assert spans[one][1] < spans[other][0], (warp, one, other)


def _columns(order: ProgramOrder) -> dict[tuple[str, str, int], int]:
    found = {}
    for n, slot in enumerate(order.slots):
        found |= {("copy", stream, tile): n for stream, tile in slot.copied}
        found |= {("use", use, tile): n for use, tile in slot.used}
        found |= {("barrier", "", slot.barrier): n} if slot.barrier else {}
    return found


def assert_safe(trace: BlockTrace, regions: Sequence[Region], tile_of: TileOf) -> None:
    """Checks that a barrier is between the copy of a tile by any warp and its use by any warp, and between that use and
    the next copy into the same buffer."""
    copied: dict[tuple, list[int]] = {}
    used: dict[tuple, list[int]] = {}
    for warp in range(trace.masks.shape[1]):
        for token in replay(trace, warp, regions, tile_of):
            if token.kind in ("copy", "use") and token.tile is not None:
                kept = copied if token.kind == "copy" else used
                kept.setdefault((token.stream, token.lane, token.tile), []).append(token.barriers)
    assert used
    for stream, lane, tile in used:
        assert max(copied[stream, lane, tile]) < min(used[stream, lane, tile])
        later = [t for s, b, t in copied if (s, b) == (stream, lane) and t > tile]
        if later:
            assert max(used[stream, lane, tile]) < min(copied[stream, lane, min(later)])


def assert_folded(order: ProgramOrder, whole: ProgramOrder) -> None:
    """Checks a folded order against that of a run of all tiles: its ends are the same, its middle repeats."""
    (at,) = (n for n, slot in enumerate(order.slots) if any(slot.folded))
    tail = len(order.slots) - at - 1
    assert order.slots[:at] == whole.slots[:at]
    assert order.slots[at + 1 :] == whole.slots[len(whole.slots) - tail :]
    first, last = order.slots[at].folded
    middle = whole.slots[at : len(whole.slots) - tail]
    each, rest = divmod(len(middle), last - first + 1)
    assert not rest
    for one, other in zip(middle, middle[each:], strict=False):
        for pairs in ("copied", "used", "awaited", "ready", "done"):
            assert [(name, tile + 1) for name, tile in getattr(one, pairs)] == list(getattr(other, pairs))
    for n in (*range(at), *range(at + 1, len(order.slots))):
        late = len(whole.slots) - len(order.slots) if n > at else 0
        assert {(f.stream, f.lane, f.tile) for f in order.in_flight(n)} == {
            (f.stream, f.lane, f.tile) for f in whole.in_flight(n + late)
        }


def own_row(what: Fill | str) -> tuple[str, int]:
    return (what, 0) if isinstance(what, str) else (what.stream, what.lane)


def assert_pictured(scene: Scene, order: ProgramOrder, place: Callable = own_row) -> None:
    """Checks every cell of a scene against an order: copies while they can run, uses, waits and barriers in their column.
    `place` returns the row and the lane of a copy, or of a use by its name."""
    assert scene.steps == len(order.slots)
    lines, barrier_lane = scene.source.text.splitlines(), int(any(slot.awaited for slot in order.slots))
    for n, slot in enumerate(order.slots):
        line = lines[int(scene.source.lines[n]) - scene.source.first]
        assert "__syncthreads" in line if slot.barrier else "wait_groups" in line if slot.awaited else line.strip("} ")
        expected = {place(f): f.tile for f in order.in_flight(n)}
        expected |= {place(use): tile for use, tile in slot.used}
        expected |= {("syncs", 0): slot.awaited[-1][1]} if slot.awaited else {}
        guarded = [tile for _, tile in slot.ready or slot.done]
        expected |= {("syncs", barrier_lane): guarded[-1]} if slot.barrier else {}
        column = {}
        for tensor in scene.tensors:
            now = scene.cells(tensor.name, n).reshape(tensor.rows, -1)
            assert np.isnan(now[:, n + 1 :]).all(), "a later column is written"
            column |= {(tensor.name, lane): int(v) for lane, v in enumerate(now[:, n]) if not np.isnan(v)}
        assert column == expected
