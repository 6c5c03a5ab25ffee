"""The small site, built once for the tests of this folder, also if several processes run them."""

import fcntl
import os

import pytest

from tests.helpers.site import OPTIONS, Site, build


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    folder = tmp_path_factory.getbasetemp()
    if os.environ.get("PYTEST_XDIST_WORKER"):
        folder = folder.parent  # of all processes
    out = folder / "site" / "kernels"  # in a folder: its address is a sub-path
    with open(folder / "site.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not out.exists():
            build(out, *OPTIONS)
    return Site(out)
