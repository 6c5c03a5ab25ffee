"""The tables of the lesson on precision, with the sentence that each begins with. Every number is computed from data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from kernels import records
from kernels.i18n import decimal, mark, tr
from kernels.precision import energy, record, sums
from kernels.precision.formats import FORMATS, losses
from kernels.precision.integer import CALIBRATION_IMAGES, CHANNEL
from kernels.precision.ladder import INSTRUCTIONS, LADDER, macs_of
from kernels.precision.presets import RATE_PRESETS
from visuals import units
from visuals.precision.curves import EPOCH, NAMES, SCALING, WEIGHTS, last_epoch
from visuals.precision.sums import FP8_TITLES, TITLES, fp8_errors, relative_errors

FULL = RATE_PRESETS["rate-full"].shape
REGISTERS = {"ffma": 3, "hfma2": 3, "dp4a": 3, "mma-fp16": 10, "mma-int8": 10}  # read by one instruction in a lane
LANES, REGISTER_BYTES = 32, 4
CALIBRATIONS = {
    "extremes": mark("smallest and largest"),
    "percentile": mark("99.9 % of the values"),
    "error": mark("least error"),
}
SCALES = {"tensor": mark("one scale a layer"), CHANNEL: mark("one scale an output")}


@dataclass(frozen=True)
class Table:
    """A table: its conclusion, where its numbers are from, one line per (name, cells), small print."""

    conclusion: str
    badge: str  # HTML
    columns: Sequence[str]
    lines: Sequence[tuple[str, Sequence[str]]]
    notes: Sequence[str] = ()

    def html(self, name: str) -> str:
        head = "".join(f'<th scope="col">{escape(column)}</th>' for column in ("", *self.columns))
        lines = "".join(
            f'<tr><th scope="row">{escape(line)}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in cells)}</tr>'
            for line, cells in self.lines
        )
        return (
            f'<p class="kt-figures">{self.badge}</p><div class="kt-scroll" tabindex="0" role="region" aria-label="{escape(name)}">'
            f'<table class="kt-table kt-shares"><tr>{head}</tr>{lines}</table></div>'
        )


def _recorded() -> str:
    return units.badge("recorded", tr("trained on a processor by kernels.precision.record"))


def _percent(part: float, digits: int = 1) -> str:
    return decimal(f"{100 * part:.{digits}f} %")


# -- formats ---------------------------------------------------------------------------------------------
def formats() -> Table:
    """Returns the limits of every format."""
    lines = [
        (
            f.name,
            [
                str(f.bits),
                str(f.exponent_bits),
                str(f.mantissa_bits),
                _power(f.max),
                _power(2.0**f.min_exponent),
                _power(f.tiny),
                _power(f.epsilon),
            ],
        )
        for f in FORMATS.values()
    ]
    return Table(
        tr("Exponent bits set the range of a format. Mantissa bits set how far its numbers are apart."),
        units.badge("predicted", tr("from the definition of each format")),
        [
            tr("bits"),
            tr("exponent"),
            tr("mantissa"),
            tr("largest"),
            tr("smallest normal"),
            tr("smallest"),
            tr("next after 1 is off by"),
        ],
        lines,
    )


def _power(x: float) -> str:
    """Returns a number with three digits."""
    return decimal(f"{x:.3g}")


# -- gradients -------------------------------------------------------------------------------------------
def gradient_losses(name: str, at: int) -> Table:
    """Returns, for each format, what is lost of a tensor's gradients without a loss scale."""
    x = record.gradient(name, at)
    found = {f.name: losses(x, f) for f in FORMATS.values()}
    return Table(
        tr(
            "In FP16, {share} of the gradients of {tensor} that are not 0 become 0 at step {step}. In BF16 {other} do.",
            share=_percent(found["FP16"].underflow),
            tensor=name.removeprefix("d "),
            step=at,
            other=_percent(found["BF16"].underflow),
        ),
        _recorded(),
        [tr("become 0"), tr("lose digits"), tr("overflow")],
        [(n, [_percent(one.underflow), _percent(one.subnormal), _percent(one.overflow)]) for n, one in found.items()],
        (
            tr(
                "Gradients of one training step of LeNet-5 on the digits, in FP32, batch 50. At most {n} of a tensor are kept, at equal distances.",
                n=units.whole(record.SAMPLE),
            ),
        ),
    )


