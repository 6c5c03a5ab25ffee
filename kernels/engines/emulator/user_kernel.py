"""Bring your own kernel: run any file of CUDA C++ or PTX, from Python or `python -m kernels emulate`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from kernels.engines.emulator import arguments, comparison, ledger, limits, ncu, nsight, parameters
from kernels.engines.emulator.arguments import Argument, Array, Struct
from kernels.engines.emulator.comparison import Check, Compared
from kernels.engines.emulator.compiler.sass import Sass, disassembled
from kernels.engines.emulator.compiler.source import Source
from kernels.engines.emulator.compiler.translated import Translated, for_watching, translated, unoptimized
from kernels.engines.emulator.counters import Counters
from kernels.engines.emulator.errors import BadCall, EmulatorError, RemovedCode, UnwrittenRead
from kernels.engines.emulator.flags import may_acquire
from kernels.engines.emulator.iterations import SECONDS
from kernels.engines.emulator.launch import BLOCKS, Dim, Options, Run, device_memory, launch
from kernels.engines.emulator.memory import Global
from kernels.engines.emulator.printer import PRINT_BUFFER, Printed
from kernels.engines.emulator.ptx import targets
from kernels.engines.emulator.state import needed
from kernels.engines.emulator.watch.watch import Watch
from kernels.model import numerals
from kernels.model.program import RuleError

if TYPE_CHECKING:
    from kernels.engines.emulator.watch.thread_steps import ThreadStep

MAX_SHOWN = 120  # characters of a source line in the table: PTX has mangled names of hundreds
LAST_PRINTED = 20  # lines shown with an error
_OTHER_ORDERS: dict[str | int, str] = {"reversed": "the warps in reverse order", BLOCKS: "one block after the other"}
MOST_STEPS = 200  # steps of a thread that are shown
_LONGEST_AGAIN = 200_000  # warp instructions of a launch whose races are looked for in code that is not optimized, too
SECOND_RUN = 20_000  # warp instructions: a launch of no more is run again with the warps in reverse
_CONSTANT = re.compile(r"([A-Za-z_$][A-Za-z0-9_$]*(?:::[A-Za-z_][A-Za-z0-9_]*)*)=(.*)", re.DOTALL)


@dataclass(frozen=True)
class Emulated:
    """The result of a run: arrays after it, by argument (arg0, arg1 ...) and by variable, counters and printed lines.

    `races` describes the data races. `warnings` describes barriers that some threads returned before, numbers that wrap or are
    compared by their bits, and elements that depend on the order of the warps. `notes`: elements that were never written or never
    read, and the first NaN. `compared`: with the expression of a check.
    """

    arrays: dict[str, np.ndarray]
    counters: Counters
    races: tuple[str, ...]
    source: Source
    printed: tuple[Printed, ...] = ()  # by the kernel's printf
    unprinted: int = 0  # calls of printf whose text was dropped
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    compared: Compared | None = None
    measured: ncu.Beside | None = None  # a report's numbers beside these
    sass: Sass | None = None  # the kernel's machine code
    thread_steps: tuple[ThreadStep, ...] | None = None  # what a thread does, step by step

    def to_json(self) -> dict:
        return self.counters.to_json() | {
            "races": list(self.races),
            "warnings": list(self.warnings),
            "notes": list(self.notes),
            "nsight": nsight.to_json(),
            "measured": self.measured and asdict(self.measured),
            "sass": self.sass and self.sass.to_json(),
            "watched": self.thread_steps and [asdict(step) for step in self.thread_steps],
            "check": self.compared and {"right": self.compared.right, "text": self.compared.text},
            "printed": [asdict(line) for line in self.printed],
            "unprinted": self.unprinted,
        }

    def text(self) -> str:
        """Returns the totals, then the counts of each line that executed, then the printed lines."""
        out = nsight.table(self.counters.total)
        out.append("\nline   warp instr.   sectors ld / st   shared waves ld / st   source")
        for line, c in self.counters.lines.items():
            code = self.source.line(line.file, line.number).strip()
            code = code if len(code) <= MAX_SHOWN else f"{code[:MAX_SHOWN]} ..."
            out.append(
                f"{line.number:4} {c['warp_instructions']:13,} {c['sectors_ld']:8,} / {c['sectors_st']:<8,}"
                f" {c['wavefronts_ld']:8,} / {c['wavefronts_st']:<8,}  {code}"
            )
        out += [f"warning: {message}" for message in (*self.races, *self.warnings)]
        out += [f"note: {message}" for message in self.notes]
        out += [self.compared.text] if self.compared else []
        out += ["PTX-level counts", *self._prints()]
        out += [self.measured.text()] if self.measured else []
        out += [self.sass.text(self.source)] if self.sass else []
        out += ["", *self._steps()] if self.thread_steps is not None else []
        return "\n".join(out)

    def _steps(self) -> Iterator[str]:
        from kernels.engines.emulator.watch.statements import statements  # needs Pygments

        yield "line   what the thread does, from a build without optimising"
        for step in (self.thread_steps or ())[:MOST_STEPS]:
            line = step.line if step.inner is None else step.inner
            of_line = statements(self.source.line(line.file, line.number))
            code = of_line[min(step.statement, len(of_line) - 1)]
            yield f"{line.number:4}   {code if len(code) <= MAX_SHOWN else f'{code[:MAX_SHOWN]} ...'}"
            yield f"       {step.text()}"
        if (rest := len(self.thread_steps or ()) - MOST_STEPS) > 0:
            yield f"and {rest:,} more steps (--json has all)"

    def _prints(self) -> Iterator[str]:
        if self.printed:
            yield "\nprinted by"
        yield from map(str, self.printed)
        if self.unprinted:
            yield f"The first {PRINT_BUFFER:,} bytes are kept. {self.unprinted:,} later calls of printf are left out."


def dim(text: str) -> Dim:
    """Parse "4", "4,4" or "4,4,1" into (x, y, z). RuleError for other text."""
    counts = [numerals.count(part) for part in text.split(",")]
    extents = [count for count in counts if count is not None]
    if not 1 <= len(extents) <= 3 or len(extents) < len(counts):
        raise RuleError(f"a grid or block is one to three positive whole numbers, got {text!r}")
    x, y, z = (*extents, 1, 1)[:3]
    return x, y, z


def order_of(text: str) -> str | int:
    """Parse "forward", "reversed", "blocks", "random" or "random:7" into an order of Options. RuleError for other text."""
    name, _, seed = text.partition(":")
    if name == "random" and (not seed or seed.isdecimal()):
        return int(seed or 0)
    if text not in ("forward", "reversed", BLOCKS):
        raise RuleError(f"--order is forward, reversed, blocks, random or random:SEED, got {text!r}")
    return text


def watched_thread(text: str, grid: Dim, block: Dim) -> tuple[int, int]:
    """Parse "9" or "2:9" into a block and a thread of it, by number. RuleError for other text, and for one that the launch does not have."""
    before, colon, last = text.rpartition(":")
    numbers = (before if colon else "0", last)
    if not all(number.isdecimal() for number in numbers):
        raise RuleError(f"--watch is a thread of block 0, such as 9, or of another one, such as 2:9, got {text!r}")
    of_block, thread = map(int, numbers)
    if of_block >= math.prod(grid) or thread >= math.prod(block):
        raise RuleError(
            f"--watch {text}: the launch has {math.prod(grid):,} blocks of {math.prod(block):,} threads, numbered from 0"
        )
    return of_block, thread


def emulate(
    file: Path,
    entry: str,
    grid: Dim,
    block: Dim,
    args: Sequence[str],
    *,
    shared: int = 0,
    seed: int = 0,
    defines: Sequence[str] = (),
    folders: Sequence[str] = (),
    arch: str = "",
    standard: str = "",
    constants: Sequence[str] = (),
    seconds: float = SECONDS,
    order: str | int = "forward",
    check: str = "",
    tolerance: float | None = None,
    out: Path | None = None,
    report: Path | None = None,
    sass: bool = False,
    watch: str = "",
) -> Emulated:
    """Compile `file` and run its kernel `entry`, a name of C++: "naive", "ns::naive", "sgemm<16, float>". A file of PTX (.ptx)
    is run as it is; its kernels have their names of PTX too.

    args: a text for each parameter, in a form of arguments.FORMS. constants: "NAME=ARG" for each `__constant__` or
    `__device__` variable to be written before the launch. shared: bytes of dynamic shared memory. defines: "NAME" or
    "NAME=VALUE". folders: more folders of headers. arch, standard: sm_80 and c++17 if empty. seconds: processor time that
    the launch may take. order: of the warps, as in Options. check: what an array must equal (comparison.parse). tolerance: of
    floats in it. out: a folder; each array is written there as .npy after the run. report: a file that ncu --csv printed.
    sass: add the machine code. watch: "9" or "2:9", a thread of block 0 or of another one, whose steps are added.
    Raises RuleError (CompileError with the compiler's message, EmulatorError with line, thread and block), OSError.
    """
    settings = {"shared": shared, "seed": seed, "constants": constants, "seconds": seconds, "order": order}
    building = {"defines": defines, "folders": folders, "arch": arch, "standard": standard}
    call, code = prepared(file, entry, grid, block, args, **settings, **building)
    checked = comparison.parse(check, call.values, tolerance) if check else None
    source = code.source
    machine_code = disassembled(code, entry) if sass else None
    block_and_thread = watched_thread(watch, grid, block) if watch else None
    to_watch = for_watching(code, entry) if block_and_thread else None
    found = ncu.find(Path(report), entry, code.name) if report is not None else None
    if out is not None:
        Path(out).mkdir(parents=True, exist_ok=True)
    want = comparison.expected(checked, call.before()) if checked else np.zeros(0)
    plain = partial(unoptimized, code, entry) if code.options else None  # compiled where it is needed
    early = []
    try:
        run, memory, locations = call.run(code)
    except UnwrittenRead as e:  # the compiler may have moved a load before the condition of the source
        run, memory, locations = (call.run_again(plain()) if plain else None) or _fail(e, source)
        code = plain() if plain else code
        early = [
            f"{e}: only code that was optimised reads it, before a condition. All counts are those of code that was not"
        ]
    except EmulatorError as e:
        bad_call = call.bad_call(plain()) if isinstance(e, RemovedCode) and plain else None
        _fail(bad_call or e, source)
    races = call.races_of_the_source(plain, run)
    after = {n: memory.array(at).view(dtype).reshape(shape) for n, (at, dtype, shape) in locations.items()}
    if out is not None:
        _save(after, Path(out))
    outputs = {checked.name} if checked else set(after)
    depends, may_depend = ([], []) if races else call.differences(code, plain, after, outputs, run)
    warnings = (*run.warnings, *depends)
    about_nan = run.ended.first_nan.messages() if run.ended.first_nan else ()
    notes = (*early, *ledger.notes(run.ended), *about_nan, *may_depend)
    races, warnings, notes = (tuple(map(source.quoted, messages)) for messages in (races, warnings, notes))
    compared = _compared(checked, want, after, run) if checked else None
    measured = found.beside((grid, block), run.counted.with_derived) if found else None
    steps = call.thread_steps(to_watch, *block_and_thread) if to_watch and block_and_thread else None
    return Emulated(
        after,
        run.counted,
        races,
        source,
        run.printed,
        run.unprinted,
        warnings,
        notes,
        compared,
        measured,
        machine_code,
        steps,
    )


def prepared(
    file: Path,
    entry: str,
    grid: Dim,
    block: Dim,
    args: Sequence[str],
    *,
    shared: int = 0,
    seed: int = 0,
    defines: Sequence[str] = (),
    folders: Sequence[str] = (),
    arch: str = "",
    standard: str = "",
    constants: Sequence[str] = (),
    seconds: float = SECONDS,
    order: str | int = "forward",
) -> tuple[UserLaunch, Translated]:
    """Returns a launch of a kernel in a file, checked, and its code. Parameters and errors as in `emulate`."""
    for name, texts in (("args", args), ("constants", constants), ("defines", defines), ("folders", folders)):
        _check_texts(name, texts)
    numerals.check_positive("seconds", seconds)
    numerals.check_whole("seed", seed)
    limits.check_grid(grid, block)
    values = {f"arg{n}": arguments.parse(text) for n, text in enumerate(args)}
    variables = _constants(constants)
    code = translated(Path(file), entry, list(variables), defines, folders, arch, standard)
    kernel = code.kernel
    limits.check_bounds(kernel, block)
    limits.check_shared(kernel, shared)
    targets.check(kernel, code.arch, compiled=bool(code.options))
    parameters.check_arguments(kernel, entry, values)
    parameters.check_variables(kernel, code.lowered, variables, values)
    arrays = [array for n, value in (values | variables).items() for _, array in parameters.arrays(n, value)]
    limits.check_memory(kernel, grid, block, shared, arrays)
    return UserLaunch(entry, grid, block, shared, values, variables, seed, seconds, order), code


def _compared(checked: Check, want: np.ndarray, after: Mapping[str, np.ndarray], run: Run) -> Compared:
    """Returns how an array compares with what the check expects."""
    machine, got = run.ended, after[checked.name]
    region = next(region for region in machine.memory.regions if region.name == checked.name)

    def writer(n: int) -> str:
        number, _ = machine.races["global"].writer(region.start + n * region.dtype.itemsize)
        return f", written by {machine.threads.text(number)}" if number >= 0 else ""

    unwritten = ledger.unwritten(machine, region).reshape(got.shape)
    return comparison.compare(checked, got, want, unwritten, writer)


# A run, the memory after it, and where its arrays are in it.
Launched = tuple[Run, Global, dict[str, tuple[str, np.dtype, tuple[int, ...]]]]
Plain = Callable[[], Translated] | None  # compiles the same kernel without optimizing; None for PTX


@dataclass(frozen=True)
class UserLaunch:
    """A launch of a kernel, with the values of its arguments and of variables."""

    entry: str
    grid: Dim
    block: Dim
    shared: int
    values: Mapping[str, Argument]
    variables: Mapping[str, Argument]
    seed: int
    seconds: float
    order: str | int = "forward"

    def before(self) -> dict[str, object]:
        """Returns the arguments as they are before the launch: arrays and numbers."""
        rng = np.random.default_rng(self.seed)
        arrays = {n: a.values(rng) for n, value in self.values.items() for n, a in parameters.arrays(n, value)}
        return {n: arrays.get(n, value) for n, value in self.values.items() if not isinstance(value, Struct)}

    def differences(
        self, code: Translated, plain: Plain, after: Mapping[str, np.ndarray], outputs: set[str], run: Run
    ) -> tuple[list[str], list[str]]:
        """Returns what differs in further runs, if the first one was short and in the order of the warps: with the warps in reverse, and one
        block after the other if blocks may learn from each other. Last what differs in other arrays than the outputs."""
        if self.order != "forward" or run.counted.total["warp_instructions"] > SECOND_RUN:
            return [], []
        orders = [*_OTHER_ORDERS] if may_acquire(run.ended.kernel.code) else ["reversed"]
        others: list[str] = []
        for order in orders:
            found, elsewhere = replace(self, order=order)._differences_from(code, plain, after, outputs)
            if found:
                return [*found, *run.ended.undefined.values()], []
            others = others or elsewhere
        return [], others

    def _differences_from(
        self, code: Translated, plain: Plain, after: Mapping[str, np.ndarray], outputs: set[str]
    ) -> tuple[list[str], list[str]]:
        """Returns what differs in this launch from the arrays after another one, in outputs and in others."""
        how = _OTHER_ORDERS[self.order]
        try:
            run, memory, locations = self.run(code)
        except EmulatorError as error:
            return [f"with {how} the launch fails: {error}"], []
        now = {n: memory.array(at).view(dtype).reshape(shape) for n, (at, dtype, shape) in locations.items()}
        lines = {n: line for n, array in now.items() if (line := _depends_on_order(n, after[n], array, how))}
        in_outputs = [line for n, line in lines.items() if n in outputs]
        return [*self.races_of_the_source(plain, run), *in_outputs], [
            line for n, line in lines.items() if n not in outputs
        ]

    def run(self, code: Translated) -> Launched:
        """Runs a kernel with all checks."""
        return self._launch(code, Options(races=True, numbers=True, seconds=self.seconds, order=self.order))

    def _launch(self, code: Translated, options: Options) -> Launched:
        memory, locations = self.memory(code)
        return self.run_in(memory, code, options), memory, locations

    def memory(self, code: Translated) -> tuple[Global, dict[str, tuple[str, np.dtype, tuple[int, ...]]]]:
        """Returns what `fill_memory` does before the launch."""
        return fill_memory(self.values, self.variables, code.lowered, np.random.default_rng(self.seed))

    def run_in(self, memory: Global, code: Translated, options: Options) -> Run:
        args = [np.void(parameters.packed(n, value, memory.address)) for n, value in self.values.items()]
        return launch(code.ptx, code.name, self.grid, self.block, args, memory, self.shared, options, name=self.entry)

    def thread_steps(self, code: Translated, block: int, thread: int) -> tuple[ThreadStep, ...]:
        """Returns what a thread of a block does, of code that was compiled for watching."""
        from kernels.engines.emulator.watch import thread_steps  # needs pyelftools

        run, memory, _ = self._launch(code, Options(count=False, seconds=self.seconds, watch=Watch((block,))))
        watched, shapes = needed(run.watched), {region.name: region.shape for region in memory.regions}
        names = watched.parameters
        of_arguments = dict(zip(self.values, names, strict=True)) if len(names) == len(self.values) else {}
        return tuple(thread_steps.thread_steps(watched, thread, shapes, of_arguments))

    def run_again(self, code: Translated) -> Launched | None:
        """Returns the run of code that was not optimized; None if that fails too."""
        try:
            return self.run(code)
        except EmulatorError:
            return None

    def races_of_the_source(self, plain: Plain, run: Run) -> tuple[str, ...]:
        """Returns the races of a run; none if code that was not optimized has none, where the launch is short enough to look. The optimizer
        makes a load by all threads, whose value most of them drop, of a load under a condition."""
        short = run.counted.total["warp_instructions"] <= _LONGEST_AGAIN
        again = self.run_again(plain()) if run.races and plain and short else None
        return run.races if again is None or again[0].races else ()

    def bad_call(self, code: Translated) -> BadCall | None:
        """Returns the error of a call by pointer in code that was not optimized, None if there is none. The optimizer
        removes a call of a null pointer, and with it the line."""
        try:
            self.run(code)
        except BadCall as e:
            return e
        except EmulatorError:
            return None
        return None


def _depends_on_order(name: str, first: np.ndarray, second: np.ndarray, how: str) -> str:
    """Returns that an array depends on the order of the warps; "" if it does not. The last digits of sums of floats may. `how`: the second
    one was computed."""
    differ = first.reshape(-1).view(np.uint8) != second.reshape(-1).view(np.uint8)
    differ = differ.reshape(first.size, -1).any(axis=1).reshape(first.shape)
    if tolerance := comparison.TOLERANCE.get(str(first.dtype)):
        a, b = (array.astype(comparison.widest(array)) for array in (first, second))
        scale = np.abs(a[np.isfinite(a)]).max(initial=0.0)
        with np.errstate(invalid="ignore"):
            differ &= ~(np.abs(a - b) <= tolerance * scale)
    if not differ.any():
        return ""
    at = int(np.flatnonzero(differ)[0])
    index = ", ".join(str(int(i)) for i in np.unravel_index(at, first.shape))
    return (
        f"{np.count_nonzero(differ):,} of {differ.size:,} elements of {name} depend on the order of the warps, the first is "
        f"{name}[{index}]: {first.flat[at]:.7g}, with {how} {second.flat[at]:.7g}"
    )


def _save(arrays: Mapping[str, np.ndarray], folder: Path) -> None:
    for name, array in arrays.items():
        np.save(folder / f"{name.replace('::', '.')}.npy", array)


def _fail(e: EmulatorError, source: Source) -> NoReturn:
    raise EmulatorError(_with_causes(e, source) + _printed_before(e)) from None


def _with_causes(e: EmulatorError, source: Source) -> str:
    """Returns an error's message with its code, and with what went wrong before."""
    return "\n".join([source.quoted(str(e)), *(f"before: {source.quoted(message)}" for message in e.before)])


def _printed_before(e: EmulatorError) -> str:
    """Returns the last lines that the kernel printed before an error, as a part of a message."""
    lines = [str(line) for line in e.printed[-LAST_PRINTED:]]
    return "\n".join(["\nprinted before, the last lines:", *lines]) if lines else ""


def _check_texts(name: str, texts: Sequence[str]) -> None:
    """Raises RuleError if an argument is not a list of texts."""
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        raise RuleError(f"{name} is a list of texts, got {texts!r}")


def fill_memory(
    args: Mapping[str, Argument],
    variables: Mapping[str, Argument],
    lowered: Mapping[str, str],
    rng: np.random.Generator,
) -> tuple[Global, dict[str, tuple[str, np.dtype, tuple[int, ...]]]]:
    """Returns the device's memory with every array and variable, and the (name in memory, type, shape) of each.

    An array that is a variable's value is the variable's content. An array in a struct is a buffer it points to.
    """
    pointed = dict(args) | {n: value for n, value in variables.items() if isinstance(value, Struct)}
    buffers = dict(pair for n, value in pointed.items() for pair in parameters.arrays(n, value))
    memory = device_memory(
        {n: array.values(rng) for n, array in buffers.items()},
        [n for n, array in buffers.items() if array.fill != "empty"],
    )
    locations = {n: (n, array.dtype, array.shape) for n, array in buffers.items()}
    for n, value in variables.items():
        if isinstance(value, Struct):
            content = parameters.packed(n, value, memory.address)
        else:
            content = (value.values(rng) if isinstance(value, Array) else np.asarray(value)).tobytes()
            locations[n] = lowered[n], value.dtype, value.shape
        memory.add(lowered[n], len(content), content)
        if isinstance(value, Array) and value.fill == "empty":
            memory.unwrite(lowered[n])
    return memory, locations


def _constants(texts: Sequence[str]) -> dict[str, Argument]:
    variables: dict[str, Argument] = {}
    for text in texts:
        name, value = _constant(text)
        if name in variables:
            raise RuleError(f"the variable {name} has two values: --constant {text} is the second")
        variables[name] = value
    return variables


def _constant(text: str) -> tuple[str, Argument]:
    """Parse "NAME=ARG" into a variable's name and value. RuleError for other text."""
    found = _CONSTANT.fullmatch(text)
    if not found:
        raise RuleError(f"a constant is NAME=ARG, such as mask=f32:9:ones, got {text!r}")
    return found[1], arguments.parse(found[2])
