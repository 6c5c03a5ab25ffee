"""Runs of the attention kernels in which every step of their views occurs (tests.visuals.scene.compiler.test_views)."""

from __future__ import annotations

from collections.abc import Iterator

from kernels.attention.lse.shape import LseShape
from kernels.attention.presets import ATTENTION_PRESETS
from kernels.attention.shape import AttentionShape
from kernels.ladders import find
from tests.helpers.view_runs import ViewRun, seeded
from visuals.attention import lse, ring
from visuals.attention.decode_views import view_of
from visuals.attention.scene import VIEWS
from visuals.scene.compiler.program import first_blocks

SHAPES = (AttentionShape(1, 1, 16, 8, causal=1), AttentionShape(1, 1, 13, 4), AttentionShape(1, 1, 300, 64, causal=1))
SMALL = {"TILE": 8, "BLOCK": 128, "Br": 16, "Bc": 8, "WM": 16}


VARIANTS = (
    AttentionShape(1, 2, 16, 8, causal=1, kv_heads=1, window=3, softcap=5),
    AttentionShape(1, 1, 16, 8, M=77, mask="bias"),
)
DECODE, SMALL_PARTS = "attention/flash-decode", {"PART": 8, "THREADS": 32, "BATCH": 1}


def runs() -> Iterator[ViewRun]:
    for rung, shown in {**VIEWS, **lse.SCENES}.items():
        sizes = {name: size for name, size in SMALL.items() if size in find(rung).tiles.get(name, ())}
        for s in VARIANTS if rung.endswith("variants") else SHAPES:
            shape = s.with_(dtype="fp16") if "mma" in rung else s
            shape = LseShape(1, 1, s.N, s.d, causal=s.causal) if rung in lse.SCENES else shape
            tiles = find(rung).check(shape, sizes)
            head = shown.head(shape, tiles)
            yield seeded(rung, shown.view(head, tiles), head.run, tiles, blocks=head.chosen)
    for rung in ring.RINGS:
        for causal in (0, 1):
            s = AttentionShape(1, 1, 256, 64, causal=causal, dtype="fp16", window=100 * rung.endswith("variants"))
            Br = 128 if causal else 192  # two consumers, or three
            tiles = find(rung).check(s, {"Br": Br, "Bc": 64, "STAGES": 2} if rung != "attention/wgmma" else {})
            tiles |= {"BLOCKS": 1} if "BLOCKS" in tiles else {}
            defines = dict(find(rung).build(s, tiles).launch().defines)
            yield seeded(rung, ring.view(rung, s, defines), s, tiles, blocks=first_blocks(1), order="turns")
    for s in (ATTENTION_PRESETS["decode-toy"].shape, ATTENTION_PRESETS["window-toy"].shape.with_(mask="bias")):
        tiles = find(DECODE).check(s, SMALL_PARTS)
        yield seeded(DECODE, view_of(s, tiles, 1), s, tiles, blocks=first_blocks(1))
