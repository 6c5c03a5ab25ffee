# fmt: off
"""Flash attention with variants: the loop has only tiles that some query sees, heads share keys, and scores change before their softmax."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kernels.attention.shape import SelfAttentionShape
from kernels.i18n import mark
from kernels.model.program import Tiles
from visuals.attention.head import Head
from visuals.attention.views import flash
from visuals.attention.views.flash import (
    FIRST_COLS,
    FIRST_LANE,
    MAX_COLS,
    MAX_HALF_ROWS,
    MAX_KEYS,
    MAX_ROWS,
    MAX_TILES,
    MMA_ROW,
)
from visuals.scene.compiler.view import Say, Step, View, step
from visuals.scene.source import Mark

FIRST_TILE = (
    Say(mark("Tile 1 of {tiles}: the copy of keys {key_begin} to {first_stop - 1} to shared memory starts. Keys before {key_begin} are not copied: no query of the block sees them."), "key_begin > 0"),
    Say(mark("Tile 1 of {tiles}: the copy of keys {key_begin} to {first_stop - 1} to shared memory starts. Heads of queries that share these keys: {sharing}. Each copies them for itself."), "sharing > 1"),
)
NO_KEY = mark("Query {query} sees no key. Its result is 0.")


def head(s: SelfAttentionShape, tiles: Tiles) -> Head:
    """Returns what is shown of the heads that share keys: of the first one, rows of the first block; if causal, its last rows. Long ones
    are run at the queries of a block and a few tiles of keys."""
    Br, Bc = tiles["Br"], tiles["Bc"]
    keys = min(s.keys, max(2, min(MAX_TILES, MAX_KEYS // Bc)) * Bc)
    run = s.with_(B=1, H=s.sharing, kv_heads=1, N=min(s.N, Br), M=keys)
    run = run if run.variants else run.with_(N=run.N - 1, M=keys)
    most = MAX_ROWS if s.dtype == "fp32" else MAX_HALF_ROWS
    first = (run.N - 1) // most * most if s.causal else 0
    rows = range(first, min(run.N, first + most))
    return Head(s, run, rows, range(keys), range(s.d if s.d <= MAX_COLS else FIRST_COLS), rows=rows)


def _steps(steps: Mapping[str, Step], first: str, lane: str, cap: Mark, hide: Mark, to: Mark = "") -> dict[str, Step]:
    """Returns the steps of a kernel without variants with those that change scores, at lines of the kernel, in place of its mask. `first`: that of
    the first tile. Captions follow a row of `lane`."""
    scores = {
        "cap": step(cap, Say("The scores are capped: a score s becomes c · tanh(s / c), with c = {cap}. For query {query} and key {key}: {score}, as an exponent of 2.", lane), merge=True),
        "hide": step(hide,
            Say("The bias of each pair is added to its score. For query {query} and key {key} the score is {score}, as an exponent of 2. Pairs that a query does not see get −∞.", f"MASK == 2 and {lane}"),
            Say("Pairs that the mask hides get the score −∞, so their weight is 0. The score of query {query} and key {key} is {score}.", f"MASK == 1 and {lane}"),
            "Keys outside those that a query sees are hidden. Their scores become −∞, so their weights become 0.", to=to, merge=True),
    }
    *other_rows, last, store = steps["store"].cases
    none = Say(NO_KEY, f"{store.among} and total == 0")
    changed = {"mask": scores, first: {first: replace(steps[first], cases=(*FIRST_TILE, *steps[first].cases))}, "store": {"store": replace(steps["store"], cases=(*other_rows, none, last, store))}}
    return {kind: own for name, each in steps.items() for kind, own in changed.get(name, {name: each}).items()}


REGISTERS = _steps(flash.REGISTERS, "keys", FIRST_LANE, "s[i][n] = cap * LOG2E", "if (key < begin || key >= end)", "s[i][n] = masked(")
MMA = _steps(flash.MMA, "load", MMA_ROW, "each_score(s, 0, 0,", "each_score(s, first_query, key_tile")


def registers(head: Head, tiles: Tiles) -> View:
    """Returns the view of attention/flash-variants."""
    return _with_mask(flash.registers(head, tiles, REGISTERS, {"seen": "all"}), head)


def mma(head: Head, tiles: Tiles) -> View:
    """Returns the view of attention/flash-mma-variants."""
    return _with_mask(flash.mma(head, tiles, MMA, {"seen": "all"}), head)


def _with_mask(view: View, head: Head) -> View:
    if not head.run.variants.get("mask"):
        return view
    memory, *groups = view.groups
    return replace(view, tensors=(*view.tensors, *head.buffers(["mask"])), groups=(replace(memory, rows=(*memory.rows, ("mask",))), *groups))
