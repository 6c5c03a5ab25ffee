"""The cards Time, Memory and Roofline: charts of measured rows and sentences about them."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING

import streamlit as st

from kernels import i18n, records
from kernels.i18n import tr, trn
from kernels.ladders import find
from kernels.model.row import Row
from kernels.model.rung import Ladder, Rung
from kernels.records import availability
from kernels.records.jsontext import id_of
from kernels.records.nearest import Match
from pages.parts import gpu_choice
from pages.parts import why as why_card
from pages.parts.lesson import deferred_loaded
from pages.parts.run_settings import CardRows, RunSettings, bars
from pages.parts.text import card_title, conclusion, details, legend, paragraph, stale_mark, together
from pages.parts.theme import tokens
from visuals import units
from visuals.charts import bars as bar_charts
from visuals.charts import conclusions, on_gpus, roofline, sweeps
from visuals.charts.ladder_notes import LadderNotes, device_comparison, shares

if TYPE_CHECKING:  # with them comes Plotly
    from plotly.graph_objects import Figure

    from visuals.charts.plain_figure import PlainFigure

LEGEND_CHARS = 90  # a longer legend is folded


def sentence(text: str) -> None:
    if text:
        st.html(paragraph(text, "why"))


def _quiet_html(text: str) -> str:
    return f'<p class="kt-quiet">{text}</p>'


@dataclass(frozen=True)
class _FigureSpec:
    """The cache key of a figure: its data and colours; and the function that draws it."""

    key: str
    data_key: Hashable
    colours: Hashable
    draw: Callable[[], Figure | PlainFigure] = field(compare=False)


def chart(draw: Callable[[], Figure | PlainFigure], height: int, key: str, data_key: Hashable) -> None:
    """Shows a figure. It is drawn once per `data_key`, so polling a run redraws nothing."""
    if not deferred_loaded():
        st.container(height=height, border=False, key=f"{key}_wait")
        return
    figure = _cached_figure(_FigureSpec(key, data_key, tuple(tokens().items()), draw))
    st.plotly_chart(figure, key=key, theme=None, config={"displayModeBar": False})


@i18n.cached(128)
def _cached_figure(spec: _FigureSpec) -> PlainFigure:
    from visuals.charts.plain_figure import PlainFigure  # with it comes Plotly

    figure = spec.draw()
    return figure if isinstance(figure, PlainFigure) else PlainFigure(figure.to_plotly_json())


def _ids(titled_rows: list[tuple[str, Row]]) -> tuple[str, ...]:
    return tuple(id_of(row) for _, row in titled_rows)


def _no_recording(ladder: Ladder) -> str:
    if records.shown(ladder.name):
        return tr("No recording exists for this shape with these options. Most presets above have one.")
    return tr("These kernels have no recording from a GPU yet. A run on a GPU measures them.")


# -- time ----------------------------------------------------------------------------------------
def times(settings: RunSettings, ladder_notes: LadderNotes) -> None:
    """Draws the times measured here and the recorded ones, or the nearest recorded ones."""
    ran = st.session_state.get("ran")
    if ran:
        stale = "" if ran.settings == settings else str(ran.settings)
        _times(settings, ran.rows, "measured", ladder_notes, stale, ran.ago)
    gpu_choice.control(settings.ladder.name)
    recorded, nearest, pieces = settings.recorded(), settings.nearest(), []
    if recorded:
        _times(settings, recorded, "recorded", ladder_notes)
        pieces.append(by_gpu(settings))
        pieces += _other_settings(settings, nearest)
    elif nearest:
        _nearest(settings, nearest)
    else:
        pieces.append(paragraph(_no_recording(settings.ladder)))
    if ran and ran.settings == settings:
        text = device_comparison(bars(settings, ran.rows), bars(settings, recorded))
        pieces.insert(0, paragraph(text, "why"))
    together(*pieces, excluded_by_rules(settings), refused(settings))


def by_gpu(settings: RunSettings) -> str:
    """Returns HTML: the kernel on the stage on each card in a sentence, folded a table of all; "" with one card."""
    of_ladder = records.gpus_of(settings.ladder.name)
    if len(of_ladder) < 2:
        return ""
    first = records.shown(settings.ladder.name)
    in_order = [first, *(card for card in of_ladder if card != first)]
    found = on_gpus.rows(settings.ladder, settings.shape, settings.tiles_of, settings.timing, in_order)
    rung = settings.ladder.rung(settings.tiles_rung) if settings.tiles_rung else None
    sentence = on_gpus.sentence(rung, found.get(rung.name, {}), in_order) if rung else ""
    how = tr(
        "Percent: the rate, relative to the roof that the peaks measured on the same GPU allow. "
        "Each GPU was measured in runs of its own."
    )
    table = on_gpus.table(settings.ladder, found, in_order, settings.shape)
    return paragraph(sentence, "why") + details(table, paragraph(how), label=tr("The same kernels on each GPU"))


def excluded_by_rules(settings: RunSettings) -> str:
    """Returns HTML: how many rungs cannot run at this shape and have no recording, folded their titles by rule.

    Returns "" if there are none.
    """
    titles_by_rules: dict[str, list[str]] = {}
    for rung in settings.ladder.rungs:
        if rung.name in settings.recorded():
            continue
        if rules := list(availability.reasons(rung, settings.shape, settings.tiles_of(rung))):
            titles_by_rules.setdefault("; ".join(rule.partition(", got ")[0] for rule in rules), []).append(
                _short_title(settings, rung)
            )
    n = sum(map(len, titles_by_rules.values()))
    label = trn("{n} kernel cannot run with these settings", "{n} kernels cannot run with these settings", n)
    return details(*_by_reason(titles_by_rules), label=label)


def refused(settings: RunSettings) -> str:
    """Returns HTML: how many rungs this machine's GPU or libraries cannot run, folded their titles by reason; "" if
    none."""
    titles_by_reason: dict[str, list[str]] = {}
    for rung in settings.supported_rungs():
        if why := settings.refusals().get(rung.name):
            titles_by_reason.setdefault(why, []).append(_short_title(settings, rung))
    n = sum(map(len, titles_by_reason.values()))
    label = trn("{n} kernel cannot run on this machine", "{n} kernels cannot run on this machine", n)
    return details(*_by_reason(titles_by_reason), label=label)


def _by_reason(titles: Mapping[str, list[str]]) -> list[str]:
    return [paragraph(f"{', '.join(of)}: {reason}") for reason, of in titles.items()]


def _short_title(settings: RunSettings, rung: Rung) -> str:
    """Returns the first part of the rung's title if no other title begins with it, else the whole title."""
    title, titles = tr(rung.title), [tr(other.title) for other in settings.ladder.rungs]
    head = re.split(r"[:,]| or ", title)[0]
    return head if sum(other.startswith(head) for other in titles) == 1 else title


