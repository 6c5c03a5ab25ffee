"""run() and compare(): rung + shape + inputs + engine -> Result, verified before it is timed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from kernels import engines
from kernels.engines.protocol import Engine
from kernels.ladders import LADDERS, ladder_of
from kernels.machine.timing import Budget
from kernels.model import values
from kernels.model.program import INPUT, OUTPUT, Buffer, Launch, Program, RefusedError, RuleError
from kernels.model.result import Measurement, Result
from kernels.model.rung import Ladder, Rung
from kernels.model.verify import agrees, relative_error
from kernels.records import availability
from kernels.runner_checks import check_request, check_trace

Progress = Callable[[float, str], None]
Refused = Callable[[str, str], None]


class VerificationError(RuntimeError):
    """A rung's output disagrees with the float64 reference: it gets no time."""


@dataclass(eq=False)
class _Candidate:
    """A rung of a comparison: what is to run, then what runs it and what came out, verified."""

    rung: Rung
    tiles: dict[str, int]  # all of them
    program: Program
    session: Any = None  # of its engine
    output: np.ndarray | None = None


def seeded_inputs(buffers: Sequence[Buffer], seed: int = 0) -> dict[str, np.ndarray]:
    """Random values for each input buffer in its type (values.random), the same for the same seed."""
    rng = np.random.default_rng(seed)
    return {b.name: values.random(rng, b) for b in buffers}


@lru_cache(maxsize=1)
def _seeded_reference(ladder_name: str, shape: Any, buffers: tuple[Buffer, ...], seed: int):
    """(inputs, reference, scale) of the shape asked for last: a sweep over tiles or modes asks often."""
    arrays = seeded_inputs(buffers, seed)
    return arrays, *LADDERS[ladder_name].reference(shape, **arrays)


def run(
    rung: str,
    shape: Any,
    inputs: Mapping[str, np.ndarray] | None = None,
    engine: str | None = None,
    tiles: Mapping[str, int] | None = None,
    *,
    seed: int = 0,
    mode: str = "cold",
    budget: Budget | None = None,
    measure: bool = True,
    trace: int | None = None,
) -> Result:
    """Run one rung at a shape, verify it against the float64 reference, then time it.

    inputs: NumPy arrays by buffer name; those left out are seeded random.
    engine: "cuda", "cpu" or "emulator"; the GPU where there is one, else the processor, when left out.
    trace: the block (linear index) to trace, emulator only.
    Raises ShapeError, RuleError (the rule is named), VerificationError.
    """
    return compare(
        [rung],
        shape,
        inputs,
        engine,
        tiles,
        seed=seed,
        mode=mode,
        budget=budget,
        measure=measure,
        trace=trace,
    )[0]


def compare(
    rungs: Sequence[str],
    shape: Any,
    inputs: Mapping[str, np.ndarray] | None = None,
    engine: str | None = None,
    tiles: Mapping[str, int] | None = None,
    *,
    seed: int = 0,
    mode: str = "cold",
    budget: Budget | None = None,
    measure: bool = True,
    trace: int | None = None,
    progress: Progress = lambda share, text: None,
    refused: Refused | None = None,
) -> list[Result]:
    """Several rungs of one ladder on the same inputs, their samples interleaved. As `run`; `tiles`
    reaches each rung that has a tile size of that name, an entry under a rung's name that rung alone.
    A rung that this machine cannot run (its GPU is too old for it, a library is missing or does not support the shape,
    there is no memory for it) is left out: `refused` gets its name and why. Without `refused` that raises RefusedError or
    RuleError."""
    ladder = check_request(rungs, shape, inputs, engine, tiles, seed, mode, budget)
    name = engine or engines.default()
    machine, device = _ready(name, trace)
    _check_engine(name, rungs)
    asked = _runnable(name, shape, _asked(ladder, rungs, shape, tiles or {}), refused)
    if not asked:
        return []
    if trace is not None:
        for c in asked:
            check_trace(c.rung.name, c.program, trace)
    if name == "emulator":
        _check_threads(machine, asked)
    if refused:
        asked = _with_room(name, shape, asked, refused)
    check_memory(name, shape, [c.program for c in asked])
    buffers = asked[0].program.of_role(INPUT)
    progress(0.0, "computing the float64 reference")
    if inputs:
        arrays = _checked_inputs(buffers, inputs, seed)
        ref, scale = ladder.reference(shape, **arrays)
    else:
        arrays, ref, scale = _seeded_reference(ladder.name, shape, buffers, seed)

    measured = measure and machine.MEASURES
    if measured:
        progress(0.1, "measuring what the device does at most")
        ceilings = _ceilings(machine)  # before the buffers take its memory
    ran: list[_Candidate] = []
    try:
        for i, c in enumerate(asked):
            progress(0.1 + 0.3 * i / len(asked), f"verifying {c.rung.title}")
            if (out := _opened(machine, c, arrays, trace, refused)) is not None:
                ran.append(c)
                bound = c.rung.scale(shape, c.tiles, arrays) if c.rung.scale else scale
                c.output = _verified(c.rung, name, out, ref, bound)
        measurements = [None] * len(ran)
        if measured and ran:
            sessions = [c.session for c in ran]
            measurements = _measure(machine, device, ceilings, sessions, mode, budget or Budget(), progress)
    finally:
        for c in ran:
            c.session.close()
    progress(1.0, "done")
    return [
        _result(c, name, shape, ref, measurement) for c, measurement in zip(ran, measurements, strict=True)
    ]


