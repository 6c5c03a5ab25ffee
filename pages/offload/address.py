"""The URL of the lesson on CPU and GPU: work, its size n, copies, picture, what is left on the processor; and its scene."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kernels.i18n import cached, mark, tr
from kernels.model.row import Row
from kernels.offload.machines import recorded_machine
from kernels.offload.works import COPIES, NONE, WORKS, points
from pages.parts.address import Choice, Fields, Number, Values
from visuals.offload.evidence import OffloadEvidence, size_text
from visuals.offload.scene import machine_scene, program_scene, work_scene
from visuals.scene.scene import MAX_CACHED_SCENES, Scene, required

SIDES, PROGRAM, MACHINE = PICTURES = ("sides", "program", "machine")
DEFAULT_SIZE = 1024
FIRST_SIZE = {"gemm": DEFAULT_SIZE, "conv": 118_013_952, "add": 1_004_003}  # when a work is chosen
MAX_LEFT = 95  # percent


def sizes(key: str, copies: str) -> list[int]:
    """Returns the sizes of a work at which the GPU was measured with these copies, all sizes if it was not measured."""
    return sorted(OffloadEvidence(key, 1).gpu_by_size(copies)) or [point.size for point in points(key)]


def _a_measured_size(values: Values) -> Iterator[tuple[str, Values]]:
    """Yields the rule that a size was not measured, and the nearest one that was."""
    known, size = sizes(values["work"], values["copies"]), values["n"]
    if size not in known:
        nearest = min(known, key=lambda one: max(one, size) / min(one, size))
        yield (tr("{size} was not measured here", size=size_text(values["work"], size)), {"n": nearest})


FIELDS = Fields(
    "offload",
    {
        "work": Choice("gemm", tuple(WORKS)),
        "n": Number(DEFAULT_SIZE, 1, 10**11),
        "copies": Choice(NONE, COPIES),
        "picture": Choice(SIDES, PICTURES),
        "left": Number(5, 0, MAX_LEFT, label=mark("left in %"), width=170),
    },
    _a_measured_size,
)


def evidence(values: Values, measured: Row | None = None) -> OffloadEvidence:
    """Returns what is known at these values, with what was measured here."""
    return OffloadEvidence(values["work"], int(values["n"]), values["copies"], values["left"] / 100, measured)


@cached(MAX_CACHED_SCENES)
def _recorded(found: OffloadEvidence, picture: str) -> Scene | None:
    return _scene(found, picture)


def _scene(found: OffloadEvidence, picture: str) -> Scene | None:
    if picture == MACHINE:
        known = recorded_machine()
        return machine_scene(known) if known else None
    if not found.gpu or (picture == PROGRAM and not found.cpu):
        return None
    return program_scene(found) if picture == PROGRAM else work_scene(found)


def scene(found: OffloadEvidence, picture: str) -> Scene | None:
    """Returns the scene of a picture; None if a time of it was not measured."""
    return _scene(found, picture) if found.measured else _recorded(found, picture)


def scene_at(params: Mapping[str, str]) -> Scene:
    """Returns the scene that the page plays at `params`."""
    values = FIELDS.read(params)[0]
    return required((scene(evidence(values), values["picture"]), mark("not measured")))
