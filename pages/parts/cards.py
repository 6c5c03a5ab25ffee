"""The cards Time, Memory and Roofline: charts of measured rows and sentences about them."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from html import escape
from typing import Any

import streamlit as st

from kernels import records
from kernels.model.rung import Ladder, Rung
from kernels.records import availability
from kernels.records.jsontext import id_of
from kernels.records.nearest import Match
from pages.parts import why as why_card
from pages.parts.lesson import deferred_loaded
from pages.parts.run_settings import CardRows, RunSettings, bars
from pages.parts.text import together
from pages.parts.theme import tokens
from visuals.charts import bars as bar_charts
from visuals.charts import roofline, sweeps, units
from visuals.charts.story import Story, device_comparison, shares


def sentence(text: str) -> None:
    if text:
        st.html(_sentence(text))


def _sentence(text: str) -> str:
    return f'<p class="kt-why">{escape(text)}</p>' if text else ""


def _quiet(text: str) -> None:
    st.html(_quiet_html(text))


def _quiet_html(text: str) -> str:
    return f'<p class="kt-quiet">{text}</p>'


@dataclass(frozen=True)
class _FigureSpec:
    """The cache key of a figure: its data and colours; and the function that draws it."""

    key: str
    data_key: Hashable
    colours: Hashable
    draw: Callable[[], Any] = field(compare=False)


def chart(draw: Callable[[], Any], height: int, key: str, data_key: Hashable) -> None:
    """Shows a figure. It is drawn once per `data_key`, so polling a run redraws nothing."""
    if not deferred_loaded():
        st.container(height=height, border=False, key=f"{key}_wait")
        return
    figure = _cached_figure(_FigureSpec(key, data_key, tuple(tokens().items()), draw))
    st.plotly_chart(figure, key=key, theme=None, config={"displayModeBar": False})


@lru_cache(maxsize=128)
def _cached_figure(spec: _FigureSpec) -> Any:
    from visuals.charts.plain_figure import PlainFigure  # with it comes Plotly

    figure = spec.draw()
    return figure if isinstance(figure, PlainFigure) else PlainFigure(figure.to_plotly_json())


def _ids(titled_rows: list[tuple[str, dict]]) -> tuple[str, ...]:
    return tuple(id_of(row) for _, row in titled_rows)


def _no_recording(ladder: Ladder) -> str:
    if any(row["rung"].startswith(f"{ladder.name}/") for row in records.recordings()):
        return "No recording speaks of this shape at these options; the presets above have one."
    return "These kernels were not recorded on a GPU yet: press Run to measure them here."


# -- time ----------------------------------------------------------------------------------------
def times(settings: RunSettings, story: Story) -> None:
    ran, recorded, nearest = st.session_state.get("ran"), settings.recorded(), settings.nearest()
    if ran:
        stale = "" if ran.settings == settings else str(ran.settings)
        _times(settings, ran.rows, "measured", story, stale, ran.ago)
    if recorded:
        _times(settings, recorded, "recorded", story)
        _other_settings(settings, nearest)
    elif nearest:
        _nearest(settings, nearest)
    else:
        _quiet(_no_recording(settings.ladder))
    if ran and ran.settings == settings:
        sentence(device_comparison(bars(settings, ran.rows), bars(settings, recorded)))
    for text in filter(None, (excluded_by_rules(settings), refused(settings))):
        _quiet(escape(text))


def excluded_by_rules(settings: RunSettings) -> str:
    """Returns the rungs that rules exclude at this shape and that have no recording, grouped by rule, in one line.

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
    text = ", ".join(f"{', '.join(titles)} ({rules})" for rules, titles in titles_by_rules.items())
    return f"not at this shape: {text}" if text else ""


def refused(settings: RunSettings) -> str:
    """Returns the rungs that this machine's GPU or libraries cannot run, grouped by reason, in one line; "" if none."""
    titles_by_reason: dict[str, list[str]] = {}
    for rung in settings.supported_rungs():
        if why := settings.refusals().get(rung.name):
            titles_by_reason.setdefault(why, []).append(_short_title(settings, rung))
    reasons = ", ".join(f"{', '.join(titles)} ({why})" for why, titles in titles_by_reason.items())
    return f"not on this machine: {reasons}" if reasons else ""


def _short_title(settings: RunSettings, rung: Rung) -> str:
    """Returns the first part of the rung's title if no other title begins with it, else the whole title."""
    head = re.split(r"[:,]| or ", rung.title)[0]
    return head if sum(r.title.startswith(head) for r in settings.ladder.rungs) == 1 else rung.title


