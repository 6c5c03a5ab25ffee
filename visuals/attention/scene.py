"""Attention as a scene: head 0 of sequence 0, as each rung of the ladder computes it.

views: what is shown of a kernel, compiled from what it did in the emulator. ring.py: rings of stages on Hopper, and who waits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from kernels.attention.shape import AttentionShape, SelfAttentionShape
from kernels.ladders import find
from kernels.model.dtypes import INPUT_DTYPE
from kernels.model.program import Tiles
from visuals.attention.decode import decode_scene
from visuals.attention.head import Head, named
from visuals.attention.ring import RINGS, ring_scene
from visuals.attention.views import flash, fused, unfused, variants
from visuals.scene import why_not as scene_why_not
from visuals.scene.compiler.program import scene_of_rung
from visuals.scene.compiler.view import View
from visuals.scene.parts import Annotation, Sum
from visuals.scene.scene import Scene


class Shown(NamedTuple):
    """How a rung is shown: which part of a head, its view, what is said of pairs of queries and keys that it stores no number of, and
    which tensors are sums for the browser."""

    head: Callable[[SelfAttentionShape, Tiles], Head]
    view: Callable[[Head, Tiles], View]
    pairs: Callable[[Head, Tiles], Annotation] | None = None
    sums: Callable[[Head, Tiles], tuple[Sum, ...]] | None = None


VIEWS = {
    "attention/naive": Shown(unfused.head, unfused.naive),
    "attention/blocked": Shown(unfused.head, unfused.blocked),
    "attention/fused": Shown(fused.head, fused.fused, fused.pairs),
    "attention/flash": Shown(flash.head, flash.flash, flash.pairs, flash.sums),
    "attention/flash-registers": Shown(flash.registers_head, flash.registers, flash.pairs, flash.sums),
    "attention/flash-mma": Shown(flash.reversed_head, flash.mma, flash.pairs),
    "attention/flash-variants": Shown(variants.head, variants.registers),
    "attention/flash-mma-variants": Shown(variants.head, variants.mma),
}
SCENES = {*VIEWS, "attention/flash-decode", *RINGS}


def attention_scene(s: AttentionShape, rung: str, tiles: Mapping[str, int], inputs: Mapping[str, np.ndarray]) -> Scene:
    """Returns the scene of a rung; missing tile sizes are its defaults. inputs: Q, K, V, float32 [B, H, N, d], of which head 0
    of sequence 0 is used. Raises ValueError if `why_not` gives a reason."""
    if reason := why_not(s, rung, tiles):
        raise ValueError(reason)
    sizes = find(rung).check(s, tiles)
    dtype = INPUT_DTYPE[s.dtype]  # inputs are rounded first, as the kernel gets them
    matrices = {name: np.asarray(inputs[name])[0, 0].astype(dtype) for name in "QKV"}
    mask = {name: inputs[name] for name in inputs if name == "mask"}
    if rung in RINGS:
        return ring_scene(s, rung, sizes, matrices | mask)
    if rung in VIEWS:
        return compiled(VIEWS[rung], s, rung, sizes, matrices | mask)
    return decode_scene(s, rung, sizes, {name: matrix.astype(np.float32) for name, matrix in matrices.items()} | mask)


def compiled(shown: Shown, s: SelfAttentionShape, rung: str, tiles: Tiles, matrices: Mapping[str, np.ndarray]) -> Scene:
    """Returns the scene of a rung with a view. matrices: Q [N, d], of each head that shares keys one after the other, K and V [keys, d], and
    the mask [N, keys] if there is one."""
    head = shown.head(s, tiles)
    run = head.run
    inputs = {name: matrices[name][None, None, : run.keys] for name in "KV"}
    inputs["Q"] = matrices["Q"].reshape(-1, s.N, s.d)[None, : run.H, : run.N]
    if "mask" in matrices:
        dtype = "u1" if s.variants["mask"] == "bool" else INPUT_DTYPE[s.dtype]
        inputs["mask"] = matrices["mask"][: run.N, : run.keys].astype(dtype)
    scene = scene_of_rung(rung, head.run, tiles, inputs, shown.view(head, tiles), str(s), blocks=head.chosen)
    pairs = (shown.pairs(head, tiles),) if shown.pairs else ()
    sums = shown.sums(head, tiles) if shown.sums else ()
    notes = (note for note in scene.annotations if note.tensor not in {of.out for of in sums})
    return replace(named(scene, head), annotations=(*notes, *pairs), sums=sums)


def why_not(s: AttentionShape, rung: str, tiles: Mapping[str, int]) -> str:
    """Returns why a rung has no scene at a shape; "" if it has one."""
    return scene_why_not.why_not(rung, s, tiles, SCENES)
