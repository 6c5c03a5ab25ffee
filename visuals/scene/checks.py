"""Checks of the Scene contract (visuals.scene.scene), run when a scene is made."""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from visuals.scene import diagram
from visuals.scene.parts import (
    FIELD,
    KINDS,
    MARK,
    MAX_CELLS,
    MAX_STEPS,
    MEMORY_SPACES,
    ROLES,
    Annotation,
    Captions,
    Flow,
    Group,
    MatMul,
    SceneError,
    Sum,
    Tensor,
    View,
    Write,
)

if TYPE_CHECKING:
    from visuals.scene.scene import Scene


def validate(scene: Scene) -> None:
    """Raise SceneError that names the part of the contract that a Scene breaks."""

    def need(condition, error):
        if not condition:
            raise SceneError(f"scene {scene.key!r}: {error}")

    finite = _finite if scene.finite else lambda array: True
    need(1 <= scene.steps <= MAX_STEPS, SceneError(f"a scene has 1 to {MAX_STEPS:,} steps, not {scene.steps:,}"))
    tensors = {t.name: t for t in scene.tensors}
    need(len(tensors) == len(scene.tensors), SceneError("two tensors share a name"))
    for t in scene.tensors:
        _check_tensor(t, need, finite)
    total = sum(t.size for t in scene.tensors)
    need(total <= MAX_CELLS, SceneError(f"{total:,} cells; at most {MAX_CELLS:,} are shown"))
    for g in scene.groups:
        need(
            g.memory_space in MEMORY_SPACES,
            SceneError(f"place {g.memory_space!r} is none of {', '.join(MEMORY_SPACES)}"),
        )
        need(
            not g.table or _is_table(g, tensors), SceneError("a table has rows of one length, of tensors of one plane")
        )
    grouped = [name for g in scene.groups for row in g.rows for name in row if name or not g.table]
    need(sorted(grouped) == sorted(tensors), SceneError("the groups must name every tensor once"))
    for row in (row for g in scene.groups if g.aligned for row in g.rows):
        _check_aligned([tensors[name] for name in row], need)
    for f in scene.flows:
        _check_flow(f, len(scene.groups), scene.steps, need)
    for v in scene.views:
        _check_view(v, scene, tensors, need)
    for w in scene.writes:
        _check_write(w, tensors, scene.steps, need, finite)
    need(not _circular(scene.writes), SceneError("copies go round in a circle"))
    for w in scene.writes:
        if w.source and tensors[w.source].values is None:
            known = not np.isnan(scene.written(w)[2]).any()
            need(known, SceneError(f"the copy into {w.target} reads cells of {w.source} that nothing has written yet"))
    for r in scene.reads:
        need(r.source in tensors, SceneError(f"a read names {r.source!r}, which is no tensor"))
        start = np.asarray(r.start)
        fits = len(start) == scene.steps + 1 and start[0] == 0 and start[-1] == np.size(r.cells)
        need(fits and (np.diff(start) >= 0).all(), SceneError(f"the reads of {r.source} do not divide into steps"))
        need(_within(r.cells, 0, tensors[r.source].size), SceneError(f"the reads leave {r.source}"))
    for m in scene.matmuls:
        _check_matmul(m, tensors, scene.steps, need)
    for s in scene.sums:
        _check_sum(s, tensors, need)
    for r in scene.readings:
        need(np.size(r.values) == scene.steps, SceneError(f"reading {r.label!r} has not one value a step"))
        need(finite(r.values), SceneError(f"reading {r.label!r} has values that are not finite"))
        need(r.kind in KINDS, SceneError(f"reading {r.label!r}: kind {r.kind!r} is no badge"))
        need(r.role in ("", *ROLES), SceneError(f"reading {r.label!r}: role {r.role!r} is none of {', '.join(ROLES)}"))
    for annotation in scene.annotations:
        _check_annotation(annotation, tensors, need, finite)
    _check_captions(scene.captions, scene.steps, need, finite)
    if scene.lanes is not None:
        same = len(scene.lanes.warp) == len(scene.lanes.mask) == scene.steps
        need(same, SceneError("lanes and steps differ in number"))
    need(all(0 <= step < scene.steps for step, _ in scene.faults), SceneError("a fault is at no step"))
    _check_sources(scene, need)
    if scene.diagram is not None:
        diagram.check(scene.diagram, tensors, scene.steps, need)


