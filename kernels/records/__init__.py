"""Recordings: measurements taken on named devices, shipped with the app as rows of JSON."""

from __future__ import annotations

import datetime
import hashlib
import json
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from kernels import cuda
from kernels.engines.timing import Budget
from kernels.ladders import LADDERS
from kernels.program import Launch, Program, Result, Rung
from kernels.runner import compare

FOLDER = Path(__file__).parent / "recordings"


def kernel_digest(program: Program) -> str:
    """16 hex digits of everything that decides what the kernels do: sources, defines, launch sizes.
    A recording with another digest was made by other kernels."""
    parts = [
        (cuda.translation_unit(s.source), s.entry, s.defines, s.grid, s.block, s.shared)
        if isinstance(s, Launch)
        else s.routine
        for s in program.steps
    ]
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def commit() -> str:
    """The commit of the checkout, "unknown" outside one."""
    told = subprocess.run(
        ["git", "rev-parse", "HEAD"],
        capture_output=True, text=True, cwd=Path(__file__).parent, check=False,
    )  # fmt: skip
    return told.stdout.strip() if told.returncode == 0 else "unknown"


def row(result: Result, program: Program, made_at: str) -> dict[str, Any]:
    """One measurement as a row that explains itself: every field of provenance beside the figures."""
    m = result.measurement
    return {
        "rung": result.rung,
        "shape": result.shape.params(),
        "tiles": dict(result.tiles),
        "engine": result.engine,
        "mode": m.mode,
        "median_ms": m.median_ms,
        "p20_ms": m.p20_ms,
        "p80_ms": m.p80_ms,
        "n": m.n,
        "samples_ms": [float(f"{ms:.5g}") for ms in m.samples_ms],
        "parts_ms": dict(m.parts_ms),
        "peak_bytes": m.peak_bytes,
        "input_bytes": m.input_bytes,
        "output_bytes": m.output_bytes,
        "workspace_bytes": m.workspace_bytes,
        "flops": result.predicted.flops,
        "predicted_bytes": result.predicted.bytes,
        "predicted_workspace_bytes": result.predicted.workspace_bytes,
        "error": result.error,
        "device": m.device,
        **m.conditions,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commit": made_at,
        "kernels": kernel_digest(program),
    }


def record(
    out: Path, engine: str, presets: Sequence[str], modes: Sequence[str], budget: Budget, made_at: str
) -> Iterator[dict[str, Any]]:
    """Measure every rung at every preset and tile size, write the rows to `out` as JSON lines, yield each.

    Rungs of one preset and one tile choice are interleaved; a rung that breaks a rule is left out.
    """
    with out.open("w", encoding="utf-8") as file:
        for ladder in LADDERS.values():
            for key, preset in ladder.presets.items():
                if presets and key not in presets:
                    continue
                for mode in modes:
                    for row_ in _record_preset(ladder, preset.shape, engine, mode, budget, made_at):
                        file.write(json.dumps(row_) + "\n")
                        file.flush()
                        yield row_


def _record_preset(ladder, shape, engine, mode, budget, made_at) -> Iterator[dict[str, Any]]:
    for names, tiles in _candidates(ladder.rungs, shape):
        if tiles and mode == "hot":
            continue  # tile sizes are compared cold
        for result in compare(names, shape, engine=engine, tiles=tiles, mode=mode, budget=budget):
            program = ladder.rung(result.rung).build(shape, result.tiles)
            yield row(result, program, made_at)


def _candidates(rungs: Iterable[Rung], shape) -> Iterator[tuple[list[str], dict[str, int]]]:
    """First every rung at its default tiles, together; then each other tile size, one at a time."""
    able = [r for r in rungs if not any(r.rules(shape, r.default_tiles))]
    if able:
        yield [r.name for r in able], {}
    for rung in able:
        for tile, choices in rung.tiles.items():
            for value in choices[1:]:
                if not any(rung.rules(shape, rung.default_tiles | {tile: value})):
                    yield [rung.name], {tile: value}


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
    params = shape.params()
    for row_ in recordings():
        if (
            (row_["rung"], row_["mode"]) == (rung, mode)
            and row_["shape"] == params
            and row_["tiles"] == tiles
        ):
            return row_
    return None
