"""The chapters of the lesson on attention."""

from __future__ import annotations

from kernels.i18n import mark
from pages.parts.chapters import Chapter, Question, Story, faster
from visuals import units
from visuals.attention.gpu_map import RUNGS, flash_map
from visuals.attention.scene import why_not
from visuals.gpu_map import facts as map_facts
from visuals.gpu_map.data import GpuMap
from visuals.strip.facts import Evidences, Facts, slower_than

FLASH = {"rung": "flash"}
NAIVE = {"rung": "naive", "N": "8", "BLOCK": "16"}  # few enough scores to print their numbers
REAL = {"B": "4", "H": "16", "N": "2048", "d": "64"}
WGMMA = "attention/wgmma"
VARIANTS = tuple(f"{WGMMA}-{name}" for name in ("consumers", "ping-pong", "overlap", "balanced", "persistent"))
# Two consumers, two stages
RING = {"N": "256", "d": "64", "dtype": "fp16", "Br": "128", "Bc": "64", "STAGES": "2"}


def _map(evidences: Evidences) -> GpuMap | None:
    """Returns the GPU map of the kernel on the stage, if it is one of flash attention."""
    at = evidences["stage"]
    tiles = {**at.rung.default_tiles, **at.tiles}
    if at.rung.name not in RUNGS or why_not(at.shape, at.rung.name, tiles):
        return None
    return flash_map(at.shape, at.rung.name, tiles, count=False)


def _variants_differ(evidences: Evidences) -> bool | None:
    """Returns whether variants of the kernel by wgmma are faster than it, and others slower; None if one was not measured."""
    rows = evidences["real"].rows
    times = [rows[name]["median_ms"] for name in VARIANTS if name in rows]
    if WGMMA not in rows or len(times) < len(VARIANTS):
        return None
    return min(times) < rows[WGMMA]["median_ms"] < max(times)


def _busiest(evidences: Evidences) -> int | None:
    return map_facts.busiest(_map(evidences))


def facts(evidences: Evidences) -> Facts:
    """Returns the bytes of S and of all inputs at each size, as FP32, and the figures of the GPU map."""
    found = map_facts.facts(_map(evidences))
    for size, evidence in evidences.items():
        s = evidence.shape
        found[f"{size}_scores"] = units.bytes_(4 * s.heads * s.N * s.N)
        found[f"{size}_inputs"] = units.bytes_(3 * 4 * s.heads * s.N * s.d)
    return found


