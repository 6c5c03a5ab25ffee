"""The cards of the lesson on threads and memory: time over strides (or rungs), why, levels of memory."""

from __future__ import annotations

import time
from collections.abc import Sequence
from html import escape
from typing import Any

import streamlit as st

from kernels import engines
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
            st.html('<h2 class="kt-card">Time</h2>')
            if address.measured_shapes(topic, engine):
                _button(topic, engine, stride)
        if jobs := _jobs():
            done = sum(job.done for job in jobs)
            st.progress(done / len(jobs), text=f"{done} of {len(jobs)} measured")
        gpu_note()
        if error := st.session_state.get("thread_error"):
            note(error)
        _draw_rows(topic, st.session_state.get("thread_rows", {}).get(topic, []), "measured", stride)
        _draw_rows(topic, address.recorded(topic), "recorded", stride)
        if topic == "banks" and engine == "cpu":
            quiet("A processor has no banks: without a GPU there is nothing of this to measure here.")


def _button(topic: str, engine: str, stride: int) -> None:
    if jobs := _jobs():
        if st.button("Stop", key="stop"):
            for job in jobs:
                worker().cancel(job)
        return
    if st.button("Run here", key="run", type="primary"):
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
            quiet("No recording of this topic is shipped with the app yet.")
        return
    first = rows[0]
    when = f", {first['date']}" if kind == "recorded" else ""
    st.html(
        f'<p class="kt-figures">{units.badge(kind, units.provenance(first) + when)} {escape(_shape_text(topic, first))}</p>'
    )
    if topic in SLOWDOWNS:
        _slowdown(topic, rows, kind, stride)
    else:
        titled = [(find(r["rung"]).title, r) for r in rows]
        _plot(lambda: bars.times(titled, tokens()), f"chart_{topic}_{kind}", bars.height(len(titled)))


def _shape_text(topic: str, row: dict) -> str:
    """Returns the measured shape as text: the stage shows a smaller shape, or one warp of it."""
    shape = dict(row["shape"])
    if topic in SLOWDOWNS:
        warps = shape["n"] // 32
        return f"the stage shows warp 0 of the {warps:,} that run"
    return f"at {' × '.join(f'{v:,}' for v in shape.values())}, mapped as on the stage"


def _slowdown(topic: str, rows: Sequence[dict], kind: str, stride: int) -> None:
    lines = [_line(name, rows) for name in dict.fromkeys(row["rung"] for row in rows)]
    strides = sorted({row["shape"]["stride"] for row in rows} | {1, stride})
    if topic == "coalescing":
        counts = {s: charts.sectors(s) for s in strides}
        counted = {"sectors, counted": charts.relative(counts)}
        per_line = dict.fromkeys((line.name for line in lines), counted["sectors, counted"])
        unit = "sectors"
    else:
        per_line = {
            find(f"banks/{name}").title: charts.relative(
                {s: charts.wavefronts(s, name == "padded") for s in strides}
            )
            for name in ("plain", "padded")
        }
        counted, unit = {f"passes counted, {name}": of for name, of in per_line.items()}, "passes"
    _plot(
        lambda: charts.slowdown(lines, counted, stride, tokens()),
        f"chart_{topic}_{kind}",
        charts.HEIGHT,
    )
    sentences = (charts.slowdown_sentence(line, stride, per_line[line.name], unit) for line in lines)
    for text in filter(None, sentences):
        st.html(f'<p class="kt-why">{escape(text)}</p>')
    if rows[0]["engine"] == "cpu" and (line := memory_levels.cpu().levels[0].note):
        quiet(
            f"A processor fetches {line}, not sectors: a float has a line to itself from another stride on, and the times "
            "go their own way. The sectors are those of the GPU’s kernel."
        )


def _line(rung: str, rows: Sequence[dict]) -> Line:
    role, symbol = STYLES.get(rung, ("input", "circle"))
    return Line(find(rung).title, {r["shape"]["stride"]: r for r in rows if r["rung"] == rung}, role, symbol)


def _plot(draw, key: str, height: int) -> None:
    if deferred_loaded():
        st.plotly_chart(draw(), key=key, theme=None, config={"displayModeBar": False})
    else:
        st.container(height=height, border=False, key=f"{key}_wait")


# -- why, levels -----------------------------------------------------------------------------------
def why_card(topic: str, values: address.Values) -> None:
    with st.container(key="card_why", border=True):
        st.html('<h2 class="kt-card">Why</h2>' + address.counted(topic, dict(values)).html())


def levels_card() -> None:
    """Draws the memory levels of this machine's GPU (else of the recorded GPU) and of its processor."""
    with st.container(key="card_levels", border=True):
        st.html('<h2 class="kt-card">Levels of memory</h2>')
        gpu, ceilings = memory_levels.gpu(engines.load("cuda").status()), _ceilings()
        for levels in filter(None, (gpu or memory_levels.recorded(), memory_levels.cpu())):
            kind = "recorded" if levels.date else "measured"
            with_copy = levels.with_copy(ceilings.get(levels.device))
            when = f"recorded, {levels.date}" if kind == "recorded" else "this machine"
            st.html(
                f'<p class="kt-figures"><b>{escape(levels.device)}</b>, {when}</p>'
                + charts.levels_table(with_copy)
            )
        if not gpu and not memory_levels.recorded():
            quiet("There is no NVIDIA GPU in this machine, and none of a recording was kept.")
        quiet("How fast a copy goes is measured at the first Run.")


def _ceilings() -> dict[str, dict]:
    """Returns the ceilings that runs of this page measured, by device."""
    rows_by_topic = st.session_state.get("thread_rows", {})
    return {r["device"]: r["ceilings"] for rows in rows_by_topic.values() for r in rows if r.get("ceilings")}
