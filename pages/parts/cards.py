"""The cards Time, Memory and Roofline: charts of rows with what they say in words."""

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
from kernels.records.nearest import Near
from pages.parts import why as parts_why
from pages.parts.lesson import settled
from pages.parts.run_settings import Asked, Shown, bars
from pages.parts.text import together
from pages.parts.theme import tokens
from visuals.charts import bars as charts_bars
from visuals.charts import roofline, sweeps
from visuals.charts import units as charts_units
from visuals.charts.story import Story, factor, shares


def sentence(text: str) -> None:
    if text:
        st.html(_sentence(text))


def _sentence(text: str) -> str:
    return f'<p class="kt-why">{escape(text)}</p>' if text else ""


def _quiet(text: str) -> None:
    st.html(_small(text))


def _small(text: str) -> str:
    return f'<p class="kt-quiet">{text}</p>'


@dataclass(frozen=True)
class _Drawing:
    """A figure by what it is made of."""

    key: str
    made_of: Hashable
    colours: Hashable
    draw: Callable[[], Any] = field(compare=False)


def chart(draw: Callable[[], Any], height: int, key: str, made_of: Hashable) -> None:
    """A figure, drawn once for the same `made_of`: a run that is polled draws nothing anew."""
    if not settled():
        st.container(height=height, border=False, key=f"{key}_wait")
        return
    figure = _drawn(_Drawing(key, made_of, tuple(tokens().items()), draw))
    st.plotly_chart(figure, key=key, theme=None, config={"displayModeBar": False})


@lru_cache(maxsize=128)
def _drawn(drawing: _Drawing) -> Any:
    from visuals.charts.drawn import Drawn  # with it comes Plotly

    figure = drawing.draw()
    return figure if isinstance(figure, Drawn) else Drawn(figure.to_plotly_json())


def _ids(told: list[tuple[str, dict]]) -> tuple[str, ...]:
    return tuple(id_of(row) for _, row in told)


def _none(ladder: Ladder) -> str:
    if any(row["rung"].startswith(f"{ladder.name}/") for row in records.recordings()):
        return "No recording speaks of this shape at these options; the presets above have one."
    return "These kernels were not recorded on a GPU yet: press Run to measure them here."


# -- time ----------------------------------------------------------------------------------------
def times(asked: Asked, story: Story) -> None:
    ran, recorded, near = st.session_state.get("ran"), asked.recorded(), asked.near()
    if ran:
        stale = "" if ran.asked == asked else str(ran.asked)
        _times(asked, ran.rows, "measured", story, stale, ran.ago)
    if recorded:
        _times(asked, recorded, "recorded", story)
        _others(asked, near)
    elif near:
        _nearest(asked, near)
    else:
        _quiet(_none(asked.ladder))
    if ran and ran.asked == asked:
        sentence(factor(bars(asked, ran.rows), bars(asked, recorded)))
    for text in filter(None, (unable(asked), refused(asked))):
        _quiet(escape(text))


def unable(asked: Asked) -> str:
    """The rungs that rules keep from this shape and that no recording tells of, by rule, in one line; "" where there are
    none."""
    by: dict[str, list[str]] = {}
    for rung in asked.ladder.rungs:
        if rung.name in asked.recorded():
            continue
        if rules := list(availability.reasons(rung, asked.shape, asked.tiles_of(rung))):
            by.setdefault("; ".join(rule.partition(", got ")[0] for rule in rules), []).append(
                _brief(asked, rung)
            )
    told = ", ".join(f"{', '.join(titles)} ({rules})" for rules, titles in by.items())
    return f"not at this shape: {told}" if told else ""


def refused(asked: Asked) -> str:
    """Returns the rungs that this machine's GPU or its libraries cannot run, by reason, in one line; "" if none."""
    by: dict[str, list[str]] = {}
    for rung in asked.able():
        if why := asked.refusals().get(rung.name):
            by.setdefault(why, []).append(_brief(asked, rung))
    reasons = ", ".join(f"{', '.join(titles)} ({why})" for why, titles in by.items())
    return f"not on this machine: {reasons}" if reasons else ""


def _brief(asked: Asked, rung: Rung) -> str:
    """The head of its title, where no other title begins so."""
    head = re.split(r"[:,]| or ", rung.title)[0]
    return head if sum(r.title.startswith(head) for r in asked.ladder.rungs) == 1 else rung.title


def _times(
    asked: Asked, rows: Mapping[str, dict], kind: str, story: Story, stale: str = "", ago: str = ""
) -> None:
    told = bars(asked, rows)
    first = told[0][1]
    when = f", {first['date']}" if kind == "recorded" else ago
    head = charts_units.badge(kind, sweeps.provenance([row for _, row in told]) + when)
    if stale:
        head += f' <span class="kt-stale">stale: measured at {escape(stale)}</span>'
    st.html(f'<p class="kt-figures">{head}</p>')
    with st.container(key=f"{'stale' if stale else 'fresh'}_{kind}"):
        _bars(told, kind)
        _shares(told)
        sentence(story.gain(rows))
        _copies(first, kind, told)


