"""Recordings: complete rows, measured with the kernels that are in the tree."""

from __future__ import annotations

import json
from functools import cache
from itertools import groupby
from operator import itemgetter

import pytest

from kernels import records
from kernels.__main__ import main
from kernels.conv import ladder as conv_ladder
from kernels.conv import winograd as conv_winograd
from kernels.conv.presets import CONV_PRESETS
from kernels.conv.shape import ConvShape
from kernels.gemm.shape import GemmShape
from kernels.ladders import LADDERS, find, ladder_of
from kernels.machine import processor
from kernels.machine.timing import MODES, Budget
from kernels.records import availability, unsupported
from kernels.records import row as records_row
from kernels.records.nearest import nearest as find_nearest
from kernels.records.row import digest_of, is_current, kernel_digest
from kernels.runner import run
from kernels.sweep import GROUPS, Sweep, by_rules
from tests.helpers.offenders import every, over
from visuals import units

# Of each ladder the rows of the GPU that it is shown from.
ROWS = tuple(row for name in LADDERS for row in records.recordings(name))
RUNG_OF = itemgetter("rung")
MAX_ERROR_16_BIT = {"fp16": 5e-4, "bf16": 4e-3}  # half a last place of each output, on average less
FIELDS = {
    "device",
    "driver",
    "cuda",
    "cupy",
    "date",
    "commit",
    "rung",
    "shape",
    "tiles",
    "mode",
    "median_ms",
    "p20_ms",
    "p80_ms",
    "n",
    "peak_bytes",
    "workspace_bytes",
    "flops",
    "error",
    "clock_sm_mhz",
}
UNMEASURED = {r.name for ladder in LADDERS.values() for r in ladder.rungs if r.unmeasured}
WITH_FASTER = [r.name for ladder in LADDERS.values() for r in ladder.rungs if r.faster]


def shape_of(row):
    return LADDERS[row["rung"].partition("/")[0]].shape(**row["shape"])


@cache
def recorded_keys():
    """Returns (rung, shape, tile sizes, mode) of each row of these kernels."""
    return {(r["rung"], shape_of(r), tuple(sorted(r["tiles"].items())), r["mode"]) for r in ROWS if is_current(r)}


@pytest.mark.parametrize("name", ["gemm", "conv", "attention", "softmax", "fusion"])
def test_recordings_cover_every_rung_at_every_preset(name):
    recorded = {(rung, shape, mode) for rung, shape, _, mode in recorded_keys()}
    ladder = LADDERS[name]
    for key, preset in ladder.presets.items():
        for rung in (r for r in ladder.rungs if "cuda" in r.engines and not r.unmeasured):
            setting = rung.name, preset.shape
            # The recordings list what a library did not support on the GPU; a rule refuses what it never has.
            refused = unsupported.recorded(*setting) or any(rung.rules(preset.shape, rung.default_tiles))
            assert bool(refused) != ((*setting, "cold") in recorded), setting
            if key in ladder.swept and not refused:
                assert (*setting, "hot") in recorded, setting


@pytest.mark.parametrize("presets, modes", [((), MODES), (tuple(GROUPS), ("cold",))], ids=["all presets", "groups"])
def test_recordings_cover_a_whole_sweep(presets, modes):
    """Every set of tile sizes, and the shapes of the map and the networks."""
    for group in Sweep("cuda", presets, modes).groups():
        for rung in set(group.rungs) - UNMEASURED:
            tiles = tuple(sorted(group.tiles_of(rung).items()))
            present = (rung, group.shape, tiles, group.mode) in recorded_keys()
            assert present or unsupported.recorded(rung, group.shape), (rung, str(group))


@every("rung", WITH_FASTER)
def test_a_sweep_compares_tile_sizes_for_the_shape_and_takes_every_set_once(rung):
    found, ladder, several = find(rung), ladder_of(rung), 0
    for key, preset in ladder.presets.items():
        groups = list(Sweep("cuda", (key,), ladders=(ladder.name,), runs=by_rules).groups())
        swept = [g.tiles_of(rung) for g in groups if rung in g.rungs]
        if swept:
            assert swept[0] == found.tiles_at(preset.shape)
            several += swept[0] != found.default_tiles
        if swept and (ladder.swept is None or key in ladder.swept):
            sets = [sorted(tiles.items()) for tiles in found.tile_sets(preset.shape)]
            assert sorted(sorted(tiles.items()) for tiles in swept) == sorted(sets)
    assert several


def test_a_rung_that_is_not_recorded_yet_has_no_rows():
    assert not {row["rung"] for row in ROWS} & UNMEASURED, "it is recorded: its row says unmeasured"


