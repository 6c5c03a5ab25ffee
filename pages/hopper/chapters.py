"""The chapters of the lesson on Hopper: seven kernels, from one copy of the copy engine to the library's speed."""

from __future__ import annotations

from collections.abc import Mapping

from kernels.gemm.shape import GemmShape
from kernels.i18n import mark
from pages.parts.chapters import Chapter, Question, Story, faster
from visuals import units
from visuals.gemm import swizzle
from visuals.gemm.hopper_map import hopper_map
from visuals.gemm.swizzle import tile_bytes
from visuals.gpu_map import facts as map_facts
from visuals.strip.facts import Evidences, Facts, faster_than, ratio

REAL = {"M": "4096", "N": "4096", "K": "4096"}
MAP, RING = REAL | {"order": "map"}, REAL | {"order": "ring"}
SUMS = {"order": "accumulator"}
LEFT = ("2", "4", "8")
LAST_SHOWN = 14  # step of the ring: each stage was filled, and the first one again
START, ARRIVED, READ = 0, swizzle.ROWS + 1, swizzle.ROWS + 2  # steps of the scene of a tile
# The kernel before each one whose map is shown: chapters compare the blocks and bytes of both.
BEFORE = {
    "gemm/wgmma-consumers": "gemm/wgmma-ring",
    "gemm/wgmma-persistent": "gemm/wgmma-consumers",
    "gemm/wgmma-cluster": "gemm/wgmma-store",
    "gemm/wgmma-turns": "gemm/wgmma-cluster",
}


def _passes(mode: int) -> str:
    return units.whole(len(swizzle.read_passes(mode)))


def _passes_left(evidences: Evidences) -> int | None:
    found = _passes(swizzle.SWIZZLES[0])
    return LEFT.index(found) if found in LEFT else None


def _map(shape: GemmShape, rung: str, tiles: Mapping[str, int]) -> dict[str, str]:
    return {} if swizzle.why_not(shape, rung, tiles) else map_facts.facts(hopper_map(shape, rung, tiles))


def _of_library(evidences: Evidences) -> float | None:
    """Returns the speed of the kernel on the stage as a share of cuBLAS's."""
    return ratio(evidences["stage"], "gemm/cublas-fp16")