def _bars(told: list[tuple[str, dict]], key: str) -> None:
    chart(
        lambda: charts_bars.times(told, tokens()),
        charts_bars.height(len(told)),
        f"chart_times_{key}",
        _ids(told),
    )
    if charts_bars.decade_under([row for _, row in told]):
        _quiet("The axis is logarithmic: from each line to the next ten times as long.")
    for text in filter(None, (charts_units.waits(told), charts_units.slowed(told), charts_units.apart(told))):
        _quiet(escape(text))


def _nearest(asked: Asked, near: Mapping[str, Near]) -> None:
    """Recorded at another shape, faded as what is stale: it says which."""
    told = bars(asked, {name: n.row for name, n in near.items()})
    first = near[told[0][1]["rung"]]
    badge = charts_units.badge("recorded", f"{charts_units.provenance(first.row)}, {first.row['date']}")
    st.html(
        f'<p class="kt-figures">{badge} <span class="kt-elsewhere">not this shape</span>, the nearest: {escape(first.words)}</p>'
    )
    with st.container(key="stale_nearest"):
        _bars(told, "nearest")


def _others(asked: Asked, near: Mapping[str, Near]) -> None:
    """Rungs that were recorded with other options only, beside those recorded with these."""
    for title, row in bars(asked, {name: n.row for name, n in near.items()}):
        badge = charts_units.badge("recorded", f"{charts_units.provenance(row)}, {row['date']}")
        _quiet(
            f"{escape(title)} has no recording with these options; the nearest: {charts_units.time_(row['median_ms'])}, "
            f"{escape(near[row['rung']].words)}. {badge}"
        )


def _shares(told: list[tuple[str, dict]]) -> None:
    """What each rung reaches of what could be, and what that is measured against."""
    columns = shares(told)
    if not columns:
        return
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in columns)
    lines = "".join(
        f'<tr><th scope="row">{escape(title)}</th>{"".join(f"<td>{cells[i]}</td>" for cells in columns.values())}</tr>'
        for i, (title, _) in enumerate(told)
    )
    st.html(
        '<div class="kt-scroll" tabindex="0" role="region" aria-label="Shares"><table class="kt-table kt-shares">'
        f"<tr><td>share</td>{head}</tr>{lines}</table></div>"
    )
    ceilings = told[0][1].get("ceilings")
    if not ceilings:
        return
    sync = ceilings.get("launch_sync_us")
    waited = f"; launched and waited for: {charts_units.time_(sync / 1e3)}" if sync else ""
    _quiet(
        "Roof: what this device's copy and FP32 peak, both measured, allow at the predicted FLOP per byte (Roofline). "
        f'<span class="kt-line">▬</span> {charts_bars.launch_word(told[0][1])} of nothing: {charts_units.time_(ceilings["launch_us"] / 1e3)} each '
        f"({escape(ceilings['launch'])}; n = {ceilings.get('launch_n', '?')}{waited})."
    )


def _copies(first: dict, kind: str, told: list[tuple[str, dict]]) -> None:
    copies = first.get("copies_ms")
    if not copies:
        return
    detail = f"{first['device']}, by the wall clock, medians of n = {copies.get('n', '?')}"
    st.html(f'<p class="kt-figures">Copying {charts_units.badge(kind, detail)}</p>')
    chart(
        lambda: charts_bars.copies(first, tokens()),
        charts_bars.height(len(charts_bars.COPIES), charts_bars.COPY_PX),
        f"chart_copies_{kind}",
        id_of(first),
    )
    sentence(charts_bars.copies_words([row for _, row in told]))


# -- memory --------------------------------------------------------------------------------------
def memory(asked: Asked, now: Shown, cost: str) -> None:
    head = '<h2 class="kt-card">Memory</h2>'
    if not now.rows:
        press = _small("Press Run: what each rung allocates is measured, not computed.")
        together(head, press, _sentence(cost))
        return
    told = bars(asked, now.rows)
    stale = ' <span class="kt-stale">stale</span>' if now.stale else ""
    badge = charts_units.badge(now.kind, told[0][1]["device"] + ", peak")
    together(head, f'<p class="kt-figures">{badge}{stale}</p>')
    with st.container(key="stale_memory" if now.stale else "fresh_memory"):
        groups = charts_bars.alike(told)
        told = [charts_bars.together(group, len(told)) for group in groups]
        chart(
            lambda: charts_bars.memory(told, tokens()),
            charts_bars.height(len(told), charts_bars.MEMORY_PX),
            "chart_memory",
            _ids(told),
        )
        roles = charts_bars.roles(told[0][1])
        _quiet(" ".join(f'<span class="kt-{role}">■</span> {name}' for role, name in roles))
        for (title, _), group in zip(told, groups, strict=True):
            if len(group) > 1 and len(groups) > 1:
                _quiet(f"{escape(title)}: {escape('; '.join(other for other, _ in group[1:]))}")
        if any(row.get("timeline") for _, row in told):
            _quiet("As the program goes on: what is allocated first, then each step with the most it held.")
            chart(
                lambda: charts_bars.timeline(told, tokens()),
                charts_bars.TIMELINE_PX,
                "chart_timeline",
                _ids(told),
            )
    sentence(cost)


