"""The cards of the lesson on parallel training. Each begins with its conclusion; the table that shows it is folded."""

from __future__ import annotations

from html import escape

import streamlit as st

from kernels.i18n import decimal, mark, tr, trn
from kernels.parallel import links
from kernels.parallel.check import Check
from kernels.parallel.memory import HELD
from kernels.parallel.plan import DATA, PIPELINES, TENSOR, WAYS
from kernels.parallel.timeline import LINK, SEND
from pages.parallel import address, stage
from pages.parts import guess
from pages.parts.text import card_title, conclusion, details, paragraph, table, together
from visuals import units
from visuals.parallel import recorded
from visuals.parallel.evidence import ParallelEvidence, facts
from visuals.parallel.scene import COLLECTIVES
from visuals.training.plan import NAMES

ASSUMPTIONS = (
    mark(
        "A kernel’s time has a fixed part and a part that grows with the images. Both come from two batches, recorded on an {device}."
    ),
    mark("All launches of a step are in one CUDA graph, so launching takes no time between kernels."),
    mark(
        "Inside a node of {node} GPUs a collective is a ring over NVLink. It takes 26 µs for 64 KiB on two H200s, and 1 GiB moves at 325 GB/s: both measured. A hop takes 3.4 µs, as NCCL assumes."
    ),
    mark("Between nodes each GPU has a network card of 400 Gbit/s, and a hop takes 14 µs, as NCCL assumes."),
    mark("Computing and communicating do not slow each other down."),
    mark(
        "Tensor parallel divides a layer’s time by the GPUs, except for the gradient of its weight. A few tiles cover that gradient, and each tile reads all images."
    ),
)


def section(values: address.Values) -> None:
    """Draws the cards."""
    found = stage.evidence(values)
    with guess.cards():
        with st.container(key="cards_left"):
            with st.container(key="card_time", border=True):
                moves(found)
            with st.container(key="card_roofline", border=True):
                same_numbers(found)
        with st.container(key="cards_right"):
            with st.container(key="card_memory", border=True):
                memory(found)
            with st.container(key="card_why", border=True):
                assumptions(found)
            with st.container(key="card_recorded", border=True):
                measured(found)


# -- what moves ------------------------------------------------------------------------------------------
def moves(found: ParallelEvidence) -> None:
    """Draws what the GPUs send each other in a step."""
    line = found.timeline
    tasks = [(n, task) for n, task in enumerate(line.tasks) if task.nbytes]
    title = card_title(tr("What moves, and when"))
    if not tasks or found.plan.gpus == 1:
        together(title, conclusion(tr("One GPU sends nothing.")))
        return
    total = sum(task.nbytes for _, task in tasks)
    said = trn(
        "A step has {n} exchange, over arrays of {bytes} together.",
        "A step has {n} exchanges, over arrays of {bytes} together.",
        len(tasks),
        bytes=units.bytes_(total),
    )
    rows = [
        (
            units.time_(line.starts[n] / 1e3),
            _kind(task.kind),
            task.name if task.kind != SEND else _route(task.name),
            units.bytes_(task.nbytes),
            units.time_(task.us / 1e3),
        )
        for n, task in sorted(tasks, key=lambda item: line.starts[item[0]])
    ]
    head = (tr("starts at"), tr("exchange"), tr("of"), tr("bytes"), tr("takes"))
    about = tr(
        "GPU 1 communicates for {moving} of {total}.",
        moving=units.time_(line.busy(0, LINK) / 1e3),
        total=units.time_(line.total / 1e3),
    )
    together(
        title,
        conclusion(said),
        f"<p>{units.badge('predicted')}</p>",
        paragraph(about, "why"),
        details(table(head, rows, tr("Exchanges of the step")), label=tr("All {n} exchanges", n=len(rows))),
    )


def _kind(kind: str) -> str:
    return tr("message") if kind == SEND else tr(COLLECTIVES[kind])


def _route(name: str) -> str:
    source, target = (int(n) + 1 for n in name.split(" → "))
    return tr("GPU {source} to GPU {target}", source=source, target=target)


# -- memory ------------------------------------------------------------------------------------------------
def memory(found: ParallelEvidence) -> None:
    """Draws the bytes of each role on each GPU."""
    totals = [holding.peak.total for holding in found.holdings]
    said = tr(
        "The fullest GPU needs {bytes}. One GPU alone would need {one}.",
        bytes=units.bytes_(max(totals)),
        one=units.bytes_(found.alone.peak.total),
    )
    rows = [
        (
            tr("GPU {n}", n=n + 1),
            *(units.bytes_(holding.largest(role)) for role in HELD),
            units.bytes_(holding.peak.total),
        )
        for n, holding in enumerate(found.holdings)
    ]
    head = ("", *(tr(NAMES[role]) for role in HELD), tr("peak"))
    together(
        card_title(tr("Memory of each GPU")),
        conclusion(said),
        f"<p>{units.badge('predicted')}</p>",
        table(head, rows, tr("Memory of each GPU")),
        paragraph(
            tr(
                "The most bytes of each role during a step. They do not all occur at once: the peak also has images and workspace."
            )
        ),
    )


