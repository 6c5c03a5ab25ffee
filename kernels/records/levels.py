"""The levels of memory of the GPUs of recordings: NAME.levels.json beside a recording."""

from __future__ import annotations

from pathlib import Path

from kernels import records
from kernels.machine import memory_levels
from kernels.machine.memory_levels import Levels
from kernels.records import files
from kernels.records.gpus import Gpu

ENDING = ".levels.json"


def recorded(gpu: Gpu | None) -> Levels | None:
    """Returns the levels of a GPU as its driver reported them; None if no file has them."""
    if gpu is None:
        return None
    read = (memory_levels.read(path) for path, own in files.paths(ENDING) if own == gpu.own)
    return next((levels for levels in read if levels and levels.device == gpu.device), None)


def shown(*ladders: str) -> Levels | None:
    """Returns the levels of the GPU that these ladders are shown from; those of the first GPU if no file has them."""
    return recorded(records.shown(*ladders)) or memory_levels.recorded()


def path_beside(out: Path) -> Path:
    """Returns the path of the levels beside a recording."""
    return out.with_suffix(ENDING)
