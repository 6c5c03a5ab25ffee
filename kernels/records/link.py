"""A row that travels in a link: a slide shows the evidence though the row stands in nobody's store but mine."""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from collections.abc import Mapping
from typing import Any

from kernels.records import rows
from kernels.records.jsontext import RowError, canonical, load

MOST_PACKED = 3_900  # characters of the parameter: two of them fit into the 8,000 that servers take of a link
_LETTERS = re.compile(r"[A-Za-z0-9_-]+")
# Fields a page needs; of the others the largest stay behind where a link would be too long.
KEPT = frozenset(
    "rung shape tiles engine mode median_ms p20_ms p80_ms n samples_ms parts_ms peak_bytes input_bytes output_bytes "
    "workspace_bytes flops error device driver cuda cublas date time commit kernels".split()
)


def pack(row: Mapping[str, Any]) -> str:
    """The row as a parameter of a link; "" where even the needed fields are too long for one."""
    slim = dict(row) | {"samples_ms": [float(f"{ms:.5g}") for ms in row["samples_ms"]]}
    others = sorted((name for name in slim if name not in KEPT), key=lambda n: len(canonical(slim[n])))
    while True:
        packed = zlib.compress(canonical(slim).encode(), 9)
        text = base64.urlsafe_b64encode(packed).decode().rstrip("=")
        if len(text) <= MOST_PACKED:
            return text
        if not others:
            return ""
        slim.pop(others.pop())


def unpack(text: str) -> dict[str, Any]:
    """The row of a link, checked as an import is. RowError says why it is not taken."""
    if len(text) > MOST_PACKED:
        raise RowError(f"the result in the link is longer than {MOST_PACKED:,} characters")
    if not _LETTERS.fullmatch(text):
        raise RowError("the result in the link is not one that this app wrote")
    try:
        packed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        inflate = zlib.decompressobj()
        plain = inflate.decompress(packed, rows.MOST_ROW_BYTES)
    except (binascii.Error, zlib.error, ValueError):
        raise RowError("the result in the link is damaged: part of it may have been lost") from None
    if inflate.unconsumed_tail:
        raise RowError("the result in the link is too large")
    if not inflate.eof:
        raise RowError("the result in the link is damaged: part of it may have been lost")
    try:
        row = load(plain.decode("utf-8"))
        rows.check(row)
    except UnicodeDecodeError:
        raise RowError("the result in the link is not text") from None
    except RowError as e:
        raise RowError(f"the result in the link is not taken: {e}") from None
    return row