CHAPTERS = (
    Chapter(
        mark("Each token is compared with all others"),
        (
            mark("A token is a piece of text. The model computes a [query](input), a [key](filter) and a value for each, rows of d numbers."),
            mark("Take one query first: its dot product with each key is a score, and the scores are row 0 of [S](workspace). All N queries together give N × N scores."),
        ),
        NAIVE,
        readable=("S", "Q", "K"),
        loop=(0, 3),
        pin="S:0",
        size="real",
        nudge=mark("Each score is multiplied by 1/√d, so that long rows do not give larger scores."),
    ),
    Chapter(
        mark("Scores become weights"),
        (
            mark("Softmax turns each row of S into weights [P](workspace) that add up to 1. Row i of the [output](output) is the mean of all values, with the weights of row i."),
            mark("A row has two numbers to keep: its largest score [m](workspace), so that no exp overflows, and the sum [l](workspace) of exp(score − m)."),
            mark("The row is read three times: for m, for l, and for the weights."),
        ),
        NAIVE,
        readable=("S", "P", "m", "l"),
        step=4,
        loop=(4, 31),
        pin="m:0",
        size="real",
        nudge=mark("Go to the last step and point at the output: its weighted mean is spelled out."),
    ),
    Chapter(
        mark("N × N is the problem"),
        (
            mark("At {real_shape}, Q, K and V together are {real_inputs}. S alone is {real_scores}, and P is as large."),
            mark("Both are written to global memory and read back. The kernels on the stage copy tiles into shared memory first, but they store S and P too."),
        ),
        {"rung": "blocked"},
        step=3,
        size="real",
        question=faster(
            mark("Your guess: are these kernels faster than one thread for each score?"),
            "attention/naive", "real",
            mark("They take {real_time}. {real_against_naive}"),
        ),
        nudge=mark("Each head, one of several attentions side by side, has an S of its own: see the memory bar."),
    ),
    Chapter(
        mark("One query at a time"),
        (
            mark("A block can keep the scores of one query in shared memory, and its [m](workspace) and [l](workspace) in registers. Then S and P never go to global memory."),
            mark("But each block reads all keys and all values, for a single query."),
        ),
        {"rung": "fused"},
        loop=(0, 5),
        size="real",
        question=faster(
            mark("Your guess: is it faster than tiled products that store S and P?"),
            "attention/blocked", "real",
            mark("It takes {real_time}. {real_against_blocked} Less memory is not yet more speed."),
        ),
        nudge=mark("In the code, causal is 0 here; with 1 a query uses only its own key and those before it."),
    ),
    Chapter(
        mark("A tile of keys for a block of queries"),
        (
            mark("In flash attention, a block of Br queries shares each tile of Bc keys and values. Each tile is loaded once for all of them."),
            mark("The scores [s](workspace) of a tile are used at once and then discarded. Each query keeps only one row: [m](workspace), [l](workspace) and its [sum so far](output)."),
        ),
        FLASH,
        loop=(0, 8),
        size="real",
        question=faster(
            mark("Your guess: is it faster than tiled products now?"),
            "attention/blocked", "real",
            mark("It takes {real_time}. {real_against_blocked}"),
        ),
        nudge=mark("cuBLAS with our softmax, which stores S, takes {real_time_cublas}: a faster product can still win against less memory."),
        holds=slower_than("real", "attention/cublas"),
    ),
    Chapter(
        mark("Where do the bytes go?"),
        (
            mark("The map shows the whole GPU: {map_blocks} blocks in {map_waves} waves. A block loads its tile of [Q](input) once, then all keys and values of its head."),
            mark("Q, K and V are {map_hbm}, and the blocks load {map_l2} from L2. S would be {stage_scores}, but it is on no arrow: it never leaves an SM."),
        ),
        FLASH | REAL | {"Br": "32", "Bc": "32", "order": "map"},
        step=1,
        question=Question(
            mark("Your guess: which arrow carries the most bytes?"),
            map_facts.ARROWS,
            _busiest,
            mark("Shared memory: the threads load {map_near} from it. A later kernel keeps more in registers."),
        ),
    ),
    Chapter(
        mark("When a larger score arrives"),
        (
            mark("Softmax needs the maximum of the whole row, but the block has seen only a part of it."),
            mark("So it keeps a running maximum [m](workspace) and a running sum [l](workspace). When m grows, l and the output so far are multiplied by exp(old m − new m)."),
            mark("At the end the result is that of the whole row, up to rounding: each weight exp(s − old m) became exp(s − new m)."),
        ),
        FLASH,
        step=12,
        loop=(12, 19),
        pin="m:0",
        size="real",
        nudge=mark("Follow query 0: at this step its m grows, and the next steps correct l and the output."),
    ),
    Chapter(
        mark("More in registers"),
        (
            mark("This version keeps scores and outputs in registers. Each thread computes several at once, as in [tiling](/tiling)."),
            mark("Each column is one step of a block. V is copied during the scores, the next K while the values are added."),
        ),
        {"rung": "flash-registers", "order": "timeline"},
        step=8,
        loop=(3, 8),
        size="real",
        question=faster(
            mark("Your guess: is it faster than the first flash kernel?"),
            "attention/flash", "real",
            mark("It takes {real_time}. {real_against_flash} {real_against_cublas} Arithmetic is at {real_arithmetic} of its ceiling."),
        ),
        nudge=mark("In Explore, “flash attention, variants”, “variants on tensor cores” and “variants, wgmma and TMA” have masks; “decoding, keys in parts” and “decoding, rings of tiles” split the keys."),
    ),
    Chapter(
        mark("Tensor cores"),
        (
            mark("With FP16 inputs the two products run on tensor cores, while maximum, sum and output stay FP32."),
            mark("This takes {real_time}, PyTorch with cuDNN {real_time_library_cudnn}."),
            mark(
                "Hopper’s wgmma takes {real_time_wgmma}. Not all variants are faster: producer and consumers {real_time_wgmma_consumers}, "
                "ping-pong {real_time_wgmma_ping_pong}, softmax during products {real_time_wgmma_overlap}, equal work "
                "{real_time_wgmma_balanced}, rare rescaling {real_time_wgmma_persistent}."
            ),
        ),
        {"N": "32", "d": "16", "dtype": "fp16", "rung": "flash-mma", "Br": "16", "Bc": "16", "WM": "16"},
        step=5,
        loop=(5, 8),
        size="real",
        holds=_variants_differ,
        nudge=mark("In Explore, every kernel by wgmma shows its stages of K and V, and who fills and reads them."),
    ),
    Chapter(
        mark("Copies, products and softmax at once"),
        (
            mark("On Hopper, warpgroups have roles. The producer copies tiles of [K](input) and [V](input) into a ring of stages, and two consumers read them."),
            mark("In its turn, a consumer begins its [products](output), and passes the turn on. While the tensor cores execute the products of one consumer, the other computes its [softmax](filter)."),
        ),
        RING | {"rung": "wgmma-ping-pong"},
        step=8,
        loop=(5, 21),
        size="real",
        question=faster(
            mark("Your guess: is it faster than producer and consumers without turns?"),
            "attention/wgmma-consumers", "real",
            mark("It takes {real_time}. {real_against_wgmma_consumers}"),
        ),
        nudge=mark("Next, [attention backward](/attention_backward): training needs the weights again, and they were never stored."),
    ),
)  # fmt: skip

STORY = Story(CHAPTERS, facts)
