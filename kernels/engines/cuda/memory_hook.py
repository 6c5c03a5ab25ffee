"""Bytes of the GPU's memory by role, stage by stage, as CuPy's allocator hands them out."""

from __future__ import annotations

from functools import cache

from kernels.engines.protocol import ALLOCATED, total_bytes
from kernels.model.program import WORKSPACE


@cache
def memory_hook():
    """A MemoryHook that keeps bytes by role, stage by stage; made when CuPy is first needed."""
    import cupy

    class Ledger(cupy.cuda.MemoryHook):
        name = "bytes by role"

        def __init__(self):
            super().__init__()
            self.role = WORKSPACE
            self.timeline: list[dict] = []  # of each stage, its moment with the most bytes
            self._live: dict[int, tuple[str, int]] = {}
            self._now = dict.fromkeys(ALLOCATED, 0)
            self._most = dict(self._now)

        def stage(self, at: str, role: str) -> None:
            """From here on allocations are of `role`, and belong to the stage `at`."""
            self.role = role
            self.timeline.append({"at": at, **self._now})

        def malloc_postprocess(self, device_id, size, mem_size, mem_ptr, pmem_id):
            self._live[pmem_id] = self.role, mem_size
            self._now[self.role] += mem_size
            self._most[self.role] = max(self._most[self.role], self._now[self.role])
            if sum(self._now.values()) > total_bytes(self.timeline[-1]):
                self.timeline[-1].update(self._now)

        def free_postprocess(self, device_id, mem_size, mem_ptr, pmem_id):
            if pmem_id in self._live:
                role, size = self._live.pop(pmem_id)
                self._now[role] -= size

        def told(self, nbytes: int) -> None:
            """What a step took of this role, while it ran, from an allocator that is not CuPy's."""
            most = {**self._now, self.role: self._now[self.role] + nbytes}
            self._most[self.role] = max(self._most[self.role], most[self.role])
            if total_bytes(most) > total_bytes(self.timeline[-1]):
                self.timeline[-1].update(most)

        def bytes(self) -> dict[str, int]:
            return {**self._most, "peak": max(map(total_bytes, self.timeline), default=0)}

    return Ledger
