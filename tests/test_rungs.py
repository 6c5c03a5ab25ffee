"""What the row of every rung must state: units, accuracy, family, its name on a processor or why it has none, a scene or
why it has none, and cases for Nsight Compute."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from benchmarks.hardware_cases import EXCLUDED, unmeasured
from kernels import sources
from kernels.fusion.ladder import PLANS as FUSION_PLANS
from kernels.ladders import LADDERS
from kernels.model.program import Launch, RuleError
from kernels.model.rung import FP16, INT8, TENSOR_CORES, UNITS, Ladder, Rung
from kernels.records import recordings
from kernels.runner import run
from kernels.softmax.ladder import RUNGS as SOFTMAX_RUNGS
from pages.layers.layers import LAYERS
from tests.helpers.offenders import over
from visuals.attention.backward.scene import SCENES as ATTENTION_BACKWARD_SCENES
from visuals.attention.scene import SCENES as ATTENTION_SCENES
from visuals.conv.backward.scene import SCENES as BACKWARD_SCENES
from visuals.conv.choose.families import FAMILIES
from visuals.conv.implicit.plan import RUNGS as IMPLICIT_RUNGS
from visuals.conv.winograd.part import NONFUSED
from visuals.gemm.plan import PLANS as GEMM_PLANS
from visuals.gemm.swizzle import RUNGS as HOPPER_SCENES
from visuals.precision.instructions import SCENES as INSTRUCTION_SCENES

COUNTERS = Path(__file__).parent / "fixtures" / "hardware_counters_h200.json"
OF_LAYERS = (  # each has a scene: tests/pages/layers/test_page.py
    rung.name
    for row in LAYERS.values()
    for one in row.passes.values()
    for rung in one.ladder.rungs
    if not (rung.library or rung.no_scene)
)
SCENES = (  # the names of the rungs that a stage shows, a line for each source of them
    (
        "conv/direct",
        "conv/direct-tiled",
        "conv/im2col-gemm",
        "conv/im2col-cublas",
        "conv/fft",
        "conv/fft-tiled",
        "conv/winograd-2x2",
        "conv/winograd-4x4",
        NONFUSED,
    ),
    IMPLICIT_RUNGS,
    BACKWARD_SCENES,
    GEMM_PLANS,
    HOPPER_SCENES,
    ATTENTION_SCENES,
    ATTENTION_BACKWARD_SCENES,
    (rung.name for rung in SOFTMAX_RUNGS),
    FUSION_PLANS,
    ("add/vector", "add/matrix", "add/matrix-transposed", "stride/copy", "banks/plain", "banks/padded"),
    ("layout/along-w", "layout/along-c"),
    ("branch/lanes", "branch/warps"),
    OF_LAYERS,
    INSTRUCTION_SCENES,
)
SHOWN = {name for names in SCENES for name in names}
HALVES = ("fp16", "bf16")
RUNGS = [(ladder, rung) for ladder in LADDERS.values() for rung in ladder.rungs]
every_rung = over([(rung.name, (ladder, rung)) for ladder, rung in RUNGS])


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
def test_its_units_are_those_of_its_kernels(case):
    ladder, rung = case
    assert rung.units in UNITS
    code = "".join(sources.code(source) for source in {step.source for step in launches(ladder, rung)})
    # wgmma's header is also included for its barriers: a kernel that uses wgmma calls this function of it.
    if re.search(r"\bmma\.sync|\bbegin_products\s*\(\s*\)\s*;|\bwmma\s*::", code) and runs_fp32(ladder, rung):
        assert rung.units == TENSOR_CORES
    if "__dp4a" in code:
        assert rung.units == INT8
    if rung.units != UNITS[0] and not rung.library:
        used = r"\bfma\.rn\.f16x2" if rung.units == FP16 else r"\bmma\.sync|\bwgmma\.mma_async|\bwmma\s*::|__dp4a"
        assert re.search(used, code), "no kernel of it uses these units"


@every_rung
def test_its_launches_have_names_of_their_own(case):
    """The times of a program's steps are kept by name."""
    ladder, rung = case
    for preset in ladder.presets.values():
        if not any(rung.rules(preset.shape, rung.default_tiles)):
            names = [step.name for step in rung.build(preset.shape, rung.default_tiles).steps]
            assert len(names) == len(set(names))


@every_rung
def test_a_looser_tolerance_has_a_reason(case):
    """At 32 bits: factors rounded to a coarser type, or an error scale of the rung's own."""
    ladder, rung = case
    if runs_fp32(ladder, rung):
        others = (other for other in ladder.rungs if not other.scale and runs_fp32(ladder, other))
        if rung.tolerance > min(other.tolerance for other in others):
            assert rung.rounds_to or rung.scale


@every_rung
def test_its_family_is_known(case):
    ladder, rung = case
    if any(other.family for other in ladder.rungs):
        assert rung.family in FAMILIES and rung.short_title
        assert [r.short_title for r in ladder.rungs].count(rung.short_title) == 1


