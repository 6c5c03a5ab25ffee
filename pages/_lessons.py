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


LESSONS = (
    Lesson("memory/page.py", "threads", mark("threads")),
    Lesson("gemm/page.py", "tiling", mark("tiling")),
    Lesson("conv/direct.py", "direct", mark("direct")),
    Lesson("conv/im2col.py", "im2col", mark("im2col")),
    Lesson("conv/implicit/page.py", "implicit", mark("implicit GEMM")),
    Lesson("conv/winograd/page.py", "winograd", mark("Winograd")),
    Lesson("conv/fft/page.py", "fft", mark("FFT")),
    Lesson("conv/choose/page.py", "choose", mark("choose")),
    Lesson("softmax/page.py", "softmax", mark("softmax")),
    Lesson("attention/page.py", "attention", mark("attention")),
    Lesson("fusion/page.py", "fusion", mark("fusion")),
)
