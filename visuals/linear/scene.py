"""A fully connected layer and its gradients as scenes: one block of a product, tile by tile, on the tensors of the layer."""

from __future__ import annotations

from collections.abc import Mapping

from kernels.i18n import mark, tr, trn
from kernels.linear.ladder import OURS
from kernels.linear.shape import LinearShape
from kernels.model.program import RuleError
from visuals.linear.captions import ROLES, kinds, tile_names
from visuals.linear.plan import Product, product_of
from visuals.linear.steps import STEPS, LinearSteps
from visuals.scene.launch_scene import Arrays, Executed, executed, launch_scene, recorder
from visuals.scene.parts import Group, Tensor
from visuals.scene.parts import product as product_rows
from visuals.scene.recorder import Recorder
from visuals.scene.scene import Scene

MAX_EXTENT = 48  # of M, N and K
SCENES = tuple(rung.name for rungs in OURS.values() for rung in rungs)
NOTES = {"transposed": mark("one row per {term}, transposed"), "straight": mark("one row per {term}, as in memory")}


def linear_scene(rung: str, s: LinearShape, tiles: Mapping[str, int], inputs: Arrays) -> Scene:
    """Returns the scene of block (0, 0) of one of our rungs at its inputs by name. Raises RuleError if the rung cannot run the
    shape, or if it is too large to show."""
    if max(s.M, s.N, s.K) > MAX_EXTENT:
        raise RuleError(tr("M, N and K up to {most} are shown, got {shape}", most=MAX_EXTENT, shape=s))
    ladder, _, name = rung.partition("/")
    run, product = executed(rung, s, tiles, inputs), product_of(ladder, s)
    found = kinds(rung, product)
    r = recorder(found)
    STEPS[name](LinearSteps(r, run, inputs, ladder, product))
    tensors = _tensors(run, r, inputs, product)
    return launch_scene(
        rung,
        str(s),
        run,
        r,
        found,
        tuple(tensors.values()),
        _groups(tensors, product),
        readings=r.readings("", tiles=name != "naive"),
    )


# -- tensors -----------------------------------------------------------------------------------------------
def _tensors(run: Executed, r: Recorder, inputs: Arrays, product: Product) -> dict[str, Tensor]:
    """Returns the tensors that the steps read or write, by name."""
    used = {w.target for w in r.writes()} | {read.source for read in r.reads()} | set(inputs)
    tensors = {}
    for name, array in run.last.items():
        if name not in used:
            continue
        planes = len(array) if name.endswith("_parts") else 1
        rows = array.shape[-2] if array.ndim - (planes > 1 or name.endswith("_parts")) == 2 else 1
        values = inputs[name].ravel() if name in inputs else None
        role = ROLES.get(name, "workspace")
        tensors[name] = Tensor(
            name,
            name,
            name,
            role,
            planes,
            rows,
            array.shape[-1],
            values,
            plane_name=tr("part") if name.endswith("_parts") else "",
        )
    return tensors | _block_tensors(run, used, product)


def _block_tensors(run: Executed, used: set[str], product: Product) -> dict[str, Tensor]:
    """Returns the tiles and the registers."""
    t, tensors = run.tiles, {}
    sides = (("BM", product.left, product.left_transposed), ("BN", product.right, product.right_transposed))
    for name, (side, source, transposed) in zip(tile_names(product), sides, strict=True):
        if name in used:
            note = tr(NOTES["transposed" if transposed else "straight"], term=product.terms)
            tensors[name] = Tensor(
                name, name, name, ROLES[source], t["STAGES"], t["BK"], t[side], note=note, plane_name=tr("buffer")
            )
    if "sum" in used:
        rows, cols = t.get("TM", 1), t.get("TN", 1)
        tensors["sum"] = Tensor("sum", "sum", "sum", "output", 1, rows, cols, note=f"{rows} × {cols}")
    if "column_sum" in used:
        note = tr("one column per thread")
        tensors["column_sum"] = Tensor("column_sum", "column_sum", "column_sum", "output", 1, 1, t["BM"], note=note)
    return tensors


def _groups(tensors: Mapping[str, Tensor], product: Product) -> tuple[Group, ...]:
    def rows(*names: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
        existing = (tuple(n for n in row if n in tensors) for row in names)
        return tuple(row for row in existing if row)

    parts = tuple((name,) for name in tensors if name.endswith("_parts"))
    registers = tr("registers of thread 0") if "column_sum" not in tensors else tr("registers of the block’s threads")
    regions = (
        (parts, "workspace", trn("workspace: {n} tensor of parts", "workspace: {n} tensors of parts", len(parts))),
        (rows(*((name,) for name in tile_names(product))), "shared", tr("shared memory of the block")),
        (rows(("sum",), ("column_sum",)), "registers", registers),
    )
    others = (Group(names, space, title) for names, space, title in regions if names)
    return (Group(_factors(tensors, product), "global", tr("global memory"), table=True), *others)


def _factors(tensors: Mapping[str, Tensor], product: Product) -> tuple[tuple[str, ...], ...]:
    """Returns the rows of a table: the right factor above the product, the left one beside it. The place above the left one has
    b, or db: the sum of the columns below it."""
    corner = next((name for name in ("b", "db") if name in tensors), "")
    (_, right), row = product_rows(product.left, product.right, product.result)
    return (corner, right), row
