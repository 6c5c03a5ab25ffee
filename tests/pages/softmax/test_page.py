"""Tests of the softmax lesson without a browser: presets, rungs, kinds of logits, custom numbers, Run."""

import re

import pytest

from kernels.engines.emulator.compiler import compile
from kernels.softmax import ladder
from kernels.softmax.presets import SOFTMAX_PRESETS
from pages import _lessons, _teasers
from pages.parts.rung_address import Selection
from pages.softmax import address, controls
from tests.helpers.page_runner import finish, heads, keys, links, open_page, stages, strip, texts
from visuals import units
from visuals.softmax import inputs


def open_at(**params):
    session = {n: str(v) for n, v in params.items() if n in (address.LOGITS, address.NUMBERS)}
    return open_page("softmax/page.py", session, **params)


def at_preset(key):
    return address.ADDRESS.at_shape(address.ADDRESS.read({})[0], SOFTMAX_PRESETS[key].shape)


@pytest.mark.parametrize("key", controls.CHIPS)
def test_a_preset_shows_every_part(key):
    shape = SOFTMAX_PRESETS[key].shape
    at = open_at(**at_preset(key))
    html = texts(at)
    assert "kt-note" not in html
    for part in ("Time", "Memory", "Roofline", "Why", "This row in every kernel", "Kernel"):
        assert f'<h2 class="kt-card">{part}' in html, part
    (stage_head,) = heads(at)
    x = next(t for t in stage_head["meta"]["tensors"] if t["name"] == "x")
    assert x["cols"] == min(shape.N, 1024) and f"row 0 of {shape.M:,}" in x["note"]
    assert at.code and strip(at)["run"]["label"] == "Run here"


def test_all_presets_have_a_chip():
    assert set(controls.CHIPS) == set(SOFTMAX_PRESETS)


@pytest.mark.parametrize("rung", address.ADDRESS.rungs)
def test_every_rung_has_a_scene(rung):
    at = open_at(rung=rung)
    assert stages(at)[0].startswith(f"softmax/{rung} ")
    assert heads(at)[0]["meta"]["source"]["file"] in texts(at) or at.code


@pytest.mark.parametrize("M, blocks, parts", [(4, 8, 2), (3, 8, 2), (1, 4, 4), (2, 8, 4), (9, 4, 1), (4, 512, 4)])
def test_stage_cuts_a_row_as_the_kernel_does(M, blocks, parts):
    """With 512 blocks a row has 128: more than the stage shows."""
    shape, tiles = (ladder.SoftmaxShape(M, 40), {"BLOCKS": blocks, "BLOCK": 32 if blocks < 512 else 256, "LOADS": 1})
    query = Selection(address.LADDER.rung("softmax/split"), tiles, shape)
    scene, reason = address.scene(query, address.row(shape, inputs.SMALL))
    assert not reason and scene.tensor("part_m").cols == parts


def test_smallest_grid_cuts_each_row():
    split = address.LADDER.rung("softmax/split")
    sizes = {M: address.default_tiles_for(split, ladder.SoftmaxShape(M, 40))["BLOCKS"] for M in (1, 2, 4, 100)}
    assert sizes == {1: 4, 2: 4, 4: 8, 100: 512}


@pytest.mark.parametrize("name", inputs.LOGITS)
def test_every_kind_of_logits_runs_on_every_rung(name):
    at = open_at(logits=name, rung="unsafe")
    html = texts(at)
    assert len(stages(at)) == 1 and "kt-note" not in html
    row = html[html.index("This row in every kernel") :]
    row = row[: row.index("</table>")]  # a table of changed lines follows
    assert row.count("right, error") == len(ladder.RUNGS) - (name in (inputs.LARGE, inputs.OWN_NUMBERS))
    assert ("<b>NaN in " in row) == (name in (inputs.LARGE, inputs.OWN_NUMBERS))
    twice = sum(ladder.reads(rung.name) == 2 for rung in ladder.RUNGS)
    assert row.count("<td>3</td>") == 1 and row.count("<td>2</td>") == twice and ", predicted" not in row


def test_custom_numbers_are_the_row():
    at = open_at(logits=inputs.OWN_NUMBERS, numbers="1 2 95 -inf", rung="unsafe")
    assert "your own row of 4" in str(heads(at)[0]["meta"]["tensors"])
    assert "The largest number is 95" in texts(at) and "<b>NaN in 1 of 4</b>" in texts(at)
    assert "Run measures 4×40 random numbers" in texts(at)
    assert "own_numbers" in keys(at)
    at.text_input(key=address.NUMBERS).set_value("3 -inf 100").run()
    assert "softmax/unsafe BLOCK=8 3:" in stages(at)[0] and "NaN in 1 of 3" in texts(at)
    assert "own_numbers" not in keys(open_at(logits="small"))


