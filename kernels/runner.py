"""run() and compare(): rung + shape + inputs + engine -> Result, verified before it is timed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from kernels import engines
from kernels.activity import CEILINGS, DONE, REFERENCE, TIMING, VERIFYING
from kernels.engines.protocol import Engine, Session
from kernels.ladders import LADDERS, ladder_of
from kernels.machine import others
from kernels.machine.timing import Budget
from kernels.model import values
from kernels.model.names import unknown
from kernels.model.program import INPUT, Buffer, Program, RefusedError, RuleError
from kernels.model.result import Measurement, Result
from kernels.model.rung import Ladder, Rung
from kernels.model.shape import Shape
from kernels.model.verify import Reference, agrees, by_output, relative_error
from kernels.records import availability
from kernels.run_settings import RunSettings, check_trace

if TYPE_CHECKING:
    from numpy.typing import ArrayLike  # Python in a browser has none

Progress = Callable[[float, str], None]
Refused = Callable[[str, str], None]


class VerificationError(RuntimeError):
    """A rung's output disagrees with the float64 reference: it gets no time."""


@dataclass(eq=False)
class _Candidate:
    """A rung of a comparison: its program, then its session and its verified output."""

    rung: Rung
    tiles: dict[str, int]  # all of them
    program: Program
    session: Session | None = None  # of its engine
    outputs: dict[str, np.ndarray] = field(default_factory=dict)
    error: float = 0.0  # of its output with the largest

    @property
    def opened(self) -> Session:
        assert self.session is not None  # of a verified candidate
        return self.session


def run(
    rung: str,
    shape: Shape | str,
    inputs: Mapping[str, ArrayLike] | None = None,
    engine: str | None = None,
    tiles: Mapping[str, int | Mapping[str, int]] | None = None,
    **settings: Any,
) -> Result:
    """Run one rung at a shape, verify it against the float64 reference, then time it.

    shape: a shape, or the name of a preset of the rung's ladder.
    inputs: arrays by buffer name, NumPy's or PyTorch's tensors; those left out are seeded random.
    engine: "cuda", "cpu" or "emulator"; by default the GPU, or the processor if there is no GPU.
    settings, by keyword: seed (0) of the random inputs; mode ("cold" or "hot"); budget (Budget) of the samples;
    measure (True), whether it is timed; trace, the block (linear index) to trace, emulator only.
    Raises ShapeError, RuleError (the rule is named), VerificationError.
    """
    return compare([rung], shape, inputs, engine, tiles, **settings)[0]


def compare(
    rungs: Sequence[str],
    shape: Shape | str,
    inputs: Mapping[str, ArrayLike] | None = None,
    engine: str | None = None,
    tiles: Mapping[str, int | Mapping[str, int]] | None = None,
    *,
    seed: int = 0,
    mode: str = "cold",
    budget: Budget | None = None,
    measure: bool = True,
    trace: int | None = None,
    progress: Progress = lambda share, text: None,
    refused: Refused | None = None,
) -> list[Result]:
    """Run several rungs of one ladder on the same inputs, their samples interleaved. The arguments are those of `run`.

    `tiles` reaches each rung that has a tile size of that name; an entry under a rung's name reaches that rung alone. A rung
    that it does not reach has its tile sizes for the shape (Rung.tiles_at); in others, what is left out is the default.
    A rung that this machine cannot run (its GPU is too old for it, a library is missing or does not support the shape,
    there is no memory for it) is left out: `refused` gets its name and the reason. Without `refused` that raises
    RefusedError or RuleError.
    """
    settings = RunSettings(inputs, engine, tiles, seed, mode, budget, measure, trace)
    ladder, shape = settings.check(rungs, shape)
    machine, device = _ready(settings)
    candidates = _candidates(ladder, rungs, shape, settings, refused)
    if not candidates:
        return []
    progress(0.0, REFERENCE)
    arrays, reference = _reference(ladder, shape, candidates[0].program, settings)
    measured, ceilings = measure and machine.MEASURES, None
    if measured:
        progress(0.1, CEILINGS)
        ceilings = _ceilings(machine)  # before the buffers take its memory

    verified: list[_Candidate] = []
    try:
        for i, c in enumerate(candidates):
            progress(0.1 + 0.3 * i / len(candidates), VERIFYING.format(kernel=c.rung.title_on(settings.engine_name())))
            if outputs := _open(machine, c, arrays, trace, refused):
                verified.append(c)
                expected = rung_reference(c.rung, shape, c.tiles, arrays, reference)
                c.outputs, c.error = _verified(c.rung, settings.engine_name(), outputs, expected)
        measurements: Sequence[Measurement | None] = [None] * len(verified)
        if measured and verified:
            sessions = [c.opened for c in verified]
            measurements = _measure(machine, device, ceilings, sessions, settings, progress)
    finally:
        for c in verified:
            c.opened.close()
    progress(1.0, DONE)
    return [
        _result(c, settings.engine_name(), shape, measurement)
        for c, measurement in zip(verified, measurements, strict=True)
    ]


