"""A chain of blocks as a shape, its reference, and how it is cut into kernels: tests that need no compiler."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import sources
from kernels.fusion import codegen, ladder
from kernels.fusion.presets import FUSION_PRESETS
from kernels.fusion.reference import chain as reference
from kernels.fusion.shape import KINDS, MAX_BLOCKS, REDUCING, TENSORS, ChainShape, parse_chain
from kernels.ladders import LADDERS
from kernels.model.program import INPUT, RuleError
from kernels.model.shape import ShapeError
from kernels.records.row import kernel_digest
from kernels.runner import run, seeded_inputs
from tests.helpers.offenders import every
from tests.helpers.shapes import chain_shapes

TILES = {"BLOCK": 256, "FOURS": 1}
TOY = ChainShape(1, 2, 4, 4, "conv:K=3:R=3 bias bn relu")
chains = st.lists(st.sampled_from(KINDS), min_size=1, max_size=MAX_BLOCKS)


# -- the shape -------------------------------------------------------------------------------------------------
@settings(max_examples=20)
@given(chain_shapes())
def test_chain_survives_params_and_text(s):
    assert ChainShape(**s.params()) == s == parse_chain(",".join(f"{k}={v}" for k, v in s.params().items()))
    assert hash(s) == hash(ChainShape(**s.params())) and s.chain in str(s)
    assert list(s.params()) == ["N", "C", "H", "W", "chain"]


@every(
    "text, expected",
    [
        ("conv:8:R=3", "conv:K=8:R=3"),
        ("conv:R=3:K=8:pad=1:stride=1", "conv:K=8:R=3"),
        ("conv:K=8:R=5:pad=1", "conv:K=8:R=5:pad=1"),
        ("conv:K=8:R=2:pad=0", "conv:K=8:R=2:pad=0"),
        ("  maxpool:R=2:stride=2   bn:eps=1e-5", "maxpool:2 bn"),
        ("avgpool:3:stride=2:pad=1 bn:eps=0.001", "avgpool:3:stride=2:pad=1 bn:eps=0.001"),
    ],
)
def test_equivalent_texts_make_the_same_chain(text, expected):
    assert ChainShape(1, 1, 9, 9, text).chain == ChainShape(1, 1, 9, 9, expected).chain == expected


INVALID = {
    "conv:8:3": r"block 1 \(conv\) takes K, R, stride, pad; got '3'",
    "": "a chain has 1 to 8 blocks, got 0",
    "relu " * 9: "a chain has 1 to 8 blocks, got 9",
    "relu softmax": "block 2 must be one of bias, bn, relu, add, conv, maxpool, avgpool, gap, got 'softmax'",
    "conv:K=2": r"block 1 \(conv\) needs R",
    "maxpool": r"block 1 \(maxpool\) needs R",
    "conv:K=2:R=2": r"block 1 \(conv\): R must be odd if no pad is given, got 2",
    "conv:K=2:R=3:pad=3": r"block 1 \(conv\): pad < R, got 3 >= 3",
    "conv:K=2:R=3:R=3": r"block 1 \(conv\): R is given twice",
    "conv:K=0:R=3": r"block 1 \(conv\): K must be in 1 \.\. 2147483647, got 0",
    "conv:K=2:R=3:stride=0": r"block 1 \(conv\): stride must be in 1 \.\. 1024, got 0",
    "conv:K=2:R=3:pad=-1": r"block 1 \(conv\): pad must be in 0 \.\. 1024, got -1",
    "relu maxpool:5": r"block 2 \(maxpool\): its window must fit the padded map, R <= H\+2\*pad; H is 4, and 5 > 4",
    "maxpool:2 maxpool:3": r"block 2 \(maxpool\): .* H is 2, and 3 > 2",
    "avgpool:3:pad=2": r"block 1 \(avgpool\): 2\*pad <= R, got 2\*2 > 3",
    "maxpool:two": r"block 1 \(maxpool\): R must be a whole number, got 'two'",
    "maxpool:2:3": r"block 1 \(maxpool\) takes R, stride, pad; got '3'",
    "relu:2": r"block 1 \(relu\) takes nothing; got '2'",
    "gap:": r"block 1 \(gap\) takes nothing; got ''",
    "bn:eps=0": r"block 1 \(bn\): eps must be in 1e-12 \.\. 1, got 0",
    "bn:eps=nan": r"block 1 \(bn\): eps must be in .*, got nan",
}


@every("chain", INVALID)
def test_invalid_chain_names_the_rule(chain):
    with pytest.raises(ShapeError, match=INVALID[chain]):
        ChainShape(1, 2, 4, 4, chain)


def test_invalid_extents_and_text_name_the_rule():
    with pytest.raises(ShapeError, match="N must be in 1"):
        TOY.with_(N=0)
    with pytest.raises(ShapeError, match="chain must be text"):
        ChainShape(1, 1, 1, 1, None)
    with pytest.raises(ShapeError, match="missing chain"):
        parse_chain("N=1,C=1,H=1,W=1")


def test_chain_numbers_computed_by_hand():
    s = ChainShape(2, 3, 8, 6, "conv:K=5:R=3 bias bn relu add maxpool:2 gap bn")
    assert [stage.after for stage in s.stages] == [(2, 5, 8, 6)] * 5 + [(2, 5, 4, 3), (2, 5, 1, 1), (2, 5, 1, 1)]
    assert s.y_shape == (2, 5, 1, 1)
    values = 2 * 5 * 8 * 6
    assert [stage.flops for stage in s.stages] == [
        values * 2 * 27,
        values,
        3 * values,
        values,
        values,
        4 * 2 * 5 * 12,
        2 * 5 * 12,
        3 * 10,
    ]
    assert s.elements == {
        "x": 2 * 3 * 48,
        "w": 5 * 27,
        "b": 5,
        **dict.fromkeys(("gamma", "beta", "mean", "var"), 5),
        "z": values,
        **dict.fromkeys(("gamma_2", "beta_2", "mean_2", "var_2"), 5),
        "y": 10,
    }
    assert s.bytes == 4 * sum(s.elements.values()) and s.macs == s.flops // 2


@every("key", FUSION_PRESETS)
def test_presets_are_labelled_and_run(key):
    preset = FUSION_PRESETS[key]
    assert preset.key == key and preset.label and preset.source
    for rung in ladder.RUNGS[:2]:
        assert not list(rung.rules(preset.shape, rung.default_tiles))


# -- the reference -----------------------------------------------------------------------------------------------
def by_definition(s: ChainShape, t: dict[str, np.ndarray]) -> np.ndarray:
    """Compute value by value in float64, by a different method than the reference."""
    v = t["x"].astype(np.float64)
    for stage, names in zip(s.stages, s.tensors, strict=True):
        tensors_of = {k: t[name].astype(np.float64) for k, name in names.items()}
        out = np.empty(stage.after)
        for at in np.ndindex(out.shape):
            out[at] = (pointwise if stage.block.pointwise else reduced)(stage.block, v, tensors_of, *at)
        v = out
    return v


def pointwise(b, v, tensors_of, n, k, p, q) -> float:
    value = v[n, k, p, q]
    if b.kind == "bias":
        return value + tensors_of["b"][k]
    if b.kind == "bn":
        deviation = math.sqrt(tensors_of["var"][k] + float(np.float32(b.eps)))
        return (value - tensors_of["mean"][k]) / deviation * tensors_of["gamma"][k] + tensors_of["beta"][k]
    return max(value, 0.0) if b.kind == "relu" else value + tensors_of["z"][n, k, p, q]


def reduced(b, v, tensors_of, n, k, p, q) -> float:
    if b.kind == "gap":
        return sum(v[n, k].ravel()) / v[n, k].size
    taps = itertools.product(range(b.R), repeat=2)
    positions = ((r, t, p * b.stride - b.pad + r, q * b.stride - b.pad + t) for r, t in taps)
    inside = [(r, t, h, w) for r, t, h, w in positions if 0 <= h < v.shape[2] and 0 <= w < v.shape[3]]
    if b.kind == "conv":
        return sum((v[n, :, h, w] * tensors_of["w"][k, :, r, t]).sum() for r, t, h, w in inside)
    window = [v[n, k, h, w] for _, _, h, w in inside]
    return max(window) if b.kind == "maxpool" else sum(window) / b.R**2


@settings(max_examples=20)
@given(chain_shapes(max_extent=6, max_blocks=5))
def test_reference_equals_the_definition(s):
    inputs = seeded_inputs([b for b in ladder.parts.buffers(s) if b.role == INPUT])
    ref, scale = reference(s, **inputs)
    np.testing.assert_allclose(ref, by_definition(s, inputs), rtol=1e-9, atol=1e-9)
    assert ref.shape == scale.shape == s.y_shape and (scale >= 0).all()


# -- groups --------------------------------------------------------------------------------------------------------
GROUPED = {
    "conv bias bn relu": ["conv bias bn relu"],
    "bias bn relu": ["bias bn relu"],
    "bn relu conv": ["bn relu", "conv"],
    "conv relu maxpool": ["conv relu", "maxpool"],
    "bn relu maxpool bias add": ["bn relu maxpool bias add"],
    "bn add relu gap": ["bn add relu gap"],
    "maxpool gap": ["maxpool", "gap"],
    "relu maxpool relu avgpool relu conv relu": ["relu maxpool relu", "avgpool relu", "conv relu"],
}


@every("chain", GROUPED)
def test_groups_by_hand(chain):
    assert [" ".join(group.kinds) for group in codegen.groups(chain.split())] == GROUPED[chain]


@settings(max_examples=20)
@given(chains)
def test_groups_have_every_block_once_and_are_minimal(kinds):
    groups = codegen.groups(kinds)
    assert [kind for group in groups for kind in group.kinds] == kinds
    assert [at for group in groups for at in group.blocks] == list(range(len(kinds)))
    assert codegen.groups(kinds) == groups
    for group in groups:
        assert sum(kind in REDUCING for kind in group.kinds) <= 1
        assert "conv" not in group.kinds[1:]
        parts = [*group.prologue, *([group.kinds.index(group.core)] if group.core else []), *group.epilogue]
        assert parts == list(range(len(group.kinds)))
        assert codegen.parse_source(group.source).kinds == group.kinds
        product = replace(group, implicit=True)
        assert codegen.parse_source(product.source).is_product == (group.core == "conv")
    for one, next_ in itertools.pairwise(groups):  # each group begins where the rule requires it
        assert next_.kinds[0] == "conv" or (one.core and next_.kinds[0] in REDUCING)


@settings(max_examples=20)
@given(chain_shapes())
def test_fused_never_launches_or_moves_more(s):
    plans = {name: plan(s, LADDERS["fusion"].rung(name).default_tiles) for name, plan in ladder.PLANS.items()}
    unfused, fused, folded = (plans[f"fusion/{name}"] for name in ("unfused", "fused", "folded"))
    assert len(unfused.parts) == len(s.stages) and len(fused.parts) <= len(unfused.parts)
    bytes_moved = [sum(part.bytes for part in plan.parts) for plan in (unfused, fused)]
    assert s.bytes <= bytes_moved[1] <= bytes_moved[0]
    assert (bytes_moved[1] == bytes_moved[0]) == (len(fused.parts) == len(unfused.parts))
    assert bytes_moved[1] == s.bytes or len(fused.parts) > 1
    workspace_bytes = [plan.program.nbytes("workspace") for plan in (unfused, fused)]
    assert bytes_moved == [s.bytes + 2 * nbytes for nbytes in workspace_bytes]  # each map between is written and read
    assert len(folded.parts) <= len(fused.parts) + len(ladder.folds(s))
    implicit = plans["fusion/implicit-gemm"]
    assert [(p.blocks, p.bytes, p.flops) for p in implicit.parts] == [(p.blocks, p.bytes, p.flops) for p in fused.parts]
    for plan in plans.values():
        assert {at for part in plan.parts for at in part.blocks} == set(range(len(s.stages)))
        names = [part.launch.name for part in plan.parts]
        assert len(set(names)) == len(names)
        buffer_names = {b.name for b in plan.buffers}
        assert buffer_names == {a for part in plan.parts for a in part.launch.args if isinstance(a, str)}


def test_cost_computed_by_hand():
    s = ChainShape(2, 3, 8, 8, "bias bn relu")
    n = 2 * 3 * 64
    cost = {rung.name: rung.cost(s, rung.build(s, TILES)) for rung in ladder.RUNGS[:2]}
    assert cost["fusion/unfused"].bytes == 4 * (6 * n + 5 * 3)
    assert cost["fusion/fused"].bytes == 4 * (2 * n + 5 * 3) == s.bytes
    assert cost["fusion/unfused"].flops == cost["fusion/fused"].flops == 5 * n == s.flops
    assert cost["fusion/unfused"].workspace_bytes == 2 * 4 * n and not cost["fusion/fused"].workspace_bytes


def test_prologue_flops_count_every_window():
    s = ChainShape(1, 1, 9, 9, "relu maxpool:3:stride=1")
    (part,) = ladder.fused(s, TILES).parts
    assert part.flops == 7 * 7 * 9 * (1 + 1) > s.flops
    (part,) = ladder.fused(s.with_(chain="relu gap"), TILES).parts
    assert part.flops == 2 * 81


def test_batch_norms_after_convolutions_are_folded():
    s = ChainShape(1, 2, 4, 4, "conv:K=3:R=3 bias bn relu conv:K=2:R=1 bn bn")
    assert ladder.folds(s) == ((0, 2), (4, 5))
    plan = ladder.folded(s, TILES)
    assert [part.launch.name for part in plan.parts] == ["fold", "fold 2", "conv_bias_relu", "conv_bias_bn"]
    assert [part.blocks for part in plan.parts] == [(0, 1, 2), (4, 5), (0, 1, 2, 3), (4, 5, 6)]
    for chain in ("bn conv:K=2:R=3", "conv:K=2:R=3 relu bn", "conv:K=2:R=3 add bn", "conv:K=2:R=3 bias bias bn"):
        with pytest.raises(RuleError, match="the chain has no batch norm that can be folded"):
            LADDERS["fusion"].rung("fusion/folded").check(s.with_(chain=chain), None)


# -- the text --------------------------------------------------------------------------------------------------------
@settings(max_examples=20)
@given(chains)
def test_text_names_every_block_in_72_columns(kinds):
    for group in codegen.groups(kinds):
        text = sources.text(group.source)
        lines = text.splitlines()
        assert lines[0].startswith(f"// {' -> '.join(group.kinds)}"[:50]) and "What limits it" in text.replace(
            "\n// ", " "
        )
        assert all(len(line) <= 72 for line in lines), text
        named = re.findall(r"  // (\w+)$", text, re.MULTILINE)
        order = [kind for kind, _ in itertools.groupby(named) if kind in KINDS]
        assert order == [kind for kind, _ in itertools.groupby(group.kinds)]
        arguments = text[text.index("void") : text.index(") {")]
        assert arguments.count("__restrict__") == 2 + sum(len(TENSORS.get(kind, ())) for kind in group.kinds)
        assert arguments.count("// [") == arguments.count("__restrict__")


@pytest.mark.parametrize(
    "name", ["fused_.cu", "fused_relu_softmax.cu", "fused_relu_conv.cu", "fused_conv_gap.cu", "fused_relu"]
)
def test_unknown_kernel_name_has_no_source(name):
    with pytest.raises(FileNotFoundError):
        sources.text(f"fusion/{name}")


def test_text_depends_on_blocks_not_on_sizes():
    def launches(s):
        return [part.launch.source for part in ladder.fused(s, TILES).parts]

    other = ChainShape(3, 5, 9, 7, "conv:K=2:R=5:stride=2 bias bn:eps=0.1 relu")
    assert launches(TOY) == launches(other) == ["fusion/fused_conv_bias_bn_relu.cu"]
    digests = {
        kernel_digest(ladder.fused(TOY.with_(chain=chain), TILES).program)
        for chain in ("bias relu", "relu bias", "relu relu bias", "bias relu gap")
    }
    assert len(digests) == 4


# -- values and rules --------------------------------------------------------------------------------------------------
def test_variance_is_positive():
    inputs = seeded_inputs([b for b in ladder.parts.buffers(TOY) if b.role == INPUT])
    assert (inputs["var"] >= 0).all() and (inputs["gamma"] < 0).any()
    with pytest.raises(RuleError, match=r"input var must not be below 0; var\[1\] is -1"):
        run("fusion/fused", TOY, {"var": np.array([1, -1, 2], "f4")}, engine="cpu")


@pytest.mark.parametrize(
    "shape, message",
    [
        (ChainShape(2**20, 64, 4, 8, "relu"), r"values of x <= 1073741824, got 2147483648"),
        (ChainShape(2**10, 1, 1024, 1024, "conv:K=2:R=1"), r"values after block 1 \(conv\) <= 1073741824"),
        (ChainShape(1, 2**15, 1, 1, f"conv:K={2**16}:R=1"), r"weights of block 1 \(conv\) <= 1073741824"),
        (ChainShape(2**26, 1, 2, 2, "gap"), r"values after block 1 \(gap\) <= 1073741824, got 2147483648"),
    ],
)
def test_too_large_shape_names_the_rule(shape, message):
    for rung in ladder.RUNGS[:2]:
        with pytest.raises(RuleError, match=message):
            rung.check(shape, None)
