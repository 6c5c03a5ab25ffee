"""The cost of an access, step by step: sectors of global memory, wavefronts of shared memory.

The addresses come from the emulator's trace of a warp. A step is one sector or one wavefront, so the number of steps is
the cost of the access.
"""

from __future__ import annotations

import numpy as np

from kernels.i18n import mark, tr
from kernels.memory.shape import READS_PER_TURN, TILE_COLS, BanksShape, StrideShape
from visuals.memory.threads import Traced, source_at, touched, traced
from visuals.scene.parts import Captions, Group, Lanes, Reading, Tensor, Write
from visuals.scene.recorder import read_per_step
from visuals.scene.requests import BANKS, LANES, WORD, WORDS, bank_wavefronts, mask_of
from visuals.scene.scene import Scene

FULL = (1 << LANES) - 1  # all lanes
SECTOR_NOTE = mark(
    "The picture shows one sector per step, by address. One instruction requests all sectors. The hardware may fetch "
    "them in another order. The number of sectors is counted, their order is not."
)
PASS_NOTE = mark(
    "The picture shows one pass (wavefront) per step. The hardware decides which words share a pass. Here each bank "
    "delivers its words by address. The number of passes is counted, their order is not."
)


# -- coalescing ------------------------------------------------------------------------------------
def stride_scene(stride: int, seed: int = 0) -> Scene:
    """Returns the scene of one warp of stride/copy: the sectors its 32 lanes request, the bytes it uses, and its store."""
    shape = StrideShape(LANES, stride)
    t = traced("stride/copy", shape, (("BLOCK", 64),), seed)
    elements, lanes = touched(t.traces[0], "x", write=False, warp=0)
    stored, _ = touched(t.traces[0], "y", write=True, warp=0)
    touched_sectors = np.unique(elements // WORDS)
    lanes_of_sector = [lanes[elements // WORDS == sector] for sector in touched_sectors]
    n, used = len(touched_sectors), np.array([len(lanes_of) for lanes_of in lanes_of_sector])
    inside = touched_sectors[:, None] * WORDS + np.arange(WORDS)  # cells of x in each sector
    sector_of = {lane: k for k, lanes_of in enumerate(lanes_of_sector) for lane in lanes_of}
    order = np.argsort(lanes)
    step_of = np.array([sector_of[lane] for lane in lanes[order]])  # step at which each lane gets its float
    steps = np.arange(n + 1)
    return Scene(
        key=f"stride {stride}",
        title=tr("one warp, stride {stride}", stride=stride),
        tensors=(
            Tensor("x", "x", tr("input"), "input", 1, stride, LANES, t.inputs["x"], note=tr("one row: 128 bytes")),
            Tensor("y", "y", tr("output"), "output", 1, 1, LANES),
            Tensor("s", "s", tr("sectors"), "input", 1, n, WORDS, note=tr("one row: 32 bytes")),
            Tensor("v", "v", tr("one float per lane"), "input", 1, 1, LANES),
        ),
        groups=(
            # aligned: a row of x stays in one piece, so that it is the 128 bytes of the note
            Group((("x",), ("y",)), "global", tr("global memory"), aligned=stride > 1),
            Group((("s",),), "shared", tr("sectors in the SM's L1 cache")),
            Group((("v",),), "registers", tr("registers of lanes 0 to 31")),
        ),
        steps=n + 1,
        step_name=tr("step"),
        order_name=tr("sector by sector"),
        order_note=tr(SECTOR_NOTE),
        writes=(
            Write("s", np.repeat(np.arange(n), WORDS), source="x", index=inside.ravel()),
            Write("v", step_of, source="x", index=elements[order], cells=lanes[order]),
            Write("y", np.full(LANES, n), source="v", index=np.arange(LANES), cells=stored),
        ),
        readings=(
            Reading(tr("sectors fetched"), np.minimum(steps + 1, n), "counted"),
            Reading(tr("bytes fetched"), 4 * WORDS * np.minimum(steps + 1, n), "counted"),
            Reading(tr("bytes used"), 4 * np.append(np.cumsum(used), used.sum()), "counted"),
        ),
        captions=_stride_captions(touched_sectors, lanes_of_sector, len(np.unique(stored // WORDS))),
        source=source_at(t, ("output[element] = input[",), [0] * (n + 1)),
        lanes=Lanes(np.zeros(n + 1, int), np.array([*map(mask_of, lanes_of_sector), mask_of(lanes)], np.uint32)),
    )


def _stride_captions(touched_sectors: np.ndarray, lanes_of_sector: list[np.ndarray], stored: int) -> Captions:
    n = len(touched_sectors)
    args = np.zeros((n + 1, 8))
    for k, (sector, lanes) in enumerate(zip(touched_sectors, lanes_of_sector, strict=True)):
        args[k] = (k + 1, n, 32 * sector, 32 * sector + 31, len(lanes), lanes.min(), lanes.max(), 0)
    args[n] = (n, 32 * n, 4 * LANES, stored, 100 * 4 * LANES / (32 * n), 0, 0, 0)
    kinds = np.array([*(int(len(lanes) > 1) for lanes in lanes_of_sector), 2])
    return Captions(
        (
            tr(
                "Sector {0} arrives: bytes {2} to {3} of [x](input). Only lane {5} uses a float of it. The other 28 of "
                "its 32 bytes are not used."
            ),
            tr(
                "Sector {0} arrives: bytes {2} to {3} of [x](input). {4} lanes, {5} to {6}, use one float each. The "
                "sector holds 8 floats."
            ),
            tr(
                "The load fetched {0} sectors ({1} bytes). The warp uses {2} of these bytes, {4} %. Its store to [y](output) "
                "is coalesced: it needs {3} sectors."
            ),
        ),
        kinds,
        args,
    )


# -- banks -----------------------------------------------------------------------------------------
def first_read(t: Traced) -> np.ndarray:
    """Returns the byte of shared memory that each lane of warp 0 reads in its first shared load, int[32]."""
    requests = t.traces[0].requests
    names = np.array(t.traces[0].buffers)[requests.buffer]
    at = np.flatnonzero(~np.isin(names, ("x", "y")) & ~requests.write)[0]
    return requests.byte[at]


def banks_scene(stride: int, pad: int, seed: int = 0) -> Scene:
    """Returns the scene of the first read of a warp of banks/plain or banks/padded, wavefront by wavefront."""
    rung = f"banks/{'padded' if pad else 'plain'}"
    t = traced(rung, BanksShape(LANES, stride), (("BLOCK", 64),), seed)
    byte = first_read(t)
    words = byte // WORD
    wavefront, bank, _ = bank_wavefronts(byte, FULL, WORD)  # of each word; lanes of a broadcast share one word
    wavefronts = int(wavefront.max()) + 1
    pitch = TILE_COLS + pad
    rows = int(words.max()) // pitch + 1  # of the table, as far as this read reaches
    cells = (np.arange(rows)[:, None] * pitch + np.arange(TILE_COLS)).ravel()  # word of each element
    depth = -(-(rows * pitch) // BANKS)
    last = wavefronts + 1
    lanes = np.arange(LANES)
    lanes_of_wavefront = [lanes[wavefront == k] for k in range(wavefronts)]
    return Scene(
        key=f"banks {stride} {pad}",
        title=tr("one read, stride {stride}, with padding", stride=stride)
        if pad
        else tr("one read, stride {stride}, without padding", stride=stride),
        tensors=(
            Tensor("y", "y", tr("output"), "output", 1, 1, LANES),
            Tensor(
                "m",
                "m",
                tr("table, one cell per word"),
                "input",
                1,
                depth,
                BANKS,
                note=tr("word w is in bank w mod 32"),
            ),
            Tensor(
                "g", "g", tr("passes"), "input", 1, wavefronts, BANKS, note=tr("one row per pass, one column per bank")
            ),
            Tensor("v", "v", tr("one word per lane"), "input", 1, 1, LANES),
        ),
        groups=(
            Group((("m",), ("g",)), "shared", tr("shared memory of the block, 32 banks")),
            Group((("v",),), "registers", tr("registers of lanes 0 to 31")),
            Group((("y",),), "global", tr("global memory")),
        ),
        steps=last + 1,
        step_name=tr("step"),
        order_name=tr("pass by pass"),
        order_note=tr(PASS_NOTE),
        writes=(
            Write("m", np.zeros(1, int), t.inputs["x"].ravel()[: len(cells)], cells=cells),
            Write("g", 1 + wavefront, source="m", index=words, cells=wavefront * BANKS + bank),
            Write("v", 1 + wavefront, source="m", index=words, cells=lanes),
            Write("y", np.full(LANES, last), t.output, cells=lanes),
        ),
        reads=(read_per_step("m", [[], *(np.unique(words[s]) for s in lanes_of_wavefront), []]),),
        readings=(
            Reading(tr("passes of this read"), np.clip(np.arange(last + 1), 0, wavefronts), "counted"),
            Reading(tr("words read"), np.cumsum([0, *map(len, lanes_of_wavefront), 0]), "counted"),
        ),
        captions=_banks_captions(words, lanes_of_wavefront, t.counters.total["wavefronts_ld"], pad),
        source=source_at(t, ("tile[e / COLS]", "sum +=", "y[i] = sum"), [0, *[1] * wavefronts, 2]),
        lanes=Lanes(
            np.zeros(last + 1, int),
            np.array([mask_of(lanes), *map(mask_of, lanes_of_wavefront), mask_of(lanes)], np.uint32),
        ),
    )


CONFLICT, NO_CONFLICT, PASS, PASS_OF_ONE, STORED = range(5)  # kinds of steps of a read of shared memory


def _banks_captions(
    words: np.ndarray, lanes_of_wavefront: list[np.ndarray], total_wavefronts: int, pad: int
) -> Captions:
    wavefronts = len(lanes_of_wavefront)
    words_of_bank = np.bincount(words % BANKS, minlength=BANKS)
    args = np.zeros((wavefronts + 2, 6), np.int64)
    args[0, :3] = wavefronts, words_of_bank.argmax(), words_of_bank.max()
    for k, lanes in enumerate(lanes_of_wavefront):
        word = words[lanes[0]]
        args[k + 1] = k + 1, wavefronts, len(lanes), lanes[0], word, word % BANKS
    args[-1, :3] = READS_PER_TURN, total_wavefronts, wavefronts
    copied = [tr("The block copies the [table](input) into shared memory. Only the rows of this read are shown.")]
    if pad:
        copied.append(tr("One unused word (padding) follows each row."))
    conflict = tr("Then each lane requests a word. Bank {1} must deliver {2} words, so the read takes {0} passes.")
    no_conflict = tr("Then each lane requests a word. No bank must deliver two different words, so one pass is enough.")
    kinds = [PASS if len(lanes) > 1 else PASS_OF_ONE for lanes in lanes_of_wavefront]
    return Captions(
        (
            " ".join((*copied, conflict)),
            " ".join((*copied, no_conflict)),
            tr(
                "Pass {0} of {1}: {2} lanes get a word. Lane {3} reads word {4}. The bank of this word is {4} mod 32 = {5}."
            ),
            tr(
                "Pass {0} of {1}: one lane gets a word. Lane {3} reads word {4}. The bank of this word is {4} mod 32 = {5}."
            ),
            tr(
                "The kernel repeats the read {0} times, one row further each time. Passes counted: {1}, {2} per read. Each "
                "lane stores its sum in [y](output)."
            ),
        ),
        np.array([NO_CONFLICT if wavefronts == 1 else CONFLICT, *kinds, STORED]),
        args,
    )
