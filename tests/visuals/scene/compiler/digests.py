"""Digests of what the stage gets for every run of every view: two states of the compiler draw the same if they agree.

    python -m tests.visuals.scene.compiler.digests OUT.json [BEFORE.json]

Names the runs that differ from BEFORE. A test cannot hold these digests: a kernel or a sentence may change any of them.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tests.visuals.scene.compiler.test_views import TOPICS, runs_of
from visuals.scene.compiler.program import scene_of_rung
from visuals.scene.parts import SceneError
from visuals.scene.payload import payload


def _atoms(value: object) -> Iterator[bytes]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield repr(key).encode()
            yield from _atoms(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _atoms(item)
    elif isinstance(value, np.ndarray):
        yield f"{value.dtype}{value.shape}".encode() + value.tobytes()
    else:
        yield bytes(value) if isinstance(value, bytes | bytearray | memoryview) else repr(value).encode()


def digests() -> Iterator[tuple[str, str]]:
    for run in (run for topic in TOPICS for runs in runs_of(topic).values() for run in runs):
        try:
            scene = scene_of_rung(
                run.rung, run.shape, run.tiles, run.inputs, run.view, "digest", blocks=run.blocks, order=run.order
            )
        except SceneError as error:  # a run for its steps alone, without what a scene of them needs
            yield run.name, str(error)
            continue
        digest = hashlib.blake2b(digest_size=8)
        for atom in _atoms(payload(scene)):
            digest.update(atom)
        yield run.name, digest.hexdigest()


def main(out: str, before: str = "") -> None:
    known = json.loads(Path(before).read_text()) if before else {}
    found: dict[str, str] = {}
    for name, digest in digests():
        key = name if name not in found else f"{name} {len(found)}"
        found[key] = digest
        if key in known and known[key] != digest:
            print("differs:", key, flush=True)
    Path(out).write_text(json.dumps(found, indent=1))
    print(f"{len(found)} runs")


if __name__ == "__main__":
    main(*sys.argv[1:])
