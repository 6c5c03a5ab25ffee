"""Bytes of the GPU's memory by role and stage, as CuPy's allocator provides them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from kernels.engines.protocol import ALLOCATED, memory_of, total_bytes
from kernels.model.program import WORKSPACE
from kernels.model.result import Memory, Stage


@cache
def memory_hook():
    """Returns a class, a MemoryHook that records bytes by role and stage. It is defined when CuPy is first needed."""
    import cupy

    class RoleHook(cupy.cuda.MemoryHook):
        name = "bytes by role"

        def __init__(self):
            super().__init__()
            self.role = WORKSPACE
            self.timeline: list[Stage] = []  # for each stage, its moment with the most bytes
            self._live: dict[int, tuple[str, int]] = {}
            self._current = dict.fromkeys(ALLOCATED, 0)
            self._peaks = dict(self._current)

        def stage(self, at: str, role: str) -> None:
            """Begin the stage `at`. Allocations from here on have the role `role`."""
            self.role = role
            self.timeline.append(Stage(at=at, **self._current))

        def malloc_postprocess(self, device_id, size, mem_size, mem_ptr, pmem_id):
            self._live[pmem_id] = self.role, mem_size
            self._current[self.role] += mem_size
            self._peaks[self.role] = max(self._peaks[self.role], self._current[self.role])
            if sum(self._current.values()) > total_bytes(self.timeline[-1]):
                self._set_last(self._current)

        def free_postprocess(self, device_id, mem_size, mem_ptr, pmem_id):
            if pmem_id in self._live:
                role, size = self._live.pop(pmem_id)
                self._current[role] -= size

        def add_external(self, nbytes: int) -> None:
            """Add bytes that a step took in this role while it ran, from an allocator other than CuPy's."""
            during_step = {**self._current, self.role: self._current[self.role] + nbytes}
            self._peaks[self.role] = max(self._peaks[self.role], during_step[self.role])
            if sum(during_step.values()) > total_bytes(self.timeline[-1]):
                self._set_last(during_step)

        def _set_last(self, nbytes: Mapping[str, int]) -> None:
            self.timeline[-1] = Stage(at=self.timeline[-1]["at"], **nbytes)

        def memory(self) -> Memory:
            return memory_of(self._peaks, self.timeline)

    return RoleHook
