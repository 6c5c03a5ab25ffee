"""The fast Fourier transform of 8 numbers, butterfly by butterfly: radix 2, decimation in time.

X[k] = sum over j of x[j] · ω^(j k), ω = e^(−2πi/8). The numbers are reordered by bit reversal. Then each of log2(8) = 3
stages combines pairs: a and b become a + ω^k·b and a − ω^k·b. (Cooley and Tukey, Mathematics of Computation 19, 1965.)
This explains the idea; cuFFT's kernels are not shown, and may use another radix and another order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kernels.i18n import mark, tr
from visuals.conv.fft.arrays import Arrays, part_of, snap_to_integers
from visuals.scene.parts import Annotation, Captions, Group, Reading, Sum, Tensor
from visuals.scene.recorder import Recorder
from visuals.scene.scene import Scene, number
from visuals.scene.source import source_of

N = 8
STAGES = 3  # log2(N)
# On the stage, position i of the reordered numbers is one column down to X, so that pairs of a stage are seen below each other.
ROWS = (("x", "s0"), ("w", "s1"), ("size", "s2"), ("phase", "s3"))
ORDER = mark("butterflies")
ORDER_NOTE = mark(
    "This is the idea of a fast Fourier transform, on 8 numbers of one row. cuFFT’s kernels are not shown: they may use other "
    "butterflies in another order."
)


@dataclass(frozen=True)
class Butterfly:
    """A pair of one stage: positions a and b, and the power k of the twiddle factor ω^k, ω = e^(−2πi/8)."""

    stage: int  # from 0
    a: int
    b: int
    k: int

    @property
    def twiddle(self) -> complex:
        return complex(twiddles()[self.k])


def twiddles() -> np.ndarray:
    """Returns complex128 [4]: ω^0 to ω^3. Whole numbers are exact."""
    return snap_to_integers(np.exp(-2j * np.pi * np.arange(N // 2) / N), 1.0)


def reversed_bits(i: int) -> int:
    """Returns the number whose three binary digits are those of i, from right to left."""
    return int(f"{i:0{STAGES}b}"[::-1], 2)


def butterflies() -> Iterator[Butterfly]:
    """Yields the butterflies, stage by stage."""
    for stage in range(STAGES):
        distance = 1 << stage
        for first in range(0, N, 2 * distance):
            for k in range(distance):
                yield Butterfly(stage, first + k, first + k + distance, k * N // (2 * distance))


def stages_of(x: np.ndarray) -> np.ndarray:
    """Returns complex128 [4, 8]: the reordered numbers, and the numbers after each stage; the last is the transform."""
    found = np.zeros((STAGES + 1, N), complex)
    found[0] = np.asarray(x)[[reversed_bits(i) for i in range(N)]]
    for one in butterflies():
        a, b = found[one.stage, [one.a, one.b]]
        found[one.stage + 1, [one.a, one.b]] = a + one.twiddle * b, a - one.twiddle * b
    return found


# -- the scene -----------------------------------------------------------------------------------------
def butterfly_scene(a: Arrays) -> Scene:
    """Returns the scene of a row of the padded input on the stage: the row of channel 0 that varies most."""
    part = part_of(a)
    image = a.x_padded[part.down, part.across, 0].astype(float)
    row = int(image[:, :N].std(axis=1).argmax())
    numbers = np.zeros(N)
    numbers[: min(N, a.columns)] = image[row, :N]
    if a.columns == N:
        note = tr("row {row} of the padded input", row=row)
    elif a.columns > N:
        note = tr("row {row} of the padded input, its first {n} numbers", row=row, n=N)
    else:
        note = tr("row {row} of the padded input, and zeros", row=row)
    return scene_of(numbers, note)


def scene_of(x: np.ndarray, note: str = "") -> Scene:
    """Returns the scene of the transform of x, 8 real numbers."""
    x = np.asarray(x, float)
    stages, r = stages_of(x), Recorder()
    texts = _record(r, x, stages)
    r.kinds = list(range(len(texts)))  # a caption for each step
    return Scene(
        key=f"fft-butterflies {' '.join(map(repr, x))}",
        title=tr("FFT of {n} numbers", n=N),
        tensors=_tensors(x, note),
        groups=(Group(ROWS, table=True),),
        steps=r.steps,
        step_name=tr("step"),
        order_name=tr(ORDER),
        order_note=tr(ORDER_NOTE),
        writes=r.writes(),
        reads=r.reads(),
        captions=r.captions(texts),
        sums=tuple(_sum(stage) for stage in range(STAGES)),
        annotations=_polar_cells(stages[-1]),
        readings=(
            Reading(tr("butterflies, one product each"), r.so_far("butterflies"), "predicted"),
            Reading(tr("products of the definition, n · n"), np.full(r.steps, N * N), "predicted"),
        ),
        source=source_of("conv/fft_tile.cuh", ("re[k] = even_re[k] + turned_re",), np.zeros(r.steps, int)),
    )


def _tensors(x: np.ndarray, note: str) -> tuple[Tensor, ...]:
    parts = tr("real, imaginary")

    def stage(n: int, title: str, symbol: str) -> Tensor:
        return Tensor(f"s{n}", symbol, title, "input", 1, 2, N, note=parts)

    w = twiddles()
    return (
        Tensor("x", "x", "x", "input", 1, 1, N, x, note=note),
        Tensor(
            "w",
            "ω",
            "ω⁰ … ω³",
            "filter",
            1,
            2,
            N // 2,
            np.concatenate([np.real(w), np.imag(w)]),
            note=tr("twiddle factors"),
        ),
        stage(0, tr("reordered"), tr("reordered")),
        stage(1, tr("stage 1"), tr("stage 1")),
        stage(2, tr("stage 2"), tr("stage 2")),
        stage(3, "X = FFT(x)", "X"),
        Tensor("size", "|X|", "|X|", "output", 1, 1, N, note=tr("magnitude")),
        Tensor("phase", "∠X", "∠X", "output", 1, 1, N, note=tr("phase, degrees")),
    )


def _sum(stage: int) -> Sum:
    """Returns the numbers after a stage as sums of those before it: real parts in row 0, imaginary parts in row 1."""
    terms: dict[int, tuple[list[int], list[float]]] = {}
    for one in (found for found in butterflies() if found.stage == stage):
        c, s = one.twiddle.real, one.twiddle.imag
        for position, sign in ((one.a, 1), (one.b, -1)):
            terms[position] = [one.a, one.b, N + one.b], [1.0, sign * c, -sign * s]
            terms[N + position] = [N + one.a, one.b, N + one.b], [1.0, sign * s, sign * c]
    kept = [_without_zeros(*terms[cell]) for cell in range(2 * N)]
    start = np.cumsum([0, *(len(cells) for cells, _ in kept)])
    cells, factors = (np.concatenate(column) for column in zip(*kept, strict=True))
    return Sum(f"s{stage + 1}", f"s{stage}", start, cells.astype(int), factors.astype(np.float32))


def _without_zeros(cells: list[int], factors: list[float]) -> tuple[np.ndarray, np.ndarray]:
    used = np.array(factors) != 0
    return np.array(cells)[used], np.array(factors)[used]


def polar(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the magnitudes and the phases in degrees; a phase is 0 where the magnitude is only rounding."""
    size = np.abs(X)
    phase = np.degrees(np.angle(X))
    return size, np.where(size > 1e-9 * max(size.max(), 1e-300), phase, 0.0)


