"""conv/fft as a scene: pad, transform, multiply, transform back, pick, in one transform of one image.

Every number is one of `arrays.arrays_of`, with two exceptions. Between its two passes a cell of a spectrum has
the transform of the rows alone. A number that differs from a whole number only by float32 rounding is replaced by
it. A cell of a spectrum shows the magnitude, or the phase in degrees; its annotation has the complex number and both.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from kernels import sources
from kernels.conv.shape import ConvShape
from kernels.i18n import decimal, mark, tr
from kernels.ladders import find
from kernels.model.program import Launch
from visuals.conv.fft import captions, cells
from visuals.conv.fft.arrays import TOO_SMALL, Arrays
from visuals.conv.fft.steps import FftSteps, part_of
from visuals.scene.parts import Group, Reading, Source, Tensor
from visuals.scene.recorder import part_note
from visuals.scene.scene import Scene

ORDER, PHASES = mark("explaining order"), mark("phases")
ORDER_NOTE = mark(
    "The stage shows one transform of one image and one filter, row by row and column by column. A GPU computes all "
    "transforms at once. cuFFT may use another order inside a transform; the result is the same."
)
ORDER_NOTE_TILED = mark(
    "The stage shows one tile of one image and one filter. A GPU transforms all tiles at once, two rows in each thread. "
    "The kernel divides the filter by the numbers of a tile when it loads the taps. The stage divides at the end: the result "
    "is the same."
)
WHOLE, IN_TILES = "conv/fft", "conv/fft-tiled"  # the rungs


# -- the scene -----------------------------------------------------------------------------------
def fft_scene(
    a: Arrays, shape: ConvShape, padding: str, expected: np.ndarray, phases: bool = False, rung: str = WHOLE
) -> Scene:
    """Returns the scene of one transform. `shape` is the shape on the page; `expected` float [P, Q] is the
    correct output. With `phases`, the spectra show phases instead of magnitudes. `rung` is the one whose kernels are
    beside it."""
    steps = FftSteps(a, part_of(a), expected, padding, phases)
    tiled = rung == IN_TILES
    return Scene(
        key=f"fft {a.cut} {steps.part} {padding} {'phases ' * phases}{'tiles ' * tiled}"
        + ",".join(f"{k}={v}" for k, v in shape.params().items()),
        title="FFT",
        tensors=_tensors(steps, shape),
        groups=_groups(steps, tiled),
        steps=steps.r.steps,
        step_name=tr("step"),
        order_name=tr(PHASES if phases else ORDER),
        order_note=tr(ORDER_NOTE_TILED if tiled else ORDER_NOTE),
        writes=steps.writes(),
        reads=steps.reads(),
        captions=steps.r.captions(captions.templates(a, shape, tiled)),
        readings=_readings(steps, tiled),
        annotations=cells.annotations_of(steps, shape),
        source=tiled_source(tuple(steps.r.kinds)) if tiled else source(tuple(steps.r.kinds)),
    )


def _tensors(steps: FftSteps, shape: ConvShape) -> tuple[Tensor, ...]:
    a, p, s, C = steps.a, steps.part, steps.a.shape, steps.part.maps
    rows, half = a.rows, a.columns // 2 + 1
    channel = tr("channel") if shape.C > 1 else ""
    x = a.x[:C, steps.h.start : steps.h.stop, steps.w.start : steps.w.stop]
    origin = (0, p.row, p.column)
    visible_rows, visible_half = steps.frequencies
    partial = (p.rows, p.columns) != (a.rows, a.columns)
    tiled = [
        tr("transform {down}, {across} of {tiles}", down=p.down, across=p.across, tiles=f"{a.tiles[0]} × {a.tiles[1]}")
    ] * (a.tiles != (1, 1))
    maps = [tr("{n} of {total} channels", n=C, total=decimal(f"{shape.C:,}"))] * (C < shape.C)
    spectrum = part_note((0, visible_rows, rows), (0, visible_half, half))
    if steps.phases:
        spectrum = tr("{size}, degrees", size=spectrum)
    symbols = {name: f"∠{name}" if steps.phases else f"|{name}|" for name in "XWY"}
    padded = part_note((p.row, p.rows, rows), (p.column, p.columns, a.columns))
    outputs = part_note((steps.p[0], len(steps.p), s.P), (steps.q[0], len(steps.q), s.Q))
    size = (C, len(steps.h), len(steps.w))
    inputs = part_note((steps.h.start, size[1], s.H), (steps.w.start, size[2], s.W))
    taps = f"{s.R} × {s.S}"
    product = "Y = X · conj(W)" if shape.C == 1 else "Y = Σ X · conj(W)"
    tensors = [
        Tensor("x", "x", tr("input"), "input", *size, x.ravel(), (0, steps.h.start, steps.w.start),
               ", ".join([inputs, *maps]), plane_name=channel),
        Tensor("w", "w", tr("filter"), "filter", C, s.R, s.S, a.w[:C].ravel(),
               note=tr("{taps}, filter 0 of {n}", taps=taps, n=decimal(f"{shape.K:,}")) if shape.K > 1 else taps,
               plane_name=channel),
        Tensor("y", "y", tr("output"), "output", 1, len(steps.p), len(steps.q), None,
               (0, int(steps.p[0]), int(steps.q[0])), outputs),
        Tensor("xp", "x", tr("padded input"), "input", C, p.rows, p.columns, None, origin, ", ".join([*tiled, padded]),
               plane_name=channel, partial=partial),
        Tensor("X", symbols["X"], "X = FFT(x)", "input", C, visible_rows, visible_half, note=spectrum,
               plane_name=channel, partial=partial),
        Tensor("wp", "w", tr("padded filter"), "filter", C, p.rows, p.columns,
               note=part_note((0, p.rows, rows), (0, p.columns, a.columns)), plane_name=channel, partial=partial),
        Tensor("W", symbols["W"], "W = FFT(w)", "filter", C, visible_rows, visible_half, note=spectrum,
               plane_name=channel, partial=partial),
        Tensor("Y", symbols["Y"], product, "output", 1, visible_rows, visible_half, note=spectrum),
        Tensor("d", "d", "d = FFT⁻¹(Y)", "output", 1, p.rows, p.columns, None, origin, padded, partial=partial),
    ]  # fmt: skip
    if steps.padding == TOO_SMALL:
        expected_part = steps.expected[steps.p[0] : steps.p[-1] + 1, steps.q[0] : steps.q[-1] + 1].astype(np.float32)
        tensors.insert(
            3,
            Tensor(
                "right",
                tr("correct"),
                tr("correct y"),
                "output",
                1,
                len(steps.p),
                len(steps.q),
                expected_part.ravel(),
                (0, int(steps.p[0]), int(steps.q[0])),
            ),
        )
    return tuple(tensors)


def _groups(steps: FftSteps, tiled: bool) -> tuple[Group, ...]:
    more = ("right",) if steps.padding == TOO_SMALL else ()
    where = tr("tiles in shared memory, their spectra in global memory") if tiled else tr("workspace, in global memory")
    return (Group((("x", "w", "y", *more),)), Group((("xp", "X", "wp", "W", "Y", "d"),), "workspace", where))


def _readings(steps: FftSteps, tiled: bool) -> tuple[Reading, ...]:
    """Returns the numbers of values written and multiplied so far, in the visible part. In tiles not all values written
    go to the workspace, so they are left out."""
    titles = {"macs": tr("complex multiply-adds")}
    if not tiled:
        titles = {"floats": tr("floats written to the workspace")} | titles
    if steps.padding == TOO_SMALL:
        titles["wrong"] = tr("pixels whose windows wrap around")
    return tuple(Reading(title, steps.r.so_far(name), "predicted") for name, title in titles.items())


# -- the kernels ---------------------------------------------------------------------------------
MARKS = {  # text of the line that is highlighted at a step, by step of the program
    "fft_pad_input": "padded[element] = value;",
    "fft_pad_filter": "padded[element] = value;",
    "fft_multiply": "sum[i][j].x += x[i].x * w[j].x;",
    "fft_pick": "sum /= ",
}
STEP_NAME = {  # step of the program, by kind of step
    captions.PAD_INPUT: "fft_pad_input",
    captions.PAD_FILTER: "fft_pad_filter",
    captions.ROW_INPUT: "cufft_input",
    captions.ROW_INPUT_EMPTY: "cufft_input",
    captions.COLUMN_INPUT: "cufft_input",
    captions.ROW_FILTER: "cufft_filter",
    captions.ROW_FILTER_EMPTY: "cufft_filter",
    captions.COLUMN_FILTER: "cufft_filter",
    captions.MULTIPLY: "fft_multiply",
    captions.INVERSE: "cufft_output",
    captions.PICK: "fft_pick",
    captions.PICK_WRONG: "fft_pick",
}


def source(kinds: tuple[int, ...]) -> Source:
    """Returns the rung's launches one after the other, each kernel without its opening comment. A call of cuFFT
    is one comment line."""
    text, highlighted = listing()
    return Source(tr("conv/fft, all steps"), text, np.array([highlighted[STEP_NAME[kind]] for kind in kinds]))


@cache
def listing() -> tuple[str, dict[str, int]]:
    """Returns that text, and its highlighted line for each step of the program. ValueError if a mark is in no
    line."""
    rung = find("conv/fft")
    program = rung.build(ConvShape(1, 1, 8, 8, 1, 3, 3), rung.default_tiles)
    lines: list[str] = []
    highlighted: dict[str, int] = {}
    for step in program.steps:
        if not isinstance(step, Launch):
            lines += [f"// cuFFT {step.args[0]} -> {step.args[1]}", ""]
            highlighted[step.name] = len(lines) - 1
            continue
        kernel = _kernel(step.source)
        highlighted[step.name] = len(lines) + _line(kernel, MARKS[step.name])
        lines += kernel
    return "\n".join(lines), highlighted


def _kernel(file: str) -> list[str]:
    """Returns the lines of a kernel under its file's name, without its opening comment."""
    kernel = sources.text(file).splitlines()
    kernel = kernel[next(i for i, line in enumerate(kernel) if line and not line.startswith("//")) :]
    return [f"// {file.rpartition('/')[2]}", *(k for k in kernel if not k.startswith("#include")), ""]


