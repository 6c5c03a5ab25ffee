"""The deliberate faults of tests/faults can still be applied. `make faults` says which tests catch them."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.faults import ROOT, Fault, all_faults
from tests.faults.__main__ import first_failure


def test_each_fault_changes_code_that_is_there_and_names_tests_that_exist():
    wrong = []
    for fault in all_faults():
        try:
            fault.applied((ROOT / fault.file).read_text())
        except (OSError, ValueError) as error:
            wrong.append(str(error))
        wrong += [f"{fault}: no {test}" for test in fault.tests if not (ROOT / test.split("::")[0]).exists()]
    assert not wrong


def test_names_are_unique():
    assert [name for name, times in Counter(map(str, all_faults())).items() if times > 1] == []


@pytest.mark.parametrize("text", ["", "a = 1; a = 1"])
def test_a_fault_whose_code_is_gone_or_there_twice_is_refused(text):
    with pytest.raises(ValueError, match="times, not once"):
        Fault("t", "n", "why", "f.py", "a = 1", "a = 2", ()).applied(text)


@pytest.mark.parametrize(("body", "caught"), [("assert True", False), ("assert False", True)])
def test_the_first_failure_is_named(body, caught, tmp_path):
    (tmp_path / "test_it.py").write_text(f"def test_it():\n    {body}\n")
    assert first_failure(tmp_path, ["test_it.py"]) == ("test_it.py::test_it" if caught else None)


def test_tests_that_cannot_be_collected_catch_nothing(tmp_path):
    (tmp_path / "test_it.py").write_text("def test_it(:\n")
    with pytest.raises(RuntimeError, match="pytest ended with"):
        first_failure(tmp_path, ["test_it.py"])
