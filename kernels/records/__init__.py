"""Records: measurements as rows. Recordings, made on named devices and shipped with the app, and the store of
this user's own (kernels.records.store)."""

from __future__ import annotations

import ast
import datetime
import hashlib
import json
import subprocess
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from kernels import cuda
from kernels.program import HostLoop, Launch, Program, Result
from kernels.records import near
from kernels.records.near import Near

FOLDER = Path(__file__).parent / "recordings"


def kernel_digest(program: Program) -> str:
    """16 hex digits of everything that decides what the kernels do: their code, defines, launch sizes. Comments, layout
    and paths do not count. A recording with another digest (`digest_of`) was made by other kernels."""
    parts = [
        (cuda.code(s.source), s.entry, s.defines, s.grid, s.block, s.shared)
        if isinstance(s, Launch)
        else (s.name, _python_code(s.source))
        if isinstance(s, HostLoop)
        else s.routine
        for s in program.steps
    ]
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


@lru_cache(maxsize=16)
def _python_code(source: str) -> str:
    """The code of a Python file under kernels, without comments, layout and docstrings."""
    tree = ast.parse(FOLDER.parents[1].joinpath(source).read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if (
            isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
            and ast.get_docstring(node) is not None
        ):
            node.body = node.body[1:]
    return ast.dump(tree)


def digest_of(row_: Mapping[str, Any]) -> str | None:
    """The digest of the kernels that a row was measured with, as `kernel_digest` gives it today; None in a row that has
    none. Rows of before comments ceased to count hold another one, which names them in links and stays in them."""
    digest = row_.get("kernels")
    return _digests_before().get(digest, digest)


@cache
def _digests_before() -> dict[str, str]:
    """The digest of today by that of before, of all kernels that were recorded then: written once, where the digest of
    before was that of the kernels in the tree."""
    return json.loads(FOLDER.joinpath("digests.json").read_text(encoding="utf-8"))


def commit() -> str:
    """The commit of the checkout, "unknown" outside one."""
    told = subprocess.run(
        ["git", "rev-parse", "HEAD"],
        capture_output=True, text=True, cwd=Path(__file__).parent, check=False,
    )  # fmt: skip
    return told.stdout.strip() if told.returncode == 0 else "unknown"


def row(result: Result, program: Program, made_at: str) -> dict[str, Any]:
    """One measurement as a row that explains itself: every field of provenance beside the figures."""
    m, now = result.measurement, datetime.datetime.now(datetime.UTC)
    told = {
        "rung": result.rung,
        "shape": result.shape.params(),
        "tiles": dict(result.tiles),
        "engine": result.engine,
        "mode": m.mode,
        "median_ms": m.median_ms,
        "p20_ms": m.p20_ms,
        "p80_ms": m.p80_ms,
        "n": m.n,
        "samples_ms": m.samples_ms,
        "parts_ms": dict(m.parts_ms),
        "peak_bytes": m.peak_bytes,
        "input_bytes": m.input_bytes,
        "output_bytes": m.output_bytes,
        "workspace_bytes": m.workspace_bytes,
        "timeline": [dict(stage) for stage in m.timeline],
        **({"copies_ms": dict(m.copies_ms)} if m.copies_ms else {}),
        "flops": result.predicted.flops,
        "predicted_bytes": result.predicted.bytes,
        "predicted_workspace_bytes": result.predicted.workspace_bytes,
        "error": result.error,
        "device": m.device,
        **m.conditions,
        "date": now.date().isoformat(),
        "time": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "commit": made_at,
        "kernels": kernel_digest(program),
    }
    return {name: value if name == "shape" else _to_five_digits(value) for name, value in told.items()}


LEFT_OUT = ("timeline", "copies_ms")  # of a brief row


def brief(row_: dict[str, Any]) -> dict[str, Any]:
    """A row without what only charts of memory and copies want: a sweep over many shapes holds many rows."""
    return {name: value for name, value in row_.items() if name not in LEFT_OUT}


def _to_five_digits(value: Any) -> Any:
    """Every fraction in it, at any depth: more than the clocks tell apart, and a file of rows stays small."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, Mapping):
        return {name: _to_five_digits(inner) for name, inner in value.items()}
    return [*map(_to_five_digits, value)] if isinstance(value, list | tuple) else value


@cache
def recordings() -> tuple[dict[str, Any], ...]:
    """Every row of every recording shipped with the app."""
    rows = []
    for path in sorted(FOLDER.glob("*.jsonl")):
        with path.open(encoding="utf-8") as file:
            rows += [json.loads(line) for line in file if line.strip()]
    return tuple(rows)


def recorded(rung: str, shape: Any, tiles: dict[str, int], mode: str = "cold") -> dict[str, Any] | None:
    """The recording of this rung at exactly this shape, tile sizes and mode; None where there is none."""
    return _by_setting().get(_setting(rung, shape.params(), tiles, mode))


@cache
def _by_setting() -> dict[tuple, dict[str, Any]]:
    """The first recording of each setting: pages ask for many at every turn of a control."""
    found: dict[tuple, dict[str, Any]] = {}
    for row_ in recordings():
        found.setdefault(_setting(row_["rung"], row_["shape"], row_["tiles"], row_["mode"]), row_)
    return found


def _setting(rung: str, params: dict, tiles: dict, mode: str) -> tuple:
    return rung, frozenset(params.items()), frozenset(tiles.items()), mode


def nearest(rung: str, shape: Any, tiles: dict[str, int], mode: str = "cold") -> Near | None:
    """The recording at this shape, else at the nearest, and in words which of the two: near.nearest tells how."""
    return _nearest(rung, shape, tuple(tiles.items()), mode)


@lru_cache(maxsize=512)
def _nearest(rung: str, shape: Any, tiles: tuple[tuple[str, int], ...], mode: str) -> Near | None:
    agree = near.agreeing(rung.partition("/")[0], vars(shape))
    return near.nearest(rung, shape, dict(tiles), mode, _by_kernel().get((rung, mode, agree), ()))


@cache
def _by_kernel() -> dict[tuple, list[dict[str, Any]]]:
    """The recordings that can speak of each other, together: a few of the hundreds."""
    found: dict[tuple, list[dict[str, Any]]] = {}
    for row_ in recordings():
        agree = near.agreeing(row_["rung"].partition("/")[0], row_["shape"])
        found.setdefault((row_["rung"], row_["mode"], agree), []).append(row_)
    return found