@pytest.mark.parametrize("numbers", ["1 two", "9" * 2000, "1 " * 100, "<i>1</i>", "1e99"])
def test_invalid_numbers_are_reported_and_replaced(numbers):
    at = open_at(logits=inputs.OWN_NUMBERS, numbers=numbers)
    html = texts(at)
    assert "Until then, the row is “small”." in html and "kt-note" in html and "<i>1</i>" not in html
    assert "row 0 of 4" in str(heads(at)[0]["meta"]["tensors"])


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"M": "0"}, "M must be 1 to 1,048,576"),
        ({"N": "x"}, "N must be a whole number"),
        ({"rung": "fast"}, f"rung must be one of {', '.join(r.name.partition('/')[2] for r in ladder.RUNGS)}"),
        ({"M": 2**20, "N": 2**20}, "x may have at most 268,435,456 elements on this page, M*N is 1,099,511,627,776"),
        ({"BLOCK": 7}, "BLOCK must be one of 4, 8, 32"),
    ],
)
def test_invalid_parameters_are_named(params, words):
    at = open_at(**params)
    assert words in texts(at) and len(stages(at)) == 1


def test_the_card_of_the_row_has_the_bytes_that_each_kernel_moves():
    shape = address.DEFAULT
    html = texts(open_at(view="row"))
    found = re.findall(r'<th scope="row">[^<]*</th><td>[^<]*</td><td>[^<]*</td><td>([^<]*)</td>', html)
    programs = ((rung, rung.build(shape, address.default_tiles_for(rung, shape))) for rung in ladder.RUNGS)
    assert found == [units.bytes_(rung.cost(shape, program).bytes) for rung, program in programs]


def test_row_too_long_for_registers_names_its_rule_and_links_to_other_rungs():
    at = open_at(rung="registers", M=64, N=50257, BLOCK=256, PER=32)
    html = texts(at)
    assert "N (a row in BLOCK*PER registers) &lt;= 8192, got 50257" in html and not stages(at)
    assert "online: two passes" in links(at)


@pytest.mark.parametrize("view", ["watch", "run", "why", "kernel", "row"])
def test_each_view_shows_only_its_part(view):
    at = open_at(view=view)
    assert bool([b for b in at.button if b.key == "run"]) == (view in ("run", "why"))
    assert bool(at.code) == (view == "kernel") and len(stages(at)) == (view == "watch")
    assert ("This row in every kernel" in texts(at)) == (view == "row")
    assert not at.number_input and "<h1" not in texts(at)


def test_run_measures_every_rung_supported_on_cpu():
    at = open_at(view="run", M=8, N=64, engine="cpu")
    finish(at, "run", "job")
    html = texts(at)
    assert "kt-badge-measured" in html and 'role="alert"' not in html
    rows = at.session_state["ran"].rows
    assert set(rows) == {rung.name for rung in ladder.RUNGS if "cpu" in rung.engines}
    assert all(row["error"] < 1e-6 for row in rows.values())


def test_lesson_precedes_attention_and_home_card_shows_its_scene():
    pages = [lesson.page for lesson in _lessons.LESSONS]
    assert pages.index("softmax/page.py") < pages.index("attention/page.py")
    (teaser,) = [teaser for teaser in _teasers.TEASERS if teaser.page == "softmax/page.py"]
    scene = teaser.build_scene()
    assert stages(open_at(**teaser.params)) == [scene.key]
    assert "rescaled" in scene.caption(teaser.step)


def test_missing_compiler_is_reported_and_precompiled_tiles_still_run(monkeypatch):
    def missing(*_):
        raise compile.CompilerMissing("NVRTC is not installed here")

    monkeypatch.setattr(compile, "compile_ptx", missing)
    at = open_at(rung="registers", N=100, BLOCK=128, PER=32)
    html = texts(at)
    assert "05_registers.cu with BLOCK=128, PER=32 is not among the compiled kernels" in html
    assert not stages(at) and html.count("right, error") == len(ladder.RUNGS) - 1
    assert len(stages(open_at(rung="registers", N=100, BLOCK=32, PER=4))) == 1
