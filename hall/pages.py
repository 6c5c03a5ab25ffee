"""The pages of the app for readers of the hall, in a process of their own: `begin`, then `call`.

Nothing of a page is said twice. visuals.site.host records the app's own pages, with what a reader has measured in the
session. The app's job service is replaced by `Submissions`: it keeps what a press on Run submits, and the hall's process runs it.
"""

from __future__ import annotations

import gzip
import logging
import math
import os
import re
import secrets
import threading
from base64 import b64encode
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from html import unescape
from itertools import count
from multiprocessing import parent_process
from pathlib import Path
from typing import Any, NamedTuple

from kernels.i18n import tr
from kernels.jobs.job import Job, Rows, Run
from kernels.machine import processor
from visuals.site import counting, crawl
from visuals.site.files import FOLDER, HeldFiles, plain
from visuals.site.host import Element, Host, Recording, Switch, install
from visuals.site.pack import Packer, pack_component
from visuals.site.unit import BUILD

MAX_SESSIONS = 512  # whose runs are kept; the one that was not used for the longest time goes first
# What a session keeps from page to page, beside the objects of pages.
NAMES = re.compile(
    r"job|ran|ran_elsewhere|run_error|_run_in|owner|thread_\w+|race_replay|winograd_numbers|training_history|"
    r"parallel_check"
)
STAGE = "stage"
Params = Mapping[str, str]
log = logging.getLogger(__name__)


class Refusal(Exception):
    """Why a request cannot be answered: an HTTP status and a sentence for the reader."""

    def __init__(self, status: int, sentence: str):
        super().__init__(status, sentence)
        self.status, self.sentence = status, sentence


class Submitted(NamedTuple):
    """What a page submitted, as Worker.submit takes it, and a number by which `finish` gives the result."""

    number: int
    request: Any
    owner: str
    fresh: bool
    device: str


class Pressed(NamedTuple):
    """A page after a press.

    strip: of its stage. submitted, cancelled: what the page wants of the job service. to: its path and parameters."""

    strip: Mapping[str, Any] | None
    submitted: tuple[Submitted, ...]
    cancelled: tuple[int, ...]
    to: tuple[str, dict[str, str]]


class _AtStage(BaseException):
    """Ends a recording: the stage of the page is drawn."""


class Submissions:
    """Stands in for the job service: keeps what pages submit and cancel."""

    def __init__(self) -> None:
        self.machines: Mapping[str, Any] | None = None  # of a pool
        self._numbers = count(secrets.randbits(60))  # a process that follows this one never gives the same
        self._jobs: dict[int, Job] = {}  # that have not ended
        self._submitted: list[Submitted] = []
        self._cancelled: list[int] = []

    def submit(self, request: Any, owner: str = "", fresh: bool = False, device: str = "") -> Job:
        job = Job(request, owner, Run(request.key(), b"", request.CACHED))
        number = next(self._numbers)
        self._jobs[number] = job
        self._submitted.append(Submitted(number, request, owner, fresh, device))
        return job

    def position(self, job: Job) -> int:
        return 0

    def cancel(self, job: Job, running: bool = True) -> None:
        self._cancelled += [number for number, one in self._jobs.items() if one is job]

    def finish(self, number: int, rows: Rows | None, error: str, measured_at: float | None) -> None:
        if job := self._jobs.pop(number, None):
            job.finish(rows, error, measured_at)

    def taken(self) -> tuple[tuple[Submitted, ...], tuple[int, ...]]:
        """Returns what was submitted and cancelled since the last call."""
        found = tuple(self._submitted), tuple(self._cancelled)
        self._submitted, self._cancelled = [], []
        return found


