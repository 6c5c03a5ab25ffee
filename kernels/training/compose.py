"""Programs one after another as one program: their buffers are tensors that they share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kernels.model.program import WORKSPACE, Buffer, HostLoop, LibraryCall, Program, Step, View


@dataclass(frozen=True)
class Part:
    """One program among others. `tensors`: the shared tensor of each of its buffers; a buffer that is left out is its own
    workspace."""

    name: str
    program: Program
    tensors: Mapping[str, str]

    def owned(self) -> tuple[Buffer, ...]:
        """Returns the buffers that only this part uses, as workspace, under names that begin with its own."""
        return tuple(
            replace(b, name=self.tensor_of(b.name), role=WORKSPACE, in_place=False, below=0)
            for b in self.program.buffers
            if b.name not in self.tensors
        )

    def tensor_of(self, buffer: str) -> str:
        return self.tensors.get(buffer, f"{self.name}.{buffer}")

    def steps(self) -> tuple[Step, ...]:
        """Returns its steps on the shared tensors."""
        shapes = {b.name: b.shape for b in self.program.buffers}
        return tuple(self._step(step, shapes) for step in self.program.steps)

    def _step(self, step: Step, shapes: Mapping[str, tuple[int, ...]]) -> Step:
        args = tuple(self.tensor_of(a) if isinstance(a, str) else a for a in step.args)
        views = tuple(shapes[a] if isinstance(a, str) else None for a in step.args)
        cpu = step.cpu and Viewed(step.cpu, views)
        if isinstance(step, LibraryCall):
            return replace(step, args=args, cpu=cpu, bind=Viewed(step.bind, views))
        if isinstance(step, HostLoop):
            return replace(step, args=args, cpu=cpu)
        return replace(step, args=args, cpu=cpu, label=f"{self.name}: {step.name}")


@dataclass(frozen=True)
class Viewed:
    """A function whose arrays are seen in the shapes of its own program: [N, C, H, W] as [N, C*H*W], say."""

    function: Callable[..., object]
    shapes: tuple[tuple[int, ...] | None, ...]  # None: the argument is no array

    def __call__(self, *args: Any) -> object:
        return self.function(
            *(a if shape is None else a.reshape(shape) for a, shape in zip(args, self.shapes, strict=True))
        )


def compose(tensors: Sequence[Buffer], parts: Iterable[Part], views: Sequence[View] = ()) -> Program:
    """Returns the program that runs each part in order on the shared tensors and views of them.

    ValueError names a part whose buffer has other bytes or another type than its tensor, or names an unknown tensor.
    """
    known = {t.name: t for t in tensors}
    known |= {v.name: Buffer(v.name, known[v.of].role, v.shape, v.dtype or known[v.of].dtype) for v in views}
    steps: list[Step] = []
    owned: list[Buffer] = []
    for part in parts:
        for b in part.program.buffers:
            _check(part, b, known)
        owned += part.owned()
        steps += part.steps()
    return Program((*tensors, *owned), tuple(steps), tuple(views))


def _check(part: Part, b: Buffer, known: Mapping[str, Buffer]) -> None:
    if b.name not in part.tensors:
        return
    name = part.tensors[b.name]
    if name not in known:
        raise ValueError(f"{part.name}: {b.name} is {name}, which is no tensor")
    tensor = known[name]
    if (b.nbytes, np.dtype(b.dtype)) != (tensor.nbytes, np.dtype(tensor.dtype)):
        raise ValueError(
            f"{part.name}: {b.name} {list(b.shape)} {b.dtype} cannot be {name} {list(tensor.shape)} {tensor.dtype}"
        )


# -- memory ----------------------------------------------------------------------------------------
def lifetimes(program: Program) -> dict[str, tuple[int, int]]:
    """Returns, of each workspace buffer that a step uses, its first and its last step."""
    workspace = {b.name for b in program.of_role(WORKSPACE)}
    whole = {view.name: view.of for view in program.views}
    used: dict[str, tuple[int, int]] = {}
    for n, step in enumerate(program.steps):
        for name in (whole.get(a, a) for a in step.args if isinstance(a, str)):
            if name in workspace:
                used[name] = used.get(name, (n, n))[0], n
    return used


def live_bytes(program: Program) -> list[dict[str, int]]:
    """Returns, for each step, the bytes of each workspace buffer that must exist while it runs: from its first use to its
    last."""
    nbytes = {b.name: b.nbytes for b in program.buffers}
    live: list[dict[str, int]] = [{} for _ in program.steps]
    for name, (first, last) in lifetimes(program).items():
        for n in range(first, last + 1):
            live[n][name] = nbytes[name]
    return live
