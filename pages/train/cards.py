"""The cards of the lesson on training. Each begins with its conclusion; the table that shows it is folded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape

import streamlit as st

from kernels.i18n import decimal, tr, trn
from kernels.model.row import Row
from kernels.training.loop import KEPT
from pages.parts import guess
from pages.parts.address import Values
from pages.parts.text import card_title, conclusion, details, paragraph, table, together
from pages.train import live, stage
from visuals import units
from visuals.strip.curve import loss_text
from visuals.training import flops, recorded, timeline
from visuals.training.evidence import StepEvidence, as_rows, facts
from visuals.training.graph_words import PHASES
from visuals.training.plan import NAMES, ROLES


def section(values: Values) -> None:
    """Draws the cards."""
    found = stage.evidence(values)
    with guess.cards():
        with st.container(key="cards_left"):
            with st.container(key="card_time", border=True):
                shares(found)
            with st.container(key="card_roofline", border=True):
                learning(values)
        with st.container(key="cards_right"):
            with st.container(key="card_memory", border=True):
                memory(found)
            with st.container(key="card_why", border=True):
                launches(found)
            with st.container(key="card_flops", border=True):
                conv1(found)


def _bars(rows: Iterable[tuple[str, float, str]]) -> str:
    """Returns the HTML of bars: label, share of the longest, text."""
    inside = "".join(
        f'<div><dt>{escape(label)}</dt><dd class="kt-bar"><i style="width: {100 * share:.1f}%"></i></dd><dd>{escape(text)}</dd></div>'
        for label, share, text in rows
    )
    return f'<dl class="kt-bars kt-step-bars">{inside}</dl>' if inside else ""


# -- the share of the step by kernel -----------------------------------------------------------------
def shares(found: StepEvidence) -> None:
    families = found.by_family()
    title = card_title(tr("Share of the step by kernel"))
    if not families:
        together(
            title,
            conclusion(tr("Not recorded yet. Press Train: the kernels of a step are then timed here.")),
            _nodes(found),
        )
        return
    name, share = next(iter(families.items()))
    said = tr("The largest share: {family}, {share} of the step.", family=name, share=units.share(share))
    bars = [(family, part / share, units.share(part)) for family, part in families.items()]
    together(title, conclusion(said), _badge(found), _bars(bars), _nodes(found))


def _badge(found: StepEvidence) -> str:
    if not found.badge:
        return ""
    kind, text = found.badge["kind"], found.badge["text"].partition(" · ")[2]
    return f"<p>{units.badge(kind, text)}</p>"


def _nodes(found: StepEvidence) -> str:
    rows = [
        (
            row["node"],
            tr(PHASES[row["phase"]]),
            row["rung"],
            str(row["launches"]),
            units.time_(row["ms"]) if row["ms"] else "–",
        )
        for row in as_rows(found)
    ]
    head = (tr("node"), tr("phase"), tr("kernel on a GPU"), tr("launches"), tr("time"))
    return details(table(head, rows, tr("Nodes of the step")), label=tr("All {n} nodes", n=len(rows)))


# -- memory ------------------------------------------------------------------------------------------
def memory(found: StepEvidence) -> None:
    p, f = found.plan, facts(found)
    said = tr(
        "At most {peak} exist at the same time, during launch {n} of {all}.",
        peak=f["peak"],
        n=f["peak_launch"],
        all=f["launches"],
    )
    kept = _kept(found, f)
    largest = max(p.largest(role) for role in ROLES)
    bars = [
        (tr(NAMES[role]), p.largest(role) / largest, units.bytes_(p.largest(role))) for role in ROLES if p.largest(role)
    ]
    together(
        card_title(tr("Memory")),
        conclusion(said),
        f"<p>{units.badge('predicted')}</p>",
        _bars(bars),
        paragraph(kept, "why"),
        paragraph(_measured(found)),
        *_held(found),
        paragraph(
            tr(
                "The bars show the most of each role during any launch. A tensor exists from the first launch that uses it to the last."
            )
        ),
    )


def _measured(found: StepEvidence) -> str:
    """Returns the peak that was measured on a GPU, and why it is not the sum above; "" without a record."""
    if not found.record or not found.record.get("peak_bytes"):
        return ""
    return tr(
        "Measured on {device}: {bytes}. All tensors that do not exist at the same time share one buffer there.",
        device=str(found.record["device"]),
        bytes=units.bytes_(found.record["peak_bytes"]),
    )


def _held(found: StepEvidence) -> tuple[str, ...]:
    """Returns the memory that was measured at each launch, beside the predicted one; nothing without a measurement."""
    if not found.held:
        return ()
    nbytes, node = timeline.peak(found)
    here = found.measured is not None
    device = found.measured.device if found.measured else str((found.record or {}).get("device", ""))
    most = tr("Measured in one step: at most {bytes}, during {node}.", bytes=units.bytes_(nbytes), node=node)
    how = (
        tr("NumPy allocates each tensor when it is first used and frees it after its last use.")
        if here
        else tr("CuPy’s memory pool allocates each tensor when it is first used and frees it after its last use.")
    )
    more = tr("The processor runs other kernels than a GPU. They need other workspace.") if here else ""
    badge = units.badge("measured" if here else "recorded", device)
    source = tr("measured, NumPy on this processor") if here else tr("recorded on a GPU")
    head = (tr("at most"), tr("predicted"), tr("measured"))
    return (
        f"<p>{badge}</p>",
        paragraph(f"{most} {how} {more}".strip(), "why"),
        timeline.html(found, source),
        details(table(head, timeline.rows(found), tr("Memory by role")), label=tr("Memory by role")),
    )


def _kept(found: StepEvidence, f: Mapping[str, str]) -> str:
    """Returns what the forward pass keeps, and what computing again would change."""
    if found.memory.every:
        return tr(
            "One layer in {every} keeps its result. The others are computed again before the way back needs them.",
            every=found.memory.every,
        )
    kept = tr("The forward pass keeps {held} for the way back.", held=f["held"])
    if not f["saved"]:
        return kept + " " + tr("Computing layers again would not lower the peak here.")
    saved = tr(
        "If one layer in {kept} keeps its result and the others are computed again, the peak is {saved} lower.",
        kept=KEPT,
        saved=f["saved"],
    )
    return f"{kept} {saved}"


# -- launches ----------------------------------------------------------------------------------------
def launches(found: StepEvidence) -> None:
    f, whole = facts(found), list(found.whole_steps())
    title = card_title(tr("Launches one by one, or one CUDA graph"))
    about = trn("A step of this network is {n} launch.", "A step of this network is {n} launches.", int(f["launches"]))
    graph = tr("A CUDA graph holds all of them. The processor then submits one graph in place of each launch.")
    if not whole:
        together(title, conclusion(tr("Not recorded yet for this step.")), paragraph(f"{about} {graph}", "why"))
        return
    said = (
        tr(
            "One graph takes {graph}, launches one by one {one}: {gain} times as long.",
            graph=f["graph"],
            one=f["one_by_one"],
            gain=f["gain"],
        )
        if f["gain"]
        else tr("Recorded in part.")
    )
    longest = max(ms for _, ms in whole)
    bars = _bars([(name, ms / longest, units.time_(ms)) for name, ms in whole])
    together(
        title,
        conclusion(said),
        f"<p>{units.badge('recorded', str((found.record or {}).get('device', '')))}</p>",
        bars,
        paragraph(f"{about} {graph}", "why"),
    )


# -- learning ----------------------------------------------------------------------------------------
def learning(values: Values) -> None:
    training, title = live.current(), card_title(tr("Loss and accuracy"))
    other = recorded.curve(values["network"])
    rows = [_run_row(each) for each in ([training] if training else []) + live.history() if each.shown()]
    if other:
        rows.append(_recorded_row(other))
    head = (tr("training"), tr("steps"), tr("loss"), tr("accuracy"), tr("time"))
    trainings = table(head, rows, tr("Trainings")) if rows else ""
    missing = "" if other else tr("On the H200: not recorded yet for this network.")
    together(
        title,
        conclusion(_learned(training)),
        trainings,
        paragraph(missing),
        paragraph(
            tr(
                "The data are {count} handwritten digits of the UCI repository (Alpaydin and Kaynak, 1998). {training} train, the others test.",
                count=decimal("1,797"),
                training=decimal("1,500"),
            )
        ),
    )


def _learned(training: live.Live | None) -> str:
    if training is None or not training.points:
        return tr("Nothing was trained here yet. Press Train under the picture.")
    if training.diverged:
        return tr("The training diverged: {text}.", text=training.diverged)
    if not training.accuracy:
        return tr("The training has begun.")
    share = units.share(training.accuracy[-1][1])
    return tr(
        "After {step} steps the network recognises {share} of the test digits.",
        step=training.points[-1][0],
        share=share,
    )


def _run_row(training: live.Live) -> tuple[str, ...]:
    step, loss = training.shown()[-1]
    name = stage.named(training)
    ended = (
        tr("diverged")
        if training.diverged
        else decimal(f"{100 * training.accuracy[-1][1]:.1f} %")
        if training.accuracy
        else "–"
    )
    return (name, str(step), loss_text(loss), ended, tr("{seconds} s here", seconds=decimal(f"{training.seconds:.3g}")))


def _recorded_row(row: Row) -> tuple[str, ...]:
    curve = row["curve"]
    (step, loss), accuracy = curve["loss"][-1], curve["accuracy"][-1][1]
    name = tr("recorded on {device}", device=str(row["device"]).removeprefix("NVIDIA "))
    return (
        name,
        str(step),
        loss_text(loss),
        decimal(f"{100 * accuracy:.1f} %"),
        tr("{seconds} s", seconds=decimal(f"{curve['seconds']:.3g}")) if "seconds" in curve else "",
    )


# -- FLOPs -------------------------------------------------------------------------------------------
def conv1(found: StepEvidence) -> None:
    rows = flops.rows(found)
    head = (tr("first convolution"), tr("product of"), tr("multiply-adds"), tr("FLOPs, as counted here"))
    together(
        card_title(tr("Two ways to count the first convolution")),
        conclusion(tr("The 1.2 · 10⁸ of the literature are multiply-adds. We count a multiply-add as two operations.")),
        table(head, rows, tr("Counts of the first convolution")),
        paragraph(flops.explained(), "why"),
    )
