"""A choice of the unit tests of kernels and visuals, run in WebAssembly. `make wasm` runs all of them."""

import os

import pytest

from tests import wasm

WHY = "" if os.environ.get("CI") else wasm.lacking()
# Indices and keys of the emulator, formats, costs, scenes: what 32-bit integers and a missing package broke.
CHOICE = """
    tests/kernels/model/test_fast_division.py
    tests/kernels/precision/test_ladder.py::test_the_numpy_steps_are_exact
    tests/kernels/precision/test_ladder.py::test_the_emulator_counts_the_operations_of_the_definition
    tests/kernels/pooling/test_reference.py::test_indices_of_the_backward_pass_are_places_of_maxima
    tests/visuals/softmax/test_scene.py::test_parts_of_a_row_equal_what_the_first_launch_stores
    tests/visuals/gemm/test_accumulator.py::test_every_element_has_one_holder
""".split()


@pytest.mark.timeout(900)
@pytest.mark.skipif(bool(WHY), reason=WHY)
def test_a_choice_of_unit_tests_passes_in_webassembly(tmp_path):
    done = wasm.run(tmp_path, "-q", "--assert=plain", *CHOICE, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
