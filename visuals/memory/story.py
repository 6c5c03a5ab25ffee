"""Tables of counts for the lesson on threads and memory, each with a sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from kernels.ladders import LADDERS
from kernels.memory.shape import SECTOR, BanksShape, MemoryShape, StrideShape
from kernels.runner import run
from visuals.charts import units

STRIDES = (1, 2, 3, 4, 8, 16, 32)


@dataclass(frozen=True)
class CountTable:
    """A table of the emulator's counts: one column per name, one line per (name, counts), and a sentence on it."""

    columns: Sequence[str]
    lines: Sequence[tuple[str, Sequence[str]]]
    sentence: str

    def html(self) -> str:
        head = "".join(f'<th scope="col">{escape(name)}</th>' for name in ("", *self.columns))
        lines = "".join(
            f'<tr><th scope="row">{escape(name)}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in cells)}</tr>'
            for name, cells in self.lines
        )
        badge = units.badge("counted", "by the emulator, as Nsight Compute counts")
        return (
            f'<p class="kt-figures">{badge}</p><div class="kt-scroll" tabindex="0" role="region" aria-label="Counted">'
            f'<table class="kt-table kt-shares"><tr>{head}</tr>{lines}</table></div><p class="kt-why">{escape(self.sentence)}</p>'
        )


def _totals(rung: str, shape: MemoryShape, tiles: Mapping[str, int] | None = None) -> dict[str, Any]:
    return run(rung, shape, engine="emulator", tiles=tiles).counters.total


def mappings(ladder: str, shape: MemoryShape, tiles: Mapping[str, int]) -> CountTable:
    """Returns the sectors of every rung of a ladder at one shape: the same elements, accessed by different lanes."""
    lines, sectors_of = [], {}
    minimum = -(-4 * shape.elements // SECTOR) * (3 if ladder == "add" else 2)
    for rung in LADDERS[ladder].rungs:
        counts = _totals(rung.name, shape, {name: v for name, v in tiles.items() if name in rung.tiles})
        ld, st = counts["sectors_ld"], counts["sectors_st"]
        sectors_of[rung.title] = ld + st
        lines.append((rung.title, [f"{ld:,}", f"{st:,}", f"{(ld + st) / minimum:.3g} ×"]))
    (best, fewest), (worst, highest) = (
        pick(sectors_of.items(), key=lambda item: item[1]) for pick in (min, max)
    )
    says = f"The floats lie in {minimum:,} sectors of 32 bytes. "
    if fewest == highest:
        says += f"Each rung asks for {highest:,} at this size; which side is scattered differs."
    else:
        says += (
            f"“{worst}” asks for {highest:,}, “{best}” for {fewest:,}: a sector is asked for again where its floats went to "
            "different warps, and comes from memory again where no cache has kept it."
        )
    return CountTable(("sectors read", "sectors written", "of the fewest"), lines, says)


def strides(stride: int) -> CountTable:
    """Returns the sectors of one warp of stride/copy at several strides, including the scene's."""
    lines = []
    for s in sorted({*STRIDES, stride}):
        read = _totals("stride/copy", StrideShape(32, s))["sectors_ld"]
        lines.append(
            (
                f"stride {s}",
                [f"{read}", units.bytes_(SECTOR * read), f"{100 * 128 / (SECTOR * read):.3g} %"],
            )
        )
    read = _totals("stride/copy", StrideShape(32, stride))["sectors_ld"]
    says = (
        f"At stride {stride} the 32 floats of a warp lie in {read} sectors. From stride 8 on each lane has one to itself, "
        "and it gets no worse: what still slows a larger stride lies behind the SM, where memory works in longer pieces."
    )
    return CountTable(("sectors a load", "fetched", "of it used"), lines, says)


def banks(stride: int) -> CountTable:
    """Returns the wavefronts of one read of banks/ at several strides, without and with padding."""
    lines, wavefronts = [], {}
    for s in sorted({*STRIDES, 5, 12, stride}):
        for rung in ("banks/plain", "banks/padded"):
            counts = _totals(rung, BanksShape(32, s))
            wavefronts[s, rung] = counts["wavefronts_ld"] // counts["shared_requests_ld"]
        lines.append((f"stride {s}", [f"{wavefronts[s, 'banks/plain']}", f"{wavefronts[s, 'banks/padded']}"]))
    plain, padded = wavefronts[stride, "banks/plain"], wavefronts[stride, "banks/padded"]
    advice = (
        "Padding is the cure here."
        if padded < plain
        else "Padding does harm here: the rows now lean into each other's banks."
        if padded > plain
        else "Padding changes nothing here."
    )
    says = (
        f"At stride {stride} a read takes {plain} pass{'es' * (plain > 1)}, with padding {padded}. {advice}"
    )
    return CountTable(("passes, rows of 32", "passes, rows of 33"), lines, says)
