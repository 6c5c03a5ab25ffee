"""One server and one Chromium for all browser tests; a page that fails its test on any error of its own."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect, sync_playwright

from tests.helpers.harness import ARGS, SEEN, Stage, serving

# Streamlit looks for its base path under the address of the page first: two answers of 404 a visit.
PROBED = ("/_stcore/health", "/_stcore/host-config")
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
    opened = []

    def open_(**options):
        context = browser.new_context(**{"viewport": VIEWPORT} | options)
        opened.append(_watched(context.new_page()))
        return opened[-1][0]

    yield open_
    wrong = [complaint for page, heard in opened for complaint in [*heard, *_exceptions(page)]]
    for page, _ in opened:
        page.context.close()
    assert wrong == []


@pytest.fixture(scope="session")
def watched(browser):
    return _watched(browser.new_context(viewport=VIEWPORT).new_page())


@pytest.fixture
def page(watched):
    """The page that most tests share, for a second visit in it takes a third of the time of a first. What
    a test loads into it is a session of its own; errors as in `new_page`."""
    page, heard = watched
    page.set_viewport_size(VIEWPORT)
    page.emulate_media(color_scheme="light", reduced_motion="no-preference")
    page.mouse.move(0, 0)
    heard.clear()
    yield page
    _leave(page, heard)


@pytest.fixture(scope="session")
def watched_phone(browser):
    return _watched(browser.new_context(viewport=PHONE, has_touch=True, is_mobile=True).new_page())


@pytest.fixture
def phone(watched_phone):
    """As `page`, on a telephone: fingers, no mouse."""
    page, heard = watched_phone
    heard.clear()
    yield page
    _leave(page, heard)


@pytest.fixture(scope="module")
def path(request):
    """Of the lesson that a file of tests is about: its LESSON, or im2col."""
    return getattr(request.module, "LESSON", "im2col")


@pytest.fixture
def stage(page, server, path):
    """Opens the lesson by its query and gives its stage, ready: stage("K=3&step=5")."""
    return lambda query="": _opened(page, f"{server}/{path}?{query}")


@pytest.fixture
def watch(page, server, path):
    """The same without the cards, the kernel and the controls, for what the stage does by itself: their charts
    take the browser seven times as long as the stage."""
    return lambda query="": _opened(page, f"{server}/{path}?view=watch&{query}")


def _opened(page, address):
    page.goto(address)
    return Stage(page).ready()


def _watched(page):
    """The page and the list its complaints go to."""
    heard = []
    page.set_default_timeout(SEEN)
    page.on("pageerror", lambda error: heard.append(f"exception in the page: {error}"))
    page.on("console", lambda message: heard.extend(_complaint(message)))
    page.on("request", lambda request: heard.extend(_stranger(request.url)))
    page.on("dialog", lambda dialog: (heard.append(f"a dialog opened: {dialog.message}"), dialog.dismiss()))
    return page, heard


def _leave(page, heard):
    """The end of a test on a shared page: nothing plays on while other tests have pages of their own."""
    wrong = [*heard, *_exceptions(page)]
    page.goto("about:blank")
    assert wrong == []


def _exceptions(page) -> list[str]:
    return [f"the app: {shown}" for shown in page.get_by_test_id("stException").all_inner_texts()]


def _complaint(message) -> list[str]:
    if message.type != "error":
        return []
    text, url = message.text, message.location.get("url", "")
    path = urlsplit(url).path
    if "404" in text and path.endswith(PROBED):
        return []
    return [f"error on the console: {text} {url}"]


def _stranger(url: str) -> list[str]:
    parts = urlsplit(url)
    away = parts.scheme in ("http", "https", "ws", "wss") and parts.hostname != "127.0.0.1"
    return [f"asked for {url}"] if away else []
