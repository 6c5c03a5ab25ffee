"""Rows with optional fields: a timeline, copies, ceilings. Older rows without them stay valid."""

from __future__ import annotations

import copy

import pytest

from kernels import records
from kernels.conv import ladder as conv_ladder
from kernels.conv.presets import CONV_PRESETS
from kernels.ladders import ladder_of
from kernels.machine.timing import Budget
from kernels.records import availability, link, rows
from kernels.records import row as records_row
from kernels.records.jsontext import RowError
from kernels.records.row import is_current, is_disturbed
from kernels.runner import compare
from tests.helpers.offenders import every
from tests.helpers.recordings import own_recordings
from tests.helpers.rows_of import CEILINGS, COPIES, TIMELINE, a_full_row, a_row

QUICK = Budget(samples=3, seconds=0.1, min_samples=1, warm_up_s=0)


def without(row: dict, name: str) -> dict:
    return {k: v for k, v in row.items() if k != name}


def test_rows_with_and_without_optional_fields_are_accepted():
    rows.check(a_row())
    rows.check(a_full_row())
    for name in ("timeline", "copies_ms", "ceilings"):
        rows.check(without(a_full_row(), name))
    rows.check(a_full_row(timeline=[]))
    rows.check(a_row(disturbed="", others={"waited": 0.0}))
    rows.check(a_row(disturbed="cores", others={"waited": 0.4, "cores": 0.9}))
    rows.check(a_row(disturbed="network"))  # as a later version may name it


def test_row_of_a_run_is_accepted_and_unchanged_by_export():
    names = [r.name for r in availability.supported_rungs(conv_ladder.LADDER, "cpu", CONV_PRESETS["toy"].shape)]
    for result in compare(names, CONV_PRESETS["toy"].shape, engine="cpu", budget=QUICK):
        program = conv_ladder.LADDER.rung(result.rung).build(result.shape, result.tiles)
        row = records_row.row(result, program, "unknown")
        assert [stage["at"] for stage in row["timeline"]][-len(program.steps) :] == [
            s.name_on_cpu for s in program.steps
        ]
        assert row["ceilings"]["device"] == row["device"] and "copies_ms" not in row
        assert result.measurement.copies_ms is None  # nothing is copied on the cpu engine
        rows.check(row)
        assert rows.parse(rows.to_json([row])) == [row]


STAGE = TIMELINE[0]


@every(
    ("changes", "message"),
    [
        ({"timeline": {}}, "timeline must be a list"),
        ({"timeline": [*TIMELINE, "later"]}, "timeline must be a list of at most"),
        ({"timeline": [STAGE] * (rows.MAX_STAGES + 1)}, "at most 1000 stages"),
        ({"timeline": [*TIMELINE, without(STAGE, "at")]}, "at is missing"),
        ({"timeline": [*TIMELINE, STAGE | {"at": "two\nlines"}]}, "at must be a line"),
        ({"timeline": [*TIMELINE, without(STAGE, "workspace")]}, "input, output, workspace in whole bytes"),
        ({"timeline": [*TIMELINE, STAGE | {"output": -1}]}, "in whole bytes"),
        ({"timeline": [*TIMELINE, STAGE | {"output": 0.5}]}, "in whole bytes"),
        ({"timeline": TIMELINE[:1]}, "peak_bytes is not the most of timeline"),
        ({"copies_ms": [1, 2]}, "copies_ms must tell times above 0 of h2d_pageable"),
        ({"copies_ms": without(COPIES, "d2h_pinned")}, "copies_ms must tell times above 0"),
        ({"copies_ms": COPIES | {"h2d_pinned": 0}}, "copies_ms must tell times above 0"),
        ({"copies_ms": COPIES | {"h2d_pinned": "1"}}, "copies_ms must tell times above 0"),
        ({"copies_ms": COPIES | {"n": 0}}, "copies_ms must tell n"),
        ({"ceilings": None}, "ceilings must tell numbers above 0"),
        ({"ceilings": without(CEILINGS, "launch_us")}, "ceilings must tell numbers above 0"),
        ({"ceilings": CEILINGS | {"fp32_flops_per_s": 0}}, "ceilings must tell numbers above 0"),
        ({"ceilings": CEILINGS | {"copy": "a\x00"}}, "copy must be a line"),
        ({"ceilings": without(CEILINGS, "device")}, "device is missing"),
        ({"disturbed": None}, "disturbed must be a line"),
        ({"disturbed": "<b>"}, "disturbed is not a name"),
        ({"others": 0.5}, "others must tell numbers"),
        ({"others": {"cores": -1}}, "others must tell numbers"),
        ({"others": {"cores": "all"}}, "others must tell numbers"),
    ],
)
def test_impossible_fields_are_refused_by_name(changes, message):
    row = copy.deepcopy(a_full_row() | changes)
    with pytest.raises(RowError, match=message):
        rows.check(row)


# -- times that other programs disturbed -----------------------------------------------------------
def test_files_and_links_keep_that_a_row_is_disturbed():
    row = a_row(samples=[1.0 + n / 1e4 for n in range(700)], disturbed="cores", others={"waited": 0.4})
    assert rows.parse(rows.to_json([row])) == [row]
    assert ",cores" in rows.to_csv([row])
    long = row | {"a_field_of_later": {"text": [f"{n:x}" for n in range(700)]}}
    packed = link.pack(long)
    assert packed and "a_field_of_later" not in link.unpack(packed)
    assert is_disturbed(link.unpack(packed)) and not is_disturbed(a_row())


def test_an_undisturbed_recording_goes_before_a_disturbed_one_of_the_same_settings(tmp_path):
    row = next(r for r in records.recordings("softmax") if is_current(r))
    again = row | {"time": "2026-01-02T03:04:05Z"}
    shape = ladder_of(row["rung"]).shape(**row["shape"])
    disturbed = row | {"disturbed": "gpu"}
    for n, pair in enumerate(((disturbed, again), (again, disturbed))):
        with own_recordings(tmp_path / str(n), gpu=pair):
            (own,) = [gpu for gpu in records.gpus_of("softmax") if gpu.own]
            assert records.recorded(row["rung"], shape, row["tiles"], row["mode"], own) == again


def test_commit_is_unknown_without_git(monkeypatch, tmp_path):
    """A container has none, and its rows are stored all the same."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert records_row.commit() == "unknown"