def _check_sources(scene: Scene, need) -> None:
    sources = [scene.source, *scene.next_sources] if scene.source else []
    need(len(sources) > 0 or not scene.next_sources, SceneError("the first source is missing"))
    starts = [source.since for source in sources]
    need(not starts or starts[0] == 0, SceneError("the first source is shown from step 0 on"))
    stops = [*starts[1:], scene.steps]
    for source, start, stop in zip(sources, starts, stops, strict=False):
        need(start < stop, SceneError(f"{source.file} is shown at no step"))
        need(
            np.size(source.lines) in (1, stop - start),
            SceneError(f"{source.file}: source lines and steps differ in number"),
        )
        last = source.first + source.text.count("\n")
        lit = np.ravel(source.lines)
        need(
            ((lit == 0) | ((lit >= source.first) & (lit <= last))).all(), SceneError(f"{source.file} has no such line")
        )


def _is_table(g: Group, tensors) -> bool:
    one_plane = all(tensors[n].planes == 1 and not any(tensors[n].pad) for row in g.rows for n in row if n in tensors)
    return one_plane and len({len(row) for row in g.rows}) == 1


def _within(array, low: int, stop: int) -> bool:
    array = np.asarray(array)
    return array.size == 0 or bool(array.dtype.kind in "iu" and array.min() >= low and array.max() < stop)


def _finite(array) -> bool:
    with np.errstate(over="ignore"):
        return bool(np.isfinite(np.asarray(array).astype("f4")).all())


def _check_tensor(t: Tensor, need, finite) -> None:
    need(re.fullmatch(r"\w{1,32}", t.name), SceneError(f"{t.name!r} is no name of a tensor: letters and digits alone"))
    need(t.role in ROLES, SceneError(f"{t.name}: role {t.role!r} is none of {', '.join(ROLES)}"))
    need(min(t.planes, t.rows, t.cols) >= 1, SceneError(f"{t.name} is empty"))
    known = t.roles is None or (np.size(t.roles) == t.size and _within(t.roles, 0, len(ROLES)))
    need(known, SceneError(f"{t.name}: not every cell has a role"))
    need(min(t.pad) >= 0, SceneError(f"{t.name}: padding below zero"))
    need(t.col_index is None or len(t.col_index) == t.cols, SceneError(f"{t.name}: a column has no index"))
    if t.values is not None:
        need(np.size(t.values) == t.size, SceneError(f"{t.name}: {np.size(t.values)} values for {t.size} cells"))
        need(finite(t.values), SceneError(f"{t.name} has values that are not finite"))


def _check_aligned(row: list[Tensor], need) -> None:
    plain = all(t.planes == 1 and not any(t.pad) and t.rows == row[0].rows for t in row)
    need(plain, SceneError(f"{', '.join(t.name for t in row)} cannot be aligned: their rows differ"))


def _check_flow(f: Flow, groups: int, steps: int, need) -> None:
    ends = np.array([f.source, f.target])
    need(_within(ends, 0, groups) and f.source != f.target, SceneError("a flow does not join two groups"))
    need(np.size(f.text) == np.size(f.active) == steps, SceneError("a flow has not one label a step"))
    need(_within(f.text, 0, len(f.texts)), SceneError("a flow has a step without a label"))
    need(_within(f.active, 0, 2), SceneError("a flow is active (1) or not (0) at a step"))


def _check_view(v: View, scene: Scene, tensors, need) -> None:
    need({v.tensor, v.source} <= tensors.keys(), SceneError("a view names no tensor"))
    need(np.size(v.index) == tensors[v.tensor].size, SceneError(f"the view {v.tensor} misses cells"))
    need(_within(v.index, -1, tensors[v.source].size), SceneError(f"the view {v.tensor} leaves {v.source}"))
    written = tensors[v.tensor].values is not None or any(w.target == v.tensor for w in scene.writes)
    need(not written, SceneError(f"the view {v.tensor} is written"))


def _check_write(w: Write, tensors, steps: int, need, finite) -> None:
    need(w.target in tensors, SceneError(f"a write names {w.target!r}, which is no tensor"))
    size = tensors[w.target].size
    count = size if w.cells is None else np.size(w.cells)
    need(w.cells is None or _within(w.cells, 0, size), SceneError(f"a write leaves {w.target}"))
    need(
        len(w.steps) and count % len(w.steps) == 0,
        SceneError(f"the steps of a write into {w.target} do not divide its cells"),
    )
    need(_within(w.steps, 0, steps), SceneError(f"a write into {w.target} leaves the steps"))
    need(
        (w.values is None) == bool(w.source),
        SceneError(f"a write into {w.target} needs values or a source, one of them"),
    )
    need(w.source or not w.reshapes, SceneError(f"a reshape into {w.target} needs a source"))
    if w.values is not None:
        need(np.size(w.values) == count, SceneError(f"{w.target}: {np.size(w.values)} values for {count} writes"))
        need(finite(w.values), SceneError(f"values written into {w.target} are not finite"))
        return
    need(w.source in tensors, SceneError(f"a write names {w.source!r}, which is no tensor"))
    need(w.index is not None and np.size(w.index) == count, SceneError(f"the copy into {w.target} misses cells"))
    need(_within(w.index, -1, tensors[w.source].size), SceneError(f"the copy into {w.target} leaves {w.source}"))