def test_times_include_no_waits_for_the_processor():
    """Each step is also timed alone, with the cost of its own event: their sum is no less than the time of all steps."""
    for row in ROWS:
        if row["mode"] == "cold" and len(row["parts_ms"]) > 1 and not units.queued_samples(row):
            together = sum(row["parts_ms"].values())
            assert row["median_ms"] <= 1.05 * together, (row["rung"], row["shape"], row["tiles"])


@over([(name, list(rows)) for name, rows in groupby(sorted(ROWS, key=RUNG_OF), key=RUNG_OF)])
def test_rows_are_complete_and_were_measured_with_these_kernels(rows):
    rung = find(rows[0]["rung"])
    for row in rows:
        setting = f"{shape_of(row)} {row['tiles']} {row['mode']}"
        assert row.keys() >= FIELDS, setting
        program = rung.build(shape_of(row), row["tiles"])
        assert digest_of(row) == kernel_digest(program), f"{setting}: recorded by other kernels"
        assert 0 < row["p20_ms"] <= row["median_ms"] <= row["p80_ms"], setting
        assert len(row["samples_ms"]) == row["n"] >= 5, setting
        assert row["error"] < max_error(rung, row), setting
        # Only a library's own memory may exceed the prediction by more than the pool's granularity.
        excess = row["workspace_bytes"] - program.nbytes("workspace")
        own_memory = rung.library in ("cuDNN", "cuFFT", "PyTorch") or rung.name == "conv/fft"  # which calls cuFFT
        assert 0 <= excess < 512 * (1 + len(program.of_role("workspace"))) or own_memory, setting


def max_error(rung, row) -> float:
    """Returns the bound of the error relative to the output. A Winograd rung's tolerance has another scale, which grows
    with its transforms."""
    if rung.name == "conv/cudnn-winograd-nonfused" and row["shape"]["R"] == 5:
        return rung.tolerance  # see conv_cudnn.TOLERANCE_TILES
    if (dtype := row["shape"].get("dtype")) in MAX_ERROR_16_BIT and rung.name.startswith(
        ("attention/", "attention-backward/")
    ):
        return MAX_ERROR_16_BIT[dtype]
    if rung.name.startswith(("conv-fp16/", "fusion-fp16/")):
        return MAX_ERROR_16_BIT["fp16"]
    if row["shape"].get("dtype") == "fp8":
        return 2 * rung.tolerance  # which is relative to absolute values: they do not cancel
    m = {"conv/winograd-2x2": 2, "conv/winograd-4x4": 4, "conv/cudnn-winograd-nonfused": 6}.get(rung.name)
    m = m or row["tiles"].get("M")
    return conv_winograd.MAX_ERROR[m] if m else max(1e-5, rung.tolerance)


def test_recorded_finds_the_exact_setting():
    s = CONV_PRESETS["vgg-conv1_2"].shape
    row = records.recorded("conv/im2col-gemm", s, {"BLOCK": 256, "TILE": 32})
    assert row["tiles"] == {"BLOCK": 256, "TILE": 32} and row["mode"] == "cold"
    assert records.recorded("conv/im2col-gemm", s.with_(N=2), {"BLOCK": 256, "TILE": 32}) is None


# -- the nearest ---------------------------------------------------------------------------------
VGG = CONV_PRESETS["vgg-conv1_2"].shape
GEMM = {"BLOCK": 256, "TILE": 16}


def test_nearest_is_the_exact_recording_if_there_is_one():
    match = records.nearest("conv/im2col-gemm", VGG, GEMM)
    assert match.exact and match.row is records.recorded("conv/im2col-gemm", VGG, GEMM)
    assert match.caption == "recorded at this shape"


@every("rung", [r.name for r in LADDERS["conv"].rungs if r.library != "cuDNN"])
def test_nearest_names_the_shape_and_the_ratio_of_the_work(rung):
    tiles = find(rung).default_tiles
    match = records.nearest(rung, VGG.with_(N=2, C=60), tiles)
    assert not match.exact and shape_of(match.row).R == 3 and match.row["tiles"] == tiles
    assert match.caption.startswith("recorded at N=") and "; this shape has " in match.caption
    assert "pad_h=1" in match.caption and "dilation" not in match.caption


def test_nearest_compares_work_first_and_extents_second():
    s = VGG
    recordings = [row_at(s.with_(N=4)), row_at(s.with_(H=448, W=448)), row_at(s.with_(N=2))]
    query = s.with_(N=4, H=223)  # the first two have equal work; the first is nearer in its extents
    match = find_nearest("conv/direct", query, {"BLOCK": 256}, "cold", recordings)
    assert match.row is recordings[0]
    assert match.caption.endswith("this shape has 0.996 times the multiply-adds")
    assert find_nearest("conv/direct", s.with_(N=9), {"BLOCK": 256}, "cold", recordings[2:]).caption.endswith(
        "4.5 times the multiply-adds"
    )


