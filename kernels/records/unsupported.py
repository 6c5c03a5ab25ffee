"""What a vendor's library, asked on a named device, said that it does not support. That is no measurement and no row:
it lies beside a recording, in NAME.unsupported.json, so that a page can say it where there is no such device."""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from kernels.records.jsontext import RowError, canonical, load

FOLDER = Path(__file__).parent / "recordings"
ENDING = ".unsupported.json"
FIELDS = ("rung", "shape", "device", "library", "said", "date")
LIBRARIES = ("cudnn",)  # of an engine's conditions: with another version all is asked anew


class Sidecar:
    """The entries beside `out` of one device and its libraries, and the writing of new ones. `conditions`: those of
    the engine, asked only where a library is spoken of."""

    def __init__(self, out: Path, device: str, conditions: Callable[[], Mapping[str, Any]]):
        self.file, self.device = beside(out), device
        self._conditions, self._library = conditions, None
        self._all = read(self.file)

    @property
    def library(self) -> str:
        if self._library is None:
            told = self._conditions()
            self._library = " ".join(f"{name} {told.get(name)}" for name in LIBRARIES)
        return self._library

    def _find(self, rung: str, shape: Any) -> dict[str, Any] | None:
        for entry in self._all:
            if (entry["rung"], entry["device"], entry["shape"]) == (rung, self.device, shape.params()):
                return entry if entry["library"] == self.library else None
        return None

    def __contains__(self, asked: tuple[str, Any]) -> bool:
        return self._find(*asked) is not None

    def __getitem__(self, asked: tuple[str, Any]) -> str:
        """The library's words."""
        return self._find(*asked)["said"]

    def add(self, rung: str, shape: Any, said: str) -> None:
        entry = {
            "rung": rung, "shape": shape.params(), "device": self.device, "library": self.library, "said": said,
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        }  # fmt: skip
        key = rung, shape.params(), self.device
        self._all = [e for e in self._all if (e["rung"], e["shape"], e["device"]) != key] + [entry]
        fresh = Path(f"{self.file}.new")
        lines = ",\n".join(json.dumps(e) for e in self._all)
        fresh.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
        os.replace(fresh, self.file)


def beside(out: Path) -> Path:
    return out.with_suffix(ENDING)


def read(file: Path) -> list[dict[str, Any]]:
    """RowError where the file is not one that Sidecar wrote."""
    if not file.exists():
        return []
    told = load(file.read_text(encoding="utf-8"))
    if not (isinstance(told, list) and all(isinstance(e, dict) and set(FIELDS) <= e.keys() for e in told)):
        raise RowError(f"{file.name} must be a list of entries with {', '.join(FIELDS)}")
    return told


@cache
def _recorded() -> dict[tuple[str, str], dict[str, Any]]:
    return {
        (entry["rung"], canonical(entry["shape"])): entry
        for file in sorted(FOLDER.glob(f"*{ENDING}"))
        for entry in read(file)
    }


def recorded(rung: str, shape: Any) -> dict[str, Any] | None:
    """What a recording shipped with the app tells of this rung at exactly this shape; None where it ran or was
    not asked."""
    return _recorded().get((rung, canonical(shape.params())))


def sentence(rung: str, shape: Any) -> str:
    """Returns what `recorded` holds as a sentence with its device and date; "" without such a recording."""
    entry = recorded(rung, shape)
    return f"{entry['said']}, asked on an {entry['device']}, {entry['date']}" if entry else ""
