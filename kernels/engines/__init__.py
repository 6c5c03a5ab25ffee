"""The engines that run a Program. Each is a module with the names of `Engine`, imported when it is first used."""

from __future__ import annotations

import importlib
from typing import Any

from kernels.engines.protocol import Engine
from kernels.machine.status import Status
from kernels.model.program import RuleError, Tiles
from kernels.model.rung import Rung

NAMES = ("cuda", "cpu", "emulator")


def load(name: str) -> Engine:
    """Returns an engine by its name, one of NAMES. RuleError for another name."""
    if name not in NAMES:
        raise RuleError(f"no engine {name!r}; there are: {', '.join(NAMES)}")
    return importlib.import_module(f"kernels.engines.{name}")


def available() -> dict[str, Status]:
    """Returns for each engine's name whether it runs on this machine."""
    return {name: load(name).status() for name in NAMES}


def refusal(name: str, rung: Rung, shape: Any, tiles: Tiles) -> str:
    """Returns why this machine cannot run a rung at a shape and all its tile sizes on an engine; "" if nothing is known
    against it. Only the cuda engine has devices and libraries that differ from machine to machine."""
    why = rung.not_on(name)
    return why or (load(name).refusal(rung, shape, tiles) if name == "cuda" else "")


def default() -> str:
    """Returns the name of the default engine: "cuda" if a GPU is ready, else "cpu"."""
    return "cuda" if load("cuda").status().ready else "cpu"
