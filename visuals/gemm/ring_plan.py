"""What the emulator runs for the scene of a ring: block 0 of a Hopper kernel, or its cluster, and where its ring is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernels.engines import emulator
from kernels.engines.emulator.trace import BlockTrace
from kernels.gemm import hopper
from kernels.gemm.shape import GemmShape
from kernels.i18n import mark, tr
from kernels.ladders import find
from kernels.model.launch import ceil
from kernels.model.program import Program, Tiles
from visuals.gemm.accumulator import TURNS
from visuals.gemm.ring_order import Ring, Slot, ring_order
from visuals.scene.ring import ARRIVED
from visuals.scene.why_not import broken_rule

MAX_OUTPUTS = 2  # tiles of C of one block, if their loops along K are shown whole
NO_RING = mark("{title} has no ring of stages.")
NO_TURNS = mark("This picture shows consumers that share each tile. Here they take turns.")


@dataclass(frozen=True)
class Kind:
    """What differs between the rungs. `persistent`: a block computes several tiles of C."""

    file: str
    consumers: int
    persistent: bool = False
    boxes: bool = False  # of C, which the copy engine stores
    blocks: int = 1  # of a cluster


RINGS = {
    "gemm/wgmma-ring": Kind("gemm/14_wgmma_ring.cu", 1),
    "gemm/wgmma-consumers": Kind("gemm/15_wgmma_consumers.cu", 2),
    "gemm/wgmma-persistent": Kind("gemm/16_wgmma_persistent.cu", 2, persistent=True),
    "gemm/wgmma-store": Kind("gemm/17_wgmma_store.cu", 2, persistent=True, boxes=True),
    "gemm/wgmma-cluster": Kind("gemm/18_wgmma_cluster.cu", 2, persistent=True, boxes=True, blocks=hopper.CLUSTER),
}


def why_not(shape: GemmShape, rung: str, tiles: Mapping[str, int]) -> str:
    """Returns why a rung has no scene of its ring at a shape; "" if it has one."""
    if rung == TURNS:
        return tr(NO_TURNS)
    if rung not in RINGS:
        return tr(NO_RING, title=find(rung).title)
    return broken_rule(rung, shape, tiles)


@dataclass(frozen=True)
class Cut:
    """What the emulator runs in place of a launch. `tiles` along K, of which `run` are run; `outputs`: the tiles of C of
    block 0, of which `shown` are shown. If there are more, one more is run: the producer goes on to it."""

    shape: GemmShape
    tiles: int
    run: int
    outputs: int
    shown: int

    @property
    def last(self) -> int:
        """The last tile along K that is shown, as the emulator counts."""
        return self.shown * self.run


def ring_of(rung: str, tiles: Tiles) -> Ring:
    """Returns the ring in the shared memory of a rung's block."""
    kind, stages = RINGS[rung], tiles["STAGES"]
    nbytes = 2 * hopper.BK * (tiles["BM"] + tiles["BN"])
    boxes = hopper.stored_bytes(tiles) - hopper.ring_bytes(tiles) if kind.boxes else 0
    full = stages * nbytes + boxes
    return Ring(tuple(range(kind.blocks)), stages, nbytes, full, full + 8 * stages, kind.consumers)


def shortened(s: GemmShape, rung: str, tiles: Tiles) -> Cut:
    """Returns the shape of block 0 alone, or of its cluster, with as many tiles along K as must run."""
    kind, ring, count = RINGS[rung], ring_of(rung, tiles), ceil(s.K, hopper.BK)
    rows = kind.blocks * tiles["BM"]
    outputs = 1
    if kind.persistent:
        all_ = ceil(s.M, rows) * ceil(s.N, tiles["BN"])
        outputs = ceil(all_, min(all_, tiles["BLOCKS"] // kind.blocks))
    shown = min(outputs, 1 if count > ring.whole else MAX_OUTPUTS)
    run = ring.tiles_to_run(count)
    M = min(s.M, rows) if outputs == 1 else min(outputs, shown + 1) * rows
    cut = s.with_(M=M, N=min(s.N, tiles["BN"]), K=s.K - hopper.BK * (count - run))
    return Cut(cut, count, run, outputs, shown)


def program_of(s: GemmShape, rung: str, tiles: Tiles) -> Program:
    """Returns the program whose launch is block 0 alone, or its cluster."""
    alone = {"BLOCKS": RINGS[rung].blocks} if RINGS[rung].persistent else {}
    return find(rung).build(s, {**tiles, **alone})


def trace_of(s: GemmShape, rung: str, tiles: Tiles) -> BlockTrace:
    """Returns the trace of block 0. The order does not depend on values."""
    return emulator.order_of_launch(program_of(s, rung, tiles))


def order_of(s: GemmShape, rung: str, tiles: Tiles, last: int = 0) -> tuple[Slot, ...]:
    """Returns the slots of block 0 and its cluster, from the trace: until the tile after the `last` one arrives, or all."""
    slots = ring_order(trace_of(s, rung, tiles), ring_of(rung, tiles))
    later = [n for n, slot in enumerate(slots) if last and slot.kind == ARRIVED and slot.tile > last]
    return slots[: later[0]] if later else slots
