"""The same kernels at the same shape on several GPUs: a table of recorded times, each with the share of its GPU's
roof."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape

from kernels import records
from kernels.i18n import tr
from kernels.model.row import Row
from kernels.model.rung import Ladder, Rung
from kernels.model.shape import Shape
from kernels.records import Gpu, unsupported
from visuals import units
from visuals.charts import roofline

TilesOf = Callable[[Rung], Mapping[str, int]]


def rows(ladder: Ladder, shape: Shape, tiles_of: TilesOf, mode: str, gpus: Sequence[Gpu]) -> dict[str, dict[Gpu, Row]]:
    """Returns the recordings at a shape by rung name and GPU, of the rungs that have one."""
    found = {}
    for rung in ladder.rungs:
        of_gpus = {gpu: records.recorded(rung.name, shape, tiles_of(rung), mode, gpu) for gpu in gpus}
        if of_rung := {gpu: row for gpu, row in of_gpus.items() if row}:
            found[rung.name] = of_rung
    return found


def share_of_roof(row: Row) -> float | None:
    """Returns the rate as a share of what the measured peaks of the row's GPU allow; None if the peak of its units was
    not measured."""
    roof = roofline.roof_of(row, "recorded")
    if not roof or not roofline.has_intensity(row) or roofline.row_units(row):
        return None
    return roofline.Dot(1, "", row, "recorded").share_of(roof)


def sentence(rung: Rung, of_gpus: Mapping[Gpu, Row], gpus: Sequence[Gpu]) -> str:
    """Returns the times of a rung on the first GPU and on the fastest other one, in a sentence; "" without both."""
    others = [gpu for gpu in gpus[1:] if gpu in of_gpus]
    if not others or gpus[0] not in of_gpus:
        return ""
    fastest = min(others, key=lambda gpu: of_gpus[gpu]["median_ms"])
    here, there = of_gpus[gpus[0]]["median_ms"], of_gpus[fastest]["median_ms"]
    return tr(
        "{title} takes {time} on {gpu} and {other_time} on {other}: {ratio}× the time.",
        title=units.named(rung.title_on("cuda"), first=True),
        time=units.time_(here),
        gpu=gpus[0].name,
        other_time=units.time_(there),
        other=fastest.name,
        ratio=units.ratio(there / here),
    )


def table(ladder: Ladder, found: Mapping[str, Mapping[Gpu, Row]], gpus: Sequence[Gpu], shape: Shape) -> str:
    """Returns the HTML of a table: a line for each rung, a column for each GPU. A cell without a row says why."""
    label = tr("Times by GPU")
    head = "".join(f'<th scope="col">{escape(gpu.name)}</th>' for gpu in gpus)
    lines = []
    for rung in (rung for rung in ladder.rungs if rung.name in found):
        cells = "".join(
            f'<td style="white-space:nowrap">{escape(_cell(rung, found[rung.name].get(gpu), gpu, shape))}</td>'
            for gpu in gpus
        )
        lines.append(f'<tr><th scope="row">{escape(rung.title_on("cuda"))}</th>{cells}</tr>')
    return (
        f'<div class="kt-scroll" tabindex="0" role="region" aria-label="{escape(label)}">'
        f'<table class="kt-table kt-shares"><tr><td></td>{head}</tr>{"".join(lines)}</table></div>'
    )


def _cell(rung: Rung, row: Row | None, gpu: Gpu, shape: Shape) -> str:
    if row is None:
        entry = unsupported.recorded(rung.name, shape, gpu)
        return unsupported.plain(entry["said"]) if entry else tr("no recording")
    share = share_of_roof(row)
    return units.time_(row["median_ms"]) + (f", {units.share(share)}" if share is not None else "")
