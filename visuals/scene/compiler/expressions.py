"""Expressions in the sentences of a view: Python's, on one number a thread. They are parsed once.

Functions: exp, log, sqrt, abs, isnan, isinf, isfinite, where, spacing (from an FP32 number to the next); min, max, sum, any and distinct
(how many different ones) over threads; wavefront(word), in which wavefront the banks deliver a word of shared memory; count(x), how many
threads have read x in the step; received(m), what each thread has got from another lane's m; at(m, 3), the m of thread 3.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np

from visuals.scene.requests import BANKS

FIELD = re.compile(r"\{([^{}]+)\}")


@dataclass(frozen=True)
class Value:
    """A number, or one a thread. `known`: bool, which threads have one; None for all."""

    of: np.ndarray
    known: np.ndarray | None = None

    def known_by(self, threads: int) -> np.ndarray:
        """Returns bool[threads]: which have a number."""
        return np.ones(threads, bool) if self.known is None else self.known

    def at(self, thread: int) -> float:
        """Returns the number of a thread, NaN if it has none."""
        if self.known is not None and not self.known[thread]:
            return float("nan")
        return float(self.of if np.ndim(self.of) == 0 else self.of[thread])


class Names(Protocol):
    """Where an expression is evaluated. Each raises KeyError for a name that is not there."""

    among: np.ndarray  # bool: the threads that min, max, sum and any are over

    def value(self, name: str) -> Value: ...

    def element(self, name: str, index: Value) -> Value: ...

    def received(self, name: str) -> Value: ...

    def count(self, name: str) -> int: ...


Code = Callable[[Names], Value]
_OPERATORS: Mapping[type[ast.AST], Callable[..., np.ndarray]] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.Div: np.true_divide,
    ast.FloorDiv: np.floor_divide,
    ast.Mod: np.mod,
    ast.BitXor: np.bitwise_xor,
    ast.Pow: np.power,
    ast.Lt: np.less,
    ast.LtE: np.less_equal,
    ast.Gt: np.greater,
    ast.GtE: np.greater_equal,
    ast.Eq: np.equal,
    ast.NotEq: np.not_equal,
    ast.USub: np.negative,
    ast.Not: np.logical_not,
    ast.And: lambda *parts: np.logical_and.reduce(np.broadcast_arrays(*parts)),
    ast.Or: lambda *parts: np.logical_or.reduce(np.broadcast_arrays(*parts)),
}
_FUNCTIONS = {
    "exp": lambda a: np.exp(np.asarray(a, np.float32)),
    "log": np.log,
    "sqrt": np.sqrt,
    "abs": np.abs,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "isfinite": np.isfinite,
    "where": np.where,
    "spacing": lambda a: np.spacing(np.asarray(a, np.float32)),
}
_OVER_THREADS = {
    "min": np.min,
    "max": np.fmax.reduce,
    "sum": np.sum,
    "any": np.any,
    "distinct": lambda a: len(np.unique(a)),
}


class ExpressionError(ValueError):
    """Text that is no expression."""


@dataclass(frozen=True)
class Expression:
    text: str
    names: tuple[str, ...]
    code: Code

    def value(self, names: Names) -> Value:
        with np.errstate(all="ignore"):
            return self.code(names)


@lru_cache(maxsize=4096)
def parse(text: str) -> Expression:
    """Returns a text as an expression. ExpressionError if it is none."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise ExpressionError(f"{text!r}: {error.msg}") from None
    return Expression(text, tuple(dict.fromkeys(_names(tree))), _code(tree))


@lru_cache(maxsize=4096)
def template(text: str) -> tuple[str, tuple[Expression, ...]]:
    """Returns a sentence with numbered fields, and what fills them."""
    fields = list(dict.fromkeys(FIELD.findall(text)))
    return FIELD.sub(lambda m: f"{{{fields.index(m[1])}}}", text), tuple(parse(field) for field in fields)


