"""Rows of tokens to heads, and back, as scenes: each number keeps its value and gets another address.

Rows [N, T, parts, h, d] are drawn as a matrix, a token each row. The heads [N, h, T, d] of a part are planes, a head each.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b

import numpy as np

from kernels.heads.ladder import SPLIT
from kernels.heads.shape import HeadsShape
from kernels.i18n import decimal, tr
from kernels.ladders import find
from kernels.model.program import RuleError
from visuals.heads.views import VIEWS
from visuals.scene.compiler.program import scene_of_rung
from visuals.scene.scene import Scene

MAX_CELLS = 2048  # of the rows, shown


def heads_scene(rung: str, s: HeadsShape, tiles: Mapping[str, int], inputs: Mapping[str, np.ndarray]) -> Scene:
    """Returns the scene of one of our rungs at its inputs by name. Raises RuleError if the rung cannot run the shape, or if it
    is too large to show."""
    if s.elements > MAX_CELLS:
        most = decimal(f"{MAX_CELLS:,}")
        raise RuleError(tr("at most {most} numbers are shown, got {shape}", most=most, shape=s))
    ladder, tiles = rung.partition("/")[0], find(rung).check(s, tiles)
    size = s.N * s.T, s.parts * s.h * s.d
    note = tr("{tokens} tokens, {parts} × {h} × {d} numbers each", tokens=size[0], parts=s.parts, h=s.h, d=s.d)
    rows = {"planes": 1, "rows": size[0], "cols": size[1], "note": note}
    planes = {"plane_name": tr("head") if s.N == 1 else tr("sequence and head")}
    tensors = {"x" if ladder == SPLIT else "y": rows, **dict.fromkeys(s.names, planes)}
    digest = blake2b(b"".join(np.ascontiguousarray(a).tobytes() for a in inputs.values()), digest_size=6).hexdigest()
    view = VIEWS[rung](s, ladder, tiles)
    return scene_of_rung(rung, s, tiles, inputs, view, f"{s} {digest}", tensors=tensors)
