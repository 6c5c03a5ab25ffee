"""Pages are drawn one after the other, and stages before cards."""

import threading

import pytest

from pages.parts.turns import Turns

LONG_S = 60


def in_thread(draw, threads):
    thread = threading.Thread(target=draw, daemon=True)
    threads.append(thread)
    thread.start()
    return thread


def until(condition):
    """Waits until `condition()`; the test fails if it never is."""
    tick = threading.Event()
    for _ in range(LONG_S * 100):
        if condition():
            return
        tick.wait(0.01)
    raise AssertionError("it did not come")


def waiting(turns):
    return tuple(len(queue) for queue in turns._waiting)


def test_stages_come_in_their_order_and_before_the_cards_of_an_earlier_page():
    turns, events, threads = Turns(LONG_S), [], []
    paused, go_on = threading.Event(), threading.Event()

    def page_with_cards():
        with turns.turn():
            events.append("stage 0")
            with turns.paused():
                paused.set()
                go_on.wait(LONG_S)
            events.append("cards 0")

    def page(n):
        with turns.turn():
            events.append(f"stage {n}")

    in_thread(page_with_cards, threads)
    assert paused.wait(LONG_S)
    with turns.turn():  # this thread draws while the others come
        go_on.set()
        until(lambda: waiting(turns) == (0, 1))
        for n in (1, 2, 3):
            in_thread(lambda n=n: page(n), threads)
            until(lambda n=n: waiting(turns) == (n, 1))
        assert events == ["stage 0"]
    for thread in threads:
        thread.join(LONG_S)
    assert events == ["stage 0", "stage 1", "stage 2", "stage 3", "cards 0"]


def test_an_error_ends_a_turn():
    turns = Turns(LONG_S)
    for _ in range(2):
        with pytest.raises(ValueError), turns.turn(), turns.paused():
            raise ValueError
    assert turns._drawing is None


def test_a_page_that_takes_long_does_not_stop_the_others():
    turns, threads, drawn, end = Turns(0.01), [], threading.Event(), threading.Event()

    def short():
        with turns.turn():
            drawn.set()

    def long():
        with turns.turn():
            in_thread(short, threads)
            assert drawn.wait(LONG_S)
            end.set()

    in_thread(long, threads)
    assert end.wait(LONG_S)
    for thread in threads:
        thread.join(LONG_S)
    assert waiting(turns) == (0, 0) and turns._drawing is None


def test_a_long_queue_draws_one_after_the_other():
    turns, threads, drawing, most = Turns(0.05), [], [], []

    def page():
        with turns.turn():
            drawing.append(1)
            most.append(len(drawing))
            threading.Event().wait(0.02)
            drawing.pop()

    for _ in range(8):
        in_thread(page, threads)
    for thread in threads:
        thread.join(LONG_S)
    assert most == [1] * 8 and turns._drawing is None


def test_cards_wait_for_stages_that_come_in_the_time_of_patience_and_no_longer():
    turns, events, threads = Turns(LONG_S), [], []

    def page(rank, name):
        turns._take(rank)
        events.append(name)
        turns._pass_on()

    with turns.turn():
        for n, (rank, name) in enumerate(((1, "cards"), (0, "stage"), (0, "late stage")), 1):
            in_thread(lambda rank=rank, name=name: page(rank, name), threads)
            until(lambda n=n: sum(waiting(turns)) == n)
        stages = turns._waiting[0]
        stages[1] = (stages[1][0] + 2 * LONG_S, *stages[1][1:])
    for thread in threads:
        thread.join(LONG_S)
    assert events == ["stage", "cards", "late stage"]


def test_a_part_of_a_page_that_runs_alone_takes_no_turn():
    turns = Turns(LONG_S)
    with turns.paused():
        pass
    assert turns._drawing is None
    with turns.turn():
        pass
