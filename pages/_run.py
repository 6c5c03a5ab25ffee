"""Run and Why: measure the rungs of a ladder at the page's shape, recordings beside it."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import streamlit as st

from kernels import engines, records
from kernels.engines.emulator.counters import PTX_PER_MACHINE
from kernels.engines.timing import MODES
from kernels.jobs import JobError, Request, Worker
from kernels.ladders import find
from kernels.presets import Preset
from kernels.program import Ladder, Rung
from kernels.records import store
from kernels.records.rows import id_of, table
from kernels.runner import run
from pages._lesson import option, settled
from pages._look import tokens
from visuals import charts, figures
from visuals.why import Story

POLL_S = 0.25
Link = Callable[[Preset, str], None]


@dataclass(frozen=True)
class Asked:
    """What a press on Run would run: every rung of the ladder that can, on seeded random inputs (as the
    recordings were made: pictures hold many zeros, and zeros can run faster)."""

    ladder: Ladder
    shape: Any
    engine: str
    timing: str
    tiles: tuple[tuple[str, int], ...]

    def tiles_of(self, rung: Rung) -> dict[str, int]:
        return {name: value for name, value in self.tiles if name in rung.tiles}

    def able(self) -> list[Rung]:
        return [r for r in self.ladder.rungs if not any(r.rules(self.shape, self.tiles_of(r)))]

    def request(self) -> Request:
        able = self.able()
        tiles = {name: value for name, value in self.tiles if any(name in r.tiles for r in able)}
        return Request(tuple(r.name for r in able), self.shape, None, self.engine, tiles, self.timing)

    def recorded(self) -> dict[str, dict]:
        """Recorded rows by rung name, at exactly this shape, tiles and timing."""
        found = {
            r.name: records.recorded(r.name, self.shape, self.tiles_of(r), self.timing)
            for r in self.ladder.rungs
        }
        return {name: row for name, row in found.items() if row}

    def __str__(self) -> str:
        return f"{self.shape}, {', '.join(f'{name} {value}' for name, value in self.tiles)}, {self.timing}, {self.engine}"


@dataclass(frozen=True)
class Ran:
    """A finished comparison: what was asked for then, a row for each rung by name, when it was answered."""

    asked: Asked
    rows: Mapping[str, dict]
    at: float  # seconds since the epoch; before one's own press where somebody had asked the same

    @property
    def ago(self) -> str:
        minutes = int((time.time() - self.at) / 60)
        return f", {minutes} min ago" if minutes else ""


@dataclass(frozen=True)
class Shown:
    """The rows a card tells of, their kind, and whether the controls have moved away from them."""

    rows: Mapping[str, dict]
    kind: str
    stale: bool


@st.cache_resource
def worker() -> Worker:
    return Worker(on_rows=_keep)


def _keep(measured: Sequence[dict]) -> None:
    """What was measured goes into the store, whoever is still there to see it; the history tells of faults."""
    store.mine().keep([row for row in measured if "median_ms" in row])


def run_section(ladder: Ladder, shape: Any, story: Story, link: Link) -> None:
    """The three cards. `link(preset, words)` draws a link that sets the page to a preset."""
    every = POLL_S if st.session_state.get("job") else None
    st.fragment(_cards, run_every=every)(ladder, shape, story, link)


def _cards(ladder: Ladder, shape: Any, story: Story, link: Link) -> None:
    _collect()
    with st.container(key="cards", horizontal=True):
        with st.container(key="card_time", border=True):
            asked = _time_card(ladder, shape, story)
        shown = _shown(asked)
        with st.container(key="card_memory", border=True):
            _memory_card(asked, shown)
            _sentence(story.cost(shape))
        with st.container(key="card_why", border=True):
            st.html('<h2 class="kt-card">Why</h2>' + _table(asked, shown))
            with st.container(key="chips_why", horizontal=True):
                st.html('<p class="kt-quiet">im2col, times as fast as direct, recorded:</p>')
                for preset, words in story.examples():
                    link(preset, words)
            _downloads(asked)


def _shown(asked: Asked) -> Shown:
    """What the cards tell of: the run of just these settings, else their recording, else a stale run."""
    ran, recorded = st.session_state.get("ran"), asked.recorded()
    if ran and (ran.asked == asked or not recorded):
        return Shown(ran.rows, "measured", ran.asked != asked)
    return Shown(recorded, "recorded", False)


def _sentence(text: str) -> None:
    if text:
        st.html(f'<p class="kt-why">{escape(text)}</p>')


def _collect() -> None:
    """Take the result of a finished job; the page is run again so that polling stops."""
    if not (going := st.session_state.get("job")) or not going[0].done:
        return
    job, asked = st.session_state.pop("job")
    try:
        rows = {row["rung"]: row for row in job.result()}
        st.session_state["ran"] = Ran(asked, rows, job.answered_at)
    except JobError as e:
        st.session_state["run_error"] = str(e)
    st.rerun()


# -- time ----------------------------------------------------------------------------------------
def _time_card(ladder: Ladder, shape: Any, story: Story) -> Asked:
    with st.container(key="time_head", horizontal=True, vertical_alignment="center"):
        st.html('<h2 class="kt-card">Time</h2>')
        with st.container(key="chips_run", width="content"), st.popover("options", key="run_options"):
            asked = _options(ladder, shape)
        _button(asked)
    _progress()
    if error := st.session_state.get("run_error"):
        st.html(f'<p class="kt-note" role="alert">{escape(error)}</p>')
    if ran := st.session_state.get("ran"):
        stale = "" if ran.asked == asked else str(ran.asked)
        _times(asked, ran.rows, "measured", story, stale, ran.ago)
    if recorded := asked.recorded():
        _times(asked, recorded, "recorded", story)
    else:
        st.html(
            '<p class="kt-quiet">No recording at this shape and these options; the presets above have one.</p>'
        )
    for rung in ladder.rungs:
        for rule in rung.rules(shape, asked.tiles_of(rung)):
            st.html(f'<p class="kt-quiet">{escape(rung.title)} cannot run this shape: {escape(rule)}</p>')
    return asked


def _options(ladder: Ladder, shape: Any) -> Asked:
    ready = [name for name, s in engines.available().items() if s.ready and engines.load(name).MEASURES]
    engine = option("engine", ready)
    timing = option("caches", MODES)
    tiles = {name: choices for rung in ladder.rungs for name, choices in rung.tiles.items()}
    chosen = tuple((name, int(option(name, [str(c) for c in choices]))) for name, choices in tiles.items())
    st.caption(
        "cold: the caches are overwritten before each sample; hot: left as the run before left them. "
        "Tile sizes reach the CUDA kernels that have them; on the cpu engine only TILE means something. "
        "Every run is on seeded random numbers."
    )
    return Asked(ladder, shape, engine, timing, chosen)


def _button(asked: Asked) -> None:
    if job := st.session_state.get("job"):
        if st.button("Stop", key="stop"):
            worker().cancel(job[0])
        return
    if not st.button("Run here", key="run", type="primary"):
        return
    st.session_state["run_error"] = ""
    owner = st.session_state.setdefault("owner", uuid.uuid4().hex)
    ran = st.session_state.get("ran")
    again = ran is not None and ran.asked == asked  # what is on the page already is measured anew
    try:
        st.session_state["job"] = worker().submit(asked.request(), owner=owner, fresh=again), asked
    except JobError as e:
        st.session_state["run_error"] = str(e)
    st.rerun()


def _progress() -> None:
    job = st.session_state.get("job")
    if job:
        ahead = worker().position(job[0])
        text = f"{ahead} ahead of you" if ahead else job[0].text
        st.progress(job[0].share, text=text)


def _times(
    asked: Asked, rows: Mapping[str, dict], kind: str, story: Story, stale: str = "", ago: str = ""
) -> None:
    bars = _bars(asked, rows)
    first = rows[next(iter(rows))]
    when = f", {first['date']}" if kind == "recorded" else ago
    head = figures.badge(kind, figures.provenance(first) + when)
    if stale:
        head += f' <span class="kt-stale">stale: measured at {escape(stale)}</span>'
    st.html(f'<p class="kt-figures">{head}</p>')
    with st.container(key=f"{'stale' if stale else 'fresh'}_{kind}"):
        _chart(lambda: charts.times(bars, tokens()), len(bars), f"chart_times_{kind}")
        _sentence(story.gain(rows))


def _bars(asked: Asked, rows: Mapping[str, dict]) -> list[tuple[str, dict]]:
    """(title, row) of each rung that has a row, in the order of the ladder."""
    return [(r.title_on(rows[r.name]["engine"]), rows[r.name]) for r in asked.ladder.rungs if r.name in rows]


def _chart(draw: Callable[[], Any], bars: int, key: str) -> None:
    if not settled():
        st.container(height=charts.height(bars), border=False, key=f"{key}_wait")
        return
    figure = draw()
    st.plotly_chart(figure, key=key, theme=None, config={"displayModeBar": False})


# -- memory --------------------------------------------------------------------------------------
def _memory_card(asked: Asked, shown: Shown) -> None:
    st.html('<h2 class="kt-card">Memory</h2>')
    if not shown.rows:
        st.html('<p class="kt-quiet">Press Run: what each rung allocates is measured, not computed.</p>')
        return
    bars = _bars(asked, shown.rows)
    stale = ' <span class="kt-stale">stale</span>' if shown.stale else ""
    st.html(f'<p class="kt-figures">{figures.badge(shown.kind, bars[0][1]["device"] + ", peak")}{stale}</p>')
    with st.container(key="stale_memory" if shown.stale else "fresh_memory"):
        _chart(lambda: charts.memory(bars, tokens()), len(bars), "chart_memory")
    squares = " ".join(
        f'<span class="kt-{role}">■</span> {name}'
        for role, name in (("input", "input + filters"), ("output", "output"), ("workspace", "workspace"))
    )
    st.html(f'<p class="kt-quiet">{squares}</p>')


# -- why -----------------------------------------------------------------------------------------
def _downloads(asked: Asked) -> None:
    ran = st.session_state.get("ran")
    rows = [*(ran.rows.values() if ran else ()), *asked.recorded().values()]
    if not rows:
        return
    with st.container(key="downloads", horizontal=True):
        for name, data, kind in (
            ("CSV", table(rows), "text/csv"),
            ("JSON", json.dumps(rows, indent=1), "application/json"),
        ):
            file = f"kernel-theatre.{name.lower()}"
            st.download_button(name, data, file, kind, key=f"download_{name}", on_click="ignore")
        if ran:
            ids = [id_of(row) for row in ran.rows.values()][:2]
            query = dict(zip(("run", "against"), ids, strict=False))
            st.page_link("history.py", label="in the history", query_params=query)


def _table(asked: Asked, shown: Shown) -> str:
    """Predicted above measured, a column a rung."""
    able = asked.able()
    costs = [r.cost(asked.shape, r.build(asked.shape, asked.tiles_of(r))) for r in able]
    predicted = {
        "FLOPs": [figures.count(c.flops) for c in costs],
        "HBM traffic, at least": [figures.bytes_(c.bytes) for c in costs],
        "FLOP per byte": [f"{c.flops / c.bytes:.3g}" for c in costs],
        "workspace": [figures.bytes_(c.workspace_bytes) for c in costs],
    }
    engine = next(iter(shown.rows.values()))["engine"] if shown.rows else asked.engine
    head = "".join(f"<th>{escape(r.title_on(engine))}</th>" for r in able)
    text = f"<tr><th>{figures.badge('predicted')}</th>{head}</tr>" + _lines(predicted)
    text += _counted(asked, able)
    if shown.rows and not shown.stale:
        rows = [shown.rows[r.name] for r in able if r.name in shown.rows]
        library = [r["median_ms"] for r in rows if find(r["rung"]).library]
        got = {
            "workspace": [figures.bytes_(r["workspace_bytes"]) for r in rows],
            "effective rate": [figures.rate(r["flops"], r["median_ms"]) for r in rows],
            "relative L2 error": [f"{r['error']:.1e}" for r in rows],
        }
        if library:
            got["share of the library's speed"] = [f"{library[0] / r['median_ms']:.0%}" for r in rows]
        badge = figures.badge(shown.kind, figures.provenance(rows[0]))
        text += f'<tr><th colspan="{len(able) + 1}">{badge}</th></tr>' + _lines(got)
    return f'<div class="kt-scroll" tabindex="0" role="region" aria-label="Predicted, counted and measured"><table class="kt-table">{text}</table></div>'


MOST_COUNTED = 500_000  # multiply-adds the emulator runs while a reader waits


@st.cache_data(max_entries=64, show_spinner=False)
def _totals(rung: str, shape: Any, tiles: dict[str, int]) -> tuple[dict[str, int], bool]:
    """(counters of the whole program, is a library call left out) from the emulator."""
    counters = run(rung, shape, engine="emulator", tiles=tiles).counters
    return counters.total, bool(counters.uncounted)


def _counted(asked: Asked, able: Sequence[Rung]) -> str:
    """What the emulator counts, where the shape is small enough to count at once."""
    head = f'<tr><th colspan="{len(able) + 1}">{figures.badge("counted", "sectors as in Nsight Compute")}</th></tr>'
    if asked.shape.macs > MOST_COUNTED:
        note = f"counted here up to {figures.count(MOST_COUNTED)} multiply-adds; this shape has {figures.count(asked.shape.macs)}"
        return f'{head}<tr><td colspan="{len(able) + 1}">{note}</td></tr>'
    got = [_totals(r.name, asked.shape, asked.tiles_of(r)) for r in able]

    def row(name: str) -> list[str]:
        return [figures.count(total[name]) + (" + library" if left_out else "") for total, left_out in got]

    least, most = PTX_PER_MACHINE
    return head + _lines(
        {
            "sectors read": row("sectors_ld"),
            "sectors written": row("sectors_st"),
            f"warp instructions (PTX: {least} to {most} for each machine instruction)": row(
                "warp_instructions"
            ),
        }
    )


def _lines(figures_: Mapping[str, Sequence[str]]) -> str:
    return "".join(
        f"<tr><td>{name}</td>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
        for name, cells in figures_.items()
    )
