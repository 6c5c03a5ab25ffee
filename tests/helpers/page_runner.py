"""A page of the app without a browser: opens it at a URL, reads it, and waits for the jobs of its buttons."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import parse_qsl

from streamlit.components.v2 import manifest_scanner
from streamlit.testing.v1 import AppTest

from kernels.jobs.job import Job, JobError
from pages._lessons import LESSONS
from visuals import stage

SHELL = Path(__file__).resolve().parents[2] / "pages" / "_shell.py"
EMPTY: Mapping[str, Any] = {}


# Each AppTest reads the metadata of all installed packages again: a quarter of the time of a page.
manifest_scanner.scan_component_manifests = cache(manifest_scanner.scan_component_manifests)

WITH_STORY = {lesson.page for lesson in LESSONS if lesson.chapters}


def open_page(page: str | None, session: Mapping[str, Any] = EMPTY, /, **params: Any) -> AppTest:
    """Opens a page ("conv/im2col.py"; None is the first screen) with these URL parameters.

    A lesson without parameters is opened in Explore. `open_bare` opens it as the bar's links do, in its story.

    session: the initial session state. Without a browser a URL parameter reaches its control one run later; a value of
    the session state reaches it at once.
    """
    if page in WITH_STORY and not params:
        params = {"view": "explore"}
    return _run_with(_at(page), session, params)


def open_bare(page: str) -> AppTest:
    """Opens a page without URL parameters."""
    return _run_with(_at(page), EMPTY, EMPTY)


def _at(page: str | None) -> AppTest:
    at = AppTest.from_file(str(SHELL), default_timeout=60)
    if page:
        at._registered_pages = dict(_pages())
        at.switch_page(page)
    return at


@cache
def _pages() -> Mapping[str, Any]:
    """Returns the pages that the app registers. AppTest knows them after a run: here one of the first screen, not one
    before every page that a test opens."""
    return AppTest.from_file(str(SHELL), default_timeout=60).run()._registered_pages


def open_part(part: Callable[[], None], session: Mapping[str, Any] = EMPTY, /, **params: Any) -> AppTest:
    """Runs a function that draws a part of a page. It can use only what it imports itself."""
    return _run_with(AppTest.from_function(part, default_timeout=60), session, params)


def _run_with(at: AppTest, session: Mapping[str, Any], params: Mapping[str, Any]) -> AppTest:
    for name, value in session.items():
        at.session_state[name] = value
    for name, value in params.items():
        at.query_params[name] = str(value)
    at.run()
    assert not at.exception
    return at


def keys(at: AppTest) -> set[str]:
    """Returns the keys of the page's containers."""

    def within(block: Any) -> Iterator[str]:
        yield getattr(getattr(block, "proto", None), "id", "").rpartition("-")[2]
        for child in getattr(block, "children", {}).values():
            yield from within(child)

    return set(within(at.main))


def texts(at: AppTest) -> str:
    """Returns all HTML of the page except its style."""
    still = [html.value for html in at.get("html") if not html.value.startswith("<style")]
    return " ".join([*still, *(json.loads(part.proto.json)["html"] for part in live_parts(at))])


def live_parts(at: AppTest) -> list[Any]:
    """Returns the parts of the page whose HTML the browser replaces without a rerun."""
    return [part for part in at.get("bidi_component") if part.proto.component_name.endswith("live")]


def links(at: AppTest) -> dict[str, dict[str, str]]:
    """Returns the URL parameters of each link by its label."""
    return {link.proto.label: dict(parse_qsl(link.proto.query_string)) for link in at.get("page_link")}


def messages(at: AppTest) -> list[bytes]:
    """Returns the message that each stage was sent."""
    return [component.proto.bytes for component in components(at)]


def components(at: AppTest) -> list[Any]:
    """Returns the stages and lists of the page, not the parts of the navigation bar and the buttons that save files."""
    found = at.get("bidi_component")
    return [
        each
        for each in found
        if not each.proto.component_name.endswith(("navigation", "menu", "progress", "save", "live"))
    ]


def heads(at: AppTest) -> list[dict[str, Any]]:
    """Returns the head of each stage's message, without its cells."""
    return [head_of(message) for message in messages(at)]


def head_of(message: bytes) -> dict[str, Any]:
    return json.loads(message[8 : 8 + int.from_bytes(message[:4], "little")])


def stages(at: AppTest) -> list[str]:
    """Returns the key of the scene that each stage was sent."""
    return [head["meta"]["key"] for head in heads(at) if head["meta"]]


def strip(at: AppTest) -> dict[str, Any]:
    """Returns the strip that the page's stage was sent."""
    (message,) = messages(at)
    head, length = (int.from_bytes(message[n : n + 4], "little") for n in (0, 4))
    return json.loads(message[8 + head : 8 + head + length])


def press(at: AppTest, do: str, **more: str) -> None:
    """Presses something in the page's stage, as the browser reports it, and runs the page."""
    left = [{"do": do, **more}]
    with mock.patch.object(stage, "pressed", lambda key: left.pop() if left else None):
        at.run()


def finish(at: AppTest, key: str, session_key: str) -> None:
    """Presses the button, or Run in the strip if the page has no button "run". Waits for the jobs under `session_key`, and reruns the page as the browser's polling does.

    The page itself reports a job's error.
    """
    if key == "run" and not any(button.key == key for button in at.button):
        press(at, "run", size="stage")
    else:
        at.button(key=key).click().run()
    while (jobs := _jobs(at, session_key)) and not at.exception:
        for job in jobs:
            with contextlib.suppress(JobError):
                job.result(timeout=240)  # the worker ends it before
        at.run()
    assert not at.exception


def _jobs(at: AppTest, session_key: str) -> list[Job]:
    """Returns the jobs that run: the session has a list of jobs, a job with its settings, or a series with a job."""
    session = at.session_state[session_key] if session_key in at.session_state else ()  # noqa: SIM401
    parts = session if isinstance(session, list | tuple) else [session.job]
    return [part for part in parts if isinstance(part, Job)]
