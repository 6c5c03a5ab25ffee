"""Optimisers: SGD with momentum, and Adam. A launch per tensor, one launch over all tensors, PyTorch's.

The tensors lie in one allocation per array (weights w, gradients g, averages), each at a multiple of 256 bytes. A table
lists the chunks of all tensors: it follows from the sizes, so a network makes it once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from kernels.i18n import mark, tr
from kernels.libraries import torch as torch_library
from kernels.model.launch import ceil, launch, rung_factory
from kernels.model.program import INPUT, Arg, Buffer, LibraryCall, Program, Tiles
from kernels.model.rung import Cost, Ladder, Rung
from kernels.optimizer import cpu, library, reference
from kernels.optimizer.presets import presets
from kernels.optimizer.reference import TOLERANCE
from kernels.optimizer.shape import CHUNK, AdamShape, OptimizerShape, SgdShape, parser

BLOCKS = {"BLOCK": (256, 128, 512, 64, 32)}
WIDE = BLOCKS | {"PER": (2, 1, 4)}  # float4 of a thread and array
SMALL, WIDE_SMALL = {"BLOCK": 32}, {"BLOCK": 32, "PER": 1}
SGD_FACTORS = np.dtype([(name, "f4") for name in ("lr", "momentum", "weight_decay")])  # Sgd in cuda/sgd.cuh
ADAM_NAMES = "rate", "keep1", "add1", "keep2", "add2", "root", "eps", "weight_decay"
ADAM_FACTORS = np.dtype([(name, "f4") for name in ADAM_NAMES])  # Adam in cuda/adam.cuh
SAME_ON_CPU = mark(
    "a processor’s loads have no such width in NumPy; without it this is the rung with a table of chunks"
)


def cost(s: OptimizerShape, program: Program) -> Cost:
    return Cost(s.flops, s.bytes, 0)


def library_cost(s: OptimizerShape, program: Program) -> Cost:
    return Cost(s.flops, s.bytes, None)


def table_cost(s: OptimizerShape, program: Program) -> Cost:
    """Returns the cost with the table of chunks, which is read once."""
    return Cost(s.flops, s.bytes + 8 * len(s.chunks), 0)


def no_rules(s: OptimizerShape, tiles: Tiles) -> tuple[str, ...]:
    return ()


def wide_rules(s: OptimizerShape, tiles: Tiles) -> Iterator[str]:
    if 4 * tiles["BLOCK"] * tiles["PER"] > CHUNK:
        got = 4 * tiles["BLOCK"] * tiles["PER"]
        yield tr("4*BLOCK*PER elements of a round <= {chunk} of a chunk, got {got}", chunk=CHUNK, got=got)


# -- what differs between the optimisers --------------------------------------------------------------
def buffers(s: OptimizerShape, *names: str) -> tuple[Buffer, ...]:
    """Returns the arrays by name, and the table of chunks. Only the gradient g is not overwritten. A v of Adam is an
    average of squares: never below 0."""
    positive = isinstance(s, AdamShape)
    arrays = (
        Buffer(name, INPUT, (s.extent,), positive=positive and name == "v", in_place=name != "g") for name in names
    )
    return *arrays, Buffer("chunks", INPUT, (len(s.chunks), 2), "int32")


def chunk_table(s: OptimizerShape, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns the table of chunks, int32 [chunks, 2]."""
    return {"chunks": np.array(s.chunks, np.int32)}


def sgd_factors(s: SgdShape) -> np.generic:
    return np.array([(s.lr, s.momentum, s.weight_decay)], SGD_FACTORS)[0]


def adam_factors(s: AdamShape) -> np.generic:
    """Returns the kernels' factors: the corrections of step t are applied to the rate and to the root."""
    correct_m, correct_v = s.corrections
    values = (s.lr / correct_m, s.beta1, 1 - s.beta1, s.beta2, 1 - s.beta2, correct_v**-0.5, s.eps, s.weight_decay)
    return np.array([values], ADAM_FACTORS)[0]


def _unpacked(update: Callable[..., None]) -> Callable[..., None]:
    """Returns an update whose last argument is the struct of factors."""

    def of_struct(*args) -> None:
        update(*args[:-1], *(args[-1][name] for name in args[-1].dtype.names))

    of_struct.__qualname__ = update.__qualname__
    return of_struct


