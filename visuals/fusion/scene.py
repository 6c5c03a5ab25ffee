"""A chain of blocks as a scene. Either each block is a launch and the maps between them are in HBM, or one launch
computes several blocks. Then a value goes from block to block in a register, and the maps between are never
stored."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np

from kernels.fusion.shape import ChainShape
from kernels.i18n import decimal, mark, tr, trn
from kernels.ladders import find
from visuals import units
from visuals.fusion.captions import CORE, FORMULA, Texts, numbers, path
from visuals.fusion.plan import Arrays, BlockLaunch, RungRun, is_fold, run_rung, stage_shape
from visuals.fusion.steps import FusionSteps, folded, named, role
from visuals.scene.parts import Annotation, Captions, Group, Reading, Tensor
from visuals.scene.scene import Scene

ORDER = mark("launch after launch")
ORDER_NOTE = mark(
    "A kernel begins after the kernel before it has stored everything. Within a launch, the steps show the first threads. "
    "One last step shows all other threads. On a GPU the threads run in parallel, in an order that the scheduler chooses."
)
IN_A_ROW = 8  # tensors in a row; the stage wraps longer rows


def fusion_scene(s: ChainShape, rung: str, tiles: Mapping[str, int]) -> Scene:
    """Returns the scene of one of our rungs at `stage_shape(s)`, with small whole numbers. RuleError if the rung
    cannot run it."""
    small = stage_shape(s)
    tiles = find(rung).check(small, tiles)
    run = run_rung(small, rung, tuple(tiles.items()))
    launches = [part.launch for part in run.parts]
    texts = Texts(launches)
    steps = FusionSteps(run, texts)
    _end(steps, small)
    tensors = _tensors(small, s, run, steps)
    return Scene(
        key=f"{rung} {small} of {s} " + ",".join(f"{name}={size}" for name, size in tiles.items()),
        title=tr(find(rung).title),
        tensors=tuple(tensors.values()),
        groups=_groups(tensors, steps, small != s),
        steps=steps.r.steps,
        step_name=tr("step"),
        order_name=tr(ORDER),
        order_note=tr(ORDER_NOTE),
        writes=steps.r.writes(),
        reads=steps.r.reads(),
        captions=steps.r.captions(),
        readings=_readings(steps),
        annotations=tuple(_annotations(steps)),
        source=texts.source(steps.source_lines, run.counters),
        lanes=steps.r.lanes(),
    )


def _end(steps: FusionSteps, s: ChainShape) -> None:
    """Add the last step: the total bytes."""
    n, moved = len(steps.run.parts), steps.r.total("read") + steps.r.total("written")
    complete = trn("[y](output) is complete after {n} launch.", "[y](output) is complete after {n} launches.", n)
    traffic = tr(
        "The traffic through HBM (the GPU’s main memory) is {moved}. The minimum is {least}: every input read once, y written once.",
        moved=units.bytes_(moved),
        least=units.bytes_(s.bytes),
    )
    steps.first_step = -1
    steps.step(steps.source_lines[-1], f"{complete} {traffic}", mask=0)


# -- tensors -----------------------------------------------------------------------------------------------
def _tensors(small: ChainShape, s: ChainShape, run: RungRun, steps: FusionSteps) -> dict[str, Tensor]:
    """Returns x and y, the inputs of blocks, the maps between launches, those that are never stored, and the
    registers."""
    tensors = {"x": _maps("x", "x", small.x_shape, _part(small.x_shape, s.x_shape), run.arrays["x"])}
    tensors["y"] = _maps("y", "y", small.y_shape, _part(small.y_shape, s.y_shape))
    for stage, whole, names in zip(small.stages, s.stages, small.tensors, strict=True):
        for tensor, name in names.items():
            tensors[name] = _param_tensor(tensor, name, stage, whole.tensors[tensor], run.arrays[name])
    stored = any(b not in ("x", "y") and b not in tensors for b in run.arrays)
    for n, w in steps.block_launches.items():
        tensors |= _between(n, w, stored)
    for part in run.parts:
        if is_fold(part):
            *_, b, w = (a for a in part.launch.args if isinstance(a, str))
            K, C, R, _ = run.arrays[w].shape
            tensors[w] = Tensor(
                w, "w'", "w'", "workspace", K * C, R, R, note="w · gain", plane_name=tr("filter and map")
            )
            tensors[b] = Tensor(b, "b'", "b'", "workspace", 1, 1, K, note=tr("one value per filter"))
    for name, r in steps.registers.items():
        tensors[name] = Tensor(name, name[0], r.title, r.role, r.planes, r.rows, r.cols, note=r.note)
    return tensors


def _maps(name: str, title: str, shape, note: str, values: np.ndarray | None = None) -> Tensor:
    _, C, H, W = shape
    return Tensor(name, name, title, role(name), C, H, W, values, note=note, plane_name=tr("map"))


def _part(small, whole) -> str:
    """Returns the size and, if the image is scaled down, the full size."""
    size = f"{small[1]} × {small[2]} × {small[3]}"
    if small == whole:
        return size
    return tr(
        "{size}, scaled down from {whole}", size=size, whole=" × ".join(decimal(f"{extent:,}") for extent in whole)
    )


def _param_tensor(tensor: str, name: str, stage, whole: tuple[int, ...], values: np.ndarray) -> Tensor:
    """Returns the tensor of what a block reads beside the maps."""
    if tensor == "z":
        _, C, H, W = values.shape
        return Tensor(name, name, name, "input", C, H, W, values, note=tr("second input of add"), plane_name=tr("map"))
    if tensor == "w":
        K, C, R, _ = values.shape
        note = trn("{n} filter", "{n} filters", K)
        if values.shape != whole:
            total = decimal(f"{whole[0]:,}")
            note = trn("{n} of {total} filters", "{n} of {total} filters", K, total=total)
        return Tensor(name, name, name, "filter", K * C, R, R, values, note=note, plane_name=tr("filter and map"))
    return Tensor(name, name, name, "filter", 1, 1, values.size, values)


def _between(n: int, w: BlockLaunch, stored: bool) -> dict[str, Tensor]:
    """Returns the map that a launch writes to HBM, and those that its blocks do not write. `stored`: some maps or
    weights are written."""
    maps = {}
    for k, m in enumerate(w.members[:-1], 1):
        name = f"never{n}_{k}"
        note = tr("never stored") if stored else ""
        maps[name] = _maps(name, tr("after {block}", block=m.kind), m.after.shape, note)
    if w.target != "y":
        note = tr("after {block}", block=w.members[-1].kind)
        maps[w.target] = _maps(w.target, w.target, w.result.shape, note)
    return maps


def _groups(tensors: Mapping[str, Tensor], steps: FusionSteps, small: bool) -> tuple[Group, ...]:
    registers = list(steps.registers)
    stored = [name for name, t in tensors.items() if t.role == "workspace" and name not in registers]
    params = [n for n in tensors if n not in (*registers, *stored, "x", "y")]
    vectors = [n for n in params if tensors[n].rows == tensors[n].planes == 1]
    rows = (("x", "y"), *_rows([n for n in params if n not in vectors]), *_rows(vectors))
    title = tr("global memory")
    if small:
        title = tr("global memory, scaled down: one image, few maps, few rows")
    groups = [Group(rows, "global", title)]
    if stored:
        never = all(name.startswith("never") for name in stored)
        title = tr("workspace in global memory: between launches")
        if never:
            title = tr("maps that are never stored")
        groups.append(Group(_rows(stored), "workspace", title))
    if registers:
        groups.append(Group(_rows(registers), "registers", tr("registers, one row after each block")))
    return tuple(groups)


def _rows(names: list[str]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(names[n : n + IN_A_ROW]) for n in range(0, len(names), IN_A_ROW))


def _readings(steps: FusionSteps) -> tuple[Reading, ...]:
    """Returns launches and bytes so far, with perfect caches."""
    return (
        Reading(tr("launches"), np.array(steps.launch), "predicted"),
        Reading(tr("bytes read from HBM"), steps.r.so_far("read"), "predicted"),
        Reading(tr("bytes written to HBM"), steps.r.so_far("written"), "predicted"),
    )


# -- annotations of cells ------------------------------------------------------------------------------------
def _annotations(steps: FusionSteps) -> Iterator[Annotation]:
    """Yields, for every value that a launch writes, its values after each block and the values it comes from."""
    for n, w in steps.block_launches.items():
        yield Annotation(w.target, _path(w), _links(w))
        cells = steps.registers[f"v{n}"].cells if w.epilogue or w.has_core else None
        if cells is not None:
            yield _register_annotation(f"v{n}", w, cells)
    for part in steps.run.parts:
        if is_fold(part):
            yield from _fold_annotations(part, steps.run.arrays)


def _register_annotation(name: str, w: BlockLaunch, cells: np.ndarray) -> Annotation:
    """Returns, for each value in registers, the block that computed it from the row above. A value that was just
    read names itself."""
    kind = w.group.core
    summed = [len(w.window(i)) for i in cells] if kind not in ("", "gap") else [_area(w)] * len(cells)
    head = np.stack([summed, [int(w.maps["R"]) ** 2] * len(cells)], axis=1)
    rows = [head, *(numbers(m, cells) for m in w.epilogue)]
    width = max(block_rows.shape[1] for block_rows in rows)
    args = np.concatenate(
        [np.pad(block_rows, ((0, 0), (0, width - block_rows.shape[1]))) for block_rows in rows]
    ).astype(np.float64)
    row = np.repeat(np.arange(len(rows)), len(cells))
    first = f"{kind}: {tr(CORE[kind])}" if kind else ""
    templates = (first, *(f"{m.kind}: {FORMULA[m.kind]}." for m in w.epilogue))
    above = np.maximum(np.arange(row.size) - len(cells), -1)
    return Annotation(name, Captions(templates, row, args), {name: above[:, None]})


def _area(w: BlockLaunch) -> int:
    return math.prod(w.members[0].before.shape[2:])


def _path(w: BlockLaunch) -> Captions:
    size = w.result.size
    kinds = [m.kind for m in w.epilogue]
    values = [m.after.ravel() for m in w.epilogue]
    chain = "{0}" + (" → " + _shifted(path(kinds)) if kinds else "")
    first = (w.members[0].before if not w.has_core else w.core.after).ravel()
    if not w.has_core:
        text = f"{named(w.source)} {chain}."
    elif w.prologue:
        before = ", ".join(m.kind for m in w.prologue)
        text = tr(
            "{block} of {source}, each value after {before}: {chain}.",
            block=w.core.kind,
            source=named(w.source),
            before=before,
            chain=chain,
        )
    else:
        text = tr("{block} of {source}: {chain}.", block=w.core.kind, source=named(w.source), chain=chain)
    if len(w.members) > 1:
        text += " " + tr("Between the blocks, the value stays in a register.")
    return Captions((text,), np.zeros(size, int), np.stack([first, *values], axis=1).astype(np.float64))


def _shifted(template: str) -> str:
    """Returns the same template with every number increased by one."""
    for n in reversed(range(template.count("{"))):
        template = template.replace(f"{{{n}}}", f"{{{n + 1}}}")
    return template


def _links(w: BlockLaunch) -> dict[str, np.ndarray]:
    """Returns the cells that are highlighted with each cell of the target."""
    size = w.result.size
    cells = np.arange(size)
    links = {w.source: _sources(w, size)}
    for m in w.epilogue:
        positions = cells if m.kind == "add" else m.of_map(cells)
        links |= dict.fromkeys(m.names, positions[:, None])
    if w.has_core and w.core.kind == "conv":
        taps = w.core.params[0][0].size
        links[w.core.names[0]] = w.core.of_map(cells)[:, None] * taps + np.arange(taps)
    return links


def _sources(w: BlockLaunch, size: int) -> np.ndarray:
    if not w.has_core:
        return np.arange(size)[:, None]
    if w.core.kind == "gap":
        area = _area(w)
        return np.arange(size * area).reshape(size, area)
    under = [w.window(i) for i in range(size)]
    width = max(map(len, under))
    return np.array([np.pad(cells, (0, width - len(cells)), constant_values=-1) for cells in under])


def _fold_annotations(part, arrays: Arrays) -> Iterator[Annotation]:
    f = folded(part, arrays)
    names = [a for a in part.launch.args if isinstance(a, str)]
    K, taps = len(f["gain"]), f["w"].size // len(f["gain"])
    k = np.repeat(np.arange(K), taps)
    of_w = np.stack([f["w"].ravel(), f["gain"][k], f["w'"].ravel()], axis=1).astype(np.float64)
    text = "w · gain = {0} · {1} = {2}, gain = gamma / √(var + eps)."
    links = {names[0]: np.arange(K * taps)[:, None], names[2]: k[:, None], names[5]: k[:, None]}
    yield Annotation(names[-1], Captions((text,), np.zeros(K * taps, int), of_w), links)
    of_b = np.stack([f["b"], f["mean"], f["gain"], f["beta"], f["b'"]], axis=1).astype(np.float64)
    text = "(b − mean) · gain + beta = ({0} − {1}) · {2} + {3} = {4}."
    links = {name: np.arange(K)[:, None] for name in names[1:6] if name != names[0]}
    yield Annotation(names[-2], Captions((text,), np.zeros(K, int), of_b), links)
