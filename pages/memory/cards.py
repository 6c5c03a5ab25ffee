"""The cards of the lesson on threads and memory: time over strides (or rungs), why, levels of memory."""

from __future__ import annotations

import time
from collections.abc import Sequence
from html import escape
from typing import Any

import streamlit as st

from kernels import engines
from kernels.i18n import decimal, tr
from kernels.jobs.job import JobError
from kernels.ladders import find
from kernels.machine import memory_levels
from pages.memory import address
from pages.parts.lesson import deferred_loaded
from pages.parts.query import url_is_stale
from pages.parts.run import POLL_S, gpu_note
from pages.parts.text import note, quiet
from pages.parts.theme import tokens
from pages.parts.worker import worker
from visuals.charts import bars, units
from visuals.memory import charts
from visuals.memory.charts import Line

SLOWDOWNS = ("coalescing", "banks")
STYLES = {"banks/plain": ("input", "circle"), "banks/padded": ("output", "square")}


def time_card(topic: str, values: address.Values) -> None:
    interval = POLL_S if _jobs() else None
    st.fragment(_time, run_every=interval)(topic, values)


def _jobs() -> list:
    return st.session_state.get("thread_jobs", [])


def _time(topic: str, values: address.Values) -> None:
    _collect()
    engine, stride = engines.default(), values.get("stride", 1)
    with st.container(key="card_time", border=True):
        with st.container(key="time_head", horizontal=True, vertical_alignment="center"):
            name = tr("Time")
            st.html(f'<h2 class="kt-card">{name}</h2>')
            if address.measured_shapes(topic, engine):
                _button(topic, engine, stride)
        if jobs := _jobs():
            done = sum(job.done for job in jobs)
            st.progress(done / len(jobs), text=tr("{done} of {total} measured", done=done, total=len(jobs)))
        gpu_note()
        if error := st.session_state.get("thread_error"):
            note(error)
        _draw_rows(topic, st.session_state.get("thread_rows", {}).get(topic, []), "measured", stride)
        _draw_rows(topic, address.recorded(topic), "recorded", stride)
        if topic == "banks" and engine == "cpu":
            quiet(tr("A processor has no banks. This topic can be measured only on a GPU."))


def _button(topic: str, engine: str, stride: int) -> None:
    if jobs := _jobs():
        if st.button(tr("Stop"), key="stop"):
            for job in jobs:
                worker().cancel(job)
        return
    if st.button(tr("Run here"), key="run", type="primary"):
        st.session_state["thread_error"] = ""
        try:
            requests = address.requests(topic, engine, stride)
            st.session_state["thread_jobs"] = [worker().submit(r, fresh=True) for r in requests]
            st.session_state["thread_topic"] = topic
        except JobError as e:
            st.session_state["thread_error"] = str(e)
        st.rerun()


def _collect() -> None:
    """Takes the rows once every job is done. Then reruns the page, so that polling stops."""
    jobs = _jobs()
    if not jobs or not all(job.done for job in jobs) or url_is_stale():
        return
    del st.session_state["thread_jobs"]
    rows: list[dict[str, Any]] = []
    for job in jobs:
        try:
            rows += job.result()
        except JobError as e:
            st.session_state["thread_error"] = str(e)
    st.session_state.setdefault("thread_rows", {})[st.session_state["thread_topic"]] = rows
    st.session_state["thread_at"] = time.time()
    st.rerun()


# -- drawing a set of rows -----------------------------------------------------------------------
def _draw_rows(topic: str, rows: Sequence[dict], kind: str, stride: int) -> None:
    """Draws the rows of one device as a chart under their badge. Without rows there is no chart."""
    if not rows:
        if kind == "recorded":
            quiet(tr("The app has no recording of this topic."))
        return
    first = rows[0]
    when = f", {first['date']}" if kind == "recorded" else ""
    st.html(
        f'<p class="kt-figures">{units.badge(kind, units.provenance(first) + when)} {escape(_shape_text(topic, first))}</p>'
    )
    if topic in SLOWDOWNS:
        _slowdown(topic, rows, kind, stride)
    else:
        titled = [(find(r["rung"]).title_on(r["engine"]), r) for r in rows]
        _plot(lambda: bars.times(titled, tokens()), f"chart_{topic}_{kind}", bars.height(len(titled)))


