"""Reports of Nsight Compute beside the emulator's counters. The fixtures are outputs of ncu 2025.3.1 on an H200."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernels.__main__ import main
from kernels.engines.emulator import ncu, nsight, user_kernel
from kernels.engines.emulator.counters import FIELDS
from kernels.model.program import RuleError
from tests.helpers.emulated import needs_nvrtc
from tests.helpers.offenders import every

REPORTS = Path(__file__).parents[3] / "fixtures" / "ncu"
# The measured kernels. Their inputs were zeros.
SGEMM = """extern "C" __global__ void sgemm(const float* A, const float* B, float* C, int n) {
  int row = blockIdx.y * blockDim.y + threadIdx.y;
  int col = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= n || col >= n) return;
  float sum = 0;
  for (int k = 0; k < n; ++k) sum += A[row * n + k] * B[k * n + col];
  C[row * n + col] = sum;
}
"""
TURN = """namespace ns {
template <int N, class T> __global__ void turn(const T* x, T* y) {
  __shared__ T s[N][N];
  s[threadIdx.y][threadIdx.x] = x[threadIdx.y * N + threadIdx.x];
  __syncthreads();
  T v = s[threadIdx.x][threadIdx.y];
  if (threadIdx.x & 1) for (int i = 0; i < threadIdx.x; ++i) v = v * v + T(1);
  y[threadIdx.y * N + threadIdx.x] = v;
}
}
"""
HEADER = '"ID","Kernel Name","Block Size","Grid Size"'
LOADS = nsight.EQUAL["sectors_ld"]


def turn(tmp_path: Path, report: Path, **settings) -> ncu.Beside:
    """Returns the report's numbers beside those of ns::turn<32, float>."""
    (tmp_path / "turn.cu").write_text(TURN, encoding="utf-8")
    args = ("f32:32x32:zeros", "f32:32x32:empty")
    sizes = settings.pop("grid", (1, 1, 1)), (32, 32, 1)
    entry = settings.pop("entry", "ns::turn<32, float>")
    result = user_kernel.emulate(tmp_path / "turn.cu", entry, *sizes, args, report=report)
    assert result.measured is not None
    return result.measured


@pytest.fixture
def report(tmp_path):
    """Returns a function that writes a report and returns its path."""

    def write(text: str | bytes) -> Path:
        path = tmp_path / "report.csv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


# -- the table of metrics ------------------------------------------------------------------------------
def test_metrics_are_of_counters_and_each_of_one():
    derived = {f"{name}_{op}" for name in ("bytes_moved", "sectors_per_request") for op in ("ld", "st")}
    assert nsight.MATCHES.keys() <= {*FIELDS, *derived}
    metrics = [metric for match in nsight.MATCHES.values() for metric in match.metrics]
    assert len(metrics) == len(set(metrics))
    assert all(match.less in ("", *FIELDS) for match in nsight.MATCHES.values())


def test_counters_are_named_with_their_metrics():
    total = dict.fromkeys(FIELDS, 0) | {"sectors_ld": 7, "bytes_ld": 9, "wavefronts_st": 5}
    lines = {line.split()[0]: line.split()[1:] for line in nsight.table(total)}
    assert lines == {
        "sectors_ld": ["7", LOADS],
        "bytes_ld": ["9"],
        "wavefronts_st": ["5", nsight.EQUAL["wavefronts_st"]],
    }
    copied = nsight.table(total | {"wavefronts_copied": 2})
    assert copied[-2].split()[2:] == [nsight.EQUAL["wavefronts_st"], "+", "wavefronts_copied"]
    assert copied[-1].split()[2::2] == list(nsight.COPIES["wavefronts_copied"])


def test_stores_are_compared_without_the_copies_among_them():
    total = dict.fromkeys(FIELDS, 0) | {"wavefronts_st": 123, "wavefronts_copied": 23}
    counted = {name: nsight.MATCHES[name].counted(name, total) for name in ("wavefronts_st", "wavefronts_copied")}
    assert counted == {"wavefronts_st": 100, "wavefronts_copied": 23}


# -- real reports -----------------------------------------------------------------------------------------
@needs_nvrtc
@pytest.mark.parametrize("name", ["raw.csv", "long.csv"])
def test_memory_counters_equal_the_measured_ones(name, tmp_path):
    found = turn(tmp_path, REPORTS / name)
    assert (found.launches, found.id, found.missing, found.different) == (2, 1, (), "")
    rows = {row.counter: row for row in found.rows}
    assert rows.keys() == nsight.MATCHES.keys() - nsight.COPIES.keys()
    assert all(row.counted == row.measured for row in found.rows if not row.machine)
    assert rows["bank_conflicts_ld"].measured == 992 and rows["wavefronts_ld"].ratio == 1.0
    assert rows["bank_conflicts_st"].ratio is None  # nothing was measured
    assert rows["warp_instructions"].measured == 3392 and rows["divergent_branches"].measured == 192


