"""Recordings: complete rows, made by the kernels that are in the tree."""

from __future__ import annotations

import json

import pytest

from kernels import records
from kernels.__main__ import main
from kernels.conv import ladder as conv_ladder
from kernels.conv import winograd as conv_winograd
from kernels.conv.presets import CONV_PRESETS
from kernels.gemm.shape import GemmShape
from kernels.ladders import LADDERS, find
from kernels.machine import processor
from kernels.machine.timing import MODES, Budget
from kernels.records import availability, unsupported
from kernels.records import row as records_row
from kernels.records.nearest import nearest as find_nearest
from kernels.records.row import digest_of, kernel_digest
from kernels.runner import run
from kernels.sweep import GROUPS, Sweep
from visuals.charts import units

ROWS = records.recordings()
MOST_OF_16_BITS = {"fp16": 5e-4, "bf16": 4e-3}  # half a last place of each output, on average less
FIELDS = {
    "device", "driver", "cuda", "cupy", "date", "commit", "rung", "shape", "tiles", "mode", "median_ms",
    "p20_ms", "p80_ms", "n", "peak_bytes", "workspace_bytes", "flops", "error", "clock_sm_mhz",
}  # fmt: skip


def shape_of(row):
    return LADDERS[row["rung"].partition("/")[0]].shape(**row["shape"])


@pytest.mark.parametrize("name", ["gemm", "conv", "attention", "softmax", "fusion"])
def test_the_recording_covers_every_rung_at_every_preset(name):
    got = {(r["rung"], shape_of(r), r["mode"]) for r in ROWS if r["device"] == "NVIDIA H200"}
    ladder = LADDERS[name]
    for key, preset in ladder.presets.items():
        for rung in (r for r in ladder.rungs if "cuda" in r.engines):
            ran = rung.name, preset.shape
            if rung.library in (
                "cuDNN",
                "PyTorch",
            ):  # its rules ask the device, and what it refused there is told
                refused = unsupported.recorded(*ran)
            else:
                refused = any(rung.rules(preset.shape, rung.default_tiles))
            assert bool(refused) != ((*ran, "cold") in got), ran
            if key in ladder.swept and not refused:
                assert (*ran, "hot") in got, ran


@pytest.mark.parametrize(
    "presets, modes", [((), MODES), (tuple(GROUPS), ("cold",))], ids=["all presets", "groups"]
)
def test_nothing_is_missing_that_a_whole_sweep_would_measure(presets, modes):
    """Every set of tile sizes, and the map's and the networks' shapes."""
    got = {(r["rung"], shape_of(r), tuple(sorted(r["tiles"].items())), r["mode"]) for r in ROWS}
    for group in Sweep("cuda", presets, modes).groups():
        for rung in map(group.ladder.rung, group.rungs):
            tiles = rung.check(group.shape, {n: v for n, v in group.tiles.items() if n in rung.tiles})
            there = (rung.name, group.shape, tuple(sorted(tiles.items())), group.mode) in got
            assert there or unsupported.recorded(rung.name, group.shape), (rung.name, str(group))


def test_no_time_holds_waits_for_the_processor():
    """Each step is timed alone too, with the cost of an event of its own: together they take no less than all at once."""
    for row in ROWS:
        if row["mode"] == "cold" and len(row["parts_ms"]) > 1 and not units.waited(row):
            together = sum(row["parts_ms"].values())
            assert row["median_ms"] <= 1.05 * together, (row["rung"], row["shape"], row["tiles"])


@pytest.mark.parametrize("name", sorted({row["rung"] for row in ROWS}))
def test_a_row_explains_itself_and_was_made_by_these_kernels(name):
    rung = find(name)
    for row in (r for r in ROWS if r["rung"] == name):
        said = f"{shape_of(row)} {row['tiles']} {row['mode']}"
        assert row.keys() >= FIELDS, said
        program = rung.build(shape_of(row), row["tiles"])
        assert digest_of(row) == kernel_digest(program), f"{said}: recorded by other kernels"
        assert 0 < row["p20_ms"] <= row["median_ms"] <= row["p80_ms"], said
        assert len(row["samples_ms"]) == row["n"] >= 5, said
        assert row["error"] < most_error(rung, row), said
        # More than the pool's grain only where a library takes memory of its own.
        more = row["workspace_bytes"] - program.nbytes("workspace")
        own_memory = rung.library in ("cuDNN", "cuFFT", "PyTorch")
        assert 0 <= more < 512 * (1 + len(program.of_role("workspace"))) or own_memory, said


def most_error(rung, row) -> float:
    """Of what is relative to the output; a Winograd rung's tolerance is of a scale that grows with its transforms."""
    if rung.name == "conv/cudnn-winograd-nonfused" and row["shape"]["R"] == 5:
        return rung.tolerance  # conv_cudnn.TOLERANCE_TILES tells of it
    if (dtype := row["shape"].get("dtype")) in MOST_OF_16_BITS and rung.name.startswith("attention/"):
        return MOST_OF_16_BITS[dtype]
    m = {"conv/winograd-2x2": 2, "conv/winograd-4x4": 4, "conv/cudnn-winograd-nonfused": 6}.get(rung.name)
    m = m or row["tiles"].get("M")
    return conv_winograd.MOST_ERROR[m] if m else max(1e-5, rung.tolerance)