class Pages:
    """Records pages. There is one in a process."""

    def __init__(self, site: Path):
        self._site = site
        self._sessions: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._submissions = Submissions()
        self._host = Host()
        install(self._host)
        self._replace_workers(site)
        self._host.record("glossary", {})
        self.paths = {page.url_path for page in self._host.listed}
        self._host.mounted = self._mounted
        self._ends_at_stage = False

    def _replace_workers(self, site: Path) -> None:
        """Puts `Submissions` and the site's counts where the pages take theirs from. They import these names, so this comes
        first."""
        from pages.parts import counts, worker

        own = counts.counts

        class Counts:
            """The app's counts, and those that the site was built with."""

            known = counting.known(site / BUILD)

            def __init__(self) -> None:
                self._own = own()

            def get(self, *of: Any) -> Any:
                self.known.left.clear()
                return self._own.get(*of) or self.known.get(*of)

            def __getattr__(self, name: str) -> Any:
                return getattr(self._own, name)

        found = Counts()
        worker.worker = lambda: self._submissions
        worker.machines = lambda: self._submissions.machines
        worker.counts = counts.counts = lambda: found
        counts.REST_S = math.inf  # `_counting` sends requests, a page alone does not

    def _mounted(self, name: str) -> None:
        key = self._host.now.open[-1][-1].get("k") or ""
        if self._ends_at_stage and name == STAGE and key != "home" and not key.startswith("preview"):
            raise _AtStage

    # -- what the hall asks --------------------------------------------------------------------------
    def follow_pool(self, machines: Mapping[str, Any]) -> None:
        """Takes the machines of a pool: pages offer their engines."""
        self._submissions.machines = machines

    def strip(self, path: str, params: Params) -> tuple[dict[str, Any] | None, bool]:
        """Returns the strip of a page's stage on this machine, None without one, and whether it stays so: nothing of it is
        to be counted."""
        state: dict[str, Any] = {}
        elements, _ = self._drawn(path, params, state, {}, to_stage=True)
        return _strip(elements), "wish" not in state

    def page(self, session: str, path: str, params: Params) -> bytes:
        """Returns JSON, compressed: the page with what a reader has measured, and what the site lacks for it.

        "to": it leads to another address. "counting": how far counts are that it waits for."""
        state = self._session(session)
        try:
            drawn = self._record(path, params, state)
        except Switch as away:
            return _packed({"to": [away.path, away.params]})
        files = _NewFiles(self._site)
        doc = {"params": drawn.params, "c": Packer(files).pack(map(_for_hall, drawn.elements))}
        names = {one["name"] for one in crawl.walk(drawn.elements) if one["t"] == "component"} - {STAGE}
        components = {name: pack_component(files, self._host.components[name]) for name in names}
        new = {name: b64encode(data).decode() for name, data in files.taken().items()}
        counting = _counting(state)
        self._keep(session, state)
        return _packed({"doc": doc, "components": components, "files": new, "counting": counting})

    def file(self, path: str, params: Params, key: str) -> tuple[bytes, str, str]:
        """Returns a file that a page offers under a button: its content, name and type."""
        self._host.downloads.clear()
        self._record(path, params, {})
        if not (found := self._host.downloads.get(key)):
            raise Refusal(404, tr("This page offers no file {key}.", key=key[:40]))
        data = found.data() if callable(found.data) else found.data
        return data.encode() if isinstance(data, str) else data, found.name, found.mime

    def press(self, session: str, path: str, params: Params, key: str, pressed: Mapping[str, str]) -> Pressed:
        """Returns a page after a press on its stage, or of a button, which is below it. Refusal says what is wrong with its
        address, or why nothing runs."""
        state = self._session(session)
        on_stage = pressed["do"] == "run"
        if NAMES.fullmatch(key):
            raise Refusal(404, tr("This page has no button {key}.", key=key))
        if on_stage and "job" in state:
            raise Refusal(409, tr("Your last run has not ended. Stop it, or wait for its result."))
        self._refuse_wrong(path, params)
        found = self._pressed(session, path, params, state, {key: dict(pressed)}, on_stage)
        run = (found.strip or {}).get("run", {"can": False})
        if on_stage and not found.submitted and (run.get("error") or not run.get("can")):
            raise Refusal(422, run.get("error") or run.get("text") or tr("Nothing can be run on this page."))
        return found

    def finish(
        self,
        session: str,
        path: str,
        params: Params,
        number: int,
        rows: Rows | None,
        error: str,
        measured_at: float | None,
    ) -> Pressed:
        """Gives a page the result of a job, or why there is none. Returns what it submits next, if it does."""
        self._submissions.finish(number, rows, error, measured_at)
        return self._pressed(session, path, params, self._session(session), {}, to_stage=False)

    def _pressed(
        self, session: str, path: str, params: Params, state: dict, presses: Mapping[str, Any], to_stage: bool
    ) -> Pressed:
        self._submissions.taken()
        elements, to = self._drawn(path, params, state, presses, to_stage)
        self._keep(session, state)
        return Pressed(_strip(elements), *self._submissions.taken(), to)

    # -- recording -----------------------------------------------------------------------------------
    def _record(self, path: str, params: Params, state: dict, presses: Mapping | None = None) -> Recording:
        if path not in self.paths:
            raise Refusal(404, tr("There is no page {path} here.", path=path[:40]))
        return self._host.record(path, params, presses, state)

    def _drawn(
        self, path: str, params: Params, state: dict, presses: Mapping[str, Any], to_stage: bool
    ) -> tuple[list[Element], tuple[str, dict[str, str]]]:
        """Returns the elements of a page, up to its stage or all, and the address at which it ends."""
        self._ends_at_stage = to_stage
        try:
            elements = self._record(path, params, state, presses).elements
        except _AtStage:
            elements = self._host.now.root
        except Switch as away:
            return [], (away.path, away.params)
        finally:
            self._ends_at_stage = False
        return elements, (path, dict(self._host.now.query))

    def _refuse_wrong(self, path: str, params: Params) -> None:
        """Refusal if a page does not take all values of its address: what the page says of them."""
        from pages.parts import query

        elements, (_, taken) = self._drawn(path, params, {}, {}, to_stage=False)
        found = query.wrong_choices()
        if any(taken.get(name) != text for name, text in params.items()):
            found += [_words(note) for one in crawl.walk(elements) for note in _NOTE.findall(one.get("h", ""))]
        if found:
            raise Refusal(400, " ".join(dict.fromkeys(found)))

    # -- sessions ------------------------------------------------------------------------------------
    def _session(self, name: str) -> dict[str, Any]:
        """Returns the state of a session as a page gets it: what earlier pages measured."""
        return {"owner": name} | self._sessions.get(name, {})

    def _keep(self, name: str, state: Mapping[str, Any]) -> None:
        """Keeps of a session what was measured. The values of controls are those of the next address."""
        kept = {key: value for key, value in state.items() if NAMES.fullmatch(key) or _is_of_pages(value)}
        if name and kept.keys() - {"owner"}:
            self._sessions[name] = kept
            self._sessions.move_to_end(name)
        while len(self._sessions) > MAX_SESSIONS:
            self._sessions.popitem(last=False)


