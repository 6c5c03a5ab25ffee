"""Seeded inputs of a program as a scene shows them: numbers with few decimals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kernels.model import values
from kernels.model.program import INPUT, Program
from kernels.runner import inputs_of

SPREAD = 2  # standard deviation of the numbers of a scene
Given = Callable[[Any, dict[str, np.ndarray]], dict[str, np.ndarray]]  # inputs of a shape from seeded ones


def rounded_inputs(ladder, shape, program: Program, seed: int, decimals: int) -> dict[str, np.ndarray]:
    """Returns seeded inputs with so many decimals, and those that a ladder derives from them."""
    inputs = inputs_of(ladder, shape, program, seed)
    for b in program.of_role(INPUT):
        if not values.is_whole(b.dtype):
            inputs[b.name] = np.round(SPREAD * inputs[b.name], decimals) + np.float32(0)  # no -0
    return inputs | dict(ladder.derive(shape, inputs) if ladder.derive else {})
