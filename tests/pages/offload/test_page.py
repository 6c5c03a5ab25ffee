"""The lesson on CPU and GPU without a browser: each work, its cards, what a wrong URL says, and a run on this machine."""

from __future__ import annotations

import re
from functools import partial

import pytest

from kernels.jobs.transfer import SizesRun
from kernels.machine.status import Status
from kernels.offload.works import COPIES, NONE, PAGEABLE, WORKS
from pages.offload import address
from pages.offload import stage as page_stage
from pages.offload.address import FIELDS, FIRST_SIZE, PROGRAM, SIDES
from pages.parts.address import STAGE
from pages.parts.one_run import OneRun
from tests.helpers.page_runner import heads, links, open_page, press, stages, strip, texts
from tests.visuals.offload.test_evidence import run_here

open_at = partial(open_page, "offload/page.py")


def without_gpu(monkeypatch, ready=False):
    class Engine:
        @staticmethod
        def status():
            return Status(ready, "no GPU in this machine.")

    monkeypatch.setattr(page_stage, "load", lambda name: Engine)


@pytest.mark.parametrize("work", WORKS)
def test_a_work_shows_both_sides_and_its_cards(work):
    at = open_at(work=work, n=FIRST_SIZE[work], copies="pinned")
    assert stages(at) == [f"{work} {FIRST_SIZE[work]} pinned False"]
    for card in ("Time over size", "What is left sets the limit", "How many runs pay", "Where the times cross"):
        assert f'<h2 class="kt-card">{card}' in texts(at)
    assert not at.exception


@pytest.mark.parametrize("copies", COPIES)
def test_the_usual_size_of_a_work_was_measured_with_each_copy(copies):
    for work, size in FIRST_SIZE.items():
        assert size in address.sizes(work, copies)


def test_the_picture_of_a_program_uses_what_is_left():
    at = open_at(picture=PROGRAM, n=512, left=20)
    assert stages(at) == ["program gemm 512 none 0.2 False"]
    assert "With 20 % of other work" in strip(at)["sizes"][0]["time"]["text"]


@pytest.mark.parametrize(
    ("params", "said", "shown"),
    [
        ({"n": 100}, "100 × 100 was not measured here: n=96 is used", "gemm 96 none"),
        ({"n": 8, "copies": PAGEABLE}, "8 × 8 was not measured here: n=512 is used", "gemm 512 pageable"),
        ({"n": "many"}, "n must be a whole number, got “many”", "gemm 1024 none"),
        ({"work": "sort"}, "work must be one of gemm, conv, add; got “sort”", "gemm 1024 none"),
        ({"left": 100, "n": 8}, "left must be 0 to 95 on this page, got “100”", "gemm 8 none"),
    ],
)
def test_a_wrong_value_is_named_and_replaced(params, said, shown):
    at = open_at(**params)
    assert said in texts(at)
    assert stages(at) == [f"{shown} False"]


def test_another_work_begins_at_a_size_of_its_own():
    found = links(open_at(n=64, copies="pinned"))
    assert found["sum of two matrices"] == {"work": "add", "n": str(FIRST_SIZE["add"]), "copies": "pinned"}
    for query in found.values():
        if "work" in query or "copies" in query:
            assert FIELDS.read(query)[1] == []


def test_no_field_is_one_of_the_stage():
    assert not set(FIELDS.by_name) & set(STAGE)


def test_run_measures_the_sizes_of_the_work(monkeypatch):
    without_gpu(monkeypatch)
    started = []
    monkeypatch.setattr(OneRun, "start", lambda self, request: started.append(request))
    at = open_at(work="add", n=1024)
    assert strip(at)["run"]["text"] == "No GPU in this machine: Run times the processor."
    press(at, "run")
    assert started == [SizesRun("add")]


def test_a_run_here_is_shown_with_the_recorded_gpu(monkeypatch):
    without_gpu(monkeypatch)
    results = {SizesRun("gemm").key(): [run_here("gemm", 3.0)]}
    at = open_at({"offload_run": OneRun("offload_run", results=results)}, n=512)
    assert stages(at) == ["gemm 512 none True"]
    found = strip(at)
    assert found["run"]["text"] == "No GPU in this machine: the GPU’s times are recorded."
    assert found["sizes"][0]["time"]["text"].startswith("3 times as fast as the processor, Some, 4 cores.")
    assert "measured Some, 4 cores" in texts(at)
    assert "matrix product n × n (rows and columns n), measured here" in texts(at)


def test_an_error_of_a_run_is_shown_in_words():
    failed = OneRun("offload_run", error="the process that runs kernels ended")
    at = open_at({"offload_run": failed}, n=512)
    assert strip(at)["run"]["error"] == "the process that runs kernels ended"


def test_a_size_too_large_for_a_run_says_so(monkeypatch):
    without_gpu(monkeypatch, ready=True)
    assert strip(open_at(n=4096))["run"]["text"] == "Too large to be measured here: the times are recorded."
    assert strip(open_at(n=1024))["run"]["text"] == ""


def test_a_picture_without_its_time_shows_no_scene(monkeypatch):
    run = run_here("gemm", 1.0)
    run["works"]["cpu"] = run["works"]["cpu"][:2]
    at = open_at({"offload_run": OneRun("offload_run", results={SizesRun("gemm").key(): [run]})}, picture=PROGRAM)
    assert not heads(at)[0]["meta"] and not at.exception
    assert address.scene(address.evidence(FIELDS.defaults | {"copies": NONE}, run), SIDES)


def test_each_size_has_its_own_copies_and_runs():
    html = texts(open_at(work="add", copies="pinned"))
    rows = re.findall("<tr>(<td>.*?)</tr>", html[html.index("How many runs pay") :].partition("</table>")[0])
    copies = [re.findall("<td>(.*?)</td>", row)[3] for row in rows]
    assert len(set(copies)) > len(copies) / 2
