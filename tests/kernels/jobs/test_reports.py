"""What the job service reports to an app: one message for all states that changed, the end of a job at once."""

from __future__ import annotations

import queue
from types import SimpleNamespace

import pytest

from kernels.jobs.service import COUNTS, Packed, Peer
from kernels.jobs.worker import CANCELLED, REPLACED, Worker
from tests.children.helpers import act, begun

JOBS = 20


def packed(what: str) -> Packed:
    request = act(what)
    return Packed(request.label, "", request.key(), request.packed(), True)


@pytest.fixture
def peer():
    """Yields an app whose queue of counts is blocked by a run that hangs."""
    worker = Worker(module="tests.children.acts")
    begun(worker.submit(act("hang")))
    draining = SimpleNamespace(is_set=lambda: False)
    sent = queue.SimpleQueue()
    peer = Peer(SimpleNamespace(queues={COUNTS: worker}, draining=draining), SimpleNamespace(send=sent.put))
    peer.worker, peer.sent = worker, sent
    yield peer
    peer.send("the last one")
    assert [sent.get(timeout=5)] == [("the last one",)]  # every test has read all
    peer.leave()
    worker.close()


def submit(peer, number: int, what: str, owner: str) -> tuple:
    peer.handle(("submit", number, COUNTS, packed(what), owner, False))
    return peer.sent.get(timeout=5)


def test_the_states_that_changed_are_one_message_from_one_look_at_the_queue(peer, monkeypatch):
    for n in range(JOBS):
        answer = submit(peer, n, f"sleep 0.{n}1", f"reader {n}")
        assert answer[:3] == ("states", COUNTS, n + 1) and [state[:2] for state in answer[3]] == [(n, n + 1)]
    peer.handle(("cancel", 0, False))
    assert peer.sent.get(timeout=5)[:4] == ("done", 0, None, CANCELLED)
    looks, in_order = [], Worker._in_order
    monkeypatch.setattr(Worker, "_in_order", lambda worker: looks.append(1) or in_order(worker))
    for _ in range(2):  # the second time nothing has changed
        peer.report(COUNTS, peer.worker.positions())
    assert len(looks) == 2
    _, _, waiting, states = peer.sent.get(timeout=5)
    assert waiting == JOBS - 1 and [state[:2] for state in states] == [(n, n) for n in range(1, JOBS)]


def test_a_replaced_job_ends_at_once(peer):
    submit(peer, 0, "sleep 0.1", "ann")
    peer.handle(("submit", 1, COUNTS, packed("sleep 0.2"), "ann", False))
    ended, answer = peer.sent.get(timeout=5), peer.sent.get(timeout=5)
    assert ended[:4] == ("done", 0, None, REPLACED) and [state[:2] for state in answer[3]] == [(1, 1)]


def test_a_request_that_was_counted_before_is_answered_by_its_rows():
    worker = Worker(module="tests.children.acts")
    rows = worker.submit(act("sleep 0")).result(20)
    sent = queue.SimpleQueue()
    service = SimpleNamespace(queues={COUNTS: worker}, draining=SimpleNamespace(is_set=lambda: False))
    peer = Peer(service, SimpleNamespace(send=sent.put))
    peer.handle(("submit", 7, COUNTS, packed("sleep 0"), "ann", False))
    kind, number, *found = sent.get(timeout=5)
    assert (kind, number, found[0]) == ("done", 7, rows) and found[2]  # with the time of the measurement
    peer.leave()
    worker.close()
