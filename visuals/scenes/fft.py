"""conv/fft as a scene: pad, transform, multiply, transform back, pick, in one transform of one image.

Every number is one of `fft_arrays.arrays_of`, but for two things. Between its two passes a cell of a spectrum holds
what the transform of the rows alone gives. And where a whole number is as near as float32 rounds, it stands there. A
cell of a spectrum shows the magnitude; what it is made of is told with both parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from kernels import cuda
from kernels.ladders import find
from kernels.program import Launch
from kernels.shapes import ConvShape
from visuals.scene import Captions, Group, Read, Reading, Scene, Source, Tensor, Write
from visuals.scenes import fft_words as words
from visuals.scenes.fft_arrays import TOO_SMALL, Arrays

MOST_CELLS = 1_024  # of a padded array with all its maps: beyond that a part of it is shown
PART, PART_MAPS = 16, 2  # rows and columns of that part, and maps
ORDER = "explaining order"
ORDER_NOTE = (
    "One transform of one image and one filter, row after row and column after column. A GPU makes all of them at "
    "once; in what order cuFFT goes about inside one is its own affair, and gives the same."
)


@dataclass(frozen=True)
class Part:
    """What of the arrays is on the stage: transform (down, across), of its padded arrays `rows` x `columns` from
    (row, column) on, of its spectra as many from frequency 0 on."""

    down: int
    across: int
    row: int
    column: int
    rows: int
    columns: int
    maps: int

    @property
    def block(self) -> tuple:
        """Where it lies in the padded arrays of all transforms."""
        rows, columns = slice(self.row, self.row + self.rows), slice(self.column, self.column + self.columns)
        return self.down, self.across, ..., rows, columns


def part_of(a: Arrays) -> Part:
    """All of a transform where it is small enough, else a block of it; the one in which the input varies most, of
    those that some output is picked from."""
    whole = len(a.x) * a.rows * a.columns <= MOST_CELLS
    rows, columns = (a.rows, a.columns) if whole else (min(a.rows, PART), min(a.columns, PART))
    maps = len(a.x) if whole else min(len(a.x), PART_MAPS)
    found = []
    for i, j in np.ndindex(a.tiles):
        for row in range(0, a.rows - rows + 1, rows):
            for column in range(0, a.columns - columns + 1, columns):
                part = Part(i, j, row, column, rows, columns, maps)
                if all(len(axis) for axis in picked(a, part)):
                    found.append((float(a.x_padded[part.block][0].std()), part))
    return max(found, key=lambda pair: pair[0])[1]


def picked(a: Arrays, part: Part) -> tuple[np.ndarray, np.ndarray]:
    """(rows, columns) of the output that are picked from the part shown."""
    s, of = a.shape, a.cut
    axes = (
        (s.P, s.u, int(of["step_h"]), part.down, part.row, part.rows),
        (s.Q, s.v, int(of["step_w"]), part.across, part.column, part.columns),
    )
    found = []
    for count, stride, step, tile, first, length in axes:
        at = np.arange(count) * stride
        inside = (at // step == tile) & (first <= at % step) & (at % step < first + length)
        found.append(np.flatnonzero(inside))
    return found[0], found[1]


def under(a: Arrays, part: Part) -> tuple[range, range]:
    """Rows and columns of the input that the part of the padded input shown holds; where it holds padding alone,
    the nearest one."""
    s, found = a.shape, []
    for size, pad, at, length in (
        (s.H, s.pad_h, part.down * int(a.cut["step_h"]) + part.row, part.rows),
        (s.W, s.pad_w, part.across * int(a.cut["step_w"]) + part.column, part.columns),
    ):
        start, stop = max(at - pad, 0), min(at - pad + length, size)
        found.append(
            range(start, stop) if start < stop else range(min(start, size - 1), min(start, size - 1) + 1)
        )
    return found[0], found[1]


# -- the scene -----------------------------------------------------------------------------------
def fft_scene(a: Arrays, of: ConvShape, room: str, right: np.ndarray) -> Scene:
    """The scene of one transform. `of` is the shape on the page; `right` float [P, Q] what the output is to be."""
    steps = Steps(a, part_of(a), right, room)
    return Scene(
        key=f"fft {a.cut} {steps.part} {room} " + ",".join(f"{k}={v}" for k, v in of.params().items()),
        title="FFT",
        tensors=_tensors(steps, of),
        groups=_groups(steps),
        steps=len(steps.kinds),
        step_name="step",
        order_name=ORDER,
        order_note=ORDER_NOTE,
        writes=steps.writes(),
        reads=tuple(steps.reads()),
        captions=Captions(words.templates(a, of), np.array(steps.kinds), words.table(steps.args)),
        readings=_readings(steps),
        told=words.told(steps, of),
        source=source(tuple(steps.kinds)),
    )


class Steps:
    """The steps as they are told: kind and numbers of each caption, what each writes and reads."""

    def __init__(self, a: Arrays, part: Part, right: np.ndarray, room: str):
        self.a, self.part, self.right, self.room = a, part, right, room
        self.kinds: list[int] = []
        self.args: list[tuple] = []
        self.copies: list[Write] = []
        self.written: dict[str, list[tuple[np.ndarray, ...]]] = {}  # (cells, steps, values) of a tensor
        self.read: list[tuple[str, np.ndarray]] = []  # of each step
        self.made: list[tuple[int, int]] = []  # floats written to the workspace, complex multiply-adds
        self.frequencies = part.rows, part.columns // 2 + 1
        self.h, self.w = under(a, part)
        self.p, self.q = picked(a, part)
        cut = a.cut  # the places of those outputs in the transform
        self.places = (
            self.p * a.shape.u - part.down * int(cut["step_h"]),
            self.q * a.shape.v - part.across * int(cut["step_w"]),
        )
        at = part.down, part.across
        self.X, self.W = (self.shown(spectrum, np.abs(spectrum).max()) for spectrum in (a.X[at], a.W))
        self.Y = self.shown(a.Y[at], a.bound_spectrum)
        self.dense = words.plain(a.dense[part.block], a.bound * a.rows * a.columns)
        self.y = words.plain(a.y[self.p[:, None], self.q], a.bound)
        self._pad()
        self._forward("X", a.x_padded[at], self.X)
        self._forward("W", a.w_padded, self.W)
        self._multiply()
        self._inverse()
        self._pick()

    def step(
        self, kind: int, *args: float, read: tuple[str, np.ndarray] | None = None, floats=0, macs=0
    ) -> int:
        """One more step, and its number."""
        self.kinds.append(kind)
        self.args.append(args)
        self.read.append(read or ("", np.zeros(0, int)))
        self.made.append((floats, macs))
        return len(self.kinds) - 1

    @property
    def spectrum(self) -> np.ndarray:
        """int [maps, rows, frequencies]: the cells of a spectrum of the stage."""
        maps = self.part.maps
        return np.arange(maps * np.prod(self.frequencies)).reshape(maps, *self.frequencies)

    def shown(self, spectrum: np.ndarray, largest: float) -> np.ndarray:
        """The part of a spectrum [..., rows, half] that is shown, of the maps those that are."""
        rows, columns = self.frequencies
        part = words.plain(spectrum[..., :rows, :columns], largest)
        return part[: self.part.maps] if part.ndim == 3 else part

    def _pad(self) -> None:
        a, p, s = self.a, self.part, self.a.shape
        h = p.down * int(a.cut["step_h"]) + p.row + np.arange(p.rows) - s.pad_h
        w = p.across * int(a.cut["step_w"]) + p.column + np.arange(p.columns) - s.pad_w
        inside = ((h >= 0) & (h < s.H))[:, None] & ((w >= 0) & (w < s.W))
        c = np.arange(p.maps)[:, None, None] * len(self.h)
        index = (c + h[:, None] - self.h.start) * len(self.w) + w - self.w.start
        index = np.where(inside, index, -1)
        t = self.step(words.PAD_INPUT, a.rows, a.columns, np.count_nonzero(~inside), floats=index.size)
        self.copies.append(Write("xp", np.array([t]), source="x", index=index.ravel()))
        r, column = np.arange(p.rows), np.arange(p.columns)
        tap_r, tap_s = r // s.dilation_h, column // s.dilation_w
        tap = ((r % s.dilation_h == 0) & (tap_r < s.R))[:, None] & (
            (column % s.dilation_w == 0) & (tap_s < s.S)
        )
        if s.flip:
            tap_r, tap_s = s.R - 1 - tap_r, s.S - 1 - tap_s
        index = (np.arange(p.maps)[:, None, None] * s.R + tap_r[:, None]) * s.S + tap_s
        index = np.where(tap, index, -1)
        size = a.rows * a.columns
        t = self.step(words.PAD_FILTER, s.R * s.S, size, size / (s.R * s.S), floats=index.size)
        self.copies.append(Write("wp", np.array([t]), source="w", index=index.ravel()))

    def _forward(self, name: str, padded: np.ndarray, done: np.ndarray) -> None:
        """Rows, then columns. The first pass leaves numbers that only cuFFT sees, the second those of the array,
        `done`."""
        a, p, cells = self.a, self.part, self.spectrum
        first = np.fft.rfft(padded.astype(np.float64), axis=-1)
        first = self.shown(first, np.abs(first).max())
        source, row = ("xp", p.row) if name == "X" else ("wp", 0)
        read = np.arange(p.maps * p.rows * p.columns).reshape(p.maps, p.rows, -1)
        for i in range(p.rows):
            kind = words.ROW_OF[name][int(not padded[:, i].any())]
            reads = (source, read[:, i - row].ravel()) if row <= i < row + p.rows else None
            total = float(padded[0, i].sum(dtype=np.float64))
            t = self.step(kind, i, a.columns, a.columns // 2 + 1, total, read=reads)
            self._write(name, t, cells[:, i], first[:, i])
        for j in range(self.frequencies[1]):
            value = done[0, 0, j]
            floats = 2 * p.maps * p.rows
            t = self.step(words.COLUMN_OF[name], j, a.rows, value.real, value.imag, floats=floats)
            self._write(name, t, cells[:, :, j], done[:, :, j])

    def _write(self, name: str, t: int, cells: np.ndarray, values: np.ndarray) -> None:
        """What cells of a tensor hold from step t on; of complex numbers the magnitude."""
        values = np.abs(values) if np.iscomplexobj(values) else values
        told = np.ravel(cells), np.full(np.size(cells), t), np.ravel(values).astype(np.float32)
        self.written.setdefault(name, []).append(told)

    def writes(self) -> tuple[Write, ...]:
        joined = {name: map(np.concatenate, zip(*told, strict=True)) for name, told in self.written.items()}
        return (*self.copies, *(Write(name, t, v, cells=cells) for name, (cells, t, v) in joined.items()))

    def _multiply(self) -> None:
        X, W, Y, (rows, columns) = self.X, self.W, self.Y, self.frequencies
        f = min(1, columns - 1)  # the frequency that the caption follows
        for i in range(rows):
            cells = self.spectrum[:, i].ravel()
            t = self.step(
                words.MULTIPLY, i, f, abs(X[0, i, f]), abs(W[0, i, f]), abs(Y[i, f]), columns,
                read=("X", cells), floats=2 * columns, macs=columns * self.part.maps,
            )  # fmt: skip
            self._write("Y", t, self.spectrum[0, i], Y[i])

    def _inverse(self) -> None:
        p = self.part
        for i in range(p.rows):
            t = self.step(words.INVERSE, p.row + i, self.a.rows * self.a.columns, floats=p.columns)
            cells = i * p.columns + np.arange(p.columns)
            self._write("d", t, cells, self.dense[i])

    def _pick(self) -> None:
        a, p, (down, w) = self.a, self.part, self.places
        size = a.rows * a.columns
        for n, (row, h) in enumerate(zip(self.p, down, strict=True)):
            wrong = int(a.wrapped_output[row, self.q].sum())
            kind = words.PICK_WRONG if wrong else words.PICK
            cells = (h - p.row) * p.columns + w - p.column
            t = self.step(kind, row, h, size, len(self.q), wrong, read=("d", cells))
            out = n * len(self.q) + np.arange(len(self.q))
            self._write("y", t, out, self.y[n])

    def reads(self) -> list[Read]:
        found = []
        for name in sorted({name for name, _ in self.read} - {""}):
            told = [cells if of == name else np.zeros(0, int) for of, cells in self.read]
            start = np.cumsum([0, *map(len, told)])
            found.append(Read(name, start, np.concatenate(told)))
        x = next((r for r in found if r.source == "X"), None)
        return [*found, Read("W", x.start, x.cells)] if x else found


def _tensors(steps: Steps, of: ConvShape) -> tuple[Tensor, ...]:
    a, p, s, C = steps.a, steps.part, steps.a.shape, steps.part.maps
    rows, half = a.rows, a.columns // 2 + 1
    channel = "channel" if of.C > 1 else ""
    x = a.x[:C, steps.h.start : steps.h.stop, steps.w.start : steps.w.stop]
    origin = (0, p.row, p.column)
    shown_rows, shown_half = steps.frequencies
    partial = (p.rows, p.columns) != (a.rows, a.columns)
    tiled = f"transform {p.down}, {p.across} of {a.tiles[0]} × {a.tiles[1]}, " if a.tiles != (1, 1) else ""

    def note(r: int, c: int, r_of: int, c_of: int, r0: int = 0, c0: int = 0) -> str:
        if (r, c) == (r_of, c_of):
            return f"{r_of:,} × {c_of:,}"
        return f"part {r0}–{r0 + r - 1}, {c0}–{c0 + c - 1} of {r_of:,} × {c_of:,}"

    maps = f", {C} of {of.C:,} channels" if C < of.C else ""
    spectrum = note(shown_rows, shown_half, rows, half)
    padded = note(p.rows, p.columns, rows, a.columns, p.row, p.column)
    outputs = note(len(steps.p), len(steps.q), s.P, s.Q, int(steps.p[0]), int(steps.q[0]))
    size = (C, len(steps.h), len(steps.w))
    out = [
        Tensor("x", "x", "input", "input", *size, x.ravel(), (0, steps.h.start, steps.w.start),
               note(size[1], size[2], s.H, s.W, steps.h.start, steps.w.start) + maps, plane_name=channel),
        Tensor("w", "w", "filter 0", "filter", C, s.R, s.S, a.w[:C].ravel(), note=f"{s.R} × {s.S}"
               + (f", of {of.K:,}" if of.K > 1 else ""), plane_name=channel),
        Tensor("y", "y", "output 0", "output", 1, len(steps.p), len(steps.q), None,
               (0, int(steps.p[0]), int(steps.q[0])), outputs),
        Tensor("xp", "x", "padded input", "input", C, p.rows, p.columns, None, origin, tiled + padded,
               plane_name=channel, partial=partial),
        Tensor("X", "|X|", "its spectrum", "input", C, shown_rows, shown_half, note=spectrum + " complex",
               plane_name=channel, partial=partial),
        Tensor("wp", "w", "padded filter", "filter", C, p.rows, p.columns,
               note=note(p.rows, p.columns, rows, a.columns), plane_name=channel, partial=partial),
        Tensor("W", "|W|", "its spectrum", "filter", C, shown_rows, shown_half, note=spectrum + " complex",
               plane_name=channel, partial=partial),
        Tensor("Y", "|Y|", "X · conj(W)", "output", 1, shown_rows, shown_half, note=spectrum + " complex"),
        Tensor("d", "d", "back from Y", "output", 1, p.rows, p.columns, None, origin, padded, partial=partial),
    ]  # fmt: skip
    if steps.room == TOO_SMALL:
        there = steps.right[steps.p[0] : steps.p[-1] + 1, steps.q[0] : steps.q[-1] + 1].astype(np.float32)
        out.insert(3, Tensor("right", "right", "what y is to be", "output", 1, len(steps.p), len(steps.q),
                             there.ravel(), (0, int(steps.p[0]), int(steps.q[0]))))  # fmt: skip
    return tuple(out)


def _groups(steps: Steps) -> tuple[Group, ...]:
    more = ("right",) if steps.room == TOO_SMALL else ()
    return (
        Group((("x", "w", "y", *more),)),
        Group((("xp", "X", "wp", "W", "Y", "d"),), "workspace", "workspace, in global memory"),
    )


def _readings(steps: Steps) -> tuple[Reading, ...]:
    """What the steps have written and multiplied so far, in the part shown."""
    floats, macs = np.cumsum(np.array(steps.made), axis=0).T
    wrong = [
        args[4] if kind == words.PICK_WRONG else 0 for kind, args in zip(steps.kinds, steps.args, strict=True)
    ]
    out = [
        Reading("floats written to the workspace", floats, "predicted"),
        Reading("complex multiply-adds", macs, "predicted"),
    ]
    if steps.room == TOO_SMALL:
        out.append(Reading("pixels from windows that ran over the end", np.cumsum(wrong), "predicted"))
    return tuple(out)


# -- the kernels ---------------------------------------------------------------------------------
MARKS = {  # the line lit at a step, by what writes it
    "fft_pad_input": "padded[element] = value;", "fft_pad_filter": "padded[element] = value;",
    "fft_multiply": "sum[i][j].x += x[i].x * w[j].x;", "fft_pick": "sum /= ",
}  # fmt: skip
STEP_OF = {  # what of the program a kind of step shows
    words.PAD_INPUT: "fft_pad_input", words.PAD_FILTER: "fft_pad_filter", words.ROW_INPUT: "cufft_input",
    words.ROW_INPUT_EMPTY: "cufft_input", words.COLUMN_INPUT: "cufft_input", words.ROW_FILTER: "cufft_filter",
    words.ROW_FILTER_EMPTY: "cufft_filter", words.COLUMN_FILTER: "cufft_filter", words.MULTIPLY: "fft_multiply",
    words.INVERSE: "cufft_output", words.PICK: "fft_pick", words.PICK_WRONG: "fft_pick",
}  # fmt: skip


def source(kinds: tuple[int, ...]) -> Source:
    """The rung's launches one after the other, each kernel word for word without its opening comment, a call of
    cuFFT as a line of comment."""
    text, lit = listing()
    return Source("conv/fft, step after step", text, np.array([lit[STEP_OF[kind]] for kind in kinds]))


@cache
def listing() -> tuple[str, dict[str, int]]:
    """That text, and the line of it that is lit for each step of the program. ValueError where a mark stands
    nowhere."""
    rung = find("conv/fft")
    program = rung.build(ConvShape(1, 1, 8, 8, 1, 3, 3), rung.default_tiles)
    lines: list[str] = []
    lit: dict[str, int] = {}
    for step in program.steps:
        if not isinstance(step, Launch):
            lines += [f"// cuFFT: {step.args[0]} -> {step.args[1]}", ""]
            lit[step.name] = len(lines) - 1
            continue
        kernel = cuda.text(step.source).splitlines()
        kernel = kernel[next(i for i, line in enumerate(kernel) if line and not line.startswith("//")) :]
        kernel = [
            f"// {step.source.rpartition('/')[2]}",
            *(k for k in kernel if not k.startswith("#include")),
            "",
        ]
        at = next((i for i, line in enumerate(kernel) if MARKS[step.name] in line), None)
        if at is None:
            raise ValueError(f"{step.source} has no line like {MARKS[step.name]!r}")
        lit[step.name] = len(lines) + at + 1
        lines += kernel
    return "\n".join(lines), lit
