"""Links that are pressed before they are drawn with the last change: the change is kept."""

from types import SimpleNamespace

import pytest
import streamlit as st

from pages.parts import links as page_links
from pages.parts import query
from tests.helpers.page_runner import links, open_page, stages


@pytest.fixture
def at(monkeypatch):
    """Returns the lesson on attention. From now on it reads the URL, as in a browser."""
    at = open_page("attention/page.py", causal=1)
    monkeypatch.setattr(query, "in_browser", lambda: True)
    return at


def press(at, name: str, value: str | float) -> None:
    """Changes a control: the browser sends the value with its new URL."""
    at.query_params[name] = f"{value:g}" if isinstance(value, float) else value
    pills = [each for each in at.get("button_group") if each.key == name]
    (pills[0].set_value([value]) if pills else at.number_input(key=name).set_value(value)).run()


def follow(at, link: dict[str, str]) -> dict[str, str]:
    """Follows a link and returns the parameters of the URL then."""
    at.query_params.clear()
    at.query_params.update(link)
    at.run()
    assert not at.exception
    return {name: value if isinstance(value, str) else value[0] for name, value in dict(at.query_params).items()}


def naive(at) -> dict[str, str]:
    """Returns the link to the first kernel."""
    return links(at)["1 naive"]


def test_a_kernel_keeps_changes_that_its_link_lacks(at):
    old = naive(at)
    press(at, "values", "large")
    press(at, "N", 24.0)
    assert follow(at, old) == {"causal": "1", "rung": "naive", "values": "large", "N": "24"}
    assert "naive" in stages(at)[0]


def test_a_preset_sets_its_shape_and_keeps_the_rest(at):
    old = next(link for link in links(at).values() if link.get("N") == "2048")
    press(at, "values", "large")
    press(at, "N", 24.0)
    assert follow(at, old) == old | {"values": "large"}


def test_a_link_that_has_the_last_change_is_followed_as_it_is(at):
    for value in ("large", "whole"):
        press(at, "values", value)
    link = naive(at)
    assert follow(at, link) == link


def test_the_url_of_an_earlier_link_can_be_opened_again(at):
    link = naive(at)
    follow(at, link)
    press(at, "N", 24.0)
    assert follow(at, link) == link


def test_a_link_out_of_the_controls_drops_them(at):
    press(at, "values", "large")
    assert follow(at, {"view": "story"}) == {"view": "story"}


@pytest.mark.parametrize(("sets", "size"), [({"N"}, "8"), ({"rung"}, "24")])
def test_a_link_sets_what_it_is_about_although_the_page_had_that_value(sets, size, monkeypatch):
    """A preset of 8 leads back to 8. The link to a kernel keeps the 24 that the reader typed meanwhile."""
    monkeypatch.setattr(st, "session_state", {})
    monkeypatch.setattr(st, "query_params", SimpleNamespace(to_dict=lambda: {"N": "8"}))
    link = page_links.drawn({"N": "8", "rung": "naive"}, sets)
    assert page_links.pressed(link, {"N": "24"}, ()) == {"N": size, "rung": "naive"}
