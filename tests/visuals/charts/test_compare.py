"""The picture of two runs: every sample at its time, every difference marked, every text escaped."""

from __future__ import annotations

import re

import pytest

from tests.helpers.rows_of import a_row
from visuals.charts import compare

EVIL = "<img src=x onerror=alert(1)>"


def lefts(html, name):
    return [float(x) / 100 for x in re.findall(rf'class="kt-{name}" style="left:([\d.]+)%', html)]


def test_samples_are_placed_by_time_on_an_axis_of_round_numbers():
    html = compare.strips(a_row(samples=[1.0, 1.5, 2.0, 2.9, 3.0]), a_row(samples=[2.0] * 3))
    assert lefts(html, "dot") == pytest.approx([x / 3 for x in (1, 1.5, 2, 2.9, 3, 2, 2, 2)], abs=1e-3)
    assert lefts(html, "median") == pytest.approx([2 / 3, 2 / 3], abs=1e-3)
    assert "does not begin at 0" not in html and ">0</span>" in html


def test_an_axis_that_does_not_begin_at_0_says_so():
    assert "The axis does not begin at 0." in compare.strips(a_row(samples=[1.0, 1.02, 1.03]))


@pytest.mark.parametrize("samples", [[1.0], [5e-9] * 3, [1e9, 1e-9], [0.1, 0.1000001]])
def test_any_samples_have_an_axis(samples):
    html = compare.strips(a_row(samples=samples))
    assert all(0 <= x <= 1 for x in lefts(html, "dot") + lefts(html, "median") + lefts(html, "tick"))
    assert 2 <= len(lefts(html, "tick")) <= 8


def test_very_many_samples_are_thinned_and_the_text_says_so():
    html = compare.strips(a_row(samples=[1 + n / 1e4 for n in range(10_000)]))
    assert len(lefts(html, "dot")) == compare.MAX_DOTS and "one of 240 samples, drawn from 10,000" in html


def test_dots_stay_in_their_lane():
    html = compare.strips(a_row(samples=[1.0] * 200))
    tops = [float(y) for y in re.findall(r"top:([\d.-]+)px", html)]
    assert len(set(tops)) == 200 and min(tops) >= 0 and max(tops) <= compare.LANE + 2 * compare.DOT


def test_differing_fields_are_marked_and_the_rest_is_folded():
    html = compare.fields_table(a_row(1), a_row(2, device="a GPU", later=3), origins=["here", "here"])
    marked = re.findall(r'<th scope="row">([^<]*) <span class="kt-differs"', html)
    assert marked == ["device", "measured at (UTC)", "later"]
    assert "The same in both: " in html and "timeline" in html


def test_every_field_of_one_run_is_listed():
    html = compare.fields_table(a_row(), origins=["shipped"])
    assert "kt-differs" not in html and "How it was measured" in html and "shipped" in html
    assert all(name in html for name in ("NumPy", "caches", "tile sizes", "a field of later"))


def test_b_is_beside_a_with_its_ratio():
    html = compare.figures_table(a_row(samples=[2.0] * 6), a_row(samples=[1.0] * 6, peak_bytes=1232))
    assert "1 ms <small>0.50×</small>" in html and "1.23 KB <small>2.00×</small>" in html


def test_foreign_text_is_escaped():
    row = a_row(device=EVIL, later={EVIL: EVIL}, tiles={EVIL: 1})
    for html in (
        compare.fields_table(row, a_row(), origins=[EVIL, "b"]),
        compare.figures_table(row),
        compare.strips(row),
    ):
        assert "<img" not in html


def test_a_span_has_its_unit_once():
    assert compare.span({"p20_ms": 0.178, "p80_ms": 0.221}) == "178 to 221 µs"
    assert compare.span({"p20_ms": 0.9, "p80_ms": 1.1}) == "900 µs to 1.1 ms"
