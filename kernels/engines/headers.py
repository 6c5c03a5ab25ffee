"""CUDA's own headers (mma.h, cuda_fp16.h): where they lie on this machine, and what to say where they do not."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path

USUAL = "/usr/local/cuda"  # where toolkits are installed on Linux
_UNOPENED = re.compile(r'open source file "([^"]+)"')  # in the compiler's words


@cache
def folders() -> tuple[Path, ...]:
    """Those of NVIDIA's wheels first, then those of an installed toolkit."""
    return tuple(dict.fromkeys(path for path in (*_wheels(), *_toolkits()) if (path / "mma.h").is_file()))


def _wheels() -> Iterator[Path]:
    try:
        import nvidia
    except ImportError:
        return
    for folder in nvidia.__path__:
        yield from sorted(Path(folder).glob("cu*/include"))


def _toolkits() -> Iterator[Path]:
    nvcc = shutil.which("nvcc")
    roots = (os.environ.get("CUDA_PATH"), os.environ.get("CUDA_HOME"), nvcc and Path(nvcc).parents[1])
    for root in (*roots, USUAL):
        if root:
            yield Path(root) / "include"


def options(text: str) -> tuple[str, ...]:
    """-I for each folder where a translation unit includes anything, none where it does not."""
    return tuple(f"-I{path}" for path in folders()) if "#include" in text else ()


def explained(log: str) -> str:
    """The compiler's words; before them, where a header was not found, what brings it."""
    missing = _UNOPENED.search(log)
    if not missing:
        return log
    return (
        f"{missing[1]} was not found. CUDA's headers come with its toolkit (set CUDA_PATH to where it is) or by "
        f"pip install nvidia-cuda-runtime nvidia-cuda-crt.\n{log}"
    )
