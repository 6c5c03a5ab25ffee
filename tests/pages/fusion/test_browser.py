"""Tests of the fusion lesson in a real browser: steps, hover, editing the chain, Run, narrow page."""

import re
from functools import partial

import pytest
from playwright.sync_api import expect

from pages.fusion import address
from tests.helpers.harness import Stage, frames, idle

pytestmark = pytest.mark.browser
LESSON = "fusion"
RUN_MS = 60_000


def test_each_step_has_its_caption_and_hover_traces_a_value(watch):
    stage, scene = watch(), address.card({})
    for step in range(scene.steps):
        stage.at_step(step)
        expect(stage.caption).to_have_text(scene.caption(step))
        stage.do("forward")
    frames(stage.page, 60)
    i = 5  # an element of y, written with the others
    caption = next(t for t in scene.annotations if t.tensor == "y").captions
    text = stage.point_at("y", i)
    assert re.search(
        r"conv of x: .* → bias .* → bn .* → relu .*Between the blocks, the value stays in a register", text
    )
    for value in caption.args[i]:
        assert f"{value:g}".replace("-", "−") in text


@pytest.mark.slow
def test_chain_is_edited_by_links_and_fields_and_back_undoes_it(stage, page):
    stage = stage()
    page.get_by_role("button", name="+ block").click()
    page.get_by_role("link", name="maxpool, the largest value of each window").click()
    expect(stage.root).to_have_attribute("data-scene", re.compile(r"bn relu maxpool:2 of "))
    expect(page).to_have_url(re.compile("chain=conv.*relu.maxpool"))
    page.keyboard.press("Escape")
    page.get_by_role("button", name="conv K=2 R=3").click()
    page.get_by_role("spinbutton", name="stride", exact=True).fill("2")
    page.keyboard.press("Enter")
    expect(stage.root).to_have_attribute("data-scene", re.compile(r"conv:K=2:R=3:stride=2 bias"))
    expect(page).to_have_url(re.compile("stride"))
    page.go_back()
    expect(stage.root).to_have_attribute("data-scene", re.compile(r"conv:K=2:R=3 bias bn relu maxpool:2 of "))


@pytest.mark.slow
def test_option_is_kept_when_server_messages_arrive_late(new_page, server):
    """Meanwhile the page polls with the old URL and sends the changed field with each poll."""
    page, late, sent, delay = new_page(), [], [], {"held": False}

    def route(socket):
        upstream = socket.connect_to_server()
        socket.on_message(lambda m: (sent.append(m), upstream.send(m)))
        upstream.on_message(lambda m: late.append(partial(socket.send, m)) if delay["held"] else socket.send(m))

    page.route_web_socket(lambda url: "_stcore/stream" in url, route)
    page.goto(f"{server}/fusion?N=2")
    page.get_by_role("button", name="conv K=2 R=3").click()
    page.get_by_role("spinbutton", name="stride", exact=True).fill("2")
    delay["held"], before = True, len(sent)
    page.keyboard.press("Enter")
    while len(sent) <= before:  # the change
        page.wait_for_timeout(50)
    page.wait_for_timeout(1500)  # two polls or more, unless all kernels are counted: then none comes
    delay["held"] = False
    for send in late:
        send()
    stage = Stage(page).ready()
    expect(stage.root).to_have_attribute("data-scene", re.compile(r"conv:K=2:R=3:stride=2 bias"))
    before = len(sent)
    # Two more polls, or none is left: kernels are counted, which takes any time on a busy machine.
    while len(sent) < before + 2 and "counting" in page.locator(".st-key-card_why").inner_text():
        page.wait_for_timeout(50)
    idle(page)
    expect(stage.root).to_have_attribute("data-scene", re.compile(r"conv:K=2:R=3:stride=2 bias"))
    expect(page).to_have_url(re.compile("N=2.*stride"))


@pytest.mark.slow
def test_rungs_launch_the_same_chain_differently(stage, page):
    stage = stage("rung=unfused")
    expect(stage.root).to_have_attribute("data-scene", re.compile("fusion/unfused"))
    page.get_by_role("button", name="kernel 1").click()
    page.get_by_role("link", name="3 batch norm folded, fused", exact=True).click()
    expect(stage.root).to_have_attribute("data-scene", re.compile("fusion/folded"))
    expect(stage.caption).to_contain_text("gain = gamma / √(var + eps)")


@pytest.mark.slow
def test_run_draws_a_bar_for_every_launch(page, server):
    page.goto(f"{server}/fusion?engine=cpu&view=run")
    page.get_by_role("button", name="Run here").click()
    card = page.locator(".st-key-card_fusion_launches")
    expect(card.locator(".kt-badge-measured")).to_be_visible(timeout=RUN_MS)
    expect(card.locator(".barlayer path")).to_have_count(4 + 1 + 2)
    expect(page.locator(".st-key-card_fusion_saved")).to_contain_text("copy of the minimum bytes")


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 390])
def test_page_and_navigation_fit_their_width(page, server, width):
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(f"{server}/fusion?N=64&C=256&H=56&W=56&chain=bias+bn+relu+add+bias+bn+add+relu")
    Stage(page).ready()
    for name in ("launches", "saved"):
        box = page.locator(f".st-key-card_fusion_{name}").bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= width + 1, name
    assert page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth") <= width
    history = page.locator(".st-key-nav").get_by_role("link", name="History").bounding_box()
    assert history["x"] + history["width"] <= width
