"""Run and Why: measure the rungs of a ladder at the page's shape, recordings beside it."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import streamlit as st

from kernels import engines, records
from kernels.engines.timing import MODES
from kernels.jobs import JobError, Request, Worker
from kernels.program import Ladder, RuleError, Rung
from kernels.runner import check_memory
from pages._look import tokens
from visuals import charts, figures

POLL_S = 0.25
DEVICE = "NVIDIA H200"  # whose recordings ship with the app


@dataclass(frozen=True)
class Asked:
    """What a press on Run would run. `inputs` tells pictures and filters apart, for staleness."""

    ladder: Ladder
    shape: Any
    inputs: Any  # has x() and w(), equal when the same
    engine: str
    timing: str
    tiles: Mapping[str, int]

    @property
    def key(self) -> tuple:
        return (self.shape, repr(self.inputs), self.engine, self.timing, tuple(self.tiles.items()))

    def tiles_of(self, rung: Rung) -> dict[str, int]:
        return {name: self.tiles[name] for name in rung.tiles}

    def able(self) -> list[Rung]:
        return [r for r in self.ladder.rungs if not any(r.rules(self.shape, self.tiles_of(r)))]

    def recorded(self) -> dict[str, dict]:
        """Recorded rows by rung name, at exactly this shape, tiles and timing."""
        found = {
            r.name: records.recorded(r.name, self.shape, self.tiles_of(r), self.timing)
            for r in self.ladder.rungs
        }
        return {name: row for name, row in found.items() if row}


@dataclass(frozen=True)
class Ran:
    """A finished comparison and what was asked for then."""

    key: tuple
    where: str  # in words: the shape and tiles it was run at
    rows: Mapping[str, dict]


@st.cache_resource
def worker() -> Worker:
    return Worker()


def run_section(ladder: Ladder, shape: Any, inputs: Any, why) -> None:
    """The three cards. `why(rows by rung, source badge)` gives the page's own sentences as HTML."""
    every = POLL_S if st.session_state.get("job") else None
    st.fragment(_cards, run_every=every)(ladder, shape, inputs, why)


def _cards(ladder: Ladder, shape: Any, inputs: Any, why) -> None:
    _collect()
    with st.container(key="cards", horizontal=True):
        with st.container(key="card_time", border=True):
            asked = _time_card(ladder, shape, inputs)
        ran = st.session_state.get("ran")
        recorded = asked.recorded()
        rows = ran.rows if ran and ran.key == asked.key else recorded
        with st.container(key="card_memory", border=True):
            _memory_card(asked, rows, recorded)
        with st.container(key="card_why", border=True):
            _why_card(asked, rows, recorded, why)


def _collect() -> None:
    """Take the result of a finished job; the page is run again so that polling stops."""
    job = st.session_state.get("job")
    if not job or not job[0].done:
        return
    del st.session_state["job"]
    try:
        rows = job[0].result()
        st.session_state["ran"] = Ran(job[1], job[2], {row["rung"]: row for row in rows})
        st.session_state["run_error"] = ""
    except JobError as e:
        st.session_state["run_error"] = str(e)
    st.rerun()


# -- time ----------------------------------------------------------------------------------------
def _time_card(ladder: Ladder, shape: Any, inputs: Any) -> Asked:
    with st.container(key="time_head", horizontal=True, vertical_alignment="center"):
        st.html('<h2 class="kt-card">Time</h2>')
        asked = _options(ladder, shape, inputs)
        _button(asked)
    _progress()
    if error := st.session_state.get("run_error"):
        st.html(f'<p class="kt-note" role="alert">{escape(error)}</p>')
    ran = st.session_state.get("ran")
    if ran:
        _times(asked, ran.rows, "measured", stale=ran.where if ran.key != asked.key else "")
    recorded = asked.recorded()
    if recorded:
        _times(asked, recorded, "recorded")
    else:
        st.html(
            f'<p class="kt-quiet">No recording on an {DEVICE} at this shape and these tile sizes; '
            "the presets above have one.</p>"
        )
    for rung in ladder.rungs:
        for rule in rung.rules(shape, asked.tiles_of(rung)):
            st.html(f'<p class="kt-quiet">{escape(rung.title)} cannot run this shape: {escape(rule)}</p>')
    return asked


def _options(ladder: Ladder, shape: Any, inputs: Any) -> Asked:
    """Engine, timing and tile sizes, each in the address."""
    choices = {name: c for rung in ladder.rungs for name, c in rung.tiles.items()}
    with st.popover("options", key="run_options"):
        ready = [name for name, status in engines.available().items() if status.ready]
        engine = st.pills("engine", ready, default=ready[0], required=True, key="engine", bind="query-params")
        timing = st.pills(
            "caches", MODES, default=MODES[0], required=True, key="timing", bind="query-params",
            help="cold: the caches are overwritten before each sample; hot: they are left as the run before left them",
        )  # fmt: skip
        tiles = {}
        for name, values in choices.items():
            texts = [str(v) for v in sorted(values)]
            tiles[name] = int(st.pills(
                name, texts, default=str(values[0]), required=True, key=name, bind="query-params"
            ) or values[0])  # fmt: skip
        st.caption("Tile sizes reach the kernels that have them; NumPy's twins know TILE alone.")
    return Asked(ladder, shape, inputs, engine or ready[0], timing or MODES[0], tiles)


def _button(asked: Asked) -> None:
    if st.session_state.get("job"):
        if st.button("Stop", key="stop"):
            worker().cancel(st.session_state["job"][0])
    elif st.button("Run here", key="run", type="primary"):
        _submit(asked)
        st.rerun()


