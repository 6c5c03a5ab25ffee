"""The choice between GPUs: nothing with one GPU; with two a control, a table, links that keep it, notes."""

from __future__ import annotations

import json
from html import escape

import pytest

from kernels import records
from kernels.ladders import LADDERS
from kernels.softmax.presets import SOFTMAX_PRESETS
from tests.helpers.page_runner import links, open_page, strip, texts
from tests.helpers.recordings import own_recordings
from visuals import units

PAGE = "softmax/page.py"
SHAPE = next(iter(SOFTMAX_PRESETS.values())).shape
OTHER = "own-nvidia-other"


def other_rows(lacking: str):
    """Returns the rows of the softmax ladder as a GPU that is half as fast would have them, without those of one
    rung."""
    slower = {"median_ms", "p20_ms", "p80_ms"}
    for row in records.recordings("softmax"):
        if row["rung"] != lacking:
            times = {name: 2 * row[name] for name in slower} | {"samples_ms": [2 * ms for ms in row["samples_ms"]]}
            other = {"device": "NVIDIA Other"}
            yield row | times | other | {"ceilings": row["ceilings"] | other}


@pytest.fixture
def two_gpus(tmp_path):
    rung = LADDERS["softmax"].rungs[-1].name
    with own_recordings(tmp_path, other=list(other_rows(rung))):
        yield


def controls(at):
    return [group for group in at.get("button_group") if group.proto.id.endswith("-card")]


def open_at(**params):
    return open_page(PAGE, view="explore", **params)


def test_one_gpu_has_no_control_and_no_table():
    at = open_at()
    assert not controls(at) and "The same kernels on each GPU" not in texts(at)
    assert not any("card" in params for params in links(at).values())


def test_two_gpus_have_a_control_and_a_table(two_gpus):
    at = open_at()
    (control,) = controls(at)
    assert [option.content for option in control.proto.options] == ["H200", "Other, own recording"]
    text = texts(at)
    assert "The same kernels on each GPU" in text and ">no recording</td>" in text
    assert "2× the time." in text
    assert "recorded · H200" in json.dumps(strip(at), ensure_ascii=False)


def test_the_gpu_of_the_link_is_on_the_whole_page_and_links_keep_it(two_gpus):
    usual, at = open_at(), open_at(card=OTHER)
    assert "recorded NVIDIA Other, cold" in texts(at) and "recorded NVIDIA H200" not in texts(at)
    badges = [json.dumps(strip(page), ensure_ascii=False) for page in (usual, at)]
    assert ["recorded · Other" in badge for badge in badges] == [False, True]
    assert all(params.get("card") == OTHER for label, params in links(at).items() if label == "History")
    assert links(at)["tiling"]["card"] == OTHER  # and so do other lessons


def test_a_press_on_a_gpu_shows_it_and_another_one_goes_back(two_gpus):
    at = open_at()
    controls(at)[0].set_value(OTHER).run()
    assert at.query_params["card"] == OTHER and "recorded NVIDIA H200" not in texts(at)
    assert "recorded · Other" in json.dumps(strip(at), ensure_ascii=False)
    controls(at)[0].set_value("nvidia-h200").run()
    assert "card" not in at.query_params and "recorded NVIDIA H200, cold" in texts(at)


def test_a_ladder_without_rows_of_the_gpu_says_so(two_gpus):
    text = texts(open_page("conv/im2col.py", view="explore", card=OTHER))
    assert "No recording of these kernels exists for the GPU Other, own recording. These are of H200." in text


@pytest.mark.parametrize("gpu", ["nvidia-x", "<b>"])
def test_an_unknown_gpu_is_noted_and_the_default_one_is_shown(gpu):
    text = texts(open_at(card=gpu))
    known = ", ".join(sorted(records.known_gpus()))
    assert f"card must be one of {known}; got" in text and "each lesson shows its usual GPU" in text
    assert "<b>”" not in text and "recorded NVIDIA H200, cold" in text


def test_shares_of_the_table_are_of_the_gpus_own_roof(two_gpus):
    from visuals.charts import on_gpus

    ladder, gpus = LADDERS["softmax"], records.gpus_of("softmax")
    found = on_gpus.rows(ladder, SHAPE, lambda rung: rung.default_tiles, "cold", gpus)
    of_gpus = next(rows for rows in found.values() if len(rows) == 2)
    first, second = (on_gpus.share_of_roof(of_gpus[gpu]) for gpu in gpus)
    assert second == pytest.approx(first / 2), "the same ceilings, half the rate"
    assert escape(units.share(first)) in on_gpus.table(ladder, found, gpus, SHAPE)
