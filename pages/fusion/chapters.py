"""The chapters of the lesson on fusion."""

from __future__ import annotations

from kernels.fusion.ladder import PLANS
from kernels.fusion.presets import FUSION_PRESETS
from kernels.i18n import mark
from kernels.ladders import find
from pages.parts.chapters import LIMITS, Chapter, Question, Story, faster
from visuals import units
from visuals.fusion.gpu_map import fusion_map
from visuals.gpu_map import facts as map_facts
from visuals.gpu_map.data import GpuMap
from visuals.strip.evidence import Evidence
from visuals.strip.facts import Evidences, Facts, limited_by

POINTWISE = {"chain": FUSION_PRESETS["fusion-bias-bn-relu"].shape.chain}

REAL = {"N": "64", "C": "256", "H": "56", "W": "56"}
SHARES = (mark("As much"), mark("Half as much"), mark("A third"))
FUSED, UNFUSED = "fusion/fused", "fusion/unfused"


def _map(evidences: Evidences, rung: str = "") -> GpuMap | None:
    """Returns the GPU map of the kernel on the stage, or of a rung at its default tile sizes."""
    at = evidences["stage"]
    shown = find(rung) if rung else at.rung
    tiles = shown.default_tiles | ({} if rung else dict(at.tiles))
    if shown.name not in PLANS or any(shown.rules(at.shape, tiles)):
        return None
    return fusion_map(at.shape, shown.name, tiles, count=False)


def _share_of_fused(evidences: Evidences) -> int | None:
    """Returns which of SHARES the fused kernel reads from HBM, of what the kernels on the stage read."""
    found, fused = _map(evidences), _map(evidences, FUSED)
    if not found or not fused:
        return None
    hbm, fused_hbm = found.total.read[0].bytes, fused.total.read[0].bytes
    if hbm is None or not fused_hbm:
        return None
    times = hbm / fused_hbm
    return {1: 0, 2: 1, 3: 2}.get(round(times))


def facts(evidences: Evidences) -> Facts:
    """Returns the figures of the GPU map, what the fused kernel reads from HBM, and times of single launches."""
    fused = map_facts.facts(_map(evidences, FUSED))
    found = map_facts.facts(_map(evidences)) | {"map_fused": fused.get("map_hbm", "")}
    for size, evidence in evidences.items():
        found |= {f"{size}_{name}": text for name, text in _of_launches(evidence).items()}
    return found


def _of_launches(evidence: Evidence) -> Facts:
    """Returns the time of the launch that folds batch norm, and the share of the convolution in the time of one launch per
    block."""
    found = {}
    for name, row in evidence.rows.items():
        parts = row.get("parts_ms") or {}
        if "fold" in parts:
            found["fold"] = units.time_(parts["fold"])
        if name == UNFUSED and "conv" in parts:
            found["conv_share"] = units.share(parts["conv"] / sum(parts.values()))
    return found


CHAPTERS = (
    Chapter(
        mark("Four kernels in a row"),
        (
            mark("A layer of a network is often a chain: convolution, bias, batch norm, ReLU. Each can be a kernel of its own."),
            mark("Each kernel reads what the one before has [stored](workspace), and stores its own result."),
            mark("Press Play and follow the first value."),
        ),
        {"rung": "unfused"},
        loop=(0, 16),
        size="real",
    ),
    Chapter(
        mark("The trip to memory"),
        (
            mark("Bias is one addition for each value. For it, the value is loaded from global memory and stored back."),
            mark("So 8 bytes go through memory for one addition."),
        ),
        {"rung": "unfused"},
        step=3,
        loop=(3, 7),
        size="real",
    ),
    Chapter(
        mark("Stay in the register"),
        (
            mark("One kernel can do all four. The value stays in a register from the convolution to ReLU."),
            mark("Only the last result is stored. The [maps](workspace) in between never exist."),
        ),
        {"rung": "fused"},
        readable=("x", "y", "v1"),
        loop=(0, 6),
        question=faster(
            mark("Your guess: is it faster on these tiny maps?"),
            "fusion/unfused", "stage",
            mark("It takes {stage_time}. {stage_against_unfused}"),
        ),
    ),
    Chapter(
        mark("Why, on tiny maps?"),
        (
            mark("The maps are tiny: they can stay in the L2 cache. But each launch has a price."),
        ),
        {"rung": "unfused"},
        step=16,
        question=Question(mark("What limits the four kernels here?"), LIMITS, limited_by("stage"), mark("Launching takes {stage_launch} of the time.")),
    ),
    Chapter(
        mark("On real maps, with a convolution"),
        (
            mark("The strip now shows {real_shape}. The convolution does many multiply-adds for each value that it stores."),
        ),
        {"rung": "fused"},
        step=5,
        size="real",
        question=faster(
            mark("Your guess: is the fused kernel faster there?"),
            "fusion/unfused", "real",
            mark(
                "It takes {real_time}. {real_against_unfused} The convolution alone is {real_conv_share} of the four launches. "
                "As a matrix product the whole chain takes {real_time_implicit_gemm}."
            ),
        ),
    ),
    Chapter(
        mark("Without the convolution"),
        (
            mark("Now the chain is only bias, batch norm and ReLU. Each does one or two operations for each value."),
            mark("The strip shows {real_shape}."),
        ),
        POINTWISE | {"rung": "fused"},
        step=0,
        size="real",
        question=faster(
            mark("Your guess: is the fused kernel faster now?"),
            "fusion/unfused", "real",
            mark("It takes {real_time}. {real_against_unfused} Each value makes one trip instead of three."),
        ),
    ),
    Chapter(
        mark("Where do the bytes go?"),
        (
            mark("The map shows bias, batch norm and ReLU as three launches on the whole GPU, each of {map_blocks} blocks in {map_waves} waves."),
            mark("Each launch reads all maps from HBM and writes them back: {map_hbm} read and {map_back} written in all."),
        ),
        POINTWISE | REAL | {"rung": "unfused", "order": "map"},
        step=1,
        question=Question(
            mark("How much does the fused kernel read from HBM?"),
            SHARES,
            _share_of_fused,
            mark("It reads {map_fused}. The [maps](workspace) in between are never stored."),
        ),
    ),
    Chapter(
        mark("Fold it away"),
        (
            mark("After training, batch norm is a multiplication and an addition with fixed numbers."),
            mark("They can be put into the [weights](filter) and the bias, once, before any image. From then on batch norm costs nothing."),
            mark("The recorded {real_time} include the launch that folds, {real_fold}; without folding, fused takes {real_time_fused}."),
        ),
        {"rung": "folded"},
        readable=("w", "w_folded1", "b_folded1"),
        loop=(0, 9),
        size="real",
        nudge=mark("Compare the two times in the strip: the convolution hides what is saved."),
    ),
    Chapter(
        mark("Where next"),
        (
            mark("Fusion saves launches and trips to memory. It helps if these limit a chain, and little beside one long kernel."),
            mark("Flash [attention](/attention) is the most famous fused kernel."),
            mark("Next, [moving data](/transfers) shows what happens before and after a kernel."),
        ),
        POINTWISE | {"rung": "fused"},
        step=5,
        size="real",
        nudge=mark("In Explore, build your own chain and press Run."),
    ),
)  # fmt: skip

STORY = Story(CHAPTERS, facts)