# -- trainings -------------------------------------------------------------------------------------------
def scaling() -> Table:
    """Returns the trainings with and without a loss scale."""
    none, dynamic = record.curve("none"), record.curve("dynamic")
    return Table(
        tr(
            "Without a loss scale FP16 ends with an accuracy of {none}. With a dynamic one it ends with {dynamic}.",
            none=units.share(none.accuracy),
            dynamic=units.share(dynamic.accuracy),
        ),
        _recorded(),
        *_runs(SCALING),
        (
            tr(
                "Each kernel’s results are rounded to FP16 when they are stored. Sums are FP32, and so are the weights that updates change. No kernel here computes in FP16."
            ),
            tr(
                "The setting is hard on purpose: the loss is a mean over {terms} values for each image, as in a segmentation of 512 × 512 pixels. The learning rate is as many times larger. In FP32 neither changes the training.",
                terms=units.whole(record.TERMS),
            ),
            tr("At batch 50 and a loss of one value for each image, FP16 learns these digits without a loss scale."),
        ),
    )


def weights() -> Table:
    """Returns the trainings whose weights are kept in FP32, or not."""
    master, lost = record.curve("master"), record.curve("lost")
    return Table(
        tr(
            "With weights in FP16 alone, accuracy ends at {lost}. With FP32 weights beside them it ends at {master}.",
            lost=units.share(lost.accuracy),
            master=units.share(master.accuracy),
        ),
        _recorded(),
        *_runs(WEIGHTS),
        (
            tr(
                "All four have a learning rate of {rate}, so that updates are small. At a rate of 0.05 FP16 weights learn the digits too.",
                rate=decimal(f"{record.SLOW:g}"),
            ),
            tr(
                "The weight on the stage was chosen: each of its updates is smaller than half the distance between two FP16 numbers."
            ),
        ),
    )


def _runs(names: Sequence[str]) -> tuple[list[str], list[tuple[str, list[str]]]]:
    lines = []
    for name in names:
        one = record.curve(name)
        cells = [
            decimal(f"{last_epoch(name):.3f}"),
            units.share(one.accuracy),
            units.share(float(one.zeros[-EPOCH:].mean())),
            str(int(one.skipped.sum())),
        ]
        lines.append((tr(NAMES[name][0]), cells))
    return [tr("loss, last epoch"), tr("accuracy"), tr("gradients of weights that are 0"), tr("updates skipped")], lines


def accumulation() -> Table:
    """Returns the errors of sums by length and way of adding."""
    ways = [name for name in TITLES if name != "exact"]
    errors = {name: relative_errors(name) for name in ways}
    last = sums.MAX_POWER
    return Table(
        tr(
            "At {n} terms, a sum in FP16 has lost {error}. FP16 parts added in FP32 are off by {parts}.",
            n=units.whole(2**last),
            error=_percent(errors["fp16"][last] / 100),
            parts=_percent(errors["parts"][last] / 100, 3),
        ),
        units.badge("measured", tr("on this processor, against float64")),
        [tr(TITLES[name][0], n=sums.PART) for name in ways],
        [(units.whole(2**n), [_percent(errors[name][n] / 100, 3) for name in ways]) for n in range(0, last + 1, 2)],
    )


def fp8_sums() -> Table:
    """Returns the errors of sums of FP8 products in tensor cores, by length and way of adding."""
    ways = [name for name in FP8_TITLES if name != "exact"]
    errors = {name: fp8_errors(name) for name in ways}
    last = sums.MAX_POWER
    return Table(
        tr(
            "At {n} products tensor cores have lost {error} of the sum. Promoted every {promoted} products, the sum is off by {parts}.",
            n=units.whole(2**last),
            error=_percent(errors["fp8"][last] / 100),
            promoted=sums.PROMOTED,
            parts=_percent(errors["promoted"][last] / 100, 3),
        ),
        units.badge("predicted", tr("from the bits that tensor cores keep")),
        [tr(FP8_TITLES[name][0], promoted=sums.PROMOTED) for name in ways],
        [(units.whole(2**n), [_percent(errors[name][n] / 100, 3) for name in ways]) for n in range(0, last + 1, 2)],
        (tr("All factors are between 0 and 1. Of random signs, sums stay small and lose less."),),
    )


