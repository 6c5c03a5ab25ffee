"""The small site, built once for the tests of this folder."""

import pytest

from tests.helpers.site import OPTIONS, Site, build


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    out = tmp_path_factory.mktemp("site") / "kernels"  # in a folder: its address is a sub-path
    build(out, *OPTIONS)
    return Site(out)
