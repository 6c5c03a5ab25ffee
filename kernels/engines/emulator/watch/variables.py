"""The variables of a watched kernel: which instruction may give which of them a new value, and where that value is then."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from kernels.engines.emulator.ptx.kernel import Body, Kernel
from kernels.engines.emulator.ptx.registers import written
from kernels.engines.emulator.watch import debug_info
from kernels.engines.emulator.watch.statements import PART, SHARED
from kernels.engines.emulator.watch.types import Type
from kernels.engines.emulator.watch.watch import Variable


@dataclass(frozen=True)
class Held:
    """From an instruction to another a variable is in a register."""

    variable: int
    register: str
    start: int
    stop: int


@dataclass(frozen=True)
class Stored:
    """A variable is at a byte of the thread's local memory."""

    variable: int
    offset: int


@dataclass(frozen=True)
class Variables:
    """Those of a kernel that are watched. `changed`: by instruction, what is held in a register that it writes, and whether it only moves the
    value there. `entered`: by instruction, what is in another register from there on. `shared`: the types of shared arrays.
    `parameters`: the names of the kernel's parameters, in their order."""

    all: tuple[Variable, ...]
    stored: tuple[Stored, ...]
    changed: Mapping[int, list[tuple[Held, bool]]]
    entered: Mapping[int, list[Held]]
    shared: Mapping[str, Type]
    parameters: tuple[str, ...]


def variables_of(
    kernel: Kernel, ptx: str, local: Mapping[str, int], is_watched: Callable[[Variable], bool] = lambda _: True
) -> Variables:
    """Returns the variables of a kernel of a build for watching. `local`: where the variables of the PTX begin in local memory."""
    functions = debug_info.functions(ptx)
    all_: list[Variable] = []
    held: list[Held] = []
    stored: list[Stored] = []
    shared: dict[str, Type] = {}
    for body in kernel.bodies:
        for found in functions[body.function].variables if body.function in functions else ():
            if found.name.startswith(SHARED) and found.type.target is not None:
                shared[found.name.removeprefix(SHARED)] = found.type.target
                continue
            variable = _variable(body, found, functions[body.function].name)
            places = [*_held(body, found, variable, len(all_)), *_stored(body, found, local, len(all_))]
            if places and is_watched(variable):
                all_.append(variable)
                held += [place for place in places if isinstance(place, Held)]
                stored += [place for place in places if isinstance(place, Stored)]
    kernels_own = functions.get(kernel.bodies[0].function)
    parameters = kernels_own.parameters if kernels_own else ()
    return Variables(tuple(all_), tuple(stored), _changed(kernel, held), _entered(all_, held), shared, parameters)


def _variable(body: Body, found: debug_info.Variable, function: str) -> Variable:
    start, stop = (_instruction(body, label) for label in found.scope)
    calls = tuple(around.line for around in _around(body) if around.around is not None)
    line = found.line % PART
    return Variable(found.name, function, found.type, line, calls, start, stop, found.is_parameter)


def _around(body: Body | None) -> Iterator[Body]:
    """Yields a body and those around it, the kernel's own first."""
    if body is not None:
        yield from _around(body.around)
        yield body


def _instruction(body: Body, label: str) -> int:
    """Returns the instruction that a label is at. The end of a function is no statement of its body."""
    return body.labels.get(label, body.stop)


def _held(body: Body, found: debug_info.Variable, variable: Variable, n: int) -> Iterator[Held]:
    for place in found.places:
        if place.register:
            start = _instruction(body, place.start) if place.start else variable.start
            stop = _instruction(body, place.stop) if place.stop else variable.stop
            register = body.names.get(place.register, place.register)
            yield Held(n, register, max(start, variable.start), min(stop, variable.stop))


def _stored(body: Body, found: debug_info.Variable, local: Mapping[str, int], n: int) -> Iterator[Stored]:
    for place in found.places:
        symbol = body.names.get(place.symbol, place.symbol)
        if symbol in local:
            yield Stored(n, local[symbol] + place.offset)


def _changed(kernel: Kernel, held: list[Held]) -> dict[int, list[tuple[Held, bool]]]:
    by_register: dict[str, list[Held]] = {}
    registers_of: dict[int, set[str]] = {}
    for place in held:
        by_register.setdefault(place.register, []).append(place)
        registers_of.setdefault(place.variable, set()).add(place.register)
    changed: dict[int, list[tuple[Held, bool]]] = {}
    for pc, i in enumerate(kernel.code):
        for place in (place for name in written(i) for place in by_register.get(name, ())):
            if place.start <= pc + 1 < place.stop:
                moves = i.parts[0] == "mov" and str(i.operands[1].value) in registers_of[place.variable]
                changed.setdefault(pc, []).append((place, moves))
    return changed


def _entered(all_: list[Variable], held: list[Held]) -> dict[int, list[Held]]:
    entered: dict[int, list[Held]] = {}
    for place in held:
        if place.start > all_[place.variable].start:
            entered.setdefault(place.start, []).append(place)
    return entered
