"""The memory of the kernel on the stage: one bar by role, measured and predicted."""

from __future__ import annotations

from kernels.i18n import tr
from kernels.model.program import INPUT, OUTPUT, WORKSPACE
from kernels.model.row import Json
from visuals import units
from visuals.strip.evidence import Evidence

SMALL = 4096  # bytes: below that the difference is the allocator's rounding, and a share would say nothing
ALLOCATION = 512  # bytes: CuPy's memory pool hands out multiples of it


def memory(evidence: Evidence) -> Json:
    """Returns the bytes by role, each with its share of all, and one sentence."""
    row, predicted = evidence.row, evidence.predicted_bytes()
    sizes = {role: row[f"{role}_bytes"] for role in predicted} if row else {r: n or 0 for r, n in predicted.items()}
    total = sum(sizes.values())
    names = {INPUT: tr(evidence.ladder.inputs), OUTPUT: tr("output"), WORKSPACE: tr("workspace")}
    peak = row["peak_bytes"] if row else total
    kind = evidence.kind if row else "predicted"
    return {
        "title": tr("Memory"),
        "badge": {"kind": kind, "text": _badge(kind, peak)},
        "parts": [
            {"role": role, "label": names[role], "text": units.bytes_(size), "share": size / total if total else 0}
            for role, size in sizes.items()
            if size
        ],
        "text": f"{_conclusion(sizes, total)} {_predicted(peak, predicted) if row else ''}".strip(),
    }


def _badge(kind: str, peak: int) -> str:
    if kind == "predicted":
        return tr("predicted {bytes}", bytes=units.bytes_(peak))
    return tr("measured peak {bytes}", bytes=units.bytes_(peak))


def _conclusion(sizes: dict[str, int], total: int) -> str:
    workspace = sizes[WORKSPACE]
    if not workspace:
        return tr("No workspace: only inputs and output are in memory.")
    return tr("The workspace is {share} of all memory in use.", share=units.share(workspace / total))


def _predicted(peak: int, predicted: dict[str, int | None]) -> str:
    if predicted[WORKSPACE] is None:
        return tr("Only the library knows its workspace beforehand.")
    expected = sum(size or 0 for size in predicted.values())
    if abs(peak - expected) < 0.005 * expected:
        return tr("Predicted: the same.")
    if abs(peak - expected) < SMALL:
        return tr(
            "Predicted: {bytes}. Memory is allocated in pieces of {piece}.",
            bytes=units.bytes_(expected),
            piece=units.bytes_(ALLOCATION),
        )
    return tr("Predicted: {bytes}.", bytes=units.bytes_(expected))
