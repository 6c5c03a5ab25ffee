"""Sentences about the figures of the attention ladder, with their numbers. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import prod
from typing import Protocol

from kernels.attention.presets import ATTENTION_PRESETS
from kernels.attention.shape import AttentionShape
from kernels.i18n import mark, tr, trn
from kernels.ladders import LADDERS, find
from kernels.model.dtypes import ELEMENT_BYTES
from kernels.model.launch import ceil
from kernels.model.preset import Preset
from kernels.model.program import WORKSPACE, Tiles
from kernels.model.rung import Rung
from kernels.records.gpus import cached
from kernels.records.statistics import fastest, within_spread
from visuals import units
from visuals.charts.ladder_notes import LadderNotes, Row, capitalized, extremes, recorded_at, title

FLASH = "attention/flash"  # prefix of the names of its rungs
SQUARE = ("attention/naive", "attention/blocked", "attention/cublas")  # S and P in memory
LIBRARY = "attention/library"  # prefix of PyTorch's
FLOAT = 4  # bytes


class SelectedRung(Protocol):
    """The kernel that a page has selected, and its tile sizes."""

    @property
    def rung(self) -> Rung: ...
    @property
    def tiles(self) -> Tiles: ...


def flash_tiles(s: AttentionShape, selected: SelectedRung | None = None) -> Tiles:
    """Returns the tile sizes of the selected kernel if it is flash attention of this type, else flash attention's defaults."""
    name = FLASH if s.dtype == "fp32" else f"{FLASH}-mma"
    if (
        selected
        and selected.rung.name.startswith(FLASH)
        and "Br" in selected.tiles
        and (selected.rung.name == f"{FLASH}-mma") == (s.dtype != "fp32")
    ):
        return selected.tiles
    return find(name).default_tiles


def attention_cost(s: AttentionShape, selected: SelectedRung | None = None) -> str:
    """Returns sentences: the bytes of S and P, and the extra work of flash attention at the tile sizes of the page."""
    if s.variants:
        return variants_cost(s)
    square_bytes, tiles = squares(s), flash_tiles(s, selected)
    Br, Bc = tiles["Br"], tiles["Bc"]
    sentences = [
        tr(
            "S and P take {bytes}, {ratio}× the {least} of Q, K, V and O. Each of them is written once and read again.",
            bytes=units.bytes_(square_bytes),
            ratio=units.ratio(square_bytes / s.bytes),
            least=units.bytes_(s.bytes),
        ),
        tr(
            "Flash attention keeps one tile of {Br} × {Bc} scores per block instead: {bytes}.",
            Br=Br,
            Bc=Bc,
            bytes=units.bytes_(FLOAT * Br * Bc),
        ),
        trn(
            "It has two extra costs. First, {n} block of {Br} queries per head loads K and V.",
            "It has two extra costs. First, {n} blocks of {Br} queries per head each load K and V.",
            ceil(s.N, Br),
            Br=Br,
        ),
        trn(
            "Second, O and l are multiplied by exp(old m − new m) after {n} tile of {Bc} keys.",
            "Second, O and l are multiplied by exp(old m − new m) after each of {n} tiles of {Bc} keys.",
            ceil(s.N, Bc),
            Bc=Bc,
        ),
        tr("This is about one multiplication per {flops} FLOPs of the two products.", flops=4 * Bc),
    ]
    if s.causal:
        sentences.append(
            tr(
                "Causal attention uses {share} of the pairs of query and key. Flash attention skips tiles of hidden keys. S and P stay N × N.",
                share=units.share(s.pairs / s.with_(causal=0).pairs),
            )
        )
    return " ".join(sentences)


def variants_cost(s: AttentionShape) -> str:
    """Returns sentences: the bytes of K and V, and what shared heads, a window and a mask change."""
    word = ELEMENT_BYTES[s.dtype]
    cache, seen = (2 * word * s.B * s.groups * count * s.d for count in (s.keys, s.seen_keys))
    sentences = [
        tr(
            "K and V take {bytes}, Q and O {others}. With scores and weights in memory, S and P would take {squares} more.",
            bytes=units.bytes_(cache),
            others=units.bytes_(2 * word * s.heads * s.N * s.d),
            squares=units.bytes_((FLOAT + word) * s.heads * s.N * s.keys),
        )
    ]
    if s.sharing > 1:
        sentences.append(
            tr(
                "{n} heads of queries share each head of keys. Without that K and V would take {bytes}.",
                n=s.sharing,
                bytes=units.bytes_(cache * s.sharing),
            )
        )
    if s.window:
        whole = s.with_(window=0)
        sentences.append(
            tr(
                "The window leaves {share} of the pairs of query and key. Tiles outside of it are not loaded.",
                share=units.share(s.pairs / whole.pairs if whole.pairs else 0),
            )
        )
    if seen < cache:
        sentences.append(tr("Only {bytes} of K and V are seen by a query.", bytes=units.bytes_(seen)))
    if s.mask != "none":
        sentences.append(
            tr(
                "The mask takes {bytes}. Each head reads all of it. Pairs that it hides are computed too.",
                bytes=units.bytes_(s.N * s.keys * s.mask_bytes),
            )
        )
    per_byte = tr("Per byte that is moved at least there are {flops} FLOPs.", flops=units.ratio(s.flops / s.bytes))
    return " ".join((*sentences, per_byte))


def squares(s: AttentionShape) -> int:
    """Returns the bytes of S and P."""
    return find("attention/cublas").build(s, {}).nbytes(WORKSPACE)