# -- INT8 ------------------------------------------------------------------------------------------------
def int8() -> Table:
    """Returns the accuracy of the trained net in FP32 and in INT8."""
    first, *rows = record.facts()["int8"]
    worst = min(row["right"] for row in rows)
    lines = [("FP32", [f"{first['right']} / {first['of']}", "–"])]
    for row in rows:
        name = tr("INT8, {scale}, {range}", scale=tr(SCALES[row["per"]]), range=tr(CALIBRATIONS[row["calibration"]]))
        lines.append((name, [f"{row['right']} / {row['of']}", _percent(row["error"], 2)]))
    return Table(
        tr(
            "In FP32 the net reads {right} of {of} digits. In INT8 it reads at least {worst}.",
            right=first["right"],
            of=first["of"],
            worst=worst,
        ),
        _recorded(),
        [tr("digits read"), tr("error of the outputs")],
        lines,
        (
            tr(
                "All five matrix products compute with INT8 and INT32 sums. Ranges of activations come from {n} training images.",
                n=CALIBRATION_IMAGES,
            ),
        ),
    )


# -- instructions ----------------------------------------------------------------------------------------
def control() -> Table:
    """Returns the published energies and the overhead that follows from them."""
    hfma, *_, hmma = energy.INSTRUCTIONS
    lines = [
        (
            one.name,
            [
                str(2 * one.macs),
                decimal(f"{one.math_pj:g} pJ"),
                decimal(f"{energy.CONTROL_PJ:g} pJ"),
                _overhead(one),
                decimal(f"{one.pj_per_mac:.2g} pJ"),
            ],
        )
        for one in energy.INSTRUCTIONS
    ]
    return Table(
        tr(
            "Control costs {hfma} of the arithmetic of one multiply-add, and {hmma} of that of a tensor core’s instruction.",
            hfma=_overhead(hfma),
            hmma=_overhead(hmma),
        ),
        units.badge("predicted", tr("from published energies")),
        [tr("operations"), tr("arithmetic"), tr("control"), tr("control / arithmetic"), tr("energy of a multiply-add")],
        lines,
        (
            tr(
                "Energies: W. J. Dally, talks on hardware for deep learning. Control means to fetch and decode the instruction and to fetch its operands. They are of one older GPU, not of the GPU of the recordings."
            ),
        ),
    )


def _overhead(one: energy.Instruction) -> str:
    return decimal(f"{100 * one.overhead:,.0f} %")


def instructions() -> Table:
    """Returns what one instruction of each rung does, and its rate if it is recorded."""
    lines, rates = [], {}
    for rung in LADDER.rungs:
        name = rung.name.partition("/")[2]
        macs = macs_of(rung.name)
        row = records.recorded(rung.name, FULL, rung.default_tiles, "cold")
        nbytes = LANES * REGISTER_BYTES * REGISTERS[name]
        if row:
            rates[name] = row["flops"] / row["median_ms"]
        rate = units.rate(row["flops"], row["median_ms"]) if row else tr("not recorded yet")
        lines.append(
            (
                tr(rung.title),
                [
                    str(INSTRUCTIONS[name]),
                    units.whole(macs),
                    units.whole(nbytes),
                    decimal(f"{nbytes / macs:.3g}"),
                    rate,
                ],
            )
        )
    return Table(
        _rates_sentence(rates),
        units.badge("counted", tr("per warp, by the emulator")),
        [
            tr("instructions"),
            tr("multiply-adds of one"),
            tr("bytes of operands"),
            tr("bytes / multiply-add"),
            _on_gpu(),
        ],
        lines,
        (
            tr(
                "Rates are those of {n} warps with {turns} turns each. Operands stay in registers.",
                n=units.whole(FULL.warps),
                turns=units.whole(FULL.turns),
            ),
        ),
    )


def _on_gpu() -> str:
    """Returns the head of the column of rates, with the GPU that they were recorded on."""
    gpu = records.shown(LADDER.name)
    return tr("rate on the {gpu}", gpu=gpu.name) if gpu else tr("rate")


def _rates_sentence(rates: dict[str, float]) -> str:
    if not {"ffma", "mma-fp16"} <= rates.keys():
        most = max(macs_of(rung.name) for rung in LADDER.rungs)
        return tr(
            "One instruction does 32 to {most} multiply-adds. The rates are not recorded yet.", most=units.whole(most)
        )
    ratio = units.ratio(rates["mma-fp16"] / rates["ffma"])
    return tr("FP16 on the tensor cores has {ratio}× the rate of FP32 multiply-adds.", ratio=ratio)
