"""The scene of a reader's own kernel, made without a word about it."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

from kernels.engines.emulator.threads import Dim
from kernels.engines.emulator.watch.recording import Recorded
from kernels.engines.emulator.watch.user import record_kernel
from kernels.i18n import tr
from kernels.model.program import RuleError
from visuals.scene.compiler.automatic import automatic_view
from visuals.scene.compiler.compile import compile_scene
from visuals.scene.scene import Scene


def kernel_scene(
    file: Path, entry: str, grid: Dim, block: Dim, args: Sequence[str], watched: tuple[int, int] = (0, 0), **settings
) -> Scene:
    """Returns the scene of a kernel of a file. `watched`: the block that is shown, and the thread of it that is followed. `settings` and
    errors as of record_kernel."""
    number, thread = watched
    found = record_kernel(file, entry, grid, block, args, (number,), **settings)
    view = automatic_view([found.recording], thread)
    if not any(view.launches):
        raise RuleError(tr("no thread of block {block} executes a statement of {kernel}", block=number, kernel=entry))
    recorded = Recorded((found.recording,), {}, 0.0)
    title = tr("{kernel}, block {block}", kernel=entry, block=number)
    text = f"{next(iter(found.recording.files.values()))} {entry} {grid} {block} {args} {watched} {sorted(settings.items())}"
    key = blake2b(text.encode(), digest_size=8).hexdigest()
    note: dict[str, Any] = {"order_note": _note(found.differs)} if found.differs else {}
    return compile_scene(recorded, view, key, title, **note)


def _note(differs: Sequence[str]) -> str:
    return tr(
        "The picture is of a build that follows the source line by line. The last digits of {arrays} differ from those of the build that is "
        "measured.",
        arrays=", ".join(differs),
    )
