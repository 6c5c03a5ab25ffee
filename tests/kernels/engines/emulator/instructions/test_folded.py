"""Every typed PTX instruction in the emulator, against what ptxas or a GPU computes, bit for bit.

The fixtures ptx_folds.json (constants that ptxas folds) and ptx_gpu.json are written by benchmarks/ptx_folds.py. Only the
payload of a NaN may differ: PTX leaves it open.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.helpers import ptx_instructions
from tests.helpers.ptx_instructions import GROUPS, Typed, approximations, differences, emulated

FIXTURES = {path.stem: path for path in (Path(__file__).parents[4] / "fixtures").glob("ptx_*.json")}
LEAST = {"ptx_folds": 159, "ptx_gpu": 1257}  # instructions with a result in every case


def _expected(results: dict[str, str], i: Typed) -> tuple[np.ndarray, np.ndarray]:
    """Returns (the cases with a result, their results as uint64)."""
    texts = results[i.text].split() if i.text in results else ["-"] * len(i.cases)
    assert len(texts) == len(i.cases), "the table has changed: write the fixture again"
    at = [n for n, text in enumerate(texts) if text != "-"]
    return np.array(at, int), np.array([int(texts[n], 16) for n in at], np.uint64)


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("fixture", FIXTURES)
def test_emulator_computes_the_same_bits(fixture, group):
    results = json.loads(FIXTURES[fixture].read_text())["results"]
    wrong = []
    for i in GROUPS[group]():
        at, expected = _expected(results, i)
        if at.size:
            wrong += differences(i, at, emulated(i)[at], expected)
    assert not wrong, "\n".join(wrong)


def test_docs_state_the_counts_of_the_fixtures():
    text = " ".join((Path(__file__).parents[5] / "docs/emulator.md").read_text().split())
    for path in FIXTURES.values():
        results = json.loads(path.read_text())["results"]
        values = sum(value != "-" for texts in results.values() for value in texts.split())
        assert f"{len(results):,}" in text and f"{values:,} results" in text, path.name


@pytest.mark.parametrize("fixture", LEAST)
def test_fixtures_have_every_case_of_as_many_instructions(fixture):
    results = json.loads(FIXTURES[fixture].read_text())["results"]
    whole = [i.text for i in ptx_instructions.instructions() if "-" not in results.get(i.text, "-")]
    assert len(whole) >= LEAST[fixture]


# Results on an H200: .ftz flushes subnormal operands and results of float64 too.
UPPER_WORDS = {
    "rcp.approx.ftz.f64 %d, %a;": {
        0x800FFFFFFFFFFFFF: 0xFFF0000000000000,
        0x7FEFFFFFFFFFFFFF: 0,
        0xFFEFFFFFFFFFFFFF: 0x8000000000000000,
    },
    "rsqrt.approx.ftz.f64 %d, %a;": {1: 0x7FF0000000000000, 0x800FFFFFFFFFFFFF: 0xFFF0000000000000},
}


def test_approximations_of_float64_have_zeros_in_their_lower_words():
    for i in approximations():
        if i.text not in UPPER_WORDS:
            continue
        got = emulated(i)
        assert not np.any(got & np.uint64(0xFFFFFFFF)), i.text
        results = {case[0]: int(value) for case, value in zip(i.cases, got, strict=True)}
        assert {a: results[a] for a in UPPER_WORDS[i.text]} == UPPER_WORDS[i.text]
