"""One server and one Chromium for all browser tests. A page with any error fails its test."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect, sync_playwright

from tests.helpers.harness import ARGS, TIMEOUT_MS, Stage, serving

# Streamlit looks for its base path under the page's URL first: two 404 responses per visit.
MISSING_PATHS = ("/_stcore/health", "/_stcore/host-config")
VIEWPORT = {"width": 1440, "height": 900}
PHONE = {"width": 390, "height": 844}


@pytest.fixture(scope="session")
def app():
    with serving() as app:
        yield app


@pytest.fixture(scope="session")
def server(app):
    """Returns the server's URL."""
    return app.url


@pytest.fixture(scope="session")
def stages():
    """Yields the address of the stages without Streamlit (bare.py)."""
    from tests.helpers.bare import serving_stages

    with serving_stages() as address:
        yield address


@pytest.fixture(scope="session")
def browser(chromium):
    expect.set_options(timeout=TIMEOUT_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGS)
        yield browser
        browser.close()


@pytest.fixture
def new_page(browser):
    """Yields a function that opens a page in a new context.

    The test fails if any page had a console error, an exception, a dialog or a request to another machine.
    """
    pages = []

    def open_(**options):
        context = browser.new_context(**{"viewport": VIEWPORT} | options)
        pages.append(_watched(context.new_page()))
        return pages[-1][0]

    yield open_
    errors = [error for page, page_errors in pages for error in [*page_errors, *_exceptions(page)]]
    for page, _ in pages:
        page.context.close()
    assert errors == []


@pytest.fixture(scope="session")
def watched(browser):
    return _watched(browser.new_context(viewport=VIEWPORT).new_page())


@pytest.fixture
def page(watched):
    """Yields the page that most tests share: a second visit takes a third of the time of the first.

    Each test loads a new session into it. Errors are checked as in `new_page`.
    """
    page, errors = watched
    page.set_viewport_size(VIEWPORT)
    page.emulate_media(color_scheme="light", reduced_motion="no-preference")
    page.mouse.move(0, 0)
    errors.clear()
    yield page
    _check_and_reset(page, errors)


@pytest.fixture(scope="session")
def watched_phone(browser):
    return _watched(browser.new_context(viewport=PHONE, has_touch=True, is_mobile=True).new_page())


@pytest.fixture
def phone(watched_phone):
    """Yields a page as `page` does, on a phone with touch and without a mouse."""
    page, errors = watched_phone
    page.set_viewport_size(PHONE)
    errors.clear()
    yield page
    _check_and_reset(page, errors)


@pytest.fixture(scope="module")
def path(request):
    """Returns the path of the lesson that a test file is about: its LESSON, or im2col."""
    return getattr(request.module, "LESSON", "im2col")


@pytest.fixture
def stage(page, server, path):
    """Returns a function that opens the lesson with a query and returns its stage, ready: stage("K=3&step=5").

    Without a query it opens Explore, not the story.
    """
    return lambda query="": _open_stage(page, f"{server}/{path}?{query or 'view=explore'}")


@pytest.fixture
def bare(page, stages):
    """Returns a function that opens a lesson's stage without Streamlit and returns it, ready: bare("K=3&step=5")."""
    return lambda query="", lesson="im2col": _open_stage(page, f"{stages}/{lesson}?{query}")


def _open_stage(page, address):
    page.goto(address)
    return Stage(page).ready()


def _watched(page):
    """Returns the page and the list that collects its errors."""
    errors = []
    page.set_default_timeout(TIMEOUT_MS)
    page.on("pageerror", lambda error: errors.append(f"exception in the page: {error}"))
    page.on("console", lambda message: errors.extend(_console_errors(message)))
    page.on("request", lambda request: errors.extend(_external_requests(request.url)))
    page.on("dialog", lambda dialog: (errors.append(f"a dialog opened: {dialog.message}"), dialog.dismiss()))
    return page, errors


def _check_and_reset(page, errors):
    """Empties a shared page at the end of a test, so that nothing plays during other tests, and checks its errors."""
    errors = [*errors, *_exceptions(page)]
    page.goto("about:blank")
    assert errors == []


def _exceptions(page) -> list[str]:
    return [f"the app: {text}" for text in page.get_by_test_id("stException").all_inner_texts()]


def _console_errors(message) -> list[str]:
    if message.type != "error":
        return []
    text, url = message.text, message.location.get("url", "")
    path = urlsplit(url).path
    if "404" in text and path.endswith(MISSING_PATHS):
        return []
    return [f"error on the console: {text} {url}"]


def _external_requests(url: str) -> list[str]:
    parts = urlsplit(url)
    external = parts.scheme in ("http", "https", "ws", "wss") and parts.hostname != "127.0.0.1"
    return [f"request of {url}"] if external else []
