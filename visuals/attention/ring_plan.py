"""What the emulator runs for the ring of attention on Hopper: block 0 of a kernel, with as few tiles of keys as show all
that the block does, and where the tiles are in its shared memory."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from kernels import sources
from kernels.attention import hopper
from kernels.attention.shape import AttentionShape
from kernels.engines import emulator
from kernels.engines.emulator.events import NONE
from kernels.engines.emulator.ptx.kernel import Line
from kernels.engines.emulator.trace import BlockTrace
from kernels.ladders import find
from kernels.model.launch import ceil
from kernels.model.program import Launch, Program, Tiles
from visuals.attention.ring_order import K, Q, Region, Ring, Slot, V, folded, ring_order, whole_loop
from visuals.scene.ring import ARRIVED
from visuals.scene.why_not import broken_rule

MAX_QUERIES = 2  # tiles of queries of a block that are shown, if their loops over keys are shown whole
STEPS_FILE = "attention/flash_wgmma.cuh"  # the steps of all these kernels
SOFTMAX_MARK, TOKEN_MARK = "s[j][e] = exp2_(", "wait_turn("


@dataclass(frozen=True)
class Kind:
    """What differs between the rungs. `producer`: a warpgroup only copies. `persistent`: a block computes several tiles of
    queries; it has shared memory for so many."""

    file: str
    producer: bool = True
    persistent: bool = False
    queries: int = 1
    passes_token: bool = False


RINGS = {
    "attention/wgmma": Kind("attention/15_flash_wgmma.cu", producer=False),
    "attention/wgmma-consumers": Kind("attention/16_flash_consumers.cu"),
    "attention/wgmma-ping-pong": Kind("attention/17_flash_ping_pong.cu", passes_token=True),
    "attention/wgmma-overlap": Kind("attention/18_flash_overlap.cu", passes_token=True),
    "attention/wgmma-balanced": Kind("attention/19_flash_balanced.cu", persistent=True, passes_token=True),
    "attention/wgmma-persistent": Kind(
        "attention/20_flash_persistent.cu", persistent=True, queries=hopper.TILES_OF_QUERIES, passes_token=True
    ),
}


def why_not(s: AttentionShape, rung: str, tiles: Mapping[str, int]) -> str:
    """Returns why a rung has no ring at a shape; "" if it has one."""
    return broken_rule(rung, s, tiles)


@dataclass(frozen=True)
class RingPlan:
    """A rung at a shape with all its tile sizes, and what is run in its place."""

    s: AttentionShape
    rung: str
    tiles: Tiles

    @property
    def kind(self) -> Kind:
        return RINGS[self.rung]

    @cached_property
    def launch(self) -> Launch:
        """The launch of the whole shape. Its defines are the tile sizes that the kernel uses."""
        return find(self.rung).build(self.s, self.tiles).launch()

    @cached_property
    def ring(self) -> Ring:
        kind, sizes = self.kind, dict(self.launch.defines)
        Br, Bc, DP, stages = (int(sizes[name]) for name in ("Br", "Bc", "DP", "STAGES"))
        of_q, of_k = 2 * Br * DP, 2 * Bc * DP
        keys = kind.queries * of_q
        values = keys + stages * of_k
        full_q = values + stages * of_k
        full_k = full_q + 8 * kind.queries
        full_v, empty_k, empty_v, empty_q = (full_k + 8 * n * stages for n in (1, 2, 3, 4))
        regions = {
            Q: Region(0, kind.queries, of_q, full_q, empty_q if kind.persistent else NONE),
            K: Region(keys, stages, of_k, full_k, empty_k if kind.producer else NONE),
            V: Region(values, stages, of_k, full_v, empty_v if kind.producer else NONE),
        }
        softmax = _lines_of(STEPS_FILE, SOFTMAX_MARK)
        tokens = _lines_of(kind.file, TOKEN_MARK) if kind.passes_token else frozenset()
        lines = tuple(line.partition("//")[0] for line in sources.text(kind.file).splitlines())
        consumers = Br // hopper.WM
        return Ring(regions, consumers, kind.producer, softmax, tokens, kind.passes_token and consumers == 2, lines)

    # -- the cut -------------------------------------------------------------------------------------
    @cached_property
    def count(self) -> int:
        """The tiles of keys of the block's first tile of queries: all of them."""
        return ceil(self.s.N, self._size("Bc"))

    @cached_property
    def rounds(self) -> int:
        """The tiles of queries that the block computes."""
        if not self.kind.persistent:
            return 1
        rows = ceil(self.s.N, self._size("Br"))
        items = (ceil(rows, 2) if self.s.causal else rows) * self.s.heads
        per_item = 2 if self.s.causal and rows > 1 else 1
        return per_item * ceil(items, self.launch.grid[0])

    @cached_property
    def shown(self) -> int:
        """The tiles of queries that are shown: if causal a pair, as its second one has few keys."""
        most = MAX_QUERIES if self.count <= whole_loop(self.tail) or self.s.causal else 1
        return min(self.rounds, most)

    @cached_property
    def tail(self) -> int:
        """Tiles of keys that are kept at the end of a long loop: nothing is left to copy, and some hide all their keys."""
        hidden = ceil(self._size("Br"), self._size("Bc")) if self.s.causal and self.kind.persistent else 0
        return max(2, self.ring.stages) + hidden

    @cached_property
    def run(self) -> int:
        """How many of the tiles of keys must run. Those left out go round all stages, and if causal, round whole tiles of
        queries."""
        Bc, Br = self._size("Bc"), self._size("Br")
        period = math.lcm(self.ring.stages * Bc, Br if self.s.causal else 1) // Bc
        most = whole_loop(self.tail)
        return self.count if self.count <= most else most + (self.count - most) % period

    @cached_property
    def loops(self) -> tuple[tuple[int, int], ...]:
        """The tiles of keys of each tile of queries that is shown: how many are run, and all."""
        first, Br, Bc = (self.run, self.count), self._size("Br"), self._size("Bc")
        cut = ceil(min(self.s.N, Br), Bc)
        second = (cut, cut) if self.s.causal else first
        return (first, second)[: self.shown]

    @cached_property
    def cut(self) -> AttentionShape:
        """The shape that is run: few keys, and as many heads as give the block its tiles of queries."""
        N = self.s.N - self._size("Bc") * (self.count - self.run)
        return self.s.with_(B=1, H=self._heads(N)[0], N=N)

    def _size(self, name: str) -> int:
        return int(dict(self.launch.defines)[name])

    def _heads(self, N: int) -> tuple[int, int]:
        """Returns how many heads and blocks of N queries give block 0 as many tiles of queries as are needed."""
        if not self.kind.persistent or self.rounds <= 1 + bool(self.s.causal):
            return 1, self.tiles.get("BLOCKS", 1)
        rows = ceil(N, self._size("Br"))
        each, per_item = (ceil(rows, 2), 2 if rows > 1 else 1) if self.s.causal else (rows, 1)
        needed = ceil(min(self.rounds, self.shown + 1), per_item)
        heads = next(h for h in range(1, needed + 1) if ceil(h * each, ceil(h * each, needed)) == needed)
        return heads, ceil(heads * each, needed)

    # -- running -------------------------------------------------------------------------------------
    @cached_property
    def program(self) -> Program:
        """The program whose launch has block 0: alone, if no other block changes what it does."""
        blocks = {"BLOCKS": self._heads(self.cut.N)[1]} if self.kind.persistent else {}
        program = find(self.rung).build(self.cut, {**self.tiles, **blocks})
        launch = program.launch()
        if not self.kind.persistent and not self.s.causal:
            launch = dataclasses.replace(launch, grid=(1, 1, 1))
        return Program(program.buffers, (launch,))

    @cached_property
    def trace(self) -> BlockTrace:
        """The trace of block 0, until a tile of keys arrives that is not shown. The order does not depend on values."""
        until = K, self.ring.regions[K].nbytes * (self._last + 1)
        return emulator.order_of_launch(self.program, until, "turns" if self.ring.alternates else "forward")

    @property
    def _last(self) -> int:
        """The last tile of keys that is shown, as the emulator counts."""
        return sum(run for run, _ in self.loops)

    @cached_property
    def order(self) -> tuple[Slot, ...]:
        """The slots of block 0 until a tile of keys arrives for a tile of queries that is not shown, or all."""
        slots = ring_order(self.trace, self.ring)
        later = [n for n, slot in enumerate(slots) if slot.kind == ARRIVED and slot.tiles.get(K, 0) > self._last]
        return slots[: later[0]] if later else slots

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        """The slots of the shape: those of the run, with the tiles in the middle of long loops in one slot."""
        return folded(self.order, self.ring, self.loops, self.tail)


def _lines_of(file: str, mark: str) -> frozenset[Line]:
    """Returns the lines of a file that have a mark. ValueError if none has: then the file has changed."""
    name, text = file.rpartition("/")[2], sources.text(file)
    found = frozenset(Line(name, n) for n, line in enumerate(text.splitlines(), 1) if mark in line)
    if not found:
        raise ValueError(f"{file} has no line like {mark!r}")
    return found