def _circular(writes: tuple[Write, ...]) -> bool:
    """Returns whether some tensor is copied, directly or through others, into itself."""
    sources = {}
    for w in writes:
        if w.source:
            sources.setdefault(w.target, set()).add(w.source)
    while sources:
        free = [target for target, copied in sources.items() if not copied & sources.keys()]
        if not free:
            return True
        for target in free:
            del sources[target]
    return False


def _check_matmul(m: MatMul, tensors, steps: int, need) -> None:
    need({m.left, m.right, m.out} <= tensors.keys(), SceneError("a matmul names no tensor"))
    left, right, out = tensors[m.left], tensors[m.right], tensors[m.out]
    agree = left.planes == right.planes == 1 and (left.cols, left.rows * right.cols) == (right.rows, out.size)
    need(agree, SceneError(f"{m.out} = {m.left} x {m.right}: the extents do not agree"))
    need(m.rest is None or np.size(m.rest) == out.size, SceneError(f"the rest of {m.out} misses cells"))
    need(m.rest is None or _finite(m.rest), SceneError(f"the rest of {m.out} is not finite"))
    counted = m.upto is None or (np.size(m.upto) == steps and _within(m.upto, 0, left.cols + 1))
    need(counted, SceneError(f"{m.out}: the terms summed by each step are not counted"))


def _check_annotation(annotation: Annotation, tensors, need, finite) -> None:
    need({annotation.tensor, *annotation.links} <= tensors.keys(), SceneError("an annotation names no tensor"))
    size = tensors[annotation.tensor].size
    _check_captions(annotation.captions, size, need, finite, "cell")
    for source, cells in annotation.links.items():
        fits = np.ndim(cells) == 2 and len(cells) == size and _within(cells, -1, tensors[source].size)
        need(fits, SceneError(f"the annotation of {annotation.tensor} leaves {source}"))


def _check_sum(s: Sum, tensors, need) -> None:
    need({s.out, s.right, s.left or s.right} <= tensors.keys(), SceneError("a sum names no tensor"))
    start, terms = np.asarray(s.start), np.size(s.cells)
    fits = len(start) == tensors[s.out].size + 1 and start[0] == 0 and start[-1] == terms
    need(fits and (np.diff(start) >= 0).all(), SceneError(f"the terms of {s.out} do not divide into its cells"))
    need(np.size(s.factors) == terms, SceneError(f"the sums of {s.out}: not a factor for each term"))
    need(_within(s.cells, 0, tensors[s.right].size), SceneError(f"the sums of {s.out} leave {s.right}"))
    if s.left:
        need(_within(s.factors, 0, tensors[s.left].size), SceneError(f"the sums of {s.out} leave {s.left}"))
    else:
        need(_finite(s.factors), SceneError(f"the sums of {s.out} have factors that are not finite"))


@lru_cache(maxsize=1024)
def _template(template: str) -> tuple[float, str]:
    """Returns the number of a caption's last field and the first role that does not exist; "" without one.

    Python and the player both fill templates, so only plain numbered fields can be filled: no "{}", no "{0:.2f}"."""
    fields = [int(n) for n in FIELD.findall(template) if n]
    plain = not re.search("[{}]", FIELD.sub("", template))
    unknown = next((role for _, role in MARK.findall(template) if role not in ROLES), "")
    return max(fields, default=-1) if plain else math.inf, unknown


def _check_captions(c: Captions, steps: int, need, finite, what: str = "step") -> None:
    need(len(c.kind) == len(c.args) == steps, SceneError(f"captions and {what}s differ in number"))
    need(np.ndim(c.args) == 2, SceneError(f"captions are filled from one row of numbers a {what}"))
    need(_within(c.kind, 0, len(c.templates)), SceneError(f"a {what} has no caption"))
    width = np.shape(c.args)[1]
    for template in c.templates:
        last, unknown = _template(template)
        need(last < width, SceneError(f"the caption {template[:60]!r} cannot be filled from {width} numbers"))
        need(not unknown, SceneError(f"the caption {template[:60]!r}: role {unknown!r} is none of {', '.join(ROLES)}"))
    need(finite(c.args), SceneError("captions hold numbers that are not finite"))
