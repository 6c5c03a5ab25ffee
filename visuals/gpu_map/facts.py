"""Figures of a GPU map as fields of sentences."""

from __future__ import annotations

from kernels.i18n import mark
from visuals import units
from visuals.gpu_map.data import GpuMap
from visuals.gpu_map.texts import moved
from visuals.gpu_map.waves import wave_count

ARROWS = (mark("From HBM to L2"), mark("From L2 to the SMs"), mark("From shared memory to registers"))


def facts(m: GpuMap | None) -> dict[str, str]:
    """Returns the fields map_blocks, map_waves and map_sms of the first launch, and bytes in all: map_hbm (read from HBM),
    map_back (written), map_l2 (loaded from L2), map_near (loaded from shared memory or L1). "" for what is not known."""
    if m is None:
        return {}
    blocks, read = m.kernels[0].blocks, m.total.read
    found = {
        "map_blocks": units.whole(blocks.count),
        "map_waves": units.whole(wave_count(blocks.count, m.gpu.sms, blocks.resident)),
        "map_sms": units.whole(m.gpu.sms),
    }
    amounts = {"map_hbm": read[0], "map_l2": read[1], "map_near": read[2], "map_back": m.total.written[0]}
    return found | {name: moved(one) if one.bytes is not None else "" for name, one in amounts.items()}


def times_from_l2(m: GpuMap | None) -> float | None:
    """Returns how many bytes leave L2 for each that has to come from HBM; None if that is not known."""
    if m is None:
        return None
    hbm, l2 = m.total.read[0].bytes, m.total.read[1].bytes
    return None if hbm is None or l2 is None else l2 / hbm


def busiest(m: GpuMap | None) -> int | None:
    """Returns which of ARROWS carries the most bytes; None if one of them is not known."""
    if m is None:
        return None
    counts = [amount.bytes for amount in m.total.read if amount.bytes is not None]
    return counts.index(max(counts)) if len(counts) == len(m.total.read) else None