# -- the numbers -------------------------------------------------------------------------------------------
def same_numbers(found: ParallelEvidence) -> None:
    """Draws a button that runs the step on this processor, and what the comparison gave."""
    together(
        card_title(tr("The same numbers")),
        conclusion(tr("Several GPUs must learn what one GPU learns: a test compares all weights after a step.")),
        paragraph(_about_numbers(found), "why"),
    )
    result = stage.checked(found)
    if result is None:
        together(
            paragraph(
                tr(
                    "Press the button under the picture. Where the GPUs are there, they run the step. Elsewhere this processor "
                    "runs it for all GPUs, with a few images."
                )
            )
        )
        return
    here = units.badge("measured", tr("here"))
    together(f"<p>{here}</p>", paragraph(result_text(found, result)))


def _about_numbers(found: ParallelEvidence) -> str:
    plan = found.plan
    if plan.way in PIPELINES:
        return tr("A pipeline with micro-batches is gradient accumulation: its weights are equal bit by bit.")
    if plan.way == TENSOR:
        return tr("Each split sum is added over all GPUs. Only the order of additions differs from one GPU.")
    if plan.network == "residual":
        return tr(
            "Batch norm uses the mean and variance of the images on its GPU alone. So this network learns other numbers than "
            "with all images on one GPU. Only if they are exchanged too (synchronised batch norm) is it the same."
        )
    return tr("The gradients of all images are added. Only the order of additions differs from one GPU.")


def result_text(found: ParallelEvidence, result: Check) -> str:
    """Returns what a comparison found, in sentences."""
    error = decimal(f"{result.error:.1g}")
    text = tr(
        "{images} images: the weights differ from one GPU’s float64 step by at most {error} of the largest weight.",
        images=result.images,
        error=error,
    )
    if result.parts_error is None:
        return text
    if result.parts_error == 0:
        return text + " " + tr("They equal a step of one GPU in as many parts bit by bit.")
    parts = decimal(f"{result.parts_error:.1g}")
    return text + " " + tr("From a step of one GPU in as many parts they differ by {error}.", error=parts)


# -- the model ---------------------------------------------------------------------------------------------
def assumptions(found: ParallelEvidence) -> None:
    """Draws what the predicted times assume."""
    fields = {"device": facts(found)["device"], "node": links.NODE}
    items = "".join(f"<li>{escape(tr(text, **fields))}</li>" for text in ASSUMPTIONS)
    together(
        card_title(tr("What the prediction assumes")),
        conclusion(tr("A predicted time follows from recorded kernels and a model of the links.")),
        f"<ul>{items}</ul>",
    )


def measured(found: ParallelEvidence) -> None:
    """Draws the times of parallel steps: those measured here, and the recorded ones, or that there are none."""
    rows = [row for row in recorded.rows() if row.get("step_us") and row["network"] == found.plan.network]
    title, here = card_title(tr("Recorded on several GPUs")), _measured_here(found)
    if not rows:
        together(title, *here, conclusion(tr("Not recorded yet.")))
        return
    head = (tr("way"), tr("GPUs"), tr("images"), tr("micro-batches"), tr("overlap"), tr("step"))
    together(
        title,
        *here,
        conclusion(trn("{n} step was recorded.", "{n} steps were recorded.", len(rows))),
        f"<p>{units.badge('recorded', _source(rows[0]))}</p>",
        details(table(head, [_line(row) for row in rows], tr("Recorded steps")), label=tr("All recorded steps")),
    )


def _source(row: recorded.Row) -> str:
    return f"{row['device']}, {row['date']}"


def _line(row: recorded.Row) -> tuple[str, ...]:
    """Returns the cells of a recorded step."""
    micro = str(row["micro"]) if row["way"] in PIPELINES else "–"
    overlap = "–" if row["way"] != DATA else tr("yes") if row.get("overlap") else tr("no")
    return (
        tr(WAYS[row["way"]]),
        str(row["gpus"]),
        units.count(row["batch"]),
        micro,
        overlap,
        units.time_(row["step_us"] / 1e3),
    )


def _measured_here(found: ParallelEvidence) -> tuple[str, ...]:
    """Returns what a run on the GPUs of this machine gave, if there was one."""
    row = found.measured.get(found.plan)
    if not row:
        return ()
    text = tr(
        "One step took {time}, measured on {gpus} × {device}. The weights differ from one GPU’s by at most {error} of the largest weight.",
        time=units.time_(row["step_us"] / 1e3),
        gpus=row["gpus"],
        device=row["device"],
        error=decimal(f"{row['error_of_weights']:.1g}"),
    )
    badge = units.badge("measured", tr("here"))
    return f"<p>{badge}</p>", paragraph(text)
