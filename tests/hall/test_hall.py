"""The hall as a real process: files, runs, readers that leave, requests that are wrong, and an end by kill -9."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from gzip import decompress
from typing import Any

import pytest

from hall import runs
from hall.__main__ import main
from hall.pages import Pressed, Refusal, Submitted
from hall.server import BURST, MAX_BODY
from kernels.jobs.job import JobError
from kernels.records import folder
from kernels.records.store import Store
from tests.children.helpers import until
from tests.helpers.hall import READER, a_hall
from visuals.site.files import Files, name_of
from visuals.site.write import outdated

STAGE = {"key": "softmax", "do": "run", "size": "stage"}
PRESS = "/hall/press/softmax?chapter=3"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder with the names of a site's files. The hall draws what it lacks."""
    out = tmp_path_factory.mktemp("site")
    (out / "index.html").write_text('<html lang="en" data-static>\n<p>the first screen</p>', "utf-8")
    (out / "softmax").mkdir()
    (out / "softmax" / "index.html").write_text('<html lang="en" data-static>', "utf-8")
    (out / f"site-{name_of(b'')}.js").write_text("// " + "long " * 500, "utf-8")
    (out / ".build").mkdir()
    (out / ".build" / "counts-softmax.json").write_text("{}", "utf-8")
    (out.parent / "secret.txt").write_text("not of the site", "utf-8")
    Files(out).put("a scene")
    return out


@pytest.fixture(scope="module")
def hall(site, tmp_path_factory):
    with a_hall(site, tmp_path_factory.mktemp("data")) as hall:
        yield hall


# -- files -----------------------------------------------------------------------------------------
def test_files_are_compressed_and_kept_by_browsers(hall):
    page = hall.ask("/", Accept_Encoding="gzip")
    assert page.headers["content-encoding"] == "gzip" and page.headers["cache-control"] == "no-cache"
    assert b"data-static data-hall>" in decompress(page.body), "the page knows that there is a hall"
    assert hall.ask("/", If_None_Match=page.headers["etag"]).status == 304
    script = hall.ask(f"/site-{name_of(b'')}.js", Accept_Encoding="gzip")
    assert "immutable" in script.headers["cache-control"] and len(script.body) < 200
    scene = hall.ask(f"/files/{name_of(b'a scene')}.bin")
    assert "immutable" in scene.headers["cache-control"] and decompress(scene.body) == b"a scene"
    assert scene.headers["x-content-type-options"] == "nosniff"
    moved = hall.ask("/softmax?chapter=3")
    assert moved.status == 307 and moved.headers["location"].endswith("/softmax/?chapter=3")


@pytest.mark.parametrize(
    "path",
    (
        "/../secret.txt",
        "/..%2fsecret.txt",
        "/files/../../secret.txt",
        "/%2e%2e/secret.txt",
        "//etc/passwd",
        "/.build/counts-softmax.json",
        "/files/..%5c..%5csecret.txt",
        "/%00",
    ),
)
def test_nothing_outside_the_site_is_sent(hall, path):
    assert hall.ask(path).status == 404


# -- requests that are wrong -----------------------------------------------------------------------
def test_what_is_wrong_with_a_request_is_said(hall):
    def refused(status, part, path=PRESS, body=STAGE, **more):
        answer = hall.ask(path, "POST", body, **more)
        assert answer.status == status and part in answer.error, (answer.status, answer.error)
        assert "Traceback" not in answer.error

    refused(415, "application/json", Content_Type="text/plain")
    refused(400, "not JSON", body=b"{")
    refused(400, "object", body=[])
    refused(400, "Unknown field: shape", body=STAGE | {"shape": 3})
    refused(400, "size is missing", body={"key": "softmax", "do": "run"})
    refused(400, "size must be text", body=STAGE | {"size": 3})
    refused(413, f"{MAX_BODY} bytes", body=STAGE | {"key": "x" * MAX_BODY})
    refused(400, "do must be", body=STAGE | {"do": "stop"})
    refused(400, "32 hexadecimal digits", session="")
    refused(400, "32 hexadecimal digits", session="../etc")
    refused(404, "no button ran", body=STAGE | {"key": "ran"})
    refused(404, "no page", path="/hall/press/nowhere")
    refused(404, "does not know this run", path="/hall/runs/none/stop")
    refused(414, "too long", path=f"{PRESS}&x={'y' * 20_000}")
    # Another site's page may not start runs.
    refused(403, "another site", Origin="https://example.org")
    refused(403, "another site", Sec_Fetch_Site="cross-site")
    assert hall.ask("/", "POST", b"").status == 405


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        ({"view": "explore", "M": "-4"}, "M must be 1 to 1,048,576 on this page, got “-4”: M=4 is used"),
        ({"view": "explore", "M": "2.5"}, "M must be a whole number, got “2.5”: M=4 is used"),
        ({"view": "explore", "rung": "fastest"}, "got “fastest”: rung=online is used"),
        ({"view": "explore", "caches": "warm"}, "caches must be one of cold, hot; got “warm”"),
        ({"view": "explore", "rung": "online", "BLOCK": "100"}, "BLOCK"),
    ],
)
def test_a_shape_or_rung_that_breaks_a_rule_is_refused_in_the_words_of_the_app(hall, params, sentence):
    answer = hall.press("softmax", "softmax", session="a" * 32, **params)
    assert answer.status == 400 and sentence in answer.error


def test_a_kernel_that_needs_a_gpu_is_refused_with_the_reason(hall):
    answer = hall.press("transfers", "transfers", session="b" * 32, chapter=1)
    assert answer.status == 422 and "Copies to a GPU need one" in answer.error


