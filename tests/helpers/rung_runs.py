"""Helpers for the tests of rungs: run a rung without a GPU and compare it with its reference.

They also run it in two orders of its warps, with one fault in its kernel, and at any of its tile sizes.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from kernels import sources
from kernels.engines import emulator
from kernels.engines.emulator import precompiled
from kernels.engines.emulator.compiler.compile import compile_ptx
from kernels.engines.emulator.launch import Options, Run, device_memory, launch
from kernels.engines.emulator.memory import Global
from kernels.ladders import ladder_of
from kernels.model.program import INPUT, Launch, Program, RuleError
from kernels.model.rung import Rung
from kernels.model.verify import agrees, allowed, by_output, relative_error
from kernels.runner import inputs_of, rung_reference

Arrays = Mapping[str, np.ndarray]
# Counting takes a third of a run's time and changes no result. Runs in several orders of the warps count as well.
UNCOUNTED = Options(count=False)


def computed(
    engine: ModuleType,
    rung: Rung,
    shape: Any,
    tiles: Mapping[str, int] | None = None,
    inputs: Arrays | None = None,
    options: Options | None = None,
) -> tuple[np.ndarray, Arrays]:
    """Returns (output, inputs) of a rung on kernels.engines.cpu or .emulator, all buffers poisoned before.

    The output is not compared with the reference. Missing inputs are seeded; `options` are the emulator's, which counts
    nothing without them.
    """
    program = rung.build(shape, rung.check(shape, tiles))
    inputs = inputs or inputs_of(ladder_of(rung.name), shape, program)
    session = engine.Session(program, inputs, *([options or UNCOUNTED] if engine is emulator else []))
    return np.array(session.verify_run()), inputs


def computed_outputs(
    engine: ModuleType, rung: Rung, shape: Any, tiles=None, inputs=None, options=None
) -> tuple[dict[str, np.ndarray], Arrays]:
    """Returns (outputs by name, inputs) of a rung with several outputs, as `computed` does."""
    program = rung.build(shape, rung.check(shape, tiles))
    inputs = inputs or inputs_of(ladder_of(rung.name), shape, program)
    session = engine.Session(program, inputs, *([options or UNCOUNTED] if engine is emulator else []))
    session.verify_run()
    return {b.name: np.array(session.fetch(b.name)) for b in program.outputs}, inputs


def reference_and_scale(rung: Rung, shape: Any, tiles: Mapping[str, int] | None, inputs: Arrays):
    """Returns (reference, scale of the rung's tolerance), float64, as the runner computes them."""
    ref, scale = ladder_of(rung.name).reference(shape, **inputs)
    return ref, rung.scale(shape, rung.check(shape, tiles), inputs) if rung.scale else scale


def verified_outputs(
    engine: ModuleType, rung: Rung, shape: Any, tiles=None, inputs=None, options=None
) -> dict[str, np.ndarray]:
    """Returns the outputs of `computed_outputs` after comparing each with the float64 reference as the runner does."""
    out, inputs = computed_outputs(engine, rung, shape, tiles, inputs, options)
    reference = by_output(ladder_of(rung.name).reference(shape, **inputs), tuple(out))
    expected = rung_reference(rung, shape, rung.check(shape, tiles), inputs, reference)
    for name, (ref, scale) in expected.items():
        wrong = where_wrong(out[name], ref, scale, rung.tolerance)
        assert not wrong, f"{name} {rung.name} {shape} {tiles} {wrong}"
    return out


def verified_output(engine: ModuleType, rung: Rung, shape: Any, tiles=None, inputs=None, options=None) -> np.ndarray:
    """Returns the output of `computed` after comparing it with the float64 reference as the runner does."""
    out, inputs = computed(engine, rung, shape, tiles, inputs, options)
    ref, scale = reference_and_scale(rung, shape, tiles, inputs)
    wrong = where_wrong(out, ref, scale, rung.tolerance)
    assert not wrong, f"{rung.name} {shape} {tiles} {wrong}"
    return out


def where_wrong(out: np.ndarray, ref: np.ndarray, scale: np.ndarray, tolerance: float) -> str:
    """Returns the relative L2 error and the index of the first wrong element, for a message; "" if none is wrong."""
    if agrees(out, ref, scale, tolerance):
        return ""
    error = f"relative error {relative_error(out, ref) if out.shape == ref.shape else None}"
    if out.shape != ref.shape:
        return f"{error}, shape {out.shape}, not {ref.shape}"
    with np.errstate(all="ignore"):
        right = np.isfinite(out) & (np.abs(out - ref) <= allowed(scale, tolerance))
    return f"{error}, first at {tuple(map(int, np.argwhere(~right)[0]))}"


# -- orders of the warps ----------------------------------------------------------------------------
def same_in_any_order(
    run: Callable[[Options], np.ndarray], orders: Sequence[str | int] = ("forward", "reversed")
) -> None:
    """Asserts that `run` returns equal bits and counters in each order of the warps and that none of its launches has a race.

    Machine code executes the first order, and NumPy the memory accesses of the others, in which races are looked for.
    """
    launches: list[list[Run]] = []
    original = emulator.Session.launch

    def launch_and_store(session, step):
        run = original(session, step)
        launches[-1].append(run)
        return run

    results = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(emulator.Session, "launch", launch_and_store)
        for n, order in enumerate(orders):
            launches.append([])
            results.append(run(Options(order=order, races=n > 0)))
    for other in results[1:]:
        np.testing.assert_array_equal(results[0], other)
    races = [message for of_order in launches for run in of_order for message in run.races]
    assert not races, races
    totals = [[run.counted.total for run in of_order] for of_order in launches]
    assert all(total == totals[0] for total in totals)


# -- kernels with one fault -------------------------------------------------------------------------
def memory_of(program: Program, inputs: Arrays) -> Global:
    """Returns the memory of a program's buffers; all except the inputs and a zeroed workspace count as never written."""
    zeros = {b.name: np.zeros(b.shape, b.dtype) for b in program.buffers if b.role != INPUT}
    return device_memory({**inputs, **zeros}, [*inputs, *(b.name for b in program.buffers if b.zeroed)])


def relaunched(
    step: Launch,
    change: Callable[[str], str],
    memory: Global,
    stops: str = "out-of-bounds|never written|before the copy",
    **options,
) -> Run | None:
    """Runs one launch of a program with a changed source, and detects races.

    `options` are the emulator's; nothing is counted unless they say so. Returns None if the emulator stops it with a
    message that matches `stops`: the fault is detected.
    """
    ptx = compile_ptx(
        change(sources.translation_unit(step.source)), "kernel.cu", precompiled.options(step.defines, step.source)
    )
    options = Options(**{"races": True, "count": False} | options)
    try:
        return launch(ptx, step.entry, step.grid, step.block, step.args, memory, step.shared, options)
    except RuleError as e:
        assert re.search(stops, str(e)), e
        return None


def assert_fault_is_detected(rung: Rung, shape: Any, program: Program, inputs: Arrays, right: str, wrong: str) -> None:
    """Asserts that the program's one launch, with `right` replaced by `wrong`, is stopped, has a race, or gives another y."""
    (step,) = program.steps
    memory = memory_of(program, inputs)
    with np.errstate(all="ignore"):
        run = relaunched(step, replace_once(wrong, right), memory)
    if run is None:
        return
    ref, scale = ladder_of(rung.name).reference(shape, **inputs)
    assert run.races or not agrees(memory.array("y"), ref, scale, rung.tolerance)


def assert_fault_in_launch_is_detected(
    rung: Rung, shape: Any, program: Program, inputs: Arrays, nth: int, right: str, wrong: str
) -> None:
    """Asserts that a program, with `right` replaced by `wrong` in its nth launch, is stopped, has a race, or gives another
    first result."""
    memory, races = memory_of(program, inputs), []
    for n, step in enumerate(program.steps):
        run = relaunched(step, replace_once(wrong, right) if n == nth else str, memory)
        if run is None:
            return
        races += run.races
    expected = by_output(ladder_of(rung.name).reference(shape, **inputs), tuple(b.name for b in program.outputs))
    ref, scale = next(iter(expected.values()))
    assert races or not agrees(memory.array(program.outputs[0].name), ref, scale, rung.tolerance)


def replace_once(wrong: str, right: str) -> Callable[[str], str]:
    """Returns a function that replaces the only `right` in a source by `wrong`."""

    def change(text: str) -> str:
        assert text.count(right) == 1, right
        return text.replace(right, wrong)

    return change


def without_barrier(nth: int, barrier: str = "__syncthreads();") -> Callable[[str], str]:
    """Returns a function that removes the nth barrier of a source."""

    def change(text: str) -> str:
        start, end = [found.span() for found in re.finditer(re.escape(barrier), text)][nth]
        return text[:start] + text[end:]

    return change


# -- tile sizes -------------------------------------------------------------------------------------
def legal(rung: Rung, shape: Any) -> list[dict[str, int]]:
    """Returns every set of tile sizes that the rules allow."""
    sets = (dict(zip(rung.tiles, v, strict=True)) for v in itertools.product(*rung.tiles.values()))
    return [tiles for tiles in sets if not any(rung.rules(shape, tiles))]


def some_tiles(data: st.DataObject, rung: Rung, shape: Any) -> dict[str, int]:
    """Draws a legal set of tile sizes, or any choice of each size, regardless of the rules."""
    if data.draw(st.booleans()):
        return data.draw(st.sampled_from(legal(rung, shape)))
    return {name: data.draw(st.sampled_from(choices)) for name, choices in rung.tiles.items()}


def runs_or_names_its_rule(rung: Rung, shape: Any, tiles: Mapping[str, int], rules: str) -> None:
    """Asserts that the emulator agrees with the reference, or that the first broken rule is raised and matches `rules`."""
    broken = next(iter(rung.rules(shape, tiles)), None)
    if broken is None:
        verified_output(emulator, rung, shape, tiles)
    else:
        assert re.search(rf"({rules}).*, got ", broken), broken
        with pytest.raises(RuleError, match=re.escape(broken)):
            rung.check(shape, tiles)


def each_choice_is_legal(rung: Rung, shape: Any) -> None:
    """Asserts that every offered tile size is legal in some combination at this shape."""
    sets = legal(rung, shape)
    for name, choices in rung.tiles.items():
        assert {tiles[name] for tiles in sets} == set(choices), (name, shape)