def _times(
    settings: RunSettings, rows: Mapping[str, Row], kind: str, ladder_notes: LadderNotes, stale: str = "", ago: str = ""
) -> None:
    titled_rows = bars(settings, rows)
    first = titled_rows[0][1]
    when = f", {units.days(row for _, row in titled_rows)}" if kind == "recorded" else ago
    badge = units.badge(kind, sweeps.provenance([row for _, row in titled_rows]) + when)
    if stale:
        together(f'<p class="kt-figures">{badge} {stale_mark(stale)}</p>')
    else:
        together(conclusion(conclusions.of_times(titled_rows)), f'<p class="kt-figures">{badge}</p>')
    with st.container(key=f"{'stale' if stale else 'fresh'}_{kind}"):
        _bars(titled_rows, kind)
        together(
            paragraph(_processor_note(titled_rows)),
            paragraph(units.disturbed_note(titled_rows)),
            details(
                paragraph(ladder_notes.gain(rows), "why"),
                *_notes(titled_rows),
                _shares(titled_rows),
                _limits(first),
                _copies(first, titled_rows),
            ),
        )


def _processor_note(titled_rows: list[tuple[str, Row]]) -> str:
    """Returns what times of the cpu engine do not show of kernels; "" for other rows."""
    row = titled_rows[0][1]
    if row["engine"] != "cpu" or "cuda" not in find(row["rung"]).engines:
        return ""
    return tr(
        "NumPy computed these on the CPU. Effects of a GPU, such as coalescing and bank conflicts, do not show here."
    )


