"""The bytes that a program must move through a device's memory, whatever its caches hold."""

from __future__ import annotations

from kernels.model.program import INPUT, OUTPUT, Program, buffer_of


def necessary_bytes(program: Program, cache_bytes: int = 0, hot: bool = False) -> int:
    """Returns the bytes that a program cannot avoid to move through memory.

    Each launch reads or writes each of its buffers once. What it loads again can come from a cache. An input that is
    overwritten (`in_place`) is read and written.

    A buffer of at most `cache_bytes`, the size of the last cache, can stay in the cache from launch to launch. So an
    input or an output of that size moves once per program, and a workspace not at all. A larger buffer moves at each
    launch that takes it: a workspace when it is written, and when it is read. If the run before left its data in the
    cache (`hot`), no buffer of that size moves.
    """
    buffers = {buffer.name: buffer for buffer in program.buffers}
    moved, total = set(), 0
    for step in program.steps:
        for buffer in {buffers[name] for arg in step.args if (name := buffer_of(arg)) is not None}:
            fits = buffer.nbytes <= cache_bytes
            if fits and (hot or buffer.name in moved or buffer.role not in (INPUT, OUTPUT)):
                continue
            moved.add(buffer.name)
            total += buffer.used_bytes * (2 if buffer.in_place else 1)
    return total
