"""The lesson on moving data without a browser: each scenario, its cards, what a wrong URL and a missing GPU say."""

from __future__ import annotations

import re
from functools import partial

import pytest

from kernels.transfers.scenarios import SCENARIOS
from pages.transfers import stage as page_stage
from tests.helpers.page_runner import open_page, press, stages, strip, texts

open_at = partial(open_page, "transfers/page.py")


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_scenario_shows_its_timeline_and_cards(scenario):
    at = open_at(scenario=scenario)
    assert [key.partition(" ")[0] for key in stages(at)] == [scenario]
    for card in ("How many pieces?", "Copies by size", "The allocator’s log of the leak", "All scenarios"):
        assert f'<h2 class="kt-card">{card}' in texts(at)
    assert not at.exception


def test_more_pieces_than_rows_are_refused_in_words():
    at = open_at(scenario="pieces", rows=4, n=5)
    assert "4 rows can be cut into 1 to 4 pieces, got 5" in texts(at)
    assert stages(at)[0].startswith("pieces 4 1 ")
    assert stages(open_at(scenario="pieces", rows=4, n=4))[0].startswith("pieces 4 4 ")


def test_without_a_gpu_the_button_says_what_is_missing(monkeypatch):
    monkeypatch.setattr(page_stage, "refusal", lambda: "Copies to a GPU need one. No driver.")
    at = open_at()
    press(at, "run")
    at.run()
    assert strip(at)["run"]["error"] == "Copies to a GPU need one. No driver."


def test_the_log_names_the_line_that_keeps_a_tensor():
    (log,) = re.findall('<pre class="kt-code">(.*?)</pre>', texts(open_at(scenario="leak")), re.DOTALL)
    assert "programs.py:" in log and "d_y = gpu.empty" in log.splitlines()[-1]