def _result(c: _Candidate, engine: str, shape: Shape, measurement: Measurement | None) -> Result:
    return Result(
        rung=c.rung.name,
        engine=engine,
        shape=shape,
        tiles=c.tiles,
        outputs=c.outputs,
        error=c.error,
        measurement=measurement,
        predicted=c.rung.cost(shape, c.program),
        counters=c.opened.counters,
        trace=c.opened.trace,
    )


# -- before anything is computed -------------------------------------------------------------------
def _ready(settings: RunSettings) -> tuple[Engine, str]:
    """Returns the engine and its device. RuleError if it cannot run here, or cannot trace."""
    name = settings.engine_name()
    machine = engines.load(name)
    status = machine.status()
    if not status.ready:
        raise RuleError(f"engine {name!r} cannot run here: {status.why}")
    if settings.trace is not None and name != "emulator":
        raise RuleError(f"only the emulator engine can trace a block, not {name}")
    return machine, status.text


def _candidates(
    ladder: Ladder, rungs: Sequence[str], shape: Shape, settings: RunSettings, refused: Refused | None
) -> list[_Candidate]:
    """Returns the candidates that this machine can run and that fit in its memory together; `refused` gets the others."""
    name = settings.engine_name()
    _check_engine(name, rungs)
    candidates = _runnable(name, shape, _built(ladder, rungs, shape, settings.tiles or {}), refused)
    for c in candidates:
        if settings.trace is not None:
            check_trace(c.rung.name, c.program, settings.trace)
        if name == "emulator":
            _check_threads(c)
    if candidates and refused:
        candidates = _fitting(name, shape, candidates, refused)
    if candidates:
        check_memory(name, shape, [c.program for c in candidates])
    return candidates


def _check_engine(name: str, rungs: Sequence[str]) -> None:
    """Raises RuleError if an engine does not run a ladder, or one of its rungs."""
    ladder = ladder_of(rungs[0])
    for rung in map(ladder.rung, rungs):
        supported = [engine for engine in ladder.engines if engine in rung.engines]
        if name in supported:
            continue
        if name == "cpu" and rung.not_on_cpu:
            raise RuleError(
                f"{rung.name} does not run on the cpu engine, which measures nothing under a wrong name: "
                f"{rung.why_not_on(name)}"
            )
        raise RuleError(f"{rung.name} runs on the {' or '.join(supported)} engine only, not on {name}")


def _built(
    ladder: Ladder, rungs: Sequence[str], shape: Shape, tiles: Mapping[str, int | Mapping[str, int]]
) -> list[_Candidate]:
    """Returns the rungs with their programs. RuleError names the rule that one breaks, or a library that is missing."""
    chosen = [ladder.rung(r) for r in rungs]
    known = {t for rung in chosen for t in rung.tiles} | {rung.name for rung in chosen}
    for tile in tiles:
        if tile not in known:
            raise RuleError(unknown("tile size", tile, sorted(known), ", ".join(rungs)))
    candidates = []
    for rung in chosen:
        own = tiles.get(rung.name, {})
        of_rung = {t: v for t, v in tiles.items() if t in rung.tiles and isinstance(v, int)}
        of_rung |= own if isinstance(own, Mapping) else {}
        all_tiles = rung.check(shape, of_rung or rung.tiles_at(shape))
        if reason := availability.missing_library(rung, shape):
            raise RuleError(f"{rung.name} cannot run {shape}: {reason}")
        candidates.append(_Candidate(rung, all_tiles, rung.build(shape, all_tiles)))
    return candidates


def _runnable(engine: str, shape: Shape, candidates: Sequence[_Candidate], refused: Refused | None) -> list[_Candidate]:
    """Returns the candidates that this machine can run; `refused` gets the others. RefusedError without `refused`."""
    runnable = []
    for c in candidates:
        reason = engines.refusal(engine, c.rung, shape, c.tiles)
        if not reason:
            runnable.append(c)
        elif refused:
            refused(c.rung.name, reason)
        else:
            raise RefusedError(f"{c.rung.name}: {reason}")
    return runnable


