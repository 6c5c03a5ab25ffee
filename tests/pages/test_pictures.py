"""Five pages look as their pictures do: an upgrade of Streamlit that moves what pages/parts/streamlit.css selects fails here.

After a wanted change `python -m tests.helpers.pictures` makes the pictures anew. Look at them before they are committed.
"""

import json

import numpy as np
import pytest

from tests.helpers import pictures

pytestmark = pytest.mark.browser
FAINT = 12  # of 255: letters that are drawn otherwise change less
MAX_SHARE = 0.01  # of a picture may change more: a sentence that is written anew, and not a line that moved


def changed(before: np.ndarray, now: np.ndarray) -> float:
    """Returns the share of a picture that has changed visibly."""
    return float((np.abs(before.astype(int) - now.astype(int)) > FAINT).mean())


@pytest.fixture(scope="module", params=pictures.SCHEMES)
def window(request, browser, server):
    """Yields a window in one of the themes, where the fonts are those of the pictures."""
    page = pictures.new_window(browser, request.param)
    pictures.open_page(page, server, "history")
    fonts = json.loads(pictures.MADE_WITH.read_text(encoding="utf-8"))["fonts"]
    if pictures.made_with(page)["fonts"] != fonts:
        page.context.close()
        pytest.skip("other fonts here than those of the pictures")
    yield page, request.param
    page.context.close()


@pytest.mark.parametrize("name", pictures.PAGES)
def test_a_page_looks_as_its_picture(window, server, name):
    page, scheme = window
    pictures.open_page(page, server, name)
    share = changed(pictures.saved(name, scheme), pictures.picture(page))
    made = json.loads(pictures.MADE_WITH.read_text(encoding="utf-8"))["streamlit"]
    assert share < MAX_SHARE, f"{share:.1%} of {name}, {scheme}, differ from the picture, made with Streamlit {made}"


# What an upgrade may do to a page: a rule that no longer finds its element.
@pytest.mark.parametrize(
    "lost",
    [
        "[data-testid=stMainBlockContainer] { padding: 96px 80px !important; }",
        "[data-testid=stMainBlockContainer] > [data-testid=stVerticalBlock] { gap: 16px !important; }",
        "[class*=st-key-params] .stNumberInput { display: block !important; height: auto !important; }",
        "[class*=st-key-chips] :is(a, button), [class*=st-key-params] .stNumberInput { height: 40px !important; }",
    ],
    ids=["padding", "gap", "fields", "chips"],
)
def test_a_lost_rule_is_seen(window, server, lost):
    page, scheme = window
    pictures.open_page(page, server, "im2col")
    page.add_style_tag(content=lost)
    assert changed(pictures.saved("im2col", scheme), pictures.picture(page)) > MAX_SHARE