def fastest_of(rows: Mapping[str, Row], *prefixes: str) -> Row | None:
    """Returns the fastest row of the rungs with such a prefix; None if none was timed."""
    return fastest(row for name, row in rows.items() if name.startswith(prefixes))


def library_row(rows: Mapping[str, Row]) -> Row | None:
    """Returns the fastest of PyTorch's rows, else that of cuBLAS with our softmax; None without either."""
    return fastest_of(rows, LIBRARY) or rows.get("attention/cublas")


def attention_gain(rows: Mapping[str, Row]) -> str:
    """Returns sentences that compare flash attention with the fastest rung that stores S and P, and with the library. If it
    is slower, they say why. `rows`: by rung name, of one device. "" without flash attention."""
    if not (flash := fastest_of(rows, FLASH)):
        return ""
    sentences, name = [], capitalized(title(flash))
    if square := fastest_of(rows, *SQUARE):
        sentences.append(_compared(name, flash, square))
        if not within_spread(flash, square) and flash["median_ms"] > square["median_ms"]:
            sentences.append(_explain_loss(flash, square))
    library = library_row(rows)
    if library and library is not square:
        sentences.append(_against_library(name, flash, library))
    return " ".join(sentences)


def _against_library(name: str, flash: Row, library: Row) -> str:
    ratio = library["median_ms"] / flash["median_ms"]
    if ratio < 1:
        return tr(
            "{name} reaches {share} of the speed of {library}.",
            name=name,
            share=units.share(ratio),
            library=title(library),
        )
    return tr("{name} is {ratio}× as fast as {library}.", name=name, ratio=units.ratio(ratio), library=title(library))


def _compared(name: str, row: Row, square: Row) -> str:
    """Returns how fast flash attention is compared with the fastest kernel that stores S and P."""
    other, ratio = title(square), square["median_ms"] / row["median_ms"]
    if within_spread(row, square):
        return tr(
            "{name} and {other} do not differ measurably: their spreads overlap. {other} is the fastest kernel that stores S and P.",
            name=name,
            other=other,
        )
    if ratio > 1:
        return tr(
            "{name} is {ratio}× as fast as {other}, the fastest kernel that stores S and P.",
            name=name,
            ratio=units.ratio(ratio),
            other=other,
        )
    return tr(
        "{name} is slower here: {ratio}× the time of {other}, the fastest kernel that stores S and P.",
        name=name,
        ratio=units.ratio(1 / ratio),
        other=other,
    )


def _explain_loss(flash: Row, square: Row) -> str:
    """Returns what flash attention can save at most here, and what its tiles cost."""
    s = AttentionShape(**flash["shape"])
    square_bytes, ceilings = squares(s), flash.get("ceilings") or {}
    taken = units.bytes_(square_bytes)
    if square_bytes <= ceilings.get("cache_bytes", 0):
        text = tr(
            "S and P take {bytes} and fit in the cache of {cache}. They need not reach memory, so flash attention saves little.",
            bytes=taken,
            cache=units.bytes_(ceilings["cache_bytes"]),
        )
    elif ceilings and square.get("predicted_bytes"):
        ms = (square["predicted_bytes"] - flash["predicted_bytes"]) / ceilings["copy_bytes_per_s"] * 1e3
        text = tr(
            "S and P take {bytes}. At the speed of a copy, moving them takes {time}: {share} of the time of {other}. Flash attention can save no "
            "more.",
            bytes=taken,
            time=units.time_(ms),
            share=units.share(ms / square["median_ms"]),
            other=title(square),
        )
    else:
        text = tr("S and P take {bytes}.", bytes=taken)
    return f"{text} {_tiles_cost(flash, s)}"


def _tiles_cost(flash: Row, s: AttentionShape) -> str:
    tiles = flash["tiles"]
    if flash["engine"] == "cpu":
        return trn(
            "On the processor each tile costs several NumPy calls. If no key is hidden, there is {n} tile of {Br} × {Bc} scores.",
            "On the processor each tile costs several NumPy calls. If no key is hidden, there are {n} tiles of {Br} × {Bc} scores.",
            s.heads * ceil(s.N, tiles["Br"]) * ceil(s.N, tiles["Bc"]),
            Br=tiles["Br"],
            Bc=tiles["Bc"],
        )
    blocks = prod(find(flash["rung"]).build(s, tiles).launch().grid)
    tiles_of_keys = ceil(s.N, tiles["Bc"])
    runs = trn("Flash attention runs {n} block.", "Flash attention runs {n} blocks.", blocks)
    loop = trn(
        "A block has {n} tile of keys.",
        "A block has up to {n} tiles of keys, one after the other. It rescales its sums after each tile.",
        tiles_of_keys,
    )
    return f"{runs} {loop}"


@cached(1)
def attention_examples() -> list[tuple[Preset, str]]:
    """Returns (preset, text) of the largest and the smallest speedup of flash attention over the fastest rung with S and P.
    It uses the cold recordings at the default tile sizes."""

    def gained(s: AttentionShape) -> float | None:
        rows = recorded_at(s, [rung.name for rung in LADDERS["attention"].rungs])
        flash, square = fastest_of(rows, FLASH), fastest_of(rows, *SQUARE)
        return square["median_ms"] / flash["median_ms"] if flash and square else None

    return extremes(gained, presets=ATTENTION_PRESETS)


def notes_of(selected: SelectedRung) -> LadderNotes:
    """Returns the sentences of the lesson, with the tile sizes of the page's kernel."""
    return LadderNotes(
        partial(attention_cost, selected=selected),
        attention_gain,
        attention_examples,
        mark("Speed-up of flash attention over storing S and P, recorded:"),
    )