@needs_nvrtc
def test_report_is_printed_and_in_the_json(tmp_path, capsys):
    (tmp_path / "own.cu").write_text(SGEMM, encoding="utf-8")
    array = "f32:64x64:zeros"
    command = [
        "emulate",
        str(tmp_path / "own.cu"),
        "sgemm",
        "--grid=4,4",
        "--block=16,16",
        f"--ncu={REPORTS / 'raw.csv'}",
    ]
    command += ["--arg", array, "--arg", array, "--arg", array, "--arg", "i32:64"]
    assert main(command) == 0
    text = capsys.readouterr().out
    assert text.count(LOADS) == 2  # beside the total, and in the table of measured numbers
    assert main([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (row,) = (row for row in found["measured"]["rows"] if row["counter"] == "bytes_moved_ld")
    assert row["counted"] == row["measured"] == 2**20 and row["ratio"] == 1
    assert found["nsight"]["sectors_ld"] == {"metrics": [LOADS], "less": "", "machine": False}


@needs_nvrtc
def test_other_sizes_are_named(tmp_path):
    assert "(1, 1, 1)" in turn(tmp_path, REPORTS / "raw.csv", grid=(2, 1, 1)).different


def test_details_page_has_launches_without_known_metrics():
    (launch,) = ncu.read(REPORTS / "details.csv")  # descriptions of rules have several lines
    assert (launch.kernel, launch.grid, launch.block) == ("sgemm", (4, 4, 1), (16, 16, 1))
    with pytest.raises(RuleError, match=r"no metric that the emulator counts.*--metrics.*op_ld\.sum"):
        ncu.find(REPORTS / "details.csv", "sgemm", "sgemm")


# -- reading -----------------------------------------------------------------------------------------------
@every(
    ("unit", "cell", "value"),
    [
        ("byte", "1,048,576", 2**20),
        ("Kbyte", "1.05", 1050),
        ("Mbyte", "2.5", 2_500_000),
        ("Gbyte", "1", 10**9),
        ("Kinst", "43.39", 43_390),
        ("sector", "12.5", 12.5),
        ("Kbyte/block", "33.79", 33_790),
    ],
)
def test_units_are_converted(unit, cell, value):
    for text in (
        f'{HEADER},"{LOADS}"\n"","","","","{unit}"\n"0","k","(1, 1, 1)","(1, 1, 1)","{cell}"\n',
        f'{HEADER},"Metric Name","Metric Unit","Metric Value"\n"0","k","(1, 1, 1)","(1, 1, 1)","{LOADS}","{unit}","{cell}"\n',
    ):
        assert [launch.metrics for launch in ncu.profiled(text)] == [{LOADS: value}]


def test_other_lines_and_encodings(report):
    text = f'==PROF== "x", 0%\n{HEADER},{LOADS}\r\n,,,,sector\r\nprogram says "a, b"\n3,k(int),"(2, 1, 1)","(4, 1, 1)",n/a\n1,k,,,"1,024"\n'
    for content in (text, b"\xef\xbb\xbf" + text.encode(), text.encode("utf-16")):
        first, second = ncu.read(report(content))
        assert (first.id, first.metrics, first.grid) == (1, {LOADS: 1024}, ())
        assert (second.id, second.metrics, second.grid, second.block) == (3, {}, (4, 1, 1), (2, 1, 1))


@pytest.mark.parametrize("cell", ["nan", "inf", "n/a", "", "(!) 3"])
def test_cells_without_a_number_are_left_out(cell):
    assert ncu.number(cell) is None


@pytest.mark.parametrize("content", ["", "hello\n", f'{HEADER},"x"\n', '"a","b"\n"1","2"\n', b"\x00\xff\x00"])
def test_other_files_are_refused(content, report):
    with pytest.raises(RuleError, match=r"report\.csv is no output of ncu --csv"):
        ncu.read(report(content))


def test_other_kernels_are_listed():
    with pytest.raises(RuleError, match=r"no launch of 'other'; there are: sgemm, void ns::turn<32, float>"):
        ncu.find(REPORTS / "raw.csv", "other", "other")


def test_missing_metrics_are_listed(report):
    path = report(f'{HEADER},"{LOADS}"\n"0","k","","","8"\n"7","k","","","9"\n')
    total = dict.fromkeys([*FIELDS, *nsight.MATCHES], 0) | {"sectors_ld": 4}
    found = ncu.find(path, "k", "k").beside(((1, 1, 1), (1, 1, 1)), total)
    assert [(row.counter, row.counted, row.measured, row.ratio) for row in found.rows] == [("sectors_ld", 4, 8, 0.5)]
    assert found.launches == 2 and set(found.missing) == nsight.METRICS - {LOADS} - {
        metric for metrics in nsight.COPIES.values() for metric in metrics
    }
    found = ncu.find(path, "k", "k").beside(((1, 1, 1), (1, 1, 1)), total | {"wavefronts_copied": 1})
    assert set(nsight.COPIES["wavefronts_copied"]) <= set(found.missing)


@pytest.mark.parametrize(
    ("kernel", "entry", "name", "same"),
    [
        ("k", "k", "k", True),
        ("k(const float *, int)", "k", "k", True),
        ("ns::k(int)", "k", "k", False),
        ("kk", "k", "k", False),
        ("void ns::turn<(int)32, float>(const T2 *, T2 *)", "turn", "_ZN2ns4turnILi32EfEEvPKT0_PS1_", True),
        ("turn", "turn", "_ZN2ns4turnILi32EfEEvPKT0_PS1_", True),
        ("_ZN2ns4turnILi32EfEEvPKT0_PS1_", "turn", "_ZN2ns4turnILi32EfEEvPKT0_PS1_", True),
        ("void ns::turn<(int)16, float>(const T2 *, T2 *)", "turn", "_ZN2ns4turnILi32EfEEvPKT0_PS1_", False),
        ("void f<(bool)1, (unsigned int)8>(T1 *)", "f<true, 8>", "_Z1fILb1ELj8EEvPi", True),
    ],
)
def test_kernels_are_found_by_name(kernel, entry, name, same, report):
    from kernels.engines.emulator.ptx import names

    if names.demangled("_Z1fi") == "_Z1fi":
        pytest.skip("no C++ runtime here that demangles")
    path = report(f'{HEADER},"{LOADS}"\n"0","{kernel}","","","8"\n')
    if same:
        assert ncu.find(path, entry, name).launches == 1
    else:
        with pytest.raises(RuleError, match="no launch"):
            ncu.find(path, entry, name)
