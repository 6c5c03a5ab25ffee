"""Tests of every page on a machine with an NVIDIA GPU, collected by two modules: with a simulated and with a real GPU.

The module that imports them defines the fixture `device`, the name of the GPU.
"""

from __future__ import annotations

import json
from itertools import groupby

import pytest

from kernels import records
from kernels.conv.presets import CONV_PRESETS
from kernels.engines.emulator.counters import FIELDS
from kernels.jobs.counts import Count, Counts
from kernels.ladders import find
from kernels.records import rows, store
from kernels.records.jsontext import id_of
from pages.conv.choose import address as choose_address
from pages.fusion import address as fusion_address
from pages.gemm import address as gemm_address
from pages.parts import autotune
from pages.softmax import address as softmax_address
from tests.helpers.openings import LADDERS, Opening, openings
from tests.helpers.page_runner import components, finish, links, open_page, strip, texts

TOY = CONV_PRESETS["toy"].shape
ATTENTION = "attention/page.py"
LESSONS = (
    "conv/direct.py",
    "conv/im2col.py",
    "conv/implicit/page.py",
    "conv/winograd/page.py",
    "conv/fft/page.py",
    *LADDERS,
)  # pages with the four cards


def ends() -> list[Opening]:
    """Returns the first and the last preset of each page: without a GPU each page's own tests open every one."""
    pages = groupby(sorted(openings(), key=lambda opening: opening.page), lambda opening: opening.page)
    return list({str(one): one for _, of in pages for found in [list(of)] for one in (found[0], found[-1])}.values())


@pytest.mark.parametrize("opening", ends(), ids=str)
def test_presets_open(device, opening):
    at = open_page(None if opening.page == "home.py" else opening.page, **opening.params)
    text = texts(at)
    assert ">None<" not in text and "None B" not in text
    if opening.page in LESSONS:
        assert engine_options(at)[0] == "cuda" and strip(at)["run"]["label"] == "Run here"


def engine_options(at) -> list[str]:
    """Returns the engines that the options offer."""
    return [pill for group in at.get("button_group") if group.key == "engine" for pill in group.options]


@pytest.mark.parametrize("page", LESSONS)
def test_run_measures_every_rung_that_no_library_refuses(device, page):
    at = open_page(page)
    finish(at, "run", "job")
    ran, text = at.session_state["ran"], texts(at)
    supported = {rung.name for rung in ran.settings.supported_rungs()}
    assert ran.settings.engine == "cuda" and ran.rows
    for row in ran.rows.values():
        rows.check(row)
        assert (row["engine"], row["device"]) == ("cuda", device)
        assert row["error"] < 1e-2 and row["peak_bytes"] >= row["input_bytes"] + row["output_bytes"]
    refused = supported - ran.rows.keys()
    assert all(find(name).library for name in refused), refused
    for name in refused:
        assert not records.recorded(name, ran.settings.shape, find(name).default_tiles)
    assert f'kt-badge-measured">measured {device}' in text
    assert "kt-stale" not in text
    for heading in ('kt-card">Memory', 'kt-card">Roofline', "relative L2 error"):
        assert heading in text, heading
    assert len(at.get("plotly_chart")) >= 2


def test_library_figures_are_unknown(device):
    at = open_page(ATTENTION)
    assert "<td>unknown</td>" in texts(at)  # PyTorch's workspace, FLOPs and bytes
    finish(at, "run", "job")
    row = at.session_state["ran"].rows["attention/library"]
    assert row["predicted_workspace_bytes"] is None


def test_run_becomes_stale_and_second_run_is_measured(device):
    at = open_page("conv/im2col.py")
    finish(at, "run", "job")
    first = at.session_state["ran"]
    at.number_input(key="K").set_value(3.0).run()
    assert "stale: measured at N1 C1 8x8 K2 3x3" in texts(at)
    assert at.session_state["ran"] is first
    at.number_input(key="K").set_value(2.0).run()
    assert "kt-stale" not in texts(at)
    finish(at, "run", "job")  # the same settings are measured again
    second = at.session_state["ran"]
    assert second.finished_at > first.finished_at and second.settings == first.settings
    assert {id_of(row) for row in second.rows.values()}.isdisjoint(map(id_of, first.rows.values()))
    at.query_params["K"] = "3"  # as a link does
    at.run()
    finish(at, "run", "job")
    assert at.session_state["ran"].settings.shape == TOY.with_(K=3) and "kt-stale" not in texts(at)


