"""The cards of the lesson on threads and memory: time over strides (or rungs), why, levels of memory."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from html import escape

import streamlit as st

from kernels import engines
from kernels.i18n import decimal, tr
from kernels.jobs.job import JobError
from kernels.ladders import find
from kernels.machine import memory_levels
from kernels.model.row import Row
from kernels.records import levels
from pages.memory import address, sizes
from pages.parts import gpu_choice, machine_choice
from pages.parts.lesson import deferred_loaded
from pages.parts.query import rerun, url_is_stale
from pages.parts.run import POLL_S, gpu_note
from pages.parts.text import card_title, conclusion, details, note, paragraph, quiet, together
from pages.parts.theme import tokens
from pages.parts.worker import worker
from visuals import units
from visuals.charts import bars, conclusions
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
            st.html(card_title(tr("Time")))
            if address.measured_shapes(topic, engine):
                _button(topic, engine, stride)
        if jobs := _jobs():
            done = sum(job.done for job in jobs)
            st.progress(done / len(jobs), text=tr("{done} of {total} measured", done=done, total=len(jobs)))
        gpu_note()
        if error := st.session_state.get("thread_error"):
            note(error)
        _draw_rows(topic, st.session_state.get("thread_rows", {}).get(topic, []), "measured", stride)
        gpu_choice.control(address.TOPICS[topic])
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
            st.session_state["thread_jobs"] = [machine_choice.submit(r, "", fresh=True) for r in requests]
            st.session_state["thread_topic"] = topic
        except JobError as e:
            st.session_state["thread_error"] = str(e)
        rerun()


def _collect() -> None:
    """Takes the rows once every job is done. Then reruns the page, so that polling stops."""
    jobs = _jobs()
    if not jobs or not all(job.done for job in jobs) or url_is_stale():
        return
    del st.session_state["thread_jobs"]
    rows: list[Row] = []
    for job in jobs:
        try:
            rows += job.result()
        except JobError as e:
            st.session_state["thread_error"] = str(e)
    st.session_state.setdefault("thread_rows", {})[st.session_state["thread_topic"]] = rows
    st.session_state["thread_at"] = time.time()
    rerun()


# -- drawing a set of rows -----------------------------------------------------------------------
def _draw_rows(topic: str, rows: Sequence[Row], kind: str, stride: int) -> None:
    """Draws the rows of one device as a chart under their badge. Without rows there is no chart."""
    if not rows:
        if kind == "recorded":
            quiet(tr("The app has no recording of this topic."))
        return
    if topic in SLOWDOWNS:
        _slowdown(topic, rows, kind, stride)
        return
    titled = [(find(r["rung"]).title_on(r["engine"]), r) for r in rows]
    together(conclusion(conclusions.of_times(titled)), _badge(rows[0], kind))
    _plot(lambda: bars.times(titled, tokens()), f"chart_{topic}_{kind}", bars.height(len(titled)))
    together(details(paragraph(_shape_text(topic, rows[0]))))


def _badge(row: Row, kind: str) -> str:
    when = f", {row['date']}" if kind == "recorded" else ""
    size = dict(row["shape"])
    text = tr("{n} loads", n=decimal(f"{size['n']:,}")) if "n" in size else _extents(size)
    return f'<p class="kt-figures">{units.badge(kind, units.provenance(row) + when)} {escape(text)}</p>'


def _extents(size: Mapping[str, int]) -> str:
    return decimal(" × ".join(f"{extent:,}" for extent in size.values()))


def _shape_text(topic: str, row: Row) -> str:
    """Returns the measured shape as text: the stage shows a smaller shape, or one warp of it."""
    shape = dict(row["shape"])
    if topic in SLOWDOWNS:
        warps = shape["n"] // 32
        return tr("The stage shows warp 0 of the {warps} warps that run.", warps=decimal(f"{warps:,}"))
    size = _extents(shape)
    return tr("Size: {size}. Threads and elements are mapped as on the stage.", size=size)


def _slowdown(topic: str, rows: Sequence[Row], kind: str, stride: int) -> None:
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
    first, *others = [charts.slowdown_sentence(line, stride, per_line[line.name], unit) for line in lines]
    together(conclusion(first), _badge(rows[0], kind))
    _plot(lambda: charts.slowdown(lines, counted, stride, tokens()), f"chart_{topic}_{kind}", charts.HEIGHT)
    notes = [*others, _shape_text(topic, rows[0]), _processor_note(rows[0])]
    together(details(*map(paragraph, notes)))


def _processor_note(row: Row) -> str:
    """Returns why times of a processor do not follow the sectors; "" for other rows."""
    line = memory_levels.cpu().levels[0].line_bytes if row["engine"] == "cpu" else 0
    if not line:
        return ""
    return tr(
        "A processor fetches lines of {line} bytes, not sectors of 32 bytes. The sectors are those of the GPU kernel, so "
        "the times here do not follow them.",
        line=line,
    )


def _line(rung: str, rows: Sequence[Row]) -> Line:
    role, symbol = STYLES.get(rung, ("input", "circle"))
    return Line(tr(find(rung).title), {r["shape"]["stride"]: r for r in rows if r["rung"] == rung}, role, symbol)


def _plot(draw, key: str, height: int) -> None:
    if deferred_loaded():
        st.plotly_chart(draw(), key=key, theme=None, config={"displayModeBar": False})
    else:
        st.container(height=height, border=False, key=f"{key}_wait")


# -- why, levels -----------------------------------------------------------------------------------
def why_card(topic: str, values: address.Values) -> None:
    with st.container(key="card_why", border=True):
        counted = address.counted(topic, dict(values))
        first, *others = counted.sentences
        shape = address.shape(topic, values)
        on_stage = tr("{shape}, on the stage", shape=sizes.name(shape))
        notes = details(f"<div>{counted.table_html()}</div>", *map(paragraph, others))
        together(card_title(tr("Why"), on_stage), conclusion(first), counted.bars_html(), notes)


def levels_card() -> None:
    """Draws the memory levels of this machine's GPU (else of the recorded GPU) and of its processor."""
    with st.container(key="card_levels", border=True):
        gpu = memory_levels.gpu(engines.load("cuda").status()) or levels.shown(*address.TOPICS.values())
        machines = [machine for machine in (gpu, memory_levels.cpu()) if machine]
        missing = "" if gpu else tr("This machine has no NVIDIA GPU, and the app has no recording of one.")
        how = tr("The first Run measures the copy speed.")
        together(
            card_title(tr("Levels of memory")),
            conclusion(charts.levels_sentence(machines[0])),
            _device(machines[0]),
            details(*map(_levels, machines), *map(paragraph, (missing, how))),
        )


def _device(levels: memory_levels.Levels) -> str:
    when = tr("recorded, {date}", date=levels.date) if levels.date else tr("this machine")
    return f'<p class="kt-figures"><b>{escape(levels.device)}</b>, {when}</p>'


def _levels(levels: memory_levels.Levels) -> str:
    return _device(levels) + charts.levels_table(levels.with_copy(_ceilings().get(levels.device)))


def _ceilings() -> dict[str, Row]:
    """Returns the ceilings that runs of this page measured, by device."""
    rows_by_topic = st.session_state.get("thread_rows", {})
    return {r["device"]: r["ceilings"] for rows in rows_by_topic.values() for r in rows if r.get("ceilings")}
