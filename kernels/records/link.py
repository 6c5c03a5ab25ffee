"""A row inside a link: whoever opens the link sees the row, though only the sender's store holds it."""

from __future__ import annotations

import base64
import binascii
import re
import zlib

from kernels.model.row import Json, Row
from kernels.records import rows
from kernels.records.jsontext import RowError, canonical, load

MAX_PACKED = 3_900  # characters of the parameter: two fit into the 8,000 that servers accept in a link
_ALPHABET = re.compile(r"[A-Za-z0-9_-]+")
# Fields that a page needs. If a link would be too long, the largest of the others are left out.
NEEDED = frozenset(
    "rung shape tiles engine mode median_ms p20_ms p80_ms n samples_ms parts_ms peak_bytes input_bytes output_bytes "
    "workspace_bytes flops error device driver cuda cublas date time commit kernels disturbed".split()
)


def pack(row: Row) -> str:
    """Returns the row as a parameter of a link; "" if even the needed fields are too long."""
    shortened = dict(row) | {"samples_ms": [float(f"{ms:.5g}") for ms in row["samples_ms"]]}
    others = sorted((name for name in shortened if name not in NEEDED), key=lambda n: len(canonical(shortened[n])))
    while True:
        packed = zlib.compress(canonical(shortened).encode(), 9)
        text = base64.urlsafe_b64encode(packed).decode().rstrip("=")
        if len(text) <= MAX_PACKED:
            return text
        if not others:
            return ""
        shortened.pop(others.pop())


def unpack(text: str) -> Json:
    """Returns the row of a link, checked like an import. RowError says why it is rejected."""
    if len(text) > MAX_PACKED:
        raise RowError(f"the result in the link is longer than {MAX_PACKED:,} characters")
    if not _ALPHABET.fullmatch(text):
        raise RowError("the result in the link is not one that this app wrote")
    try:
        packed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        inflate = zlib.decompressobj()
        text_bytes = inflate.decompress(packed, rows.MAX_ROW_BYTES)
    except (binascii.Error, zlib.error, ValueError):
        raise RowError("the result in the link is damaged: part of it may have been lost") from None
    if inflate.unconsumed_tail:
        raise RowError("the result in the link is too large")
    if not inflate.eof:
        raise RowError("the result in the link is damaged: part of it may have been lost")
    try:
        row = load(text_bytes.decode("utf-8"))
        rows.check(row)
    except UnicodeDecodeError:
        raise RowError("the result in the link is not text") from None
    except RowError as e:
        raise RowError(f"the result in the link is not taken: {e}") from None
    return row
