"""The CUDA C++ sources: one idea a file, and those that kernels.fusion.codegen generates from their names alone."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

from kernels.fusion import codegen
from kernels.fusion.half import codegen as half_codegen
from kernels.model.tokens import tokens

ROOT = Path(__file__).parent
SHARED = "cuda"
GENERATED = (*codegen.PREFIXES, half_codegen.PREFIX)  # how the name of a source begins that has no file
HOPPER_HEADER = "cuda/hopper.cuh"
CLUSTER_HEADER = "cuda/cluster.cuh"
GRID_HEADER = "cuda/grid.cuh"
MAX_CACHED = 1024  # texts: more than there are files, fewer than there are chains
_INCLUDE = re.compile(r'^#include "([\w./]+)"$', re.MULTILINE)


def file(path: str) -> Path:
    """Returns the file of a source: kernels/conv/cuda/02_im2col.cu for "conv/02_im2col.cu". Headers that several topics
    share are in kernels/cuda: "cuda/async.cuh"."""
    topic, _, name = path.partition("/")
    return ROOT / topic / name if topic == SHARED else ROOT / topic / "cuda" / name


def paths() -> list[str]:
    """Returns every source and header, sorted: "attention/01_scores.cu" is the first."""
    names = [f"{file.parents[1].name}/{file.name}" for file in ROOT.glob("*/cuda/*.cu*")]
    return sorted(names + [f"{SHARED}/{file.name}" for file in (ROOT / SHARED).glob("*.cu*")])


@lru_cache(maxsize=MAX_CACHED)
def text(path: str) -> str:
    """Returns the source as a page shows it. `path`: topic and file, "conv/02_im2col.cu"."""
    if path.startswith(GENERATED):
        return half_codegen.text(path) if path.startswith(half_codegen.PREFIX) else codegen.text(path)
    return file(path).read_text(encoding="utf-8")


@lru_cache(maxsize=MAX_CACHED)
def headers(path: str) -> list[str]:
    """Returns the project's own headers that a source includes, as paths of the same form."""
    return [_header(path, name) for name in _INCLUDE.findall(text(path))]


def _header(path: str, name: str) -> str:
    """Returns the path of the header that a source includes as `name`: from its folder, ../../cuda/async.cuh, or that of
    another topic, ../../conv/cuda/implicit.cuh."""
    topic = name.split("/")[2] if "/" in name else path.partition("/")[0]
    return f"{topic}/{name.rpartition('/')[2]}"


def files(path: str) -> dict[str, str]:
    """Returns the texts of a source and of the project's own headers in it, by the name of the file, the source first."""
    return {name.rpartition("/")[2]: text(name) for name in (path, *sorted(_all_headers(path)))}


@lru_cache(maxsize=MAX_CACHED)
def translation_unit(path: str) -> str:
    """Returns the source with the project's own headers inlined. This text alone decides what is compiled and can be
    hashed. #line keeps every line's own file and number."""
    source = text(path)

    def header(match: re.Match) -> str:
        name = match.group(1)
        line = source.count("\n", 0, match.start()) + 1
        included = translation_unit(_header(path, name))
        return f'#line 1 "{name.rpartition("/")[2]}"\n{included}\n#line {line + 1} "{Path(path).name}"'

    return _INCLUDE.sub(header, source)


@lru_cache(maxsize=MAX_CACHED)
def needs_hopper(path: str) -> bool:
    """Returns whether a source uses instructions that only Hopper has (sm_90a): whether it includes their header."""
    return HOPPER_HEADER in _all_headers(path)


@lru_cache(maxsize=MAX_CACHED)
def needs_clusters(path: str) -> bool:
    """Returns whether a source uses instructions of clusters (sm_90 and later): whether it includes their header."""
    return CLUSTER_HEADER in _all_headers(path)


@lru_cache(maxsize=MAX_CACHED)
def needs_whole_grid(path: str) -> bool:
    """Returns whether blocks of a source wait for other blocks, so that all blocks of a launch must run at the same time:
    whether it includes the header for this."""
    return GRID_HEADER in _all_headers(path)


def _all_headers(path: str) -> set[str]:
    direct = headers(path)
    return {*direct, *(name for header in direct for name in _all_headers(header))}


@lru_cache(maxsize=MAX_CACHED)
def code(path: str) -> str:
    """Returns the tokens of a translation unit, which decide what is compiled. Comments, layout and paths are left out."""
    return tokens(translation_unit(path))
