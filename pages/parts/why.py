"""Why: predicted, counted and measured figures of every rung, side by side, and files to take away."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from html import escape

import streamlit as st

from kernels.engines.emulator.counters import PTX_PER_MACHINE
from kernels.jobs.counts import Count
from kernels.ladders import ladder_of
from kernels.model.preset import Preset
from kernels.model.rung import Cost, Rung
from kernels.records.jsontext import id_of
from kernels.records.rows import table
from pages.parts import counts
from pages.parts.query import behind
from pages.parts.run_settings import Asked, Shown
from pages.parts.text import together
from visuals.charts import roofline, sweeps, units
from visuals.charts.story import Story, fastest_library

SHARED = {  # where a rung uses it: a wavefront is a pass over the 32 banks, of up to 128 bytes
    "wavefronts reading shared memory": "wavefronts_ld",
    "wavefronts writing it": "wavefronts_st",
}
MOST_COLUMNS = 5  # of rungs: more stand below each other


def card(asked: Asked, now: Shown, story: Story, link: Callable[[Preset, str], None]) -> None:
    every = (
        None
        if st.session_state.get("job")
        else counts.look_again(counts.wish(asked, counts.countable(asked)))
    )
    draw = st.fragment(_figures, run_every=every) if every else _figures
    draw(asked, now, polled=bool(every))
    with st.container(key="chips_why", horizontal=True):
        if found := story.examples():
            st.html(f'<p class="kt-quiet">{escape(story.examples_are)}</p>')
        for preset, words in found:
            link(preset, words)
    downloads(asked)


def _figures(asked: Asked, now: Shown, polled: bool) -> None:
    """The table. It is looked at again and again while rungs are counted, and then no more."""
    wish = counts.wish(asked, counts.countable(asked))
    if polled and counts.look_again(wish) is None and not behind():
        st.rerun()
    together('<h2 class="kt-card">Why</h2>', f"<div>{_table(asked, now, wish)}</div>")


def downloads(asked: Asked) -> None:
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
            st.page_link("history/page.py", label="in the history", query_params=query)


def cost(asked: Asked, rung: Rung) -> Cost:
    """What is predicted of a rung at this shape."""
    return rung.cost(asked.shape, rung.build(asked.shape, asked.tiles_of(rung)))


Lines = Mapping[str, Sequence[str]]  # a figure's name: its cells, a rung each


def _table(asked: Asked, shown: Shown, wish: counts.Wish | None) -> str:
    """Predicted above counted above measured: a column a rung, or a line a rung where there are many."""
    able = asked.able()
    costs = [cost(asked, r) for r in able]
    as_defined = all(c.flops == asked.shape.flops for c in costs)
    predicted = {
        f"FLOPs of {asked.ladder.work}" if as_defined else "FLOPs executed": [
            units.count(c.flops if as_defined else c.executed_flops) for c in costs
        ],
        "bytes moved, each tensor once a step": [units.bytes_(c.moved_bytes) for c in costs],
        "FLOP per byte": [units.ratio(c.moved_bytes and c.flops / c.moved_bytes) for c in costs],
        "workspace": [units.bytes_(c.workspace_bytes) for c in costs],
    }
    engine = next(iter(shown.rows.values()))["engine"] if shown.rows else asked.engine
    parts: list[tuple[str, Lines | str]] = [
        (units.badge("predicted"), predicted),
        (units.badge("counted", "sectors as in Nsight Compute"), _counted(asked, able, wish)),
    ]
    if shown.rows and not shown.stale:
        first = next(iter(shown.rows.values()))
        when = f", {first['date']}" if shown.kind == "recorded" else ""
        badge = units.badge(shown.kind, sweeps.provenance(list(shown.rows.values())) + when)
        library = fastest_library(shown.rows.values())
        parts.append((badge, _got([shown.rows.get(r.name) for r in able], first, library)))
    titles = [escape(r.title_on(engine)) for r in able]
    return (_columns if len(able) <= MOST_COLUMNS else lines)(titles, parts)


def _columns(titles: Sequence[str], parts: Sequence[tuple[str, Lines | str]]) -> str:
    """One table, a column a rung; a part that is a text says why it has no figures."""
    span, text = f'colspan="{len(titles) + 1}"', ""
    for n, (badge, told) in enumerate(parts):
        heads = "".join(f"<th>{title}</th>" for title in titles)
        text += f"<tr><th>{badge}</th>{heads}</tr>" if n == 0 else f"<tr><th {span}>{badge}</th></tr>"
        if isinstance(told, str):
            text += f'<tr><td {span} role="status">{escape(told)}</td></tr>'
            continue
        for name, cells in told.items():
            text += f"<tr><td>{name}</td>{_cells(cells)}</tr>"
    return _scrolled("Predicted, counted and measured", "", text)


def lines(titles: Sequence[str], parts: Sequence[tuple[str, Lines | str]]) -> str:
    """A table for each part, a line a rung; rungs of which all is the same share one."""
    text = ""
    for badge, told in parts:
        text += f'<p class="kt-figures">{badge}</p>'
        if isinstance(told, str):
            text += f'<p class="kt-quiet" role="status">{escape(told)}</p>'
            continue
        same: dict[tuple[str, ...], list[str]] = {}
        for title, cells in zip(titles, zip(*told.values(), strict=True), strict=True):
            same.setdefault(cells, []).append(title)
        body = "".join(
            f'<tr><th scope="row">{_together(of, len(titles))}</th>{_cells(cells)}</tr>'
            for cells, of in same.items()
        )
        heads = "".join(f'<th scope="col">{name}</th>' for name in told)
        text += _scrolled(
            badge.partition(">")[2].partition("<")[0], " kt-shares", f"<tr><td></td>{heads}</tr>{body}"
        )
    return text


def _together(titles: Sequence[str], all_: int) -> str:
    return f"all {all_} rungs" if len(titles) == all_ else "; ".join(titles)


def _cells(cells: Sequence[str]) -> str:
    return "".join(f"<td>{cell}</td>" for cell in cells)


def _scrolled(label: str, kind: str, rows: str) -> str:
    return f'<div class="kt-scroll" tabindex="0" role="region" aria-label="{label}"><table class="kt-table{kind}">{rows}</table></div>'


def _got(rows: Sequence[dict | None], first: dict, library: dict | None) -> dict[str, list[str]]:
    """What was measured of each rung, None where it has no row; shares only of what was measured with them, the
    library's row among that."""
    roof = roofline.roof_of(first, "measured")
    as_defined = roofline.as_defined(r for r in rows if r)
    told: dict[str, Callable[[dict], str]] = {
        "workspace": lambda r: units.bytes_(r["workspace_bytes"]),
        f"effective rate: {ladder_of(first['rung']).work}'s FLOPs": lambda r: units.rate(
            roofline.defined_flops(r), r["median_ms"]
        ),
        **(
            {}
            if as_defined
            else {"actual rate: FLOPs executed": lambda r: units.rate(r["flops"], r["median_ms"])}
        ),
        "relative L2 error": lambda r: f"{r['error']:.1e}",
    }
    if library:
        told["share of the fastest library's speed"] = lambda r: units.share(
            library["median_ms"] / r["median_ms"]
        )
    if roof:
        flops, copy = units.rate(roof.flops_per_s, 1e3), units.bandwidth(roof.bytes_per_s)
        kind = "effective" if as_defined else "actual"
        told[f"{kind} rate, share of the FP32 ceiling ({flops})"] = lambda r: units.share(
            r["flops"] / r["median_ms"] * 1e3 / roof.flops_per_s
        )
        told[f"bytes moved, share of the copy ceiling ({copy})"] = lambda r: units.share(
            r["predicted_bytes"] / r["median_ms"] * 1e3 / roof.bytes_per_s
        )

    def cell(name: str, row: dict | None) -> str:
        if row is None:
            return "–"
        own = name.startswith(("actual", "bytes moved"))
        return units.UNKNOWN if own and roofline.is_opaque(row) else told[name](row)

    return {name: [cell(name, row) for row in rows] for name in told}


