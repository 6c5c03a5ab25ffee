"""The least traffic of a shape, to which every chart compares a kernel, is that of its inputs and outputs."""

from __future__ import annotations

from kernels.ladders import LADDERS
from kernels.model.program import INPUT, OUTPUT
from tests.helpers.offenders import every

# Vectors of a number per row or channel are left out.
NORMS = [name for name in LADDERS if "norm" in name]
EXACT = """add banks branch layout relu relu-backward gelu gelu-backward bias bias-backward residual max-pool
    max-pool-backward avg-pool avg-pool-backward global-avg-pool global-avg-pool-backward softmax fusion cross-entropy
    cross-entropy-backward cross-entropy-step linear linear-dinput linear-dweight embedding-backward split-heads
    merge-heads attention-lse""".split()


def moved(name: str, shape) -> int:
    rung = LADDERS[name].rungs[0]
    program = rung.build(shape, rung.check(shape, {}))
    return program.nbytes(INPUT) + program.nbytes(OUTPUT)


@every("name", EXACT)
def test_each_input_is_read_once_and_each_output_written_once(name):
    for preset in LADDERS[name].presets.values():
        assert preset.shape.bytes == moved(name, preset.shape), preset.key


@every("name", NORMS)
def test_a_norm_leaves_out_only_its_vectors(name):
    largest = max((preset.shape for preset in LADDERS[name].presets.values()), key=lambda s: s.elements)
    assert 1 <= moved(name, largest) / largest.bytes < 1.01
