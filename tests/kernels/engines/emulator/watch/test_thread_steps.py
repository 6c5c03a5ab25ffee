"""`emulate --watch`: what one thread does, line by line."""

from __future__ import annotations

import json

import pytest

from kernels.__main__ import main
from kernels.engines.emulator import user_kernel
from kernels.model.program import RuleError
from tests.helpers.emulated import needs_nvrtc
from tests.helpers.offenders import every

TILE = """#define T 2
extern "C" __global__ void tile(const int* A, const int* B, int* C, int n) {
  __shared__ int As[T][T], Bs[T][T];
  int y = threadIdx.y, x = threadIdx.x, row = blockIdx.y * T + y, col = blockIdx.x * T + x, sum = 0;
  for (int k0 = 0; k0 < n; k0 += T) {
    As[y][x] = A[row * n + k0 + x];
    Bs[y][x] = B[(k0 + y) * n + col];
    __syncthreads();
    for (int k = 0; k < T; ++k) sum += As[y][k] * Bs[k][x];
    __syncthreads();
  }
  C[row * n + col] = sum;
}"""
ARGUMENTS = ["--arg", "i32:4x4:arange", "--arg", "i32:4x4:arange", "--arg", "i32:4x4:empty", "--arg", "i32:4"]


@needs_nvrtc
def test_a_thread_of_a_tiled_product(tmp_path, capsys):
    (tmp_path / "k.cu").write_text(TILE)
    command = ["emulate", str(tmp_path / "k.cu"), "tile", "--grid", "2,2", "--block", "2,2", *ARGUMENTS]
    assert main([*command, "--watch", "3:1", "--json"]) == 0
    deeds = json.loads(capsys.readouterr().out)["watched"]
    at = [deed for deed in deeds if deed["line"]["number"] in (6, 9, 12) and (deed["reads"] or deed["writes"])]
    # Block (1, 1), thread (1, 0): row 2 of A is 8 9 10 11, column 3 of B is 3 7 11 15.
    assert (at[0]["reads"], at[0]["writes"]) == (["A[2, 1] = 9"], ["As[0, 1] = 9"])
    sums = [deed for deed in at if deed["line"]["number"] == 9]
    assert [deed["values"] for deed in sums] == [["sum = 24"], ["sum = 87"], ["sum = 197"], ["sum = 362"]]
    assert sums[1]["reads"] == ["As[0, 1] = 9", "Bs[1, 1] = 7"] and {deed["statement"] for deed in sums} == {1}
    assert at[-1]["writes"] == ["C[2, 3] = 362"]
    assert main([*command, "--watch", "3:1"]) == 0
    shown = capsys.readouterr().out
    assert "   9   sum += As[y][k] * Bs[k][x];\n       sum = 87; reads As[0, 1] = 9, Bs[1, 1] = 7\n" in shown


@pytest.mark.parametrize("text, block, thread", [("9", 0, 9), ("2:9", 2, 9), ("0:0", 0, 0)])
def test_which_thread(text, block, thread):
    assert user_kernel.watched_thread(text, (2, 2, 1), (4, 4, 1)) == (block, thread)


@every("text", ["", "x", "1:", ":1", "1:2:3", "-1"])
def test_a_thread_that_is_not_understood_is_refused(text):
    with pytest.raises(RuleError, match="--watch is a thread of block 0, such as 9"):
        user_kernel.watched_thread(text, (2, 2, 1), (4, 4, 1))


@pytest.mark.parametrize("text", ["16", "4:0"])
def test_a_thread_that_the_launch_does_not_have_is_refused(text):
    with pytest.raises(RuleError, match="the launch has 4 blocks of 16 threads, numbered from 0"):
        user_kernel.watched_thread(text, (2, 2, 1), (4, 4, 1))


@needs_nvrtc
def test_ptx_has_no_variables(tmp_path):
    (tmp_path / "k.ptx").write_text(".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k()\n{\n ret;\n}\n")
    with pytest.raises(RuleError, match=r"k\.ptx is PTX: the variables of CUDA C"):
        user_kernel.emulate(tmp_path / "k.ptx", "k", (1, 1, 1), (1, 1, 1), [], watch="0")
