"""Two cards of the fusion lesson: every launch over time with the bytes it moves, and what fusing saves of both."""

from __future__ import annotations

from html import escape

import streamlit as st

from kernels.fusion.ladder import RUNGS
from kernels.fusion.shape import ChainShape
from kernels.ladders import find
from kernels.records.jsontext import id_of
from pages.parts import cards
from pages.parts.run_settings import Asked, Shown, bars, shown
from pages.parts.theme import tokens
from visuals.charts import roofline, sweeps, units
from visuals.fusion import charts, story

HEADS = ("computes", "read", "written", "FLOP", "FLOP/byte")


def section(asked: Asked) -> None:
    """What follows the cards of a run."""
    now = shown(asked)
    with st.container(key="rates", horizontal=True):
        _launches(asked, now)
        _saved(asked, now)


def _stale(now: Shown) -> str:
    return ' <span class="kt-stale">stale</span>' if now.stale else ""


# -- launch by launch ----------------------------------------------------------------------------------------
def _launches(asked: Asked, now: Shown) -> None:
    with st.container(key="card_fusion_launches", border=True):
        st.html('<h2 class="kt-card">Launch by launch</h2>')
        told = bars(asked, now.rows)
        if told:
            rows = [row for _, row in told]
            when = f", {rows[0]['date']}" if now.kind == "recorded" else ""
            badge = units.badge(now.kind, sweeps.provenance(rows) + when)
            st.html(f'<p class="kt-figures">{badge}{_stale(now)}</p>')
            with st.container(key=f"{'stale' if now.stale else 'fresh'}_fusion_launches"):
                cards.chart(
                    lambda: charts.timeline(told, tokens()),
                    charts.px(told),
                    "chart_fusion_launches",
                    tuple(map(id_of, rows)),
                )
            st.html(_legend(told))
        else:
            st.html(
                '<p class="kt-quiet">Press Run: each launch is timed by itself too, and stands here as a bar.</p>'
            )
        st.html(
            f'<p class="kt-figures">{units.badge("predicted", "each tensor once a launch")}</p>{_table(asked.shape)}'
        )


def _legend(titled: list[tuple[str, dict]]) -> str:
    rows = [row for _, row in titled]
    told = [
        "A bar a launch, timed by itself, one behind the other; │ where the whole chain, timed in one go, ends."
    ]
    if any((row.get("ceilings") or {}).get("launch_us") for row in rows):
        word = "call" if rows[0]["engine"] == "cpu" else "launch"
        told.append(f'<span class="kt-line">▬</span> a {word} of nothing.')
    if any("fold" in (row.get("parts_ms") or {}) for row in rows):
        told.append('<span class="kt-filter">■</span> fold: once for all images that will come.')
    told.append(escape(units.slowed(titled)))
    return f'<p class="kt-quiet">{" ".join(told)}</p>'


def _table(s: ChainShape) -> str:
    """A line a launch, under its rung."""
    heads = "".join(f'<th scope="col">{head}</th>' for head in HEADS)
    text = f"<tr><td>launch</td>{heads}</tr>"
    for rung in RUNGS:
        told = story.parts(rung.name, s)
        if not told:
            continue
        text += f'<tr><th colspan="{len(HEADS) + 1}" scope="rowgroup">{escape(rung.title)}</th></tr>'
        for n, part in enumerate(told, 1):
            blocks = part.blocks
            which = f"{blocks[0] + 1}" if len(blocks) == 1 else f"{blocks[0] + 1}–{blocks[-1] + 1}"
            cells = (
                f"block{'s' * (len(blocks) > 1)} {which}",
                units.bytes_(part.reads),
                units.bytes_(part.writes),
                units.count(part.flops),
                units.ratio(part.flops / part.bytes),
            )
            name = f"{n} {escape(part.launch.name.replace('_', ' '))}"
            text += f'<tr><th scope="row">{name}</th>{"".join(f"<td>{c}</td>" for c in cells)}</tr>'
    return (
        '<div class="kt-scroll" tabindex="0" role="region" aria-label="Launches">'
        f'<table class="kt-table kt-shares">{text}</table></div>'
    )


# -- what is saved ---------------------------------------------------------------------------------------------
def _saved(asked: Asked, now: Shown) -> None:
    s = asked.shape
    with st.container(key="card_fusion_saved", border=True):
        st.html('<h2 class="kt-card">What fusing saves, and when it does not pay</h2>')
        columns = story.levels(s)
        if not columns:
            st.html('<p class="kt-quiet">No rung of ours runs this chain.</p>')
            return
        roof = _roof(now)
        names = list(columns)
        lines = {line: [columns[name][line] for name in names] for line in columns[names[0]]}
        parts = [(units.badge("predicted"), lines)]
        if told := _floor(s, now, names):
            detail = f"{roof.device}: {units.bandwidth(roof.bytes_per_s)} a copy"
            parts.append((units.badge(now.kind, detail), told))
        st.html(_columns([find(name).title for name in names], parts))
        for text in story.pays(s, roof):
            cards.sentence(text)


def _roof(now: Shown) -> roofline.Roof | None:
    """That of the rows on the page, else a recorded one."""
    return next(iter(roofline.roofs((row, now.kind) for row in now.rows.values())), None)


def _floor(s: ChainShape, now: Shown, names: list[str]) -> dict[str, list[str]]:
    """Of each rung the least time by a measured copy of what must move, and its own over that."""
    if now.stale or not any((row.get("ceilings") or {}).get("copy_bytes_per_s") for row in now.rows.values()):
        return {}
    floor = story.floor_ms(s, _roof(now))
    rows = [now.rows.get(name) for name in names]
    return {
        "time": [units.time_(row["median_ms"]) if row else "–" for row in rows],
        "a copy of the least bytes": [units.time_(floor)] * len(rows),
        "times as long": [units.ratio(row["median_ms"] / floor) if row else "–" for row in rows],
    }


def _columns(titles: list[str], parts: list[tuple[str, dict[str, list[str]]]]) -> str:
    """A column a rung."""
    heads = "".join(f'<th scope="col">{escape(title)}</th>' for title in titles)
    text = ""
    for n, (badge, lines) in enumerate(parts):
        text += (
            f"<tr><th>{badge}</th>{heads}</tr>"
            if n == 0
            else f'<tr><th colspan="{len(titles) + 1}">{badge}</th></tr>'
        )
        for name, cells in lines.items():
            text += f"<tr><td>{name}</td>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
    return (
        '<div class="kt-scroll" tabindex="0" role="region" aria-label="What each rung moves">'
        f'<table class="kt-table">{text}</table></div>'
    )
