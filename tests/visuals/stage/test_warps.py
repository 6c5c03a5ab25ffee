"""The stage in the warps' order: the page shows what the emulator executed."""

import pytest
from playwright.sync_api import expect

from kernels.engines import emulator
from kernels.ladders import find
from tests.helpers.harness import truth
from visuals.conv.im2col.warps import blocks, in_warp_order

pytestmark = pytest.mark.browser


def executed(**params):
    source = truth(**params)
    rung = find("conv/im2col-gemm")
    arrays = {"x": source.inputs.x(), "w": source.inputs.w()}
    trace, counters = emulator.trace_launch(rung.build(source.shape, rung.default_tiles), 0, arrays)
    return in_warp_order(source.scene, source.shape, trace, counters, blocks(source.shape))


def test_steps_lanes_and_counts_equal_the_emulator_s(watch, page):
    scene = executed()
    stage = watch("order=warps")
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


def test_the_order_is_chosen_on_the_page_and_is_in_the_url(stage, page):
    stage = stage("")
    page.locator("[data-do=order]").click()
    page.get_by_role("button", name="warps", exact=True).click()
    expect(page.locator("[data-do=order]")).to_have_text("as the warps run")
    assert "order=warps" in page.url
    assert stage.root.get_attribute("data-scene").endswith(" warps")
    page.reload()
    expect(page.locator("[data-do=order]")).to_have_text("as the warps run")


def test_a_shape_shown_in_part_keeps_the_explaining_order_and_says_why(stage, page):
    stage("order=warps&C=64&H=56&W=56")
    expect(page.locator(".kt-note")).to_contain_text("shown in part")
    expect(page.locator("[data-do=order]")).to_have_text("explaining order")