# -- roofline ------------------------------------------------------------------------------------
NO_ROOF = "No ceilings were measured yet with what is shown here: press Run, and this device's roof stands over the dots."


def rooflines(asked: Asked) -> None:
    """Measured here and recorded elsewhere under their devices' roofs, at this shape; what was run at another
    shape is faded, and rungs without a time are marks."""
    dots = _dots(asked)
    marks = _marks(asked, dots)
    roofs = roofline.roofs((dot.row, dot.kind) for dot in dots)
    together('<h2 class="kt-card">Roofline</h2>', *(map(_over, roofs) if roofs else [_small(NO_ROOF)]))
    made_of = (
        tuple((id_of(d.row), d.stale, d.moved) for d in dots),
        tuple(marks),
        tuple(r.device for r in roofs),
    )
    if dots or roofs:
        chart(
            lambda: roofline.chart(roofs, dots, marks, tokens()), roofline.HEIGHT, "chart_roofline", made_of
        )
    under = [_legend(asked, dots, marks)] if dots or roofs else []
    told = (*roofline.verdict(dots, roofs), roofline.bounds(marks, roofs))
    together(*under, *map(_sentence, told))


def _over(roof: roofline.Roof) -> str:
    badge = charts_units.badge(roof.kind, f"{roof.device}, {roof.told.get('date', '')}")
    return f'<p class="kt-figures">{badge} {escape(roofline.ceilings_words(roof))}</p>'


def _dots(asked: Asked) -> list[roofline.Dot]:
    ran, found = st.session_state.get("ran"), []
    for rows, kind, stale in (
        (asked.recorded(), "recorded", False),
        (ran.rows if ran else {}, "measured", bool(ran) and ran.asked != asked),
    ):
        for n, rung in enumerate(asked.ladder.rungs, 1):
            if (row := rows.get(rung.name)) and roofline.stands(row):
                moved = None if stale or row["engine"] != "cuda" else parts_why.moved(asked, rung)
                found.append(roofline.Dot(n, rung.title_on(row["engine"]), row, kind, stale, moved))
    return found


def _marks(asked: Asked, dots: list[roofline.Dot]) -> list[roofline.Mark]:
    """The rungs that could run here and have no time at this shape."""
    timed = {d.row["rung"] for d in dots if not d.stale}
    marks = []
    for n, rung in enumerate(asked.ladder.rungs, 1):
        if rung.name not in timed and rung in asked.able():
            cost = parts_why.cost(asked, rung)
            if cost.flops and cost.bytes:
                units = roofline.other_units(rung.name, asked.shape.params())
                marks.append(roofline.Mark(n, rung.title, cost.flops / cost.bytes, units))
    return marks


def _legend(asked: Asked, dots: list[roofline.Dot], marks: list[roofline.Mark]) -> str:
    on = list(dict.fromkeys(d.row["engine"] for d in dots)) or [asked.engine]
    titles = [" / ".join(dict.fromkeys(r.title_on(engine) for engine in on)) for r in asked.ladder.rungs]
    rungs = ", ".join(f"<b>{n}</b> {escape(title)}" for n, title in enumerate(titles, 1))
    kinds = [
        ("measured", '<span class="kt-output">●</span> measured'),
        ("recorded", '<span class="kt-workspace">◆</span> recorded'),
    ]
    told = [words for kind, words in kinds if any(d.kind == kind for d in dots)]
    if any(d.moved for d in dots):
        told.append(
            '<span class="kt-input">○</span> counted: by the 32-byte sectors its warps ask for, of which the caches answer a part'
        )
    if marks:
        told.append("┊ predicted, with no time at this shape")
    if any(d.stale for d in dots):
        told.append("faded: at the settings before")
    flops = f"{asked.ladder.work}'s FLOPs"
    if not roofline.as_defined(d.row for d in dots):
        silent = any(roofline.is_opaque(d.row) for d in dots)
        flops = "the FLOPs a rung executes" + f" (of a library that does not say: {flops})" * silent
    return _small(
        f"{rungs}. {', '.join(told)}. Intensity is predicted: {flops} by the bytes each step must read and write once."
    )
