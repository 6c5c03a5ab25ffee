"""How long the pages' runs take samples: set by the environment, three seconds without it."""

import pytest

from kernels.jobs.job import SECONDS, Request, seconds


@pytest.mark.parametrize(
    ("value", "expected"), [("0.5", 0.5), ("10", 10), ("", 3), ("soon", 3), ("nan", 3), ("inf", 3), ("-1", 3)]
)
def test_the_environment_sets_the_seconds(monkeypatch, value, expected):
    assert seconds({SECONDS: value}) == expected
    monkeypatch.setenv(SECONDS, value)
    assert Request(("conv/direct",), None).seconds == expected


def test_without_a_setting_a_run_takes_three_seconds():
    assert seconds({}) == 3