@every(
    "change",
    [
        {"R": 5},
        {"S": 1},
        {"u": 2},
        {"v": 2},
        {"dilation_h": 2},
        {"mode": "convolution"},
        {"extra_h": -1},
        {"extra_w": 2},
    ],
    ids=lambda change: next(iter(change)),
)
def test_nearest_requires_equal_matching_fields(change):
    assert find_nearest("conv/direct", VGG.with_(**change), {"BLOCK": 256}, "cold", [row_at(VGG)]) is None


def test_nearest_names_the_padding_after_the_input():
    causal = ConvShape(1, 64, 1, 512, 64, 1, 7, pad=(0, 6), extra=(0, -6))
    rows = [row_at(VGG), row_at(causal)]
    match = find_nearest("conv/direct", causal.with_(N=2), {"BLOCK": 256}, "cold", rows)
    assert match.row is rows[1] and "pad_w=6" in match.caption and "extra_w=-6" in match.caption


def test_nearest_ignores_other_rungs_and_modes_and_names_other_tiles():
    rows = [row_at(VGG)]
    assert find_nearest("conv/im2col-gemm", VGG, GEMM, "cold", rows) is None
    assert find_nearest("conv/direct", VGG, {"BLOCK": 256}, "hot", rows) is None
    match = find_nearest("conv/direct", VGG, {"BLOCK": 64}, "cold", rows)
    assert not match.exact and match.caption == "recorded at this shape, with BLOCK 256"


def row_at(shape):
    return {"rung": "conv/direct", "mode": "cold", "shape": shape.params(), "tiles": {"BLOCK": 256}}


def test_nearest_names_bias_and_relu_and_requires_equal_groups():
    rows = [row_at(VGG)]
    match = find_nearest("conv/direct", VGG.with_(bias=1, relu=1), {"BLOCK": 256}, "cold", rows)
    assert match.row is rows[0] and not match.exact and match.caption.startswith("recorded at N=")
    assert find_nearest("conv/direct", VGG.with_(groups=64), {"BLOCK": 256}, "cold", rows) is None
    layer = VGG.with_(groups=64, bias=1)
    match = find_nearest("conv/direct", layer.with_(N=2), {"BLOCK": 256}, "cold", [*rows, row_at(layer)])
    assert "groups=64 bias=1" in match.caption and not match.exact


# -- the command ---------------------------------------------------------------------------------
@pytest.fixture
def three_rungs(monkeypatch):
    """The ladder with its first three rungs only."""
    monkeypatch.setitem(LADDERS, "conv", conv_ladder.LADDER.only(*(rung.name for rung in conv_ladder.BASIC_RUNGS)))


def recording(out, *arguments, presets="toy", modes="hot"):
    return main(
        [
            "record",
            "--out",
            str(out),
            "--engine",
            "cpu",
            "--presets",
            presets,
            "--modes",
            modes,
            "--seconds",
            "0.01",
            *arguments,
        ]
    )


def test_record_writes_rows_that_read_back(tmp_path, capsys):
    out = tmp_path / "here.jsonl"
    assert recording(out) == 0
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    toy = CONV_PRESETS["toy"].shape
    assert [r["rung"] for r in rows] == [r.name for r in availability.supported_rungs(LADDERS["conv"], "cpu", toy)]
    assert all(r["engine"] == "cpu" and r["n"] >= 5 and r["shape"] == toy.params() for r in rows)
    assert "conv/direct" in capsys.readouterr().out


def test_figures_of_a_row_have_five_digits_and_its_shape_has_all():
    shape, rung = GemmShape(8, 8, 8, alpha=1.23456789), find("gemm/naive")
    result = run(rung.name, shape, engine="cpu", budget=Budget(samples=5, seconds=0.1, warm_up_s=0))
    row = records_row.row(result, rung.build(shape, result.tiles), "unknown")
    assert row["shape"]["alpha"] == 1.23456789
    figures = [row["median_ms"], row["p20_ms"], row["p80_ms"], row["error"], *row["samples_ms"]]
    assert all(figure == float(f"{figure:.5g}") for figure in figures)
    assert row["median_ms"] == pytest.approx(result.measurement.median_ms, rel=1e-4)


def test_record_sweeps_tiles_and_batches_and_prints_progress(three_rungs, tmp_path, capsys):
    out = tmp_path / "here.jsonl"
    assert recording(out, "--batches", "1,2", modes="cold") == 0
    rows = read(out)
    assert {r["shape"]["N"] for r in rows} == {1, 2}  # the preset's own batch is 1: not measured twice
    measured = [(r["rung"], r["shape"]["N"], tuple(r["tiles"].items())) for r in rows]
    toy = CONV_PRESETS["toy"].shape
    expected = {
        (r.name, n, tuple(tiles.items()))
        for n in (1, 2)
        for r in availability.supported_rungs(LADDERS["conv"], "cpu", toy)
        for tiles in r.tile_sets(toy.with_(N=n))
    }
    assert set(measured) <= expected and len(set(measured)) == len(measured)
    computed = [  # tile sizes that no NumPy step uses are not measured again
        (name, n, tuple(v for tile, v in tiles if tile in LADDERS["conv"].rung(name).tiles_on("cpu")))
        for name, n, tiles in measured
    ]
    assert len(set(computed)) == len(computed)
    assert {name for name, _, _ in measured} == {name for name, _, _ in expected}
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"[1 of {len(rows)}, about ") and lines[-1].startswith(f"[{len(rows)} of {len(rows)}, ")