def _line(kernel: list[str], text: str) -> int:
    """Returns the number, from 1, of the first line that has a text. ValueError if none has."""
    index = next((i for i, line in enumerate(kernel) if text in line), None)
    if index is None:
        raise ValueError(f"{kernel[0][3:]} has no line like {text!r}")
    return index + 1


# -- the kernels of the FFT in tiles ---------------------------------------------------------------
# The launch, and the text of the line that is highlighted, by kind of step.
TILED_MARKS = {
    captions.PAD_FILTER: (0, "= filters[source]"),
    captions.ROW_FILTER: (0, "transform_rows(tile, part);"),
    captions.ROW_FILTER_EMPTY: (0, "if (2 * part < rows)"),
    captions.COLUMN_FILTER: (0, "Transform<T, -1>::run(re, im);"),
    captions.PAD_INPUT: (1, "inside ? input["),
    captions.ROW_INPUT: (1, "transform_rows(tile, part);"),
    captions.ROW_INPUT_EMPTY: (1, "transform_rows(tile, part);"),
    captions.COLUMN_INPUT: (1, "Transform<T, -1>::run(re, im);"),
    captions.MULTIPLY: (2, "re[i][j] += a[0][i] * b[0][j];"),
    captions.INVERSE: (3, "invert_rows(tile_values, part);"),
    captions.PICK: (3, "output[corner.map"),
    captions.PICK_WRONG: (3, "output[corner.map"),
}


def tiled_source(kinds: tuple[int, ...]) -> Source:
    """Returns the launches of conv/fft-tiled one after the other, each kernel without its opening comment."""
    text, highlighted = tiled_listing()
    return Source(tr("conv/fft-tiled, all steps"), text, np.array([highlighted[kind] for kind in kinds]))


@cache
def tiled_listing() -> tuple[str, dict[int, int]]:
    """Returns that text, and its highlighted line for each kind of step. ValueError if a mark is in no line."""
    rung = find(IN_TILES)
    steps = rung.build(ConvShape(1, 1, 8, 8, 1, 3, 3), rung.default_tiles).launches
    parts = [_kernel(step.source) for step in steps]
    first = np.cumsum([0, *map(len, parts)])
    lit = {kind: int(first[n]) + _line(parts[n], text) for kind, (n, text) in TILED_MARKS.items()}
    return "\n".join(line for part in parts for line in part), lit
