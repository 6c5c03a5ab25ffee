"""Captions of each block of a chain, with the numbers in them, and the line of a kernel that computes it."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from kernels import sources
from kernels.engines.emulator.counters import Counters
from kernels.fusion import codegen
from kernels.i18n import mark, trn
from kernels.model.program import Launch
from visuals.fusion.plan import Member
from visuals.scene.parts import Source
from visuals.scene.source import margin, resources

# Formula of a pointwise block, filled from `numbers`.
FORMULA = {
    "bias": "v + [b](filter) = {0} + {1} = {2}",
    "bn": "(v − mean) · gain + beta = ({0} − {1}) · {2} + {3} = {4}",
    "relu": "max(v, 0) = max({0}, 0) = {1}",
    "add": "v + [z](input) = {0} + {1} = {2}",
}
# What a pointwise block does.
ACTION = {
    "bias": mark("The bias is added in registers."),
    "bn": mark("Batch norm is applied in registers, with gain = gamma / √(var + eps)."),
    "relu": mark("ReLU is applied in registers."),
    "add": mark("The second input, z, is added in registers."),
}
# How a value of another block was computed. {0}: the number of values, {1}: R·R.
CORE = {
    "conv": mark("the sum of all products of the window and the filter. Products: {0}."),
    "maxpool": mark("the largest value of the window. Values: {0}."),
    "avgpool": mark("the sum of the values of the window, divided by R·R = {1}. Values: {0}."),
    "gap": mark("the sum of the values of the map, divided by H·W = {0}."),
}


def numbers(m: Member, cells: np.ndarray) -> np.ndarray:
    """Returns float64 [cells, n]: the numbers in the sentence of a pointwise block, at flat cells of its maps."""
    cells = np.asarray(cells)
    before, after, c = m.before.ravel()[cells], m.after.ravel()[cells], m.of_map(cells)
    if m.kind == "bn":
        _, beta, mean, _ = m.params
        between = mean[c], m.gain[c], beta[c]
    else:
        between = {"bias": lambda: (m.params[0][c],), "add": lambda: (m.params[0].ravel()[cells],), "relu": tuple}[
            m.kind
        ]()
    return np.stack([before, *between, after], axis=1).astype(np.float64)


def path(kinds: Sequence[str]) -> str:
    """Returns a template that names each block with the value after it."""
    return " → ".join(f"{kind} {{{n}}}" for n, kind in enumerate(kinds))


def pooled(kind: str, n: int, area: int, v: str) -> str:
    """Returns the caption of the step in which a pool reduces n values of a window of `area` values to v."""
    if kind == "maxpool":
        return trn(
            "The only value becomes the maximum: {v} = {0}.",
            "The largest of the {n} values becomes {v} = {0}. The kernel compares each value when it loads it.",
            n,
            v=v,
        )
    return trn(
        "The only value is divided by R·R = {area}: {v} = {0}.",
        "The {n} values are added, and the sum is divided by R·R = {area}: {v} = {0}. The kernel adds each value when it loads it.",
        n,
        v=v,
        area=area,
    )


# -- the kernels' text -----------------------------------------------------------------------------------------
# The computing line of a hand-written kernel. In a generated kernel the line ends with the block's name.
LINE_PATTERNS = {
    "conv": r"v \+= pixel\[",
    "bias": r"v\[j\] \+= map_bias",
    "bn": r"v\[j\] = \(v\[j\] - map_mean",
    "relu": r"positive\(v\[j\]",
    "add": r"v\[j\] \+= other",
    "maxpool": r"larger\(v, x\[",
    "avgpool": r"v \+= x\[",
    "gap": r"v \+= x\[",
    "fold": r"w_folded\[i\] =",
}
LOAD, STORE, READ, SHUFFLE, MEAN = (
    r"load\(v, x",
    r"store\(y|y\[i\] = v",
    r"float u = x\[in_index\]",
    "__shfl_xor_sync",
    r"v /= area|v / area",
)


class Texts:
    """The source texts of the kernels of some launches, one below the other, each once, and the positions of
    their lines."""

    def __init__(self, launches: Sequence[Launch]):
        self.launches = launches
        self.files = list(dict.fromkeys(launch.source for launch in launches))
        self.lines: list[str] = []
        self.start, self.first = {}, {}  # by file: its offset in `lines`, and its own line there
        for file in self.files:
            text = sources.text(file).splitlines()
            first = next(i for i, line in enumerate(text) if line.startswith("extern"))
            if len(self.files) > 1:
                self.lines.append(f"// {file.rpartition('/')[2]}")
            self.start[file], self.first[file] = len(self.lines), first
            self.lines += [*text[first:], ""]
        self.lines.pop()

    def find_line(self, file: str, pattern: str, after: int = -1) -> int:
        """Returns the number, from 1, of the first line of a file that matches the pattern, after line `after`.
        ValueError if there is none: then the kernel has changed and this module has not."""
        for n in range(max(self.start[file], after), self._end(file)):
            if re.search(pattern, self.lines[n]):
                return n + 1
        raise ValueError(f"{file} has no line like {pattern!r}")

    def blocks(self, launch: Launch, kinds: Sequence[str]) -> list[int]:
        """Returns the line of each block of a launch, in order."""
        if not launch.source.startswith(codegen.PREFIXES):
            return [self.find_line(launch.source, LINE_PATTERNS[kind]) for kind in kinds]
        lines_found, last = [], -1
        for kind in kinds:
            last = self.find_line(launch.source, rf"// {kind}$", last)
            lines_found.append(last)
        return lines_found

    def _end(self, file: str) -> int:
        later = [start for start in self.start.values() if start > self.start[file]]
        return min(later) - 1 if later else len(self.lines)

    def source(self, highlighted: Sequence[int], counters: Counters | None) -> Source:
        """Returns the source panel: the line of each step and, in the margin, the counters."""
        (first_file, *others), notes = self.files, {}
        for file in self.files:
            margin_notes = margin(counters, file.rpartition("/")[2]) if counters else {}
            notes |= {n - self.first[file] + self.start[file]: text for n, text in margin_notes.items()}
        first = 1 if others else self.first[first_file] + 1
        notes = {n + first - 1: text for n, text in notes.items() if n > 0}
        name = first_file.rpartition("/")[2]
        launches = trn("{n} launch", "{n} launches", len(self.launches))
        return Source(
            trn("{file} and {n} more", "{file} and {n} more", len(others), file=name) if others else name,
            "\n".join(self.lines),
            np.array(highlighted) + first - 1,
            first,
            notes,
            launches if others else resources(self.launches[0]),
        )