def _check_threads(c: _Candidate) -> None:
    """Raises RuleError if a launch has more threads than can be emulated."""
    from kernels.engines import emulator

    for step in c.program.launches:
        try:
            emulator.check(step)
        except RuleError as e:
            raise RuleError(f"{c.rung.name}: {e}") from None


# -- memory ----------------------------------------------------------------------------------------
def check_memory(engine: str, shape: Shape, programs: Sequence[Program]) -> None:
    """Raises RuleError with the bytes if the candidates' buffers, all allocated at once, exceed the engine's free memory,
    or if host memory cannot hold inputs and output beside their float64 reference."""
    needed = sum(p.nbytes() for p in programs)
    inputs, output = programs[0].nbytes(INPUT), sum(b.nbytes for b in programs[0].outputs)
    # Twice the width; |x|, |w| and the padded input again; result, scale and one term of each.
    host = inputs + 2 * (3 * inputs + 3 * output)
    demands = {engine: needed, "cpu": host + (needed if engine == "cpu" else 0)}
    for name, bytes_ in demands.items():
        free = engines.load(name).free_bytes()
        if bytes_ > free:
            raise RuleError(
                f"{shape} needs {bytes_:,} bytes of memory for the {name} engine"
                f"{' with the float64 reference' if name == 'cpu' else ''}, {free:,} bytes are free; "
                "take a smaller shape or batch"
            )


def _fitting(engine: str, shape: Shape, candidates: Sequence[_Candidate], refused: Refused) -> list[_Candidate]:
    """Returns the candidates that fit in memory together: the largest are left out until the others do. All of them if not
    even the smallest fits. `refused` gets those left out."""
    fitting = sorted(candidates, key=lambda c: c.program.nbytes())
    while fitting and not _fits(engine, shape, [c.program for c in fitting]):
        fitting.pop()
    if not fitting:
        return list(candidates)
    free = engines.load(engine).free_bytes()
    for c in candidates:
        if c not in fitting:
            needed = c.program.nbytes()
            refused(
                c.rung.name,
                f"{c.rung.name} needs {needed:,} bytes of memory beside the others, {free:,} bytes are free",
            )
    return [c for c in candidates if c in fitting]


def _fits(engine: str, shape: Shape, programs: Sequence[Program]) -> bool:
    try:
        check_memory(engine, shape, programs)
    except RuleError:
        return False
    return True


# -- inputs and their reference --------------------------------------------------------------------
def seeded_inputs(buffers: Sequence[Buffer], seed: int = 0) -> dict[str, np.ndarray]:
    """Returns random values for each input buffer in its type (values.random), the same for the same seed."""
    rng = np.random.default_rng(seed)
    return {b.name: values.random(rng, b) for b in buffers}


def inputs_of(ladder: Ladder, shape: Shape, program: Program, seed: int = 0) -> dict[str, np.ndarray]:
    """Returns random values for each input of a program of a ladder, and those that follow from them."""
    return _checked_inputs(ladder, shape, program.of_role(INPUT), {}, seed)


def rung_reference(
    rung: Rung,
    shape: Shape,
    tiles: Mapping[str, int],
    arrays: Mapping[str, np.ndarray],
    reference: Mapping[str, Reference],
) -> dict[str, Reference]:
    """Returns (float64 result, error scale) of each output, with the scale of the rung if it has one of its own."""
    if not rung.scale:
        return dict(reference)
    scales = by_output(rung.scale(shape, tiles, arrays), tuple(reference))
    return {name: (ref, scales.get(name, scale)) for name, (ref, scale) in reference.items()}


def _reference(
    ladder: Ladder, shape: Shape, program: Program, settings: RunSettings
) -> tuple[dict[str, np.ndarray], dict[str, Reference]]:
    """Returns the inputs by name, and (float64 result, error scale) of each output."""
    inputs, outputs = program.of_role(INPUT), tuple(b.name for b in program.outputs)
    if not settings.inputs:
        return _seeded_reference(ladder.name, shape, inputs, outputs, settings.seed)
    arrays = _checked_inputs(ladder, shape, inputs, settings.inputs, settings.seed)
    return arrays, by_output(ladder.reference(shape, **arrays), outputs)


@lru_cache(maxsize=1)  # a sweep over tiles or modes needs the same one many times
def _seeded_reference(ladder_name: str, shape: Shape, buffers: tuple[Buffer, ...], outputs: tuple[str, ...], seed: int):
    ladder = LADDERS[ladder_name]
    arrays = _checked_inputs(ladder, shape, buffers, {}, seed)
    return arrays, by_output(ladder.reference(shape, **arrays), outputs)


