"""A kernel's arguments: parsed from text, and their arrays filled."""

from __future__ import annotations

import math
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kernels.model import numerals
from kernels.model.program import RuleError

NAMES = {
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
    "i8": "int8",
    "u8": "uint8",
    "i16": "int16",
    "u16": "uint16",
    "i32": "int32",
    "u32": "uint32",
    "i64": "int64",
    "u64": "uint64",
}
DTYPES: dict[str, np.dtype] = {}
for _name, _dtype in NAMES.items():
    with suppress(TypeError):  # NumPy has no bfloat16 without ml_dtypes
        DTYPES[_name] = np.dtype(_dtype)
FILLS = ("random", "zeros", "ones", "arange", "empty")
FORMS = """ARG is one of
  TYPE:VALUE          a number: i32:64, f32:0.5
  TYPE:EXTENTS:FILL   an array, for a pointer: f32:64x64:random, i32:1000:0..49
  FILE.npy            an array (or number) with the file's values, type and shape
  struct{ARG,...}     a struct by value, aligned as in C; an array in it is a pointer.
                      struct16{...} is aligned to 16 bytes, as float4
TYPE is one of f16 bf16 f32 f64 i8 u8 i16 u16 i32 u32 i64 u64.
FILL is one of random (standard normal; whole numbers 0 to 99), zeros, ones, arange,
empty (the kernel must write an element before it reads it),
LOW..HIGH (random from LOW to HIGH, both included for whole numbers; -inf..-inf).
FILL+N passes a pointer to element N of the array: f32:64:random+1."""
MAX_EXTENTS = 8
MAX_DEPTH = 8  # of structs in structs
_STRUCT = re.compile(r"struct([0-9]*)\{(.*)\}", re.DOTALL)


@dataclass(frozen=True)
class Array:
    """An array to be created: `fill` is one of FILLS, (low, high), or the path of an .npy file. The kernel gets a pointer to
    element `first`."""

    shape: tuple[int, ...]
    dtype: np.dtype
    fill: str | tuple[float, float] | Path
    first: int = 0

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def values(self, rng: np.random.Generator) -> np.ndarray:
        """Returns the filled array. RuleError if its file has changed."""
        if isinstance(self.fill, Path):
            array = _mapped(self.fill)
            return np.array(array, array.dtype.newbyteorder("="), order="C").view(self.dtype).reshape(self.shape)
        whole = self.dtype.kind in "iu"
        if self.fill == "random":
            if whole:
                return rng.integers(0, min(100, np.iinfo(self.dtype).max), self.shape).astype(self.dtype)
            return rng.standard_normal(self.shape).astype(self.dtype)
        if isinstance(self.fill, tuple):
            low, high = self.fill
            if low == high:
                return np.full(self.shape, low, self.dtype)
            if whole:
                return rng.integers(int(low), int(high), self.shape, self.dtype, endpoint=True)
            return rng.uniform(low, high, self.shape).astype(self.dtype)
        if self.fill == "arange":
            return np.arange(math.prod(self.shape)).astype(self.dtype).reshape(self.shape)
        return (np.ones if self.fill == "ones" else np.zeros)(self.shape, self.dtype)


@dataclass(frozen=True)
class Struct:
    """Members in C's order. `align`: the struct's explicit alignment in bytes, 1 for that of its members."""

    members: tuple[Argument, ...]
    align: int


Argument = np.generic | Array | Struct


def parse(text: str, depth: int = 0) -> Argument:
    """Parse an argument's text; arrays are not filled. RuleError names the rule and the text."""
    text = text.strip()
    if depth > MAX_DEPTH:
        raise RuleError(f"structs are at most {MAX_DEPTH} deep; got {text!r} inside")
    if match := _STRUCT.fullmatch(text):
        return _struct(text, match[1], match[2], depth)
    if text.endswith(".npy"):
        return _of_file(Path(text))
    type_, _, rest = text.partition(":")
    if type_ not in DTYPES or not rest:
        raise RuleError(
            "an argument is TYPE:VALUE, TYPE:EXTENTS:FILL, FILE.npy or struct{ARG,...}, "
            f"TYPE among {', '.join(DTYPES)}; got {text!r}"
        )
    extents, colon, fill = rest.partition(":")
    if not colon:
        return _number(type_, rest)
    counts = [numerals.count(part) for part in extents.split("x") if part]
    sizes = [count for count in counts if count is not None]
    if not 1 <= len(sizes) <= MAX_EXTENTS or len(sizes) < len(counts):
        raise RuleError(
            f"an array is TYPE:EXTENTS:FILL, EXTENTS 1 to {MAX_EXTENTS} positive whole numbers with x between them; "
            f"got {text!r}"
        )
    before, first = _pointer(fill)
    if first >= math.prod(sizes):
        raise RuleError(f"FILL+N points to element N of an array of {math.prod(sizes):,}; got {text!r}")
    return Array(tuple(sizes), DTYPES[type_], _fill(type_, before, text), first)


