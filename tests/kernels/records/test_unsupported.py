"""What a library said about a shape that it does not support, as a page shows it."""

from __future__ import annotations

import re

from kernels import records
from kernels.attention.presets import ATTENTION_PRESETS
from kernels.records import unsupported

RECORDED = [entry for file in sorted(records.FOLDER.glob(f"*{unsupported.ENDING}")) for entry in unsupported.read(file)]


def test_recorded_messages_are_plain_clauses():
    """Each message in the recordings is known, and none shows names of PyTorch's or cuDNN's source."""
    clauses = {(entry["rung"], unsupported.plain(entry["said"])) for entry in RECORDED}
    halves = "PyTorch runs this kernel in FP16 and BF16 only"
    assert {("attention/library-flash", halves), ("attention/library-cudnn", halves)} <= clauses
    for rung, clause in clauses:
        assert len(clause) < 80, rung
        assert not re.search(r"CUDNN_STATUS|Expected|dtype|[{}]", clause), rung
    for entry in RECORDED:
        assert unsupported.plain(entry["said"]) != entry["said"]


def test_a_recorded_clause_names_device_and_date():
    shape = ATTENTION_PRESETS["attention-2048"].shape
    entry = unsupported.recorded("attention/library-flash", shape)
    assert unsupported.sentence("attention/library-flash", shape) == (
        f"PyTorch runs this kernel in FP16 and BF16 only (tried on NVIDIA H200, {entry['date']})"
    )


def test_unknown_message_stays():
    assert unsupported.plain("a library does not support this") == "a library does not support this"
