"""The chapters of the lesson on precision: a number, gradients, a training that dies and is rescued, sums, FP8, INT8, instructions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kernels.i18n import decimal, mark
from kernels.model import fp8_sums
from kernels.precision import energy, record, sums
from kernels.precision.formats import BF16, FORMATS, FP16, losses, rounded
from kernels.precision.ladder import INSTRUCTIONS as COUNTS
from kernels.precision.ladder import macs_of
from pages.parts.chapters import Chapter, Question, Story
from visuals import units
from visuals.precision.int8 import layer_weights, quantizer
from visuals.precision.sums import fp8_errors, relative_errors, shown
from visuals.strip.facts import Evidences, Facts, Right

TIE = 2049.0  # between two numbers of FP16
STORED = ("2048", "2049", "2050")
SCALE_ANSWERS = ("2^5", "2^10", "2^15", "2^20")
FEW = 0.1  # of the gradients: the share that a scale should leave
LAYER, STEP = "conv1.y", 150
ACCURACIES = ("91 %", "60 %", "10 %")
SUMS = ("8,175", "2,048", "0")
FP8_LOST = ("1 %", "5 %", "25 %")
ROW = {"layer": "fc2", "output": "3", "scales": "channel"}


def _whole_percent(part: float) -> str:
    return decimal(f"{100 * part:.0f} %")


def facts(evidences: Evidences) -> Facts:
    """Returns the figures of the sentences, all from data of the lesson."""
    return {**_of_gradients(), **_of_trainings(), **_of_sums(), **_of_fp8(), **_of_int8(), **_of_instructions()}


def _of_gradients() -> Facts:
    x = record.gradient(f"d {LAYER}", STEP)
    none = losses(x, FP16)
    enough = next(power for power in range(64) if losses(x, FP16, 2.0**power).underflow < FEW)
    scaled = losses(x, FP16, 2.0**enough)
    return {
        "tie": units.whole(TIE),
        "tie_stored": f"{float(rounded(TIE, FP16)):.0f}",
        "largest": units.whole(FP16.max),
        "fp16_bits": str(FP16.exponent_bits),
        "bf16_bits": str(BF16.exponent_bits),
        "formats": str(len(FORMATS)),
        "nonzero": _whole_percent(float(np.mean(x != 0))),
        "lost": _whole_percent(none.underflow),
        "lost_bf16": _whole_percent(losses(x, BF16).underflow),
        "digits": _whole_percent(none.subnormal),
        "scaled": _whole_percent(scaled.underflow),
        "few": _whole_percent(FEW),
        "over": _whole_percent(scaled.overflow),
        "enough": f"2^{enough}",
        "gradient_step": str(STEP),
    }


def _of_trainings() -> Facts:
    found = {name: record.curve(name) for name in record.RUNS}
    accuracies = {f"accuracy_{name}": _whole_percent(one.accuracy) for name, one in found.items()}
    return accuracies | {
        "terms": units.whole(record.TERMS),
        "skipped": str(int(found["dynamic"].skipped.sum())),
        "steps": str(record.STEPS),
        "lost_steps": str(record.WEIGHT_STEPS),
        "slow": decimal(f"{record.SLOW:f}".rstrip("0")),
    }


def _of_sums() -> Facts:
    found = sums.measured()
    return {
        "sum_terms": units.whole(2**sums.MAX_POWER),
        "sum_exact": units.whole(found["exact"][-1]),
        "sum_fp16": units.whole(found["fp16"][-1]),
        "sum_part": str(sums.PART),
        "sum_parts_error": decimal(f"{shown(relative_errors('parts'))[-1]:g}\u00a0%"),
    }


def _of_fp8() -> Facts:
    return {
        "fp8_bits": str(fp8_sums.FRACTION + 1),
        "fp8_depth": str(fp8_sums.DEPTH),
        "fp8_products": units.whole(2**sums.MAX_POWER),
        "fp8_promoted": str(sums.PROMOTED),
        "fp8_lost": decimal(f"{fp8_errors('fp8')[-1]:.0f} %"),
        "fp8_promoted_error": decimal(f"{fp8_errors('promoted')[-1]:.2f}\u00a0%"),
    }


def _of_int8() -> Facts:
    first, *rows = record.facts()["int8"]
    output = int(ROW["output"])
    used = {
        per: len(set(quantizer(ROW["layer"], per).quantize(layer_weights(ROW["layer"]))[:, output].tolist()))
        for per in ("tensor", "channel")
    }
    return {
        "right": str(first["right"]),
        "of": str(first["of"]),
        "worst": str(min(row["right"] for row in rows)),
        "used_tensor": str(used["tensor"]),
        "used_channel": str(used["channel"]),
    }


def _of_instructions() -> Facts:
    percent = {one.name.lower(): decimal(f"{100 * one.overhead:,.0f} %") for one in energy.INSTRUCTIONS}
    return {f"overhead_{name}": text for name, text in percent.items()} | {
        "control": decimal(f"{energy.CONTROL_PJ:g} pJ"),
        "math_hfma": decimal(f"{energy.INSTRUCTIONS[0].math_pj:g} pJ"),
        "ffma_count": str(COUNTS["ffma"]),
        "mma_count": str(COUNTS["mma-fp16"]),
        "mma_macs": units.whole(macs_of("instruction-rate/mma-fp16")),
    }


def is_fact(name: str, answers: tuple[str, ...]) -> Right:
    """Returns the right answer where each is a value of a field of `facts`; None if none is."""

    def right(evidences: Evidences) -> int | None:
        value = facts(evidences)[name]
        return answers.index(value) if value in answers else None

    return right


def holds(*claims: Callable[[], bool]) -> Callable[[Evidences], bool]:
    """Returns a check of claims that the lesson's own data answer."""
    return lambda evidences: all(claim() for claim in claims)