def _pointer(fill: str) -> tuple[str, int]:
    """Returns the two parts of FILL+N; N is 0 without it. The plus of a number such as 1e+5 belongs to the number."""
    before, plus, first = fill.rpartition("+")
    if not plus or not first.isdecimal() or re.fullmatch(r".*[0-9.][eE]", before):
        return fill, 0
    return before, int(first)


def _number(type_: str, text: str) -> np.generic:
    """Returns a value of the type. RuleError if the type cannot represent it."""
    dtype = DTYPES[type_]
    if dtype.kind in "iu":
        value = numerals.whole(text)
        if value is not None and np.iinfo(dtype).min <= value <= np.iinfo(dtype).max:
            return dtype.type(value)
    elif (value := numerals.real(text)) is not None:
        with np.errstate(over="ignore"):
            number = dtype.type(value)
        if math.isinf(float(number)) == math.isinf(value):
            return number
    raise RuleError(f"{text!r} is no value of {type_}")


def _fill(type_: str, fill: str, text: str) -> str | tuple[float, float]:
    if fill in FILLS:
        return fill
    low, dots, high = fill.partition("..")
    if not dots:
        raise RuleError(f"an array is TYPE:EXTENTS:FILL, FILL among {', '.join(FILLS)}, LOW..HIGH; got {text!r}")
    python = int if DTYPES[type_].kind in "iu" else float
    first, last = (python(_number(type_, part)) for part in (low, high))
    if not (first == last or (first < last and math.isfinite(last - first))):
        raise RuleError(f"of LOW..HIGH both are finite, or equal, and LOW is at most HIGH; got {fill!r}")
    return first, last


def _struct(text: str, align: str, inside: str, depth: int) -> Struct:
    size = numerals.count(align or "1")
    if size not in (1, 2, 4, 8, 16, 32, 64, 128):
        raise RuleError(f"a struct is aligned to 1, 2, 4 ... 128 bytes; got {text!r}")
    members, opened, start = [], 0, 0
    for at, c in enumerate(f"{inside},"):
        opened += (c == "{") - (c == "}")
        if c == "," and opened <= 0:
            members.append(inside[start:at])
            start = at + 1
    if opened or not all(member.strip() for member in members):
        raise RuleError(f"a struct is struct{{ARG,ARG,...}}; got {text!r}")
    return Struct(tuple(parse(member, depth + 1) for member in members), size)


# -- files ---------------------------------------------------------------------------------------
def _mapped(path: Path) -> np.ndarray:
    """Returns the array of an .npy file, memory-mapped. RuleError if it is no .npy file."""
    try:
        return np.lib.format.open_memmap(path, mode="r")
    except OSError:
        raise
    except Exception as e:  # a damaged header fails in many ways
        raise RuleError(f"{path} is no array of numbers in NumPy's .npy format: {e}") from None


def _of_file(path: Path) -> Argument:
    """Returns an array with the values of a file, or a number if the file's array has no shape."""
    array = _mapped(path)
    # NumPy writes bfloat16 as two bytes without a type.
    dtype = np.dtype(DTYPES["bf16"]) if array.dtype == "V2" else array.dtype.newbyteorder("=")
    if dtype not in (*DTYPES.values(), np.bool_, np.complex64, np.complex128):
        raise RuleError(f"{path} holds {array.dtype}; an argument is {', '.join(DTYPES)}, bool or complex")
    if not array.size:
        raise RuleError(f"{path} holds no element: its shape is {array.shape}")
    argument = Array(array.shape, dtype, path)
    return argument if array.shape else argument.values(np.random.default_rng(0)).reshape(1)[0]