# -- on the processor: nothing is measured under a wrong name -----------------------------------------
# Words of a GPU that no name of a processor's algorithm has.
GPU_WORDS = r"(?i)coalesc|bank|shared|warp|(?<!p)lane|thread|register|tensor|vector|mma|dp4a|async|launch|cu(?:BLAS|DNN|FFT|DA)|TF32"
NUMERIC_PARTS = (
    "m",
)  # values of a closure that make another algorithm: F(2x2, 3x3) and F(4x4, 3x3). Others are tile sizes.


@every_rung
def test_the_processor_has_a_name_for_it_or_a_reason(case):
    ladder, rung = case
    if "cuda" not in ladder.engines:  # loops of the processor
        assert "cpu" in ladder.engines and not rung.cpu_title and not rung.not_on_cpu
    elif "cpu" in rung.engines:
        assert rung.cpu_title and not rung.not_on_cpu
        assert not re.search(GPU_WORDS, rung.title_on("cpu"))
    else:
        assert not rung.cpu_title and (rung.not_on_cpu or rung.library)
        assert rung.why_not_on("cpu") and not rung.why_not_on("cuda")
    assert set(rung.cpu_tiles) <= set(rung.tiles)


@over([*LADDERS.items()])
def test_names_on_the_processor_differ(ladder):
    titles = [rung.title_on("cpu") for rung in ladder.rungs if "cpu" in rung.engines]
    assert len(set(titles)) == len(titles)


def algorithm(function: Callable) -> tuple:
    """Returns what identifies a NumPy implementation, without its tile sizes."""
    names = function.__code__.co_freevars if hasattr(function, "__code__") else ()
    values = [cell.cell_contents for cell in function.__closure__] if names else []
    kept = []
    for name, value in zip(names, values, strict=True):
        if callable(value):
            kept.append(algorithm(value))
        elif name in NUMERIC_PARTS or not isinstance(value, int):
            kept.append((name, repr(value)))
    return getattr(function, "__qualname__", repr(function)), tuple(kept)


@over(
    [
        (f"{ladder.name} {key}", (ladder, key))
        for ladder in LADDERS.values()
        if "cuda" in ladder.engines
        for key in ladder.presets
    ]
)
def test_no_computation_has_two_names_on_the_processor(case):
    """Tile sizes do not make another computation."""
    ladder, preset = case
    shape, names = ladder.presets[preset].shape, {}
    for rung in ladder.rungs:
        if "cpu" in rung.engines and not any(rung.rules(shape, rung.default_tiles)):
            steps = rung.build(shape, rung.default_tiles).steps
            names.setdefault(tuple(algorithm(step.cpu) for step in steps), []).append(rung.name)
    assert all(len(same) == 1 for same in names.values()), names


@every_rung
def test_no_step_on_the_processor_is_named_after_a_gpu(case):
    ladder, rung = case
    if "cpu" in rung.engines and "cuda" in ladder.engines:
        shape = next(p.shape for p in ladder.presets.values() if not any(rung.rules(p.shape, rung.default_tiles)))
        steps = [step.name_on_cpu for step in rung.build(shape, rung.default_tiles).steps]
        assert not re.search(GPU_WORDS, " ".join(steps))


@every_rung
def test_the_cpu_engine_names_the_rule_of_a_rung_that_it_does_not_run(case):
    ladder, rung = case
    if rung.not_on_cpu:
        shape = next(p.shape for p in ladder.presets.values() if not any(rung.rules(p.shape, rung.default_tiles)))
        with pytest.raises(RuleError, match="measures nothing under a wrong name") as error:
            run(rung.name, shape, engine="cpu")
        assert rung.not_on_cpu in str(error.value)
        assert rung.title_on("cpu") == f"NumPy steps of “{rung.title}”"  # a row of an older version


def test_recordings_are_of_engines_that_run_their_rung():
    rungs = {rung.name: rung for _, rung in RUNGS}
    assert all(row["engine"] in rungs[row["rung"]].engines for row in recordings())


@every_rung
def test_a_stage_shows_it_or_its_row_says_why_not(case):
    _, rung = case
    shown, elsewhere = rung.name in SHOWN, bool(rung.no_scene)
    assert shown or elsewhere or rung.library, f"{rung.name}: add a scene plan or Rung.no_scene"
    assert not (shown and elsewhere)


def test_every_scene_is_of_a_rung():
    assert {rung.name for _, rung in RUNGS} >= SHOWN


@every_rung
def test_its_kernels_were_counted_on_hardware(case):
    ladder, rung = case
    own = {step.source for step in launches(ladder, rung)}
    elsewhere = (*sources.GENERATED, *EXCLUDED)
    missing = {source for source in own - counted() - unmeasured() if not source.startswith(elsewhere)}
    assert not missing, "benchmarks/hardware_counters.py measures them"