def _times(
    settings: RunSettings, rows: Mapping[str, dict], kind: str, story: Story, stale: str = "", ago: str = ""
) -> None:
    titled_rows = bars(settings, rows)
    first = titled_rows[0][1]
    when = f", {first['date']}" if kind == "recorded" else ago
    head = units.badge(kind, sweeps.provenance([row for _, row in titled_rows]) + when)
    if stale:
        head += f' <span class="kt-stale">stale: measured at {escape(stale)}</span>'
    st.html(f'<p class="kt-figures">{head}</p>')
    with st.container(key=f"{'stale' if stale else 'fresh'}_{kind}"):
        _bars(titled_rows, kind)
        _shares(titled_rows)
        sentence(story.gain(rows))
        _copies(first, kind, titled_rows)


def _bars(titled_rows: list[tuple[str, dict]], kind: str) -> None:
    chart(
        lambda: bar_charts.times(titled_rows, tokens()),
        bar_charts.height(len(titled_rows)),
        f"chart_times_{kind}",
        _ids(titled_rows),
    )
    if bar_charts.log_axis_start([row for _, row in titled_rows]):
        _quiet("The axis is logarithmic: from each line to the next ten times as long.")
    for text in filter(
        None, (units.waits_note(titled_rows), units.clock_note(titled_rows), units.sweeps_note(titled_rows))
    ):
        _quiet(escape(text))


def _nearest(settings: RunSettings, nearest: Mapping[str, Match]) -> None:
    """Draws the recordings of another shape, faded like stale ones, and names that shape."""
    titled_rows = bars(settings, {name: n.row for name, n in nearest.items()})
    first = nearest[titled_rows[0][1]["rung"]]
    badge = units.badge("recorded", f"{units.provenance(first.row)}, {first.row['date']}")
    st.html(
        f'<p class="kt-figures">{badge} <span class="kt-elsewhere">not this shape</span>, the nearest: {escape(first.caption)}</p>'
    )
    with st.container(key="stale_nearest"):
        _bars(titled_rows, "nearest")


def _other_settings(settings: RunSettings, nearest: Mapping[str, Match]) -> None:
    """Lists the rungs that were recorded only with other options."""
    for title, row in bars(settings, {name: n.row for name, n in nearest.items()}):
        badge = units.badge("recorded", f"{units.provenance(row)}, {row['date']}")
        _quiet(
            f"{escape(title)} has no recording with these options; the nearest: {units.time_(row['median_ms'])}, "
            f"{escape(nearest[row['rung']].caption)}. {badge}"
        )


def _shares(titled_rows: list[tuple[str, dict]]) -> None:
    """Draws a table of each rung's shares of the limits, and explains these limits."""
    columns = shares(titled_rows)
    if not columns:
        return
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in columns)
    lines = "".join(
        f'<tr><th scope="row">{escape(title)}</th>{"".join(f"<td>{cells[i]}</td>" for cells in columns.values())}</tr>'
        for i, (title, _) in enumerate(titled_rows)
    )
    st.html(
        '<div class="kt-scroll" tabindex="0" role="region" aria-label="Shares"><table class="kt-table kt-shares">'
        f"<tr><td>share</td>{head}</tr>{lines}</table></div>"
    )
    ceilings = titled_rows[0][1].get("ceilings")
    if not ceilings:
        return
    sync = ceilings.get("launch_sync_us")
    waited = f"; launched and waited for: {units.time_(sync / 1e3)}" if sync else ""
    _quiet(
        "Roof: what this device's copy and FP32 peak, both measured, allow at the predicted FLOP per byte (Roofline). "
        f'<span class="kt-line">▬</span> {bar_charts.launch_word(titled_rows[0][1])} of nothing: {units.time_(ceilings["launch_us"] / 1e3)} each '
        f"({escape(ceilings['launch'])}; n = {ceilings.get('launch_n', '?')}{waited})."
    )


def _copies(first: dict, kind: str, titled_rows: list[tuple[str, dict]]) -> None:
    copies = first.get("copies_ms")
    if not copies:
        return
    detail = f"{first['device']}, by the wall clock, medians of n = {copies.get('n', '?')}"
    st.html(f'<p class="kt-figures">Copying {units.badge(kind, detail)}</p>')
    chart(
        lambda: bar_charts.copies(first, tokens()),
        bar_charts.height(len(bar_charts.COPIES), bar_charts.COPY_PX),
        f"chart_copies_{kind}",
        id_of(first),
    )
    sentence(bar_charts.copies_sentence([row for _, row in titled_rows]))


