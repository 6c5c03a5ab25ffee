"""The stage in the warps' order: the page shows what the emulator executed."""

import pytest
from playwright.sync_api import expect

from kernels.engines import emulator
from kernels.ladders import find
from tests.helpers.harness import truth
from tests.helpers.page_runner import heads, open_page, press, texts
from visuals.conv.im2col.warps import blocks, in_warp_order


def executed(**params):
    source = truth(**params)
    rung = find("conv/im2col-gemm")
    arrays = {"x": source.inputs.x(), "w": source.inputs.w()}
    trace, counters = emulator.trace_launch(rung.build(source.shape, rung.default_tiles), 0, arrays)
    return in_warp_order(source.scene, source.shape, trace, counters, blocks(source.shape))


@pytest.mark.browser
def test_steps_lanes_and_counts_equal_the_emulator_s(bare, page):
    scene = executed()
    stage = bare("order=warps")
    expect(page.locator("[data-do=order]")).to_have_text("as the warps run")
    for t in (0, 1, 9, scene.steps - 1):
        page.locator(".scrub").fill(str(t))
        stage.at_step(t)
        expect(stage.caption).to_have_text(scene.caption(t))
        active = int(scene.lanes.mask[t]).bit_count()
        if active:
            expect(page.locator(".lane.active")).to_have_count(active)
            warp = int(scene.lanes.warp[t])
            expect(page.locator(".lanes p")).to_have_text(f"lanes of warp {warp}: {active} of 32 active")
    expect(page.locator(".lanes")).to_be_hidden()  # the second launch has no single warp
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
    expect(order).to_have_text("as the warps run")
    assert stage.root.get_attribute("data-scene").endswith(" warps")


def test_the_page_takes_the_order_and_a_shape_shown_in_part_keeps_the_explaining_one():
    def drawn(at):
        return heads(at)[0]["meta"]["orderName"], at.query_params.get("order")

    at = open_page("conv/im2col.py", view="explore")
    assert drawn(at) == ("explaining order", None)
    press(at, "order", order="warps")
    assert drawn(at) == ("as the warps run", "warps")
    at = open_page("conv/im2col.py", order="warps", C=64, H=56, W=56)
    assert drawn(at)[0] == "explaining order" and "shown in part" in texts(at)