class Kind:
    """An optimiser: its arrays, factors, kernels and NumPy update."""

    def __init__(self, name: str, arrays: tuple[str, ...], factors, update, first_file: int):
        self.name, self.arrays, self.factors, self.update = name, arrays, factors, _unpacked(update)
        self.files = [
            f"optimizer/{first_file + n:02}_{name}_{form}.cu" for n, form in enumerate(("tensor", "chunks", "float4"))
        ]
        self.on_tensor = cpu.of_tensor(self.update, len(arrays))
        self.on_chunks = cpu.of_chunks(self.update, len(arrays))

    def build_tensors(self, s: OptimizerShape, tiles: Tiles) -> Program:
        """Returns one launch per tensor."""
        block, factors = tiles["BLOCK"], self.factors(s)
        steps = []
        for n, (first, count) in enumerate(s.tensors):
            args: tuple[Arg, ...] = *self.arrays, np.int32(first), np.int32(count), factors
            step = launch(self.files[0], (ceil(count, block),), block, args, self.on_tensor, tiles)
            steps.append(replace(step, label=f"parameter {n}"))
        return Program(buffers(s, *self.arrays), tuple(steps))

    def build_chunks(self, file: int) -> Callable[[OptimizerShape, Tiles], Program]:
        def build(s: OptimizerShape, tiles: Tiles) -> Program:
            args = *self.arrays, "chunks", self.factors(s)
            step = launch(self.files[file], (len(s.chunks),), tiles["BLOCK"], args, self.on_chunks, tiles)
            return Program(buffers(s, *self.arrays), (step,))

        return build

    def build_library(self, routine: str, bind: Callable) -> Callable[[OptimizerShape, Tiles], Program]:
        def build(s: OptimizerShape, tiles: Tiles) -> Program:
            text = ",".join(f"{name}={value}" for name, value in s.params().items())
            call = LibraryCall(routine, (*self.arrays, np.bytes_(text.encode())), None, bind)
            return Program(buffers(s, *self.arrays), (call,))

        return build


SGD_KIND = Kind("sgd", ("w", "g", "v"), sgd_factors, cpu.sgd, 1)
ADAM_KIND = Kind("adam", ("w", "g", "m", "v"), adam_factors, cpu.adam, 4)


# -- rungs -----------------------------------------------------------------------------------------
def _rungs(kind: Kind, libraries: Mapping[str, tuple]) -> tuple[Rung, ...]:
    rung, table_rung = (rung_factory(kind.name, of, TOLERANCE) for of in (cost, table_cost))
    return (
        rung(
            "per-tensor",
            mark("a launch per tensor"),
            mark("Each tensor is updated by a launch of its own, one thread per element."),
            kind.build_tensors, no_rules, BLOCKS, SMALL, cpu_title=mark("parameter after parameter"),
        ),
        table_rung(
            "one-launch",
            mark("one launch for all tensors"),
            mark("A table cuts all tensors into chunks of at most 4,096 elements. Each block updates one chunk."),
            kind.build_chunks(1), no_rules, BLOCKS, SMALL, cpu_title=mark("4,096 elements at a time, in the cache"),
        ),
        table_rung(
            "float4",
            mark("one launch, float4"),
            mark("A thread loads several float4 (16 bytes) of each array before it updates the first."),
            kind.build_chunks(2), wide_rules, WIDE, WIDE_SMALL, not_on_cpu=SAME_ON_CPU,
        ),
        *(
            Rung(
                f"{kind.name}/{name}", title, idea, kind.build_library(f"torch_{kind.name}_{name}", bind), library_cost,
                no_rules, TOLERANCE, library="PyTorch", find_library=lambda: torch_library.find(), engines=("cuda",),
                scale=scale[0] if scale else None,
            )
            for name, (title, idea, bind, *scale) in libraries.items()
        ),
    )  # fmt: skip


SGD = Ladder(
    name="sgd",
    shape=SgdShape,
    parse=parser(SgdShape),
    reference=reference.sgd,
    derive=chunk_table,
    presets=presets("sgd", SgdShape),
    swept=("sgd-64m",),
    rungs=_rungs(
        SGD_KIND,
        {
            "foreach": (
                mark("PyTorch SGD, foreach"),
                mark("Each operation of the update is a launch over all tensors."),
                library.SgdForeach,
            ),
            "fused": (mark("PyTorch SGD, fused"), mark("The whole update in one kernel."), library.SgdFused),
        },
    ),
)
ADAM = Ladder(
    name="adam",
    shape=AdamShape,
    parse=parser(AdamShape),
    reference=reference.adam,
    derive=chunk_table,
    presets=presets("adam", AdamShape),
    swept=("adam-64m",),
    rungs=_rungs(
        ADAM_KIND,
        {
            "foreach": (
                mark("PyTorch Adam, foreach"),
                mark("Each operation of the update is a launch over all tensors."),
                library.AdamForeach,
            ),
            "fused": (
                mark("PyTorch Adam, fused"),
                mark("The whole update in one kernel."),
                library.AdamFused,
                reference.fused_adam_scale,
            ),
        },
    ),
)
LADDERS = (SGD, ADAM)