# -- memory --------------------------------------------------------------------------------------
def memory(settings: RunSettings, current: CardRows, cost: str) -> None:
    head = '<h2 class="kt-card">Memory</h2>'
    if not current.rows:
        press = _quiet_html("Press Run: what each rung allocates is measured, not computed.")
        together(head, press, _sentence(cost))
        return
    titled_rows = bars(settings, current.rows)
    stale = ' <span class="kt-stale">stale</span>' if current.stale else ""
    badge = units.badge(current.kind, titled_rows[0][1]["device"] + ", peak")
    together(head, f'<p class="kt-figures">{badge}{stale}</p>')
    with st.container(key="stale_memory" if current.stale else "fresh_memory"):
        groups = bar_charts.group_by_memory(titled_rows)
        titled_rows = [bar_charts.combine_group(group, len(titled_rows)) for group in groups]
        chart(
            lambda: bar_charts.memory(titled_rows, tokens()),
            bar_charts.height(len(titled_rows), bar_charts.MEMORY_PX),
            "chart_memory",
            _ids(titled_rows),
        )
        roles = bar_charts.roles(titled_rows[0][1])
        _quiet(" ".join(f'<span class="kt-{role}">■</span> {name}' for role, name in roles))
        for (title, _), group in zip(titled_rows, groups, strict=True):
            if len(group) > 1 and len(groups) > 1:
                _quiet(f"{escape(title)}: {escape('; '.join(other for other, _ in group[1:]))}")
        if any(row.get("timeline") for _, row in titled_rows):
            _quiet("As the program goes on: what is allocated first, then each step with the most it held.")
            chart(
                lambda: bar_charts.timeline(titled_rows, tokens()),
                bar_charts.TIMELINE_PX,
                "chart_timeline",
                _ids(titled_rows),
            )
    sentence(cost)


# -- roofline ------------------------------------------------------------------------------------
NO_ROOF = "No ceilings were measured yet with what is shown here: press Run, and this device's roof stands over the dots."


def rooflines(settings: RunSettings) -> None:
    """Draws the rooflines with the rows measured here and recorded elsewhere at this shape.

    Rows of other settings are faded. Rungs without a time are marks.
    """
    dots = _dots(settings)
    marks = _marks(settings, dots)
    roofs = roofline.roofs((dot.row, dot.kind) for dot in dots)
    together(
        '<h2 class="kt-card">Roofline</h2>', *(map(_roof_heading, roofs) if roofs else [_quiet_html(NO_ROOF)])
    )
    data_key = (
        tuple((id_of(d.row), d.stale, d.moved) for d in dots),
        tuple(marks),
        tuple(r.device for r in roofs),
    )
    if dots or roofs:
        chart(
            lambda: roofline.chart(roofs, dots, marks, tokens()), roofline.HEIGHT, "chart_roofline", data_key
        )
    under = [_legend(settings, dots, marks)] if dots or roofs else []
    verdicts = (*roofline.verdict(dots, roofs), roofline.bounds(marks, roofs))
    together(*under, *map(_sentence, verdicts))


def _roof_heading(roof: roofline.Roof) -> str:
    badge = units.badge(roof.kind, f"{roof.device}, {roof.ceilings.get('date', '')}")
    return f'<p class="kt-figures">{badge} {escape(roofline.ceilings_text(roof))}</p>'


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
            cost = why_card.cost(settings, rung)
            if cost.flops and cost.bytes:
                compute_units = roofline.other_units(rung.name, settings.shape.params())
                marks.append(roofline.Mark(n, rung.title, cost.flops / cost.bytes, compute_units))
    return marks


def _legend(settings: RunSettings, dots: list[roofline.Dot], marks: list[roofline.Mark]) -> str:
    engines = list(dict.fromkeys(d.row["engine"] for d in dots)) or [settings.engine]
    titles = [
        " / ".join(dict.fromkeys(r.title_on(engine) for engine in engines)) for r in settings.ladder.rungs
    ]
    rungs = ", ".join(f"<b>{n}</b> {escape(title)}" for n, title in enumerate(titles, 1))
    kinds = [
        ("measured", '<span class="kt-output">●</span> measured'),
        ("recorded", '<span class="kt-workspace">◆</span> recorded'),
    ]
    legend = [text for kind, text in kinds if any(d.kind == kind for d in dots)]
    if any(d.moved for d in dots):
        legend.append(
            '<span class="kt-input">○</span> counted: by the 32-byte sectors its warps ask for, of which the caches answer a part'
        )
    if marks:
        legend.append("┊ predicted, with no time at this shape")
    if any(d.stale for d in dots):
        legend.append("faded: at the settings before")
    flops = f"{settings.ladder.work}'s FLOPs"
    if not roofline.as_defined(d.row for d in dots):
        silent = any(roofline.is_opaque(d.row) for d in dots)
        flops = "the FLOPs a rung executes" + f" (of a library that does not say: {flops})" * silent
    return _quiet_html(
        f"{rungs}. {', '.join(legend)}. Intensity is predicted: {flops} by the bytes each step must read and write once."
    )
