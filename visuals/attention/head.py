"""What of a head the stage shows: the kernels run at one head, of a long one at its first queries and keys. Its first columns are drawn."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from kernels.attention.shape import SelfAttentionShape
from kernels.i18n import decimal, mark, tr, trn
from kernels.model.program import Launch
from visuals import units
from visuals.scene.compiler.program import every_block
from visuals.scene.compiler.view import Buffer, PerThread
from visuals.scene.parts import Group, Tensor
from visuals.scene.recorder import part_note
from visuals.scene.requests import WORD
from visuals.scene.scene import Scene

MAX_WHOLE = 16  # queries and keys of a head that is shown whole
ROLES = {
    "Q": "input",
    "K": "filter",
    "V": "filter",
    "O": "output",
    "S": "workspace",
    "P": "workspace",
    "mask": "workspace",
}
SQUARE = ("S", "P", "SP", "mask")  # a row for each query, a column for each key


@dataclass(frozen=True)
class Head:
    """`s`: the shape of the page. `run`: the head that the kernels run at. `queries`, `keys` and `cols`: those that are shown. `blocks`: of
    each launch, those that are followed; () for all. `rows`: those of a tile of queries."""

    s: SelfAttentionShape
    run: SelfAttentionShape
    queries: range
    keys: range
    cols: range
    blocks: tuple[int, ...] = (0,)
    rows: range = range(0)

    def part(self, name: str) -> tuple[range, range]:
        """Returns the rows and columns of a matrix that are shown."""
        return self.keys if name in "KV" else self.queries, self.keys if name in SQUARE else self.cols

    def buffers(self, names: Iterable[str]) -> tuple[Buffer, ...]:
        return tuple(self._buffer(name) for name in names)

    def _buffer(self, name: str) -> Buffer:
        heads = self.run.H if name in "QO" else 1  # that share keys
        shape = (1, 1, heads * rows_of(name, self.run), self.run.keys if name in SQUARE else self.run.d)
        return Buffer(name, ROLES[name], name, shape=shape, part=self.part(name))

    def never_stored(self, variable: str, row: str, column: str, during: tuple[str, ...]) -> PerThread:
        """Returns the N x N matrix that a kernel never stores: empty cells. Those of a variable are where its threads have one now."""
        title, place = mark("S and P: not in global memory"), {"place": (row, column), "part": self.part("SP")}
        return PerThread("SP", "workspace", title, symbol="S", of=variable, hollow=True, during=during, **place)

    def chosen(self, launch: Launch) -> tuple[int, ...]:
        """Returns the blocks of a launch that are followed."""
        every = every_block(launch)
        return tuple(block for block in self.blocks if block in every) or every


def rows_of(name: str, s: SelfAttentionShape) -> int:
    """Returns the rows of a matrix of one head."""
    return s.keys if name in "KV" else s.N


def global_title(s: SelfAttentionShape) -> str:
    """Returns the title of global memory; it names the head and sequence shown if there are several."""
    if s.H > 1 and s.B > 1:
        return tr("global memory, head 0 of {heads}, sequence 0 of {sequences}", heads=s.H, sequences=s.B)
    if s.H > 1:
        return tr("global memory, head 0 of {heads}", heads=s.H)
    if s.B > 1:
        return tr("global memory, sequence 0 of {sequences}", sequences=s.B)
    return tr("global memory")


def named(scene: Scene, head: Head) -> Scene:
    """Returns a scene that says which head it is of, and how much of it the kernels ran at."""
    note, run = scene.order_note, head.run
    if run.keys < head.s.keys and run.keys != run.N:
        text = tr(
            "The kernel ran at {queries} queries and {keys} keys of a head only, and bytes are those of this run.",
            queries=run.N,
            keys=run.keys,
        )
        note = f"{text} {note}"
    elif run.N < head.s.N:
        last, count = run.N - 1, decimal(f"{head.s.N:,}")
        text = tr(
            "The kernels ran at queries and keys 0 to {last} of {all} only, and bytes are those of this run.",
            last=last,
            all=count,
        )
        note = f"{text} {note}"
    tensors = tuple(_part(tensor, head) if tensor.name in (*ROLES, "SP") else tensor for tensor in scene.tensors)
    return replace(scene, groups=tuple(_named(group, head) for group in scene.groups), tensors=tensors, order_note=note)


def _part(tensor: Tensor, head: Head) -> Tensor:
    """Returns a matrix with which part of it is shown, of the head of the page."""
    whole = rows_of(tensor.name, head.s), head.s.keys if tensor.name in SQUARE else head.s.d
    shown = head.part(tensor.name)
    rows, _ = shown
    if tensor.name in SQUARE or len(head.cols) == head.s.d:
        note = part_note(*((of.start, len(of), size) for of, size in zip(shown, whole, strict=True)))
    elif len(rows) == whole[0]:
        note = trn("{n} row", "{n} rows", whole[0])
    else:
        all_ = decimal(f"{whole[0]:,}")
        note = tr("rows {first}–{last} of {all}", first=rows.start, last=rows.stop - 1, all=all_)
    return replace(tensor, note=note, partial=(tensor.rows, tensor.cols) != whole)


def _named(group: Group, head: Head) -> Group:
    s = head.s
    if group.memory_space == "workspace":
        bytes_ = units.bytes_(2 * WORD * s.N * s.N)
        return replace(group, title=tr("workspace in global memory: S and P, {bytes} per head", bytes=bytes_))
    if group.memory_space != "global" or not group.title:
        return group
    title = global_title(s)
    if len(head.cols) < s.d:
        title = tr("{memory}, columns 0–{last} of {all}", memory=title, last=len(head.cols) - 1, all=s.d)
    return replace(group, title=title)
