"""One server and one Chromium for all browser tests; a page that fails its test on any error of its own."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect, sync_playwright

from tests.helpers.harness import ARGS, SEEN, Stage, serving

# Streamlit looks for its base path under the address of the page first: two answers of 404 a visit.
MISSING_PATHS = ("/_stcore/health", "/_stcore/host-config")
VIEWPORT = {"width": 1440, "height": 900}
PHONE = {"width": 390, "height": 844}


@pytest.fixture(scope="session")
def app():
    with serving() as app:
        yield app


@pytest.fixture(scope="session")
def server(app):
    """Its address."""
    return app.url


@pytest.fixture(scope="session")
def browser(chromium):
    expect.set_options(timeout=SEEN)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGS)
        yield browser
        browser.close()


@pytest.fixture
def new_page(browser):
    """Pages in contexts of their own. After the test: no error on any console, no exception, no dialog,
    no request that left this machine."""
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
    """The page that most tests share, for a second visit in it takes a third of the time of a first. What
    a test loads into it is a session of its own; errors as in `new_page`."""
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
    """As `page`, on a telephone: fingers, no mouse."""
    page, errors = watched_phone
    errors.clear()
    yield page
    _check_and_reset(page, errors)


@pytest.fixture(scope="module")
def path(request):
    """Of the lesson that a file of tests is about: its LESSON, or im2col."""
    return getattr(request.module, "LESSON", "im2col")


@pytest.fixture
def stage(page, server, path):
    """Opens the lesson by its query and gives its stage, ready: stage("K=3&step=5")."""
    return lambda query="": _open_stage(page, f"{server}/{path}?{query}")


@pytest.fixture
def watch(page, server, path):
    """The same without the cards, the kernel and the controls, for what the stage does by itself: their charts
    take the browser seven times as long as the stage."""
    return lambda query="": _open_stage(page, f"{server}/{path}?view=watch&{query}")


def _open_stage(page, address):
    page.goto(address)
    return Stage(page).ready()


def _watched(page):
    """The page and the list its complaints go to."""
    errors = []
    page.set_default_timeout(SEEN)
    page.on("pageerror", lambda error: errors.append(f"exception in the page: {error}"))
    page.on("console", lambda message: errors.extend(_console_errors(message)))
    page.on("request", lambda request: errors.extend(_external_requests(request.url)))
    page.on("dialog", lambda dialog: (errors.append(f"a dialog opened: {dialog.message}"), dialog.dismiss()))
    return page, errors


def _check_and_reset(page, errors):
    """The end of a test on a shared page: nothing plays on while other tests have pages of their own."""
    errors = [*errors, *_exceptions(page)]
    page.goto("about:blank")
    assert errors == []


def _exceptions(page) -> list[str]:
    return [f"the app: {shown}" for shown in page.get_by_test_id("stException").all_inner_texts()]


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
    return [f"asked for {url}"] if external else []
