"""Tests of the attention lesson in a real browser: steps, hover, controls, Run, narrow page."""

import re

import numpy as np
import pytest
from playwright.sync_api import expect

from kernels.ladders import find
from pages.attention import address
from pages.attention.chapters import STORY
from tests.helpers.harness import Stage, fits_width, frames, idle

pytestmark = pytest.mark.browser
LESSON = "attention"
RUN_MS = 60_000
# While `held` is a list, the messages of the server wait in it.
HOLD = """window.WebSocket = class extends WebSocket {
  addEventListener(type, listen, ...more) {
    const handle = (event) => (type === "message" && window.held ? window.held.push(() => listen(event)) : listen(event));
    super.addEventListener(type, handle, ...more);
  }
};"""
ROWS = """(root) => ["s", "m", "shrink", "l", "o"].map((name) => {
  const { inView, shrink } = root.player, b = inView.blocks[name];
  return [name, b.y / shrink, b.cell / shrink, Boolean(b.numbers)];
})"""


@pytest.mark.slow
def test_each_step_has_the_caption_of_the_scene(watch):
    stage, scene = watch(), address.card({})
    for step in range(scene.steps):
        stage.at_step(step)
        expect(stage.caption).to_have_text(scene.caption(step))
        stage.do("forward")


def test_pointing_at_a_score_names_its_terms(watch):
    """The score s of query 0 and key 1: a row of Q, times scale, times a row of K."""
    stage, scene = watch("step=4"), address.card({})
    frames(stage.page, 60)
    q, k = (scene.cells(name, 4).reshape(-1, 4) for name in ("Qs", "Ks"))
    text = stage.point_at("s", 1).replace("−", "-")
    assert f" {q[0] @ k[1]:.4g} " in text and all(f"{a:g}·" in text for a in np.abs(q[0]))
    copy_text = stage.point_at("Ks", 5)
    assert "a copy of K[1, 1]" in copy_text


@pytest.mark.slow
@pytest.mark.parametrize(("width", "height"), [(1440, 900), (1280, 720)])
@pytest.mark.parametrize("where", ["view=story", "view=story&present=1"])
def test_a_querys_row_is_on_one_line_with_its_numbers(page, server, width, height, where):
    """In each chapter of flash attention: s, m, the factor, l and o have one top and one size of cells, and numbers."""
    page.set_viewport_size({"width": width, "height": height})
    for n, chapter in enumerate(STORY.chapters):
        rung = chapter.params["rung"]
        narrow = height < 900 or "present" in where  # for the 16 scores of a row of the last kernel
        other = "order" in chapter.params  # a map or a timeline
        if other or not rung.startswith("flash") or (rung == "flash-mma" and narrow):
            continue
        page.goto(f"{server}/attention?{where}&chapter={n + 1}")
        Stage(page).ready()
        rows = Stage(page).root.evaluate(ROWS)
        assert len({tuple(row[1:3]) for row in rows}) == 1, (chapter.title, rows)
        assert all(row[2] >= 15 and row[3] for row in rows), (chapter.title, rows)


@pytest.mark.slow
def test_rung_tiles_and_numbers_change_scene_and_url(stage, page):
    stage = stage("causal=1")
    page.locator(".st-key-Bc").get_by_role("button").click()
    page.get_by_role("option", name="16", exact=True).click()
    expect(page).to_have_url(re.compile(r"(?=.*causal=1)(?=.*Bc=16)"))
    expect(stage.root).to_have_attribute("data-scene", re.compile("attention/flash .*causal Br=4,Bc=16"))
    page.get_by_role("button", name="values: whole").click()
    page.get_by_role("radio", name="large").or_(page.get_by_role("button", name="large")).first.click()
    expect(page).to_have_url(re.compile("values=large"))
    page.keyboard.press("Escape")
    page.get_by_role("button", name="kernel 4").click()
    page.get_by_role("link", name="1 naive", exact=True).click()
    expect(page).to_have_url(re.compile(r"(?=.*values=large)(?=.*causal=1)(?=.*rung=naive)(?!.*Bc)"))
    expect(stage.root).to_have_attribute("data-scene", re.compile("attention/naive .*causal BLOCK=8"))
    page.go_back()
    expect(stage.root).to_have_attribute("data-scene", re.compile("Br=4,Bc=16"))


@pytest.mark.slow
def test_a_link_from_before_the_last_change_keeps_the_change(new_page, server):
    """The reader changes the numbers, and presses a kernel before the browser has its new link."""
    page = new_page()
    page.add_init_script(HOLD)
    page.goto(f"{server}/attention?causal=1")
    stage = Stage(page).ready()
    idle(page)
    link = page.get_by_role("link", name="1 naive", exact=True)
    page.get_by_role("button", name="values: whole").click()
    page.evaluate("() => { window.held = []; }")
    page.get_by_role("radio", name="large").or_(page.get_by_role("button", name="large")).first.click()
    expect(page).to_have_url(re.compile("values=large"))
    page.keyboard.press("Escape")
    page.get_by_role("button", name="kernel 4").click()
    link.click()
    page.evaluate("() => { const held = window.held; window.held = null; held.forEach((handle) => handle()); }")
    expect(page).to_have_url(re.compile(r"(?=.*values=large)(?=.*causal=1)(?=.*rung=naive)"))
    expect(stage.root).to_have_attribute("data-scene", re.compile("attention/naive"))


def test_large_scores_stay_finite_on_the_stage(watch):
    """With scores that overflow exp, every visible number is finite, and so is O."""
    scene = address.card({"values": "large"})
    last = scene.steps - 1
    stage = watch(f"values=large&step={last}")
    stage.at_step(last)
    assert np.abs(scene.cells("s", last)).max() > 1000 and np.isfinite(scene.cells("O", last)).all()
    expect(stage.caption).to_have_text(scene.caption(last))


@pytest.mark.slow
def test_a_run_here_gives_a_row_for_each_rung(page, server):
    page.goto(f"{server}/attention?engine=cpu&view=run")
    page.get_by_role("button", name="Run here").click()
    card = page.locator(".st-key-card_time")
    expect(card.locator(".kt-badge-measured").first).to_be_visible(timeout=RUN_MS)
    # The end of the run draws the card once more, with its details folded.
    expect(page.get_by_role("button", name="Stop")).to_have_count(0, timeout=RUN_MS)
    idle(page)
    card.locator("summary").first.click()
    for rung in ("naive", "fused", "flash"):
        title = re.escape(find(f"attention/{rung}").title_on("cpu"))
        expect(card.locator("th").filter(has_text=re.compile(f"^{title}$")).first).to_be_visible()
    expect(card.locator(".kt-why:not(.kt-conclusion)").first).to_contain_text("flash attention", ignore_case=True)


@pytest.mark.slow
def test_the_page_fits_its_width(page, server):
    page.goto(f"{server}/attention?B=4&H=16&N=2048&d=64&causal=1&Br=32&Bc=32")
    Stage(page).ready()
    expect(page.locator(".st-key-chart_attention_memory .scatterlayer").first).to_be_visible()
    for width in (1440, 390):
        fits_width(page, width, "card_attention_memory", "card_attention_traffic", "card_attention_cpu")
