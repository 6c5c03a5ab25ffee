"""Function bodies in PTX, parsed to the instructions of one kernel.

A function is inlined at each of its calls. A function with call frames, one that is recursive or called by pointer, is
parsed once, before the kernel itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count

from kernels.engines.emulator.ptx.declarations import params, variable
from kernels.engines.emulator.ptx.kernel import (
    RESERVED,
    RESERVED_BYTES,
    Body,
    Function,
    Instruction,
    Kernel,
    Line,
    Operand,
    PtxError,
    Variable,
    type_bytes,
)
from kernels.engines.emulator.ptx.operands import matched, operand, operands

_REGISTERS = re.compile(r"^\s*\.reg\s*\.(\w+)\s+(.+);\s*$")
_MANY = re.compile(r"^(%\w+?)<(\d+)>$")  # %r<3>: %r0, %r1, %r2
_LABEL = re.compile(r"^\s*([\w$]+)\s*:\s*$")
_INSTRUCTION = re.compile(r"^\s*(?:@(!?)([%\w$]+)\s+)?([a-z][\w.:]*)\s*(.*?);\s*$")
_LOC = re.compile(
    r"^\s*\.loc\s+(\d+)\s+(\d+)\s+(\d+)(?:,\s*function_name\s+[^,]+,\s*inlined_at\s+(\d+)\s+(\d+)\s+(\d+))?"
)
_TABLE = re.compile(r"^\s*(?:([\w$]+):)?\s*\.branchtargets\s*(.*)$")
_CALL = re.compile(r"^(?:\(([^)]*)\)\s*,)?\s*([%\w$]+)\s*(?:,\s*\(([^)]*)\))?\s*(?:,\s*[\w$]+)?\s*$", re.DOTALL)
_TEXTURES = {"tex", "tld4", "txq", "istypep", "suld", "sust", "sured", "suq"}
_RETURN = "return"  # the label after an inlined function

Guard = tuple[str, bool] | None  # predicate register, True if negated


@dataclass(frozen=True)
class FunctionText:
    """A kernel or a function of a module: its results, its parameters, and the lines start .. stop-1 of its body.
    `cluster`: blocks along x, y, z. `max_threads` of a block, 0 without a bound."""

    results: list[Variable]
    params: list[Variable]
    body: tuple[int, int]
    cluster: tuple[int, int, int] = (1, 1, 1)
    max_threads: int = 0
    required_block: tuple[int, int, int] | None = None


@dataclass(frozen=True)
class Statements:
    """The statements of a module, at most one on a line, and the number of each line in the module's text. `files`: source
    files by number. File 0 is the module itself: its instructions have their own lines there."""

    lines: Sequence[str]
    numbers: Sequence[int]
    files: Mapping[int, str]


@dataclass(eq=False)
class _Scope:
    """The declarations in a body or in a pair of braces. `names`: the unique name of each register and variable;
    `labels`: instructions; `tables`: labels."""

    number: int
    names: dict[str, str] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)
    tables: dict[str, tuple[str, ...]] = field(default_factory=dict)


class BodyReader:
    """Parses the body of `kernel` and of the functions that it calls, and adds their instructions, registers and
    variables to it. `framed`: functions with call frames, with whether each is recursive."""

    def __init__(
        self, kernel: Kernel, text: Statements, functions: Mapping[str, FunctionText], framed: Mapping[str, bool]
    ):
        self.kernel, self.lines, self.numbers, self.files = kernel, text.lines, text.numbers, text.files
        self.functions, self.framed = functions, framed
        self.line: Line | None = None
        self.inlined: Line | None = None
        self.place = self.place_of_call = ()  # as Instruction.place; of the function that is being inlined
        self.places: dict[tuple[str, ...], tuple] = {}  # the last of each file, line and column
        self.too_wide: set[str] = set()  # registers of 128 bits
        self.inline_depth = 0
        self._numbers = count()
        self.scopes = [self._new_scope()]  # of the body that is being parsed, innermost last
        self.branches: list[tuple[int, str, tuple[_Scope, ...]]] = []  # instruction, label or table, scopes
        self.function: Function | None = None  # with call frames, being parsed; None: the kernel
        self.body: Body | None = None  # that is being parsed
        self.direct_calls: dict[int, str] = {}  # instruction -> function with call frames

    def read(self) -> None:
        """Parse the functions that need frames, then the kernel, and link branches and calls."""
        kernel = self.kernel
        for name, recursive in self.framed.items():
            self._function(name, recursive)
        kernel.start = len(kernel.code)
        with self._noted_body(kernel.name):
            self._body(*self.functions[kernel.name].body)
        self._link_branches()
        self._link_calls()

    def _link_branches(self) -> None:
        for at, name, scopes in self.branches:
            table = next((s.tables[name] for s in scopes if name in s.tables), (name,))
            found = {label: s.labels[label] for s in reversed(scopes) for label in table if label in s.labels}
            if missing := [label for label in table if label not in found]:
                line = self.kernel.code[at].line or "unknown line"
                raise PtxError(f"{self.kernel.name}, {line}: a branch to {missing[0]}, which is no label here")
            self.kernel.code[at].targets = tuple(found[label] for label in table)

    def _link_calls(self) -> None:
        """Set the targets of calls of functions with frames and of these functions' returns. A call by pointer may lead
        to any of these functions."""
        code, functions = self.kernel.code, self.kernel.functions
        after_calls: dict[int, list[int]] = {f.start: [] for f in functions.values()}
        for pc, i in enumerate(code if functions else ()):
            if i.parts[0] == "call":
                called = functions[self.direct_calls[pc]] if pc in self.direct_calls else None
                i.targets = tuple(after_calls) if called is None else (called.start,)
                for start in i.targets:
                    after_calls[start].append(pc + 1)
        for f in functions.values():
            for i in code[f.start : f.stop]:
                if i.parts[0] == "return":
                    i.targets = tuple(after_calls[f.start])

    def _function(self, name: str, recursive: bool) -> None:
        """Parse a function with call frames."""
        kernel, text = self.kernel, self.functions[name]
        with self._body_scope():
            results, parameters = (
                [replace(v, name=self._unique(v.name), space="local") for v in group]
                for group in (text.results, text.params)
            )
            variables = [*results, *parameters]
            self.function = Function(name, len(kernel.code), recursive, results, parameters, variables)
            self._body(*text.body)
        kernel.code.append(Instruction("return", (), None, self.line))
        self.function.stop = len(kernel.code)
        kernel.functions[name] = self.function
        self.function = self.line = self.inlined = None

    # -- statements ------------------------------------------------------------------------------
    def _body(self, start: int, stop: int) -> None:
        i = start
        while i < stop:
            try:
                i = self._statement(i)
            except PtxError:
                raise
            except (LookupError, ValueError):
                raise self._misread(i) from None

    def _statement(self, start: int) -> int:
        """Parse the statement that begins at a line. Return the line after it."""
        text, stop = self.lines[start], start + 1
        stripped = text.strip()
        directive = stripped.startswith(".")  # most statements are instructions: they need few of these patterns
        if not stripped:
            pass
        elif stripped == "{":
            self.scopes.append(self._new_scope())
        elif stripped == "}":
            self.scopes.pop()
        elif directive and (m := _LOC.match(text)):
            self._locate(m)
        elif directive and (m := _REGISTERS.match(text)):
            self._declare_registers(m[1], m[2])
        elif directive and (v := variable(text)):
            self._declare(v)
        elif ".branchtargets" in text and _TABLE.match(text):
            text, stop = self._whole(start)
            self._table(text)
        elif stripped.endswith(":") and (m := _LABEL.match(text)):
            self.scopes[-1].labels[m[1]] = len(self.kernel.code)
            if self.body is not None:
                self.body.labels[m[1]] = len(self.kernel.code)
        elif ".callprototype" in stripped or ".calltargets" in stripped:
            stop = self._whole(start)[1]
        elif stripped.startswith(".param"):
            self._declare_params(text)
        elif not directive:  # .pragma and other directives have no effect here
            text, stop = self._whole(start)
            if 0 in self.files:
                self._place("0", str(self.numbers[start]), "0")
            self._instruction(text, start)
        return stop

    def _misread(self, at: int, why: str = "") -> PtxError:
        """Returns the error of a statement that is not understood."""
        return PtxError(f"PTX line {self.numbers[at]} is not understood: {self.lines[at].strip()}{why and f' ({why})'}")

    def _whole(self, start: int) -> tuple[str, int]:
        """Returns a statement that may continue on the next lines, and the line after it."""
        text, stop = self.lines[start], start + 1
        while ";" not in text:
            text += " " + self.lines[stop]
            stop += 1
        return text, stop

    def _table(self, text: str) -> None:
        """Add a list of labels, the targets of brx. Its label may be a separate statement before it."""
        label, labels = matched(_TABLE, text).groups()
        scope = self.scopes[-1]
        name = label or next(reversed(scope.labels))
        scope.tables[name] = tuple(t.strip() for t in labels.rstrip("; \t").split(","))

    def _locate(self, loc: re.Match) -> None:
        """Set the CUDA line of the next instructions. Line 0 is the compiler's: the line before continues."""
        file, number, column, *at = loc.groups()
        if not int(number):
            return
        self._place(file, number, column, *at)

    def _place(self, file: str, number: str, column: str, *at: str | None) -> None:
        """Set the line of the next instructions. `at`: file, line and column of the call, of an inlined function."""
        caller = tuple(part for part in at if part is not None)
        around = self.places.get(caller, (caller,)) if caller else self.place_of_call
        self.place = self.places[file, number, column] = (*around, (file, number, column))
        here = self._line(file, number)
        if self.inline_depth:
            self.inlined = here
        elif caller:
            self.line, self.inlined = self._line(*caller[:2]), here
        else:
            self.line, self.inlined = here, None

    def _line(self, file: str, number: str) -> Line:
        return Line(self.files.get(int(file), f"file {file}"), int(number))

    # -- names and declarations ------------------------------------------------------------------
    def _new_scope(self) -> _Scope:
        return _Scope(next(self._numbers))

    @contextmanager
    def _body_scope(self) -> Iterator[_Scope]:
        """Enter a scope for a function's body, which does not see the names around the call."""
        outer, scope = self.scopes, self._new_scope()
        self.scopes = [scope]
        yield scope
        self.scopes = outer

    @contextmanager
    def _noted_body(self, function: str) -> Iterator[None]:
        """Note a copy of a function's body, whose names are those of the innermost scope."""
        around = self.body
        self.body = Body(function, around, self.line, len(self.kernel.code), self.scopes[-1].names)
        self.kernel.bodies.append(self.body)
        yield
        self.body.stop = len(self.kernel.code)
        self.body = around

    def _renamed(self, name: str) -> str:
        for scope in reversed(self.scopes):
            if name in scope.names:
                return scope.names[name]
        return name

    def _unique(self, name: str) -> str:
        """Declare a name in the innermost scope. Outside the kernel's outermost scope it is extended by the scope's
        number, so that names of two scopes differ."""
        scope = self.scopes[-1]
        scope.names[name] = f"{name}.{scope.number}" if scope.number else name
        return scope.names[name]

    def _declare_registers(self, type_: str, names: str) -> None:
        type_bytes(type_)  # KeyError of an unknown one
        for name in names.split(","):
            many = _MANY.match(name.strip())
            for register in [f"{many[1]}{n}" for n in range(int(many[2]))] if many else [name.strip()]:
                if type_ == "b128":
                    self.too_wide.add(self._unique(register))
                else:
                    self.kernel.registers[self._unique(register)] = type_

    def _declare_params(self, text: str) -> None:
        """Declare arguments or results of a call as variables in local memory."""
        variables = self.kernel.variables if self.function is None else self.function.variables
        for v in params(text):
            variables.append(replace(v, name=self._unique(v.name), space="local"))

    def _declare(self, v: Variable) -> None:
        if self.function is not None and v.space == "local":
            self.function.variables.append(replace(v, name=self._unique(v.name)))
        elif all(v.name != known.name for known in self.kernel.variables):  # a function may be inlined twice
            self.kernel.variables.append(v)

    # -- instructions ----------------------------------------------------------------------------
    def _instruction(self, text: str, at: int) -> None:
        m = _INSTRUCTION.match(text)
        if not m:
            raise self._misread(at)
        negated, predicate, opcode, rest = m.groups()
        guard = (self._renamed(predicate), bool(negated)) if predicate else None
        if guard is not None and guard[0] not in self.kernel.registers:
            raise self._misread(at, f"{guard[0]} is not declared")
        base = opcode.partition(".")[0]
        if base in _TEXTURES:
            raise PtxError(f"{self.kernel.name}, {self.line}: textures and surfaces are not emulated: {opcode}")
        if base == "call":
            self._call(rest, guard, at)
            return
        try:
            args = tuple(self._operand(o) for o in operands(rest))
        except PtxError as e:
            raise self._misread(at, str(e)) from None
        if Operand("special", RESERVED) in args:
            self._declare(Variable(RESERVED, "shared", 16, RESERVED_BYTES))
        if base == "ret" and self.inline_depth:
            self._jump_to_return(guard)
            return
        if base == "ret" and self.function is not None:
            opcode = "return"  # to the caller; ret ends a thread
        elif base in ("bra", "brx"):
            self._branch(str(args[base == "brx"].value), reversed(self.scopes))
        elif opcode.startswith(("ld.param", "st.param")) and (
            self.inline_depth or self.function is not None or base == "st" or _is_result(args)
        ):
            opcode = opcode.replace(".param", ".local", 1)
        self._append(opcode, args, guard)

    def _append(self, opcode: str, args: tuple[Operand, ...], guard: Guard) -> None:
        self.kernel.code.append(Instruction(opcode, args, guard, self.line, self.inlined, place=self.place))

    def _branch(self, target: str, scopes: Iterable[_Scope]) -> None:
        """Note that the next instruction branches to a label or a table of one of these scopes."""
        self.branches.append((len(self.kernel.code), target, tuple(scopes)))

    def _jump_to_return(self, guard: Guard, opcode: str = "bra.uni") -> None:
        self._branch(_RETURN, self.scopes[:1])
        self._append(opcode, (), guard)

    def _check_other(self, name: str) -> None:
        """Raises PtxError if a name that is no register of the kernel should be one. It may be a variable's or a label."""
        if name in self.too_wide:
            raise PtxError(f"registers of 128 bits are not emulated, and {name} is one")
        if name.startswith("%"):
            raise PtxError(f"{name} is not declared")

    def _operand(self, o: Operand) -> Operand:
        """Returns an operand with unique names."""
        if o.kind == "mem" and o.value is not None:
            value = tuple(self._operand(part) for part in o.inner)
            return replace(o, base=self._operand(o.root), value=value)
        if o.base is not None:
            base = self._operand(o.base)
            return o if base is o.base else replace(o, base=base)
        if o.kind == "vector":
            return replace(o, value=tuple(self._operand(part) for part in o.inner))
        if o.kind not in ("reg", "not", "symbol"):
            return o
        name = self._renamed(o.name)
        if name not in self.kernel.registers:
            self._check_other(name)
        return o if name == o.value else replace(o, value=name)

    # -- calls -----------------------------------------------------------------------------------
    def _call(self, rest: str, guard: Guard, at: int) -> None:
        m = _CALL.match(rest)
        if not m:
            raise PtxError(f"PTX line {self.numbers[at]}: this call is not understood: {rest.strip()}")
        name = m[2]
        results, arguments = self._passed(m[1]), self._passed(m[3])
        if name in self.functions and name not in self.framed:
            self._inline(name, results + arguments, guard)
            return
        values = [Operand("vector", tuple(Operand("symbol", n) for n in names)) for names in (results, arguments)]
        if name.startswith("%"):
            opcode, values = "call", [*values, self._operand(operand(name))]
        elif name in self.framed:
            opcode = "call"
            self.direct_calls[len(self.kernel.code)] = name
        else:
            opcode = f"extern.{name}"
        self._append(opcode, tuple(values), guard)

    def _passed(self, text: str | None) -> list[str]:
        """Returns the unique names of a call's arguments or of its results."""
        names = [n.strip() for n in (text or "").split(",") if n.strip()]
        for name in names:
            if not re.match(r"[A-Za-z_$]", name):
                where = f"{self.kernel.name}, {self.line or 'unknown line'}"
                raise PtxError(f"{where}: a call hands over {name}: only variables in .param space are emulated")
        return [self._renamed(name) for name in names]

    def _inline(self, name: str, passed: Sequence[str], guard: Guard) -> None:
        """Parse a function at its call. Its results and parameters are the caller's variables `passed`."""
        text, inlined, place, around = self.functions[name], self.inlined, self.place, self.place_of_call
        parameters = [v.name for v in (*text.results, *text.params)]
        with self._body_scope() as scope:
            scope.names.update(zip(parameters, passed, strict=True))
            self.inline_depth += 1
            self.place_of_call = place
            if guard is not None:  # the other threads skip the function
                self._jump_to_return((guard[0], not guard[1]), "bra")
            with self._noted_body(name):
                self._body(*text.body)
            scope.labels[_RETURN] = len(self.kernel.code)
            self.inline_depth -= 1
        self.inlined, self.place, self.place_of_call = inlined, place, around


def _is_result(args: tuple[Operand, ...]) -> bool:
    """Returns whether a load is of a call's result, whose name ends with its scope; a kernel's parameter's does not."""
    return any(o.kind == "mem" and o.root.kind == "symbol" and "." in o.root.name for o in args)
