"""Recordings of several GPUs: each comparison is of one GPU, by a rule or by the reader's choice."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels import engines, records, sweep
from kernels.__main__ import main
from kernels.ladders import LADDERS, find
from kernels.machine import memory_levels
from kernels.machine.status import Status
from kernels.records import Gpu, files, gpus, levels, unsupported
from kernels.sweep import Sweep, missing
from tests.helpers.recordings import own_recordings, recordings

H200, OTHER = Gpu("NVIDIA H200"), Gpu("NVIDIA Other 24GB", own=True)
SOFTMAX = records.recordings("softmax")


def on_other(rows, factor: float = 2.0):
    """Returns the rows as another GPU might have measured them."""
    times = {"median_ms", "p20_ms", "p80_ms"}
    return [
        {name: value * factor if name in times else value for name, value in row.items()}
        | {"device": OTHER.device, "samples_ms": [ms * factor for ms in row["samples_ms"]]}
        for row in rows
    ]


# -- the rule --------------------------------------------------------------------------------------
H100, OWN_H200 = Gpu("NVIDIA H100 80GB HBM3"), Gpu("NVIDIA H200", own=True)


def test_the_default_gpu_covers_most_and_a_tie_goes_to_the_first():
    assert gpus.default({}) is None
    assert gpus.default({H200: 10, H100: 11}) == H100
    assert gpus.default({H100: 10, H200: 10, OWN_H200: 10}) == H200
    assert gpus.default({OWN_H200: 3, H100: 3}) == H100


@given(st.dictionaries(st.builds(Gpu, st.sampled_from("abcd"), st.booleans()), st.integers(0, 3), min_size=1))
def test_the_default_gpu_does_not_depend_on_the_order(coverage):
    first = gpus.default(coverage)
    assert coverage[first] == max(coverage.values())
    assert gpus.default(dict(reversed(coverage.items()))) == first


def test_keys_name_gpu_and_owner():
    assert (H100.key, OWN_H200.key) == ("nvidia-h100-80gb-hbm3", "own-nvidia-h200")
    assert (H100.name, OWN_H200.name) == ("H100 80GB HBM3", "H200, own recording")


def test_a_cached_result_is_of_the_chosen_gpu():
    calls = []

    @gpus.cached(None)
    def remembered(word: str) -> str:
        calls.append(word)
        return gpus.chosen() + word

    with gpus.using("nvidia-x"):
        assert remembered("!") == remembered("!") == "nvidia-x!"
    assert remembered("!") == "!" and len(calls) == 2


# -- two GPUs -------------------------------------------------------------------------------------
def test_with_the_shipped_recordings_alone_each_ladder_has_all_rows():
    assert {gpu for name in LADDERS for gpu in records.gpus_of(name) if gpu.own} == set()
    for name in LADDERS:
        assert set(records.rows_by_gpu(name)) == set(records.gpus_of(name))


def test_rows_of_two_gpus_are_never_mixed(tmp_path):
    half = [row for row in SOFTMAX if row["shape"]["N"] <= 1024]
    with own_recordings(tmp_path, other=on_other(half)):
        assert records.gpus_of("softmax") == (H200, OTHER) and records.shown("conv") == H200
        assert records.recordings("softmax") == SOFTMAX
        row = half[0]
        rung = find(row["rung"])
        shape = LADDERS["softmax"].shape(**row["shape"])
        setting = rung.name, shape, row["tiles"], row["mode"]
        with gpus.using(OTHER.key):
            assert {r["device"] for r in records.recordings("softmax")} == {OTHER.device}
            assert records.recorded(*setting)["median_ms"] == 2 * row["median_ms"]
            assert records.nearest(*setting).row["device"] == OTHER.device
            assert {r["device"] for r in records.recordings("conv")} == {H200.device}
            assert records.shown("softmax", "conv") == H200, "one GPU for both"
        assert records.recorded(*setting)["median_ms"] == row["median_ms"]
        assert records.recorded(*setting, gpu=OTHER)["device"] == OTHER.device
        with gpus.using("no such GPU"):
            assert records.shown("softmax") == H200
    assert records.gpus_of("softmax") == (H200,)


def test_a_part_of_a_ladder_is_covered_by_the_gpu_that_has_most_of_it():
    def on(device, row):
        return row | {"device": device, "ceilings": row["ceilings"] | {"device": device}}

    rows = records.recordings("softmax")
    online = [row for row in rows if row["rung"] == "softmax/online"][:4]
    others = [row for row in rows if row["rung"] == "softmax/three-pass"][:4]
    other = [on("NVIDIA Other", row) for row in online]
    with recordings(*others, *online[:2], *other):
        assert records.shown("softmax") == H200
        assert records.covering("softmax/online") == Gpu("NVIDIA Other")
        assert records.covering("softmax/none") is None
    with recordings(*others, *online, *other):
        assert records.covering("softmax/online") == H200  # as much, and the first GPU goes first


def test_a_ladder_whose_rows_are_of_older_kernels_is_shown_from_the_other_gpu(tmp_path, monkeypatch):
    shipped = [row | {"kernels": "0" * 16} for row in SOFTMAX]
    monkeypatch.setattr(files, "_shipped", lambda: ((Gpu(row["device"]), row) for row in shipped))
    with own_recordings(tmp_path, other=on_other(SOFTMAX)):
        assert records.gpus_of("softmax") == (OTHER,)
        assert len(records.recordings("softmax")) == len(SOFTMAX)


def test_an_own_file_with_wrong_lines_is_shown_without_them(tmp_path):
    good = on_other(SOFTMAX[:2])
    with own_recordings(tmp_path, other=good) as folder:
        with folder.joinpath("other.jsonl").open("a") as file:
            file.write('{"rung": "softmax/naive"}\n{"rung": "cut sho')
        folder.joinpath("picture.jsonl").write_bytes(b"\xff\xfe\x00")
        folder.joinpath("other.unsupported.json").write_text("{}")
        folder.joinpath("other.levels.json").write_text("[]")
        records.forget()
        assert len(records.recordings("softmax", OTHER)) == 2
        first, second = files.problems()
        assert first.startswith("other.jsonl in the folder of your recordings: line 3 is left out.")
        assert second == "picture.jsonl in the folder of your recordings cannot be read."
        assert unsupported.recorded("softmax/naive", LADDERS["softmax"].shape(**good[0]["shape"])) is None
        assert levels.recorded(OTHER) is None


def test_what_a_library_does_not_support_is_of_the_gpu(tmp_path):
    (device, entries), *_ = unsupported._recorded().items()
    assert device == H200
    (rung, text), entry = next((key, e) for key, e in entries.items() if key[0].startswith("attention/"))
    shape = LADDERS["attention"].shape(**json.loads(text))
    rows = on_other(records.recordings("attention"))
    with own_recordings(tmp_path, other=rows):
        assert unsupported.recorded(rung, shape) == entry
        with gpus.using(OTHER.key):
            assert unsupported.recorded(rung, shape) is None
        assert unsupported.recorded(rung, shape, OTHER) is None


def test_levels_of_a_gpu_are_beside_its_recording(tmp_path):
    assert levels.recorded(H200) == memory_levels.recorded() and levels.recorded(None) is None
    with own_recordings(tmp_path, other=on_other(SOFTMAX[:1])) as folder:
        assert levels.recorded(OTHER) is None
        found = memory_levels.gpu_levels(OTHER.device, {38: 1 << 20}.get, 1 << 30)
        memory_levels.write(levels.path_beside(folder / "other.jsonl"), found)
        assert levels.recorded(OTHER) == found


# -- the command -----------------------------------------------------------------------------------
@pytest.fixture
def recorded_rungs(monkeypatch):
    """Softmax with the rungs that have recordings, and its recordings alone."""
    names = {row["rung"] for row in SOFTMAX}
    monkeypatch.setitem(LADDERS, "softmax", LADDERS["softmax"].only(*names))
    monkeypatch.setattr(files, "_shipped", lambda: ((Gpu(row["device"]), row) for row in SOFTMAX))
    records.forget()
    yield
    records.forget()


@pytest.mark.usefixtures("recorded_rungs")
def test_missing_counts_rows_of_older_kernels(tmp_path):
    softmax = Sweep("cuda", modes=("cold",), ladders=("softmax",))
    whole = missing(H200, softmax)
    assert not whole.rungs and whole.total > 50 and whole.file == records.FOLDER / "nvidia-h200.jsonl"
    first, second, *others = on_other(row for row in SOFTMAX if row["mode"] == "cold")
    with own_recordings(tmp_path, other=[first | {"kernels": "0" * 16}, *others]) as folder:
        found = missing(OTHER, softmax)
        assert found.superseded == 1 and found.file == folder / "other.jsonl"
        assert Counter(found.rungs) - Counter(whole.rungs) == Counter([first["rung"], second["rung"]])


@pytest.mark.usefixtures("recorded_rungs")
def test_missing_names_the_command_for_each_gpu(tmp_path, capsys):
    cold = [row for row in SOFTMAX if row["mode"] == "cold"]
    with own_recordings(tmp_path, other=on_other(cold[1:])) as folder:
        assert main(["record", "--missing", "--ladders", "softmax", "--modes", "cold"]) == 0
        text = capsys.readouterr().out
    whole = Counter(missing(H200, Sweep("cuda", modes=("cold",), ladders=("softmax",))).rungs)
    lines = text[text.index(f"{OTHER.device} (") :].splitlines()
    lacks = whole + Counter([cold[0]["rung"]])
    assert f"): {lacks.total()} of " in lines[0]
    listed = [line.split() for line in lines[1 : 1 + len(lacks)]]
    assert {rung: int(rows) for rung, rows in listed} == lacks
    assert lines[1 + len(lacks)].endswith(f"python -m kernels record --ladders softmax --out {folder / 'other.jsonl'}")


def test_without_a_file_a_gpu_is_recorded_where_the_pages_look(tmp_path, monkeypatch, capsys):
    outputs = []
    monkeypatch.setattr("kernels.__main__.record", lambda out, *_: outputs.append(out) or ())
    monkeypatch.setattr(engines.load("cuda"), "status", lambda: Status(True, OTHER.device))
    with own_recordings(tmp_path) as folder:
        assert main(["record", "--ladders", "softmax"]) == 0
    assert outputs == [folder / "nvidia-other-24gb.jsonl"]
    assert "The app shows them from its next start." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"), [(["--engine", "cpu"], "name a file by --out"), (["--ladders", "gem"], "no ladder 'gem'")]
)
def test_what_cannot_be_recorded_is_named(arguments, message, capsys):
    assert main(["record", *arguments]) == 2 and message in capsys.readouterr().err


def test_a_recording_writes_the_levels_of_its_gpu_once(tmp_path, monkeypatch):
    row = next(row for row in SOFTMAX if row.get("ceilings"))
    found = memory_levels.gpu_levels(H200.device, {38: 1 << 20}.get, 1 << 30)
    monkeypatch.setattr(memory_levels, "gpu", lambda status: found)
    out = tmp_path / "here.jsonl"
    sweep._write_levels(out, "cpu", row)
    assert not levels.path_beside(out).exists()
    sweep._write_levels(out, "cuda", row)
    written = memory_levels.read(levels.path_beside(out))
    assert written.levels == found.levels and written.date == row["date"]
    assert written.copy_bytes_per_s == row["ceilings"]["copy_bytes_per_s"]
    levels.path_beside(out).write_text("mine")
    sweep._write_levels(out, "cuda", row)
    assert levels.path_beside(out).read_text() == "mine"
