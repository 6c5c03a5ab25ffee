"""A scene as it is sent to the browser: a JSON-able dict and one block of bytes, read by stage/decode.js.

Arrays are in the block; the dict holds {dtype, offset, length} of each: f4, u1, i1, u2, i2 or i4, little endian, the
narrowest that holds the values. Offsets are multiples of 4. Two kinds of arrays are sent in fewer bytes:

* Integers that change in a regular way: {..., from: number}. The array begins with `from`, and the entry holds the change
  to each number after it. With {..., runs: entry} it holds the different changes in turn, and `runs` how often each occurs.
* Floats of which few differ: {..., index: entry}. The entry itself holds the different floats, `index` the place of each.
"""

from __future__ import annotations

import numpy as np

from visuals.scene import diagram
from visuals.scene.highlight import runs
from visuals.scene.parts import Captions, Read, SceneError, Source, Tensor, Write
from visuals.scene.scene import Scene

SHORT = 128  # bytes: shorter arrays are sent as they are, because an entry takes bytes too
INTEGERS = tuple((dtype, np.iinfo(dtype).min, np.iinfo(dtype).max) for dtype in ("<u1", "<i1", "<u2", "<i2", "<i4"))


class Block:
    """The bytes of a scene, array after array."""

    def __init__(self):
        self.bytes = bytearray()

    def put(self, array) -> dict | None:
        """Append an array and return its entry; None for None. SceneError if integers need over 32 bits."""
        if array is None:
            return None
        flat = _narrow(np.asarray(array).ravel())
        if flat.nbytes <= SHORT:
            return self._append(flat)
        return self._put_floats(flat) if flat.dtype.kind == "f" else self._put_integers(flat)

    def _put_integers(self, flat: np.ndarray) -> dict:
        flat32 = flat.astype(np.int32)
        changes = flat32[1:] - flat32[:-1]  # 32 bits that wrap around, as the player adds them
        starts = np.concatenate(([0], np.flatnonzero(changes[1:] != changes[:-1]) + 1))  # of runs of equal changes
        each, lengths = _narrow(changes[starts]), _narrow(np.diff(starts, append=changes.size))
        changes = _narrow(changes)
        if each.nbytes + lengths.nbytes + SHORT < min(flat.nbytes, changes.nbytes):
            return self._append(each) | {"from": int(flat[0]), "runs": self._append(lengths)}
        if changes.itemsize < flat.itemsize:
            return self._append(changes) | {"from": int(flat[0])}
        return self._append(flat)

    def _put_floats(self, flat: np.ndarray) -> dict:
        bits, index = np.unique(flat.view("<u4"), return_inverse=True)  # as bits, so that -0.0 stays -0.0
        index = _narrow(index)
        if bits.nbytes + index.nbytes + SHORT > flat.nbytes:
            return self._append(flat)
        return self._append(bits.view("<f4")) | {"index": self._append(index)}

    def _append(self, flat: np.ndarray) -> dict:
        self.bytes.extend(bytes(-len(self.bytes) % 4))
        entry = {"dtype": flat.dtype.str[1:], "offset": len(self.bytes), "length": int(flat.size)}
        self.bytes.extend(flat.tobytes())
        return entry


def payload(scene: Scene) -> tuple[dict, bytes]:
    """Returns (meta, block) of a scene."""
    block = Block()
    put = block.put
    meta = {
        "version": scene.version,
        "key": scene.key,
        "title": scene.title,
        "steps": scene.steps,
        "stepName": scene.step_name,
        "orderName": scene.order_name,
        "orderNote": scene.order_note,
        **({"folds": [list(fold) for fold in scene.folds]} if scene.folds else {}),
        **({"faults": [list(fault) for fault in scene.faults]} if scene.faults else {}),
        "groups": [
            {"rows": [list(row) for row in g.rows], "memorySpace": g.memory_space, "title": g.title, "table": g.table}
            | ({"aligned": True} if g.aligned else {})
            | ({} if g.column else {"column": False})
            for g in scene.groups
        ],
        "flows": [
            {"source": f.source, "target": f.target, "texts": list(f.texts)}
            | {"text": put(f.text), "active": put(f.active)}
            for f in scene.flows
        ],
        "tensors": [_tensor(t, put) for t in scene.tensors],
        "writes": [_write(w, scene, put) for w in scene.writes],
        "reads": [
            {"source": r.source, "start": put(r.start)} | _read_cells(r, scene.tensor(r.source).cols, put)
            for r in scene.reads
        ],
        "matmuls": [
            {"left": m.left, "right": m.right, "out": m.out, "rest": put(m.rest), "upto": put(m.upto)}
            for m in scene.matmuls
        ],
        "views": [
            {"tensor": v.tensor, "source": v.source, "index": _index(v.index, scene.tensor(v.tensor), put)}
            for v in scene.views
        ],
        "sums": [
            {"out": s.out, "left": s.left, "right": s.right, "rest": s.rest}
            | {
                "start": put(s.start),
                "cells": put(s.cells),
                "factors": put(s.factors if s.left else np.asarray(s.factors, np.float32)),
            }
            for s in scene.sums
        ],
        "readings": [
            {"label": r.label, "values": put(r.values), "kind": r.kind, "role": r.role} for r in scene.readings
        ],
        "annotations": [
            {
                "tensor": t.tensor,
                "captions": _captions(t.captions, put, scene.tensor(t.tensor).cols),
                "links": [{"source": source, "cells": put(cells)} for source, cells in t.links.items()],
            }
            for t in scene.annotations
        ],
        "captions": _captions(scene.captions, put),
        "source": scene.source and _source(scene.source, put),
        "nextSources": _next_sources(scene, put),
        "lanes": scene.lanes
        and {"warp": put(scene.lanes.warp), "mask": put(np.asarray(scene.lanes.mask, np.uint32).view(np.int32))},
    }
    if scene.diagram is not None:
        meta["diagram"] = diagram.payload(scene.diagram, put)
    return meta, bytes(block.bytes)


