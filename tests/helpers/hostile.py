"""Checks for the URLs of lessons with rungs and tile sizes, with any values in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from hypothesis import strategies as st


def anything(names: Iterable[str]) -> st.SearchStrategy:
    """Returns a strategy for parameter values of a hostile or careless reader, including rung names."""
    return st.one_of(
        st.text("0123456789.-+eE_<>'&\n ١x\0", max_size=30),
        st.integers(),
        st.floats(),
        st.none(),
        st.sampled_from(["abc", "1e9", "nan", "inf", "-inf", "<script>", "8.5", "9" * 4000, *names]),
    )


def assert_changed_with_note(result: Any, default: Any, values: Mapping[str, Any], notes: list[str]) -> None:
    """Asserts that rejected values became the defaults, with a note."""
    changed = {name for name, value in result.params().items() if value != values[name]}
    assert bool(changed) == bool(notes)
    assert all(getattr(result, name) == getattr(default, name) for name in changed)


def assert_valid(state: Any, notes: list[str], shape: type, rungs: Mapping[str, Any]) -> None:
    """Asserts that this is a valid state of the page and that the notes are short."""
    assert isinstance(state.shape, shape) and state.rung in rungs.values()
    assert all(state.tiles[name] in choices for name, choices in state.rung.tiles.items())
    assert all(len(note) < 450 for note in notes)


def assert_bounds(shape: Any, bounds: Mapping[str, Any], read: Callable[[Mapping], tuple[Any, list[str]]]) -> None:
    """Asserts that a value at a bound is accepted, and that one step beyond a bound of a rule gives a note."""
    for name, bound in bounds.items():
        for value in (bound.low, bound.high):
            assert read({**shape.params(), name: value})[1] == []
        if bound.why_high:
            assert read({**shape.params(), name: bound.high + 1})[1] != []
        if bound.why_low:
            assert read({**shape.params(), name: bound.low - 1})[1] != []
