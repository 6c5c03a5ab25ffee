"""The machine that a reader's runs go to, if it is not this one: what a machine of a pool has announced.

Pages ask it for its GPU and its libraries instead of this machine. The process that executes runs never does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field

from kernels.i18n import tr
from kernels.machine.driver import GpuInfo
from kernels.machine.status import Status
from kernels.model.row import Json, Row


@dataclass(frozen=True)
class Machine:
    """What a machine announces. `device`: its GPU's name, else its processor's; `gpu`: None if it has none that can be
    used, then `why` says why; `libraries`, `rungs`: why a library cannot be called there, by its name and by the rung
    that calls it."""

    device: str
    gpu: GpuInfo | None = None
    why: str = ""
    libraries: Mapping[str, str] = field(default_factory=dict)
    rungs: Mapping[str, str] = field(default_factory=dict)

    def status(self) -> Status:
        """Returns whether its cuda engine can be used. There is no advice: readers cannot change that machine."""
        if self.gpu:
            return Status(ready=True, text=self.gpu.name)
        return Status(ready=False, text=tr("{device}, of the pool: {why}", device=self.device, why=self.why))

    def to_message(self) -> Json:
        """Returns plain values: the reader of the message may have another version of this class."""
        return asdict(self)

    @classmethod
    def from_message(cls, message: Row) -> Machine:
        gpu = message["gpu"]
        capability = {"capability": tuple(gpu["capability"])} if gpu else {}
        return cls(**{**message, "gpu": GpuInfo(**gpu | capability) if gpu else None})


def _this_one() -> Machine | None:
    return None


_current: Callable[[], Machine | None] = _this_one


def follow(current: Callable[[], Machine | None]) -> None:
    """Takes the machine of the current reader's runs from `current()`, None for this one."""
    global _current
    _current = current


def chosen() -> Machine | None:
    """Returns the machine that the current reader's runs go to; None for this one."""
    return _current()
