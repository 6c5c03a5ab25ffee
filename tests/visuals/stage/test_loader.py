"""The player is loaded once a browser, under any base path; if it cannot be loaded, the page says so and tries again."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from tests.helpers.harness import TIMEOUT_MS, Stage, go_to_lesson, serving
from tests.helpers.page_runner import components, open_page
from visuals import stage

PLAYER = f"**/stage/{stage.player_file()}*"
FAILED = "its player could not be loaded"


def loads(page) -> list[str]:
    """Returns the list that collects the paths from which the page loads the player."""
    found: list[str] = []
    page.on("request", lambda request: "/stage/player-" in request.url and found.append(urlsplit(request.url).path))
    return found


@pytest.fixture
def quiet_page(browser):
    """Yields a page of a new context; its console may show errors, which a failed load writes there."""
    page = browser.new_context().new_page()
    page.set_default_timeout(TIMEOUT_MS)
    yield page
    page.context.close()


def test_a_rerun_does_not_send_the_player():
    (component,) = components(open_page("conv/im2col.py"))
    proto = component.proto
    assert "html_content" not in stage.script()
    assert len(proto.js_content) + len(proto.html_content) + len(proto.css_content) < 2_500


@pytest.mark.browser
def test_the_player_loads_once_under_a_base_path_and_a_content_security_policy(new_page):
    with serving("tests/helpers/strict_app.py", baseUrlPath="talk") as app:  # a server without earlier visits
        page = new_page()
        found = loads(page)
        page.goto(f"{app.url}/talk/im2col?H=12&W=10&K=3&step=7")
        opened = Stage(page).ready()
        opened.at_step(7)
        assert opened.root.get_attribute("data-scene").startswith("im2col 0,0 N=1,C=1,H=12,W=10,K=3")
        expect(page.get_by_label("H", exact=True)).to_have_value("12")
        expect(page.locator(".kt-derived")).to_contain_text("output 10×8")
        assert page.url.endswith("?H=12&W=10&K=3&step=7")  # opening does not rewrite the URL
        opened.playing(False)
        expect(page.locator(".st-key-card_why")).to_be_visible()
        go_to_lesson(page, "direct")
        expect(page.locator(".stage")).to_have_attribute("data-scene", re.compile("direct"))
        assert found == [f"/talk/stage/{stage.player_file()}"]  # once for all lessons
        page.goto(f"{app.url}/talk/")
        expect(page.locator(".stage[data-ready=true]").first).to_be_visible()
        assert set(found) == {f"/talk/stage/{stage.player_file()}"}
        page.goto("about:blank")  # before the server ends: a page that loses it writes errors to the console


@pytest.mark.browser
def test_a_failed_load_is_told_and_tried_again(quiet_page, stages):
    page = quiet_page
    page.route(PLAYER, lambda route: route.abort())
    page.goto(f"{stages}/im2col?step=5")
    alert = page.get_by_role("alert").filter(has_text=FAILED)
    expect(alert).to_be_visible()
    page.unroute(PLAYER)
    page.get_by_role("button", name="Try again").click()
    Stage(page).ready().at_step(5)
    expect(alert).to_have_count(0)


@pytest.mark.browser
def test_a_message_that_comes_while_the_player_loads_is_shown(quiet_page, stages):
    """The stage shows the newest message, and the call that waited longer does not close it."""
    page, held = quiet_page, []
    page.route(PLAYER, lambda route: held.append(route))
    page.goto(f"{stages}/im2col")
    with page.expect_response("**/message/**"):
        page.evaluate("show('?K=5') && null")
    page.wait_for_function("calls === 2")
    for route in held:
        route.continue_()
    expect(page.locator(".stage")).to_have_attribute("data-scene", re.compile("K=5"))
    opened = Stage(page).ready()
    page.wait_for_function("closers.length === 2")
    assert page.evaluate("closers.map((closer) => typeof closer)") == ["undefined", "function"]
    opened.root.focus()
    page.keyboard.press("ArrowRight")
    opened.at_step(1)
