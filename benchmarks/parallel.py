"""Data parallel steps on the GPUs of this machine: verified, then timed, with and without overlap.

    python -m benchmarks.parallel OUT.json [--seconds 50] [--gpus 1,2,4]

Writes the rows of kernels/records/parallel.json. Weights are compared after a few steps: bit by bit between the GPUs, and with
those of one GPU. Only then a step is timed, many steps queued one behind the other. A case that fails is a row with the text
of its error. After the time is up, no case begins; a GPU that hangs ends the script, and what was measured is kept.
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

import numpy as np

from benchmarks.collectives import machine
from kernels.engines.cuda import devices
from kernels.parallel.devices import Replicas, Team, check_equal, check_near
from kernels.parallel.plan import DATA, Plan
from kernels.training import digits
from kernels.training.networks import NETWORKS

BUCKET_BYTES = 64_000
CHECKED, CHECKED_BATCH = 3, 96  # steps and images of a comparison
FACTORS = {"lr": 0.05}
CASES = (  # network and images, those that matter most first
    ("lenet5", 16_384), ("transformer", 4096), ("lenet5", 256), ("transformer", 256), ("lenet5", 4096), ("transformer", 16_380),
)  # fmt: skip
WARM_UP, SAMPLES, SAMPLE_S, MOST_STEPS = 5, 9, 0.03, 100
OVER_S = 20.0  # beyond the time, after which the script ends itself


def data(network: str, batch: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns images and labels of a batch: all training images, again and again."""
    found, _ = digits.load(NETWORKS[network].size)
    chosen = np.arange(batch) % len(found)
    return np.ascontiguousarray(found.images[chosen]), found.labels[chosen]


@cache
def team(gpus: int) -> Team:
    """Returns the GPUs with their streams and NCCL, made once."""
    return Team(gpus)


def after(plan: Plan, overlap: bool) -> tuple[Any, list[np.ndarray]]:
    """Returns the graph and each GPU's weights after a few steps."""
    replicas = Replicas(plan, team(plan.gpus), *data(plan.network, plan.batch), overlap, **FACTORS)
    for _ in range(CHECKED):
        replicas.step()
    weights = replicas.weights()
    replicas.close()
    return replicas.graph, weights


def verified(network: str, gpus: int, overlap: bool) -> float:
    """Returns how far several GPUs are from one after a few steps. DifferentError if they are too far, or differ."""
    one = Plan(network, DATA, 1, CHECKED_BATCH, 1, BUCKET_BYTES)
    _, (right,) = after(one, overlap)
    graph, weights = after(Plan(network, DATA, gpus, CHECKED_BATCH, 1, BUCKET_BYTES), overlap)
    check_equal(graph, weights)
    return check_near(graph, weights[0], right)


def timed(plan: Plan, overlap: bool) -> dict[str, Any]:
    """Returns the microseconds of a step: the median, and all samples."""
    replicas = Replicas(plan, team(plan.gpus), *data(plan.network, plan.batch), overlap, **FACTORS)
    replicas.seconds(WARM_UP)
    times = int(min(MOST_STEPS, max(3, SAMPLE_S / replicas.seconds(3))))
    samples = [1e6 * replicas.seconds(times) for _ in range(SAMPLES)]
    check_equal(replicas.graph, replicas.weights())  # after hundreds of steps
    replicas.close()
    return {
        "step_us": round(float(np.median(samples)), 2), "samples": [round(s, 2) for s in samples],
        "buckets": [bucket.nbytes for bucket in replicas.buckets],
    }  # fmt: skip


def cases(gpus: Sequence[int]) -> Iterator[tuple[str, int, int, bool]]:
    for (network, batch), count in itertools.product(CASES, gpus):
        for overlap in (True, False) if count > 1 else (True,):
            yield network, batch, count, overlap


def row(network: str, batch: int, gpus: int, overlap: bool) -> dict[str, Any]:
    return {
        "network": network, "way": DATA, "gpus": gpus, "batch": batch, "optimizer": "sgd",
        "bucket_bytes": BUCKET_BYTES, "overlap": overlap, "date": datetime.now(UTC).date().isoformat(),
    }  # fmt: skip


class Run:
    """The rows so far, in a file that is written after each."""

    def __init__(self, path: Path, seconds: float):
        self.path, self.rows = path, []
        self.end = time.monotonic() + seconds
        self.machine: dict[str, Any] = {}
        self.errors: dict[tuple[str, int, bool], float | str] = {}

    def left(self) -> float:
        return self.end - time.monotonic()

    def add(self, found: dict[str, Any]) -> None:
        self.rows.append(found | self.machine)
        print({k: v for k, v in found.items() if k not in ("samples", "buckets")}, flush=True)
        self.path.write_text(json.dumps(self.rows) + "\n", encoding="utf-8")

    def case(self, network: str, batch: int, gpus: int, overlap: bool) -> None:
        """Adds the row of a case: verified once for its network and way, then timed."""
        found, began = row(network, batch, gpus, overlap), time.monotonic()
        try:
            if self.left() <= 0:
                raise TimeoutError("no time left")
            key = network, gpus, overlap
            if gpus > 1 and key not in self.errors:
                self.errors[key] = verified(network, gpus, overlap)
            found |= timed(Plan(network, DATA, gpus, batch, 1, BUCKET_BYTES), overlap)
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
    arguments.add_argument("--seconds", type=float, default=50.0)
    arguments.add_argument("--gpus", default="1,2,4")
    args = arguments.parse_args()
    there = devices.count()
    gpus = [n for n in map(int, args.gpus.split(",")) if n <= there]
    if not gpus:
        raise SystemExit("no GPU can be used")
    run = Run(args.out, args.seconds)
    found = machine(max(gpus))  # what a tool does not report is its error's text
    run.machine = {key: found[key] for key in ("driver", "cuda", "cupy", "nccl", "topology")}
    run.machine["device"] = found["devices"][0] if isinstance(found["devices"], list) else found["devices"]
    watch = threading.Timer(args.seconds + OVER_S, os._exit, (1,))
    watch.daemon = True
    watch.start()
    for case in cases(gpus):
        run.case(*case)
    watch.cancel()


if __name__ == "__main__":
    main()
