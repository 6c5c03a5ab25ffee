"""What a machine of a pool says of itself: its device, its libraries, and the version of its code."""

from __future__ import annotations

import hashlib
import socket
from functools import cache

from kernels import engines
from kernels.jobs.place import ROOT
from kernels.ladders import LADDERS
from kernels.libraries import wheels
from kernels.machine import driver, processor
from kernels.machine.elsewhere import Machine
from kernels.model.program import RuleError
from kernels.model.row import Json
from kernels.model.rung import Rung


@cache
def code_version() -> str:
    """Returns a digest of the code that runs execute. Unlike place.version() it is the same on all machines."""
    digest = hashlib.sha256()
    for pattern in ("*.py", "*.cu", "*.cuh", "*.zip", "*.json"):
        for path in sorted((ROOT / "kernels").rglob(pattern)):
            digest.update(path.relative_to(ROOT).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def announcement() -> Json:
    """Returns what this machine says of itself, in plain values."""
    return {"host": socket.gethostname(), "version": code_version(), "machine": _this_machine().to_message()}


def _this_machine() -> Machine:
    cuda, gpu = engines.load("cuda").status(), driver.find()
    if not cuda.ready or isinstance(gpu, driver.GpuUnavailable):
        return Machine(processor.device_name(), None, cuda.why)
    libraries = {name: why for name in wheels.WHEELS if (why := wheels.missing(name))}
    rungs = {rung.name: why for ladder in LADDERS.values() for rung in ladder.rungs if (why := _missing(rung))}
    return Machine(cuda.text, gpu, "", libraries, rungs)


def _missing(rung: Rung) -> str:
    """Returns why the library of a rung cannot be called on this machine; "" if it can, or if the rung has none."""
    if not rung.find_library:
        return ""
    try:
        rung.find_library()
    except RuleError as error:
        return str(error)
    return ""