def _bars(titled_rows: list[tuple[str, Row]], kind: str) -> None:
    chart(
        lambda: bar_charts.times(titled_rows, tokens()),
        bar_charts.times_px([row for _, row in titled_rows]),
        f"chart_times_{kind}",
        _ids(titled_rows),
    )


def _notes(titled_rows: list[tuple[str, Row]]) -> list[str]:
    """Returns HTML: the legend of the bars, and what to know of these times."""
    legend = tr("Bars are medians, dots are samples, whiskers are p20 to p80.")
    if bar_charts.launch_ms(titled_rows[0][1]):
        legend += f" ▬ {bar_charts.overhead_name(titled_rows[0][1])}."
    notes = (units.waits_note(titled_rows), units.clock_note(titled_rows), units.sweeps_note(titled_rows))
    return [paragraph(text) for text in (legend, *notes)]


def _nearest(settings: RunSettings, nearest: Mapping[str, Match]) -> None:
    """Draws the recordings of another shape, faded like stale ones, and names that shape."""
    titled_rows = bars(settings, {name: n.row for name, n in nearest.items()})
    first = nearest[titled_rows[0][1]["rung"]]
    badge = units.badge("recorded", f"{units.provenance(first.row)}, {first.row['date']}")
    not_here = tr("not this shape")
    other = f'<span class="kt-elsewhere">{not_here}</span>'
    caption = tr("the nearest: {caption}", caption=escape(first.caption))
    together(f'<p class="kt-figures">{badge} {other}, {caption}</p>')
    with st.container(key="stale_nearest"):
        together(conclusion(conclusions.of_times(titled_rows)))
        _bars(titled_rows, "nearest")
        together(details(*_notes(titled_rows)))


def _other_settings(settings: RunSettings, nearest: Mapping[str, Match]) -> list[str]:
    """Returns HTML on the rungs that were recorded only with other options: the one on the stage, folded the others."""
    shown, folded = [], []
    for title, row in bars(settings, {name: n.row for name, n in nearest.items()}):
        fields = {"time": units.time_(row["median_ms"]), "caption": nearest[row["rung"]].caption}
        badge = units.badge("recorded", f"{units.provenance(row)}, {row['date']}")
        if row["rung"] == settings.tiles_rung:
            text = tr(
                "No recording exists for {title} with these tile sizes. The nearest: {time}, {caption}.",
                title=units.named(title),
                **fields,
            )
            shown.append(_quiet_html(f"{escape(text)} {badge}"))
        else:
            text = tr("{title}: {time}, {caption}.", title=title, **fields)
            folded.append(_quiet_html(f"{escape(text)} {badge}"))
    label = trn(
        "{n} kernel was recorded only with other options",
        "{n} kernels were recorded only with other options",
        len(folded),
    )
    return [*shown, details(*folded, label=label)]


def _shares(titled_rows: list[tuple[str, Row]]) -> str:
    """Returns an HTML table of each rung's shares of the limits."""
    columns = shares(titled_rows)
    if not columns:
        return ""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in columns)
    lines = "".join(
        f'<tr><th scope="row">{escape(title)}</th>{"".join(f"<td>{cells[i]}</td>" for cells in columns.values())}</tr>'
        for i, (title, _) in enumerate(titled_rows)
    )
    name = tr("Shares")
    return (
        f'<div class="kt-scroll" tabindex="0" role="region" aria-label="{name}"><table class="kt-table kt-shares">'
        f"<tr><td></td>{head}</tr>{lines}</table></div>"
    )


def _limits(row: Row) -> str:
    """Returns HTML: what the columns of `_shares` compare with; "" if the limits were not measured."""
    ceilings = row.get("ceilings")
    if not ceilings:
        return ""
    texts = [
        tr("The roof is the rate that the measured peaks allow at the predicted FLOP/byte (card Roofline)."),
        tr(
            "The roof counts all bytes that a kernel moves, including repeated reads. So a kernel with wasted traffic can be "
            "near its roof and still be slow."
        ),
    ]
    fields = {"time": units.time_(ceilings["launch_us"] / 1e3), "n": ceilings.get("launch_n", "?")}
    if bar_charts.calls_functions(row):
        texts.append(tr("An empty call takes {time} (n = {n}).", **fields))
    elif sync := ceilings.get("launch_sync_us"):
        wait = units.time_(sync / 1e3)
        texts.append(
            tr("An empty kernel takes {time} (n = {n}), or {wait} if the CPU waits for each.", wait=wait, **fields)
        )
    else:
        texts.append(tr("An empty kernel takes {time} (n = {n}).", **fields))
    return paragraph(" ".join(texts))


