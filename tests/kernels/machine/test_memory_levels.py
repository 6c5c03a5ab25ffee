"""Levels of memory as Linux, a Mac and a GPU's driver report them, and the text for those not reported."""

from __future__ import annotations

import json

import pytest

from kernels.machine import memory_levels
from kernels.machine.memory_levels import ABSENT, DRIVER, SYSTEM, Level
from kernels.machine.processor import device_name
from visuals.memory import charts as memory_charts


def write(folder, index, **fields):
    (folder / f"index{index}").mkdir(parents=True)
    for name, text in fields.items():
        (folder / f"index{index}" / name).write_text(f"{text}\n")


def test_linux_reports_data_caches_only(tmp_path):
    write(tmp_path, 0, level=1, type="Data", size="48K", coherency_line_size=64, shared_cpu_list="0")
    write(tmp_path, 1, level=1, type="Instruction", size="32K", coherency_line_size=64, shared_cpu_list="0")
    write(tmp_path, 2, level=2, type="Unified", size="2M", shared_cpu_list="0,4")
    write(tmp_path, 3, level=3, type="Unified", size="garbage")
    assert memory_levels.linux_caches(tmp_path) == [
        Level("L1 cache", 48 << 10, "each core", SYSTEM, "lines of 64 bytes", 64),
        Level("L2 cache", 2 << 20, "cores 0,4 together", SYSTEM, ""),
    ]
    assert memory_levels.linux_caches(tmp_path / "nowhere") == []


def test_mac_reports_its_performance_cores():
    sysctl = {
        "hw.cachelinesize": 128,
        "hw.perflevel0.l1dcachesize": 131072,
        "hw.l1dcachesize": 65536,
        "hw.l2cachesize": 4194304,
    }
    caches = memory_levels.sysctl_caches(sysctl.get)
    assert [(level.name, level.bytes) for level in caches] == [("L1 cache", 131072), ("L2 cache", 4194304)]
    assert caches[0].note == "lines of 128 bytes"
    assert memory_levels.sysctl_caches({}.get) == []


def test_levels_not_reported_are_marked(monkeypatch, tmp_path):
    monkeypatch.setattr(memory_levels, "CPU_CACHES", tmp_path)
    monkeypatch.setattr(memory_levels.sys, "platform", "linux")
    levels = memory_levels.cpu()
    assert [level.name for level in levels.levels] == ["L1 cache", "L2 cache", "L3 cache", "memory (RAM)"]
    assert [level.source for level in levels.levels] == [ABSENT] * 3 + [SYSTEM]
    html = memory_charts.levels_table(levels)
    assert html.count(ABSENT) == 3 and html.count("–") == 3


H200 = {16: 132, 38: 50 << 20, 39: 2048, 81: 228 << 10, 82: 65536, 97: 227 << 10}


def test_levels_of_a_gpu():
    levels = memory_levels.gpu_levels("NVIDIA X", H200.get, 141 << 30)
    sizes = {level.name: (level.bytes, level.source) for level in levels.levels}
    assert sizes["registers"] == (4 * 65536, DRIVER)
    assert sizes["L1 cache"] == (None, ABSENT)
    assert sizes["L2 cache"] == (50 << 20, DRIVER)
    assert levels.levels[0].each == "each of 132 SMs" and levels.sms == 132
    html = memory_charts.levels_table(levels)
    assert "262 KB" in html and "233 KB" in html and "151 GB" in html and "kt-badge" not in html
    assert "iB" not in html and "L1 gets what shared memory leaves of the same memory" in html
    empty = memory_levels.gpu_levels("NVIDIA X", lambda number: None, None)
    assert {level.source for level in empty.levels} == {ABSENT}


def test_copy_rate_requires_the_same_device_and_has_a_badge():
    levels = memory_levels.gpu_levels("NVIDIA X", H200.get, 1 << 30)
    ceilings = {"device": "NVIDIA X", "copy_bytes_per_s": 4.1e12, "copy": "device to device, 1024 MiB"}
    assert levels.with_copy(ceilings | {"device": "NVIDIA Y"}) == levels == levels.with_copy(None)
    html = memory_charts.levels_table(levels.with_copy(ceilings))
    assert "4.1 TB/s" in html and "kt-badge-measured" in html and "device to device, 1.07 GB" in html


def test_recording_is_read_back(monkeypatch, tmp_path):
    levels = memory_levels.gpu_levels("NVIDIA X", H200.get, 1 << 30)
    file = tmp_path / "x.levels.json"
    file.write_text(json.dumps(levels.to_json() | {"date": "2026-01-02", "copy_bytes_per_s": 4e12}))
    monkeypatch.setattr(memory_levels, "RECORDED", file)
    memory_levels.recorded.cache_clear()
    try:
        read = memory_levels.recorded()
        assert read.levels == levels.levels and read.date == "2026-01-02"
        html = memory_charts.levels_table(read)
        assert "kt-badge-recorded" in html and "reported by the driver, 2026-01-02" in html
    finally:
        memory_levels.recorded.cache_clear()


def test_this_machine_has_memory_and_a_name():
    levels = memory_levels.cpu()
    assert levels.device == device_name() and levels.levels[-1].bytes > 1 << 28


@pytest.mark.parametrize(("device", "size"), [("NVIDIA H100 80GB HBM3", "262 KB"), ("NVIDIA X", "memory")])
def test_l1_and_shared_memory_have_one_size_where_it_is_known(device, size):
    html = memory_charts.levels_table(memory_levels.gpu_levels(device, H200.get, 1 << 30))
    assert f"L1 gets what shared memory leaves of the same {size}" in html
