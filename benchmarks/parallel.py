"""Parallel steps on the GPUs of this machine, verified, then timed: data parallel with and without overlap, tensor parallel,
pipelines.

    python -m benchmarks.parallel OUT.json [--seconds 80] [--gpus 1,2,4]

Writes the rows of kernels/records/parallel.json; rows of other GPUs stay. Weights are compared after a few steps: bit by bit
between the GPUs, and with those of one GPU. Only then a step is timed, many steps queued one behind the other. A case that
fails is a row with the text of its error. After the time is up, no case begins; a GPU that hangs ends the script, and what was measured is kept.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.collectives import machine
from kernels.engines.cuda import devices
from kernels.parallel import measured
from kernels.parallel.devices import Team
from kernels.parallel.plan import DATA, GPIPE, ONE_F_ONE_B, TENSOR, Plan

BUCKET_BYTES = 64_000
CASES = (  # network and images, those that matter most first
    ("lenet5", 16_384),
    ("transformer", 4096),
    ("lenet5", 256),
    ("transformer", 256),
    ("lenet5", 4096),
    ("transformer", 16_380),
)
SPLIT = (  # network, way, images, micro-batches
    ("transformer", TENSOR, 4096, 1),
    ("transformer", GPIPE, 4096, 8),
    ("transformer", ONE_F_ONE_B, 4096, 8),
    ("lenet5", TENSOR, 16_384, 1),
    ("lenet5", GPIPE, 16_384, 8),
    ("lenet5", ONE_F_ONE_B, 16_384, 8),
    ("transformer", TENSOR, 256, 1),
    ("transformer", GPIPE, 256, 4),
    ("transformer", ONE_F_ONE_B, 256, 4),
    ("transformer", GPIPE, 4096, 2),
    ("transformer", GPIPE, 4096, 32),
)
OVER_S = 20.0  # beyond the time, after which the script ends itself


@cache
def team(gpus: int) -> Team:
    """Returns the GPUs with their streams and NCCL, made once."""
    return Team(gpus)


def cases(gpus: Sequence[int]) -> Iterator[tuple[Plan, bool]]:
    """Yields steps and whether buckets are combined while the way back goes on: data parallel, then the ways that split the
    network, which need two GPUs at least."""
    for (network, batch), count in itertools.product(CASES, gpus):
        for overlap in (True, False) if count > 1 else (True,):
            yield Plan(network, DATA, count, batch, 1, BUCKET_BYTES), overlap
    for (network, way, batch, micro), count in itertools.product(SPLIT, gpus):
        if count > 1:
            yield Plan(network, way, count, batch, micro, BUCKET_BYTES), True


def row(plan: Plan, overlap: bool) -> dict[str, Any]:
    return {
        "network": plan.network,
        "way": plan.way,
        "gpus": plan.gpus,
        "batch": plan.batch,
        "optimizer": plan.optimizer,
        "micro": plan.micro,
        "bucket_bytes": plan.bucket_bytes,
        "overlap": overlap,
        "date": datetime.now(UTC).date().isoformat(),
    }


class Run:
    """The rows so far, in a file that is written after each."""

    def __init__(self, path: Path, seconds: float, machine: dict[str, Any] | None = None):
        self.path, self.rows = path, []
        self.end = time.monotonic() + seconds
        self.machine = machine or {}
        self.errors: dict[tuple[str, str, int, int, bool], float] = {}
        older = json.loads(path.read_text("utf-8")) if path.exists() else []
        self.others = [row for row in older if row["device"] != self.machine.get("device")]

    def left(self) -> float:
        return self.end - time.monotonic()

    def add(self, found: dict[str, Any]) -> None:
        self.rows.append(found | self.machine)
        print({k: v for k, v in found.items() if k not in ("samples", "buckets")}, flush=True)
        self.path.write_text(json.dumps([*self.rows, *self.others], indent=0) + "\n", encoding="utf-8")

    def case(self, plan: Plan, overlap: bool) -> None:
        """Adds the row of a case: verified once for its network and way, then timed."""
        found, began = row(plan, overlap), time.monotonic()
        try:
            if self.left() <= 0:
                raise TimeoutError("no time left")
            key = plan.network, plan.way, plan.gpus, plan.micro, overlap
            if plan.gpus > 1 and key not in self.errors:
                self.errors[key] = measured.verified(plan, team, overlap)
            found |= measured.timed(plan, team, overlap)
            found["error_of_weights"] = self.errors.get(key, 0.0)
        except devices.DevicesHung as error:  # nothing can run after it
            self.add(found | {"error": str(error)})
            os._exit(1)
        except Exception as error:  # the other cases stand alone
            found["error"] = f"{type(error).__name__}: {error}"
        self.add(found | {"seconds": round(time.monotonic() - began, 2)})


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("out", type=Path)
    arguments.add_argument("--seconds", type=float, default=80.0)
    arguments.add_argument("--gpus", default="1,2,4")
    args = arguments.parse_args()
    there = devices.count()
    gpus = [n for n in map(int, args.gpus.split(",")) if n <= there]
    if not gpus:
        raise SystemExit("no GPU can be used")
    found = machine(max(gpus))  # what a tool does not report is its error's text
    about = {key: found[key] for key in ("driver", "cuda", "cupy", "nccl", "topology")}
    about["device"] = found["devices"][0] if isinstance(found["devices"], list) else found["devices"]
    run = Run(args.out, args.seconds, about)
    watch = threading.Timer(args.seconds + OVER_S, os._exit, (1,))
    watch.daemon = True
    watch.start()
    for case in cases(gpus):
        run.case(*case)
    watch.cancel()


if __name__ == "__main__":
    main()
