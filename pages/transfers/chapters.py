"""The chapters of the lesson on moving data: a batch in and out, pinned memory, pieces, prefetching, graphs, a leak."""

from __future__ import annotations

from collections.abc import Mapping

from kernels.i18n import mark
from kernels.transfers.operations import COMPUTE, IN, Ledger
from kernels.transfers.scenarios import FILE
from pages.parts.chapters import Chapter, Question, Story, no_facts
from visuals import units
from visuals.strip.facts import Facts
from visuals.transfers import evidence
from visuals.transfers.evidence import LARGE_PIECES, LARGE_ROWS, TransferEvidence

Evidences = Mapping[str, TransferEvidence]  # by size
FEW, MANY = 2, 32  # pieces, beside the usual number
FACTOR_EDGES, GAIN_EDGES, GRAPH_EDGES = (1.5, 4), (1.5, 2.5), (1.1, 2)
LINES = ("d_x = gpu.empty(batch.shape)", "d_y = gpu.empty(y.shape)")  # of the leak


def named() -> dict[str, TransferEvidence]:
    """Returns the scenarios of the sentences, by the word before their fields."""
    keys = ("pageable", "pinned", "pieces", "waiting", "prefetch", "launches", "graph", "leak", "no_leak")
    found = {key: evidence.of(key) for key in keys}
    more = {
        "few": evidence.of("pieces", n=FEW),
        "many": evidence.of("pieces", n=MANY),
        "large": evidence.of("pieces", LARGE_ROWS, LARGE_PIECES),
    }
    return found | more