def _shape_text(topic: str, row: dict) -> str:
    """Returns the measured shape as text: the stage shows a smaller shape, or one warp of it."""
    shape = dict(row["shape"])
    if topic in SLOWDOWNS:
        warps = shape["n"] // 32
        return tr("The stage shows warp 0 of the {warps} warps that run.", warps=decimal(f"{warps:,}"))
    size = decimal(" × ".join(f"{v:,}" for v in shape.values()))
    return tr("Size: {size}. Threads and elements are mapped as on the stage.", size=size)


def _slowdown(topic: str, rows: Sequence[dict], kind: str, stride: int) -> None:
    lines = [_line(name, rows) for name in dict.fromkeys(row["rung"] for row in rows)]
    strides = sorted({row["shape"]["stride"] for row in rows} | {1, stride})
    if topic == "coalescing":
        counts = {s: charts.sectors(s) for s in strides}
        relative = charts.relative(counts)
        counted = {tr("sectors, counted"): relative}
        per_line = dict.fromkeys((line.name for line in lines), relative)
        unit = "sectors"
    else:
        per_line = {
            tr(find(f"banks/{name}").title): charts.relative(
                {s: charts.wavefronts(s, name == "padded") for s in strides}
            )
            for name in ("plain", "padded")
        }
        counted = {tr("passes counted, {kernel}", kernel=name): of for name, of in per_line.items()}
        unit = "passes"
    _plot(
        lambda: charts.slowdown(lines, counted, stride, tokens()),
        f"chart_{topic}_{kind}",
        charts.HEIGHT,
    )
    sentences = (charts.slowdown_sentence(line, stride, per_line[line.name], unit) for line in lines)
    for text in filter(None, sentences):
        st.html(f'<p class="kt-why">{escape(text)}</p>')
    if rows[0]["engine"] == "cpu" and (line := memory_levels.cpu().levels[0].line_bytes):
        quiet(
            tr(
                "A processor fetches lines of {line} bytes, not sectors of 32 bytes. The sectors are those of the GPU kernel, so "
                "the times here do not follow them.",
                line=line,
            )
        )


def _line(rung: str, rows: Sequence[dict]) -> Line:
    role, symbol = STYLES.get(rung, ("input", "circle"))
    return Line(
        tr(find(rung).title), {r["shape"]["stride"]: r for r in rows if r["rung"] == rung}, role, symbol
    )


def _plot(draw, key: str, height: int) -> None:
    if deferred_loaded():
        st.plotly_chart(draw(), key=key, theme=None, config={"displayModeBar": False})
    else:
        st.container(height=height, border=False, key=f"{key}_wait")


# -- why, levels -----------------------------------------------------------------------------------
def why_card(topic: str, values: address.Values) -> None:
    with st.container(key="card_why", border=True):
        name = tr("Why")
        st.html(f'<h2 class="kt-card">{name}</h2>' + address.counted(topic, dict(values)).html())


def levels_card() -> None:
    """Draws the memory levels of this machine's GPU (else of the recorded GPU) and of its processor."""
    with st.container(key="card_levels", border=True):
        name = tr("Levels of memory")
        st.html(f'<h2 class="kt-card">{name}</h2>')
        gpu, ceilings = memory_levels.gpu(engines.load("cuda").status()), _ceilings()
        for levels in filter(None, (gpu or memory_levels.recorded(), memory_levels.cpu())):
            with_copy = levels.with_copy(ceilings.get(levels.device))
            when = tr("recorded, {date}", date=levels.date) if levels.date else tr("this machine")
            st.html(
                f'<p class="kt-figures"><b>{escape(levels.device)}</b>, {when}</p>'
                + charts.levels_table(with_copy)
            )
        if not gpu and not memory_levels.recorded():
            quiet(tr("This machine has no NVIDIA GPU, and the app has no recording of one."))
        quiet(tr("The first Run measures the copy speed."))


def _ceilings() -> dict[str, dict]:
    """Returns the ceilings that runs of this page measured, by device."""
    rows_by_topic = st.session_state.get("thread_rows", {})
    return {r["device"]: r["ceilings"] for rows in rows_by_topic.values() for r in rows if r.get("ceilings")}
