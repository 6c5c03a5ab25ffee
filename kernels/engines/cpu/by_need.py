"""A program run once with buffers that exist only while they are used, and the bytes that NumPy allocates for each step."""

from __future__ import annotations

import tracemalloc
from collections.abc import Mapping

import numpy as np

from kernels.engines.protocol import RESOLUTION, Allocated
from kernels.model import values
from kernels.model.program import INPUT, OUTPUT, Arg, Program, View, buffer_of, cpu_of


def allocate_by_need(
    program: Program, inputs: Mapping[str, np.ndarray], lives: Mapping[str, tuple[int, int]]
) -> list[Allocated]:
    """Runs each step once. Returns the bytes of each buffer that exists during it, and what else NumPy allocates at most.

    lives: the first and the last step of each workspace buffer. Python's own small objects are traced too: less than
    RESOLUTION bytes do not count.
    """
    buffers = {b.name: b for b in program.buffers}
    tracemalloc.start()
    try:
        arrays: dict[str, np.ndarray] = {b.name: np.array(inputs[b.name]) for b in program.of_role(INPUT)}
        arrays |= {b.name: np.full(b.shape, values.poison(b.dtype), b.dtype) for b in program.of_role(OUTPUT)}
        views = {view.name: view for view in program.views}
        found = []
        for n, step in enumerate(program.steps):
            for name, (first, last) in lives.items():
                if last < n:
                    arrays.pop(name, None)
                elif first == n:
                    b = buffers[name]
                    arrays[name] = np.full(b.shape, values.poison(b.dtype), b.dtype)
            sizes = {name: array.nbytes for name, array in arrays.items()}
            tracemalloc.reset_peak()
            cpu_of(step)(*(_argument(a, arrays, views) for a in step.args))
            excess = tracemalloc.get_traced_memory()[1] - sum(sizes.values())
            found.append(Allocated(sizes, excess if excess >= RESOLUTION else 0))
    finally:
        tracemalloc.stop()
    return found


def _argument(a: Arg, arrays: Mapping[str, np.ndarray], views: Mapping[str, View]) -> Arg | np.ndarray:
    """Returns an argument of a step: an array by its name, a view of one that exists now, or a number."""
    name = buffer_of(a)
    if name is None:
        return a
    return views[name].cut(arrays[views[name].of]) if name in views else arrays[name]
