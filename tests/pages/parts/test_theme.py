"""Widgets, charts and the stage have the same theme."""

import tomllib
from pathlib import Path

import pytest

from visuals.palette import DARK, LIGHT

CONFIG = tomllib.loads(Path(__file__).parents[3].joinpath(".streamlit", "config.toml").read_text())
TOKEN = {
    "primaryColor": "accent",
    "backgroundColor": "ground",
    "secondaryBackgroundColor": "panel",
    "textColor": "ink",
    "borderColor": "line",
    "linkColor": "accent",
    "codeBackgroundColor": "panel",
    "blueColor": "input",
    "blueTextColor": "input",
    "orangeColor": "filter",
    "orangeTextColor": "filter",
    "greenColor": "output",
    "greenTextColor": "output",
    "violetColor": "workspace",
    "violetTextColor": "workspace",
    "violetBackgroundColor": "workspace-ground",
    "grayColor": "dim",
    "grayTextColor": "dim",
}


@pytest.mark.parametrize(("name", "palette"), [("light", LIGHT), ("dark", DARK)])
def test_streamlit_theme_has_the_palette_colours(name, palette):
    assert CONFIG["theme"][name] == {option: palette[token] for option, token in TOKEN.items()}


def test_theme_loads_nothing_from_the_network():
    assert CONFIG["browser"]["gatherUsageStats"] is False
    assert "url" not in CONFIG["theme"]["font"] and "http" not in CONFIG["theme"]["font"]
