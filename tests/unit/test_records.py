"""Recordings: complete rows, made by the kernels that are in the tree."""

from __future__ import annotations

import json

import pytest

from kernels import records
from kernels.__main__ import main
from kernels.ladders import LADDERS, find
from kernels.presets import CONV_PRESETS

ROWS = records.recordings()
FIELDS = {
    "device", "driver", "cuda", "cupy", "date", "commit", "rung", "shape", "tiles", "mode", "median_ms",
    "p20_ms", "p80_ms", "n", "peak_bytes", "workspace_bytes", "flops", "error", "clock_sm_mhz",
}  # fmt: skip


def shape_of(row):
    return LADDERS[row["rung"].partition("/")[0]].shape(**row["shape"])


def test_the_recording_covers_every_rung_at_every_preset():
    got = {(r["rung"], shape_of(r), r["mode"]) for r in ROWS if r["device"] == "NVIDIA H200"}
    for rung in LADDERS["conv"].rungs:
        for preset in CONV_PRESETS.values():
            for mode in ("cold", "hot"):
                assert (rung.name, preset.shape, mode) in got


@pytest.mark.parametrize("row", ROWS, ids=lambda r: f"{r['rung']} {shape_of(r)} {r['tiles']} {r['mode']}")
def test_a_row_explains_itself_and_was_made_by_these_kernels(row):
    assert row.keys() >= FIELDS
    rung, shape = find(row["rung"]), shape_of(row)
    program = rung.build(shape, row["tiles"])
    assert row["kernels"] == records.kernel_digest(program), "recorded by other kernels: record again"
    assert 0 < row["p20_ms"] <= row["median_ms"] <= row["p80_ms"]
    assert len(row["samples_ms"]) == row["n"] >= 5
    assert row["error"] < 1e-5
    assert 0 <= row["workspace_bytes"] - program.nbytes("workspace") < 512  # the pool's grain


def test_recorded_finds_exactly_what_was_asked():
    s = CONV_PRESETS["vgg-conv1_2"].shape
    row = records.recorded("conv/im2col-gemm", s, {"BLOCK": 256, "TILE": 32})
    assert row["tiles"] == {"BLOCK": 256, "TILE": 32} and row["mode"] == "cold"
    assert records.recorded("conv/im2col-gemm", s.with_(N=2), {"BLOCK": 256, "TILE": 32}) is None


def test_record_writes_rows_that_read_back(tmp_path, capsys):
    out = tmp_path / "here.jsonl"
    assert main(["record", "--out", str(out), "--engine", "cpu", "--presets", "cudnn-paper", "--modes", "hot", "--seconds", "0.05"]) == 0  # fmt: skip
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [r["rung"] for r in rows] == [r.name for r in LADDERS["conv"].rungs]
    assert all(r["engine"] == "cpu" and r["n"] >= 5 and r["shape"]["C"] == 3 for r in rows)
    assert "conv/direct" in capsys.readouterr().out
