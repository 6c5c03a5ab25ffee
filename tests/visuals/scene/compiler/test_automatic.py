"""A kernel that nobody has written a word about: its scene says what a thread does, and marks what is wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from kernels.engines.emulator.watch.recording import Recorded
from kernels.engines.emulator.watch.user import record_kernel
from tests.helpers.emulated import needs_nvrtc
from visuals.scene.compiler.automatic import automatic_view
from visuals.scene.compiler.compile import compile_scene
from visuals.scene.compiler.user import kernel_scene
from visuals.scene.payload import payload

pytestmark = needs_nvrtc
ROOT = Path(__file__).parents[4]
MATMUL = """#define TILE 4
extern "C" __global__ void matmul(const float* A, const float* B, float* C, int n) {
  __shared__ float As[TILE][TILE], Bs[TILE][TILE];
  int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
  float sum = 0.0f;
  for (int t = 0; t < n; t += TILE) {
    As[threadIdx.y][threadIdx.x] = A[row * n + t + threadIdx.x];
    Bs[threadIdx.y][threadIdx.x] = B[(t + threadIdx.y) * n + col];
    __syncthreads();
    for (int k = 0; k < TILE; ++k) sum += As[threadIdx.y][k] * Bs[k][threadIdx.x];
    __syncthreads();
  }
  C[row * n + col] = sum;
}
"""
RACE = MATMUL.replace("    __syncthreads();\n  }", "  }")
OF_MATMUL = ("f32:8x8:random", "f32:8x8:random", "f32:8x8:empty", "i32:8")
SUM = """extern "C" __global__ void total(const float* x, float* y, int n) {
  float sum = 0.0f;
  for (int i = threadIdx.x; i < n; i += 32) sum += x[i];
  for (int d = 16; d; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
  if (threadIdx.x == 0) y[0] = sum;
}
"""


@pytest.fixture
def scene(tmp_path):
    """Returns a function that makes the scene of a source's kernel."""

    def make(text: str, entry: str, grid, block, args, *watched: int, **settings):
        file = tmp_path / "own.cu"
        file.write_text(text, encoding="utf-8")
        return kernel_scene(file, entry, grid, block, args, watched or (0, 0), **settings)

    return make


def captions(scene) -> list[str]:
    return [scene.caption(t) for t in range(scene.steps)]


def test_captions_say_what_a_thread_reads_sets_and_writes(scene):
    made = scene(MATMUL, "matmul", (2, 2, 1), (4, 4, 1), OF_MATMUL, 1, 5)
    said = captions(made)
    a, b = made.tensor("A").values.reshape(8, 8), made.tensor("B").values.reshape(8, 8)
    assert said[1].startswith("Line 7: thread 5 reads A[1, 1] = ") and "writes As[1, 1] = " in said[1]
    assert "4 × 4" not in said[2] and "16 threads wait for each other at the barrier." in said[3]
    assert "reads As[1, 0] = " in said[4] and "and Bs[0, 1] = " in said[4] and "sets sum = " in said[4]
    product = a.astype(float) @ b.astype(float)
    np.testing.assert_allclose(made.cells("C").reshape(8, 8), product, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        made.cells("C", made.steps - 2).reshape(8, 8)[:4, 4:], product[:4, 4:], rtol=1e-5, atol=1e-6
    )
    assert np.isnan(made.cells("C", made.steps - 2).reshape(8, 8)[4:]).all() and "other blocks" in said[-1]
    assert not made.faults and {w.source for w in made.writes if w.target == "As"} == {"A"}


def test_the_arrays_of_the_last_step_are_those_of_the_launch(tmp_path):
    (tmp_path / "own.cu").write_text(MATMUL, encoding="utf-8")
    found = record_kernel(tmp_path / "own.cu", "matmul", (2, 2, 1), (4, 4, 1), OF_MATMUL, (3,))
    made = compile_scene(Recorded((found.recording,), {}, 0.0), automatic_view([found.recording]), "key", "title")
    np.testing.assert_array_equal(made.cells("C").reshape(8, 8), found.recording.after["arg2"])
    assert found.differs == ()


def test_a_data_race_is_marked_at_its_step(scene):
    made = scene(
        RACE, "matmul", (1, 1, 1), (4, 4, 1), ("f32:8x8:random", "f32:8x8:random", "f32:8x8:empty", "i32:8"), 0, 5
    )
    steps = [step for step, _ in made.faults]
    assert len(steps) == 2 and all("Data race on shared memory" in made.caption(step) for step in steps)
    assert [made.source_at(step)[1] for step in steps] == [7, 8]
    meta, _ = payload(made)
    assert [step for step, _ in meta["faults"]] == steps


def test_a_fault_ends_the_scene(scene):
    made = scene(SUM, "total", (1, 1, 1), (32, 1, 1), ("f32:90:random", "f32:1:empty", "i32:100"))
    ((step, text),) = made.faults
    assert step == made.steps - 1 and "out-of-bounds read" in text and text[1:].rstrip(".") in made.caption(step)


def test_shuffles_name_the_lane(scene):
    said = captions(scene(SUM, "total", (1, 1, 1), (32, 1, 1), ("f32:64:arange", "f32:1:empty", "i32:64"), 0, 3))
    assert any("thread 3 gets " in text and "from lane 19" in text for text in said)


def test_loops_are_folded_if_there_are_many_steps(tmp_path):
    (tmp_path / "own.cu").write_text(SUM, encoding="utf-8")
    found = record_kernel(
        tmp_path / "own.cu", "total", (1, 1, 1), (32, 1, 1), ("f32:640:arange", "f32:1:empty", "i32:640")
    )
    whole, short = (
        compile_scene(
            Recorded((found.recording,), {}, 0.0), automatic_view([found.recording], most=most), "key", "title"
        )
        for most in (200, 20)
    )
    assert "Its iterations 3 to 19 are one step here." in " ".join(captions(short)) and short.steps < whole.steps - 15
    np.testing.assert_array_equal(short.cells("y"), whole.cells("y"))
    np.testing.assert_array_equal(short.cells("sum"), whole.cells("sum"))
    (i,) = (np.array(reading.values) for reading in whole.readings if reading.label == "i of thread 0")
    assert i[~np.isnan(i)].tolist()[:3] == [0, 32, 64]


def test_a_part_of_a_large_array_is_shown(scene):
    made = scene(
        MATMUL, "matmul", (32, 32, 1), (4, 4, 1), (*("f32:128x128:random",) * 2, "f32:128x128:empty", "i32:128"), 33, 0
    )
    a = made.tensor("A")
    assert a.partial and a.rows * a.cols <= 64 * 64 and a.origin == (0, 4, 0)


def test_a_kernel_that_does_nothing_has_a_step(scene):
    assert captions(scene('extern "C" __global__ void none() {}', "none", (1, 1, 1), (2, 1, 1), ())) == [
        "Line 1: 2 of 2 threads are here."
    ]


def test_the_command_writes_a_page(tmp_path):
    (tmp_path / "own.cu").write_text(MATMUL, encoding="utf-8")
    arguments = [text for argument in OF_MATMUL for text in ("--arg", argument)]
    command = [
        sys.executable,
        "-m",
        "kernels",
        "watch",
        str(tmp_path / "own.cu"),
        "matmul",
        "--grid",
        "2,2",
        "--block",
        "4,4",
    ]
    done = subprocess.run(
        [*command, *arguments, "--thread", "1:5", "--out", str(tmp_path / "page.html")],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert done.stdout.strip() == str(tmp_path / "page.html") and "<title>matmul, block 1</title>" in page
    refused = subprocess.run([*command, "--thread", "9:0"], cwd=ROOT, capture_output=True, text=True)
    assert refused.returncode and "Traceback" not in refused.stderr