def _name(node: ast.AST) -> str:
    """Returns a name with its members and constant elements, "running.m" or "sum[0][1]"; "" if a node is no name."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (outer := _name(node.value)):
        return f"{outer}.{node.attr}"
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and (outer := _name(node.value)):
        return f"{outer}[{node.slice.value}]"
    return ""


def _names(node: ast.AST) -> Iterator[str]:
    if name := _name(node):
        yield name
        return
    if isinstance(node, ast.Call):
        for argument in node.args:
            yield from _names(argument)
        return
    for child in ast.iter_child_nodes(node):
        yield from _names(child)


def _code(node: ast.AST) -> Code:
    if name := _name(node):
        return _number(float("inf")) if name == "inf" else lambda names: names.value(name)
    match node:
        case ast.Constant(value=int() | float() as number):
            return _number(number)
        case ast.Subscript() if outer := _name(node.value):
            index = _code(node.slice)
            return lambda names: names.element(outer, index(names))
        case ast.Call(func=ast.Name(id=function)):
            return _call(function, node.args)
        case ast.BinOp(left=left, op=op, right=right) | ast.Compare(left=left, ops=[op], comparators=[right]):
            operands = [left, right]
        case ast.UnaryOp(op=op, operand=operand):
            operands = [operand]
        case ast.BoolOp(op=op, values=operands):
            pass
        case _:
            op, operands = node, []
    if type(op) in _OPERATORS:
        return _of_arrays(_OPERATORS[type(op)], *operands)
    raise ExpressionError(f"{ast.unparse(node)!r} is not in the language of views")


def _number(number: float) -> Code:
    value = Value(np.asarray(number))
    return lambda names: value


def _of_arrays(function: Callable[..., np.ndarray], *nodes: ast.AST) -> Code:
    parts = [_code(node) for node in nodes]

    def code(names: Names) -> Value:
        values = [part(names) for part in parts]
        known = [value.known for value in values if value.known is not None]
        return Value(function(*(value.of for value in values)), np.logical_and.reduce(known) if known else None)

    return code


def _call(function: str, arguments: list[ast.expr]) -> Code:
    if function in _FUNCTIONS:
        return _of_arrays(_FUNCTIONS[function], *arguments)
    if function in _OVER_THREADS and len(arguments) == 1:
        return _over_threads(_OVER_THREADS[function], _code(arguments[0]))
    match function, arguments:
        case "wavefront", [inner]:
            return _wavefront(_code(inner))
        case "at", [inner, ast.Constant(value=int() as thread)]:
            value = _code(inner)
            return lambda names: Value(np.asarray(value(names).at(thread)))
    name = _name(arguments[0]) if len(arguments) == 1 else ""
    if name and function == "received":
        return lambda names: names.received(name)
    if name and function == "count":
        return lambda names: Value(np.asarray(names.count(name)))
    raise ExpressionError(f"{function}(...) is not in the language of views")


def _wavefront(inner: Code) -> Code:
    def code(names: Names) -> Value:
        word = inner(names)
        threads = np.flatnonzero(names.among & word.known_by(len(names.among)))
        keys = np.stack([threads // BANKS, word.of[threads] % BANKS, word.of[threads]])  # as many lanes as banks
        found, which = np.unique(keys, axis=1, return_inverse=True)
        _, first, of_bank = np.unique(found[:2], axis=1, return_index=True, return_inverse=True)
        out = np.zeros(len(names.among), int)
        out[threads] = (np.arange(found.shape[1]) - first[of_bank.ravel()])[which.ravel()]
        return Value(out, word.known)

    return code


def _over_threads(reduce: Callable[[np.ndarray], np.ndarray], inner: Code) -> Code:
    def code(names: Names) -> Value:
        value = inner(names)
        if np.ndim(value.of) == 0:
            return value
        chosen = value.of[names.among if value.known is None else names.among & value.known]
        return Value(np.asarray(reduce(chosen) if chosen.size else np.nan))

    return code
