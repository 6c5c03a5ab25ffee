"""Shared by the scenes of attention: caption templates, the part of a head that is shown, sums over lanes, and sources."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from kernels import sources
from kernels.attention.shape import SelfAttentionShape
from kernels.i18n import tr, trn
from visuals.scene.parts import Cells, Source, Tensor
from visuals.scene.recorder import StepKinds, part_note

MAX_WHOLE = 16  # queries, keys and columns of a head that is shown whole
Q, K, V, O = "[Q](input)", "[K](filter)", "[V](filter)", "[O](output)"  # noqa: E741  # of the paper
S, P = "[S](workspace)", "[P](workspace)"


def fill_templates(templates: Mapping[str, str], line_of: Mapping[str, int], values: Mapping[str, object]) -> StepKinds:
    """Returns the translated templates with Q, K, V, O, S, P in their colours and `values` filled in. Numbers in braces are
    kept."""
    names = {"Q": Q, "K": K, "V": V, "O": O, "S": S, "P": P} | dict(values)
    return {kind: (line_of[kind], tr(text, **names)) for kind, text in templates.items()}


# -- parts ------------------------------------------------------------------------------------------
def global_title(s: SelfAttentionShape) -> str:
    """Returns the title of global memory; it names the head and sequence shown if there are several."""
    if s.H > 1 and s.B > 1:
        return tr("global memory, head 0 of {heads}, sequence 0 of {sequences}", heads=s.H, sequences=s.B)
    if s.H > 1:
        return tr("global memory, head 0 of {heads}", heads=s.H)
    if s.B > 1:
        return tr("global memory, sequence 0 of {sequences}", sequences=s.B)
    return tr("global memory")


def head_prefix(s: SelfAttentionShape) -> str:
    """Returns what precedes the first reading: "head 0: " if there are several heads."""
    return tr("head 0: ") if s.heads > 1 else ""


def grid(rows: Cells, cols: Cells, width: int) -> np.ndarray:
    """Returns the flat cells of some rows and columns, int64[rows, cols], of a tensor of `width` columns."""
    return np.asarray(rows, int)[:, None] * width + np.asarray(cols, int)


def never_stored(s: SelfAttentionShape, queries: range, keys: int) -> Tensor:
    """Returns the N x N matrix that a rung never stores: empty cells, for some queries and the first keys."""
    return Tensor(
        "SP",
        "S",
        tr("S and P: not in global memory"),
        "workspace",
        1,
        len(queries),
        keys,
        None,
        (0, queries.start, 0),
        part_note((queries.start, len(queries), s.N), (0, keys, s.N)),
        partial=(len(queries), keys) != (s.N, s.N),
    )


def scene_key(s: SelfAttentionShape, rung: str, tiles: Mapping[str, int]) -> str:
    return f"{rung} {s} " + ",".join(f"{name}={size}" for name, size in tiles.items())


# -- arithmetic -------------------------------------------------------------------------------------
def lanes_sum(x: np.ndarray, lanes: int) -> np.ndarray:
    """Returns sums along the last axis as `lanes` lanes compute them, float32. Each lane adds up every lanes-th value; then
    the sums are reduced by halves."""
    pad = -x.shape[-1] % lanes
    x = np.concatenate([x, np.zeros((*x.shape[:-1], pad), np.float32)], axis=-1)
    x = x.reshape(*x.shape[:-1], -1, lanes)
    sums = np.zeros((*x.shape[:-2], lanes), np.float32)
    for n in range(x.shape[-2]):
        sums = sums + x[..., n, :]
    while lanes > 1:
        lanes //= 2
        sums = sums[..., :lanes] + sums[..., lanes:]
    return sums[..., 0]


# -- sources ----------------------------------------------------------------------------------------
def joined_source(
    files: Sequence[str], marks: Sequence[tuple[int, str]], mark_of_step: np.ndarray, detail: str
) -> Source:
    """Returns several kernels as one source with continuous line numbers. marks: (index of the file, text of the line).
    Raises ValueError if a file has no such line."""
    lines, starts = [], []
    for file in files:
        text = sources.text(file).splitlines()
        first = next(i for i, line in enumerate(text) if line.startswith("extern"))
        starts.append(len(lines) + 1)
        lines += [f"// {file.rpartition('/')[2]}", *text[first:], ""]
    mark_lines = []
    for file, mark in marks:
        stop = [*starts[1:], len(lines)][file]
        found = [n for n in range(starts[file], stop) if re.search(re.escape(mark), lines[n])]
        if not found:
            raise ValueError(f"{files[file]} has no line like {mark!r}")
        mark_lines.append(found[0] + 1)
    names = [file.rpartition("/")[2] for file in files]
    return Source(
        trn("{file} and {n} more file", "{file} and {n} more files", len(names) - 1, file=names[0]),
        "\n".join(lines[:-1]),
        np.array(mark_lines)[mark_of_step],
        detail=detail,
    )