def test_recorded_finds_exactly_what_was_asked():
    s = CONV_PRESETS["vgg-conv1_2"].shape
    row = records.recorded("conv/im2col-gemm", s, {"BLOCK": 256, "TILE": 32})
    assert row["tiles"] == {"BLOCK": 256, "TILE": 32} and row["mode"] == "cold"
    assert records.recorded("conv/im2col-gemm", s.with_(N=2), {"BLOCK": 256, "TILE": 32}) is None


# -- the nearest ---------------------------------------------------------------------------------
VGG = CONV_PRESETS["vgg-conv1_2"].shape
GEMM = {"BLOCK": 256, "TILE": 16}


def test_nearest_is_the_recording_itself_where_there_is_one():
    near = records.nearest("conv/im2col-gemm", VGG, GEMM)
    assert near.exact and near.row is records.recorded("conv/im2col-gemm", VGG, GEMM)
    assert near.words == "recorded at this shape"


@pytest.mark.parametrize("rung", [r.name for r in LADDERS["conv"].rungs if r.library != "cuDNN"])
def test_nearest_says_where_and_how_much_of_the_work(rung):
    tiles = find(rung).default_tiles
    near = records.nearest(rung, VGG.with_(N=2, C=60), tiles)
    assert not near.exact and shape_of(near.row).R == 3 and near.row["tiles"] == tiles
    assert near.words.startswith("recorded at N=") and "; this shape has " in near.words
    assert "pad_h=1" in near.words and "dilation" not in near.words


def test_nearest_goes_by_work_first_and_by_extents_then():
    s = VGG
    recordings = [row_at(s.with_(N=4)), row_at(s.with_(H=448, W=448)), row_at(s.with_(N=2))]
    asked = s.with_(N=4, H=223)  # the work of both first, nearer to the first in its extents
    near = find_nearest("conv/direct", asked, {"BLOCK": 256}, "cold", recordings)
    assert near.row is recordings[0]
    assert near.words.endswith("this shape has 0.996 times the multiply-adds")
    assert find_nearest("conv/direct", s.with_(N=9), {"BLOCK": 256}, "cold", recordings[2:]).words.endswith("4.5 times the multiply-adds")  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [{"R": 5}, {"S": 1}, {"u": 2}, {"v": 2}, {"dilation_h": 2}, {"mode": "convolution"}],
    ids=lambda change: next(iter(change)),
)
def test_what_must_agree_does(change):
    assert find_nearest("conv/direct", VGG.with_(**change), {"BLOCK": 256}, "cold", [row_at(VGG)]) is None


def test_another_rung_or_mode_says_nothing_and_other_tiles_are_named():
    only = [row_at(VGG)]
    assert find_nearest("conv/im2col-gemm", VGG, GEMM, "cold", only) is None
    assert find_nearest("conv/direct", VGG, {"BLOCK": 256}, "hot", only) is None
    near = find_nearest("conv/direct", VGG, {"BLOCK": 64}, "cold", only)
    assert not near.exact and near.words == "recorded at this shape, with BLOCK 256"


def row_at(shape):
    return {"rung": "conv/direct", "mode": "cold", "shape": shape.params(), "tiles": {"BLOCK": 256}}


def test_bias_and_relu_are_told_of_a_recording_without_and_groups_keep_shapes_apart():
    only = [row_at(VGG)]
    near = find_nearest("conv/direct", VGG.with_(bias=1, relu=1), {"BLOCK": 256}, "cold", only)
    assert near.row is only[0] and not near.exact and near.words.startswith("recorded at N=")
    assert find_nearest("conv/direct", VGG.with_(groups=64), {"BLOCK": 256}, "cold", only) is None
    layer = VGG.with_(groups=64, bias=1)
    near = find_nearest("conv/direct", layer.with_(N=2), {"BLOCK": 256}, "cold", [*only, row_at(layer)])
    assert "groups=64 bias=1" in near.words and not near.exact


# -- the command ---------------------------------------------------------------------------------
@pytest.fixture
def three(monkeypatch):
    """The ladder with its three first rungs alone."""
    monkeypatch.setitem(LADDERS, "conv", conv_ladder.LADDER.only(*(rung.name for rung in conv_ladder.OWN)))


def recording(out, *more, presets="toy", modes="hot"):
    return main(["record", "--out", str(out), "--engine", "cpu", "--presets", presets, "--modes", modes, "--seconds", "0.01", *more])  # fmt: skip


def test_record_writes_rows_that_read_back(tmp_path, capsys):
    out = tmp_path / "here.jsonl"
    assert recording(out) == 0
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    toy = CONV_PRESETS["toy"].shape
    assert [r["rung"] for r in rows] == [
        r.name for r in availability.supported_rungs(LADDERS["conv"], "cpu", toy)
    ]
    assert all(r["engine"] == "cpu" and r["n"] >= 5 and r["shape"] == toy.params() for r in rows)
    assert "conv/direct" in capsys.readouterr().out


