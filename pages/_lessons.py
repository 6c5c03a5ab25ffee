"""The lessons as data, one row per lesson, in the order of the navigation bar.

The server imports this module, so it imports no scene and no chart.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernels.i18n import mark


@dataclass(frozen=True)
class Lesson:
    page: str  # its file in this folder
    path: str  # its address
    title: str  # in the navigation bar, translated where it is shown
    chapters: str = ""  # the module of its STORY


LESSONS = (
    Lesson("memory/page.py", "threads", mark("threads"), "pages.memory.chapters"),
    Lesson("gemm/page.py", "tiling", mark("tiling"), "pages.gemm.chapters"),
    Lesson("conv/direct.py", "direct", mark("direct"), "pages.conv.direct_chapters"),
    Lesson("conv/im2col.py", "im2col", mark("im2col"), "pages.conv.im2col_chapters"),
    Lesson("conv/implicit/page.py", "implicit", mark("implicit GEMM"), "pages.conv.implicit.chapters"),
    Lesson("conv/winograd/page.py", "winograd", mark("Winograd"), "pages.conv.winograd.chapters"),
    Lesson("conv/fft/page.py", "fft", mark("FFT"), "pages.conv.fft.chapters"),
    Lesson("conv/choose/page.py", "choose", mark("choose"), "pages.conv.choose.chapters"),
    Lesson("softmax/page.py", "softmax", mark("softmax"), "pages.softmax.chapters"),
    Lesson("attention/page.py", "attention", mark("attention"), "pages.attention.chapters"),
    Lesson("fusion/page.py", "fusion", mark("fusion"), "pages.fusion.chapters"),
)
