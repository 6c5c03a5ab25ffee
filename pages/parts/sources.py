"""Kernel: the CUDA C++ of every rung, its difference from the previous one, and its use of an SM."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from html import escape

import streamlit as st

from kernels import sources
from kernels.engines.emulator import precompiled
from kernels.engines.emulator.occupancy import H200, Occupancy, occupancy
from kernels.i18n import cached, mark, tr
from kernels.model.program import Launch, RuleError
from kernels.model.rung import Ladder, Rung
from kernels.model.shape import Shape
from kernels.precompile import build
from kernels.records import availability
from pages.parts.lesson import deferred_loaded
from pages.parts.query import chosen
from pages.parts.text import card_title, details, paragraph, together
from visuals import units
from visuals.charts import source_diff

Tiles = Callable[[Rung], Mapping[str, int]]


@dataclass(frozen=True)
class Use:
    """A rung's launch of a kernel of one file."""

    rung: Rung
    launch: Launch


def draw_tabs(
    ladder: Ladder, shape: Shape, tiles: Tiles = lambda rung: rung.default_tiles, first: str = "", file: str = ""
) -> None:
    """Draws a tab for each file, in the order of the ladder, at the tile sizes of each rung (`tiles`).

    The tab of the rung `first` is in front; if it has several files, that of `file`.
    """
    with st.container(key="kernels"):
        st.html(card_title(tr("Kernel")) + paragraph(_of_run(ladder)))
        if not deferred_loaded():
            return
        uses = used(ladder.rungs, shape, tiles)
        front = next((f for f, use in uses.items() if any(u.rung.name == first for u in use)), "")
        # The key differs for each rung in front, because Streamlit remembers the chosen tab by key.
        st.fragment(_tabs)(uses, file if file in uses else front, f"tabs_{first}{file}")


def _of_run(ladder: Ladder) -> str:
    """Returns what Run does with the sources, on a GPU and without one."""
    compiled = tr("Run compiles this source for an NVIDIA GPU.")
    if any(not rung.why_not_on("cpu") for rung in ladder.rungs):
        return " ".join((compiled, tr("Without a GPU, Run computes with NumPy and does not use this source.")))
    return " ".join((compiled, tr("Without a GPU, Run measures none of these kernels.")))


def _tabs(uses: Mapping[str, Sequence[Use]], front: str, key: str) -> None:
    """Draws a tab for each file and the listing of the open one.

    The browser walks through all elements of hidden tabs whenever the page changes, and a listing has thousands of them.
    """
    files = [*uses, *sorted({header for file in uses for header in sources.headers(file)})]
    names = [name_of(file) for file in files]
    tabs = st.tabs(names, default=name_of(front or files[0]), key=key, on_change="rerun")
    for n, tab in enumerate(tabs):
        if tab.open:
            with tab:
                _tab(files[n], files[n - 1] if 0 < n < len(uses) else "", uses.get(files[n], []))


def chosen_tiles(rung: Rung) -> dict[str, int]:
    """Returns a rung's tile sizes as in the URL, where they have their own names.

    A size that is missing in the URL is the first of the rung's choices.
    """
    return {name: int(chosen(name, [str(c) for c in choices])) for name, choices in rung.tiles.items()}


def used(rungs: Sequence[Rung], shape: Shape, tiles: Tiles) -> dict[str, list[Use]]:
    """Returns the launches by file, files in the order of the ladder.

    A rung that does not support the shape has no launches here, but its file is included: its kernel can be read.
    """
    found: dict[str, list[Use]] = {}
    for rung in rungs:
        sizes = tiles(rung)
        broken = not availability.runs(rung, shape, sizes)
        for step in rung.build(shape, rung.default_tiles if broken else sizes).steps:
            if isinstance(step, Launch):
                found.setdefault(step.source, [])
                if not broken:
                    found[step.source].append(Use(rung, step))
    return found


def name_of(file: str) -> str:
    return file.rpartition("/")[2]


def _tab(file: str, before: str, uses: Sequence[Use]) -> None:
    launch_texts = dict.fromkeys(needs(use) for use in uses)  # two rungs can have the same launch
    heads = "".join(f'<p class="kt-figures">{text}</p>' for text in launch_texts)
    label = tr("Registers, shared memory and occupancy")
    together(details(heads, label=label), _changes(before, file) if before else "")
    st.code(sources.text(file), language="cpp", line_numbers=True)


@cached(64)
def _changes(before: str, file: str) -> str:
    added, removed = source_diff.counts(sources.text(before), sources.text(file))
    label = tr("Difference from {file}", file=name_of(before))
    count = tr("{added} lines added, {removed} removed", added=added, removed=removed)
    return (
        f'<details class="kt-more kt-changes"><summary>{escape(label)}: {count}</summary>'
        f"{source_diff.html(sources.text(before), sources.text(file), label)}</details>"
    )


def needs(use: Use) -> str:
    """Returns HTML with a launch's use of an SM and how many of its warps fit there."""
    launch, order = use.launch, list(use.rung.tiles)
    sizes = sorted(launch.defines, key=lambda size: order.index(size[0]) if size[0] in order else len(order))
    at = " ".join(f"{name} {value}" for name, value in sizes)
    threads = math.prod(launch.block)
    name = f"<b>{escape(launch.entry)}</b>"
    if at:
        name = tr("{kernel} with {sizes}", kernel=name, sizes=escape(at))
    per_block = tr("{threads} threads per block", threads=units.whole(threads))
    usage = resources(launch.source, launch.defines)
    if not usage:
        unknown = tr("Registers are unknown: these tile sizes were not compiled ahead, and NVRTC is missing.")
        return f"{name}: {per_block}. {unknown}"
    shared = usage["shared_bytes"] + launch.shared
    fit = occupancy(usage["registers"], shared, threads)
    facts = (
        per_block,
        tr("{n} registers per thread", n=usage["registers"]),
        tr("{bytes} spilled", bytes=units.bytes_(usage["spill_bytes"])) if usage["spill_bytes"] else tr("no spills"),
        tr("{bytes} shared memory", bytes=units.bytes_(shared)),
    )
    badge = units.badge("predicted", tr("ptxas for sm_90, occupancy by formula"))
    return f"{name}: {', '.join(facts)}. {_fits(fit)} {badge}"


@lru_cache(maxsize=256)
def resources(source: str, defines: precompiled.Defines) -> Mapping[str, int] | None:
    """Returns what ptxas reports of a kernel, as checked in, else compiled now; None if there is no compiler."""
    if known := precompiled.resources(source, defines):
        return known
    try:
        return build(source, defines).resources
    except RuleError:
        return None


LIMITS = {
    "registers": mark("Registers are the limit."),
    "shared memory": mark("Shared memory is the limit."),
    "warps": mark("Warps are the limit."),
    "blocks": mark("The number of blocks is the limit."),
}


def _fits(fit: Occupancy) -> str:
    if not fit.blocks:
        return tr("No block fits on an SM of the {device}.", device=H200.name) + " " + tr(LIMITS[fit.limit])
    if fit.share == 1:
        return tr("All {n} warps fit on an SM of the {device}.", n=H200.warps, device=H200.name)
    fields = {"warps": fit.warps, "n": H200.warps, "share": units.share(fit.share), "device": H200.name}
    return tr("{warps} of {n} warps ({share}) fit on an SM of the {device}.", **fields) + " " + tr(LIMITS[fit.limit])
