"""A reader's own kernel, recorded: as it is measured, and in the build for watching."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kernels.engines.emulator import user_kernel
from kernels.engines.emulator.compiler.translated import Translated, for_watching
from kernels.engines.emulator.counters import Counters, Tally
from kernels.engines.emulator.errors import EmulatorError
from kernels.engines.emulator.launch import Options
from kernels.engines.emulator.memory import Global
from kernels.engines.emulator.threads import Dim
from kernels.engines.emulator.user_kernel import UserLaunch
from kernels.engines.emulator.watch.recording import Recording
from kernels.engines.emulator.watch.watch import Watch
from kernels.model.program import Launch, RuleError, no_processor


@dataclass(frozen=True)
class UserRecording:
    """`differs`: the arrays whose bits the two builds do not agree in."""

    recording: Recording
    differs: tuple[str, ...]


def record_kernel(
    file: Path, entry: str, grid: Dim, block: Dim, args: Sequence[str], blocks: tuple[int, ...] = (0,), **settings
) -> UserRecording:
    """Run a kernel of a file and record blocks of it with every variable and every data race. `settings` and errors as of
    user_kernel.prepared; RuleError also if no thread of these blocks does anything before the kernel fails."""
    call, code = user_kernel.prepared(file, entry, grid, block, args, **settings)
    build = for_watching(code, entry)
    memory, locations = call.memory(build)
    names = {name: at for name, (at, _, _) in locations.items() if at == name}
    before, given = _arrays(memory, names), frozenset(n for n in names if memory.written(n).all())
    watch, fault = Watch(blocks, lambda variable: not variable.calls), ""
    try:
        options = Options(count=False, races=True, seconds=call.seconds, order=call.order, watch=watch)
        watched = call.run_in(memory, build, options).watched
    except EmulatorError as error:
        watched, fault = error.watched, str(error)
    if watched is None or not watched.steps:
        raise RuleError(fault or f"no thread of block {blocks[0]} executes a line of {entry}")
    measured, counters = _measured(call, code)
    of_parameters = watched.parameters
    arguments = dict(zip(of_parameters, call.values, strict=True)) if len(of_parameters) == len(call.values) else {}
    after = _arrays(memory, names)
    recording = Recording(
        Launch(file.name, entry, grid, block, (), no_processor, _numbers(settings.get("defines", ())), call.shared),
        {file.name: "\n".join(code.source.lines)},
        watched,
        counters,
        before,
        after,
        {n: memory.written(n) for n in names},
        given,
        {name: buffer for name, buffer in arguments.items() if buffer in names},
        len(blocks),
        fault,
    )
    differs = tuple(n for n in names if measured and measured[n].tobytes() != after[n].tobytes()) if not fault else ()
    return UserRecording(recording, differs)


def _measured(call: UserLaunch, code: Translated) -> tuple[dict[str, np.ndarray], Counters]:
    """Returns the arrays after the run as it is measured, and its counts; none if it fails."""
    memory, locations = call.memory(code)
    try:
        counters = call.run_in(memory, code, Options(seconds=call.seconds, order=call.order)).counted
    except EmulatorError:
        return {}, Tally(code.kernel.code).counters()
    return _arrays(memory, {name: at for name, (at, _, _) in locations.items() if at == name}), counters


def _arrays(memory: Global, names: dict[str, str]) -> dict[str, np.ndarray]:
    return {name: memory.array(name) for name in names}


def _numbers(defines: Sequence[str]) -> tuple[tuple[str, int], ...]:
    """Returns the defines whose value is a whole number."""
    pairs = (text.partition("=")[::2] for text in defines)
    return tuple((name, int(value)) for name, value in pairs if value.lstrip("-").isdigit())