def _copies(first: Row, titled_rows: list[tuple[str, Row]]) -> str:
    """Returns HTML: the times of the copies to the GPU and back; "" if they were not measured."""
    table = bar_charts.copies_table(first)
    if not table:
        return ""
    how = tr("Medians of n = {n}, by the clock of the CPU.", n=first["copies_ms"].get("n", "?"))
    text = bar_charts.copies_sentence([row for _, row in titled_rows])
    name = tr("Copying")
    return f'<h3 class="kt-label">{name}</h3>{paragraph(text)}{table}{paragraph(how)}'


# -- memory --------------------------------------------------------------------------------------
def memory(settings: RunSettings, current: CardRows, cost: str, name: str = "") -> None:
    """Draws what each kernel allocates. `name`: the shape of the settings in words."""
    head = card_title(tr("Memory"), name)
    if not current.rows:
        text = tr("No run has measured what each kernel allocates.")
        together(head, paragraph(text), details(paragraph(cost, "why")))
        return
    all_rows = bars(settings, current.rows)
    groups = bar_charts.group_by_memory(all_rows)
    titled_rows = [bar_charts.combine_group(group, len(all_rows)) for group in groups]
    badge = units.badge(current.kind, tr("{device}, peak", device=all_rows[0][1]["device"]))
    stale = f" {stale_mark()}" if current.stale else ""
    together(head, conclusion(conclusions.of_memory(all_rows)), f'<p class="kt-figures">{badge}{stale}</p>')
    with st.container(key="stale_memory" if current.stale else "fresh_memory"):
        if len(groups) > 1:  # one bar would show no more than the conclusion
            chart(
                lambda: bar_charts.memory(titled_rows, tokens()),
                bar_charts.height(len(titled_rows), bar_charts.MEMORY_PX),
                "chart_memory",
                _ids(titled_rows),
            )
        roles = _roles_legend(all_rows) * (len(groups) > 1)
        together(roles, details(paragraph(cost, "why"), *_memory_notes(groups, titled_rows, all_rows)))


def _roles_legend(titled_rows: list[tuple[str, Row]]) -> str:
    names = dict(bar_charts.roles(titled_rows[0][1]))
    if any(row["workspace_bytes"] for _, row in titled_rows):
        names["workspace"] = tr("workspace (memory for intermediate results)")
    else:
        del names["workspace"]
    return legend(names)


def _memory_notes(groups: list, titled_rows: list[tuple[str, Row]], all_rows: list[tuple[str, Row]]) -> list[str]:
    """Returns HTML: the rungs that share a bar, why they allocate more than predicted, the memory over time."""
    pieces = [
        paragraph(f"{title}: {'; '.join(other for other, _ in group[1:])}")
        for (title, _), group in zip(titled_rows, groups, strict=True)
        if 1 < len(group) < len(all_rows)
    ]
    pieces.append(paragraph(bar_charts.small_pieces_note(all_rows)))
    if len(groups) > 1 and (timeline := bar_charts.timeline(titled_rows)):
        pieces.append(paragraph(tr("Memory over time: allocations first, then the peak during each step.")))
        pieces.append(timeline)
    return pieces


