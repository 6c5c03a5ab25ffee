"""One measurement as a row, and the digest of the kernels that were measured."""

from __future__ import annotations

import ast
import datetime
import json
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path

from kernels import sources
from kernels.ladders import ladder_of
from kernels.model.program import HostLoop, Launch, Program, RuleError
from kernels.model.result import Result
from kernels.model.row import Json, Row
from kernels.model.shape import ShapeError
from kernels.model.tensor_map import TensorMap
from kernels.records.folder import SHIPPED

CHART_FIELDS = ("timeline", "copies_ms")  # of a brief row


def kernel_digest(program: Program) -> str:
    """Returns 16 hex digits of everything that decides what the kernels do: their code, defines, launch sizes. Comments,
    layout and paths are left out. A recording with another digest (`digest_of`) was made by other kernels."""
    parts = [
        (sources.code(s.source), s.entry, s.defines, s.grid, s.block, s.shared, *_maps(s))
        if isinstance(s, Launch)
        else (s.name, _python_code(s.source))
        if isinstance(s, HostLoop)
        else s.routine
        for s in program.steps
    ]
    import hashlib  # loads OpenSSL: `import kernels` does without

    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _maps(step: Launch) -> tuple[TensorMap, ...]:
    """Returns the tensor maps among a launch's arguments: their boxes and swizzles decide what is copied where."""
    return tuple(a for a in step.args if isinstance(a, TensorMap))


@lru_cache(maxsize=16)
def _python_code(source: str) -> str:
    """Returns the code of a Python file under kernels, without comments, layout and docstrings."""
    tree = ast.parse(SHIPPED.parents[1].joinpath(source).read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    return ast.dump(tree)


def digest_of(row_: Row) -> str | None:
    """Returns the digest of the kernels that a row was measured with, as `kernel_digest` computes it today; None if the
    row has none. Older rows hold a digest that included comments. It stays in them, because it is part of their id."""
    digest = row_.get("kernels")
    return None if digest is None else _digests_before().get(digest, digest)


@cache
def _digests_before() -> dict[str, str]:
    """Returns today's digest by an older digest, for kernels whose sources changed while their PTX stayed the same."""
    return json.loads(SHIPPED.joinpath("digests.json").read_text(encoding="utf-8"))


def is_current(row_: Row) -> bool:
    """Returns whether the kernels in the tree are those that a row was measured with, and its engine runs them."""
    try:
        ladder = ladder_of(row_["rung"])
        rung = ladder.rung(row_["rung"])
        program = rung.build(ladder.shape(**row_["shape"]), row_["tiles"])
    except (RuleError, ShapeError, KeyError, TypeError):
        return False
    return row_["engine"] in rung.engines and kernel_digest(program) == digest_of(row_)


def is_disturbed(row_: Row) -> bool:
    """Returns whether other programs may have changed the times of a row (kernels.machine.others). False for older rows,
    which do not say."""
    return bool(row_.get("disturbed"))


def commit() -> str:
    """Returns the commit of the checkout, "unknown" outside one or without git."""
    import subprocess

    try:
        result = subprocess.run(
            ["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=Path(__file__).parent, check=False
        )
    except OSError:  # a container has no git
        return "unknown"
    return result.stdout.strip() if result.returncode == 0 else "unknown"


def row(result: Result, program: Program, commit_hash: str) -> Json:
    """Returns one measurement as a row: the figures and every field of their provenance."""
    m, now = result.timed, datetime.datetime.now(datetime.UTC)
    fields = {
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
        "timeline": [dict(stage) for stage in m.memory.timeline],
        **({"copies_ms": dict(m.copies_ms)} if m.copies_ms else {}),
        "flops": result.predicted.flops,
        "predicted_bytes": result.predicted.bytes,
        "predicted_workspace_bytes": result.predicted.workspace_bytes,
        "error": result.error,
        "device": m.device,
        **m.conditions,
        "date": now.date().isoformat(),
        "time": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "commit": commit_hash,
        "kernels": kernel_digest(program),
    }
    return {name: value if name == "shape" else _to_five_digits(value) for name, value in fields.items()}


def brief(row_: Row) -> Json:
    """Returns a row without the fields that only charts of memory and copies need: a sweep over many shapes has many
    rows."""
    return {name: value for name, value in row_.items() if name not in CHART_FIELDS}


def _to_five_digits(value: object) -> object:
    """Round every float in a value, at any depth: five digits exceed the resolution of the clocks, and files stay
    small."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, Mapping):
        return {name: _to_five_digits(inner) for name, inner in value.items()}
    return [*map(_to_five_digits, value)] if isinstance(value, list | tuple) else value
