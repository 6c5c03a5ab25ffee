"""The files that a compilation may read. Their contents are part of the cache's key.

NVRTC does not list them. So every #include is looked up here, even where the preprocessor skips it, and in every folder,
not only in the one that the compiler chooses. The key changes with each file that could change the PTX.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from pathlib import Path

_SPLICE = re.compile(r"\\\r?\n")
_GAP = r"(?:\s|/\*.*?\*/)*"
_INCLUDE = re.compile(
    rf"(?:(?:\#|%:){_GAP}(?:include_next|include|import|embed)\b|__has_(?:include_next|include|embed){_GAP}\()"
    rf'{_GAP}(?:"([^"\n]+)"|<([^>\n]+)>)?',
    re.DOTALL,
)


def fingerprint(text: str, folder: Path, folders: Iterable[Path], fixed: Iterable[Path]) -> str | None:
    """Returns a digest of the files that `text`, a file in `folder`, may include from there and from `folders`.

    Headers in the `fixed` folders, CUDA's, count only by their folder and its date. None if an #include names its file
    by a macro, or if a file cannot be read: then it is unknown what the compiler reads.
    """
    search, fixed = tuple(folders), tuple(fixed)
    states: dict[str, str] = {}
    todo = [(text, folder)]
    try:
        while todo:
            text, folder = todo.pop()
            for quoted, angled in _INCLUDE.findall(_SPLICE.sub("", text)):
                if not quoted and not angled:
                    return None
                for base in (folder, *search):
                    path = os.path.normpath(os.path.join(base, quoted or angled))
                    if path not in states and os.path.isfile(path):
                        root = next((f for f in fixed if Path(path).is_relative_to(f)), None)
                        content = b"" if root else Path(path).read_bytes()
                        states[path] = _date(root) if root else hashlib.sha256(content).hexdigest()
                        todo.append((content.decode(errors="surrogateescape"), Path(path).parent))
    except OSError:
        return None
    files = "\0".join(f"{path}\0{state}" for path, state in sorted(states.items()))
    return hashlib.sha256(files.encode(errors="surrogateescape")).hexdigest()


def _date(folder: Path) -> str:
    """Returns when files of an installed folder were last added or removed. An upgrade changes these times."""
    folders = [folder, *(entry.path for entry in sorted(os.scandir(folder), key=lambda e: e.name) if entry.is_dir())]
    return " ".join(str(os.stat(path).st_mtime_ns) for path in folders)
