"""The halves of a transform X d Xᵀ: first Xd = X d, then Xd Xᵀ. The kernels do both in transform_2d (winograd.cuh).

The stage shows Xd of one thread: that of channel 0 and of the first visible filter of a step.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kernels import sources
from kernels.i18n import tr
from visuals.conv.winograd.part import Numbers, Part, derived
from visuals.scene.parts import Source, Tensor
from visuals.scene.recorder import Recorder

SECOND_HALF = "Xd[i][k] * X[j][k]"  # its line in transform_2d
TRANSFORM = ("winograd.cuh", "// Y = X d X^T", "// Rounds a row")  # file, first text shown, text after it


class Halves:
    """The values of Xd, float64, of a part: X is G, Bᵀ or Aᵀ."""

    def __init__(self, part: Part, n: Numbers):
        self.part, self.n = part, n
        self.AT, self.G, self.BT = derived(part).arrays("float64")

    def of_filter(self, k: int, c: int = 0) -> np.ndarray:
        """Returns G g [T, 3]."""
        g = self.n.w[k, c].astype(float)
        return self.G @ (g[::-1, ::-1] if self.part.s.flip else g)

    def of_input(self, tile: int) -> np.ndarray:
        """Returns Bᵀ d [T, T] of channel 0."""
        pixels = np.append(self.n.x[0].ravel(), 0).astype(float)[self.part.window(tile)]
        return self.BT @ pixels.reshape(self.part.T, self.part.T)

    def of_output(self, tile: int) -> np.ndarray:
        """Returns Aᵀ Z [m, T] of the first filter."""
        return self.AT @ self.n.Z[:, 0, tile].astype(float).reshape(self.part.T, self.part.T)

    def put(self, r: Recorder, values: np.ndarray) -> np.ndarray:
        """Records that the last step writes these values into Xd. Returns their cells."""
        rows, columns = values.shape
        cells = np.arange(rows)[:, None] * self.part.T + np.arange(columns)
        r.put("Xd", values, cells)
        return cells


def tensor(part: Part) -> Tensor:
    """Returns Xd, whose name is that of the array in transform_2d."""
    return Tensor("Xd", "Xd", "Xd", "workspace", 1, part.T, part.T, note=tr("half done"))


def listing(
    title: str, files: Sequence[tuple[str, str, str]], marks: Sequence[str], kind: np.ndarray, **fields
) -> Source:
    """Returns parts of several files one below the other, each under its name. A part, (file, first text, text after it),
    begins at the line with its first text and ends before the line that begins with the other ("": at the end). At a step
    of kind n the first line with marks[n] is lit. ValueError if there is none."""
    text: list[str] = []
    for file, begin, end in files:
        lines = sources.text(f"conv/{file}").splitlines()
        first = next(i for i, line in enumerate(lines) if begin in line)
        last = next((i for i in range(first + 1, len(lines)) if end and lines[i].lstrip().startswith(end)), len(lines))
        text += [f"// {file}", *"\n".join(lines[first:last]).rstrip().splitlines(), ""]
    lit = [next((i + 1 for i, line in enumerate(text) if mark in line), 0) for mark in marks]
    if 0 in lit:
        raise ValueError(f"no file has a line like {marks[lit.index(0)]!r}")
    return Source(title, "\n".join(text).rstrip(), np.array(lit)[kind], **fields)
