"""Tests of the lesson on Hopper in a real browser: captions of the steps, and what a cell says when it is pointed at."""

import re

import pytest
from playwright.sync_api import expect

from pages.hopper import address
from tests.helpers.harness import Stage

pytestmark = pytest.mark.browser


@pytest.mark.slow
@pytest.mark.parametrize("order", ["swizzle", "accumulator"])
def test_each_step_has_the_caption_of_the_scene(page, server, order):
    scene = address.card({"order": order})
    page.goto(f"{server}/hopper?view=watch&order={order}")
    stage = Stage(page).ready()
    for step in range(scene.steps):
        stage.at_step(step)
        expect(stage.caption).to_have_text(scene.caption(step))
        stage.do("forward")


@pytest.mark.slow
def test_a_register_says_which_element_it_holds_and_a_piece_its_banks(page, server):
    page.goto(f"{server}/hopper?view=watch&order=accumulator&step=15")
    stage = Stage(page).ready()
    lane, register = 13, 2
    said = stage.point_at("sum", lane * 8 + register)
    assert "Lane 13, thread 13 of the warpgroup, holds it in sum[0][2]: row 11, column 2." in said
    page.goto(f"{server}/hopper?view=watch&step=9")
    stage = Stage(page).ready()
    said = stage.point_at("tile_a", 3 * 8)  # row 3, piece 3
    assert "Row 3 of A, k 24 to 31. It begins at byte 384 of the tile and is in banks 0 to 3." in said


@pytest.mark.slow
def test_a_shape_that_no_kernel_runs_ends_playing_until_another_does(page, server):
    """The `page` fixture reports exceptions: the player had no scene whose steps it could count."""
    page.goto(f"{server}/hopper?view=explore&rung=wgmma-ring")
    stage = Stage(page).ready()
    stage.do("play")
    K = page.locator(".st-key-params").get_by_role("spinbutton", name="K", exact=True)
    K.fill("65")
    K.press("Enter")
    expect(page.get_by_text("K % 8 == 0, got 65 % 8")).to_be_visible()
    expect(page.locator(".stage.strip-only")).to_be_visible()
    expect(page).to_have_url(re.compile("K=65"))
    K.fill("128")
    K.press("Enter")
    stage = Stage(page).ready()
    expect(stage.caption).to_be_visible()
    stage.do("forward")
    expect(page).to_have_url(re.compile("step="))