def _stalls() -> bool:
    """Returns whether the sum in FP16 is the same from half of the terms on."""
    found = sums.measured()["fp16"]
    return bool(found[-1] == found[-2])


def _promotion_helps() -> bool:
    return bool(fp8_errors("promoted")[-1] < 0.01 * fp8_errors("fp8")[-1])


def _dies() -> bool:
    """Returns whether the loss without a scale ends above its start, and the scaled ones far below."""
    none, others = record.curve("none"), [record.curve(name) for name in ("fp32", "static", "dynamic")]
    return bool(none.loss[-1] > none.loss[0] and all(one.loss[-30:].mean() < 0.3 for one in others))


def _stays() -> bool:
    return len(set(record.followed("lost").tolist())) == 1


CHAPTERS = (
    Chapter(
        mark("A number in 16 bits"),
        (
            mark("FP16 stores a number as [sign](workspace), [exponent](filter) and [mantissa](output). The exponent names a power of two, the mantissa the digits after the leading 1."),
            mark("{tie} needs one digit more than FP16 has. It is exactly in the middle of two numbers: a tie."),
        ),
        {"topic": "bits", "x": f"{TIE:.0f}"},
        loop=(0, 4),
        size="real",
        question=Question(
            mark("Your guess: what does FP16 store for {tie}?"),
            STORED,
            is_fact("tie_stored", STORED),
            mark("{tie_stored}: of the two neighbours it has the last bit 0. This is rounding to nearest even."),
        ),
        nudge=mark("Press Play: each step is one decision."),
    ),
    Chapter(
        mark("Too small for the exponent"),
        (
            mark("The exponent of FP16 has {fp16_bits} bits: its largest number is {largest}."),
            mark("0.0000001 is below the smallest normal number. It loses the leading 1 and most digits: it is subnormal."),
            mark("BF16 has {bf16_bits} exponent bits, as many as FP32, but fewer digits."),
        ),
        {"topic": "bits", "x": "1e-07"},
        step=1,
        loop=(0, 4),
        size="real",
        holds=holds(lambda: 0 < float(rounded(1e-7, FP16)) < 2.0**FP16.min_exponent and BF16.exponent_bits == FORMATS["FP32"].exponent_bits),
        nudge=mark("In Explore, choose BF16 for this number, then try 70,000 in both formats."),
    ),
    Chapter(
        mark("Real gradients"),
        (
            mark("These are gradients of the first layer of LeNet-5, at step {gradient_step} of a training on handwritten digits."),
            mark("A column is a power of two: FP16 turns those on the [left](workspace) into 0, those in the [middle](filter) lose digits."),
            mark("{nonzero} of the gradients are not 0. Of these, {lost} become 0 in FP16 and {digits} lose digits; in BF16 {lost_bf16} become 0."),
        ),
        {"topic": "gradients"},
        size="real",
        nudge=mark("In Explore, look at training step 1: a network that has learned has smaller gradients."),
    ),
    Chapter(
        mark("Multiply the loss"),
        (
            mark("Gradients are proportional to the loss. Multiply the loss by a scale, and all of them move to the right."),
            mark("Each step of the stage doubles the scale. Before the update, the gradients are divided by it again, in FP32."),
        ),
        {"topic": "gradients"},
        loop=(0, 24),
        size="real",
        question=Question(
            mark("Your guess: from which scale on do fewer than {few} of those that are not 0 become 0?"),
            SCALE_ANSWERS,
            is_fact("enough", SCALE_ANSWERS),
            mark("{enough}: there {scaled} become 0, and {over} overflow."),
        ),
        nudge=mark("In Explore, choose FP8 E4M3: does any scale keep all gradients?"),
    ),
    Chapter(
        mark("A training that dies"),
        (
            mark("In three of these four trainings, each kernel’s results are rounded to FP16. Sums stay in FP32."),
            mark("The loss is a mean over {terms} values for each image, so gradients are tiny. A [dynamic scale](output) is halved when they overflow, and that update is skipped: {skipped} of {steps} here."),
        ),
        {"topic": "scaling"},
        loop=(0, 49),
        size="real",
        question=Question(
            mark("Your guess: which accuracy does FP16 reach [without a scale](workspace)?"),
            ACCURACIES,
            is_fact("accuracy_none", ACCURACIES),
            mark("{accuracy_none}, as by chance. FP32 reaches {accuracy_fp32}, FP16 with a dynamic scale {accuracy_dynamic}."),
        ),
        holds=holds(_dies),
    ),
    Chapter(
        mark("Lost updates"),
        (
            mark("The stage shows one weight over {lost_steps} steps. Each update is smaller than half the distance between two FP16 numbers."),
            mark("In [FP16](workspace) the weight is rounded back each time, in [FP32](output) the small updates add up."),
            mark("So training keeps FP32 weights: at a learning rate of {slow} they end with {accuracy_master} accuracy, FP16 weights alone with {accuracy_lost}."),
        ),
        {"topic": "weights"},
        loop=(0, 23),
        size="real",
        holds=holds(_stays),
        nudge=mark("In Explore, the picture “runs” shows the losses of these trainings."),
    ),
    Chapter(
        mark("Sums and whole numbers"),
        (
            mark("The sum of {sum_terms} numbers between 0 and 1, each exact in FP16, is {sum_exact}."),
            mark("Tensor cores multiply in FP16 and add in FP32. INT8 products are added in INT32: LeNet-5 then reads {worst} of {of} digits, with FP32 {right}."),
        ),
        {"topic": "sums"},
        step=11,
        loop=(0, 14),
        size="real",
        question=Question(
            mark("Your guess: what is the sum if each addition is rounded to FP16?"),
            SUMS,
            is_fact("sum_fp16", SUMS),
            mark("{sum_fp16}: there FP16 numbers are 2 apart. With FP16 parts of {sum_part} terms, added in FP32, the error is {sum_parts_error}."),
        ),
        holds=holds(_stalls),
        nudge=mark("In Explore, topic INT8: with one scale for each output, a row uses {used_channel} values instead of {used_tensor}."),
    ),
    Chapter(
        mark("FP8 in tensor cores"),
        (
            mark("Hopper’s tensor cores multiply FP8 numbers, and keep {fp8_bits} bits of a [sum](workspace). The stage adds {fp8_products} products of numbers between 0 and 1."),
            mark("They add {fp8_depth} products at a time. Each product is cut off below the last bit of the sum."),
        ),
        {"topic": "products"},
        step=11,
        loop=(0, sums.MAX_POWER),
        size="real",
        question=Question(
            mark("Your guess: how much of this sum is lost?"),
            FP8_LOST,
            is_fact("fp8_lost", FP8_LOST),
            mark("{fp8_lost}. If [FP32 adds the sums of {fp8_promoted} products](output), {fp8_promoted_error} is lost. Numbers of both signs lose less."),
        ),
        holds=holds(_promotion_helps),
        nudge=mark("In Explore, compare the times of the kernels with and without promotion."),
    ),
    Chapter(
        mark("Control is shared"),
        (
            mark("For one matrix product of a warp, FP32 multiply-adds need {ffma_count} instructions. A tensor core needs {mma_count}, with {mma_macs} multiply-adds each."),
            mark("To fetch and decode an instruction takes energy: about {control} on an older GPU, beside {math_hfma} for one FP16 multiply-add."),
            mark("That is {overhead_hfma} overhead, with four products in one instruction {overhead_hdp4a}, with a tensor core {overhead_hmma}: published figures, not measured here."),
        ),
        {"topic": "instructions", "rung": "mma-fp16"},
        step=1,
        loop=(0, 3),
        size="real",
        nudge=mark("In Explore, step through the same product with ffma, or go on to [attention](/attention)."),
    ),
)  # fmt: skip

STORY = Story(CHAPTERS, facts)