def _polar_cells(X: np.ndarray) -> tuple[Annotation, ...]:
    """Returns the annotations of magnitudes and phases: the complex number that each belongs to."""
    args = np.stack([np.arange(N), np.real(X), np.imag(X)], axis=1)
    cells = np.stack([np.arange(N), N + np.arange(N)], axis=1)
    texts = {
        "size": tr("The magnitude of X[{0}] = ({1}, {2}) is the root of the sum of both squares."),
        "phase": tr("The phase of X[{0}] = ({1}, {2}) is the angle of this arrow."),
    }
    return tuple(
        Annotation(name, Captions((text,), np.zeros(N, int), args), {"s3": cells}) for name, text in texts.items()
    )


# -- steps ---------------------------------------------------------------------------------------------
def _record(r: Recorder, x: np.ndarray, stages: np.ndarray) -> list[str]:
    """Adds the steps and returns the caption of each."""
    texts: list[str] = []

    def step(text: str, **counts: int) -> None:
        r.step(0, 0, **counts)
        texts.append(text)

    for i in range(N):
        step(_reordered(i, x))
        r.copy("s0", "x", np.array([reversed_bits(i), -1]), np.array([i, N + i]))
    for n, one in enumerate(butterflies()):
        step(_butterfly(n, one, stages), butterflies=1)
        r.look("w", np.array([one.k, N // 2 + one.k]))
        cells = np.array([one.a, one.b])
        after = stages[one.stage + 1, cells]
        r.put(f"s{one.stage + 1}", np.concatenate([after.real, after.imag]), np.concatenate([cells, N + cells]))
    size, phase = polar(stages[-1])
    for k in range(N // 2 + 1):
        step(_frequency(k, stages[-1, k], size[k], phase[k]))
        mirror = np.unique([k, -k % N])  # its conjugate has the same magnitude
        r.look("s3", np.concatenate([mirror, N + mirror]))
        r.put("size", size[mirror], mirror)
        r.put("phase", phase[mirror], mirror)
    return texts


def pair(value: complex) -> str:
    """Returns a complex number as (real, imaginary), without the rounding of float64 around a whole number."""
    parts = snap_to_integers(np.array([value.real, value.imag]), 1.0)
    return f"({number(parts[0])}, {number(parts[1])})"


def _reordered(i: int, x: np.ndarray) -> str:
    source = reversed_bits(i)
    text = tr(
        "Position {i} is {bits} in binary. Read backwards that is {reversed} = {source}, so x[{source}] = {value} is copied there.",
        i=i,
        bits=f"{i:0{STAGES}b}",
        reversed=f"{source:0{STAGES}b}",
        source=source,
        value=number(x[source]),
    )
    if i:
        return text
    return f"{text} " + tr("This order puts numbers side by side that are combined first.")


def _butterfly(n: int, one: Butterfly, stages: np.ndarray) -> str:
    a, b = stages[one.stage, [one.a, one.b]]
    fields = {
        "n": n % (N // 2) + 1,
        "each": N // 2,
        "stage": one.stage + 1,
        "stages": STAGES,
        "i": one.a,
        "j": one.b,
        "a": pair(a),
        "b": pair(b),
        "k": one.k,
        "w": pair(one.twiddle),
        "product": pair(one.twiddle * b),
        "sum": pair(a + one.twiddle * b),
        "difference": pair(a - one.twiddle * b),
    }
    return " ".join(
        (
            tr("Stage {stage} of {stages}, butterfly {n} of {each}: a = {a} and b = {b}, at {i} and {j}.", **fields),
            tr("The twiddle factor [ω](filter) to the power {k} is {w}. Its product with b is {product}.", **fields)
            if one.k
            else tr("The twiddle factor [ω](filter) to the power 0 is 1, so b stays as it is.", **fields),
            tr("The sum a + ωb = {sum} goes to {i}, the difference a − ωb = {difference} to {j}.", **fields),
        )
    )


def _frequency(k: int, X: complex, size: float, phase: float) -> str:
    fields = {"k": k, "X": pair(X), "size": number(round(size, 9)), "phase": number(round(phase, 9)), "mirror": N - k}
    text = tr(
        "[X](input)[{k}] = {X} as an arrow: its length, the magnitude, is {size}. Its angle, the phase, is {phase} degrees.",
        **fields,
    )
    if k == 0:
        return f"{text} " + tr("X[0] is the sum of all numbers.")
    if k == N // 2:
        return f"{text} " + tr("It is the fastest wave that {n} numbers can hold.", n=N)
    return f"{text} " + tr("X[{mirror}] is its conjugate: the same magnitude, the opposite phase.", **fields)