def moved(asked: Asked, rung: Rung) -> int | None:
    """Bytes of the sectors that a rung's warps read and write, where the emulator has counted all of them."""
    count = None if rung.library else counts.known(asked, rung)
    return count and roofline.SECTOR * (count.total["sectors_ld"] + count.total["sectors_st"])


def _counted(asked: Asked, able: Sequence[Rung], wish: counts.Wish | None) -> Lines | str:
    """What the emulator counted, where the shape is small enough; else why there is nothing."""
    got = {r.name: counts.known(asked, r) for r in counts.countable(asked)}
    if not all(got.values()):
        return wish.words if wish else counts.too_large(asked)

    def cell(count: Count | None, name: str) -> str:
        if count is None:
            return "library"
        return units.count(count.total[name]) + (" + library" if count.left_out else "")

    def row(name: str) -> list[str]:
        return [cell(got.get(r.name), name) for r in able]

    least, most = PTX_PER_MACHINE
    shared = {words: name for words, name in SHARED.items() if any(c.total[name] for c in got.values())}
    return {
        "sectors read": row("sectors_ld"),
        "sectors written": row("sectors_st"),
        **{words: row(name) for words, name in shared.items()},
        f"warp instructions (PTX: {least} to {most} for each machine instruction)": row("warp_instructions"),
    }