def facts(evidences: Evidences) -> Facts:
    """Returns the figures of the sentences: measured here, recorded or predicted."""
    found = {"stage": evidences["stage"], **named()}
    line, nbytes = leaked(found["leak"])
    texts = {f"{word}_{name}": text for word, one in found.items() for name, text in evidence.facts(one).items()}
    return texts | {
        "leak_line": str(line),
        "leak_bytes": units.bytes_(nbytes),
        "leak_step": units.bytes_(nbytes // found["leak"].settings.n),
    }


def leaked(found: TransferEvidence) -> tuple[int, int]:
    """Returns the line whose memory is in use at the end of a program, and its bytes, as the allocator's log has them."""
    ledger = Ledger()
    for op in found.ops:
        ledger.take(op)
    return next(iter(ledger.by_line().items()))


# -- answers -----------------------------------------------------------------------------------------
def pageable_factor(evidences: Evidences) -> int | None:
    """Returns how many times as long the copy from pageable memory takes: about as long, up to 4 times, more."""
    slow, fast = (evidence.of(key).timeline.busy[IN] for key in ("pageable", "pinned"))
    return sum(slow / fast >= edge for edge in FACTOR_EDGES)


def gain_of_pieces(evidences: Evidences) -> int | None:
    """Returns how many times as fast pieces are: up to 1.5 times, up to 2.5 times, more."""
    gain = evidence.of("pinned").total_ms / evidences["stage"].total_ms
    return sum(gain >= edge for edge in GAIN_EDGES)


def best_of_three(evidences: Evidences) -> int | None:
    """Returns which number of pieces takes the least: few, the usual number, many."""
    found = named()
    totals = [found[word].total_ms for word in ("few", "pieces", "many")]
    return totals.index(min(totals))


def hidden_by_prefetch(evidences: Evidences) -> int | None:
    """Returns which is hidden behind the other: the copies or the kernels."""
    busy = evidences["stage"].timeline.busy
    return int(busy[IN] > busy[COMPUTE])


def gain_of_graph(evidences: Evidences) -> int | None:
    gain = evidence.of("launches").total_ms / evidence.of("graph").total_ms
    return sum(gain >= edge for edge in GRAPH_EDGES)


def leaking_line(evidences: Evidences) -> int | None:
    """Returns which of LINES the allocator's log names."""
    line, _ = leaked(evidences["stage"])
    text = FILE.read_text("utf-8").splitlines()[line - 1].strip()
    return LINES.index(text) if text in LINES else None


def overlaps_well(evidences: Evidences) -> bool:
    found = evidences["stage"]
    return found.timeline.total_ms <= 1.1 * found.timeline.longest


CHAPTERS = (
    Chapter(
        mark("To the GPU and back"),
        (
            mark("Each row is a worker: the program on the processor (host), and three queues of the GPU."),
            mark("The program copies a [batch](input) in, has it multiplied, and copies the [result](output) back."),
            mark("Nothing overlaps here. In all it takes {stage_total}, {stage_source}."),
        ),
        {},
        nudge=mark("Click a box to read what happens in it."),
    ),
    Chapter(
        mark("Memory that cannot move"),
        (
            mark(
                "Ordinary memory is pageable: the system may move it. So the driver first copies it to a pinned buffer, part by part."
            ),
            mark("Pinned memory stays in its place, and the GPU reads it directly."),
        ),
        {"scenario": "pageable"},
        step=2,
        question=Question(
            mark("Your guess: how long does the copy to the GPU take from pageable memory?"),
            (mark("About as long"), mark("Up to 4 times as long"), mark("More than 4 times as long")),
            pageable_factor,
            mark(
                "{pinned_bytes} take {pinned_in} from pinned memory: {pinned_rate_in}. From pageable memory they take {pageable_in}: {pageable_rate_in}."
            ),
        ),
    ),
    Chapter(
        mark("Copy and compute at the same time"),
        (
            mark("A stream is a queue of operations. Streams can run at the same time."),
            mark("While one of {stage_n} pieces is multiplied, the next is copied in and the last one out."),
            mark("Events keep the order: a kernel waits for its own piece."),
        ),
        {"scenario": "pieces", "n": "8"},
        step=12,
        question=Question(
            mark("Your guess: one piece takes {pinned_total}. How many times as fast are {stage_n}?"),
            (mark("Up to 1.5 times"), mark("1.5 to 2.5 times"), mark("More than 2.5 times")),
            gain_of_pieces,
            mark("{stage_n} pieces take {stage_total}."),
        ),
    ),
    Chapter(
        mark("How many pieces?"),
        (
            mark("The first copy in and the last copy out overlap with nothing. Smaller pieces make them shorter."),
            mark("But a small piece has too few blocks for all SMs, so its kernel wastes a part of the GPU."),
        ),
        {"scenario": "pieces", "n": "32"},
        step=40,
        question=Question(
            mark("Your guess: which of these numbers of pieces is the best for this batch?"),
            (mark("2"), mark("8"), mark("32")),
            best_of_three,
            mark(
                "2 pieces: {few_total}. 8 pieces: {pieces_total}. 32 pieces: {many_total}. All three are {many_kind}."
            ),
        ),
        nudge=mark("The chart of all numbers is in Explore, under the stage."),
    ),
    Chapter(
        mark("The busiest queue is the limit"),
        (
            mark("No order of the operations takes less than the busiest queue alone."),
            mark("Here are {stage_rows} rows in {stage_n} pieces. The busiest queue needs {stage_longest}."),
            mark("The whole program on the stage takes {stage_timed}, {stage_over_longest} times that."),
        ),
        {"scenario": "pieces", "rows": str(LARGE_ROWS), "n": str(LARGE_PIECES)},
        step=100,
        size="real",
        holds=overlaps_well,
    ),
    Chapter(
        mark("Fetch the next batch early"),
        (
            mark("Training uses one batch after the other. Here the next batch is copied while the GPU computes."),
            mark("Two buffers take turns, so that no copy overwrites what a kernel reads."),
        ),
        {"scenario": "prefetch", "n": "4"},
        step=14,
        question=Question(
            mark("Your guess: which work takes less time and is hidden behind the other?"),
            (mark("The copies behind the kernels"), mark("The kernels behind the copies")),
            hidden_by_prefetch,
            mark(
                "Copies in need {stage_in}, kernels {stage_compute}. Without prefetching: {waiting_total}. With it: {stage_total}."
            ),
        ),
    ),
    Chapter(
        mark("Kernels shorter than their launch"),
        (
            mark("These {stage_n} kernels are short. The GPU waits for the program, which needs longer to launch one."),
            mark("A CUDA graph holds all launches, and the program submits it with one call."),
            mark("Events measure the boxes, and each takes time: {stage_timed} with them, {stage_total} without."),
        ),
        {"scenario": "launches", "n": "20"},
        step=10,
        question=Question(
            mark("Your guess: how many times as fast is the graph?"),
            (mark("As fast"), mark("Up to twice"), mark("More than twice")),
            gain_of_graph,
            mark("One by one: {launches_total}. As a graph: {graph_total}."),
        ),
        nudge=mark("In Explore, compare cudaMalloc in each step with a memory pool."),
    ),
    Chapter(
        mark("A leak, and the line that made it"),
        (
            mark("This program keeps one tensor too many. After each batch, {leak_step} more stay in use."),
            mark("An allocator’s log lists what is in use, by the line that got it."),
        ),
        {"scenario": "leak", "n": "6"},
        step=35,
        question=Question(
            mark("Which line got the memory that never comes back?"),
            LINES,
            leaking_line,
            mark("The log names line {leak_line}: {leak_bytes} are in use. The list of results keeps them."),
        ),
        nudge=mark("The next lesson, [CPU and GPU](/offload), counts these copies when it compares both."),
    ),
)

STORY = Story(CHAPTERS, facts, no_facts)
