"""Files that keep compiled code from one process to the next. Without a place for them it is compiled again."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path


def cache_folder(kind: str) -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or (
        os.environ.get("LOCALAPPDATA") if sys.platform == "win32" else Path.home() / ".cache"
    )
    return Path(base or tempfile.gettempdir()) / "kernel-theatre" / kind


def keep(path: Path, data: bytes) -> None:
    """Write a file whole or not at all, so that two processes can compile the same code at once."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(data)
        os.replace(file.name, path)
    except OSError:
        pass