# -- roofline ------------------------------------------------------------------------------------
def rooflines(settings: RunSettings, name: str = "") -> None:
    """Draws the rooflines with the rows measured here and recorded elsewhere at this shape.

    Rows of other settings are faded. Rungs without a time are marks. `name`: the shape of the settings in words.
    """
    dots = _dots(settings)
    marks = _marks(settings, dots)
    roofs = roofline.roofs(((dot.row, dot.kind) for dot in dots), settings.ladder.name)
    others = [dot for dot in dots if roofline.row_units(dot.row)]
    main = roofline.verdict([dot for dot in dots if dot not in others], roofs)
    more = roofline.verdict(others, roofs)
    main, more = (main, more) if main else (more, [])
    limits = roofline.bounds(marks, roofs)
    main, limits = (main, limits) if main else ([limits], "")
    badges = " ".join(units.badge(r.kind, f"{r.device}, {r.ceilings.get('date', '')}") for r in roofs)
    no_roof = paragraph(tr("The peaks of this device were not measured yet. A run measures them and draws the roof."))
    together(
        card_title(tr("Roofline"), name),
        *map(conclusion, main),
        f'<p class="kt-figures">{badges}</p>' if roofs else no_roof,
    )
    data_key = (tuple((id_of(d.row), d.stale, d.moved) for d in dots), tuple(marks), tuple(r.device for r in roofs))
    if dots or roofs:
        chart(lambda: roofline.chart(roofs, dots, marks, tokens()), roofline.HEIGHT, "chart_roofline", data_key)
    texts = [*more, limits, *map(roofline.ceilings_text, roofs)]
    names = _names(settings, dots, marks)
    short = len(re.sub("<[^>]*>", "", names)) <= LEGEND_CHARS
    folded = [*map(paragraph, texts), *([_signs(settings, dots, marks)] if dots or marks else [])]
    together(_quiet_html(names) * short, details(_quiet_html(names) * (not short), *folded))


def _dots(settings: RunSettings) -> list[roofline.Dot]:
    ran, dots = st.session_state.get("ran"), []
    for rows, kind, stale in (
        (settings.recorded(), "recorded", False),
        (ran.rows if ran else {}, "measured", bool(ran) and ran.settings != settings),
    ):
        for n, rung in enumerate(settings.ladder.rungs, 1):
            if (row := rows.get(rung.name)) and roofline.has_intensity(row):
                moved = None if stale or row["engine"] != "cuda" else why_card.moved(settings, rung)
                dots.append(roofline.Dot(n, rung.title_on(row["engine"]), row, kind, stale, moved))
    return dots


def _marks(settings: RunSettings, dots: list[roofline.Dot]) -> list[roofline.Mark]:
    """Returns marks for the rungs that could run here and have no time at this shape."""
    timed = {d.row["rung"] for d in dots if not d.stale}
    marks = []
    for n, rung in enumerate(settings.ladder.rungs, 1):
        if rung.name not in timed and rung in settings.supported_rungs():
            flops, moved = why_card.cost(settings, rung).flops, why_card.must_move(settings, rung)
            if flops and moved:
                compute_units = roofline.other_units(rung.name, settings.shape.params())
                marks.append(roofline.Mark(n, tr(rung.title), flops / moved, compute_units))
    return marks


def _names(settings: RunSettings, dots: list[roofline.Dot], marks: list[roofline.Mark]) -> str:
    """Returns HTML: the numbers in the chart with the titles of their rungs."""
    titles: dict[int, dict[str, None]] = {}
    for one in (*dots, *marks):
        titles.setdefault(one.number, {})[one.title] = None
    return ", ".join(f"<b>{n}</b> {escape(' / '.join(of))}" for n, of in sorted(titles.items()))


def _signs(settings: RunSettings, dots: list[roofline.Dot], marks: list[roofline.Mark]) -> str:
    """Returns HTML: the signs in the chart, and how its intensity is computed."""
    signs = []
    if any(d.kind == "measured" for d in dots):
        signs.append('<span class="kt-output">●</span> ' + tr("measured"))
    if any(d.kind == "recorded" for d in dots):
        signs.append('<span class="kt-workspace">◆</span> ' + tr("recorded"))
    if any(d.moved for d in dots):
        counted = tr("counted: the 32-byte sectors that the warps request, from caches or memory")
        signs.append(f'<span class="kt-input">○</span> {counted}')
    if marks:
        signs.append("┊ " + tr("predicted, no time at these settings"))
    if any(d.stale for d in dots):
        signs.append(tr("faded: other settings"))
    work = tr(settings.ladder.work)
    if roofline.as_defined(d.row for d in dots):
        flops = tr(
            "FLOP/byte is predicted: the FLOPs of {work}, divided by the bytes that must move through memory.",
            work=work,
        )
    else:
        flops = tr(
            "FLOP/byte is predicted: the FLOPs a kernel executes, divided by the bytes that must move through memory."
        )
        if any(roofline.is_opaque(d.row) for d in dots):
            flops += " " + tr("For a library these are the FLOPs of {work}.", work=work)
    return _quiet_html(f"{', '.join(signs)}. {flops}")
