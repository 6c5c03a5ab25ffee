"""Shapes that a vendor's library reported as unsupported on a named device. These are not measurements: they are stored
beside a recording, in NAME.unsupported.json, so that a page can show them without such a device."""

from __future__ import annotations

import datetime
import json
import os
import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from kernels.i18n import mark, tr
from kernels.model.row import Json, Row
from kernels.model.shape import Shape
from kernels.records import files, shown
from kernels.records.gpus import Gpu
from kernels.records.jsontext import RowError, canonical, load

ENDING = ".unsupported.json"
FIELDS = ("rung", "shape", "device", "library", "said", "date")
# A library's message -> the same for readers.
KNOWN: Mapping[re.Pattern[str], str] = {
    re.compile(
        r"PyTorch \S+ does not support (?:the backward pass of )?\w+ for this shape "
        r"\(Expected query, key and value to all be of dtype: \{Half, BFloat16\}\..*\)"
    ): mark("PyTorch runs this kernel in FP16 and BF16 only"),
    re.compile(
        r"PyTorch \S+ does not support \w+ for this shape \(Flash Attention does not support non-null attn_mask\.\)"
    ): mark("PyTorch runs this kernel without a mask only"),
    re.compile(r"PyTorch \S+ does not support \w+ for this shape \(.* to have the same num_heads\..*\)"): mark(
        "PyTorch runs this kernel only if each head has its own keys and values"
    ),
    re.compile(
        r"(?P<library>cuDNN \S+) does not support (?P<algorithm>\w+) for this shape( \(CUDNN_STATUS_NOT_SUPPORTED\w*\))?"
    ): mark("{library} does not support {algorithm} for this shape"),
}
LIBRARIES = ("cudnn",)  # fields of an engine's conditions: entries of another version do not count


class UnsupportedFile:
    """The file of entries beside the recording `out`, for one device and its libraries. `conditions`: returns those of
    the engine; called only when a library's version is needed."""

    def __init__(self, out: Path, device: str, conditions: Callable[[], Row]):
        self.file, self.device = path_beside(out), device
        self._conditions, self._library = conditions, None
        self._entries = read(self.file)

    @property
    def library(self) -> str:
        if self._library is None:
            conditions = self._conditions()
            self._library = " ".join(f"{name} {conditions.get(name)}" for name in LIBRARIES)
        return self._library

    def _find(self, rung: str, shape: Shape) -> Json | None:
        for entry in self._entries:
            if (entry["rung"], entry["device"], entry["shape"]) == (rung, self.device, shape.params()):
                return entry if entry["library"] == self.library else None
        return None

    def __contains__(self, key: tuple[str, Shape]) -> bool:
        return self._find(*key) is not None

    def __getitem__(self, key: tuple[str, Shape]) -> str:
        """Returns the library's message."""
        entry = self._find(*key)
        if entry is None:
            raise KeyError(key)
        return entry["said"]

    def add(self, rung: str, shape: Shape, message: str) -> None:
        entry = {
            "rung": rung,
            "shape": shape.params(),
            "device": self.device,
            "library": self.library,
            "said": message,
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        }
        key = rung, shape.params(), self.device
        self._entries = [e for e in self._entries if (e["rung"], e["shape"], e["device"]) != key] + [entry]
        temporary = Path(f"{self.file}.new")
        lines = ",\n".join(json.dumps(e) for e in self._entries)
        temporary.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
        os.replace(temporary, self.file)


def path_beside(out: Path) -> Path:
    return out.with_suffix(ENDING)


def read(file: Path) -> list[Json]:
    """Returns the entries of a file, none if it does not exist. RowError if Sidecar did not write it."""
    if not file.exists():
        return []
    entries = load(file.read_text(encoding="utf-8"))
    if not (isinstance(entries, list) and all(isinstance(e, dict) and set(FIELDS) <= e.keys() for e in entries)):
        raise RowError(f"{file.name} must be a list of entries with {', '.join(FIELDS)}")
    return entries


@cache
def _recorded() -> dict[Gpu, dict[tuple[str, str], Json]]:
    """Returns the entries of all files by GPU, then by rung and shape."""
    found: dict[Gpu, dict[tuple[str, str], Json]] = defaultdict(dict)
    for file, own in files.paths(ENDING):
        try:
            entries = read(file)
        except (OSError, ValueError):  # a file of this user that something else wrote
            if not own:
                raise
            continue
        for entry in entries:
            found[Gpu(entry["device"], own)][entry["rung"], canonical(entry["shape"])] = entry
    return found


def recorded(rung: str, shape: Shape, gpu: Gpu | None = None) -> Json | None:
    """Returns the entry of this rung at exactly this shape, on the GPU that its ladder is shown from, or on the GPU
    given; None if it ran or was not tried there. A ladder without recordings has the entries of the first GPU."""
    by_gpu = _recorded()
    gpu = gpu or shown(rung.partition("/")[0]) or next(iter(by_gpu), None)
    return None if gpu is None else by_gpu.get(gpu, {}).get((rung, canonical(shape.params())))


def forget() -> None:
    """Forgets the files, so that the next look reads them anew."""
    _recorded.cache_clear()


def plain(said: str) -> str:
    """Returns a library's message as a clause for readers. A message that is not known stays as it is."""
    for pattern, message in KNOWN.items():
        if found := pattern.fullmatch(said):
            return tr(message, **found.groupdict())
    return said


def sentence(rung: str, shape: Shape) -> str:
    """Returns what `recorded` holds as a clause with its device and date; "" without such a recording."""
    if not (entry := recorded(rung, shape)):
        return ""
    return tr(
        "{reason} (tried on {device}, {date})", reason=plain(entry["said"]), device=entry["device"], date=entry["date"]
    )
