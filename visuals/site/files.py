"""The files of the site: compressed, and named by their content, so that a name never changes its meaning."""

from __future__ import annotations

import json
from gzip import compress
from hashlib import sha256
from pathlib import Path

FOLDER = "files"
NAME_CHARS = 16  # of the hash: two of ten thousand files share a name with a chance of 1 in 10^11


def name_of(content: bytes) -> str:
    return sha256(content).hexdigest()[:NAME_CHARS]


class Files:
    """The folder of compressed files, and the names of those in use."""

    def __init__(self, out: Path):
        self.folder = out / FOLDER
        self.folder.mkdir(parents=True, exist_ok=True)
        self.used: set[str] = set()

    def put(self, content: bytes | str) -> str:
        """Writes a file unless it is there, and returns its name. A file that is cut off is never under a name."""
        data = content.encode() if isinstance(content, str) else content
        name = name_of(data)
        path = self.folder / f"{name}.bin"  # no server takes it for a page in a compressed transfer
        if name not in self.used and not path.exists():
            part = path.with_suffix(".part")
            part.write_bytes(compress(data, 9, mtime=0))
            part.replace(path)
        self.used.add(name)
        return name

    def put_json(self, value: object) -> str:
        return self.put(plain(value))


class HeldFiles(Files):
    """Files in memory. `taken` returns those that are new since it was called last."""

    def __init__(self) -> None:
        self.used = set()
        self._new: dict[str, bytes] = {}

    def put(self, content: bytes | str) -> str:
        data = content.encode() if isinstance(content, str) else content
        name = name_of(data)
        if name not in self.used:
            self._new[name] = data
        self.used.add(name)
        return name

    def taken(self) -> dict[str, bytes]:
        new, self._new = self._new, {}
        return new


def plain(value: object) -> str:
    """Returns a value as JSON without needless space."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