@pytest.mark.parametrize("mode", ["cold", "hot"])
def test_caches_follow_the_options(device, mode):
    at = open_page("conv/direct.py", caches=mode)
    finish(at, "run", "job")
    assert {row["mode"] for row in at.session_state["ran"].rows.values()} == {mode}
    assert f"measured {device}, {mode}" in texts(at)


def test_cpu_engine_is_available_beside_the_gpu(device):
    at = open_page("conv/im2col.py", {"engine": "cpu"}, engine="cpu")
    assert engine_options(at) == ["cuda", "cpu"]
    finish(at, "run", "job")
    assert {row["engine"] for row in at.session_state["ran"].rows.values()} == {"cpu"}
    assert "NumPy BLAS" in texts(at)


def test_library_refusal_is_shown_and_other_rungs_run(device):
    """The flash attention of PyTorch supports only 16-bit types."""
    at = open_page(ATTENTION)
    finish(at, "run", "job")
    ran = at.session_state["ran"]
    assert {"attention/library-flash", "attention/library-cudnn"} <= ran.refused.keys()
    assert "attention/library" in ran.rows and not ran.rows.keys() & ran.refused.keys()
    assert "PyTorch (flash) was not measured: PyTorch" in texts(at)
    at.query_params["causal"] = "1"  # what was refused belongs to the run
    at.run()
    assert "was not measured" not in texts(at)


def test_rungs_of_the_emulator_are_counted_beside_libraries(device, monkeypatch):
    def fake_counts(counts, rung, shape, tiles):
        assert "emulator" in rung.engines, f"{rung.name} cannot be counted"
        return Count(dict.fromkeys(FIELDS, 1234))

    monkeypatch.setattr(Counts, "get", fake_counts)
    at = open_page(ATTENTION)
    text = texts(at)
    assert "not counted" not in text and "wish" not in at.session_state
    assert "<td>1,234</td>" in text and "<td>library</td>" in text


def test_choose_hides_the_measurement_until_the_guess(device):
    at = open_page("conv/choose/page.py", **choose_address.at_shape(TOY))
    finish(at, "run", "job")
    text = texts(at)
    assert f"measured {device}" in text and "kernels were timed" in text
    assert 'class="kt-race' not in text  # a guess comes first
    at = open_page(
        "conv/choose/page.py", {"ran": at.session_state["ran"]}, **choose_address.at_shape(TOY, choose_address.SHOW)
    )
    text = texts(at)
    assert f"measured {device}" in text and "kernels were timed" not in text
    assert len(at.session_state["ran"].rows) > 10


def test_threads_page_measures_on_the_gpu(device):
    for topic in ("threads", "divergence", "coalescing", "banks", "layout"):
        at = open_page("memory/page.py", topic=topic)
        finish(at, "run", "thread_jobs")
        measured_rows = at.session_state["thread_rows"][topic]
        assert measured_rows and {row["device"] for row in measured_rows} == {device}
        assert f"measured {device}" in texts(at)


def test_autotune_measures_tile_sizes(device):
    at = open_page(
        "gemm/page.py", **gemm_address.ADDRESS.at_rung(gemm_address.ADDRESS.read({})[0], gemm_address.RUNGS["naive"])
    )
    finish(at, "autotune", autotune.KEY)
    series = at.session_state[autotune.KEY]
    assert len(series.rows) > 1 and not series.failed
    assert {row["device"] for row in series.rows} == {device}
    assert f"measured {device}" in texts(at)


def test_history_lists_the_runs_and_compares_two(device):
    at = open_page("softmax/page.py")
    finish(at, "run", "job")
    ids = [id_of(row) for row in at.session_state["ran"].rows.values()]
    assert all(store.user_store().row(row_id) for row_id in ids)
    at = open_page("history/page.py", rung="softmax/online", device=f"cuda: {device}", origin="here")
    (component,) = components(at)
    lines = json.loads(component.proto.json)["lines"]
    assert {line["id"] for line in lines} & set(ids)
    assert all(line["device"].startswith(device) and line["kind"] == "measured" for line in lines)
    at = open_page("history/page.py", run=ids[0], against=ids[1])
    text = texts(at)
    assert text.count(device) >= 1 and "What differs" in text and "Figures" in text


def test_preset_links_open(device):
    """On a machine with a GPU a preset's chip links to a URL that opens."""
    for page, address in (("fusion/page.py", fusion_address.ADDRESS), ("softmax/page.py", softmax_address.ADDRESS)):
        at = open_page(page)
        preset_queries = [query for query in links(at).values() if query.keys() & address.shape.keys()]
        assert preset_queries
        open_page(page, **preset_queries[-1])
