"""PTX opcodes as functions of their operands: arrays or NumPy scalars of one type."""

from __future__ import annotations

import operator

import numpy as np

from kernels.engines.emulator.operations.floats import in_double
from kernels.engines.emulator.operations.integers import brev, clz, div, popc, rem, shl, shr

# Operators: on scalars they are ten times as fast as NumPy's functions.
BINARY = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": div,
    "rem": rem,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "shl": shl,
    "shr": shr,
    "copysign": lambda sign, a: np.copysign(a, sign),
}
SHIFT = {"shl": operator.lshift, "shr": operator.rshift}  # by less than the bits of the type
UNARY = {
    "neg": np.negative,
    "abs": np.abs,
    "not": np.invert,
    "brev": brev,
    "popc": popc,
    "clz": clz,
    "rcp": in_double(np.reciprocal),
    "sqrt": in_double(np.sqrt),
    "rsqrt": in_double(lambda a: 1 / np.sqrt(a)),
    "ex2": in_double(np.exp2),
    "lg2": in_double(np.log2),
    "sin": in_double(np.sin),
    "cos": in_double(np.cos),
    "tanh": in_double(np.tanh),
}
MINMAX = {
    "min": (np.minimum, np.fmin, lambda a, b: -(-a - b)),
    "max": (np.maximum, np.fmax, operator.add),
}  # of integers, or with .NaN; of floats; of zeros: a positive one is greater than a negative one
COMPARE = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "lo": operator.lt,
    "ls": operator.le,
    "hi": operator.gt,
    "hs": operator.ge,
}
UNORDERED = {"equ": "eq", "neu": "ne", "ltu": "lt", "leu": "le", "gtu": "gt", "geu": "ge"}
ATOMIC = {
    "add": np.add,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "min": np.minimum,
    "max": np.maximum,
    "exch": lambda old, new: new,
    "inc": lambda old, top: np.where(old >= top, 0, old + 1).astype(old.dtype),
    "dec": lambda old, top: np.where((old == 0) | (old > top), top, old - 1).astype(old.dtype),
}


def compare(op: str, a, b):
    """Returns a setp comparison. Float comparisons are ordered (false for NaN) except the -u forms."""
    if op == "num":
        return ~(np.isnan(a) | np.isnan(b))
    if op == "nan":
        return np.isnan(a) | np.isnan(b)
    if op in UNORDERED:
        return COMPARE[UNORDERED[op]](a, b) | np.isnan(a) | np.isnan(b)
    result = COMPARE[op](a, b)
    if op == "ne" and np.issubdtype(a.dtype, np.floating):
        result = result & ~(np.isnan(a) | np.isnan(b))
    return result
