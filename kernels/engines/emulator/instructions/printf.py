"""C's printf formats: parses a format string and formats values by it."""

from __future__ import annotations

import math
import re
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

LONG = 4 if sys.platform == "win32" else 8  # bytes of a C long where the kernel was compiled
_SIZES = {b"": 4, b"hh": 4, b"h": 4, b"l": LONG, b"ll": 8, b"j": 8, b"z": 8, b"t": 8}
_SPEC = re.compile(rb"%([-+ #0]*)(\*|\d+)?(?:\.(\*|\d*))?(hh|h|ll|l|j|z|t|L)?([diuoxXcspeEfFgGaA%])")


@dataclass(frozen=True)
class Spec:
    """One conversion, such as %-8.3f. `width`, `precision`: "*" for one that is an argument."""

    flags: str
    width: int | Literal["*"] | None
    precision: int | Literal["*"] | None
    length: bytes
    kind: str

    @property
    def sizes(self) -> list[int]:
        """The bytes of each argument that this conversion takes: those of *, then the value."""
        stars = [4] * [self.width, self.precision].count("*")
        if self.kind in "diuoxX":
            return [*stars, _SIZES[self.length]]
        return [*stars, 4 if self.kind == "c" else 8]

    def text(self, args: Sequence[int], string: bytes = b"") -> bytes:
        """Returns the value as C formats it. `args`: the arguments' bits, one for each of `sizes`; `string`: the text
        that %s points at."""
        stars = [_signed(bits, 4) for bits in args[:-1]]
        flags = self.flags
        width = self.width if isinstance(self.width, int) else stars.pop(0) if self.width else 0
        precision = stars.pop(0) if isinstance(self.precision, str) else self.precision
        if width < 0:
            flags, width = flags + "-", -width
        if precision is not None and precision < 0:
            precision = None
        sign, body, zeros = self._body(args[-1], string, flags, precision)
        if "-" in flags:
            return (sign + body).ljust(width)
        if "0" in flags and zeros:
            return sign + body.rjust(width - len(sign), b"0")
        return (sign + body).rjust(width)

    def _body(self, bits: int, string: bytes, flags: str, precision: int | None) -> tuple[bytes, bytes, bool]:
        """Returns sign and prefix, the rest, and whether the flag 0 fills the gap between them."""
        if self.kind == "s":
            return b"", string[:precision], False
        if self.kind == "c":
            return b"", bytes([bits & 0xFF]), False
        if self.kind == "p":
            return b"", f"{bits:#x}".encode() if bits else b"(nil)", False
        if self.kind in "diuoxX":
            return self._integer(bits, flags, precision)
        return self._float(struct.unpack("<d", struct.pack("<Q", bits))[0], flags, precision)

    def _integer(self, bits: int, flags: str, precision: int | None) -> tuple[bytes, bytes, bool]:
        size = {b"hh": 1, b"h": 2}.get(self.length, _SIZES[self.length])
        value = _signed(bits, size) if self.kind in "di" else bits & (1 << 8 * size) - 1
        digits = format(abs(value), self.kind if self.kind in "oxX" else "d")
        if precision is not None:
            digits = "" if precision == value == 0 else digits.zfill(precision)
        sign = _sign(value < 0, flags) if self.kind in "di" else ""
        if "#" in flags and self.kind in "xX" and value:
            sign = "0" + self.kind
        if "#" in flags and self.kind == "o" and not digits.startswith("0"):
            digits = "0" + digits
        return sign.encode(), digits.encode(), precision is None

    def _float(self, value: float, flags: str, precision: int | None) -> tuple[bytes, bytes, bool]:
        sign, value = _sign(math.copysign(1, value) < 0, flags), abs(value)
        if not math.isfinite(value):
            text = "inf" if math.isinf(value) else "nan"
            return sign.encode(), (text.upper() if self.kind.isupper() else text).encode(), False
        if self.kind in "aA":
            body = _hexadecimal(value, precision, "#" in flags)
            sign, body = sign + "0x", body[2:]
            if self.kind == "A":
                sign, body = sign.upper(), body.upper()
        else:
            body = f"%{'#' if '#' in flags else ''}.{6 if precision is None else precision}{self.kind}" % value
        return sign.encode(), body.encode(), True


def parts(text: bytes) -> list[bytes | Spec]:
    """Returns a format string as plain text and conversions, in order. A conversion that C does not define stays text."""
    out: list[bytes | Spec] = []
    at = 0
    for m in _SPEC.finditer(text):
        flags, width, precision, length, kind = m.groups()
        if (kind == b"%" and m[0] != b"%%") or length == b"L":
            continue
        out.append(text[at : m.start()])
        at = m.end()
        if kind == b"%":
            out.append(b"%")
        else:
            out.append(Spec(flags.decode(), _extent(width), _extent(precision), length or b"", kind.decode()))
    return [part for part in (*out, text[at:]) if part]


def _extent(text: bytes | None) -> int | Literal["*"] | None:
    """Returns a width or precision: a number, "*" or None; a precision of only a dot is zero."""
    return text if text is None else "*" if text == b"*" else int(text or 0)


def _signed(bits: int, size: int) -> int:
    bits &= (1 << 8 * size) - 1
    return bits - (1 << 8 * size) if bits >> 8 * size - 1 else bits


def _sign(negative: bool, flags: str) -> str:
    return "-" if negative else "+" if "+" in flags else " " if " " in flags else ""


def _hexadecimal(value: float, precision: int | None, point: bool) -> str:
    """Returns a number that is not negative as %a writes it: 0x1.8p+0."""
    whole, _, exponent = value.hex().partition("p")
    lead, _, digits = whole[2:].partition(".")
    digits = digits.ljust(13, "0")
    if precision is None:
        digits = digits.rstrip("0") if value else ""
    elif precision < 13:
        mantissa, cut = int(lead + digits, 16), 4 * (13 - precision)
        rest, half = mantissa & (1 << cut) - 1, 1 << cut - 1
        mantissa >>= cut
        mantissa += rest > half or (rest == half and mantissa & 1)
        lead, digits = f"{mantissa >> 4 * precision:x}", f"{mantissa & (1 << 4 * precision) - 1:x}"
        digits = digits.zfill(precision) if precision else ""
    else:
        digits = digits.ljust(precision, "0")
    return f"0x{lead}{'.' if digits or point else ''}{digits}p{exponent}"