def _checked_inputs(
    ladder: Ladder, shape: Shape, buffers: Sequence[Buffer], inputs: Mapping[str, ArrayLike], seed: int
) -> dict[str, np.ndarray]:
    """Returns every input in its buffer's shape and type: those passed checked, the others seeded random (as the ladder
    changes them, Ladder.revealing) or, if the ladder derives them, computed from the rest."""
    names = [b.name for b in buffers]
    for name in inputs:
        if name not in names:
            hint = '. A shape with mask="bool" or mask="bias" has an input mask' if "mask" in str(name) else ""
            raise RuleError(unknown("input", name, names) + (hint if getattr(shape, "mask", "") == "none" else ""))
    arrays = seeded_inputs([b for b in buffers if b.name not in inputs], seed)
    if ladder.revealing:
        arrays |= ladder.revealing(shape, arrays)
    arrays |= {b.name: values.checked(b, inputs[b.name]) for b in buffers if b.name in inputs}
    derived = ladder.derive(shape, arrays) if ladder.derive else {}
    return arrays | {
        b.name: values.checked(b, derived[b.name]) for b in buffers if b.name in derived and b.name not in inputs
    }


# -- running ---------------------------------------------------------------------------------------
def _open(
    machine: Engine, c: _Candidate, arrays: Mapping[str, np.ndarray], trace: int | None, refused: Refused | None
) -> dict[str, np.ndarray]:
    """Opens the session of a candidate and returns its outputs. None of them if this machine cannot run it: `refused` gets
    its name and the reason. A program that fails leaves no session open."""
    try:
        session = machine.open(c.program, arrays, trace)
        try:
            first = session.verify_run()
            names = [b.name for b in c.program.outputs]
            outputs = {names[0]: first} | {name: session.fetch(name) for name in names[1:]}
        except BaseException:
            session.close()
            raise
    except RuleError as e:
        if refused and isinstance(e, RefusedError):
            refused(c.rung.name, str(e))
            return {}
        raise type(e)(f"{c.rung.name}: {e}") from None
    c.session = session
    return outputs


def _verified(
    rung: Rung, engine: str, outputs: Mapping[str, np.ndarray], expected: Mapping[str, Reference]
) -> tuple[dict[str, np.ndarray], float]:
    """Returns copies of outputs that agree with the reference, and the largest of their errors. VerificationError names the
    first output that does not agree."""
    if set(outputs) != set(expected):
        raise VerificationError(f"{rung.name} computes {', '.join(outputs)}, not {', '.join(expected)}")
    largest = 0.0
    for name, out in outputs.items():
        ref, scale = expected[name]
        error = relative_error(out, ref, scale, rung.tolerance)
        if not agrees(out, ref, scale, rung.tolerance):
            which = f"{name} of {rung.name}" if len(outputs) > 1 else rung.name
            raise VerificationError(
                f"{which} on {engine} disagrees with the float64 reference "
                f"(relative L2 error {error:.1e}); nothing unverified gets a time"
            )
        largest = max(largest, error)
    return {name: np.array(out) for name, out in outputs.items()}, largest


def _ceilings(machine: Engine) -> dict | None:
    """Returns the measured ceilings of the device; None if they cannot be measured, for example for lack of memory."""
    try:
        return machine.ceilings()
    except RuleError:
        return None


def _measure(machine, device, ceilings, sessions, settings: RunSettings, progress) -> list[Measurement]:
    """Returns the measurement of each session; their samples are interleaved."""
    before = machine.conditions()
    timed = machine.sample(
        sessions,
        settings.mode,
        settings.budget or Budget(),
        lambda share: progress(0.4 + 0.6 * share, TIMING.format(n=len(sessions))),
    )
    after = machine.conditions()
    conditions = before | {f"{k}_after": after[k] for k in after if k.startswith("clock_")}
    if ceilings:
        conditions |= {"ceilings": ceilings}
    copies_ms = machine.copies(sessions[0])  # all candidates have the same inputs and output
    return [
        Measurement(
            samples_ms=t.samples_ms,
            mode=settings.mode,
            memory=s.memory,
            device=device,
            parts_ms=t.parts_ms,
            conditions=conditions | ({"queued": t.queued} if t.queued else {}) | others.fields(t.others),
            copies_ms=copies_ms,
        )
        for s, t in zip(sessions, timed, strict=True)
    ]
