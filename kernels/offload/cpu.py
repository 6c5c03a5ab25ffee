"""Times a work on this processor, verified."""

from __future__ import annotations

import time
from collections.abc import Callable

from kernels.engines import cpu
from kernels.machine.timing import Budget, interleave, warm_up
from kernels.offload.works import Case


def samples(case: Case, flush: Callable[[], object], budget: Budget) -> tuple[float, ...]:
    """Returns the ms of each run of a case. `flush` overwrites the caches before each. RuntimeError if its result is wrong."""
    session = cpu.open(case.work.program(case.point.shape), dict(case.inputs))

    def once() -> float:
        flush()
        start = time.perf_counter()
        session.run()
        return 1e3 * (time.perf_counter() - start)

    try:
        case.verify(session.verify_run(), "processor")
        warm_up(session.run, budget.warm_up_s - session.first_run_s)
        (found,) = interleave([once], budget)
    finally:
        session.close()
    return found
