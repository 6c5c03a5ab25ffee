"""The stage in a page without Streamlit, for the tests of this folder."""

import pytest

from tests.helpers.bare import serving_stages
from tests.helpers.harness import Stage


@pytest.fixture(scope="session")
def stages():
    """Yields the address of the stages without Streamlit (bare.py)."""
    with serving_stages() as address:
        yield address


@pytest.fixture
def bare(page, stages):
    """Returns a function that opens a lesson's stage without Streamlit and returns it, ready: bare("K=3&step=5")."""

    def open_(query="", lesson="im2col"):
        page.goto(f"{stages}/{lesson}?{query}")
        return Stage(page).ready()

    return open_
