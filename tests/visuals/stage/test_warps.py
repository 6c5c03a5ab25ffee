"""The stage in the warps' order: the page shows what the emulator executed."""

import pytest
from playwright.sync_api import expect

from tests.helpers.harness import truth
from tests.helpers.page_runner import heads, open_page, press
from visuals.conv.im2col.scene import im2col_scene
from visuals.conv.part import part_of


def executed(**params):
    source = truth(**params)
    return im2col_scene(source.shape, part_of(source.shape), source.inputs.x(), source.inputs.w(), "warps")


@pytest.mark.browser
def test_steps_lanes_and_counts_equal_the_emulator_s(bare, page):
    scene = executed()
    stage = bare("order=warps")
    expect(page.locator("[data-do=order]")).to_have_text("warp order")
    for t in (0, 1, 9, scene.steps - 1):
        page.locator(".scrub").fill(str(t))
        stage.at_step(t)
        expect(stage.caption).to_have_text(scene.caption(t))
        active = int(scene.lanes.mask[t]).bit_count()
        if active:
            expect(page.locator(".lane.active")).to_have_count(active)
            warp = int(scene.lanes.warp[t])
            expect(page.locator(".lanes p")).to_have_text(f"lanes of warp {warp}: {active} of 32 active")
    expect(page.locator(".file")).to_contain_text("03_gemm.cu")
    page.locator(".scrub").fill("0")
    notes = {int(line): text for line, text in scene.source.notes.items()}
    for line, text in notes.items():
        expect(page.locator(f".code-line[data-line='{line}'] .line-note")).to_have_text(text)
    expect(page.locator(".line-note")).to_have_count(len(notes))


@pytest.mark.browser
def test_the_order_is_chosen_in_its_panel(bare, page):
    stage = bare()
    order, panel = page.locator("[data-do=order]"), page.locator("[data-panel=order]")
    expect(order).to_have_text("explaining order")
    stage.do("order")
    expect(panel).to_contain_text("one launch fills the whole data matrix")
    stage.root.press("Escape")
    expect(panel).to_be_hidden()
    order.click()
    page.get_by_role("button", name="warps", exact=True).click()
    assert page.evaluate("sent") == [{"do": "order", "order": "warps"}]
    page.evaluate("show('?order=warps')")
    expect(order).to_have_text("warp order")
    assert stage.root.get_attribute("data-scene").endswith(" warps")


def test_the_page_takes_the_order():
    def drawn(at):
        return heads(at)[0]["meta"]["orderName"], at.query_params.get("order")

    at = open_page("conv/im2col.py", view="explore")
    assert drawn(at) == ("explaining order", None)
    press(at, "order", order="warps")
    assert drawn(at) == ("warp order", "warps")
    at = open_page("conv/im2col.py", order="warps", C=64, H=56, W=56)
    assert drawn(at)[0] == "warp order"
