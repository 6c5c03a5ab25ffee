"""Framing of messages between the app and the process that runs kernels: a mark, the length, the bytes.

The mark distinguishes a message from output that a library printed in between.
"""

from __future__ import annotations

import struct
from typing import IO

MARK = b"\x89KT\n"
MAX_BYTES = 1 << 34


class ProtocolError(RuntimeError):
    """The bytes received are not a message."""


def send(file: IO[bytes], message: bytes) -> None:
    file.write(MARK + struct.pack(">Q", len(message)))
    file.write(message)
    file.flush()


def receive(file: IO[bytes]) -> bytes:
    """Read the next message. EOFError at the end of the stream."""
    mark = _exactly(file, len(MARK))
    if mark != MARK:
        raise ProtocolError(f"it began with {mark!r}")
    (length,) = struct.unpack(">Q", _exactly(file, 8))
    if length > MAX_BYTES:
        raise ProtocolError(f"it claims {length:,} bytes")
    return _exactly(file, length)


def _exactly(file: IO[bytes], n: int) -> bytes:
    data = file.read(n)
    if len(data) < n:
        raise EOFError
    return data
