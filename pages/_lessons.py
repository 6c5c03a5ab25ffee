"""The lessons as data, one row per lesson, in the order of the course and of the navigation bar.

The server imports this module, so it imports no scene and no chart.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernels.i18n import mark

LEVELS = (mark("beginner"), mark("intermediate"), mark("advanced"))


@dataclass(frozen=True)
class Lesson:
    page: str  # its file in this folder
    path: str  # its address
    title: str  # in the navigation bar; it and the question are translated where they are shown
    chapters: str = ""  # the module of its STORY
    question: str = ""  # what the lesson answers, in one line
    after: tuple[str, ...] = ()  # the paths of the lessons that it builds on
    level: int = 0  # an index of LEVELS


# The menus of the bar: their lessons by path. A lesson in none of them is a link of its own.
GROUPS = {
    mark("convolution"): ("direct", "im2col", "implicit", "winograd", "fft", "choose", "backward"),
    mark("attention"): ("softmax", "attention", "attention_backward"),
    mark("training"): ("layers", "train", "precision", "fusion"),
    mark("Around the kernel"): ("transfers", "offload", "collectives", "parallel"),
}

LESSONS = (
    Lesson(
        "memory/page.py", "threads", mark("threads"), "pages.memory.chapters",
        mark("Why does it matter which thread reads what?"),
    ),
    Lesson(
        "gemm/page.py", "tiling", mark("tiling"), "pages.gemm.chapters",
        mark("How does a matrix product get fast?"), ("threads",), level=1,
    ),
    Lesson(
        "hopper/page.py", "hopper", mark("Hopper"), "pages.hopper.chapters",
        mark("How do tensor cores, copy engine and warps work together?"), ("tiling",), level=2,
    ),
    Lesson(
        "conv/direct.py", "direct", mark("direct"), "pages.conv.direct_chapters",
        mark("What does each thread of a convolution do?"), ("threads",),
    ),
    Lesson(
        "conv/im2col.py", "im2col", mark("im2col"), "pages.conv.im2col_chapters",
        mark("How does a convolution become a matrix product?"), ("direct",),
    ),
    Lesson(
        "conv/implicit/page.py", "implicit", mark("implicit GEMM"), "pages.conv.implicit.chapters",
        mark("Must the copied matrix be in memory?"), ("tiling", "im2col"), level=2,
    ),
    Lesson(
        "conv/winograd/page.py", "winograd", mark("Winograd"), "pages.conv.winograd.chapters",
        mark("Can fewer multiplications give the same result?"), ("direct",), level=2,
    ),
    Lesson(
        "conv/fft/page.py", "fft", mark("FFT"), "pages.conv.fft.chapters",
        mark("When do waves beat a sliding window?"), ("direct",), level=2,
    ),
    Lesson(
        "conv/choose/page.py", "choose", mark("choose"), "pages.conv.choose.chapters",
        mark("Which algorithm is fastest for this layer?"), ("implicit", "winograd", "fft"), level=2,
    ),
    Lesson(
        "conv/backward/page.py", "backward", mark("backward"), "pages.conv.backward.chapters",
        mark("How does a gradient go back through a convolution?"), ("implicit",), level=2,
    ),
    Lesson(
        "softmax/page.py", "softmax", mark("softmax"), "pages.softmax.chapters",
        mark("How often must a row be read?"), ("threads",),
    ),
    Lesson(
        "layers/page.py", "layers", mark("layers"), "pages.layers.chapters",
        mark("How does a gradient go back through a layer?"), ("threads",), level=1,
    ),
    Lesson(
        "train/page.py", "train", mark("train"), "pages.train.chapters",
        mark("What happens in one step of training?"), ("layers",), level=2,
    ),
    Lesson(
        "precision/page.py", "precision", mark("precision"), "pages.precision.chapters",
        mark("How few bits are enough to train and to compute?"), ("tiling", "layers"), level=2,
    ),
    Lesson(
        "attention/page.py", "attention", mark("attention"), "pages.attention.chapters",
        mark("How do N × N scores stay out of memory?"), ("tiling", "softmax"), level=2,
    ),
    Lesson(
        "attention/backward/page.py", "attention_backward", mark("attention backward"), "pages.attention.backward.chapters",
        mark("How do gradients flow back without N × N weights?"), ("attention", "layers"), level=2,
    ),
    Lesson(
        "fusion/page.py", "fusion", mark("fusion"), "pages.fusion.chapters",
        mark("When is one kernel better than four?"), ("direct",), level=1,
    ),
    Lesson(
        "transfers/page.py", "transfers", mark("moving data"), "pages.transfers.chapters",
        mark("What happens before and after a kernel?"), ("threads",), level=1,
    ),
    Lesson(
        "offload/page.py", "offload", mark("CPU and GPU"), "pages.offload.chapters",
        mark("From which size on is a GPU faster?"), ("transfers",), level=1,
    ),
    Lesson(
        "collectives/page.py", "collectives", mark("many GPUs"), "pages.collectives.chapters",
        mark("How do many GPUs form one sum?"), ("train",), level=2,
    ),
    Lesson(
        "parallel/page.py", "parallel", mark("parallel training"), "pages.parallel.chapters",
        mark("How do many GPUs train one network?"), ("train", "collectives"), level=2,
    ),
)  # fmt: skip


def entries() -> list[tuple[str, list[Lesson]]]:
    """Returns what the bar shows, in the order of the course: the title of each menu, and its lessons.

    A title is "" for a lesson that is alone.
    """
    found: dict[str, list[Lesson]] = {}
    for lesson in LESSONS:
        group = next((title for title, paths in GROUPS.items() if lesson.path in paths), lesson.path)
        found.setdefault(group, []).append(lesson)
    return [(group if len(lessons) > 1 else "", lessons) for group, lessons in found.items()]
