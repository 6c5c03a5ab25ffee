"""One test over many quick cases: it lists every case that fails, not the first."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import pytest

T = TypeVar("T")


def over(cases: Iterable[tuple[str, T]]) -> Callable[[Callable[[T], None]], Callable[[], None]]:
    """Makes a test of one case, which asserts, a test of all (name, case): its failure lists the offenders."""

    def decorate(check: Callable[[T], None]) -> Callable[[], None]:
        def test() -> None:
            wrong = []
            for name, case in cases:
                try:
                    check(case)
                except (AssertionError, pytest.fail.Exception) as error:
                    wrong.append(f"{name}: {error}")
            assert not wrong, f"{len(wrong)} offenders\n" + "\n".join(wrong)

        test.__name__, test.__doc__, test.__module__ = check.__name__, check.__doc__, check.__module__
        return test

    return decorate


def every(
    names: str | Sequence[str], values: Iterable[Any], ids: Callable[[Any], str] | Sequence[str] = repr
) -> Callable[[Callable], Callable]:
    """Makes one test of all cases of quick checks; its arguments are those of `pytest.mark.parametrize`. The failure lists the
    offenders. Other parameters of the check stay fixtures, which all cases share."""
    own = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)

    def decorate(check: Callable) -> Callable:
        parameters = inspect.signature(check).parameters
        cases = [_values(value, len(own)) for value in values]

        def test(**shared: Any) -> None:
            assert cases, "no cases"
            wrong = []
            for n, case in enumerate(cases):
                try:
                    check(**dict(zip(own, case, strict=True)), **shared)
                except (AssertionError, pytest.fail.Exception) as error:
                    name = ", ".join(map(ids, case)) if callable(ids) else ids[n]
                    wrong.append(f"{name[:200]}: {error}")
                except Exception as error:
                    error.add_note(f"case {case!r}")
                    raise
            assert not wrong, f"{len(wrong)} offenders\n" + "\n".join(wrong)

        vars(test).update(vars(check))
        test.__name__, test.__doc__, test.__module__ = check.__name__, check.__doc__, check.__module__
        rest = [parameter for name, parameter in parameters.items() if name not in own]
        vars(test)["__signature__"] = inspect.Signature(rest)
        return test

    return decorate


def _values(value: Any, count: int) -> Sequence[Any]:
    if hasattr(value, "marks"):  # pytest.param
        assert not value.marks, "a case of a list cannot be marked"
        value = value.values[0] if count == 1 else value.values
    return (value,) if count == 1 else tuple(value)
