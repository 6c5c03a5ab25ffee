"""Sentences about the figures of convolution's gradients, with the numbers in them. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from kernels.conv.backward import dweight as dweight_programs
from kernels.conv.backward.dinput import phase_count
from kernels.conv.backward.presets import BACKWARD_PRESETS
from kernels.conv.backward.transpose_shape import TransposeShape
from kernels.conv.shape import ConvShape
from kernels.i18n import decimal, mark, tr, trn
from kernels.ladders import find
from kernels.model.launch import ceil
from kernels.model.preset import Preset
from kernels.records.gpus import cached
from kernels.records.statistics import within_spread
from visuals import units
from visuals.charts.ladder_notes import LadderNotes, Row, extremes, fastest_library, recorded_at, title
from visuals.conv.backward.links import Links

DIRECT, ATOMICS, GATHER, PHASES = (
    f"conv-dinput/{name}" for name in ("direct", "gemm-atomics", "gemm-gather", "implicit-gemm")
)
TAPS, PARTS_ATOMICS, PARTS = (f"conv-dweight/{name}" for name in ("direct", "implicit-gemm-atomics", "implicit-gemm"))


# -- gradient of the input -------------------------------------------------------------------------------
def links(s: ConvShape) -> int:
    """Returns how many (pixel, tap, output) exist in one image and one channel: taps in the padding are left out."""
    of_axis = Links(s.with_(N=1, C=1, K=1, groups=1))
    return int((of_axis.rows >= 0).sum()) * int((of_axis.columns >= 0).sum())


def most_additions(s: ConvShape) -> int:
    """Returns the most outputs of one filter that a pixel fed: col2im adds to it that many times."""
    of_axis = Links(s.with_(N=1, C=1, K=1, groups=1))
    return int((of_axis.rows >= 0).sum(1).max()) * int((of_axis.columns >= 0).sum(1).max())


def dinput_cost(s: ConvShape) -> str:
    """Returns what the stride leaves of the taps, and what col2im adds and moves."""
    tried, found = s.R * s.S * s.H * s.W, links(s)
    sentences = [
        tr(
            "A pixel is read through {found} of its {taps} taps on average. The other taps are holes or outside.",
            found=units.ratio(found / (s.H * s.W)),
            taps=s.R * s.S,
        ),
        trn(
            "All pixels are one phase, so the implicit product tries only taps that exist inside the output.",
            "The {n} phases of the implicit product together try each tap that fits the stride, and no other.",
            phase_count(s),
        ),
    ]
    if tried == found:
        sentences = sentences[1:]
    if s.groups > 1:
        return " ".join(sentences)
    columns = 4 * s.N * s.CRS * s.PQ
    return " ".join(
        (
            *sentences,
            tr(
                "The gradient of the data matrix takes {matrix}, {ratio}× the gradient of the input.",
                matrix=units.bytes_(columns),
                ratio=units.ratio(columns / (4 * s.elements["x"])),
            ),
            tr(
                "By atomics, {n} additions go to {pixels} pixels.",
                n=decimal(f"{s.N * s.C * found:,}"),
                pixels=decimal(f"{s.elements['x']:,}"),
            ),
        )
    )


def dinput_gain(rows: Mapping[str, Row]) -> str:
    """Returns what a gather gains over atomics, the phases over direct, and how far the library is. `rows` are by rung
    name, from one device. "" if there is nothing to compare."""
    return _sentences(rows, ((GATHER, ATOMICS), (PHASES, DIRECT)), PHASES)


# -- transposed convolution ------------------------------------------------------------------------------
def transpose_cost(t: TransposeShape) -> str:
    """Returns which input pixels reach an output, and what col2im adds and moves."""
    s = t.conv
    found = links(s)
    sentences = [
        tr(
            "An output is reached through {found} of the {taps} taps on average. The other taps are holes or outside.",
            found=units.ratio(found / (t.P * t.Q)),
            taps=t.R * t.S,
        ),
        trn(
            "All outputs are one phase, so the implicit product tries only taps that exist inside the input.",
            "The {n} phases of the implicit product together try each tap that fits the stride, and no other.",
            phase_count(s),
        ),
    ]
    if t.groups > 1:
        return " ".join(sentences)
    windows = 4 * s.N * s.CRS * s.PQ
    return " ".join(
        (
            *sentences,
            tr(
                "The windows of all input pixels take {windows}, {ratio}× the output.",
                windows=units.bytes_(windows),
                ratio=units.ratio(windows / (4 * s.elements["x"])),
            ),
            tr(
                "By atomics, {n} additions go to {outputs} outputs.",
                n=decimal(f"{s.N * s.C * found:,}"),
                outputs=decimal(f"{s.elements['x']:,}"),
            ),
        )
    )


def transpose_gain(rows: Mapping[str, Row]) -> str:
    """Returns dinput_gain for transposed convolution."""
    names = [rung.replace("conv-dinput", "conv-transpose") for rung in (GATHER, ATOMICS, PHASES, DIRECT)]
    gather, atomics, phases, direct = names
    return _sentences(rows, ((gather, atomics), (phases, direct)), phases)


# -- gradient of the filters -----------------------------------------------------------------------------
def dweight_cost(s: ConvShape) -> str:
    """Returns how long the sums are, how many parts they are cut into, and what the parts take."""
    tiles = find(PARTS).default_tiles
    terms = dweight_programs.terms_of_part(s, tiles)
    parts = ceil(s.N * s.PQ, terms)
    sums = tr(
        "Each of the {taps} taps is a sum of {n} products, one per output pixel of each image.",
        taps=decimal(f"{s.elements['w']:,}"),
        n=decimal(f"{s.N * s.PQ:,}"),
    )
    if parts == 1:
        return " ".join((sums, tr("The implicit product adds it in one part.")))
    blocks = tr(
        "The gradient has only {blocks} tiles of {rows} × {columns}. Cut into {parts} parts, the sum keeps every SM at work.",
        blocks=ceil(s.CRS, tiles["BN"]) * ceil(s.filters, tiles["BM"]) * s.groups,
        rows=tiles["BM"],
        columns=tiles["BN"],
        parts=parts,
    )
    memory = tr(
        "Stored separately, the parts take {bytes}. By atomics they take nothing, but {parts} blocks add to each address.",
        bytes=units.bytes_(4 * parts * s.elements["w"]),
        parts=parts,
    )
    return " ".join((sums, blocks, memory))


def dweight_gain(rows: Mapping[str, Row]) -> str:
    """Returns what stored parts gain over atomics, the split over direct, and how far the library is."""
    return _sentences(rows, ((PARTS, PARTS_ATOMICS), (PARTS, TAPS)), PARTS)


# -- both ------------------------------------------------------------------------------------------------
def _sentences(rows: Mapping[str, Row], pairs: Sequence[tuple[str, str]], ours: str) -> str:
    sentences = [_against(rows[a], rows[b]) for a, b in pairs if a in rows and b in rows]
    library = fastest_library(rows.values())
    if library and ours in rows:
        sentences.append(_against(rows[ours], library))
    return " ".join(sentences)


def _against(row: Row, other: Row) -> str:
    """Returns a sentence that compares two rows of one device."""
    fields = {"name": title(row), "other": title(other)}
    ratio = other["median_ms"] / row["median_ms"]
    if within_spread(row, other):
        return tr("“{name}” and “{other}” take the same time: their spreads overlap.", **fields)
    if ratio > 1:
        return tr("“{name}” is {ratio}× as fast as “{other}”.", ratio=units.ratio(ratio), **fields)
    return tr("“{name}” takes {ratio}× the time of “{other}”.", ratio=units.ratio(1 / ratio), **fields)


@cached(8)
def _examples(fast: str, plain: str) -> list[tuple[Preset, str]]:
    """Returns the presets at which one rung gains most and least over another, from the cold recordings."""

    def speedup(s: ConvShape) -> float | None:
        rows = recorded_at(s, (fast, plain))
        return rows[plain]["median_ms"] / rows[fast]["median_ms"] if len(rows) == 2 else None

    return extremes(speedup, presets=BACKWARD_PRESETS)


DINPUT = LadderNotes(
    dinput_cost,
    dinput_gain,
    partial(_examples, GATHER, ATOMICS),
    mark("Recorded speed of a gather, relative to atomics:"),
)
TRANSPOSE = LadderNotes(transpose_cost, transpose_gain, list, "")
DWEIGHT = LadderNotes(
    dweight_cost,
    dweight_gain,
    partial(_examples, PARTS, PARTS_ATOMICS),
    mark("Recorded speed of stored parts, relative to atomics:"),
)
