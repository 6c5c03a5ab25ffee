"""The files of recordings: those shipped with the app, and this user's own in the folder for data."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from threading import Lock

from kernels.i18n import tr
from kernels.model.row import Json
from kernels.records import rows
from kernels.records.folder import SHIPPED, own_recordings
from kernels.records.gpus import Gpu, slug
from kernels.records.jsontext import RowError, load

ENDING = ".jsonl"
GPU = "cuda"  # the engine of recordings that pages show


_reading = Lock()


def read() -> tuple[tuple[Gpu, Json], ...]:
    """Returns the GPU and the row of every recording, shipped ones first, in the order of the files.

    One thread reads them: a process whose first readers came together held them once for each.
    """
    with _reading:
        return _read()


@cache
def _read() -> tuple[tuple[Gpu, Json], ...]:
    return (*_shipped(), *((Gpu(row["device"], own=True), row) for row in _own()[0]))


@cache
def problems() -> tuple[str, ...]:
    """Returns a sentence for each own file with lines that are not rows of this app. They are left out."""
    return _own()[1]


def paths(ending: str) -> Iterator[tuple[Path, bool]]:
    """Yields each file of recordings or beside them with this ending, and whether it is an own one."""
    for folder, own in ((SHIPPED, False), (own_recordings(), True)):
        for path in sorted(folder.glob(f"*{ending}")):
            yield path, own


def path_of(gpu: Gpu) -> Path:
    """Returns the file that a recording of a GPU is in, by its first row, or would be in."""
    for path, own in paths(ENDING):
        with path.open(encoding="utf-8", errors="replace") as file:
            if own == gpu.own and f'"device":{json.dumps(gpu.device)}' in file.readline().replace('": ', '":'):
                return path
    return default_path(gpu.device) if gpu.own else SHIPPED / f"{gpu.key}{ENDING}"


def default_path(device: str) -> Path:
    """Returns the path of an own recording of a device, where the pages find it."""
    return own_recordings() / f"{slug(device)}{ENDING}"


def _shipped() -> Iterator[tuple[Gpu, Json]]:
    """Yields the rows of the shipped files. Equal names, texts and numbers of a file are one object: half the memory."""
    for path, own in paths(ENDING):
        if not own:
            lines = filter(str.strip, path.read_text(encoding="utf-8").split("\n"))
            shared = _Shared()
            for row in json.loads(f"[{','.join(lines)}]", parse_float=shared.number, object_pairs_hook=shared.object):
                yield Gpu(row["device"]), row


class _Shared:
    """Keeps one object of equal numbers and texts while a file is read."""

    def __init__(self) -> None:
        self._numbers: dict[str, float] = {}
        self._texts: dict[str, str] = {}

    def number(self, text: str) -> float:
        found = self._numbers.get(text)
        if found is None:
            found = self._numbers[text] = float(text)
        return found

    def object(self, pairs: list[tuple[str, object]]) -> Json:
        texts = self._texts
        return {name: texts.setdefault(value, value) if isinstance(value, str) else value for name, value in pairs}


@cache
def _own() -> tuple[tuple[Json, ...], tuple[str, ...]]:
    """Returns the rows of own files that pages can show, and what is wrong with the others. A recording may be going on: a
    last line that is cut short is no problem."""
    found, wrong = [], []
    for path, own in paths(ENDING):
        if own:
            good, problem = _rows_of(path)
            found += good
            wrong += [problem] * bool(problem)
    return tuple(found), tuple(wrong)


def _rows_of(path: Path) -> tuple[list[Json], str]:
    """Returns the rows of a GPU in a file, and a sentence on its first line that is no row, "" if all are."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return [], tr("{file} in the folder of your recordings cannot be read.", file=path.name)
    good, problem = [], ""
    for number, line in enumerate(lines, 1):
        try:
            row = load(line)
            rows.check(row)
        except RowError as error:
            cut_short = number == len(lines) and line.startswith("{") and not line.endswith("}")
            if line.strip() and not cut_short:
                problem = problem or tr(
                    "{file} in the folder of your recordings: line {n} is left out. {why}",
                    file=path.name,
                    n=number,
                    why=f"{error}.",
                )
            continue
        if row["engine"] == GPU:
            good.append(row)
    return good, problem


def forget() -> None:
    """Forgets the files, so that the next look reads them anew."""
    for function in (_read, problems, _own):
        function.cache_clear()
