"""One test over many quick cases: it lists every case that fails, not the first."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

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
