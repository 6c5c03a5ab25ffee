"""The player is loaded once a browser, under any base path; if it cannot be loaded, the page says so and tries again."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from tests.helpers.harness import TIMEOUT_MS, Stage, go_to_lesson, serving
from tests.helpers.page_runner import components, open_page
from visuals import stage

pytestmark = pytest.mark.browser

PLAYER = f"**/stage/{stage.player_file()}*"
FAILED = "its player could not be loaded"


def loads(page) -> list[str]:
    """Returns the list that collects the paths from which the page loads the player."""
    found: list[str] = []
    page.on("request", lambda request: "/stage/player-" in request.url and found.append(urlsplit(request.url).path))
    return found


def quiet_page(browser):
    """Returns a page of a new context; its console may show errors, which a failed load writes there."""
    page = browser.new_context().new_page()
    page.set_default_timeout(TIMEOUT_MS)
    return page


def test_a_browser_loads_the_player_once_for_all_lessons(new_page, server):
    page = new_page()
    found = loads(page)
    page.goto(f"{server}/im2col?view=explore")
    Stage(page).ready()
    go_to_lesson(page, "direct")
    expect(page.locator(".stage")).to_have_attribute("data-scene", re.compile("direct"))
    assert found == [f"/stage/{stage.player_file()}"]


def test_a_rerun_does_not_send_the_player():
    (component,) = components(open_page("conv/im2col.py"))
    proto = component.proto
    assert "html_content" not in stage.script()
    assert len(proto.js_content) + len(proto.html_content) + len(proto.css_content) < 2_500


def test_the_player_loads_under_a_base_path_and_a_content_security_policy(new_page):
    with serving("tests/helpers/strict_app.py", baseUrlPath="talk") as app:
        for path in ("talk/im2col?view=watch", "talk/"):
            page = new_page()
            found = loads(page)
            page.goto(f"{app.url}/{path}")
            expect(page.locator(".stage[data-ready=true]").first).to_be_visible()
            assert found == [f"/talk/stage/{stage.player_file()}"]
            page.goto("about:blank")  # before the server ends: a page that loses it writes errors to the console


def test_a_failed_load_is_told_and_tried_again(browser, server):
    page = quiet_page(browser)
    page.route(PLAYER, lambda route: route.abort())
    page.goto(f"{server}/im2col?view=watch&step=5")
    alert = page.get_by_role("alert").filter(has_text=FAILED)
    expect(alert).to_be_visible()
    page.unroute(PLAYER)
    page.get_by_role("button", name="Try again").click()
    Stage(page).ready().at_step(5)
    expect(alert).to_have_count(0)
    page.context.close()


def test_a_message_that_comes_while_the_player_loads_is_shown(browser, server):
    """The stage shows the newest message, and the call that waited longer does not close it."""
    page, held = quiet_page(browser), []
    page.route(PLAYER, lambda route: held.append(route))
    page.goto(f"{server}/im2col?view=explore")
    field = page.get_by_label("K", exact=True)
    field.fill("5")
    field.press("Enter")
    expect(page.get_by_test_id("stApp")).to_have_attribute("data-test-script-state", "notRunning")
    for route in held:
        route.continue_()
    expect(page.locator(".stage")).to_have_attribute("data-scene", re.compile("K=5"))
    stage_ = Stage(page).ready()
    stage_.root.focus()
    page.keyboard.press("ArrowRight")
    stage_.at_step(1)
    page.context.close()