def _read_cells(r: Read, width: int, put) -> dict:
    """Send the cells of reads. If each step reads a rectangle of a tensor `width` cells wide, row by row: as its first
    cell and its columns."""
    start, cells = np.asarray(r.start, int), np.asarray(r.cells, int)
    count, some = np.diff(start), start[:-1] < start[1:]
    if len(cells) < len(count):  # fewer cells than rectangles
        return {"cells": put(cells)}
    first, cols = np.zeros(len(count), int), np.ones(len(count), int)
    first[some] = cells[start[:-1][some]]
    rows = cells[start[1:][some] - 1] // width - first[some] // width + 1
    cols[some] = np.maximum(1, count[some] // np.maximum(1, rows))
    row, col = np.divmod(np.arange(len(cells)) - np.repeat(start[:-1], count), np.repeat(cols, count))
    if not (np.repeat(first, count) + row * width + col == cells).all():
        return {"cells": put(cells)}
    return {"first": put(first), "cols": put(cols)}


def _captions(c: Captions, put, cols: int = 0) -> dict:
    """Send captions, their numbers column by column. With `cols` cells to a row, numbers that are a row term plus a column
    term are sent as these terms."""
    args = np.asarray(c.args)
    return {
        "templates": list(c.templates),
        "kind": put(c.kind),
        "args": _outer(args.reshape(-1, cols, args.shape[1]), put) if cols > 1 else put(args.T),
        "width": args.shape[1],
    }


def _tensor(t: Tensor, put) -> dict:
    return (
        {
            "name": t.name,
            "symbol": t.symbol,
            "title": t.title,
            "role": t.role,
            "planes": t.planes,
            "rows": t.rows,
            "cols": t.cols,
            "origin": list(t.origin),
            "note": t.note,
            "planeName": t.plane_name,
            "pad": list(t.pad),
            "partial": t.partial,
            "colIndex": put(t.col_index),
            "values": put(t.values),
        }
        | ({"timed": True} if t.timed else {})
        | ({} if t.roles is None else {"roles": put(t.roles)})
    )


def _write(w: Write, scene: Scene, put) -> dict:
    """Send a write. An index that is a sum, index[i, j] = row[i] + col[j] wherever it is not -1, is sent as {row, col,
    padding}: two short arrays and the flat positions of the -1."""
    index = w.index
    if index is not None:
        index = put(index) if w.cells is not None else _index(index, scene.tensor(w.target), put)
    return {
        "target": w.target,
        "steps": put(w.steps),
        "cells": put(w.cells),
        "values": put(w.values),
        "source": w.source,
        "index": index,
        "reshapes": w.reshapes,
    }


def _next_sources(scene: Scene, put) -> list[dict]:
    """Send the sources after the first. One that was shown before is sent as {like, since}: its number, from 0."""
    known: dict[tuple, int] = {}
    found = []
    for n, s in enumerate(filter(None, (scene.source, *scene.next_sources))):
        lines = np.ravel(s.lines)
        same = known.setdefault((s.file, s.text, s.first, s.detail, repr(s.notes), lines.tobytes(), len(lines)), n)
        found.append(_source(s, put) if same == n and n else {"like": same, "since": s.since})
    return found[1:]


def _source(s: Source, put) -> dict:
    return {
        "file": s.file,
        "text": s.text,
        "colours": put(np.array(runs(s.text), int).reshape(-1, 2)),  # (kind, characters), run by run
        "lines": put(s.lines),
        "first": s.first,
        "since": s.since,
        "detail": s.detail,
        "notes": {str(line): text for line, text in s.notes.items()},
    }


def _index(index: np.ndarray, tensor: Tensor, put) -> dict:
    """Send the source's cells for all cells of a tensor, as terms of a sum if possible."""
    terms = _as_sum(np.asarray(index).reshape(-1, tensor.cols))
    return put(index) if terms is None else {name: put(array) for name, array in terms.items()}


def _outer(args: np.ndarray, put) -> dict:
    """Send args [rows, cols, n] as {row, col} if args[i, j] = row[i] + col[j], else as they are."""
    row, col = args[:, 0], args[0] - args[0, 0]
    if args.dtype.kind not in "iu" or not (row[:, None] + col == args).all():
        return put(args.reshape(-1, args.shape[2]).T)
    return {"row": put(row), "col": put(col)}


def _as_sum(index: np.ndarray) -> dict[str, np.ndarray] | None:
    """Returns arrays row, col with index[i, j] = row[i] + col[j] where it is not -1, and the flat positions of the -1.
    None if the index is no such sum, or if no row or no column of it is free of -1 to read the terms from."""
    inside = index >= 0
    full_row, full_col = inside.all(axis=1), inside.all(axis=0)
    if not (full_row.any() and full_col.any()):
        return None
    i, j = int(full_row.argmax()), int(full_col.argmax())
    row, col = index[:, j], index[i] - index[i, j]
    if not (np.where(inside, row[:, None] + col, -1) == index).all():
        return None
    return {"row": row, "col": col, "padding": np.flatnonzero(~inside)}


def _narrow(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind == "f":
        return array.astype("<f4")
    low, high = (int(array.min()), int(array.max())) if array.size else (0, 0)
    for dtype, least, most in INTEGERS:
        if least <= low and high <= most:
            return array.astype(dtype)
    raise SceneError(f"integers {low} .. {high} do not fit 32 bits")
