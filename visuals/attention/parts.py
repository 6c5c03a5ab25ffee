"""What the scenes of attention share: the recorder of their steps, the part of a head that they show, how a kernel
adds up along its lanes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from kernels import sources
from kernels.attention.shape import AttentionShape
from visuals.scene.parts import Source, Tensor
from visuals.scene.recorder import Said

MOST_WHOLE = 16  # queries, keys and columns of a head that stands on the stage whole
Q, K, V, O = "[Q](input)", "[K](filter)", "[V](filter)", "[O](output)"  # noqa: E741  # of the paper
S, P = "[S](workspace)", "[P](workspace)"


def filled(words: Mapping[str, str], lit: Mapping[str, int], more: Mapping[str, object]) -> Said:
    """Templates with Q, K, V, O, S, P in their colours and `more` in its places; numbers in braces stay."""
    names = {"Q": Q, "K": K, "V": V, "O": O, "S": S, "P": P} | dict(more)
    put = re.compile(r"\{([A-Za-z]\w*)\}")
    return {kind: (lit[kind], put.sub(lambda m: str(names[m[1]]), text)) for kind, text in words.items()}


# -- parts ------------------------------------------------------------------------------------------
def head_of(s: AttentionShape) -> str:
    """Which head is on the stage, where there are several: "head 0 of 12"."""
    told = [f"head 0 of {s.H}"] * (s.H > 1) + [f"sequence 0 of {s.B}"] * (s.B > 1)
    return ", ".join(told)


def global_title(s: AttentionShape) -> str:
    return ", ".join(filter(None, ("global memory", head_of(s))))


def grid(rows: Sequence[int], cols: Sequence[int], width: int) -> np.ndarray:
    """int64[rows, cols]: flat cells of a tensor of so many columns."""
    return np.asarray(rows, int)[:, None] * width + np.asarray(cols, int)


def never_stored(s: AttentionShape, queries: range, keys: int) -> Tensor:
    """The N x N matrix that a rung does without: cells of air, for some queries and the first keys."""
    whole, shown = (s.N, s.N), (len(queries), keys)
    note = f"{s.N:,} × {s.N:,}"
    if shown != whole:
        note = f"part {queries.start:,}–{queries.stop - 1:,}, 0–{keys - 1} of {note}"
    return Tensor(
        "SP",
        "S",
        "S and P, never stored",
        "workspace",
        1,
        *shown,
        None,
        (0, queries.start, 0),
        note,
        partial=shown != whole,
    )


def named(s: AttentionShape, rung: str, tiles: Mapping[str, int]) -> str:
    """A scene's key."""
    return f"{rung} {s} " + ",".join(f"{name}={size}" for name, size in tiles.items())


# -- arithmetic -------------------------------------------------------------------------------------
def lanes_sum(x: np.ndarray, lanes: int) -> np.ndarray:
    """float32: sums along the last axis as `lanes` lanes make them: each adds up every lanes-th value, then they pass
    their sums to each other, halves first."""
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
    files: Sequence[str], marks: Sequence[tuple[int, str]], lit: np.ndarray, detail: str
) -> Source:
    """Several kernels one under the other, lines numbered through; marks: (which file, what its line says)."""
    lines, starts = [], []
    for file in files:
        text = sources.text(file).splitlines()
        first = next(i for i, line in enumerate(text) if line.startswith("extern"))
        starts.append(len(lines) + 1)
        lines += [f"// {file.rpartition('/')[2]}", *text[first:], ""]
    at = []
    for file, mark in marks:
        stop = [*starts[1:], len(lines)][file]
        found = [n for n in range(starts[file], stop) if re.search(re.escape(mark), lines[n])]
        if not found:
            raise ValueError(f"{files[file]} has no line like {mark!r}")
        at.append(found[0] + 1)
    names = [file.rpartition("/")[2] for file in files]
    return Source(
        f"{names[0]} and {len(names) - 1} more", "\n".join(lines[:-1]), np.array(at)[lit], detail=detail
    )