def test_figures_of_a_row_have_five_digits_and_its_shape_has_all():
    shape, rung = GemmShape(8, 8, 8, alpha=1.23456789), find("gemm/naive")
    result = run(rung.name, shape, engine="cpu", budget=Budget(samples=5, seconds=0.1, warm_up_s=0))
    row = records_row.row(result, rung.build(shape, result.tiles), "unknown")
    assert row["shape"]["alpha"] == 1.23456789
    told = [row["median_ms"], row["p20_ms"], row["p80_ms"], row["error"], *row["samples_ms"]]
    assert all(figure == float(f"{figure:.5g}") for figure in told)
    assert row["median_ms"] == pytest.approx(result.measurement.median_ms, rel=1e-4)


def test_record_sweeps_tiles_and_batches_and_tells_how_far_it_is(tmp_path, capsys):
    out = tmp_path / "here.jsonl"
    assert recording(out, "--batches", "1,2", modes="cold") == 0
    rows = read(out)
    assert {r["shape"]["N"] for r in rows} == {1, 2}  # the preset's own batch is 1: not measured twice
    got = [(r["rung"], r["shape"]["N"], tuple(r["tiles"].items())) for r in rows]
    toy = CONV_PRESETS["toy"].shape
    every = {
        (r.name, n, tuple(tiles.items()))
        for n in (1, 2)
        for r in availability.supported_rungs(LADDERS["conv"], "cpu", toy)
        for tiles in r.tile_sets(toy.with_(N=n))
    }
    assert set(got) == every and len(set(got)) == len(got)
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith(f"[1 of {len(rows)}, about ") and said[-1].startswith(
        f"[{len(rows)} of {len(rows)}, "
    )


def test_a_sweep_that_was_cut_off_goes_on_and_measures_nothing_twice(three, tmp_path, capsys):
    out = tmp_path / "here.jsonl"
    recording(out)
    first, *others = lines = out.read_text().splitlines()
    out.write_text(first + "\n" + others[0][:200])  # killed in the middle of a line
    capsys.readouterr()
    assert recording(out) == 0
    again = out.read_text().splitlines()
    assert again[0] == first and len(again) == len(lines)
    assert [r["rung"] for r in read(out)] == [r["rung"] for r in map(json.loads, lines)]
    assert capsys.readouterr().out.startswith("[1 of 3] 1 of 3 were there already")
    before = out.read_bytes()
    assert recording(out) == 0
    assert out.read_bytes() == before


def test_rows_of_other_kernels_are_measured_again_and_kept_beside(three, tmp_path):
    out = tmp_path / "here.jsonl"
    recording(out)
    rows = read(out)
    old = rows[1] | {"kernels": "0" * 16}
    out.write_text("".join(json.dumps(r) + "\n" for r in (rows[0], old, rows[2])))
    assert recording(out) == 0
    assert {r["rung"]: r["kernels"] for r in read(out)} == {r["rung"]: r["kernels"] for r in rows}
    assert read(tmp_path / "here.jsonl.superseded") == [old]


def test_rows_of_another_device_or_preset_stay(three, tmp_path):
    out = tmp_path / "here.jsonl"
    recording(out)
    theirs = [r | {"device": "another"} for r in read(out)]
    out.write_text("".join(json.dumps(r) + "\n" for r in theirs))
    assert recording(out) == 0 and recording(out, presets="cudnn-paper", modes="cold") == 0
    assert read(out)[:3] == theirs and len(read(out)) == 9


def test_a_file_that_is_no_recording_is_not_written_over(tmp_path, capsys):
    out = tmp_path / "notes.txt"
    out.write_text("my notes\nof today\n")
    assert recording(out) == 2
    assert (
        "notes.txt, line 1: not JSON" in capsys.readouterr().err and out.read_text() == "my notes\nof today\n"
    )


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--presets", "nothing"], "no preset 'nothing'"),
        (["--modes", "warm"], "no mode 'warm'"),
        (["--batches", "1,x"], "a batch is a whole number"),
        (["--batches", "0"], "a batch is a whole number"),
        (["--engine", "emulator"], "takes no times"),
    ],
)
def test_what_cannot_be_recorded_is_named(tmp_path, capsys, more, words):
    assert recording(tmp_path / "x.jsonl", *more) == 2
    assert words in capsys.readouterr().err


def test_a_shape_too_large_is_left_out_and_the_others_are_measured(three, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(processor, "free_bytes", lambda: 1_000_000)
    out = tmp_path / "here.jsonl"
    assert recording(out, "--batches", "60000") == 0
    said = capsys.readouterr().out
    assert "left out" in said and "take a smaller shape or batch" in said
    assert len(read(out)) == 3


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_recordings_stay_small():
    """In a checkout of everybody."""
    assert sum(file.stat().st_size for file in records.FOLDER.iterdir()) <= 5e6
