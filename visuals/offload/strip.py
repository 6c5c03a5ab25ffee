"""The strip under a work on both sides: the times beside each other, the bytes of the copies, the parts of the GPU's time."""

from __future__ import annotations

from collections.abc import Mapping

from kernels.i18n import tr
from kernels.model.row import Json
from kernels.offload.figures import Figures
from kernels.offload.measure import CPU, GPU
from kernels.offload.works import COPIES, NONE
from visuals import units
from visuals.offload import captions
from visuals.offload.captions import BAR_TITLES, PART_TITLES, PROCESSOR
from visuals.offload.evidence import OffloadEvidence, Side, facts
from visuals.strip.strip import Run

LITTLE = 1.05  # times as fast: less is not shown as a factor


def strip(found: OffloadEvidence, run: Run, program: bool = False) -> Json:
    """Returns the strip as data for the player. `program`: the stage shows a program around the work."""
    size = {
        "key": "stage",
        "label": found.size_text,
        "shape": found.size_text,
        "stale": "",
        "canPut": False,
        "time": time(found, program),
        "memory": memory(found),
        "limits": parts(found),
    }
    return {
        "sizes": [size],
        "selected": "stage",
        "run": {
            "can": run.can,
            "running": run.running,
            "share": run.share,
            "text": run.text,
            "error": run.error,
            "label": tr("Stop") if run.running else tr("Run here"),
        },
        "texts": {"put": "", "ask": tr("The figures come after your guess."), "reveal": tr("Show them")},
    }


def badge(side: Side, one: Figures | None) -> dict[str, str]:
    """Returns the kind of a side's time, with its device, date and n."""
    n = tr("n = {n}", n=one.n) if one else ""
    return {"kind": side.kind, "text": " · ".join(filter(None, (tr(side.kind), side.device, side.date, n)))}


def time(found: OffloadEvidence, program: bool = False) -> Json:
    """Returns the GPU's time on the stage, the processor's, and the GPU's with other copies."""
    times = {CPU: found.cpu, **{copies: found.of_gpu(copies) for copies in COPIES}}
    longest = max((one.ms for one in times.values() if one), default=1.0)
    titles = {CPU: PROCESSOR, **BAR_TITLES}
    return {
        "value": units.time_(found.gpu.ms) if found.gpu else "–",
        "badge": badge(found.side(GPU), found.gpu),
        "name": tr(BAR_TITLES[found.copies]),
        "text": " ".join(filter(None, (time_text(found), program_text(found) if program else ""))),
        "bars": [
            _bar(tr(titles[name]), one, longest, name == found.copies, _source(found, name, one))
            for name, one in times.items()
        ],
    }


def _bar(title: str, one: Figures | None, longest: float, current: bool, hint: str) -> Json:
    if one is None:
        return {"title": title, "share": None, "text": "–", "current": current, "hint": tr("not measured")}
    return {
        "title": title,
        "share": one.ms / longest,
        "text": units.time_(one.ms),
        "current": current,
        "hint": hint,
        "low": one.p20_ms / longest,
        "high": min(1.0, one.p80_ms / longest),
    }


def _source(found: OffloadEvidence, name: str, one: Figures | None) -> str:
    return badge(found.side(CPU if name == CPU else GPU), one)["text"]


def time_text(found: OffloadEvidence) -> str:
    """Returns how the two sides compare, and whose processor's time it is if that is not the GPU's record."""
    if not found.gain:
        return tr("The processor was not measured at this size.")
    values = facts(found)
    of_cpu = found.side(CPU)
    text = (
        tr("{gain} times as fast as the processor, {cpu}.", gain=values["gain"], cpu=of_cpu.device)
        if found.gain >= 1
        else tr("{loss} times as long as the processor, {cpu}.", loss=values["loss"], cpu=of_cpu.device)
    )
    if of_cpu.kind != found.side(GPU).kind:
        text += " " + tr("The processor’s time is {kind}.", kind=tr(of_cpu.kind))
    return text


def program_text(found: OffloadEvidence) -> str:
    """Returns the speedup of a program around the work, in a sentence."""
    values = facts(found)
    if not values["speedup"]:
        return ""
    return tr("With {left} of other work: {speedup} times as fast, at most {limit}.", **values)


def memory(found: OffloadEvidence) -> Json:
    """Returns the bytes that the copies move."""
    total = found.bytes_in + found.bytes_out
    rows = [
        ("input", captions.PART_TITLES["in"], found.bytes_in),
        ("output", captions.PART_TITLES["out"], found.bytes_out),
    ]
    return {
        "title": tr("Bytes of the copies"),
        "badge": {"kind": "predicted", "text": tr("predicted {bytes}", bytes=units.bytes_(total))},
        "parts": [
            {
                "role": role,
                "label": tr(label),
                "text": units.bytes_(nbytes),
                "share": nbytes / total,
                "faint": found.copies == NONE,
            }
            for role, label, nbytes in rows
        ],
        "text": memory_text(found),
    }


def memory_text(found: OffloadEvidence) -> str:
    if found.copies == NONE:
        return tr("The arrays are on the GPU already, so no copy counts.")
    done, total = found.point.shape.flops, found.bytes_in + found.bytes_out
    if done < total:
        return tr("{ratio} bytes are copied for each operation.", ratio=units.ratio(total / done))
    return tr("{ratio} operations for each byte that is copied.", ratio=units.ratio(done / total))


def parts(found: OffloadEvidence) -> Json:
    """Returns the shares of the parts in the GPU's time, and what a faster kernel could still bring."""
    of: Mapping[str, float] = found.gpu.parts if found.gpu else {}
    whole, most = (found.gpu.ms, max(of.values())) if found.gpu else (1.0, 0.0)
    rows = [
        {"label": tr(PART_TITLES[name]), "share": ms / whole, "text": units.share(ms / whole), "main": ms == most}
        for name, ms in of.items()
        if ms
    ]
    return {"title": tr("Parts of the GPU’s time"), "rows": rows, "text": limit_of_kernel(found)}


def limit_of_kernel(found: OffloadEvidence) -> str:
    """Returns what a kernel without time would bring, in a sentence."""
    if found.kernel_limit is None:
        return ""
    if found.kernel_limit < LITTLE:
        return tr("A faster kernel would bring less than {share}.", share=units.share(LITTLE - 1))
    return tr(
        "If the kernel took no time, the whole would be {limit} times as fast.", limit=facts(found)["kernel_limit"]
    )
