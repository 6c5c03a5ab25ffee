"""The engines that run a Program. Each is a module with the names of `Engine`, imported when it is first used."""

from __future__ import annotations

import importlib
from typing import cast

from kernels.engines.protocol import Engine
from kernels.machine.status import Status
from kernels.model.program import RuleError, Tiles
from kernels.model.rung import Rung
from kernels.model.shape import Shape

NAMES = ("cuda", "cpu", "emulator")


def load(name: str) -> Engine:
    """Returns an engine by its name, one of NAMES. RuleError for another name."""
    if name not in NAMES:
        raise RuleError(f"no engine {name!r}; there are: {', '.join(NAMES)}")
    return cast(Engine, importlib.import_module(f"kernels.engines.{name}"))  # a module has no type of its own


def available() -> dict[str, Status]:
    """Returns for each engine's name whether it runs on this machine."""
    return {name: load(name).status() for name in NAMES}


def refusal(name: str, rung: Rung, shape: Shape, tiles: Tiles) -> str:
    """Returns why this machine cannot run a rung at a shape and all its tile sizes on an engine; "" if nothing is known
    against it. Only the cuda engine has devices and libraries that differ from machine to machine."""
    if (why := rung.why_not_on(name)) or name != "cuda":
        return why
    from kernels.engines import cuda

    return cuda.refusal(rung, shape, tiles)


def default() -> str:
    """Returns the name of the default engine: "cuda" if a GPU is ready, else "cpu"."""
    return "cuda" if load("cuda").status().ready else "cpu"