def _result(
    c: _Candidate, engine: str, shape: Any, ref: np.ndarray, measurement: Measurement | None
) -> Result:
    return Result(
        rung=c.rung.name,
        engine=engine,
        shape=shape,
        tiles=c.tiles,
        output=c.output,
        error=relative_error(c.output, ref),
        measurement=measurement,
        predicted=c.rung.cost(shape, c.program),
        counters=c.session.counters,
        trace=c.session.trace,
    )


def _ready(name: str, trace: int | None) -> tuple[Engine, str]:
    """The engine and its device. RuleError where it cannot do what is asked."""
    machine = engines.load(name)
    status = machine.status()
    if not status.ready:
        raise RuleError(f"engine {name!r} cannot run here: {status.why}")
    if trace is not None and name != "emulator":
        raise RuleError(f"only the emulator engine can trace a block, not {name}")
    return machine, status.text


def _opened(
    machine: Engine,
    c: _Candidate,
    arrays: Mapping[str, np.ndarray],
    trace: int | None,
    refused: Refused | None,
) -> np.ndarray | None:
    """Its output, its session open; None where this machine cannot run it: `refused` gets its name and why. A program
    that fails leaves nothing open."""
    try:
        session = machine.open(c.program, arrays, trace)
        try:
            out = session.verify_run()
        except BaseException:
            session.close()
            raise
    except RuleError as e:
        if refused and isinstance(e, RefusedError):
            refused(c.rung.name, str(e))
            return None
        raise type(e)(f"{c.rung.name}: {e}") from None
    c.session = session
    return out


def _check_engine(name: str, rungs: Sequence[str]) -> None:
    """RuleError where an engine does not run a ladder, or one of its rungs."""
    ladder = ladder_of(rungs[0])
    for rung in map(ladder.rung, rungs):
        able = [engine for engine in ladder.engines if engine in rung.engines]
        if name not in able:
            raise RuleError(f"{rung.name} runs on the {' or '.join(able)} engine only, not on {name}")


def _asked(ladder: Ladder, rungs: Sequence[str], shape: Any, tiles: Mapping[str, Any]) -> list[_Candidate]:
    """The rungs as they are to run. RuleError names what one does not allow."""
    chosen = [ladder.rung(r) for r in rungs]
    known = {t for rung in chosen for t in rung.tiles} | {rung.name for rung in chosen}
    for tile in tiles:
        if tile not in known:
            raise RuleError(
                f"no tile size {tile!r} in {', '.join(rungs)}; there are: {', '.join(sorted(known))}"
            )
    found = []
    for rung in chosen:
        own = {t: v for t, v in tiles.items() if t in rung.tiles} | dict(tiles.get(rung.name, {}))
        full = rung.check(shape, own)
        if reason := availability.missing_library(rung, shape):
            raise RuleError(f"{rung.name} cannot run {shape}: {reason}")
        found.append(_Candidate(rung, full, rung.build(shape, full)))
    return found


def _runnable(
    engine: str, shape: Any, asked: Sequence[_Candidate], refused: Refused | None
) -> list[_Candidate]:
    """Returns the candidates that this machine can run; `refused` gets the others. RefusedError without `refused`."""
    found = []
    for c in asked:
        why = engines.refusal(engine, c.rung, shape, c.tiles)
        if not why:
            found.append(c)
        elif refused:
            refused(c.rung.name, why)
        else:
            raise RefusedError(f"{c.rung.name}: {why}")
    return found


def _ceilings(machine: Engine) -> dict | None:
    """None on a device that cannot be measured so, for want of memory say: a run does without."""
    try:
        return machine.ceilings()
    except RuleError:
        return None


