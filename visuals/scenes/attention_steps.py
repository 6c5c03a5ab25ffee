"""What the scenes of attention share: the recorder of their steps, the part of a head that they show, how a kernel
adds up along its lanes."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from kernels import cuda
from kernels.shapes_attention import AttentionShape
from visuals.scene import Captions, Read, Reading, Source, Tensor, Write
from visuals.scenes.gemm_words import table
from visuals.scenes.threads import reads_of

MOST_WHOLE = 16  # queries, keys and columns of a head that stands on the stage whole
Q, K, V, O = "[Q](input)", "[K](filter)", "[V](filter)", "[O](output)"  # noqa: E741  # of the paper
S, P = "[S](workspace)", "[P](workspace)"
Said = Mapping[str, tuple[int, str]]  # kind of step: (which line of the source, template)


@dataclass
class Recorder:
    """Steps as they come, and what each of them says, writes, reads and moves. `put`, `copy` and `look` are of the last
    step."""

    said: Said
    kinds: list[int] = field(default_factory=list)
    args: list[tuple[float, ...]] = field(default_factory=list)
    moved: list[tuple[int, int, int]] = field(default_factory=list)  # bytes: global read, written, shared
    _values: dict = field(default_factory=lambda: defaultdict(list))
    _copies: dict = field(default_factory=lambda: defaultdict(list))
    _reads: dict = field(default_factory=lambda: defaultdict(dict))

    def step(self, kind: str, *args: float, read: int = 0, written: int = 0, shared: int = 0) -> None:
        self.kinds.append(list(self.said).index(kind))
        self.args.append(args)
        self.moved.append((int(read), int(written), int(shared)))

    @property
    def now(self) -> int:
        return len(self.kinds) - 1

    def put(self, target: str, values: np.ndarray, cells: np.ndarray | None = None) -> None:
        """The step writes numbers; into all cells in their order where `cells` is left out."""
        values = np.ravel(values).astype(np.float32)
        self._values[target].append(
            (self.now, np.arange(values.size) if cells is None else np.ravel(cells), values)
        )

    def copy(self, target: str, source: str, index: np.ndarray, cells: np.ndarray | None = None) -> None:
        """The step copies cells of `source`; -1 becomes a zero."""
        index = np.ravel(index)
        self._copies[target, source].append(
            (self.now, np.arange(index.size) if cells is None else np.ravel(cells), index)
        )

    def look(self, source: str, cells: np.ndarray) -> None:
        """The step reads cells without copying them."""
        self._reads[source][self.now] = np.unique(np.ravel(cells))

    # -- parts of a scene ---------------------------------------------------------------------------
    @property
    def steps(self) -> int:
        return len(self.kinds)

    def writes(self) -> tuple[Write, ...]:
        out = []
        for target, told in self._values.items():
            steps, cells, values = self._joined(told)
            out.append(Write(target, steps, values, cells=cells))
        for (target, source), told in self._copies.items():
            steps, cells, index = self._joined(told)
            out.append(Write(target, steps, source=source, index=index, cells=cells))
        return tuple(out)

    @staticmethod
    def _joined(told: list) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        steps, cells, more = zip(*told, strict=True)
        count = [len(c) for c in cells]
        return np.repeat(steps, count), np.concatenate(cells).astype(int), np.concatenate(more)

    def reads(self) -> tuple[Read, ...]:
        none = np.zeros(0, int)
        return tuple(
            reads_of(name, [told.get(t, none) for t in range(self.steps)])
            for name, told in self._reads.items()
        )

    def captions(self) -> Captions:
        return Captions(
            tuple(words for _, words in self.said.values()), np.array(self.kinds), table(self.args)
        )

    def marks(self) -> np.ndarray:
        """int64[steps]: which line of the source is lit."""
        return np.array([mark for mark, _ in self.said.values()])[self.kinds]

    def readings(self, whose: str, tiles: bool = True) -> tuple[Reading, ...]:
        """Bytes that the kernels' threads have asked for so far."""
        told = [n if n[-1] < 2**31 else n.astype(np.float32) for n in np.cumsum(self.moved, axis=0).T]
        labels = ("bytes read from global memory", "written to it", "to and from shared memory")
        return tuple(
            Reading(f"{whose}{label}" if n == 0 else label, values, "predicted")
            for n, (label, values) in enumerate(zip(labels, told, strict=True))
            if n < 2 or tiles
        )


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
        text = cuda.text(file).splitlines()
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
