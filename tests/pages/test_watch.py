"""The route by which a browser waits for news: it answers at once, on a change, or after a time; it never polls."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from starlette.applications import Starlette

from kernels.jobs.worker import Worker
from pages import _watch
from pages.parts import run
from pages.parts.watch import Watch
from tests.children.helpers import act, begun


def ask(path: str, seen: str = "", base: str = "") -> dict:
    """Returns the answer of the route, from a server of its own thread."""
    sent = []

    async def receive():
        await asyncio.Event().wait()

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": f"seen={seen}".encode(),
        "headers": [],
        "server": ("127.0.0.1", 80),
        "client": ("127.0.0.1", 1),
        "scheme": "http",
        "root_path": "",
    }
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, Starlette(routes=_watch.routes(base))(scope, receive, send)).result()
    body = b"".join(message.get("body", b"") for message in sent[1:])
    if sent[0]["status"] == 404:
        return {}
    assert sent[0]["status"] == 200
    assert (b"cache-control", b"no-store") in sent[0]["headers"]
    return json.loads(body)


class News:
    """Something to wait for. `read` is set each time it is read."""

    def __init__(self):
        self.state, self.listeners, self.read, self.reads = {"done": False}, set(), threading.Event(), 0
        self.watch = Watch(self._state, self._listen)

    def _state(self):
        self.reads += 1
        self.read.set()
        return self.state

    def _listen(self, listener):
        self.listeners.add(listener)
        return lambda: self.listeners.discard(listener)

    def tell(self, **state):
        self.state = state
        for listener in tuple(self.listeners):
            listener()


def test_the_first_question_is_answered_at_once():
    news = News()
    answer = ask(f"/{news.watch.path}")
    assert answer == {"done": False, "tag": answer["tag"]} and not news.listeners


@pytest.mark.parametrize("base", ["talk", "/a/b/"])
def test_the_route_under_a_base_path(base):
    news = News()
    assert "tag" in ask(f"/{base.strip('/')}/{news.watch.path}", base=base)


def test_an_answer_waits_for_a_change_and_is_not_read_meanwhile(monkeypatch):
    monkeypatch.setattr(_watch, "PAUSE_S", 0.0)
    news = News()
    tag = ask(f"/{news.watch.path}")["tag"]
    news.read.clear()
    with ThreadPoolExecutor(1) as thread:
        answer = thread.submit(ask, f"/{news.watch.path}", tag)
        assert news.read.wait(20)
        news.tell(done=True)
        assert answer.result(20)["done"]
    assert news.reads == 3 and not news.listeners


def test_without_a_change_it_answers_after_a_time(monkeypatch):
    monkeypatch.setattr(_watch, "WAIT_S", 0.1)
    news = News()
    tag = ask(f"/{news.watch.path}")["tag"]
    assert ask(f"/{news.watch.path}", tag) == {"done": False, "tag": tag}


def test_what_is_due_is_read_without_a_change(monkeypatch):
    monkeypatch.setattr(_watch, "PAUSE_S", 0.0)
    news = News()
    begin = time.monotonic()
    watch = Watch(lambda: {"done": time.monotonic() > begin + 0.1}, news._listen, lambda: 0.02)
    first = ask(f"/{watch.path}")
    assert first["done"] or ask(f"/{watch.path}", first["tag"])["done"]


def test_what_a_page_no_longer_waits_for_is_gone():
    news = News()
    path = f"/{news.watch.path}"
    del news
    gc.collect()
    assert ask(path) == ask("/stage/watch/unknown") == {"gone": True}


def test_other_requests_are_not_answered():
    news = News()
    assert ask("/im2col") == ask(f"/talk/{news.watch.path}") == {}
    assert "tag" in ask(f"/{news.watch.path}")


def test_what_a_page_has_left_is_gone_at_once_and_not_read():
    news, left = News(), []
    watch = Watch(news._state, news._listen, at_end=True, gone=lambda: bool(left))
    with ThreadPoolExecutor(1) as thread:
        answer = thread.submit(ask, f"/{watch.path}")
        assert news.read.wait(20)
        begin, reads = time.monotonic(), news.reads
        left.append(True)
        news.tell(done=False)
        assert answer.result(20) == {"done": True, "gone": True}
    assert news.reads == reads and not news.listeners and time.monotonic() - begin < 5
    assert ask(f"/{watch.path}") == {"done": True, "gone": True} and news.reads == reads


def test_what_is_not_due_is_not_read_before(monkeypatch):
    news = News()
    due_at = time.monotonic() + 0.3
    watch = Watch(
        lambda: {"done": time.monotonic() >= due_at} | news._state(),
        news._listen,
        lambda: max(0.05, due_at - time.monotonic()),
        at_end=True,
    )
    news.state = {}
    assert ask(f"/{watch.path}")["done"] and news.reads == 1


def test_the_progress_of_a_run_is_told_to_its_end():
    worker = Worker(module="tests.children.acts")
    try:
        job = worker.submit(act("hang"))
        watch = run.watch_job(job)
        begun(job)
        answer = ask(f"/{watch.path}")
        assert (answer["done"], answer["share"], answer["text"]) == (False, 0.2, "verifying hang")
        with ThreadPoolExecutor(1) as thread:
            last = thread.submit(ask, f"/{watch.path}", answer["tag"])
            worker.cancel(job)
            assert last.result(20)["done"]
    finally:
        worker.close()


def test_counts_are_answered_at_their_end_alone(monkeypatch):
    monkeypatch.setattr(_watch, "PAUSE_S", 0.0)
    news = News()
    watch = Watch(news._state, news._listen, at_end=True)
    with ThreadPoolExecutor(1) as thread:
        answer = thread.submit(ask, f"/{watch.path}")
        assert news.read.wait(20)
        news.read.clear()
        news.tell(done=False, text="2 shapes before this one")
        assert news.read.wait(20)
        assert not answer.done()
        news.tell(done=True, strip="counts")
        assert answer.result(20)["strip"] == "counts"
    assert not news.listeners
