"""The fusion ladder without a GPU: results of any chain on every rung, generated kernels compared with hand-written ones,
detection of omitted blocks."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import sources
from kernels.engines import cpu, emulator
from kernels.engines.emulator import precompiled
from kernels.engines.emulator.compiler import compile
from kernels.engines.emulator.compiler.compile import compile_ptx, ptxas_log
from kernels.fusion import codegen, ladder
from kernels.fusion.half.codegen import PREFIX as HALF
from kernels.fusion.presets import FUSION_PRESETS
from kernels.fusion.shape import KINDS, POINTWISE, ChainShape
from kernels.jobs.job import Request
from kernels.jobs.worker import Worker
from kernels.model.program import INPUT, RuleError
from kernels.model.verify import agrees
from kernels.precompile import kernels, ptxas_resources
from kernels.runner import run, seeded_inputs
from tests.helpers.emulated import needs_nvrtc
from tests.helpers.rung_runs import (
    assert_fault_is_detected,
    computed,
    memory_of,
    reference_and_scale,
    relaunched,
    runs_or_names_its_rule,
    same_in_any_order,
    some_tiles,
    verified_output,
)
from tests.helpers.shapes import chain_shapes

RUNGS = {rung.name: rung for rung in ladder.RUNGS}
# Windows that overlap and extend beyond the map, maps that float4 does not divide, a fold, every kind of group.
RAGGED = ChainShape(2, 3, 11, 9, "bn relu conv:K=5:R=3 bias bn relu avgpool:3:stride=2:pad=1 add")
TILES = {"BLOCK": 256, "FOURS": 1}


IMPLICIT = RUNGS["fusion/implicit-gemm"]


def supported(s: ChainShape):
    return [rung for rung in ladder.RUNGS if not any(rung.rules(s, rung.default_tiles))]


def on_cpu(s: ChainShape):
    return [rung for rung in supported(s) if "cpu" in rung.engines]


# -- results for any chain --------------------------------------------------------------------------------------
@needs_nvrtc
@settings(max_examples=12)
@given(chain_shapes())
def test_emulator_agrees_with_the_reference_for_any_chain(s):
    for rung in supported(s):
        verified_output(emulator, rung, s)


@settings(max_examples=20)
@given(chain_shapes(max_extent=14, max_blocks=8))
def test_cpu_agrees_with_the_reference_for_any_chain(s):
    for rung in on_cpu(s):
        assert verified_output(cpu, rung, s).dtype == np.float32


@settings(max_examples=10)
@given(chain_shapes(), st.sampled_from([1, 7, 40]))
def test_cpu_agrees_at_any_piece_size(s, piece):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kernels.fusion.cpu.PIECE", piece)
        for rung in on_cpu(s):
            verified_output(cpu, rung, s)


@needs_nvrtc
@pytest.mark.parametrize("name", [name for name in RUNGS if name != IMPLICIT.name])
@pytest.mark.parametrize(
    ("chain", "fours"),
    [(RAGGED.chain, 2), ("bias bn relu add", 4), ("add relu gap bn", 1), ("bn add maxpool:2 bias", 2)],
)
def test_tiles_and_warp_order_change_nothing_and_no_races(name, chain, fours):
    s, tiles = RAGGED.with_(chain=chain), {"BLOCK": 128, "FOURS": fours}
    if any(RUNGS[name].rules(s, tiles)):
        assert name == "fusion/folded"
        return
    same_in_any_order(lambda options: verified_output(emulator, RUNGS[name], s, tiles, options=options))


@needs_nvrtc
@pytest.mark.parametrize(
    ("s", "tiles"),
    [
        (RAGGED, {"BM": 32, "BN": 32, "TN": 4}),
        (ChainShape(2, 19, 4, 4, "conv:K=70:R=1 bn add relu"), {}),  # several rows of blocks; whole float4
        (ChainShape(3, 2, 7, 5, "conv:K=3:R=5:pad=0 bias conv:K=2:R=3:stride=2:pad=2 add relu"), {}),
    ],
    ids=str,
)
def test_product_agrees_in_any_order_of_warps_without_races(s, tiles):
    same_in_any_order(lambda options: verified_output(emulator, IMPLICIT, s, tiles, options=options))


@needs_nvrtc
@settings(max_examples=3)
@given(st.data())
def test_product_agrees_at_any_tile_sizes(data):
    s = ChainShape(2, 5, 6, 7, "conv:K=9:R=3:stride=2 bn add relu")
    runs_or_names_its_rule(IMPLICIT, s, some_tiles(data, IMPLICIT, s), "BM|BN|BK|STAGES")


@needs_nvrtc
def test_fused_pointwise_chains_equal_unfused_bit_for_bit():
    """They do the same operations in the same order. The compiler contracts operations only within a block."""
    s = ChainShape(2, 3, 5, 7, "bn relu add")
    unfused, fused = (computed(emulator, RUNGS[f"fusion/{name}"], s)[0] for name in ("unfused", "fused"))
    np.testing.assert_array_equal(fused, unfused)


@needs_nvrtc
@settings(max_examples=6)
@given(chain_shapes(max_blocks=3))
def test_folded_batch_norm_equals_batch_norm(s):
    s = ChainShape(*s.y_shape, "conv:K=3:R=1 bias bn relu")
    outputs = [
        verified_output(engine, RUNGS[f"fusion/{name}"], s)
        for engine in (cpu, emulator)
        for name in ("folded", "fused")
    ]
    _, scale = reference_and_scale(
        RUNGS["fusion/fused"], s, None, seeded_inputs([b for b in ladder.parts.buffers(s) if b.role == INPUT])
    )
    for out in outputs[1:]:
        assert (np.abs(out - outputs[0]) <= 2e-6 * scale).all()


# -- the kernels ---------------------------------------------------------------------------------------------------
@needs_nvrtc
@pytest.mark.parametrize("kind", KINDS)
def test_generated_kernel_of_one_block_equals_hand_written(kind):
    """Launches it instead of the hand-written kernel and compares bit for bit."""
    word = {"conv": "conv:K=4:R=3:stride=2", "maxpool": "maxpool:3:stride=2:pad=1", "avgpool": "avgpool:3:pad=1"}
    s = ChainShape(2, 3, 7, 9, word.get(kind, kind))
    (part,) = ladder.unfused(s, TILES).parts
    assert part.launch.source.endswith(f"_{kind}.cu") and part.launch.source[7:9].isdigit()
    written = sources.translation_unit(codegen.Group(0, (kind,)).source)
    inputs = seeded_inputs([b for b in ladder.parts.buffers(s) if b.role == INPUT])
    outputs = []
    for change in (lambda text: text, lambda text: written):
        memory = memory_of(ladder.unfused(s, TILES).program, inputs)
        assert not relaunched(part.launch, change, memory).races
        outputs.append(memory.array("y"))
    np.testing.assert_array_equal(*outputs)


@needs_nvrtc
@settings(max_examples=8)
@given(st.lists(st.sampled_from(KINDS), min_size=1, max_size=8))
def test_any_generated_text_compiles_without_warnings_or_spills(kinds):
    tiles = tuple(sorted(IMPLICIT.default_tiles.items()))
    for group in {*codegen.groups(kinds), *codegen.groups(kinds, implicit=True)}:
        defines = tiles if group.is_product else ()
        log = ptxas_log(sources.translation_unit(group.source), "kernel.cu", defines)
        assert "warning" not in log and ptxas_resources(log)["spill_bytes"] == 0, (kinds, log)


OMITTED = {  # block: chains whose generated kernels together have each possible position of a block
    "bias": ("relu bias", "conv:K=2:R=3 bias"),
    "bn": ("bn maxpool:2", "gap bn"),
    "relu": ("relu avgpool:2", "relu gap"),
    "add": ("add gap", "avgpool:2 add"),
}


@needs_nvrtc
@pytest.mark.parametrize("kind", POINTWISE)
def test_generator_that_omits_a_block_is_detected(kind):
    chains = [("fusion/fused", chain) for chain in OMITTED[kind]] + [(IMPLICIT.name, f"conv:K=2:R=3 {kind}")]
    for rung, chain in chains:
        s = ChainShape(1, 2, 5, 6, chain)
        plan = ladder.PLANS[rung](s, RUNGS[rung].default_tiles)
        (part,) = plan.parts
        inputs = seeded_inputs([b for b in ladder.parts.buffers(s) if b.role == INPUT])
        memory = memory_of(plan.program, inputs)
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(codegen.APPLY, kind, ";")
            text = codegen.text.__wrapped__(part.launch.source)
        right = sources.text(part.launch.source)
        assert text != right
        relaunched(
            part.launch,
            lambda whole, a=right, b=text: whole.replace(a[a.index('extern "C"') :], b[b.index('extern "C"') :]),
            memory,
        )
        ref, scale = reference_and_scale(RUNGS["fusion/fused"], s, None, inputs)
        assert not agrees(memory.array("y"), ref, scale, RUNGS["fusion/fused"].tolerance), chain


PRODUCT_FAULTS = {  # the same, of a convolution as a matrix product
    "a sum of the row below": ("bias", "float* v = sum[row] + four", "float* v = sum[row ^ 1] + four"),
    "pixels beyond the last stored": ("relu", "if (pixel + j < columns)", "if (true)"),
    "no border": ("relu", "(unsigned)(windows[j].w + s) < (unsigned)shape.W", "true"),
    "an addend of another map": ("add", "load(other, z, k, pixel", "load(other, z, 0, pixel"),
}
FAULTS = {  # what is wrong: (chain, original code, faulty code)
    "the map of the first for all four": ("bias relu", "j == 0 || shape.P * shape.Q % 4 != 0", "j == 0"),
    "eps left out": ("bn:eps=0.5 relu", "var[c] + eps", "var[c]"),
    "the pad of a pool read": ("relu maxpool:3:pad=1", "if (in_row < 0 || in_row >= shape.H ||", "if ("),
    "a window too small": ("relu avgpool:2", "s < shape.R", "s < shape.R - 1"),
    "a stride of one": ("conv:K=2:R=3:stride=2 relu", "q * shape.stride", "q"),
    "half the lanes": ("relu gap", "lane_mask = 16", "lane_mask = 8"),
    "the addend of the output's place": ("add maxpool:2", "z[in_index]", "z[i]"),
    "numbers of the input's map": ("conv:K=2:R=1 bias", "b[k]", "b[0]"),
    "the second bias for the first": ("bias relu bias", "map_bias_2 = b_2[c]", "map_bias_2 = b[c]"),
}


@needs_nvrtc
@pytest.mark.parametrize("fault", FAULTS)
def test_fault_in_a_generated_kernel_is_detected(fault):
    chain, right, wrong = FAULTS[fault]
    s = ChainShape(2, 3, 7, 9, chain)
    program = ladder.fused(s, TILES).program
    (step,) = program.steps
    inputs = seeded_inputs(program.of_role(INPUT))
    memory = memory_of(program, inputs)

    def change(text):
        assert text.count(right) == 1, (text, right)
        return text.replace(right, wrong)

    if relaunched(step, change, memory):
        ref, scale = reference_and_scale(RUNGS["fusion/fused"], s, None, inputs)
        assert not agrees(memory.array("y"), ref, scale, RUNGS["fusion/fused"].tolerance)


@needs_nvrtc
@pytest.mark.parametrize("fault", PRODUCT_FAULTS)
def test_fault_in_a_product_is_detected(fault):
    block, right, wrong = PRODUCT_FAULTS[fault]
    s = ChainShape(2, 3, 5, 9, f"conv:K=5:R=3:stride=2 {block}")
    program = IMPLICIT.build(s, IMPLICIT.default_tiles)
    assert_fault_is_detected(IMPLICIT, s, program, seeded_inputs(program.of_role(INPUT)), right, wrong)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    "chain", ["relu add relu", "maxpool:2", "relu maxpool:3:pad=1 relu", "bias relu gap", "avgpool:2"]
)
@pytest.mark.parametrize("engine", [cpu, pytest.param(emulator, marks=needs_nvrtc)], ids=["cpu", "emulator"])
def test_infinities_and_nans_give_what_the_reference_gives(engine, chain, value):
    s = ChainShape(1, 2, 6, 6, chain)
    inputs = seeded_inputs([b for b in ladder.parts.buffers(s) if b.role == INPUT])
    inputs["x"][0, 0, 2:4, 3] = value
    with np.errstate(all="ignore"):
        ref, _ = reference_and_scale(RUNGS["fusion/fused"], s, None, inputs)
        for name in ("unfused", "fused"):
            out, _ = computed(engine, RUNGS[f"fusion/{name}"], s, None, inputs)
            np.testing.assert_allclose(out, ref, rtol=1e-5, atol=1e-5)
    assert not np.isfinite(ref).all() or value == -np.inf


# -- counters --------------------------------------------------------------------------------------------------------
@needs_nvrtc
def test_emulator_counts_the_bytes_that_fusion_saves():
    """If float4 divides the maps, every byte between registers and memory can be counted by hand."""
    s = ChainShape(2, 4, 8, 8, "bias bn relu add")
    n, threads = 2 * 4 * 64, 2 * 4 * 16
    total = {}
    for name in ("unfused", "fused"):
        result = run(f"fusion/{name}", s, engine="emulator")
        total[name] = result.counters.total
        assert result.predicted.bytes == 4 * ({"unfused": 4, "fused": 1}[name] * 2 * n + n + 5 * 4)
    assert total["fused"]["bytes_st"] == 4 * n and total["unfused"]["bytes_st"] == 4 * 4 * n
    parameters = 4 * 5 * threads  # each thread loads the five of its map
    assert total["fused"]["bytes_ld"] == 4 * 2 * n + parameters
    assert total["unfused"]["bytes_ld"] == 4 * 5 * n + parameters


@needs_nvrtc
def test_a_block_before_a_pool_is_counted_for_every_value_of_a_window():
    s = ChainShape(1, 2, 9, 9, "relu maxpool:3:stride=2")
    (part,) = ladder.fused(s, TILES).parts
    assert part.flops == 2 * (2 * 4 * 4) * 9  # ReLU and the comparison, for 9 values of each result


def test_counters_refer_to_lines_of_the_generated_text():
    s = ChainShape(1, 2, 4, 4, "conv:K=2:R=3 bias bn relu")
    lines = run("fusion/fused", s, engine="emulator").counters.lines
    file = "fused_conv_bias_bn_relu.cu"
    text = sources.text(f"fusion/{file}").splitlines()
    at = {text[location.number - 1].strip() for location in lines if location.file == file}
    assert {"y[i] = v;"} <= at and any(line.endswith("// bn") for line in at)
    assert any(line.endswith("// conv") for line in at)


# -- generated kernels without a file ----------------------------------------------------------------------------------
@needs_nvrtc
def test_worker_finds_a_generated_kernel_by_name():
    """Runs a new chain in a separate process."""
    worker = Worker(deadline_s=60)
    try:
        s = ChainShape(1, 3, 6, 5, "add bias relu maxpool:2 add bn")
        rungs = ("fusion/unfused", "fusion/fused")
        rows = worker.submit(Request(rungs, s, engine="emulator", seconds=0.05)).result(timeout=60)
        assert [row["rung"] for row in rows] == list(rungs) and all(row["error"] < 1e-6 for row in rows)
        assert all(row["shape"] == s.params() for row in rows)
    finally:
        worker.close()


def test_without_nvrtc_only_presets_are_emulated(monkeypatch):
    def missing(*args):
        raise compile.CompilerMissing("NVRTC is not installed")

    monkeypatch.setattr(compile, "compile_ptx", missing)
    for preset in FUSION_PRESETS.values():
        s = preset.shape.with_(N=1, C=3, H=9, W=9)
        for step in (step for rung in supported(s) for step in rung.build(s, rung.default_tiles).steps):
            assert precompiled.ptx(step.source, step.defines)
    verified_output(emulator, RUNGS["fusion/fused"], s)
    other = ChainShape(1, 2, 4, 4, "relu bias relu bias")
    with pytest.raises(RuleError, match=r"fused_relu_bias_relu_bias.cu .* is not among the compiled kernels"):
        run("fusion/fused", other, engine="emulator")
    assert run("fusion/fused", other, engine="cpu", measure=False).error < 1e-6


@needs_nvrtc
def test_precompiled_kernels_are_those_of_the_presets():
    expected = {
        part.launch.source
        for preset in FUSION_PRESETS.values()
        for rung in supported(preset.shape)
        for part in ladder.PLANS[rung.name](preset.shape, rung.default_tiles).parts
    }
    assert expected == {
        source for source, _, _ in kernels() if source.startswith("fusion/") and not source.startswith(HALF)
    }


@needs_nvrtc
@pytest.mark.parametrize("path", sorted(p.name for p in sources.ROOT.glob("fusion/cuda/*.cu")))
def test_hand_written_kernels_are_short_lined_and_commented(path):
    text = sources.text(f"fusion/{path}")
    assert all(len(line) <= 72 for line in text.splitlines())
    assert re.search("What limits\\s(// )?it", text) and "Launch: " in text
    assert compile_ptx(sources.translation_unit(f"fusion/{path}"), path)


# -- memory ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", [name for name, rung in RUNGS.items() if "cpu" in rung.engines])
def test_cpu_engine_allocates_the_predicted_bytes(name):
    """Besides it, at most a padded image and a product are allocated: pieces, no maps."""
    s = ChainShape(8, 16, 40, 40, "conv:K=16:R=3 bias bn relu add relu")
    rung = RUNGS[name]
    program = rung.build(s, TILES)
    session = cpu.Session(program, seeded_inputs(program.of_role(INPUT)))
    session.verify_run()
    extra_bytes = session.memory.workspace - rung.cost(s, program).workspace_bytes
    assert 0 <= extra_bytes < 4 * 4 * 16 * 42 * 42
