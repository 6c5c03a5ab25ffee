"""The first screen: a stage that plays by itself, and cards that open the state they preview."""

import re

import pytest
from playwright.sync_api import expect

from pages._cards import BY_PAGE, FIRST
from pages._lessons import LESSONS
from tests.helpers.harness import Stage, frames

pytestmark = pytest.mark.browser
WIDTHS = {"desktop": (1440, 900), "tablet": (1024, 768), "phone": (390, 844)}
SOFTMAX = next(n for n, lesson in enumerate(LESSONS) if lesson.path == "softmax")
WITH_STAGE = {n: lesson for n, lesson in enumerate(LESSONS) if lesson.page in BY_PAGE}


class FirstStage(Stage):
    """The stage that plays, not the stills of the cards."""

    def __init__(self, page):
        super().__init__(page)
        self.root = page.locator(".st-key-hero .stage")


@pytest.fixture
def home(page, server):
    """Returns a function that opens the first screen at a width and with media preferences."""

    def open_(width="desktop", **media):
        x, y = WIDTHS[width]
        page.set_viewport_size({"width": x, "height": y})
        page.emulate_media(**media)
        page.goto(server)
        return FirstStage(page).ready()

    return open_


def test_stage_plays_and_can_be_stopped(home, page, server):
    stage = home()
    stage.playing(True)
    expect(stage.root).to_have_attribute("data-step", re.compile("^[1-9]"))
    assert stage.root.get_attribute("data-scene") == FIRST.build_scene().key
    stage.do("play")
    stage.playing(False)
    step_stopped = stage.step
    frames(page, 30)
    assert stage.step == step_stopped
    assert page.url == server + "/"  # the URL of this page has no step


def test_stage_loops(home, page):
    stage = home()
    stage.playing(True)
    stage.root.locator(".scrub").fill(str(FIRST.build_scene().steps - 2))
    stage.do("play")
    stage.at_step(FIRST.build_scene().steps - 1)
    expect(stage.root).to_have_attribute("data-step", re.compile("^[0-3]$"))
    stage.playing(True)


def test_stage_does_not_play_with_reduced_motion(home, page):
    stage = home(reduced_motion="reduce")
    stage.playing(False)
    step_before = stage.step
    frames(page, 60)
    stage.playing(False)
    assert stage.step == step_before
    stage.do("play")  # the button plays it
    stage.playing(True)


@pytest.mark.parametrize("n", [0, 7], ids=lambda n: LESSONS[n].path)
def test_whole_card_opens_its_lesson(home, page, server, n):
    home()
    card = page.locator(f".st-key-lesson_{n}")
    card.scroll_into_view_if_needed()
    box = card.bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 60)
    expect(page).to_have_url(f"{server}/{LESSONS[n].path}")
    expect(page.locator("h1.kt-title")).to_be_visible()


@pytest.mark.slow
def test_a_lesson_opens_its_story_and_home_counts_its_chapters(home, page, server):
    page.goto(server)
    page.evaluate("localStorage.clear()")  # other tests have opened chapters
    home()
    line = page.locator(f".st-key-lesson_{SOFTMAX} .kt-quiet")
    expect(line).to_have_text("9 chapters · 13 min · beginner · after threads")
    page.get_by_role("link", name=f"{SOFTMAX + 1} softmax").click()
    expect(page.locator(".chapter h2")).to_have_text("Numbers become weights")
    expect(page).to_have_url(f"{server}/softmax")
    page.get_by_role("button", name=re.compile("^Next:")).click()
    expect(page.locator(".chapter h2")).to_have_text("Too large for FP32")
    page.get_by_role("link", name="Kernel Theatre").click()
    expect(line).to_have_text("2 of 9 chapters · 13 min · beginner · after threads")


def test_home_and_stories_work_without_storage(new_page, server):
    page = new_page()
    page.add_init_script(
        "Object.defineProperty(window, 'localStorage', { get() { throw new DOMException('no', 'SecurityError'); } })"
    )
    page.goto(f"{server}/softmax")
    expect(page.locator(".chapter h2")).to_have_text("Numbers become weights")
    page.goto(server)
    expect(page.locator(f".st-key-lesson_{SOFTMAX} .kt-quiet")).to_have_text(
        "9 chapters · 13 min · beginner · after threads"
    )


def test_previews_are_images_with_caption_and_no_focus(home, page):
    home()
    for n, lesson in WITH_STAGE.items():
        card = BY_PAGE[lesson.page]
        preview = page.locator(f".st-key-lesson_{n} .stage")
        expect(preview).to_have_attribute("role", "img")
        expect(preview).to_have_attribute("aria-label", card.build_scene().caption(card.step))
        expect(preview.locator("button:visible, input:visible")).to_have_count(0)
        assert preview.evaluate("root => root.tabIndex") == -1
        page.get_by_role("link", name=f"{n + 1} {lesson.title}", exact=True).focus()
        page.keyboard.press("Tab")
        assert not page.evaluate("document.activeElement?.shadowRoot?.activeElement?.closest('.still') != null")


def test_engines_of_this_machine_are_listed(home, page):
    from kernels.engines import available

    home()
    for name, status in available().items():
        row = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name=name, exact=True))
        expect(row).to_contain_text(status.text)


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_heading_and_stage_are_visible_without_scrolling_and_nothing_overflows(home, page, width):
    stage = home(width)
    last_preview = page.locator(f".st-key-lesson_{len(LESSONS) - 1} .stage")
    expect(last_preview).to_have_attribute("data-ready", "true")
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        for each in (stage.root, last_preview):
            expect(each).to_have_attribute("data-theme", scheme)
        heading = page.get_by_role("heading", name="Watch a CUDA kernel, then measure it.")
        expect(heading).to_be_in_viewport(ratio=1)
        fits(page, stage, *WIDTHS[width])


def fits(page, stage, width, height):
    canvas = stage.root.locator("canvas").bounding_box()
    assert canvas["y"] + canvas["height"] <= height + 1
    assert page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth") <= width
    for n in WITH_STAGE:
        card_box, preview_box = (
            page.locator(f".st-key-{name}").bounding_box() for name in (f"lesson_{n}", f"preview_{n}")
        )
        picture = page.locator(f".st-key-lesson_{n} canvas").bounding_box()
        assert picture["width"] <= card_box["width"] + 1
        assert picture["height"] <= preview_box["height"] + 1


@pytest.mark.parametrize("path", ["", "im2col", "history?caches=hot", "attention?embed=true&view=watch"])
def test_page_requests_no_missing_file(page, server, path):
    errors = []
    page.on("response", lambda response: errors.append(response.url) if response.status >= 400 else None)
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.goto(f"{server}/{path}")
    expect(page.locator(".stage[data-ready=true], .kt-title").first).to_be_visible(timeout=60_000)
    assert errors == []
