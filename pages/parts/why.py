"""Why: predicted, counted and measured figures of every rung, side by side, and downloads."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from html import escape

import streamlit as st

from kernels.engines.emulator.counters import PTX_PER_MACHINE
from kernels.i18n import decimal, mark, tr
from kernels.jobs.counts import Count
from kernels.ladders import find, ladder_of
from kernels.model.preset import Preset
from kernels.model.row import Row
from kernels.model.rung import Cost, Rung
from kernels.model.shape import Shape
from kernels.records.jsontext import id_of
from kernels.records.rows import to_csv
from pages.parts import counts, lesson
from pages.parts.live import live
from pages.parts.run_settings import CardRows, RunSettings, bars
from pages.parts.save import File, save_buttons
from pages.parts.sizes import Shown
from pages.parts.text import card_title, conclusion, details, paragraph
from visuals import units
from visuals.charts import bandwidth, conclusions, roofline, sweeps
from visuals.charts.bars import bar_line, pieces_note
from visuals.charts.ladder_notes import LadderNotes, fastest_library

SHARED = {  # if a rung uses it: a wavefront accesses the 32 banks once, up to 128 bytes
    mark("wavefronts that read shared memory"): "wavefronts_ld",
    mark("wavefronts that write shared memory"): "wavefronts_st",
}
MAX_COLUMNS = 5  # of rungs: more are drawn as lines


def card(shown: Shown, current: CardRows, ladder_notes: LadderNotes, link: Callable[[Preset, str], None]) -> None:
    settings, name = shown
    rungs = counts.countable(settings)
    request = counts.request_counts(settings, rungs)

    def figures() -> str:
        return _figures(settings, current, name, request)

    watch = None if st.session_state.get("job") else counts.watched(request, settings, rungs)
    if watch and request:
        request.views["why"] = figures
    live(figures(), "why_figures", "why", watch, alone="watch" not in lesson.parts())
    with st.container(key="chips_why", horizontal=True):
        if examples := ladder_notes.examples():
            st.html(paragraph(tr(ladder_notes.examples_label)))
        for preset, text in examples:
            link(preset, text)
    downloads(settings)


def _figures(settings: RunSettings, current: CardRows, name: str, request: counts.CountRequest | None) -> str:
    """Returns HTML: the conclusion, the bytes that each rung moves as bars, and folded the table."""
    head = card_title(tr("Why"), name)
    titled_rows = bars(settings, {} if current.stale else current.rows)
    notes = paragraph(pieces_note(titled_rows))
    pieces = head, _traffic(settings), details(f"<div>{_table(settings, current, request)}</div>", notes)
    return f'<div class="kt-stack">{"".join(pieces)}</div>'


def _traffic(settings: RunSettings) -> str:
    """Returns HTML: the bytes that each rung requests from global memory as counted, else those it must move."""
    ours = [r for r in counts.countable(settings) if not r.library]
    counted = [(tr(r.title), count) for r in ours if (count := moved(settings, r))]
    if counted and len(counted) == len(ours):
        text, kind, detail = (
            conclusions.of_traffic(counted, conclusions.REQUESTED),
            "counted",
            tr("32-byte sectors of global memory"),
        )
    else:
        known = (r for r in settings.supported_rungs() if cost(settings, r).moved_bytes)
        counted = [(tr(r.title), must_move(settings, r)) for r in known]
        if not counted:
            return ""
        text, kind = conclusions.of_traffic(counted, conclusions.MOVED), "predicted"
        text = " ".join(filter(None, (text, _limit(settings))))
        detail = tr("each launch moves each of its tensors once; one that stays in the L2 cache does not move again")
    badge = f'<p class="kt-figures">{units.badge(kind, detail)}</p>'
    most = max(count for _, count in counted)
    if min(count for _, count in counted) == most:  # bars would show no more
        return conclusion(text) + badge
    lines_ = "".join(bar_line(title, count / most, units.bytes_(count)) for title, count in counted)
    return f'{conclusion(text)}{badge}<dl class="kt-bars">{lines_}</dl>'


def _limit(settings: RunSettings) -> str:
    """Returns what limits all rungs at their predicted FLOP/byte; "" if it is not the same for all, or without a roof."""
    rungs = settings.supported_rungs()
    fp32 = not any(roofline.other_units(rung.name, settings.shape.params()) for rung in rungs)
    pairs = [(cost(settings, rung).flops, must_move(settings, rung)) for rung in rungs]
    intensities = [flops / moved for flops, moved in pairs if flops and moved]
    roof = next(
        iter(roofline.roofs(((row, "recorded") for row in settings.recorded().values()), settings.ladder.name)), None
    )
    return conclusions.of_limit(intensities, roof, fp32) if roof and intensities else ""


def downloads(settings: RunSettings) -> None:
    ran = st.session_state.get("ran")
    rows = [*(ran.rows.values() if ran else ()), *settings.recorded().values()]
    if not rows:
        return
    with st.container(key="downloads", horizontal=True):
        csv = File("CSV", "kernel-theatre.csv", "text/csv", to_csv(rows))
        save_buttons(
            (csv, File("JSON", "kernel-theatre.json", "application/json", json.dumps(rows, indent=1))), "files"
        )
        if ran:
            ids = [id_of(row) for row in ran.rows.values()][:2]
            query: dict[str, str] = dict(zip(("run", "against"), ids, strict=False))
            st.page_link("history/page.py", label=tr("in the history"), query_params=query)


def cost(settings: RunSettings, rung: Rung) -> Cost:
    """Returns the predicted cost of a rung at this shape."""
    return _cost(rung.name, settings.shape, tuple(settings.tiles_of(rung).items()))


def must_move(settings: RunSettings, rung: Rung) -> int:
    """Returns the bytes that a rung must move through memory at this shape, on the card that its ladder is shown from."""
    roof = next(iter(roofline.roofs((), settings.ladder.name)), None)
    cache_bytes = roof.ceilings.get("cache_bytes", 0) if roof else 0
    return _must_move(rung.name, settings.shape, tuple(settings.tiles_of(rung).items()), cache_bytes)


@lru_cache(maxsize=1024)
def _must_move(name: str, shape: Shape, tiles: tuple[tuple[str, int], ...], cache_bytes: int) -> int:
    return bandwidth.must_move(find(name), shape, dict(tiles), cache_bytes)


@lru_cache(maxsize=1024)
def _cost(name: str, shape: Shape, tiles: tuple[tuple[str, int], ...]) -> Cost:
    rung = find(name)
    return rung.cost(shape, rung.build(shape, dict(tiles)))


Lines = Mapping[str, Sequence[str]]  # a figure's name: its cells, one per rung


def _table(settings: RunSettings, current: CardRows, request: counts.CountRequest | None) -> str:
    """Returns the HTML of predicted, counted and measured figures: a column per rung, or a line if there are many."""
    supported = settings.supported_rungs()
    costs = [cost(settings, r) for r in supported]
    as_defined = all(c.flops == settings.shape.flops for c in costs)
    flops = tr("FLOPs of {work}", work=tr(settings.ladder.work)) if as_defined else tr("FLOPs executed")
    moved_ = [c.moved_bytes and must_move(settings, r) for r, c in zip(supported, costs, strict=True)]
    predicted = {
        flops: [units.count(c.flops if as_defined else c.executed_flops) for c in costs],
        tr("bytes that must move through memory"): [units.bytes_(n) for n in moved_],
        tr("FLOP/byte"): [units.ratio(n and c.flops / n) for n, c in zip(moved_, costs, strict=True)],
        tr("workspace"): [units.bytes_(c.workspace_bytes) for c in costs],
    }
    engine = next(iter(current.rows.values()))["engine"] if current.rows else settings.engine
    counted = units.badge("counted", tr("sectors of 32 bytes, as in Nsight Compute"))
    parts: list[tuple[str, Lines | str]] = [
        (units.badge("predicted"), predicted),
        (counted, _counted(settings, supported, request)),
    ]
    if current.rows and not current.stale:
        first = next(iter(current.rows.values()))
        when = f", {first['date']}" if current.kind == "recorded" else ""
        badge = units.badge(current.kind, sweeps.provenance(list(current.rows.values())) + when)
        library = fastest_library(current.rows.values())
        parts.append((badge, _measured([current.rows.get(r.name) for r in supported], first, library)))
    titles = [escape(r.title_on(engine) if engine in r.engines else tr(r.title)) for r in supported]
    return (_columns if len(supported) <= MAX_COLUMNS else lines)(titles, parts)


def _columns(titles: Sequence[str], parts: Sequence[tuple[str, Lines | str]]) -> str:
    """Returns the HTML of one table, a column per rung. A part that is a string explains why it has no figures."""
    span, text = f'colspan="{len(titles) + 1}"', ""
    for n, (badge, part) in enumerate(parts):
        heads = "".join(f"<th>{title}</th>" for title in titles)
        text += f"<tr><th>{badge}</th>{heads}</tr>" if n == 0 else f"<tr><th {span}>{badge}</th></tr>"
        if isinstance(part, str):
            text += f'<tr><td {span} role="status">{escape(part)}</td></tr>'
            continue
        for name, cells in part.items():
            text += f"<tr><td>{name}</td>{_cells(cells)}</tr>"
    return _scrolled(tr("Predicted, counted and measured"), "", text)


def lines(titles: Sequence[str], parts: Sequence[tuple[str, Lines | str]]) -> str:
    """Returns the HTML of a table for each part, a line per rung. Rungs with equal cells share a line."""
    text = ""
    for badge, part in parts:
        text += f'<p class="kt-figures">{badge}</p>'
        if isinstance(part, str):
            text += f'<p class="kt-quiet" role="status">{escape(part)}</p>'
            continue
        same: dict[tuple[str, ...], list[str]] = {}
        for title, cells in zip(titles, zip(*part.values(), strict=True), strict=True):
            same.setdefault(cells, []).append(title)
        body = "".join(
            f'<tr><th scope="row">{_together(of, len(titles))}</th>{_cells(cells)}</tr>' for cells, of in same.items()
        )
        heads = "".join(f'<th scope="col">{name}</th>' for name in part)
        text += _scrolled(badge.partition(">")[2].partition("<")[0], " kt-shares", f"<tr><td></td>{heads}</tr>{body}")
    return text


def _together(titles: Sequence[str], all_: int) -> str:
    return tr("all {n} kernels", n=all_) if len(titles) == all_ else "; ".join(titles)


def _cells(cells: Sequence[str]) -> str:
    return "".join(f"<td>{cell}</td>" for cell in cells)


def _scrolled(label: str, kind: str, rows: str) -> str:
    return f'<div class="kt-scroll" tabindex="0" role="region" aria-label="{label}"><table class="kt-table{kind}">{rows}</table></div>'


def _measured(rows: Sequence[Row | None], first: Row, library: Row | None) -> dict[str, list[str]]:
    """Returns the measured figures of each rung; a rung whose row is None has "–".

    Shares refer only to rows of the same measurement, among them `library`.
    """
    roof = roofline.roof_of(first, "measured")
    as_defined = roofline.as_defined(r for r in rows if r)
    work = tr(ladder_of(first["rung"]).work)
    # A line's name, its text for a row, and whether it depends on what a library does inside.
    figures: list[tuple[str, Callable[[Row], str], bool]] = [
        (tr("workspace"), lambda r: units.bytes_(r["workspace_bytes"]), False),
        (
            tr("effective rate: FLOPs of {work} ÷ time", work=work),
            lambda r: units.rate(roofline.defined_flops(r), r["median_ms"]),
            False,
        ),
        (tr("relative L2 error"), lambda r: decimal(f"{r['error']:.1e}"), False),
    ]
    if not as_defined:
        name = tr("actual rate: FLOPs executed ÷ time")
        figures.insert(2, (name, lambda r: units.rate(r["flops"], r["median_ms"]), True))
    if library:
        name = tr("speed, relative to the fastest library")
        figures.append((name, lambda r: units.share(library["median_ms"] / r["median_ms"]), False))
    if roof:
        flops, copy = units.rate(roof.flops_per_s, 1e3), units.bandwidth(roof.bytes_per_s)
        name = (
            tr("effective rate ÷ FP32 peak ({peak})", peak=flops)
            if as_defined
            else tr("actual rate ÷ FP32 peak ({peak})", peak=flops)
        )
        of_bandwidth = tr("bytes that must move ÷ time ÷ peak bandwidth ({peak})", peak=copy)
        figures += [
            (name, lambda r: units.share(r["flops"] / r["median_ms"] * 1e3 / roof.flops_per_s), not as_defined),
            (of_bandwidth, _of_bandwidth, True),
        ]

    def cell(text: Callable[[Row], str], depends: bool, row: Row | None) -> str:
        if row is None:
            return "–"
        return tr(units.UNKNOWN) if depends and roofline.is_opaque(row) else text(row)

    return {name: [cell(text, depends, row) for row in rows] for name, text, depends in figures}


def _of_bandwidth(row: Row) -> str:
    share = bandwidth.share(row)
    return "–" if share is None else units.share(share)


def moved(settings: RunSettings, rung: Rung) -> int | None:
    """Returns the bytes of the sectors that a rung's warps read and write; None if the emulator has not counted them all."""
    count = None if rung.library else counts.known(settings, rung)
    return None if count is None else int(roofline.SECTOR * (count.total["sectors_ld"] + count.total["sectors_st"]))


def _counted(settings: RunSettings, supported: Sequence[Rung], request: counts.CountRequest | None) -> Lines | str:
    """Returns the figures that the emulator counted, or the reason why there are none."""
    rungs = counts.countable(settings)
    got = {r.name: count for r in rungs if (count := counts.known(settings, r))}
    if len(got) < len(rungs):
        return request.status if request else counts.too_large(settings)

    def cell(count: Count | None, name: str) -> str:
        if count is None:
            return tr("library")
        number = units.count(count.total[name])
        return tr("{n} + library", n=number) if count.uncounted else number

    def row(name: str) -> list[str]:
        return [cell(got.get(r.name), name) for r in supported]

    low, high = PTX_PER_MACHINE
    shared = {label: name for label, name in SHARED.items() if any(c.total[name] for c in got.values())}
    instructions = tr(
        "warp instructions (PTX; {low} to {high} per machine instruction)",
        low=decimal(f"{low}"),
        high=decimal(f"{high}"),
    )
    return {
        tr("sectors read"): row("sectors_ld"),
        tr("sectors written"): row("sectors_st"),
        **{tr(label): row(name) for label, name in shared.items()},
        instructions: row("warp_instructions"),
    }
