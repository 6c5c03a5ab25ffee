"""PTX in one archive a topic: kernels/conv/ptx.zip, and beside it ptx.json, which lists its kernels for a reader. The builds for
watching are in watch.zip and watch.json; `stem` says which of both.

An archive is the same to the byte whenever the same kernels are written: sorted names, fixed dates.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from kernels.model.row import Json

MEASURED, WATCHED = "ptx", "watch"
DATE = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip can hold


@dataclass(frozen=True)
class Compiled:
    """The PTX of one kernel, the digest of its source and options, and ptxas's report for sm_90 (`resources`:
    registers, shared_bytes, spill_bytes)."""

    ptx: str
    digest: str
    resources: Mapping[str, int]


def write(folder: Path, topic: str, nvrtc: str, kernels: Mapping[str, Compiled], stem: str = MEASURED) -> list[Path]:
    """Write the archive and the list of a topic's kernels, by name. Return the paths written."""
    archive, listing = _paths(folder, topic, stem)
    archive.parent.mkdir(parents=True, exist_ok=True)
    with ZipFile(archive, "w", ZIP_DEFLATED, compresslevel=9) as file:
        for name in sorted(kernels):
            info = ZipInfo(f"{name}.ptx", DATE)
            info.compress_type, info.external_attr = ZIP_DEFLATED, 0o644 << 16
            file.writestr(info, kernels[name].ptx)
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(_line(kernels[name]))}" for name in sorted(kernels))
    listing.write_text(f'{{"nvrtc": {json.dumps(nvrtc)}, "kernels": {{\n{lines}\n}}}}\n', encoding="utf-8")
    listed.cache_clear()
    read.cache_clear()
    return [archive, listing]


def _line(kernel: Compiled) -> Json:
    return {"digest": kernel.digest, **kernel.resources}


@lru_cache(maxsize=32)
def listed(folder: Path, topic: str, stem: str = MEASURED) -> dict[str, Json]:
    """Returns the digest and the resources of each kernel of a topic, by name; empty if nothing is precompiled."""
    try:
        return json.loads(_paths(folder, topic, stem)[1].read_text(encoding="utf-8"))["kernels"]
    except FileNotFoundError:
        return {}


def nvrtc(folder: Path, topic: str, stem: str = MEASURED) -> str:
    """Returns the version of NVRTC that compiled a topic's kernels."""
    return json.loads(_paths(folder, topic, stem)[1].read_text(encoding="utf-8"))["nvrtc"]


@lru_cache(maxsize=64)  # each launch reads its kernel's PTX
def read(folder: Path, topic: str, name: str, stem: str = MEASURED) -> str:
    """Returns the PTX of a listed kernel."""
    with ZipFile(_paths(folder, topic, stem)[0]) as file:
        return file.read(f"{name}.ptx").decode()


def _paths(folder: Path, topic: str, stem: str) -> tuple[Path, Path]:
    return folder / topic / f"{stem}.zip", folder / topic / f"{stem}.json"
