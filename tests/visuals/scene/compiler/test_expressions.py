"""The language of views: what an expression is for each thread, the names in it, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from tests.helpers.offenders import every
from visuals.scene.compiler.expressions import ExpressionError, Value, parse, template


class Threads:
    """Four threads, of which the last has no m and the first two are active."""

    among = np.array([True, True, False, False])

    def value(self, name: str) -> Value:
        known = np.array([True, True, True, False])
        found = {
            "m": Value(np.array([1, -np.inf, 3, 9], np.float32), known),
            "x": Value(np.array([2, np.nan, 4, 8], np.float32)),
            "i": Value(np.array([0, 1, 2, 3])),
            "N": Value(np.asarray(40)),
            "running.m.before": Value(np.zeros(4)),
        }
        return found[name]

    def element(self, name: str, index: Value) -> Value:
        return Value(100 + np.broadcast_to(index.of, 4))

    def received(self, name: str) -> Value:
        return Value(np.array([5, 6, 7, 8]))

    def count(self, name: str) -> int:
        return 3


def of(text: str, thread: int = 0) -> float:
    return parse(text).value(Threads()).at(thread)


@every(
    ("text", "expected"),
    [
        ("m + x", 3),
        ("-m", -1),
        ("4 * N", 160),
        ("i ^ 1", 1),
        ("N // 3 % 5", 3),
        ("exp(m - m)", 1),
        ("where(m > 0, 7, 8)", 7),
        ("m < x and not isnan(x)", 1),
        ("m > x or m == 1", 1),
        ("x < inf", 1),
        ("max(m)", 1),
        ("min(i)", 0),
        ("sum(i)", 1),
        ("any(isnan(x))", 1),
        ("distinct(i)", 2),
        ("distinct(0 * i)", 1),
        ("max(N)", 40),
        ("partial[i + 2]", 102),
        ("received(m) + count(x)", 8),
        ("running.m.before", 0),
        ("at(i, 3)", 3),
    ],
)
def test_values(text, expected):
    assert of(text) == expected


def test_a_thread_without_a_value_has_none():
    assert np.isnan(of("m + x", 3)) and not np.isnan(of("m + x", 2))
    assert of("max(m)") == 1  # of the active threads


def test_names_are_those_of_variables_and_arrays():
    assert parse("exp(running.m.before - m) + partial[thread + stride]").names == (
        "running.m.before",
        "m",
        "partial",
        "thread",
        "stride",
    )


def test_a_sentence_has_a_field_for_each_different_expression():
    text, fields = template("Thread {thread} keeps {m}: [m](filter) = {m}, not {m + 1}.")
    assert text == "Thread {0} keeps {1}: [m](filter) = {1}, not {2}."
    assert [field.text for field in fields] == ["thread", "m", "m + 1"]


@every("text", ["", "m +", "import os", "open(x)", "m.__class__()", "[m for m in x]", "lambda: m", "'m'", "1 < m < 3"])
def test_anything_else_is_refused(text):
    with pytest.raises(ExpressionError):
        parse(text)


def test_spacing_is_that_of_fp32_numbers():
    assert of("spacing(1000000 + 0 * i)") == 0.0625


def test_words_of_one_bank_are_in_different_wavefronts():
    assert [of("wavefront(32 * i)", thread) for thread in range(2)] == [0, 1]
    assert [of(text, 1) for text in ("wavefront(i)", "wavefront(0 * i)")] == [0, 0]  # another bank, the same word
