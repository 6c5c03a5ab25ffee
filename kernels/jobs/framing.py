"""Messages between the app and the process that runs kernels: a mark, the length, the bytes.

The mark tells a message from what a library printed in between.
"""

from __future__ import annotations

import struct
from typing import BinaryIO

MARK = b"\x89KT\n"
MOST_BYTES = 1 << 34


class Garbled(RuntimeError):
    """What came is no message."""


def send(file: BinaryIO, message: bytes) -> None:
    file.write(MARK + struct.pack(">Q", len(message)))
    file.write(message)
    file.flush()


def receive(file: BinaryIO) -> bytes:
    """The next message. EOFError where there will be none."""
    mark = _exactly(file, len(MARK))
    if mark != MARK:
        raise Garbled(f"it began with {mark!r}")
    (length,) = struct.unpack(">Q", _exactly(file, 8))
    if length > MOST_BYTES:
        raise Garbled(f"it claims {length:,} bytes")
    return _exactly(file, length)


def _exactly(file: BinaryIO, n: int) -> bytes:
    data = file.read(n)
    if len(data) < n:
        raise EOFError
    return data