def test_interrupted_comparison_is_measured_again_whole(three_rungs, tmp_path, capsys):
    """All rows of a comparison come from one run."""
    out = tmp_path / "here.jsonl"
    recording(out)
    first, *others = lines = out.read_text().splitlines()
    out.write_text(first + "\n" + others[0][:200])  # killed in the middle of a line
    capsys.readouterr()
    assert recording(out) == 0
    again = read(out)
    assert [r["rung"] for r in again] == [r["rung"] for r in map(json.loads, lines)]
    assert again[0]["samples_ms"] != json.loads(first)["samples_ms"]
    assert read(tmp_path / "here.jsonl.superseded") == [json.loads(first)]
    assert capsys.readouterr().out.startswith("[1 of 3, about ")


def test_resumed_sweep_skips_what_is_complete(three_rungs, tmp_path, capsys):
    out = tmp_path / "here.jsonl"
    recording(out)
    complete = out.read_bytes()
    capsys.readouterr()
    assert recording(out) == 0
    assert out.read_bytes() == complete
    assert capsys.readouterr().out == "[3 of 3] 3 of 3 were there already\n"
    recording(out, presets="cudnn-paper", modes="cold")
    assert out.read_bytes().startswith(complete) and len(read(out)) == 6


def test_rows_of_other_kernels_are_moved_to_a_second_file(three_rungs, tmp_path):
    out = tmp_path / "here.jsonl"
    recording(out)
    rows = read(out)
    old = rows[1] | {"kernels": "0" * 16}
    out.write_text("".join(json.dumps(r) + "\n" for r in (rows[0], old, rows[2])))
    assert recording(out) == 0
    assert {r["rung"]: r["kernels"] for r in read(out)} == {r["rung"]: r["kernels"] for r in rows}
    assert read(tmp_path / "here.jsonl.superseded") == [old, rows[0], rows[2]]


def test_rows_of_another_device_or_preset_are_not_changed(three_rungs, tmp_path):
    out = tmp_path / "here.jsonl"
    recording(out)
    others = [r | {"device": "another"} for r in read(out)]
    out.write_text("".join(json.dumps(r) + "\n" for r in others))
    assert recording(out) == 0 and recording(out, presets="cudnn-paper", modes="cold") == 0
    assert read(out)[:3] == others and len(read(out)) == 9


def test_file_that_is_not_a_recording_is_not_overwritten(tmp_path, capsys):
    out = tmp_path / "notes.txt"
    out.write_text("my notes\nof today\n")
    assert recording(out) == 2
    assert "notes.txt, line 1: not JSON" in capsys.readouterr().err and out.read_text() == "my notes\nof today\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--presets", "nothing"], "no preset 'nothing'"),
        (["--modes", "warm"], "no mode 'warm'"),
        (["--batches", "1,x"], "a batch is a whole number"),
        (["--batches", "0"], "a batch is a whole number"),
        (["--engine", "emulator"], "takes no times"),
    ],
)
def test_invalid_record_arguments_are_named(tmp_path, capsys, arguments, message):
    assert recording(tmp_path / "x.jsonl", *arguments) == 2
    assert message in capsys.readouterr().err


def test_too_large_shape_is_skipped_and_the_others_are_measured(three_rungs, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(processor, "free_bytes", lambda: 1_000_000)
    out = tmp_path / "here.jsonl"
    assert recording(out, "--batches", "60000") == 0
    output = capsys.readouterr().out
    assert "left out" in output and "take a smaller shape or batch" in output
    assert len(read(out)) == 3


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_recordings_stay_small():
    """Everyone who clones the repository gets them."""
    assert sum(file.stat().st_size for file in records.FOLDER.iterdir()) <= 13e6


@every("rung", WITH_FASTER)
def test_tile_sizes_for_a_shape_are_the_fastest_recorded(rung):
    found, several = find(rung), 0
    for preset in LADDERS[rung.partition("/")[0]].presets.values():
        rows = [records.recorded(rung, preset.shape, tiles) for tiles in found.tile_sets(preset.shape)]
        if len(rows := [row for row in rows if row]) > 1:
            several += 1
            assert min(rows, key=lambda row: row["median_ms"])["tiles"] == found.tiles_at(preset.shape)
    assert several > 1
