"""cuDNN on a GPU: results of each algorithm where cuDNN supports it, its refusals, its workspace."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.conv import common as conv_common
from kernels.conv import library as conv_library
from kernels.conv import reference
from kernels.conv.presets import CONV_PRESETS
from kernels.conv.shape import ConvShape
from kernels.engines import cuda
from kernels.libraries import cudnn
from kernels.machine.timing import Budget
from kernels.model.program import INPUT, RuleError, UnsupportedError
from kernels.model.rung import Rung
from kernels.model.verify import agrees, relative_error
from kernels.records import availability
from kernels.runner import seeded_inputs
from tests.helpers.shapes import conv_shapes

pytestmark = pytest.mark.gpu
RES3 = CONV_PRESETS["resnet50-res3-3x3-n32"].shape
POOL_GRAIN = 512  # bytes: CuPy's pool allocates multiples of this
UNSUPPORTED_MESSAGE = re.compile(
    r"cuDNN 9\.\d+\.\d+ does not support [A-Z_]+ for this shape \(CUDNN_STATUS_NOT_SUPPORTED\w*\)"
)


@pytest.fixture(autouse=True, scope="module")
def library() -> cudnn.Cudnn:
    try:
        return cudnn.load()
    except RuleError as e:
        pytest.skip(str(e))


def open_or_none(rung: Rung, s: ConvShape, inputs: dict):
    """Returns (session, output), or None if cuDNN refuses."""
    try:
        session = cuda.open(rung.build(s, rung.check(s, {})), inputs)
        return session, session.verify_run()
    except UnsupportedError as e:
        assert UNSUPPORTED_MESSAGE.fullmatch(str(e)), e
        return None


def run_supported(s: ConvShape) -> dict[str, float]:
    """Returns the relative error of each rung that cuDNN supports, with each element verified."""
    inputs = seeded_inputs([b for b in conv_common.buffers(s) if b.role == INPUT])
    ref, scale = reference.conv(s, **inputs)
    errors = {}
    for rung in conv_library.RUNGS:
        assert availability.runs(rung, s, {})
        if opened := open_or_none(rung, s, inputs):
            session, out = opened
            session.close()
            bound = rung.scale(s, {}, inputs) if rung.scale else scale
            assert agrees(out, ref, bound, rung.tolerance), rung.name
            errors[rung.name] = relative_error(out, ref)
    return errors


@settings(max_examples=200)
@given(s=conv_shapes(max_extent=5), bias=st.integers(0, 1), relu=st.integers(0, 1))
def test_supported_algorithms_agree_at_any_shape(s, bias, relu):
    if any(conv_common.equal_padding_rules(s)):
        s = s.with_(pad_h=s.pad_h + s.extra_h, extra_h=0, pad_w=s.pad_w + s.extra_w, extra_w=0, H=s.H + 6, W=s.W + 6)
    assert "conv/cudnn-implicit-gemm" in run_supported(s.with_(bias=bias, relu=relu))


@pytest.mark.parametrize("groups", [2, 8])
def test_groups(groups):
    assert run_supported(ConvShape(2, 8, 15, 17, 16, 3, 3, stride=(2, 1), pad=1, groups=groups))


@pytest.mark.parametrize("key", CONV_PRESETS)
def test_every_preset(key):
    errors = run_supported(CONV_PRESETS[key].shape)
    assert errors["conv/cudnn-implicit-precomp-gemm"] < 2e-6  # TF32 would be off by 1e-4 and more
    # Large tiles of 5 x 5 taps lose digits: `run_supported` checks their bound.
    errors.pop("conv/cudnn-winograd-nonfused", None)
    assert max(errors.values()) < 1e-4


def test_layer_has_several_algorithms():
    assert len(run_supported(RES3)) >= 3


def test_workspace_is_what_cudnn_reports():
    inputs = seeded_inputs([b for b in conv_common.buffers(RES3) if b.role == INPUT])
    convolution = cudnn.Convolution(cudnn.load(), conv_common.struct(RES3), RES3.maps)
    needs_workspace = Counter()
    for rung, algorithm in zip(conv_library.RUNGS, conv_library.IDEAS, strict=True):
        if opened := open_or_none(rung, RES3, inputs):
            session, _ = opened
            workspace_bytes = convolution.workspace_bytes(algorithm)
            assert session.memory.workspace == -(-workspace_bytes // POOL_GRAIN) * POOL_GRAIN, rung.name
            session.close()
            needs_workspace[workspace_bytes > 0] += 1
    assert needs_workspace[True]  # at least one algorithm needs some


def test_listed_algorithms_are_known():
    convolution = cudnn.Convolution(cudnn.load(), conv_common.struct(RES3), RES3.maps)
    listed = convolution.ranked()
    assert {t.algorithm for t in listed} <= set(cudnn.ALGORITHMS) and any(t.supported for t in listed)


@pytest.mark.parametrize("mode", ["cold", "hot"])
def test_it_is_timed_in_both_modes(mode):
    rung = conv_library.RUNGS[1]
    session = cuda.open(rung.build(RES3, {}), seeded_inputs([b for b in conv_common.buffers(RES3) if b.role == INPUT]))
    session.verify_run()
    (timed,) = cuda.sample([session], mode, Budget(samples=20, seconds=1))
    session.close()
    assert min(timed.samples_ms) > 0


def test_conditions_include_the_cudnn_version():
    assert cuda.conditions()["cudnn"] == cudnn.version()
