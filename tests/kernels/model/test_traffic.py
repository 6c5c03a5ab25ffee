"""The bytes that must move through memory: each launch takes each of its buffers once, and what fits in a cache stays."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.embedding.reference import MAX_COUNTED, distributed, rows_used
from kernels.embedding.shape import EQUAL, TOKENS, EmbeddingShape
from kernels.ladders import find, ladder_of
from kernels.model.program import INPUT, OUTPUT, WORKSPACE, Buffer, Launch, Program
from kernels.model.traffic import necessary_bytes
from tests.helpers.offenders import every

FLOATS = 1000
SIZE = 4 * FLOATS


def program(*steps: str, in_place: bool = False, used: int = 0) -> Program:
    """Returns a program with these arguments of each launch: x, w (workspace), y, each of SIZE bytes."""
    buffers = (
        Buffer("x", INPUT, (FLOATS,), in_place=in_place, used=used),
        Buffer("w", WORKSPACE, (FLOATS,)),
        Buffer("y", OUTPUT, (FLOATS,)),
    )
    grid = (1, 1, 1)
    launches = (Launch("", "", grid, grid, (*args, np.int32(1)), lambda: None) for args in steps)
    return Program(buffers, tuple(launches))


@every(
    ("steps", "cache_bytes", "moved"),
    [
        (("xy",), 0, 2),  # read x, write y, however often the launch loads x
        (("xw", "wy"), 0, 4),  # w is written and read
        (("xw", "wy"), SIZE - 1, 4),
        (("xw", "wy"), SIZE, 2),  # w stays in the cache
        (("xw", "xy"), 0, 4),  # x is read by both launches
        (("xw", "xy"), SIZE, 2),
        (("y", "xy"), 0, 3),  # zeros, then sums
        (("xx", "y"), 0, 2),  # one argument twice is one buffer
    ],
)
def test_each_launch_takes_each_buffer_once(steps: tuple[str, ...], cache_bytes: int, moved: int) -> None:
    assert necessary_bytes(program(*steps), cache_bytes) == moved * SIZE


def test_hot_data_that_fits_does_not_move() -> None:
    assert necessary_bytes(program("xw", "wy"), SIZE, hot=True) == 0
    assert necessary_bytes(program("xw", "wy"), SIZE - 1, hot=True) == 4 * SIZE


def test_an_input_that_is_overwritten_is_read_and_written() -> None:
    assert necessary_bytes(program("x", in_place=True)) == 2 * SIZE


def test_of_a_table_only_the_rows_that_are_named_are_read() -> None:
    assert necessary_bytes(program("xy", used=10)) == 40 + SIZE


@every("tokens", TOKENS)
@every(("M", "V"), [(3, 1), (100, 7), (1024, 50257), (65536, 50257)])
def test_rows_used_are_those_of_random_tokens(M: int, V: int, tokens: str) -> None:
    s = EmbeddingShape(M, V, 4, tokens)
    uniform = {"tokens": np.random.default_rng(0).integers(0, V, M).astype(np.int32)}
    drawn = (uniform | distributed(s, uniform))["tokens"]
    assert rows_used(s) == pytest.approx(len(np.unique(drawn)), rel=0.05)


def test_rows_used_of_a_huge_vocabulary_are_bounded_without_a_list() -> None:
    assert rows_used(EmbeddingShape(100, 2**31 - 1, 4)) == 100
    assert rows_used(EmbeddingShape(100, 2**31 - 1, 4, EQUAL)) == 1
    assert rows_used(EmbeddingShape(2**22, MAX_COUNTED + 1, 4)) == MAX_COUNTED + 1


@pytest.mark.parametrize("rung", [f"softmax/{name}" for name in ("unsafe", "three-pass", "online", "registers")])
def test_kernels_that_read_a_row_again_must_move_the_same_bytes(rung: str) -> None:
    s = ladder_of(rung).shape(M=32768, N=1024)
    built = find(rung).build(s, find(rung).default_tiles)
    assert necessary_bytes(built, 2**26) == 2 * 4 * s.M * s.N
