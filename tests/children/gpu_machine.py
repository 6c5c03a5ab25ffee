"""The app's own child on a machine with a GPU, by a stand-in for its driver's library. CuPy, itself no stand-in, finds no
driver; one that does not even import is put in its place by PYTHONPATH."""

from __future__ import annotations

from kernels.machine import driver
from tests.children.driver import Driver

driver.library = Driver

from kernels.jobs.child import _warm_up, main  # noqa: E402

if __name__ == "__main__":
    _warm_up()
    main()
