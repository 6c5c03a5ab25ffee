"""The words for the parts of a training step."""

from __future__ import annotations

from kernels.i18n import mark
from kernels.training.graph import BACKWARD, FORWARD, UPDATE

PHASES = {FORWARD: mark("forward"), BACKWARD: mark("backward"), UPDATE: mark("update")}
