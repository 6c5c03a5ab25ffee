"""The lessons as data, one row per lesson, in the order of the navigation bar.

The server imports this module, so it imports nothing large.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Lesson:
    page: str  # its file in this folder
    path: str  # its address
    title: str  # in the navigation bar


LESSONS = (
    Lesson("memory/page.py", "threads", "threads"),
    Lesson("gemm/page.py", "tiling", "tiling"),
    Lesson("conv/direct.py", "direct", "direct"),
    Lesson("conv/im2col.py", "im2col", "im2col"),
    Lesson("conv/implicit/page.py", "implicit", "implicit GEMM"),
    Lesson("conv/winograd/page.py", "winograd", "Winograd"),
    Lesson("conv/fft/page.py", "fft", "FFT"),
    Lesson("conv/choose/page.py", "choose", "choose"),
    Lesson("softmax/page.py", "softmax", "softmax"),
    Lesson("attention/page.py", "attention", "attention"),
    Lesson("fusion/page.py", "fusion", "fusion"),
)
