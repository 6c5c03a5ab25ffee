"""The chapters of the lesson on fusion."""

from __future__ import annotations

from kernels.fusion.presets import FUSION_PRESETS
from kernels.i18n import mark
from pages.parts.chapters import LIMITS, Chapter, Question, Story, faster
from visuals.strip.facts import limited_by

POINTWISE = {"chain": FUSION_PRESETS["fusion-bias-bn-relu"].shape.chain}

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
            mark("The trip takes far longer than the addition."),
        ),
        {"rung": "unfused"},
        step=4,
        loop=(4, 7),
        size="real",
    ),
    Chapter(
        mark("Stay in the register"),
        (
            mark("One kernel can do all four. The value stays in a register from the convolution to ReLU."),
            mark("Only the last result is stored. The [maps](workspace) in between never exist."),
        ),
        {"rung": "fused"},
        loop=(0, 7),
        question=faster(
            mark("Your guess: is it faster on these tiny maps?"),
            "fusion/unfused", "stage",
            mark("It takes {stage_time}. {stage_against_unfused}"),
        ),
    ),
    Chapter(
        mark("Why, on tiny maps?"),
        (
            mark("The maps are so small that reading them takes almost no time. But each launch has a price."),
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
            mark("It takes {real_time}. {real_against_unfused} The convolution takes nearly all of the time."),
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
        mark("Fold it away"),
        (
            mark("After training, batch norm is a multiplication and an addition with fixed numbers."),
            mark("They can be put into the [weights](filter) and the bias, once, before any image. Then batch norm costs nothing."),
        ),
        {"rung": "folded"},
        loop=(0, 8),
        size="real",
        nudge=mark("{real_against_fused} The convolution hides what is saved."),
    ),
    Chapter(
        mark("Where next"),
        (
            mark("Fusion saves launches and trips to memory. It helps where these limit a chain, and little where arithmetic does."),
            mark("Flash [attention](/attention) is the most famous fused kernel."),
        ),
        POINTWISE | {"rung": "fused"},
        step=5,
        size="real",
        nudge=mark("In Explore, build your own chain and press Run."),
    ),
)  # fmt: skip

STORY = Story(CHAPTERS)