def _submit(asked: Asked) -> None:
    st.session_state["run_error"] = ""
    try:
        able = asked.able()
        if not able:
            raise RuleError("no rung can run this shape")
        check_memory(asked.engine, asked.shape, [r.build(asked.shape, asked.tiles_of(r)) for r in able])
        request = Request(
            tuple(r.name for r in able),
            asked.shape,
            {"x": asked.inputs.x(), "w": asked.inputs.w()},
            asked.engine,
            {name: v for name, v in asked.tiles.items() if any(name in r.tiles for r in able)},
            asked.timing,
        )
        tiles = ", ".join(f"{name} {value}" for name, value in asked.tiles.items())
        st.session_state["job"] = worker().submit(request), asked.key, f"{asked.shape}, {tiles}"
    except (RuleError, JobError, MemoryError) as e:
        st.session_state["run_error"] = str(e) or "this machine's memory is full; take a smaller shape"


def _progress() -> None:
    job = st.session_state.get("job")
    if job:
        ahead = worker().position(job[0])
        text = f"{ahead} ahead of you" if ahead else job[0].text
        st.progress(job[0].share, text=text)


def _times(asked: Asked, rows: Mapping[str, dict], kind: str, stale: str = "") -> None:
    shown = [(r.title, rows[r.name]) for r in asked.ladder.rungs if r.name in rows]
    first = shown[0][1]
    head = figures.badge(
        kind, figures.provenance(first) + (f", {first['date']}" if kind == "recorded" else "")
    )
    if stale:
        head += (
            f' <span class="kt-stale">stale: measured at {escape(stale)}; press Run for these settings</span>'
        )
    st.html(f'<p class="kt-figures">{head}</p>')
    figure = charts.times([row for _, row in shown], [title for title, _ in shown], tokens())
    with st.container(key=f"times_{kind}{'_stale' if stale else ''}"):
        _chart(figure, f"chart_times_{kind}")


def _chart(figure, key: str) -> None:
    st.plotly_chart(figure, key=key, theme=None, config={"displayModeBar": False})


# -- memory --------------------------------------------------------------------------------------
def _memory_card(asked: Asked, rows: Mapping[str, dict], recorded: Mapping[str, dict]) -> None:
    st.html('<h2 class="kt-card">Memory</h2>')
    if not rows:
        st.html('<p class="kt-quiet">Press Run: what each rung allocates is measured, not computed.</p>')
        return
    kind = "recorded" if rows is recorded else "measured"
    shown = [(r.title, rows[r.name]) for r in asked.ladder.rungs if r.name in rows]
    st.html(f'<p class="kt-figures">{figures.badge(kind, shown[0][1]["device"] + ", peak")}</p>')
    _chart(charts.memory([row for _, row in shown], [title for title, _ in shown], tokens()), "chart_memory")
    squares = "".join(
        f'<span class="kt-{role}">■</span> {name} '
        for role, name in (("input", "input + filters"), ("output", "output"), ("workspace", "workspace"))
    )
    st.html(f'<p class="kt-quiet">{squares}</p>')


# -- why -----------------------------------------------------------------------------------------
def _why_card(asked: Asked, rows: Mapping[str, dict], recorded: Mapping[str, dict], why) -> None:
    st.html('<h2 class="kt-card">Why</h2>')
    kind = "recorded" if rows is recorded else "measured"
    st.html(_table(asked, rows, kind) + why(asked.shape, rows))
    every = [
        *(st.session_state["ran"].rows.values() if st.session_state.get("ran") else ()),
        *recorded.values(),
    ]
    if every:
        with st.container(key="downloads", horizontal=True):
            st.download_button(
                "CSV", _csv(every), "kernel-theatre.csv", "text/csv", key="csv", on_click="ignore"
            )
            st.download_button("JSON", json.dumps(every, indent=1), "kernel-theatre.json", "application/json",
                               key="json", on_click="ignore")  # fmt: skip


def _table(asked: Asked, rows: Mapping[str, dict], kind: str) -> str:
    """Predicted beside measured, a column a rung."""
    able = asked.able()
    costs = [r.cost(asked.shape, r.build(asked.shape, asked.tiles_of(r))) for r in able]
    got = [rows.get(r.name) for r in able]
    lines = [
        ("FLOPs", "predicted", [figures.count(c.flops) for c in costs]),
        ("HBM bytes, at least", "predicted", [figures.bytes_(c.bytes) for c in costs]),
        ("FLOP per byte", "predicted", [f"{c.flops / c.bytes:.3g}" for c in costs]),
        ("workspace", "predicted", [figures.bytes_(c.workspace_bytes) for c in costs]),
    ]
    if rows:
        lines += [
            ("workspace", kind, [figures.bytes_(g["workspace_bytes"]) if g else "" for g in got]),
            ("rate", kind, [figures.rate(g["flops"], g["median_ms"]) if g else "" for g in got]),
            ("error", kind, [f"{g['error']:.1e}" if g else "" for g in got]),
        ]
    head = "".join(f"<th>{escape(r.title)}</th>" for r in able)
    body = "".join(
        f"<tr><td>{name} {figures.badge(kind_)}</td>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
        for name, kind_, cells in lines
    )
    return f'<div class="kt-scroll"><table class="kt-table"><tr><th></th>{head}</tr>{body}</table></div>'


def _csv(rows: Sequence[Mapping]) -> str:
    """One line a row; what is not a plain value (shape, tiles, samples) as JSON in its cell."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({k: json.dumps(v) if isinstance(v, (dict, list)) else v for k, v in row.items()})
    return text.getvalue()
