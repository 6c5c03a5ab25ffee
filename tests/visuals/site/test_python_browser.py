"""A site with Python in Chromium: a shape that is not recorded gets its scene, its counts and its costs."""

import os
import re
import shutil

import pytest
from playwright.sync_api import expect

from tests.helpers.deck import PACKAGES, serving_files
from tests.helpers.harness import Stage
from tests.helpers.site import OPTIONS, build
from visuals.site.python import Pyodide, PyodideError

START_MS = 120_000  # on two busy cores


def lacking() -> str:
    try:
        Pyodide(PACKAGES)
    except PyodideError as error:
        return "" if os.environ.get("CI") else f"npm install brings Pyodide and NumPy for it: {error}"
    return ""


pytestmark = [pytest.mark.browser, pytest.mark.timeout(900), pytest.mark.skipif(bool(lacking()), reason=lacking())]


@pytest.fixture(scope="module")
def address(site, tmp_path_factory):
    """Yields the address of the small site with Python. Its pages are those of the small site."""
    out = tmp_path_factory.mktemp("with_python") / "kernels"
    shutil.copytree(site.out, out)
    build(out, *OPTIONS, "--pyodide", str(PACKAGES))
    with serving_files(out.parent) as files:
        yield f"{files}/{out.name}"


def test_a_shape_that_is_not_recorded(new_page, address):
    page = new_page()
    page.goto(f"{address}/softmax?view=explore&M=2&N=9")
    expect(page.locator(".kt-note.site-lost")).to_have_count(0, timeout=START_MS)
    stage = Stage(page).ready()
    expect(stage.root).to_contain_text("2 rows of 9", timeout=START_MS)
    page.wait_for_function("site.counting === 0", timeout=START_MS)
    page.wait_for_function("site.main.querySelector('.st-key-card_why') || scrollTo(0, 1e9)", timeout=START_MS)
    # The page is drawn again when counts have come. What is typed into a field before that is lost.
    expect(page.get_by_text("sectors, on the stage")).to_have_count(1, timeout=START_MS)
    # The next shape needs no start. Its rows are counted too.
    page.get_by_label("M", exact=True).fill("3")
    page.get_by_label("M", exact=True).press("Enter")
    expect(stage.root).to_contain_text("3 rows of 9", timeout=START_MS)
    expect(page).to_have_url(re.compile("M=3"))