def _measure(machine, device, ceilings, sessions, mode, budget, progress) -> list[Measurement]:
    before = machine.conditions()
    timed = machine.sample(
        sessions,
        mode,
        budget,
        lambda share: progress(0.4 + 0.6 * share, f"timing {len(sessions)} rungs, interleaved"),
    )
    after = machine.conditions()
    conditions = before | {f"{k}_after": after[k] for k in after if k.startswith("clock_")}
    if ceilings:
        conditions |= {"ceilings": ceilings}
    copies_ms = machine.copies(sessions[0])  # all candidates have the same inputs and output
    return [
        Measurement(
            samples_ms=t.samples_ms,
            mode=mode,
            peak_bytes=s.bytes["peak"],
            input_bytes=s.bytes["input"],
            output_bytes=s.bytes["output"],
            workspace_bytes=s.bytes["workspace"],
            device=device,
            parts_ms=t.parts_ms,
            conditions=conditions | ({"queued": t.queued} if t.queued else {}),
            timeline=tuple(s.timeline),
            copies_ms=copies_ms,
        )
        for s, t in zip(sessions, timed, strict=True)
    ]


def _verified(rung: Rung, engine: str, out: np.ndarray, ref: np.ndarray, scale: np.ndarray) -> np.ndarray:
    if not agrees(out, ref, scale, rung.tolerance):
        error = relative_error(out, ref)
        raise VerificationError(
            f"{rung.name} on {engine} disagrees with the float64 reference (relative L2 error {error:.1e}); "
            "nothing unverified gets a time"
        )
    return np.array(out)


def _check_threads(emulator: Any, asked: Sequence[_Candidate]) -> None:
    """RuleError, before anything is computed, where a launch has more threads than can be emulated."""
    for c in asked:
        for step in c.program.steps:
            if isinstance(step, Launch):
                try:
                    emulator.check(step)
                except RuleError as e:
                    raise RuleError(f"{c.rung.name}: {e}") from None


def check_memory(engine: str, shape: Any, programs: Sequence[Program]) -> None:
    """RuleError with the bytes where the candidates' buffers, all live at once, exceed what is free on
    the engine, or where host memory cannot hold inputs and output beside their float64 reference."""
    need = sum(p.nbytes() for p in programs)
    inputs, output = programs[0].nbytes(INPUT), programs[0].nbytes(OUTPUT)
    # Twice the width; |x|, |w| and the padded input again; result, scale and one term of each.
    host = inputs + 2 * (3 * inputs + 3 * output)
    demands = {engine: need, "cpu": host + (need if engine == "cpu" else 0)}
    for name, bytes_ in demands.items():
        free = engines.load(name).free_bytes()
        if bytes_ > free:
            raise RuleError(
                f"{shape} needs {bytes_:,} bytes of memory for the {name} engine"
                f"{' with the float64 reference' if name == 'cpu' else ''}, {free:,} bytes are free; "
                "take a smaller shape or batch"
            )


def _with_room(
    engine: str, shape: Any, asked: Sequence[_Candidate], refused: Refused
) -> Sequence[_Candidate]:
    """Those that fit in memory at once: the largest are left out until the others do, and `refused` gets their names and why. All of
    them where not even the smallest fits."""
    left = sorted(asked, key=lambda c: c.program.nbytes())
    while left and not _fits(engine, shape, [c.program for c in left]):
        left.pop()
    if not left:
        return asked
    free = engines.load(engine).free_bytes()
    for c in asked:
        if c not in left:
            need = c.program.nbytes()
            refused(
                c.rung.name,
                f"{c.rung.name} needs {need:,} bytes of memory beside the others, {free:,} bytes are free",
            )
    return [c for c in asked if c in left]


def _fits(engine: str, shape: Any, programs: Sequence[Program]) -> bool:
    try:
        check_memory(engine, shape, programs)
    except RuleError:
        return False
    return True


def _checked_inputs(
    buffers: Sequence[Buffer], given: Mapping[str, np.ndarray], seed: int
) -> dict[str, np.ndarray]:
    """Every input as its buffer wants it: those given checked, the others seeded random."""
    names = [b.name for b in buffers]
    for name in given:
        if name not in names:
            raise RuleError(f"no input {name!r}; there are: {', '.join(names)}")
    arrays = seeded_inputs([b for b in buffers if b.name not in given], seed)
    return arrays | {b.name: values.checked(b, given[b.name]) for b in buffers if b.name in given}