def test_too_many_requests_of_one_reader(hall):
    session = "c" * 32
    answers = [hall.ask("/hall/strip/glossary", session=session) for _ in range(BURST + 30)]
    assert 429 in [answer.status for answer in answers] and "Too many requests" in answers[-1].error
    assert hall.ask("/hall/strip/glossary").status == 200, "others go on"


# -- runs ------------------------------------------------------------------------------------------
def test_a_run_shows_its_progress_and_its_result_on_the_page(hall):
    before = hall.ask("/hall/strip/softmax?chapter=3").json()["strip"]
    assert before["run"]["can"] and "This processor is the server's" in before["run"]["text"]
    started = hall.press("softmax", "softmax", chapter=3)
    assert started.status == 202 and started.json()["strip"]["run"]["running"]
    assert hall.press("softmax", "softmax", chapter=3).status == 409, "one run at a time"
    run = started.json()["run"]
    assert hall.ask(f"/hall/runs/{run}/stop", "POST", b"", session="d" * 32).status == 404, "it is another reader's"
    states = list(hall.states(run))
    assert states[-1]["done"] and not states[0]["done"] and states[0]["text"]
    (size,) = [one for one in hall.strip("softmax", chapter=3)["sizes"] if one["key"] == "stage"]
    assert size["time"]["badge"]["kind"] == "measured"
    (other,) = [one for one in hall.strip("softmax", "e" * 32, chapter=3)["sizes"] if one["key"] == "stage"]
    assert other["time"]["badge"]["kind"] == "recorded", "what one reader measured, others see in History alone"
    history = hall.ask("/hall/page/history").body.decode()
    assert "measured here" in history or '"kind":"measured"' in history
    exported = hall.ask("/hall/file/history?origin=here&file=export_JSON")
    assert exported.status == 200 and {row["engine"] for row in json.loads(exported.body)["rows"]} == {"cpu"}
    again = hall.ask("/hall/rows?name=mine.json", "POST", exported.body)
    assert again.json()["rows"] > 0 and again.json()["new"] == 0
    assert hall.ask("/hall/rows?name=bad.json", "POST", b"{").status == 400


def test_a_stopped_run_says_so(hall):
    run = hall.press("softmax", "softmax", session="f" * 32, view="explore", M=7).json()["run"]
    assert hall.ask(f"/hall/runs/{run}/stop", "POST", b"", session="f" * 32).status == 200
    assert list(hall.states(run, "f" * 32))[-1]["done"]
    assert hall.strip("softmax", "f" * 32, view="explore", M=7)["run"]["error"] == "cancelled"


def test_a_reader_that_leaves_loses_nothing(hall):
    session = "9" * 32
    run = hall.press("softmax", "softmax", session=session, view="explore", M=5).json()["run"]
    next(hall.states(run, session))  # and the connection is closed
    until(lambda: list(hall.states(run, session))[-1]["done"], 60)
    (size,) = [one for one in hall.strip("softmax", session, view="explore", M=5)["sizes"] if one["key"] == "stage"]
    assert size["time"]["badge"]["kind"] == "measured"


def test_a_killed_hall_loses_no_run(hall):
    """The last test of this process. The job service goes on, and the rows are in the store."""
    run = hall.press("softmax", "softmax", session="8" * 32, view="explore", M=6).json()["run"]
    next(hall.states(run, "8" * 32))
    hall.process.kill()
    hall.process.wait()
    store = Store(hall.data / folder.FILE)
    until(lambda: any(entry.row["shape"]["M"] == 6 for entry in store.rows()), 60)


# -- what does not need a process ------------------------------------------------------------------
class PagesThatAsk:
    """Stands in for the process that draws pages: a press submits one job."""

    def __init__(self):
        self.finished = []

    async def ask(self, name, *args):
        if name == "finish":
            self.finished.append(args[-3:])
            return Pressed(None, (), (), ("softmax", {}))
        return Pressed({"run": {}}, (Submitted(0, object(), READER, False, ""),), (), ("softmax", {}))


class NoService:
    def submit(self, *_, **__):
        raise JobError("the job service does not start (exit status 1); jobs.log says why")


def in_a_thread(coroutine: Coroutine[Any, Any, Any]) -> None:
    """Runs a coroutine where no other test's browser has left its event loop."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, coroutine).result()


def test_a_job_service_that_cannot_start_is_said_and_the_page_can_run_again():
    pages = PagesThatAsk()
    started = runs.Runs(pages)
    started._queue = NoService()
    with pytest.raises(Refusal, match="does not start") as refusal:
        in_a_thread(started.press(READER, "softmax", {}, "softmax", {"do": "run", "size": "stage"}))
    assert refusal.value.status == 503
    assert [error for _, error, _ in pages.finished] == [refusal.value.sentence]


def test_a_folder_without_a_site_and_a_taken_port_are_said(tmp_path, capsys, hall):
    assert main([str(tmp_path), "--port", "0"]) == 1 and "holds no site" in capsys.readouterr().err
    assert main([str(tmp_path), "--port", "0", "--certificate", str(tmp_path / "none.pem")]) == 1
    assert "there is no certificate" in capsys.readouterr().err
    assert main([str(tmp_path), "--port", "70000"]) == 1 and "cannot be used" in capsys.readouterr().err


def test_pages_of_an_older_build_are_named(tmp_path):
    (tmp_path / ".build").mkdir()
    for path, digest in (("softmax", name_of(b"other code")), ("glossary", None)):
        reads = {"hall/__init__.py": digest} if digest else {}
        state = {"depth": 0, "unit": {"path": path, "reads": reads}}
        (tmp_path / ".build" / f"{path}.json").write_text(json.dumps(state), "utf-8")
    assert outdated(tmp_path) == ["softmax"]
