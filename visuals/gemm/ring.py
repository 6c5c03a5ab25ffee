# fmt: off
"""GEMM on Hopper as a ring of stages that a producer fills and consumers multiply, compiled from what block 0 did.

The block runs at its tile sizes, in the order of the emulator. Only the K loop is cut, by whole tiles, and the number of tiles of C.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from kernels.gemm.hopper import BK, BOX_COLS, CHUNK, CLUSTER
from kernels.gemm.shape import GemmShape
from kernels.i18n import decimal, mark, tr, trn
from kernels.ladders import find
from kernels.model.dtypes import INPUT_DTYPE
from kernels.model.launch import ceil
from kernels.model.program import Tiles
from visuals.gemm.accumulator import TURNS
from visuals.gemm.views import DTYPES, A, B, C
from visuals.scene.compiler.program import first_blocks, scene_of_rung
from visuals.scene.compiler.view import Bytes, PerThread, Say, Shared, Step, View, box, step
from visuals.scene.parts import Group
from visuals.scene.scene import Scene
from visuals.scene.why_not import broken_rule

ROWS, COLUMNS = 8, 8  # of the tile of C whose sums are shown, and rows of the tiles
MORE = 3  # tiles along K that are run after each stage has been filled once
MAX_OUTPUTS = 2  # tiles of C of one block, if it computes several
NO_RING = mark("{title} has no ring of stages.")
NO_TURNS = mark("This picture shows consumers that share each tile. Here they take turns.")
ORDER = mark("emulated order")
NOTE = mark("The order is that of the emulator, where copies arrive as late as possible. On the GPU, copies and products run at the same time. All values are those of the kernel in the emulator.")
CUT = mark("The emulator ran {run} of the {all} tiles along K.")

# -- steps ---------------------------------------------------------------------------------------------------
COPY = step("arrive_expecting(full + stage", Say("", "waited"),
    Say("Stage {stage} is empty again. The producer starts the copies of [tile {number}](input) into it.", "number > STAGES"),
    "Stage {stage} is empty. The producer starts the copies of [tile {number}](input) into it: {bytes} bytes of A and B.",
    to=("full + stage);", 1), merge=True)
NEXT = Say(mark("The producer goes on to the next tile of [C](output): it starts the copies of [tile {number}](input) into stage {stage}."), "k_tile == 0 and tile > 0")
MULTICAST = Say(mark("Each producer of the cluster copies its own A of [tile {number}](input) into stage {stage}, and half of B to both blocks (multicast)."))
RING: Mapping[str, Step] = {
    "start": step("int stage = 0, parity = 0",
        "The ring has {STAGES} stages, all empty. One thread of the last warpgroup is the producer, which starts copies. Warpgroups of consumers, which multiply: {consumers}."),
    "empty": step("wait(empty + stage, parity ^ 1)",
        Say("The producer waits at barrier empty {stage}, before it copies tile {number} into stage {stage}.", "waits and not waited"), Say("")),
    "copy": COPY,
    "full": step("wait(full + stage, parity)",
        Say("The consumers wait at barrier full {stage} for tile {number}.", "waits and not waited"), Say("", "waits"),
        "All {bytes} bytes of [tile {number}](filter) are in stage {stage}. Barrier full {stage} ends its phase, of parity {parity}."),
    "multiply": step("begin_products()", Say("", "waited"),
        "The consumers start the products of [tile {number}](output) (wgmma), which read stage {stage}. In row 0 and column 0 of [C](output) the [sum](output) is then {sum[0][0][0]}.",
        to="close_products()", merge=True),
    "free": step("arrive(empty + last)", Say("", "k_tile == 0"),
        "The products of tile {number - 1} have ended. The consumers arrive at barrier empty {last}: stage {last} is empty."),
    "store": step("store_sums<BN>", Say("", "waited"), "The last products have ended. The consumers store their [sums](output) in [C](output).", merge=True),
}
PERSISTENT = {
    **RING, "copy": replace(COPY, cases=(COPY.cases[0], NEXT, *COPY.cases[1:])),
    "last": step(("arrive(empty + last)", 1), "The products of the last tile along K have ended. The consumers arrive at barrier empty {last}: stage {last} is empty."),
}
STORE = {**PERSISTENT, "store": step("store_boxes<BN>", Say("", "waited"), "The consumers write their [sums](output) to [boxes](output) in shared memory, and the copy engine stores the boxes in [C](output).", merge=True)}
CLUSTERS = {
    **STORE, "copy": replace(COPY, cases=(COPY.cases[0], NEXT, MULTICAST)), "free": replace(RING["free"], at="arrive_at(empty + last"),
    "last": replace(STORE["last"], at=("arrive_at(empty + last", 1)),
}


@dataclass(frozen=True)
class Kind:
    """What differs between the rungs. `persistent`: a block computes several tiles of C. `boxes`: of C, which the copy engine stores.
    `blocks`: of a cluster."""

    steps: Mapping[str, Step]
    consumers: int
    persistent: bool = False
    boxes: bool = False
    blocks: int = 1


RINGS = {
    "gemm/wgmma-ring": Kind(RING, 1),
    "gemm/wgmma-consumers": Kind(RING, 2),
    "gemm/wgmma-persistent": Kind(PERSISTENT, 2, persistent=True),
    "gemm/wgmma-store": Kind(STORE, 2, persistent=True, boxes=True),
    "gemm/wgmma-cluster": Kind(CLUSTERS, 2, persistent=True, boxes=True, blocks=CLUSTER),
}


def view(rung: str, s: GemmShape, t: Tiles) -> View:
    """Returns the view of a rung at tile sizes: the first rows of each tile in each stage, which tile each stage has, and sums."""
    kind, BM, BN, stages = RINGS[rung], t["BM"], t["BN"], t["STAGES"]
    stage, dtype = (BM + BN) * BK, DTYPES[s.dtype]
    rows, cols = range(min(ROWS, s.M)), range(min(COLUMNS, s.N))

    def tile(name: str, role: str, first: int) -> Shared:
        return Shared(name, role, name, mark("rows of 128 bytes, swizzled"), of="shared", dtype=dtype, **box(first, ROWS, BK, BK, stages, stage), plane=mark("stage"))

    def state(name: str, role: str, title: str, note: str, value: str, cell: str) -> PerThread:
        return PerThread(name, role, title, note, value=value, place=("0", cell), part=(range(1), range(stages)), during=(name,))

    ring = tile("tile_a", "input", 0), tile("tile_b", "filter", BM * BK)
    states = (
        state("copy", "input", mark("copied"), mark("copies begun"), "number", "stage"),
        state("full", "filter", mark("full"), mark("arrived"), "number", "where(waits, -1, stage)"),
        state("multiply", "output", mark("read"), mark("products begun"), "number", "stage"),
        state("free", "workspace", mark("free"), mark("products ended"), "number - 1", "where(k_tile == 0, -1, last)"),
    )
    sums = PerThread("sum", "output", "sum", during=("multiply",), part=(rows, cols), place=(
        f"where(thread < {128 * kind.consumers}, thread // 32 * 16 + lane // 4 + cell % 4 // 2 * 8, -1)", "cell // 4 * 8 + lane % 4 * 2 + cell % 2"))
    boxes = (Shared("box", "output", "box", mark("swizzled"), of="shared", dtype="f4", **box(stages * stage // 2, ROWS, BOX_COLS, BOX_COLS), during=("store",)),)[: kind.boxes]
    matrices = replace(A, dtype=dtype, part=(rows, range(min(BK, s.K)))), replace(B, dtype=dtype, part=(range(min(ROWS, s.K)), range(min(CHUNK, s.N)))), replace(C, part=(rows, cols))
    return View(
        (*matrices, *ring, *boxes, *states, sums),
        (
            Group((tuple(shown.name for shown in states),), "shared", mark("tile of each stage, one column per stage")),
            Group((("tile_a",), ("tile_b",), *((shown.name,) for shown in boxes)), "shared", mark("shared memory: first rows of each stage")),
            Group((("A", "C"), ("B",)), "global", mark("global memory")),
            Group((("sum",),), "registers", mark("registers of the consumers")),
        ),
        (kind.steps,), (Bytes(mark("bytes of A and B copied"), "A B", "ld"),), order=(ORDER, NOTE),
        names={"number": f"k_tile // {BK} + 1", "bytes": f"{2 * BK} * (BM + BN)", "consumers": str(kind.consumers)},
    )


# -- the scene -----------------------------------------------------------------------------------------------
def why_not(shape: GemmShape, rung: str, tiles: Mapping[str, int]) -> str:
    """Returns why a rung has no scene of its ring at a shape; "" if it has one."""
    if rung == TURNS:
        return tr(NO_TURNS)
    if rung not in RINGS:
        return tr(NO_RING, title=find(rung).title)
    return broken_rule(rung, shape, tiles)


def shortened(s: GemmShape, rung: str, tiles: Tiles) -> tuple[GemmShape, int]:
    """Returns the shape of block 0 alone, or of its cluster, with few tiles along K and of C, and how many tiles of C it has uncut."""
    kind, count = RINGS[rung], ceil(s.K, BK)
    rows, outputs = kind.blocks * tiles["BM"], 1
    if kind.persistent:
        all_ = ceil(s.M, rows) * ceil(s.N, tiles["BN"])
        outputs = ceil(all_, min(all_, tiles["BLOCKS"] // kind.blocks))
    run = min(count, tiles["STAGES"] + (MORE if outputs == 1 else 1))
    return s.with_(M=min(s.M, min(outputs, MAX_OUTPUTS) * rows), N=min(s.N, tiles["BN"]), K=s.K - BK * (count - run)), outputs


def ring_scene(shape: GemmShape, rung: str, tiles: Mapping[str, int]) -> Scene:
    """Returns the scene of the ring of block 0. Missing tile sizes are the rung's defaults. ValueError if `why_not` gives a reason. Raises
    CompilerMissing if the kernel must be compiled and there is no compiler."""
    if reason := why_not(shape, rung, tiles):
        raise ValueError(reason)
    kind, sizes = RINGS[rung], find(rung).check(shape, tiles)
    s, outputs = shortened(shape, rung, sizes)
    alone = sizes | ({"BLOCKS": kind.blocks} if kind.persistent else {})
    scene = scene_of_rung(rung, s, alone, inputs_of(s), view(rung, s, sizes), f"{shape} ring", blocks=first_blocks(1))
    notes, count = [scene.order_note], ceil(shape.K, BK)
    if (run := ceil(s.K, BK)) < count:
        notes.append(tr(CUT, run=run, all=decimal(f"{count:,}")))
    if outputs > MAX_OUTPUTS:
        notes.append(trn("The block computes {all} tiles of C. The picture ends after the first.", "The block computes {all} tiles of C. The picture ends after {n} of them.", MAX_OUTPUTS, all=decimal(f"{outputs:,}")))
    return replace(scene, order_note=" ".join(notes))


def inputs_of(s: GemmShape) -> dict[str, np.ndarray]:
    """Returns A, B and C0: small whole numbers."""
    random, sizes = np.random.default_rng(0), {"A": (s.M, s.K), "B": (s.K, s.N), "C0": (s.M, s.N)}
    found = {name: random.integers(-4, 5, size) for name, size in sizes.items()}
    types = {"A": INPUT_DTYPE[s.dtype], "B": INPUT_DTYPE[s.dtype], "C0": "f4"}
    return {name: array.astype(types[name]) for name, array in found.items() if name != "C0" or s.beta}