def facts(evidences: Evidences) -> Facts:
    """Returns the figures of the scenes, those of the GPU map of the kernel on the stage and of the kernel before, and the
    speed relative to the library's."""
    stage = evidences["stage"]
    tiles = {**stage.rung.default_tiles, **stage.tiles}
    program = stage.rung.build(stage.shape, tiles)
    before = BEFORE.get(stage.rung.name)
    of_library = _of_library(evidences)
    return {
        "expected": units.whole(tile_bytes(program.launch())),
        "plain": _passes(0),
        "swizzled": _passes(swizzle.SWIZZLES[0]),
        "columns": units.whole(swizzle.READ),
        "BM": str(tiles["BM"]),
        "BN": str(tiles["BN"]),
        "sums": units.whole(tiles["BN"] // 2),
        "stages": str(tiles.get("STAGES", "")),
        "of_library": units.share(of_library) if of_library else "",
        **_map(stage.shape, stage.rung.name, tiles),
        **({f"before_{name}": text for name, text in _map(stage.shape, before, {}).items()} if before else {}),
    }


CHAPTERS = (
    Chapter(
        mark("One thread starts the copy"),
        (
            mark("One thread gives the copy engine (TMA) a map of [A](input) and a position. The engine computes every address and copies a whole box to shared memory."),
            mark("The thread also sets an mbarrier, a barrier in shared memory, to expect {expected} bytes. The barrier counts what arrives: at the last byte the waiting threads go on."),
        ),
        {},
        loop=(START, ARRIVED),
        readable=("A", "tile_a"),
        nudge=mark("In [tiling](/tiling) every thread of the block computed addresses for each copy."),
    ),
    Chapter(
        mark("A column in four banks"),
        (
            mark("wgmma, Hopper’s instruction for products, reads both tiles from shared memory: 16 bytes of 8 rows at a time."),
            mark("A row of 128 bytes fills all 32 banks once. So a column of the tile is in the same four banks in every row: one pass delivers one piece."),
        ),
        {"swizzle": "none"},
        step=READ,
        loop=(READ, READ + len(swizzle.read_passes(0)) - 1),
        readable=("tile_a", "passes"),
        question=Question(
            mark("These {columns} columns take {plain} passes. How many could be enough if rows were stored in another order?"),
            LEFT,
            _passes_left,
            mark("{swizzled}: one for each column."),
        ),
        nudge=mark("[Threads](/threads) shows bank conflicts in small."),
    ),
    Chapter(
        mark("The swizzle"),
        (
            mark("The copy engine stores the pieces of each row in another order, the swizzle: piece j of row r goes to column j XOR r."),
            mark("A column of [A](input) is now spread over all 32 banks. One pass delivers its 8 pieces."),
            mark("The copy engine reads the swizzle from the tensor map, and wgmma reads it from a descriptor."),
        ),
        {},
        step=READ,
        loop=(START, READ + 1),
        readable=("tile_a", "passes"),
        nudge=mark("Point at a cell of tile_a to see its row, its k and its banks."),
    ),
    Chapter(
        mark("A product of 128 threads"),
        (
            mark("Four warps form a warpgroup. Together they run one wgmma: it adds a product of 64 × 16 and 16 × {BN} values to [sums](output) in registers."),
            mark("No thread loads a fragment. Each thread only holds {sums} sums: two neighbours of every 8 columns, in two rows."),
        ),
        SUMS,
        step=4,
        loop=(0, 15),
        readable=("lane",),
        size="real",
        question=faster(
            mark("Your guess: is this kernel faster than the one with mma.sync, whose lanes load fragments?"),
            "gemm/mma-sync", "real",
            mark("It takes {real_time}. {real_against_mma_sync} It still waits for each tile before it multiplies."),
        ),
        nudge=mark("In Explore, choose another warp: its sums are 16 rows further down."),
    ),
    Chapter(
        mark("Producer and consumer"),
        (
            mark("Now warpgroups have roles. One thread of the producer fills a ring of {stages} stages, and the consumer multiplies them."),
            mark("Each stage has two mbarriers: one ends a phase when its bytes have arrived, the other when the consumer has read it. So copies run ahead of the products."),
        ),
        RING | {"rung": "wgmma-ring"},
        loop=(0, LAST_SHOWN),
        readable=("copy", "full", "multiply", "free"),
        question=faster(
            mark("Your guess: is it faster than the kernel before, whose block waits for each tile?"),
            "gemm/wgmma", "stage",
            mark("It takes {stage_time}. {stage_against_wgmma} No barrier stops all threads any more."),
        ),
        nudge=mark("At which tile does the producer wait for the consumer for the first time?"),
    ),
    Chapter(
        mark("Two consumers, a larger tile"),
        (
            mark("Two consumers share a tile of {BM} × {BN}. A larger tile needs fewer bytes: {map_l2} leave L2, and {before_map_l2} in the kernel before."),
            mark("The consumers need more registers, and the producer releases most of its own (setmaxnreg). {stage_against_wgmma_ring}"),
        ),
        MAP | {"rung": "wgmma-consumers"},
        step=1,
        holds=faster_than("stage", "gemm/wgmma-ring"),
        nudge=mark("Between a block and the next one on its SM, no copy is under way: the next chapter changes that."),
    ),
    Chapter(
        mark("Persistent blocks"),
        (
            mark("The kernel before starts {before_map_blocks} blocks, in {before_map_waves} waves. This one starts {map_blocks}, all in one wave, and each computes tile after tile."),
            mark("While the consumers store one tile, the producer already loads the next. Blocks that run together work on neighbouring tiles, so they share rows and columns in L2."),
        ),
        MAP | {"rung": "wgmma-persistent"},
        step=1,
        question=faster(
            mark("Your guess: is it faster than the kernel before?"),
            "gemm/wgmma-consumers", "stage",
            mark("It takes {stage_time}, the kernel before {stage_time_wgmma_consumers}. {stage_against_wgmma_consumers} The store still interrupts the products."),
        ),
        nudge=mark("In Explore, change BLOCKS from 128 to 132, one for each SM."),
    ),
    Chapter(
        mark("The copy engine stores, too"),
        (
            mark("So far each lane stored 8 bytes at a time. Now the threads write their [sums](output) to a box in shared memory, swizzled again."),
            mark("The copy engine writes the box to [C](output), whole rows of 128 bytes, and the warpgroup goes on. {real_against_wgmma_persistent}"),
        ),
        SUMS | {"rung": "wgmma-store"},
        step=16,
        loop=(16, 24),
        size="real",
        nudge=mark("Compare the box with tile_a: both are swizzled by the same rule."),
    ),
    Chapter(
        mark("Clusters"),
        (
            mark("Two blocks form a cluster. Each loads half of the tile of [B](filter) that both need, and the copy goes to both (multicast)."),
            mark("So {map_l2} leave L2, and {before_map_l2} in the kernel before."),
        ),
        MAP | {"rung": "wgmma-cluster"},
        step=1,
        question=faster(
            mark("Your guess: is it faster than the kernel before?"),
            "gemm/wgmma-store", "stage",
            mark("It takes {stage_time}, the kernel before {stage_time_wgmma_store}. {stage_against_wgmma_store} Fewer bytes from L2 save time only if L2 is the limit."),
        ),
        nudge=mark("Step through the map: it shows one block of the cluster, with the tiles that it needs."),
    ),
    Chapter(
        mark("Turns, and the library"),
        (
            mark("So far both consumers store at the same time, and the tensor cores have no work. Now each consumer has a tile of its own: one multiplies while the other one stores."),
            mark("But the tile is smaller, {BM} × {BN}: {map_l2} leave L2, and {before_map_l2} in the kernel before."),
        ),
        MAP | {"rung": "wgmma-turns"},
        step=1,
        question=faster(
            mark("Your guess: is it faster than the kernel before?"),
            "gemm/wgmma-cluster", "stage",
            mark("It takes {stage_time}. {stage_against_wgmma_cluster} The seven steps reach {of_library} of the speed of cuBLAS."),
        ),
        nudge=mark("Next, [direct](/direct) begins the lessons on convolution; later, [attention](/attention) needs two products at once."),
    ),
)  # fmt: skip


STORY = Story(CHAPTERS, facts)