def _is_of_pages(value: Any) -> bool:
    """Returns whether a value is an object of a page that keeps its own results."""
    return type(value).__module__.startswith("pages.") and not isinstance(value, tuple)


def _counting(state: Mapping[str, Any]) -> str:
    """Returns how far the counts are that a page waits for, and sends its request; "" if it waits for none."""
    request = state.get("wish")
    if request is None or request.watch is None:
        return ""
    request.since = -math.inf
    return "" if request.watch.read()["done"] else request.status


# -- what was drawn --------------------------------------------------------------------------------
_NOTE = re.compile(r'<p class="kt-note"[^>]*>(.*?)</p>', re.DOTALL)
_TAG = re.compile(r"<[^>]*>")


def _words(html: str) -> str:
    return unescape(_TAG.sub("", html.replace("<br>", " "))).strip()


def _strip(elements: Sequence[Element]) -> dict[str, Any] | None:
    for element in crawl.walk(elements):
        if element["t"] == "component" and element["name"] == STAGE and element["data"]["strip"]:
            return _of_server(element["data"]["strip"])
    return None


def _for_hall(element: Element) -> Element:
    """Returns an element of a page as the hall shows it: its strips are about the server."""
    if element["t"] == "component" and element["name"] == STAGE and element["data"]["strip"]:
        return element | {"data": element["data"] | {"strip": _of_server(element["data"]["strip"])}}
    if element["t"] in ("box", "pop"):
        return element | {"c": [_for_hall(inner) for inner in element["c"]]}
    return element


def _of_server(strip: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a strip without what only the app's server answers. Before a run it says whose processor is measured."""
    found = {name: value for name, value in strip.items() if name != "watch"}
    run = found["run"]
    if run["can"] and not run["running"] and run["text"]:
        text = " ".join(
            (run["text"], tr("This processor is the server's: {processor}.", processor=processor.device_name()))
        )
        found["run"] = run | {"text": text, "hint": text if run.get("hint") else ""}
    return found


class _NewFiles(HeldFiles):
    """Files in memory, without those of the site."""

    def __init__(self, site: Path):
        super().__init__()
        self._folder = site / FOLDER

    def taken(self) -> dict[str, bytes]:
        return {name: data for name, data in super().taken().items() if not (self._folder / f"{name}.bin").exists()}


def _packed(answer: Mapping[str, Any]) -> bytes:
    return gzip.compress(plain(answer).encode(), 6, mtime=0)


# -- the process -----------------------------------------------------------------------------------
_pages: Pages | None = None


def begin(site: Path) -> None:
    """Prepares this process for `call`. It ends with the hall's process, however that ends."""
    global _pages
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _pages = Pages(site)


def _end_with_parent() -> None:
    if parent := parent_process():
        parent.join()
    os._exit(0)


def call(name: str, *args: Any) -> Any:
    """Returns what a function of `Pages` returns. Refusal for the reader; a fault of a page is logged."""
    try:
        return getattr(_pages, name)(*args)
    except Refusal:
        raise
    except Exception:
        log.exception("%s%r", name, args)
        raise Refusal(500, tr("This page cannot be drawn. The server's log says why.")) from None


def paths() -> list[str]:
    assert _pages is not None  # after `begin`
    return sorted(_pages.paths)
