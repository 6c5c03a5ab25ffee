"""Tables of counts for the lesson on threads and memory, each with a sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from kernels.i18n import decimal, tr, trn
from kernels.ladders import LADDERS
from kernels.memory.shape import SECTOR, BanksShape, BranchShape, MemoryShape, StrideShape
from kernels.model.row import Json
from kernels.runner import run
from visuals import units
from visuals.charts.bars import bar_line

STRIDES = (1, 2, 3, 4, 8, 16, 32)


@dataclass(frozen=True)
class CountTable:
    """A table of the emulator's counts: one column per name, one line per (name, counts), and sentences on it.

    `bars` are the counts that the first sentence compares: title and count, drawn above the table."""

    columns: Sequence[str]
    lines: Sequence[tuple[str, Sequence[str]]]
    sentences: Sequence[str]  # the first is the conclusion
    bars: Sequence[tuple[str, int]]

    def bars_html(self) -> str:
        """Returns the HTML of the badge and the bars, without bars if all are as long."""
        badge = units.badge("counted", tr("by the emulator, like Nsight Compute"))
        most = max(count for _, count in self.bars)
        drawn = "".join(bar_line(title, count / most, _count(count)) for title, count in self.bars)
        differ = any(count < most for _, count in self.bars)
        return f'<p class="kt-figures">{badge}</p>' + (f'<dl class="kt-bars">{drawn}</dl>' if differ else "")

    def table_html(self) -> str:
        head = "".join(f'<th scope="col">{escape(name)}</th>' for name in ("", *self.columns))
        lines = "".join(
            f'<tr><th scope="row">{escape(name)}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in cells)}</tr>'
            for name, cells in self.lines
        )
        name = escape(tr("Counted"))
        return (
            f'<div class="kt-scroll" tabindex="0" role="region" aria-label="{name}">'
            f'<table class="kt-table kt-shares"><tr>{head}</tr>{lines}</table></div>'
        )


def _totals(rung: str, shape: MemoryShape, tiles: Mapping[str, int] | None = None) -> Json:
    return run(rung, shape, engine="emulator", tiles=tiles).counted.total


def mappings(ladder: str, shape: MemoryShape, tiles: Mapping[str, int]) -> CountTable:
    """Returns the sectors of every rung of a ladder at one shape: the same elements, accessed by different lanes."""
    lines, sectors_of = [], {}
    minimum = -(-4 * shape.macs // SECTOR) * (3 if ladder == "add" else 2)
    for rung in LADDERS[ladder].rungs:
        counts = _totals(rung.name, shape, {name: v for name, v in tiles.items() if name in rung.tiles})
        ld, st = counts["sectors_ld"], counts["sectors_st"]
        sectors_of[tr(rung.title)] = ld + st
        lines.append((tr(rung.title), [_count(ld), _count(st), f"{units.ratio((ld + st) / minimum)} ×"]))
    (best, fewest), (worst, highest) = (pick(sectors_of.items(), key=lambda item: item[1]) for pick in (min, max))
    filled = trn("The floats fill {n} sector (32 bytes).", "The floats fill {n} sectors (32 bytes each).", minimum)
    if fewest == highest:
        sentences = [
            tr("At this size each kernel requests {count} sectors.", count=_count(highest)),
            filled,
            tr("The kernels differ in which accesses are scattered: the reads or the writes."),
        ]
    else:
        sentences = [
            tr(
                "“{worst}” requests {most} sectors, “{best}” requests {fewest}.",
                worst=worst,
                most=_count(highest),
                best=best,
                fewest=_count(fewest),
            ),
            filled,
            tr("A sector is requested more than once if its floats belong to different warps."),
            tr("It is read from memory again if no cache still holds it."),
        ]
    columns = tr("sectors read"), tr("sectors written"), tr("relative to the minimum")
    return CountTable(columns, lines, sentences, list(sectors_of.items()))


def _count(number: int) -> str:
    return decimal(f"{number:,}")


def strides(stride: int) -> CountTable:
    """Returns the sectors of one warp of stride/copy at several strides, including the scene's."""
    lines, bars = [], []
    for s in sorted({*STRIDES, stride}):
        read = _totals("stride/copy", StrideShape(32, s))["sectors_ld"]
        bars.append((tr("stride {stride}", stride=s), read))
        lines.append(
            (
                tr("stride {stride}", stride=s),
                [f"{read}", units.bytes_(SECTOR * read), decimal(f"{100 * 128 / (SECTOR * read):.3g} %")],
            )
        )
    read = _totals("stride/copy", StrideShape(32, stride))["sectors_ld"]
    sentences = (
        tr("At stride {stride} the 32 floats of a warp are in {count} sectors.", stride=stride, count=read),
        tr("From stride 8 on each lane needs a sector of its own, so the count stays at 32."),
        tr("Larger strides can still be slower, because memory outside the SM works with longer pieces than a sector."),
    )
    columns = tr("sectors per load"), tr("fetched"), tr("share used")
    return CountTable(columns, lines, sentences, bars)


def banks(stride: int) -> CountTable:
    """Returns the wavefronts of one read of banks/ at several strides, without and with padding."""
    lines, wavefronts = [], {}
    for s in sorted({*STRIDES, 5, 12, stride}):
        for rung in ("banks/plain", "banks/padded"):
            counts = _totals(rung, BanksShape(32, s))
            wavefronts[s, rung] = counts["wavefronts_ld"] // counts["shared_requests_ld"]
        lines.append(
            (tr("stride {stride}", stride=s), [f"{wavefronts[s, 'banks/plain']}", f"{wavefronts[s, 'banks/padded']}"])
        )
    plain, padded = wavefronts[stride, "banks/plain"], wavefronts[stride, "banks/padded"]
    sentences = (
        trn(
            "At stride {stride} a read takes {n} pass without padding.",
            "At stride {stride} a read takes {n} passes without padding.",
            plain,
            stride=stride,
        ),
        trn("With padding it takes {n} pass.", "With padding it takes {n} passes.", padded),
        tr("Padding helps here.")
        if padded < plain
        else tr("Padding makes it worse here, because words of different rows now share a bank.")
        if padded > plain
        else tr("Padding changes nothing here."),
    )
    columns = tr("passes, 32 words per row"), tr("passes, 33 words per row")
    return CountTable(columns, lines, sentences, list(zip(columns, (plain, padded), strict=True)))


def branches(rounds: int) -> CountTable:
    """Returns the multiply-add instructions of two warps, and the share of their lanes that is active, by rung."""
    lines, instructions = [], {}
    for rung in LADDERS["branch"].rungs:
        result = run(rung.name, BranchShape(64, rounds), engine="emulator", tiles={"BLOCK": 64})
        total = result.counted.total
        divergent = total["divergent_branches"]
        instructions[rung.name] = total["warp_instructions"]
        active = total["thread_instructions"] / (32 * total["warp_instructions"])
        lines.append((tr(rung.title), [_count(total["warp_instructions"]), f"{divergent}", units.share(active)]))
    sentences = (
        tr("Lanes that disagree cost a warp both branches."),
        tr("With one branch per warp no branch is divergent, but the index takes more instructions."),
        tr("The more rounds a branch has, the more this saves: in the limit half of the instructions."),
    )
    columns = tr("instructions of two warps"), tr("divergent branches"), tr("lanes active")
    bars = [(tr(rung.title), instructions[rung.name]) for rung in LADDERS["branch"].rungs]
    return CountTable(columns, lines, sentences, bars)
