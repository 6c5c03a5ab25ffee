"""The mode of a lesson: which URLs open its story, and that a control or a link stays in its mode."""

import pytest
from streamlit.runtime.state.query_params import QueryParams

from pages.parts import query
from pages.parts.address import opens_story
from pages.streamlit_patches import request
from tests.helpers.offenders import every
from tests.helpers.page_runner import heads, links, open_bare, open_page, press, texts

GEMM, SOFTMAX = "gemm/page.py", "softmax/page.py"


def chapter(at) -> int | None:
    """Returns the number of the open chapter, from 1; None in Explore."""
    panel = heads(at)[0]["chapter"]
    return panel and panel["number"] + 1


@every(
    ("params", "story"),
    [
        ({}, True),
        ({"lang": "de"}, True),
        ({"chapter": "3"}, True),
        ({"chapter": "3", "M": "8"}, True),
        ({"view": "story", "M": "8"}, True),
        ({"view": "explore"}, False),
        ({"view": "explore", "chapter": "3"}, False),
        ({"view": "watch"}, False),
        ({"M": "8"}, False),
        ({"step": "5"}, False),
        ({"engine": "cpu"}, False),
        ({"present": "1"}, False),
    ],
)
def test_which_urls_open_the_story(params, story):
    assert opens_story(params) == story


def test_a_frame_without_a_mode_opens_explore():
    assert not opens_story({}, embedded=True) and opens_story({"view": "story"}, embedded=True)


def test_a_bare_url_opens_the_first_chapter_and_an_old_link_explore():
    at = open_bare(GEMM)
    assert chapter(at) == 1 and not at.number_input and "kt-note" not in texts(at)
    assert chapter(open_page(GEMM, chapter=3)) == 3
    old = open_page(GEMM, M=8)
    assert chapter(old) is None and old.number_input


def test_a_control_at_its_default_stays_in_explore():
    at = open_page(GEMM, M=8)
    at.number_input(key="M").set_value(64.0).run()
    assert chapter(at) is None and dict(at.query_params).get("view", ["explore"]) in ("explore", ["explore"])
    at.run()
    assert chapter(at) is None


def test_a_request_from_before_the_url_named_its_mode_stays_in_explore():
    at = open_page(GEMM, M=8)
    at.query_params.clear()
    at.run()
    assert chapter(at) is None and at.query_params["view"] in ("explore", ["explore"])
    for _ in range(2):
        at.query_params.clear()  # the browser's URL is not up to date yet
        at.run()
        assert chapter(at) is None and at.number_input


def test_back_to_a_bare_url_opens_its_story():
    at = open_bare(GEMM)
    at.query_params["view"] = "explore"
    at.run()
    assert chapter(at) is None
    at.query_params.clear()
    at.run()
    assert chapter(at) == 1


def test_links_of_explore_stay_there():
    at = open_page("conv/im2col.py", C=3)
    toy = next(query for label, query in links(at).items() if label.startswith("Toy"))
    assert toy == {"view": "explore"}  # the shape is the default, and without parameters the story would open


def test_links_of_a_bare_story_lead_to_explore():
    at = open_bare("conv/im2col.py")
    assert links(at)["Explore"]["view"] == "explore"


def test_an_order_pressed_in_a_bare_story_keeps_it():
    at = open_bare(GEMM)
    orders = [order["name"] for order in heads(at)[0]["orders"]]
    press(at, "order", order=orders[1])
    assert chapter(at) == 1 and heads(at)[0]["meta"]["orderName"]


def test_the_bar_leads_from_a_lesson_in_explore_to_the_story_of_another():
    at = open_page(GEMM, M=8)
    at.query_params.clear()
    at.switch_page(SOFTMAX).run()
    assert chapter(at) == 1


def test_a_page_forgets_the_chapter_of_the_last_page():
    at = open_page("conv/im2col.py", view="story", chapter=6)
    at.query_params.clear()
    at.query_params["view"] = "explore"
    at.switch_page("conv/choose/page.py").run()
    assert not at.exception
    assert [field.value for field in at.number_input if field.key == "N"] == [32.0]


# -- a change that comes with the URL from before it ------------------------------------------------------
@pytest.fixture
def in_a_browser(monkeypatch):
    """Lets pages read the URL, as they do in a browser."""
    monkeypatch.setattr(query, "in_browser", lambda: True)


def test_a_change_with_the_url_from_before_it_is_kept(in_a_browser):
    at = open_page(GEMM, M=8, K=16)
    at.number_input(key="M").set_value(32.0).run()
    assert (at.number_input(key="M").value, url(at)) == (32, {"M": "32", "K": "16"})
    at.query_params["M"] = "32"  # now the browser has it too
    at.number_input(key="M").set_value(40.0).run()
    at.query_params["M"] = "40"
    at.number_input(key="K").set_value(24.0).run()
    assert [at.number_input(key=name).value for name in ("M", "K")] == [40, 24]
    assert url(at) == {"M": "40", "K": "24"}


def test_a_link_changes_a_control_that_the_reader_has_changed_before(in_a_browser):
    at = open_page(GEMM, M=8)
    for number in (24, 16, 8):
        at.query_params["M"] = str(number)
        at.run()
        assert at.number_input(key="M").value == number
    at.number_input(key="M").set_value(32.0).run()
    at.query_params["M"] = "8"
    at.run()
    assert at.number_input(key="M").value == 8


def test_a_change_to_a_default_leaves_the_url_as_the_browser_has_it(in_a_browser):
    at = open_page(GEMM, M=8)
    at.query_params["view"] = "explore"
    at.run()
    at.query_params.clear()  # the browser leaves defaults out
    at.query_params["view"] = "explore"
    at.number_input(key="M").set_value(64.0).run()
    assert at.number_input(key="M").value == 64 and not url(at)


def test_back_undoes_a_change_that_no_run_has_read(in_a_browser, monkeypatch):
    at = open_page(GEMM, M=8)
    at.run()  # a first run of the process may draw the page twice
    monkeypatch.setattr(request, "is_back", lambda: True)
    at.query_params["M"] = "16"
    at.number_input(key="M").set_value(32.0).run()
    assert at.number_input(key="M").value == 16 and "M16" in scene(at)
    monkeypatch.setattr(request, "is_back", lambda: False)
    at.number_input(key="M").set_value(32.0).run()
    assert at.number_input(key="M").value == 32 and "M32" in scene(at)


def test_after_back_the_browser_gets_the_url_of_the_run(in_a_browser, monkeypatch):
    """What the run before Back had written to the URL came after Back: the URL was that of another chapter."""
    at, sent = open_page(GEMM, view="story", chapter=2), []
    send = QueryParams._send_query_param_msg
    monkeypatch.setattr(QueryParams, "_send_query_param_msg", lambda url: (sent.append(url.to_dict()), send(url)))
    at.run()
    assert not sent
    monkeypatch.setattr(request, "is_back", lambda: True)
    at.run()
    assert sent == [{"view": "story", "chapter": "2"}]


def scene(at) -> str:
    """Returns the key of what is on the stage."""
    return heads(at)[0]["meta"]["key"]


def url(at) -> dict[str, str]:
    """Returns the extents in the URL of the last run."""
    found = {name: at.query_params.get(name) for name in ("M", "K")}
    return {name: value if isinstance(value, str) else value[0] for name, value in found.items() if value}
