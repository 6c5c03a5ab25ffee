"""The hall shows what the app shows: at every chapter, at every preset, after a run."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from itertools import takewhile
from multiprocessing import get_context
from types import ModuleType
from typing import Any
from unittest import mock

import pytest
import streamlit as st

from kernels.engines import cpu
from kernels.jobs.job import SECONDS, Job, Run
from kernels.records import folder
from pages._lessons import LESSONS
from pages.parts import counts
from pages.parts.run_settings import RunResult
from pages.parts.worker import counts as counted
from pages.parts.worker import worker
from tests.helpers import hall_pages
from tests.helpers.chapters import WITH_STORY, story
from tests.helpers.openings import openings
from tests.helpers.page_runner import live_parts, messages, open_page, press
from visuals.site.host import parted

pytestmark = pytest.mark.timeout(1800)  # one test opens every page, on a processor that other tests use too
PATHS = {lesson.page: lesson.path for lesson in LESSONS}
RUN = ("softmax/page.py", "softmax", {"view": "story", "chapter": "3"})  # its page, its stage's key, its address


@pytest.fixture(scope="module")
def hall(tmp_path_factory):
    """A process with the hall's pages, and no site: all comes from the pages themselves."""
    patch = pytest.MonkeyPatch()
    patch.setattr(cpu, "product_rate", lambda: hall_pages.RATE)
    patch.setattr(counts, "REST_S", 3600.0)  # nothing is counted while pages are compared
    # What other tests of this process have counted and measured is not here, and what still runs for them does not end here.
    worker().close()
    counted().close()
    st.cache_resource.clear()
    patch.setenv(folder.VARIABLE, str(tmp_path_factory.mktemp("data")))
    patch.setattr(RunResult, "ago", hall_pages.AGO)
    patch.setenv(SECONDS, "0.02")
    site = tmp_path_factory.mktemp("no-site")
    with ProcessPoolExecutor(1, get_context("spawn"), initializer=hall_pages.begin, initargs=(site,)) as pool:
        # A page that a test opened may be this process's main module: the other one would draw it.
        with mock.patch.dict(sys.modules, {"__main__": ModuleType("__main__")}):
            pool.submit(hall_pages.page, "glossary", {}).result()
        yield lambda function, *args: pool.submit(function, *args).result()
    patch.undo()


def addresses() -> Iterator[tuple[str, dict[str, str]]]:
    """Yields the page and the parameters of every chapter and of every preset: the first chapter of a lesson with all that is
    on its page, the others with their stage alone."""
    for lesson in WITH_STORY:
        for n in range(len(story(lesson).chapters)):
            yield lesson.page, {"view": "story", "chapter": str(n + 1)} | ({"present": "1"} if n else {})
    for opening in openings():
        if opening.page in PATHS:
            yield opening.page, {name: str(value) for name, value in opening.params.items()} | {"view": "watch"}


def shown(at: Any) -> dict[str, Any]:
    """Returns the parts of a page of the app, as `hall_pages.parts`."""
    texts = [html.value for html in at.get("html") if not html.value.startswith("<style")]
    found = {"texts": [*texts, *(json.loads(part.proto.json)["html"] for part in live_parts(at))]}
    stages = [parted(message) for message in messages(at)]
    if not stages:
        return found | {"strip": None, "chapter": None, "meta": None, "block": b""}
    stage = stages[0]
    found |= {"strip": stage["strip"], "chapter": stage["head"].get("chapter")}
    return json.loads(json.dumps(found)) | {"meta": stage["meta"], "block": stage["block"]}


def differences(app: Mapping[str, Any], hall: Mapping[str, Any]) -> list[str]:
    """Returns what the hall shows otherwise than the app, by its place. On the hall the sentence of Run says besides whose
    processor it is, and a browser waits for counts at another route."""
    return list(_differences("", _comparable(app), _comparable(hall)))


def _comparable(found: Mapping[str, Any]) -> dict[str, Any]:
    strip = found["strip"] and {name: value for name, value in found["strip"].items() if name != "watch"}
    if strip and strip.get("run"):
        text = strip["run"]["text"].partition(" This processor is the server's")[0]
        strip["run"] = strip["run"] | {"text": text, "hint": bool(strip["run"].get("hint"))}
    return dict(found) | {"strip": strip, "texts": sorted(found["texts"])}


def _differences(place: str, app: Any, hall: Any) -> Iterator[str]:
    if isinstance(app, dict) and isinstance(hall, dict):
        for name in sorted(app.keys() | hall.keys()):
            yield from _differences(f"{place}.{name}", app.get(name), hall.get(name))
    elif isinstance(app, list) and isinstance(hall, list) and len(app) == len(hall):
        for n, (one, other) in enumerate(zip(app, hall, strict=True)):
            yield from _differences(f"{place}[{n}]", one, other)
    elif app != hall:
        equal = takewhile(lambda pair: pair[0] == pair[1], zip(str(app), str(hall), strict=False))
        start = max(0, len(list(equal)) - 40)
        yield f"{place}: app {str(app)[start:][:160]!r}, hall {str(hall)[start:][:160]!r}"


def test_every_chapter_and_every_preset_is_the_same(hall):
    found, checked = [], 0
    for page, params in addresses():
        path, at = PATHS[page], open_page(page, **params)
        of_app, of_hall = shown(at), hall(hall_pages.page, path, params)
        assert of_app["meta"] or not of_hall["meta"], f"{path} {params}"
        checked += bool(of_app["meta"])
        found += [f"{path} {params} {text}" for text in differences(of_app, of_hall)]
    assert not found, "\n".join(found[:40])
    assert checked > 320, "stages were compared"


def test_a_run_gives_the_page_the_same_rows(hall):
    """The rows that a press in the hall measured, given to the app: the strips are the same, and show these rows."""
    page, key, params = RUN
    before = hall(hall_pages.page, PATHS[page], params)
    (rows,) = hall(hall_pages.run, PATHS[page], params, key)
    of_hall = hall(hall_pages.page, PATHS[page], params)

    def submit(request: Any, owner: str = "", fresh: bool = False) -> Job:
        job = Job(request, owner, Run(request.key(), b""))
        job.finish(rows, cached_at=0.0)
        return job

    at = open_page(page, **params)
    with mock.patch.object(worker(), "submit", submit):
        press(at, "run", size="stage")
        at.run()
    assert differences(shown(at), of_hall) == []
    times = {size["key"]: size["time"] for size in of_hall["strip"]["sizes"]}
    assert times["stage"]["badge"]["kind"] == "measured"
    assert differences(before, of_hall), "the run has changed the page"


PLANTED = {
    "unit": lambda found: found["strip"]["sizes"][0]["time"].update(value="113 ms"),
    "row": lambda found: found["strip"]["sizes"][0]["time"]["bars"].pop(),
    "caption": lambda found: found["meta"].update(captions="other"),
    "number": lambda found: found.update(block=b"\0" + found["block"][1:]),
    "sentence": lambda found: found["chapter"]["text"].pop(),
    "button": lambda found: found["strip"]["run"].update(can=False),
    "text": lambda found: found["texts"].append("<p>more</p>"),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_difference_is_found(hall, fault):
    page, _, params = RUN
    found = hall(hall_pages.page, PATHS[page], params)
    changed = hall(hall_pages.page, PATHS[page], params)
    assert differences(found, changed) == []
    PLANTED[fault](changed)
    assert differences(found, changed)
