"""What the row of every rung must state: units, accuracy, family, a scene or why it has none, and cases for Nsight
Compute."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

import pytest

from kernels import sources
from kernels.fusion.ladder import PLANS as FUSION_PLANS
from kernels.ladders import LADDERS
from kernels.model.program import Launch
from kernels.model.rung import INT8, TENSOR_CORES, UNITS, Ladder, Rung
from visuals.attention.scene import SCENES as ATTENTION_SCENES
from visuals.conv.choose.families import FAMILIES
from visuals.conv.implicit.plan import RUNGS as IMPLICIT_RUNGS
from visuals.conv.winograd.part import NONFUSED
from visuals.gemm.plan import PLANS as GEMM_PLANS
from visuals.softmax.plan import STEP_FUNCTIONS

COUNTERS = Path(__file__).parent / "fixtures" / "hardware_counters_h200.json"
SCENES = {  # the rungs that a stage shows, by ladder
    "conv": {
        "conv/direct", "conv/im2col-gemm", "conv/im2col-cublas", "conv/fft", *IMPLICIT_RUNGS,
        *(f"conv/winograd-{m}x{m}" for m in (2, 4)), NONFUSED,
    },
    "gemm": set(GEMM_PLANS),
    "attention": set(ATTENTION_SCENES),
    "softmax": {f"softmax/{name}" for name in STEP_FUNCTIONS},
    "fusion": set(FUSION_PLANS),
    "add": {"add/vector", "add/matrix", "add/matrix-transposed"},
    "stride": {"stride/copy"},
    "banks": {"banks/plain", "banks/padded"},
    "layout": {"layout/along-w", "layout/along-c"},
}  # fmt: skip
HALVES = ("fp16", "bf16")
RUNGS = [(ladder, rung) for ladder in LADDERS.values() for rung in ladder.rungs]
every_rung = pytest.mark.parametrize(("ladder", "rung"), RUNGS, ids=lambda of: getattr(of, "name", ""))


def launches(ladder: Ladder, rung: Rung) -> list[Launch]:
    """Returns the launches of a rung at every preset that it runs, at its default tile sizes."""
    shapes = (p.shape for p in ladder.presets.values() if not any(rung.rules(p.shape, rung.default_tiles)))
    steps = (step for shape in shapes for step in rung.build(shape, rung.default_tiles).steps)
    return [step for step in steps if isinstance(step, Launch)]


def runs_fp32(ladder: Ladder, rung: Rung) -> bool:
    """Returns whether a rung runs a preset of 32-bit elements."""
    return any(
        getattr(p.shape, "dtype", "fp32") == "fp32" and not any(rung.rules(p.shape, rung.default_tiles))
        for p in ladder.presets.values()
    )


@cache
def counted() -> set[str]:
    """Returns the sources that Nsight Compute counted."""
    return {case["source"] for case in json.loads(COUNTERS.read_text(encoding="utf-8"))["cases"]}


@every_rung
def test_its_units_are_those_of_its_kernels(ladder, rung):
    assert rung.units in UNITS
    code = "".join(sources.code(source) for source in {step.source for step in launches(ladder, rung)})
    if re.search(r"\bmma\.sync|\bwmma\s*::", code) and runs_fp32(ladder, rung):
        assert rung.units == TENSOR_CORES
    if "__dp4a" in code:
        assert rung.units == INT8
    if rung.units != UNITS[0] and not rung.library:
        assert re.search(r"\bmma\.sync|\bwmma\s*::|__dp4a", code), "no kernel of it uses these units"


@every_rung
def test_a_looser_tolerance_has_a_reason(ladder, rung):
    """At 32 bits: factors rounded to a coarser type, or an error scale of the rung's own."""
    tightest = min(other.tolerance for other in ladder.rungs if not other.scale and runs_fp32(ladder, other))
    if runs_fp32(ladder, rung) and rung.tolerance > tightest:
        assert rung.rounds_to or rung.scale


@every_rung
def test_its_family_is_known(ladder, rung):
    if any(other.family for other in ladder.rungs):
        assert rung.family in FAMILIES and rung.short_title
        assert [r.short_title for r in ladder.rungs].count(rung.short_title) == 1


@every_rung
def test_a_stage_shows_it_or_its_row_says_why_not(ladder, rung):
    shown, elsewhere = rung.name in SCENES.get(ladder.name, ()), bool(rung.no_scene)
    assert shown or elsewhere or rung.library, f"{rung.name}: add a scene plan or Rung.no_scene"
    assert not (shown and elsewhere)


def test_every_scene_is_of_a_rung():
    assert {name for names in SCENES.values() for name in names} <= {rung.name for _, rung in RUNGS}


@every_rung
def test_its_kernels_were_counted_on_hardware(ladder, rung):
    own = {step.source for step in launches(ladder, rung)}
    missing = {source for source in own - counted() if not source.startswith("fusion/fused_")}
    assert not missing, "benchmarks/hardware_counters.py measures them"
