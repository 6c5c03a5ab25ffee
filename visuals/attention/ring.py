# fmt: off
"""Attention on Hopper as rings of stages for K and V, compiled from what block 0 did: copies, products, softmax, and who waits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from kernels.attention.shape import AttentionShape
from kernels.engines.emulator.watch.recording import record
from kernels.i18n import decimal, mark, tr
from kernels.ladders import find
from kernels.model.dtypes import INPUT_DTYPE
from kernels.model.launch import ceil
from kernels.model.program import Program, Tiles
from visuals.attention.head import global_title
from visuals.scene.compiler.compile import compile_scene, watched_names
from visuals.scene.compiler.program import first_blocks
from visuals.scene.compiler.view import Buffer, Bytes, PerThread, Say, Shared, Step, View, box, step
from visuals.scene.parts import Group
from visuals.scene.scene import Scene
from visuals.scene.why_not import broken_rule

Matrices = Mapping[str, np.ndarray]
Lines = list[tuple[str, str] | None]
WARPGROUP, WM, BOX = 128, 64, 64  # threads; queries of a warpgroup; columns of a box
OF_EACH = 4  # rows of each consumer that are shown
ROWS, COLUMNS = 8, 8  # of a tile, and of scores and sums
MIN_TILES, MAX_WORK = 3, 10  # tiles of keys of a long head; of all consumers together
ORDER = mark("emulated order")
NOTE = mark("The emulator runs one warpgroup until it waits or passes its turn. Then copies arrive. On the GPU, warpgroups and copies run at the same time. All values are those of the kernel in the emulator.")

# -- steps ---------------------------------------------------------------------------------------------------
EMPTY = (Say(mark("The producer waits at barrier empty {stage} of [{matrix}](filter), before it copies tile {tile + 1}."), "waits and not waited"), Say(""))
COPY = (Say("", "waited"), Say(mark("The producer starts the copy of [{matrix}](filter) of tile {tile + 1} into stage {stage}.")))
FULL = (Say(mark("Warpgroup {warpgroup} waits at barrier full {at} for [{matrix}](filter) of tile {number}."), "waits and not waited"), Say(""))
SCORES = (Say("", "waited"), Say(mark("Warpgroup {warpgroup} begins the scores of tile {number} (wgmma), which read [K](filter) in stage {at}. The first score of its first row is {s[0][0]}.")))
SOFTMAX = (Say("", "waited"), Say(mark("Warpgroup {warpgroup} computes the [softmax](workspace) of tile {number}. Its first row has the maximum m = {m[0]}, and this lane's part of the sum is l = {l[0]}.")))
VALUES = (Say("", "waited"), Say(mark("Warpgroup {warpgroup} begins the product of the weights of tile {number} with [V](filter) in stage {at}. The first sum of its first row of [O](output) is {o[0][0]}.")))
QUERIES = mark("One thread starts the copy of the block's rows of [Q](input): {Br}.")
STORE = (Say("", "waited"), Say(mark("Warpgroup {warpgroup} divides its rows of [O](output) by l and stores them.")))

# Of each mark, in the order of its lines: the tile of keys and the stage; None for a line that frees both.
LOOP: Mapping[str, Lines] = {"full_k": [("tile", "stage")], "scores": [("tile", "stage")], "softmax": [("tile", "stage")], "free_k": [("tile", "stage")],
        "full_v": [("tile", "stage")], "values": [("tile", "stage")], "free_v": [("tile", "stage")]}
AHEAD: Mapping[str, Lines] = {"full_k": [("0", "0"), ("tile", "stage")], "scores": [("0", "0"), ("tile", "stage")], "free_k": [("0", "0"), ("tile", "stage")],
         "full_v": [("tile - 1", "last"), ("tiles - 1", "stage")], "values": [("tile - 1", "last"), ("tiles - 1", "stage")], "free_v": [], "softmax": [("0", "0"), ("tile", "stage")]}
OVERLAP: Mapping[str, Lines] = {**AHEAD, "free_v": [("tile - 1", "last")], "full_k": [*AHEAD["full_k"], ("tile + 1", "where(tile + 1 < tiles, ahead, -1)")]}
HIDDEN = ("tile", "stage")
BALANCED: Mapping[str, Lines] = {**OVERLAP, "full_k": [("0", "stage"), *OVERLAP["full_k"][1:], HIDDEN], "scores": [("0", "stage"), ("tile", "stage")], "softmax": [("0", "stage"), ("tile", "stage")],
            "free_k": [("0", "stage"), ("tile", "stage"), HIDDEN], "full_v": [*AHEAD["full_v"], HIDDEN], "free_v": [("tile - 1", "last"), ("tiles - 1", "stage"), HIDDEN]}
PERSISTENT: Mapping[str, Lines] = {**BALANCED, "free_k": [BALANCED["free_k"][0], ("tile", "stage"), ("tile", "stage"), HIDDEN], "free_v": [BALANCED["free_v"][0], None, *BALANCED["free_v"][1:]],
              "softmax": [("0", "stage"), ("tile", "stage"), ("tile", "stage")]}  # with two ways through the loop
MARKS = {"full_k": "wait(full_k", "full_v": "wait(full_v", "scores": "begin_scores(", "values": "begin_values(", "free_k": "arrive(empty_k", "free_v": "arrive(empty_v"}
SAID = {"full_k": FULL, "full_v": FULL, "scores": SCORES, "values": VALUES, "softmax": SOFTMAX, "free_k": (Say(""),), "free_v": (Say(""),)}


@dataclass(frozen=True)
class Kind:
    """What differs between the rungs. `lines`: of each kind of step. `softmax` and `until`: the lines where it begins and ends. `persistent`: a block computes
    several tiles of queries, and shared memory has `queries` of them.
    `both`: which line that frees K frees V, too."""

    lines: Mapping[str, Lines]
    softmax: str = "weigh(s, "
    until: str = "weigh(s, "
    producer: bool = True
    persistent: bool = False
    queries: int = 1
    both: int = 0


RINGS = {
    "attention/wgmma": Kind({name: lines for name, lines in LOOP.items() if "free" not in name}, "update_maxima(", "round_weights(", producer=False),
    "attention/wgmma-consumers": Kind(LOOP, "update_maxima(", "round_weights("),
    "attention/wgmma-ping-pong": Kind(AHEAD, both=1),
    "attention/wgmma-overlap": Kind(OVERLAP),
    "attention/wgmma-balanced": Kind(BALANCED, persistent=True),
    "attention/wgmma-persistent": Kind(PERSISTENT, persistent=True, queries=2, both=2),
    "attention/flash-wgmma-variants": Kind(OVERLAP),
}


def _with(cases: tuple[Say, ...], fields: Mapping[str, str]) -> tuple[Say, ...]:
    """Returns sentences in which fields are expressions of one line."""
    return tuple(replace(say, text=_filled(tr(say.text), fields)) for say in cases)


def _filled(text: str, fields: Mapping[str, str]) -> str:
    for name, value in fields.items():
        text = text.replace(f"{{{name}}}", value if name == "matrix" else f"{{{value}}}")
    return text


def _known(lines: Lines) -> Iterator[tuple[int, tuple[str, str]]]:
    return ((n, line) for n, line in enumerate(lines) if line)


def steps_of(kind: Kind) -> dict[str, Step]:
    """Returns the steps of a kernel. Lines with the same mark are steps of their own, with a number after the first."""
    found = {"q": step("load_tile<Br>(", Say("", "waited"), QUERIES, merge=True)}
    if kind.producer:
        for matrix in "kv":
            fields = {"matrix": matrix.upper()}
            found[f"empty_{matrix}"] = Step(f"wait(empty_{matrix}", _with(EMPTY, fields))
            found[f"copy_{matrix}"] = Step(f"load_tile<Bc>(tile_{matrix}", _with(COPY, fields), merge=True)
    else:
        found["copy"] = step("load_keys(i, i)", Say(mark("One thread starts the copies of [K](filter) and [V](filter) of tile {i + 1} into stage {i}.")))
        found["next"] = step("load_keys(stage, tile + STAGES)", Say(mark("All warps have used stage {stage}. One thread starts the copies of tile {tile + STAGES + 1} into it."), "tile + STAGES < tiles"), Say(""))
    for name, lines in kind.lines.items():
        for n, (tile, stage) in _known(lines):
            fields = {"number": f"{tile} + 1", "at": stage, "matrix": name[-1].upper()}
            to, at = ((kind.until, n), (kind.softmax, n)) if name == "softmax" else ("", (MARKS[name], n))
            found[f"{name}_{n}"] = Step(at, _with(SAID[name], fields), to=to, merge=name in ("scores", "softmax", "values"))
    return {**found, "store": Step("store_values(O", STORE, merge=True)}


# -- tensors -------------------------------------------------------------------------------------------------
def view(rung: str, s: AttentionShape, defines: Mapping[str, int]) -> View:
    """Returns the view of a rung. `defines`: of its launch."""
    kind, (Br, Bc, DP, stages) = RINGS[rung], (int(defines[name]) for name in ("Br", "Bc", "DP", "STAGES"))
    dtype, of_k, keys, consumers = {"fp16": "f2", "bf16": "bfloat16"}[s.dtype], Bc * DP, kind.queries * Br * DP, Br // WM
    steps = steps_of(kind)

    def tile(name: str, role: str, first: int, planes: int, size: int) -> Shared:
        return Shared(name, role, name, mark("rows of 128 bytes, swizzled"), of="shared", dtype=dtype, **box(first, ROWS, BOX, BOX, planes, size), plane=mark("stage"))

    def states(matrix: str) -> Iterator[PerThread]:
        for name, role, title, note in (("copy", "input", mark("copied"), mark("copies begun")), ("full", "filter", mark("full"), mark("arrived")), ("free", "workspace", mark("free"), mark("read by a consumer"))):
            lines = kind.lines.get(f"{name}_{matrix}", [])
            made = [(f"{name}_{matrix}_{n}", of, stage) for n, (of, stage) in _known(lines)]
            if (name, matrix) == ("free", "v") and kind.both:
                made.append((f"free_k_{kind.both}", "tile - 1", "last"))
            if name == "copy":
                made = [(f"copy_{matrix}", "tile", "stage")] if kind.producer else [("copy", "i", "i"), ("next", "tile + STAGES", "where(tile + STAGES < tiles, stage, -1)")]
            yield from (PerThread(f"{name}_{matrix}", role, title, note, value=f"{of} + 1", place=("0", f"where(waits, -1, {stage})"), part=(range(1), range(stages)), during=(during,)) for during, of, stage in made)

    shown = {matrix: tuple(states(matrix)) for matrix in "kv"}
    first = "thread % 128 // 32 * 16 + lane // 4 + {} * 8"
    row = f"where(thread < {WARPGROUP * consumers}, where({{0}} < {OF_EACH}, thread // {WARPGROUP} * {OF_EACH} + {{0}}, -1), -1)"
    rows, cols = range(OF_EACH * consumers), range(COLUMNS)
    in_fragment, column = row.format(first.format("(cell % 4 // 2)")), "cell // 4 * 8 + lane % 4 * 2 + cell % 2"

    def of_rows(name: str, role: str, *kinds: str) -> PerThread:
        during = tuple(step for step in steps if step.startswith(kinds))
        is_row = name in "ml"
        return PerThread(name, role, name, during=during, part=(rows, range(1) if is_row else cols), place=(row.format(first.format("cell")), "0") if is_row else (in_fragment, column))

    fragments = of_rows("s", "workspace", "scores", "softmax"), of_rows("m", "workspace", "softmax"), of_rows("l", "workspace", "softmax"), of_rows("o", "output", "values", "softmax")
    ring = tile("tile_q", "input", 0, kind.queries, Br * DP), tile("tile_k", "filter", keys, stages, of_k), tile("tile_v", "filter", keys + stages * of_k, stages, of_k)
    sizes = {name: (1, 1, s.H * s.N if name in "QO" else s.keys, s.d) for name in "QKVO"}
    query = (ceil(s.N, Br) - 1) * Br if s.causal and not kind.persistent else 0  # the first of block 0
    parts = {name: range(query, min(query + ROWS, s.N)) if name in "QO" else range(min(ROWS, s.keys)) for name in "QKVO"}
    buffers = tuple(
        Buffer(name, role, name, dtype=dtype, shape=sizes[name], part=(parts[name], range(min(BOX if name != "O" else COLUMNS, s.d))))
        for name, role in (("Q", "input"), ("K", "filter"), ("V", "filter"), ("O", "output"))
    )
    return View(
        (*buffers, *ring, *shown["k"], *shown["v"], *fragments),
        (
            *(Group((tuple(dict.fromkeys(of.name for of in shown[m])),), "shared", title) for m, title in (("k", mark("K: tile of each stage, one column per stage")), ("v", mark("V: tile of each stage"))) if shown[m]),
            Group(tuple((of.name,) for of in ring), "shared", mark("shared memory: first rows of each stage")),
            Group((("s", "m", "l", "o"),), "registers", mark("registers: first rows of each consumer"), aligned=True),
            Group((("Q", "O"), ("K",), ("V",)), "global", mark("global memory")),
        ),
        (steps,), (Bytes(mark("bytes of Q, K and V copied"), "Q K V", "ld"),), order=(ORDER, NOTE),
        names={} if kind.producer else {"warpgroup": "0"},
    )


# -- the scene -----------------------------------------------------------------------------------------------
def why_not(s: AttentionShape, rung: str, tiles: Mapping[str, int]) -> str:
    """Returns why a rung has no ring at a shape; "" if it has one."""
    return broken_rule(rung, s, tiles)


def shortened(s: AttentionShape, rung: str, tiles: Tiles) -> AttentionShape:
    """Returns one head, of a long one so many keys that each stage is filled and one of them again; of many consumers fewer."""
    defines = dict(find(rung).build(s, tiles).launch().defines)
    most = int(defines["Bc"]) * min(int(defines["STAGES"]) + 1, max(MIN_TILES, MAX_WORK * WM // int(defines["Br"])))
    if rung.endswith("variants"):
        run = s.with_(B=1, H=s.sharing, kv_heads=1, N=min(s.N, int(defines["Br"])), M=min(s.keys, most))
        return run if run.variants else run.with_(N=run.N - 1, M=run.keys)
    return s.with_(B=1, H=1, N=min(s.N, most))


def program_of(s: AttentionShape, rung: str, tiles: Tiles) -> Program:
    """Returns the program whose launch has block 0: alone, if no other block changes what it does."""
    blocks = {"BLOCKS": ceil(ceil(s.N, tiles["Br"]), 2)} if RINGS[rung].persistent else {}
    program = find(rung).build(s, {**tiles, **blocks})
    if RINGS[rung].persistent or s.causal:
        return program
    return Program(program.buffers, (replace(program.launch(), grid=(1, 1, 1)),))


def ring_scene(s: AttentionShape, rung: str, tiles: Tiles, matrices: Matrices) -> Scene:
    """Returns the scene of the ring of block 0, with all tile sizes of the rung. matrices: Q, K and V [rows, d], as of compiled. ValueError
    if `why_not` gives a reason. RuleError if the kernel must be compiled and there is no compiler."""
    if reason := why_not(s, rung, tiles):
        raise ValueError(reason)
    run = shortened(s, rung, tiles)
    program = program_of(run, rung, tiles)
    inputs = {name: matrices[name][None, None, : run.keys] for name in "KV"}
    inputs["Q"] = matrices["Q"].reshape(-1, s.N, s.d)[None, : run.H, : run.N]
    if "mask" in matrices:
        inputs["mask"] = matrices["mask"][: run.N, : run.keys].astype("u1" if s.variants["mask"] == "bool" else INPUT_DTYPE[s.dtype])
    made = view(rung, run, dict(program.launch().defines))
    names = watched_names(made)
    with np.errstate(all="ignore"):
        recorded = record(program, inputs, first_blocks(1), lambda _: names, "turns")
    sizes = ",".join(f"{name}={value}" for name, value in tiles.items())
    scene = compile_scene(recorded, made, f"{rung} {sizes} {s} ring", tr(find(rung).title))
    groups = tuple(replace(group, title=global_title(s)) if group.memory_space == "global" else group for group in scene.groups)
    note = scene.order_note
    if run.keys < s.keys:
        note += " " + tr("The kernel ran at {queries} queries and {keys} of {all} keys of a head.", queries=run.N, keys=run.keys, all=decimal(f"{s.keys:,}"))
    return replace(scene, groups=groups, order_note=note)
