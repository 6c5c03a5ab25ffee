"""A judge's folder: the tests of a challenge written here in both of LeetGPU's forms, on right and on wrong solutions."""

from __future__ import annotations

import importlib.util
import json
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from kernels.__main__ import main
from kernels.engines.emulator.program.judge import judge
from kernels.model.program import RuleError
from tests.helpers.emulated import needs_nvrtc

pytestmark = needs_nvrtc
NEW = """
class Challenge(ChallengeBase):
    name = "scaled sum"
    atol = 1e-5
    rtol = 1e-5
"""
OLD = """
class Challenge(ChallengeBase):
    def __init__(self):
        super().__init__(name="scaled sum", atol=1e-5, rtol=1e-5, num_gpus=1, access_tier="free")
"""
CHALLENGE = """import ctypes
import torch
from core.challenge_base import ChallengeBase, OutTensor, RandTensor

HEAD
    def reference_impl(self, A: torch.Tensor, B: torch.Tensor, out: torch.Tensor, by: float, N: int):
        assert A.shape == B.shape == out.shape == (N,)
        assert A.device.type == "cuda"
        out.copy_(A * by + B)

    def get_solve_signature(self):
        pointer = ctypes.POINTER(ctypes.c_float)
        return {
            "A": (pointer, "in"), "B": (pointer, "in"), "out": (pointer, "out"), "by": (ctypes.c_float, "in"), "N": (ctypes.c_int, "in"),
        }

    def _case(self, values):
        A = torch.tensor(values, device=DEVICE, dtype=torch.float32)
        return {"A": A, "B": torch.ones(len(values), device=DEVICE), "out": torch.empty(len(values), device=DEVICE), "by": 2.0, "N": len(values)}

    def generate_example_test(self):
        return self._case([1.0, 2.0, 3.0])

    def generate_functional_test(self):
        return [self._case([float(n) for n in range(size)]) for size in (1, 32, 100)]

    def generate_performance_test(self):
        return {"A": RandTensor((1 << 25,), -1.0, 1.0), "out": OutTensor((1 << 25,))}
"""
SOLUTION = """#include <cuda_runtime.h>
__global__ void axpy(const float* A, const float* B, float* out, float by, int N) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < N) out[i] = by * A[i] + B[i];
}
extern "C" void solve(const float* A, const float* B, float* out, float by, int N) {
  axpy<<<(N + 31) / 32, 32>>>(A, B, out, by, N);
  cudaDeviceSynchronize();
}
"""


class _Tensor:
    """As much of a tensor as the challenge uses."""

    def __init__(self, array: np.ndarray):
        self.array, self.dtype, self.shape, self.device = (
            array,
            "torch.float32",
            array.shape,
            SimpleNamespace(type="cuda"),
        )

    def clone(self):
        return _Tensor(self.array.copy())

    def detach(self):
        return self

    cpu = contiguous = cuda = to = detach

    def numpy(self):
        return self.array

    def copy_(self, other):
        self.array[:] = other.array

    def __mul__(self, by):
        return _Tensor(self.array * np.float32(by))

    def __add__(self, other):
        return _Tensor(self.array + other.array)


@pytest.fixture
def torch(monkeypatch):
    """PyTorch if it is installed here, else as much of it as the challenge uses."""
    if importlib.util.find_spec("torch"):
        return
    module = ModuleType("torch")
    mode = type("TorchFunctionMode", (), {"__enter__": lambda self: self, "__exit__": lambda self, *error: None})
    vars(module).update(
        Tensor=_Tensor,
        float32=np.float32,
        overrides=SimpleNamespace(TorchFunctionMode=mode),
        tensor=lambda values, device, dtype: _Tensor(np.array(values, dtype)),
        ones=lambda n, device: _Tensor(np.ones(n, np.float32)),
        empty=lambda n, device: _Tensor(np.ones(n, np.float32)),  # what test 1 expects
    )
    monkeypatch.setitem(sys.modules, "torch", module)


@pytest.fixture
def folder(tmp_path, torch):
    (tmp_path / "challenge.py").write_text(CHALLENGE.replace("HEAD", NEW).replace("DEVICE", "self.device"))
    (tmp_path / "solution.cu").write_text(SOLUTION)
    return tmp_path


@pytest.mark.parametrize("head, device", [(NEW, "self.device"), (OLD, '"cuda"')])
def test_a_right_solution(folder, head, device):
    (folder / "challenge.py").write_text(CHALLENGE.replace("HEAD", head).replace("DEVICE", device))
    judged = judge(folder, folder / "solution.cu")
    assert judged.right and judged.challenge == "scaled sum"
    assert [test.name for test in judged.tests] == ["the example", "test 1", "test 2", "test 3"]
    assert all(test.ended and len(test.ended.launches) == 1 for test in judged.tests)
    assert "core" not in sys.modules


@pytest.mark.parametrize(
    "old, new, wrong, right",
    [
        ("by * A[i] + B[i]", "A[i] + B[i]", "3 of 3 elements of out differ", 1),
        ("(N + 31) / 32", "N / 32", "was never written", 1),
        ("if (i < N) ", "", "out-of-bounds", 1),
        ("axpy<<<", "out[0] = A[0]; axpy<<<", "it is memory of the device", 0),
    ],
)
def test_a_wrong_solution(folder, old, new, wrong, right):
    assert old in SOLUTION
    (folder / "solution.cu").write_text(SOLUTION.replace(old, new))
    judged = judge(folder, folder / "solution.cu")
    assert sum(test.right for test in judged.tests) == right
    assert wrong in next(test.wrong for test in judged.tests if not test.right)


def test_the_command(folder, capsys):
    assert main(["judge", str(folder), str(folder / "solution.cu")]) == 0
    assert "scaled sum: 4 of 4 tests are right" in capsys.readouterr().out
    (folder / "solution.cu").write_text(SOLUTION.replace("by * A[i]", "A[i]"))
    assert main(["judge", str(folder), str(folder / "solution.cu"), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["right"] is False


@pytest.mark.parametrize(
    "challenge, solution, message",
    [
        (None, SOLUTION, "has a file challenge.py"),
        ("class Challenge:\n    pass\n", SOLUTION, "get_solve_signature"),
        ("import no_such_module\n", SOLUTION, "cannot be loaded: ModuleNotFoundError"),
        ("", SOLUTION.replace(", int N) {\n  axpy", ") {\n  int N = 3; axpy"), "solve takes 4 parameters"),
        ("", SOLUTION.replace("solve", "other"), "no kernel 'solve'"),
    ],
)
def test_what_cannot_be_judged(folder, challenge, solution, message):
    if challenge is None:
        (folder / "challenge.py").unlink()
    elif challenge:
        (folder / "challenge.py").write_text(challenge)
    (folder / "solution.cu").write_text(solution)
    with pytest.raises(RuleError, match=message):
        judge(folder, folder / "solution.cu")


def test_without_pytorch(tmp_path, monkeypatch):
    (tmp_path / "challenge.py").write_text("import torch\n")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(RuleError, match="pip install torch"):
        judge(tmp_path, tmp_path / "solution.cu")
