"""One measurement as a row, and the digest of the kernels that it was made with."""

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

from kernels import sources
from kernels.model.program import HostLoop, Launch, Program
from kernels.model.result import Result
from kernels.records import FOLDER

LEFT_OUT = ("timeline", "copies_ms")  # of a brief row


def kernel_digest(program: Program) -> str:
    """16 hex digits of everything that decides what the kernels do: their code, defines, launch sizes. Comments, layout
    and paths do not count. A recording with another digest (`digest_of`) was made by other kernels."""
    parts = [
        (sources.code(s.source), s.entry, s.defines, s.grid, s.block, s.shared)
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
