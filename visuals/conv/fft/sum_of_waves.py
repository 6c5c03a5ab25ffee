"""What a transform is, on 8 numbers: a row of the input as a sum of five waves, and a filter as one product for each wave.

Wave k is height · cos(2π k j / 8 + phase). Its height and phase are those of X[k]: |X[k]| / 8, twice that for k = 1 to 3,
which stand for X[8 − k] too. Sliding a row of the filter over the row of the input is Y[k] = X[k] · conj(W[k]).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from kernels.i18n import mark, tr
from visuals.conv.fft.arrays import Arrays, part_of, snap_to_integers
from visuals.conv.fft.butterfly import N, polar
from visuals.scene.parts import Annotation, Captions, Group, Reading, Tensor
from visuals.scene.recorder import Recorder
from visuals.scene.scene import Scene, number
from visuals.scene.source import source_of

WAVES = N // 2 + 1  # of a real row: the others mirror them
ORDER = mark("waves")
ORDER_NOTE = mark(
    "This is the idea, in one dimension: one row of the input and one row of the filter. The kernel transforms rows and "
    "columns."
)
J = np.arange(N)


def heights(size: np.ndarray) -> np.ndarray:
    """Returns float64 [5]: the height of each wave from the magnitudes of X[0] to X[4]."""
    return size * np.where(np.arange(WAVES) % (N // 2) == 0, 1, 2) / N


def waves_of(size: np.ndarray, phase: np.ndarray) -> np.ndarray:
    """Returns float64 [5, 8]: the waves from magnitudes and phases (degrees) of X[0] to X[4]. Their sum is the row."""
    angle = 2 * np.pi * np.arange(WAVES)[:, None] * J / N + np.radians(phase)[:, None]
    return heights(size)[:, None] * np.cos(angle)


@dataclass(frozen=True)
class Spectrum:
    """Magnitudes and phases (degrees) of X[0] to X[4], float64 [5], and the complex numbers."""

    X: np.ndarray

    @cached_property
    def polar(self) -> tuple[np.ndarray, np.ndarray]:
        return polar(self.X)

    @cached_property
    def waves(self) -> np.ndarray:
        waves = waves_of(*self.polar)
        return snap_to_integers(waves, max(1.0, np.abs(waves).max()))


def waves_scene(a: Arrays) -> Scene:
    """Returns the scene of the row of the padded input that varies most, and the row of the filter that does."""
    part = part_of(a)
    image = a.x_padded[part.down, part.across, 0].astype(float)
    x, w = np.zeros(N), np.zeros(N)
    row = int(image[:, :N].std(axis=1).argmax())
    x[: min(N, a.columns)] = image[row, :N]
    taps = a.w[0].astype(float)
    tap_row = int(taps.std(axis=1).argmax())
    w[: min(N, taps.shape[1])] = taps[tap_row, :N]
    notes = (tr("row {row} of the padded input", row=row), tr("row {row} of the filter, and zeros", row=tap_row))
    return scene_of(x, w, notes)


def scene_of(x: np.ndarray, w: np.ndarray, notes: tuple[str, str] = ("", "")) -> Scene:
    """Returns the scene of x and w, 8 real numbers each. `notes`: where they come from."""
    steps = WaveSteps(np.asarray(x, float), np.asarray(w, float))
    r = steps.r
    r.kinds = list(range(len(steps.texts)))  # a caption for each step
    source = source_of("conv/10_fft_multiply.cu", ("sum[i][j].x += x[i].x * w[j].x;",), np.zeros(r.steps, int))
    products = np.array([counts["products"] > 0 for counts in r.counts])
    return Scene(
        key=f"fft-waves {' '.join(map(repr, (*steps.x, *steps.w)))}",
        title=tr("a sum of waves"),
        tensors=_tensors(steps, notes),
        groups=(
            Group((("", "", "x"), ("Xsize", "Xphase", "Xwaves"), ("", "", "sum")), table=True),
            Group(
                (("", "", "", "", "w"), ("Wsize", "Wphase", "Ysize", "Yphase", "Ywaves"), ("", "", "", "", "y")),
                table=True,
            ),
        ),
        steps=r.steps,
        step_name=tr("step"),
        order_name=tr(ORDER),
        order_note=tr(ORDER_NOTE),
        writes=r.writes(),
        reads=r.reads(),
        captions=r.captions(steps.texts),
        annotations=steps.annotations(),
        readings=(
            Reading(tr("products, one per wave"), r.so_far("products"), "predicted"),
            Reading(tr("products of the sliding filter"), np.full(r.steps, N * steps.taps), "predicted"),
        ),
        source=replace(source, lines=source.lines * products),
    )


def _tensors(steps: WaveSteps, notes: tuple[str, str]) -> tuple[Tensor, ...]:
    def column(name: str, symbol: str, role: str) -> Tensor:
        return Tensor(name, symbol, symbol, role, 1, WAVES, 1)

    def waves(name: str, symbol: str, title: str, role: str) -> Tensor:
        return Tensor(name, symbol, title, role, 1, WAVES, N, note=tr("one per row"))

    return (
        Tensor("x", "x", "x", "input", 1, 1, N, steps.x, note=notes[0]),
        column("Xsize", "|X|", "input"),
        column("Xphase", "∠X", "input"),
        waves("Xwaves", tr("wave"), tr("waves"), "input"),
        Tensor("sum", tr("sum"), tr("sum of the waves"), "input", 1, 1, N),
        Tensor("w", "w", "w", "filter", 1, 1, N, steps.w, note=notes[1]),
        column("Wsize", "|W|", "filter"),
        column("Wphase", "∠W", "filter"),
        column("Ysize", "|Y|", "output"),
        column("Yphase", "∠Y", "output"),
        waves("Ywaves", tr("wave"), tr("waves of Y"), "output"),
        Tensor("y", "y", "y", "output", 1, 1, N, note=tr("sum of the waves")),
    )


class WaveSteps:
    """The steps in the recorder `r`. `texts`: a caption for each."""

    def __init__(self, x: np.ndarray, w: np.ndarray):
        self.x, self.w, self.r, self.texts = x, w, Recorder(), []
        self.taps = max(1, int(np.flatnonzero(w)[-1:].sum()) + 1)
        self.X, self.W = (Spectrum(np.fft.rfft(row)) for row in (x, w))
        self.Y = Spectrum(self.X.X * self.W.X.conj())
        self._waves_of_x()
        self._products()

    def _step(self, text: str, **counts: int) -> None:
        self.r.step(0, 0, **counts)
        self.texts.append(text)

    def _waves_of_x(self) -> None:
        r, total, (size, phase) = self.r, np.zeros(N), self.X.polar
        self._step(
            tr(
                "Any 8 real numbers are a sum of 5 waves. The transform finds how strong each wave is, and where it begins."
            )
        )
        r.look("x", J)
        for k in range(WAVES):
            self._step(_found(k, self.X.X[k], size[k], phase[k]))
            r.look("x", J)
            self._put("X", self.X, k)
            self._step(_wave(k, heights(size)[k], phase[k]))
            r.look("Xsize", np.array([k]))
            r.look("Xphase", np.array([k]))
            r.put("Xwaves", self.X.waves[k], k * N + J)
            total = total + self.X.waves[k]
            self._step(_added(k, total[0], self.x[0]))
            r.look("Xwaves", k * N + J)
            r.put("sum", snap_to_integers(total, max(1.0, np.abs(total).max())))

    def _products(self) -> None:
        r, total = self.r, np.zeros(N)
        self._step(tr("The row of the [filter](filter) has a spectrum too: its magnitudes and phases."))
        r.look("w", J)
        for k in range(WAVES):
            self._put("W", self.W, k)
        for k in range(WAVES):
            self._step(_product(k, self.X, self.W, self.Y), products=1)
            for name in ("Xsize", "Xphase", "Wsize", "Wphase"):
                r.look(name, np.array([k]))
            self._put("Y", self.Y, k)
            total = total + self.Y.waves[k]
            self._step(self._result(k, total))
            r.put("Ywaves", self.Y.waves[k], k * N + J)
            r.put("y", snap_to_integers(total, max(1.0, np.abs(total).max())))

    def _put(self, name: str, spectrum: Spectrum, k: int) -> None:
        size, phase = spectrum.polar
        self.r.put(f"{name}size", size[k : k + 1], np.array([k]))
        self.r.put(f"{name}phase", phase[k : k + 1], np.array([k]))

    def _result(self, k: int, total: np.ndarray) -> str:
        text = tr("The wave of [Y](output)[{k}] is added to [y](output).", k=k)
        if k < WAVES - 1:
            return text
        terms = " + ".join(_term(self.x[j], self.w[j]) for j in range(self.taps)) if self.taps < 5 else "Σ x[j]·w[j]"
        return f"{text} " + tr(
            "Now y[0] = {y} = {terms}: the filter at the first place. No window slid.", y=_short(total[0]), terms=terms
        )

    def annotations(self) -> tuple[Annotation, ...]:
        """Returns what a magnitude and a phase belong to."""
        found = []
        for name, spectrum in (("X", self.X), ("W", self.W), ("Y", self.Y)):
            args = np.stack([np.arange(WAVES), np.real(spectrum.X), np.imag(spectrum.X)], axis=1)
            texts = (
                (
                    "size",
                    tr("The magnitude of {name}[{0}] = ({1}, {2}) is the root of the sum of both squares.", name=name),
                ),
                (
                    "phase",
                    tr("The phase of {name}[{0}] = ({1}, {2}) is the angle of this arrow, in degrees.", name=name),
                ),
            )
            found += [Annotation(name + part, Captions((text,), np.zeros(WAVES, int), args)) for part, text in texts]
        return tuple(found)


# -- captions ------------------------------------------------------------------------------------------
def _short(value: float) -> str:
    return number(float(f"{snap_to_integers(np.array([value]), 1.0)[0]:.3g}"))


def _term(value: float, weight: float) -> str:
    """Returns a product as text; a negative weight is in brackets."""
    return f"{_short(value)}·{_short(weight)}" if weight >= 0 else f"{_short(value)}·({_short(weight)})"


def _found(k: int, X: complex, size: float, phase: float) -> str:
    fields = {"k": k, "re": _short(X.real), "im": _short(X.imag), "size": _short(size), "phase": _short(phase)}
    if k == 0:
        return tr(
            "[X](input)[0] is the sum of all 8 numbers: {re}. Its magnitude is {size}, its phase {phase} degrees.",
            **fields,
        )
    return tr(
        "[X](input)[{k}] = ({re}, {im}): the row, multiplied by a wave that goes round {k}× and added up. Its magnitude is "
        "{size}, its phase {phase} degrees.",
        **fields,
    )


def _wave(k: int, height: float, phase: float) -> str:
    fields = {"k": k, "height": _short(height), "phase": _short(phase), "n": N}
    if k == 0:
        return (
            tr("Wave 0 does not move: it is {height} everywhere, the mean with its sign.", **fields)
            if phase == 0
            else tr(
                "Wave 0 does not move: its height is {height}, and its phase of 180 degrees makes it negative.",
                **fields,
            )
        )
    return tr(
        "Wave {k} goes round {k}× in {n} numbers. Its height is {height}. It begins at {phase} degrees.", **fields
    )


def _added(k: int, total: float, goal: float) -> str:
    fields = {"k": k, "total": _short(total), "goal": _short(goal)}
    if k < WAVES - 1:
        return tr(
            "Wave {k} is added. The first number of the sum is {total} so far, that of [x](input) is {goal}.", **fields
        )
    return tr("Wave {k} is added. Nothing is missing: the sum of the waves is [x](input).", **fields)


def _product(k: int, X: Spectrum, W: Spectrum, Y: Spectrum) -> str:
    values = {
        f"{name}_{part}": _short(of.polar[n][k])
        for name, of in (("x", X), ("w", W), ("y", Y))
        for n, part in enumerate(("size", "phase"))
    }
    return tr(
        "One multiplication for wave {k}: Y[{k}] = X[{k}] · conj(W[{k}]). Magnitudes: {x_size} · {w_size} = {y_size}. "
        "Phases: {x_phase} − ({w_phase}) gives {y_phase} degrees.",
        k=k,
        **values,
    )
