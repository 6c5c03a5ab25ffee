"""Training steps on a GPU: ours launch by launch, as one CUDA graph, and PyTorch's. Loss and accuracy over epochs.

    python -m benchmarks.training OUT.json [--batches 32,256] [--optimizer sgd,adam] [--epochs 10] [--no-compile] [NETWORK ...]

Writes a list of rows as in kernels/records/training.json, and prints a table. Times are microseconds of a whole step, or of
a node's launches. A node is timed hot: many runs of it in one CUDA graph. A whole step is timed by the host's clock: many
steps queued one behind the other, then waited for. It includes what the host needs to queue them. Adam's factors change from
step to step: they are set in the one graph before each launch of it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from kernels.engines import cuda
from kernels.engines.cuda.timing import sampler
from kernels.machine.timing import Budget, interleave
from kernels.model.program import Program
from kernels.training import digits, loop, step
from kernels.training.graph import Graph, node_program
from kernels.training.held import held
from kernels.training.networks import NETWORKS
from kernels.training.step import Memory

STEPS, REPEATS, WARM_UP = 30, 9, 20
SETTINGS = {"lr": 0.05}
SAVED = (Memory(), Memory(every=3), Memory(parts=4), Memory(every=3, parts=4))


def step_us(run: Callable[[], None], wait: Callable[[], None]) -> tuple[float, list[float]]:
    """Returns the median microseconds of a step by the host's clock, and its samples: each of STEPS steps in a row."""
    for _ in range(WARM_UP):
        run()
    samples = []
    for _ in range(REPEATS):
        wait()
        start = time.perf_counter()
        for _ in range(STEPS):
            run()
        wait()
        samples.append(1e6 * (time.perf_counter() - start) / STEPS)
    return float(np.median(samples)), [round(s, 2) for s in samples]


# -- ours ---------------------------------------------------------------------------------------------
def ours(network: str, batch: int, memory: Memory, optimizer: str = "sgd") -> dict[str, Any]:
    """Returns the times and the memory of our step."""
    settings = loop.Settings(network, batch, optimizer, SETTINGS, memory=memory)
    graph, program = loop.step_of(settings, 0, "cuda")
    images, _ = digits.load(NETWORKS[network].size)
    session = cuda.open(program, step.inputs(graph, images.images[:batch], images.labels[:batch]))
    session.verify_run()
    with session.stream:
        one_by_one, samples = step_us(session.run, session.stream.synchronize)
        captured, later = session.captured(), programs(settings)

        def replay() -> None:
            captured.update(next(later))
            captured.launch(session.stream)

        whole, graph_samples = step_us(replay, session.stream.synchronize)
        nodes = node_us(session, graph) if memory == Memory() else {}
    row = {
        "one_by_one_us": round(one_by_one, 2),
        "one_by_one_samples": samples,
        "graph_us": round(whole, 2),
        "graph_samples": graph_samples,
        "launches": len(program.steps),
        "peak_bytes": session.memory.peak,
        "node_us": nodes,
    }
    session.close()
    return row | {"held": held(graph, step.inputs(graph, images.images[:batch], images.labels[:batch]), "cuda")}


def programs(settings: loop.Settings) -> Iterator[Program]:
    """Returns the programs of the steps that `step_us` runs, made before the clock starts: those of SGD are one."""
    count = WARM_UP + REPEATS * STEPS
    return iter([loop.step_of(settings, n, "cuda")[1] for n in range(1, count + 1)])


def node_us(session: Any, graph: Graph) -> dict[str, float]:
    """Returns the microseconds of each node: the medians of its launches, added up."""
    count = len(session.program.steps)
    samplers = [sampler(lambda i=i: session.run_step(i), session.stream, None) for i in range(count)]
    medians = [1e3 * float(np.median(s)) for s in interleave(samplers, Budget(samples=15, seconds=2.0))]
    found, first = {}, 0
    for node in graph.nodes:
        launches = len(node_program(node, step.ladder_of).steps)
        found[node.name] = round(sum(medians[first : first + launches]), 3)
        first += launches
    return found


def curve(network: str, epochs: int) -> dict[str, Any]:
    """Returns loss and accuracy of a training on the GPU: [[step, loss]], [[step, share of the test images]]."""
    training = loop.Training(loop.Settings(network, 32, "sgd", SETTINGS), engine="cuda")
    losses, accuracies = [], [[0, round(training.accuracy(), 4)]]
    start, spent = time.perf_counter(), 0.0
    for epoch in range(1, epochs + 1):
        losses += [[point.step, round(point.loss, 5)] for point in training.run(epoch)]
        paused = time.perf_counter()
        accuracies.append([training.steps, round(training.accuracy(), 4)])
        spent += time.perf_counter() - paused
    seconds = time.perf_counter() - start - spent
    training.close()
    found = {"loss": losses, "accuracy": accuracies, "steps_per_epoch": training.steps_per_epoch}
    return found | {"seconds": round(seconds, 3)}


# -- PyTorch --------------------------------------------------------------------------------------------
def pytorch(network: str, batch: int, compile: bool, adam: bool = False) -> Iterator[tuple[str, Any]]:
    """Yields a name of a row and the microseconds of PyTorch's step: eager, compiled, and compiled with CUDA graphs."""
    import torch

    from benchmarks import torch_networks

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    images, _ = digits.load(NETWORKS[network].size)
    x = torch.from_numpy(images.images[:batch]).cuda()
    y = torch.from_numpy(images.labels[:batch].astype(np.int64)).cuda()

    def stepper(wrapped: Callable[[Any], Any]) -> Callable[[], None]:
        module = torch_networks.build(network).cuda()
        forward = wrapped(module)
        factors = {"lr": SETTINGS["lr"], "fused": True} | ({} if adam else {"momentum": 0.9})
        optimizer = (torch.optim.Adam if adam else torch.optim.SGD)(module.parameters(), **factors)

        def run() -> None:
            optimizer.zero_grad(set_to_none=True)
            torch.nn.functional.cross_entropy(forward(x), y).backward()
            optimizer.step()

        return run

    ways = {"eager": lambda module: module}
    if compile:
        ways["compile"] = torch.compile
        ways["compile_graph"] = lambda module: torch.compile(module, mode="reduce-overhead")
    for name, wrapped in ways.items():
        try:
            us, samples = step_us(stepper(wrapped), torch.cuda.synchronize)
            yield f"{name}_us", round(us, 2)
            yield f"{name}_samples", samples
        except Exception as e:  # a compiler may be missing; the others are still measured
            print(f"{network} {name}: {type(e).__name__}: {str(e).splitlines()[0]}", flush=True)


def measured(network: str, batch: int, optimizer: str, compile: bool, epochs: int) -> Iterator[dict[str, Any]]:
    """Yields a row for each way of saving memory. The plain step has PyTorch's times too, and with `epochs` a curve."""
    theirs = dict(pytorch(network, batch, compile, optimizer == "adam"))
    for memory in SAVED:
        row = {
            "network": network,
            "batch": batch,
            "optimizer": optimizer,
            "memory": asdict(memory),
            "device": cuda.status().text,
            "date": datetime.now(UTC).date().isoformat(),
            **cuda.conditions(),
            **ours(network, batch, memory, optimizer),
        }
        if memory == Memory():
            row |= theirs | ({"curve": curve(network, epochs)} if epochs else {})
        yield row


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("out", type=Path)
    arguments.add_argument("networks", nargs="*", default=list(NETWORKS))
    arguments.add_argument("--batches", default="32,256")
    arguments.add_argument("--optimizer", default="sgd", help=f"of {','.join(step.OPTIMIZERS)}")
    arguments.add_argument("--epochs", type=int, default=10)
    arguments.add_argument("--no-compile", action="store_true")
    args = arguments.parse_args()
    batches, optimizers = [int(b) for b in args.batches.split(",")], args.optimizer.split(",")
    if unknown := set(optimizers) - set(step.OPTIMIZERS):
        arguments.error(f"no optimizer {', '.join(sorted(unknown))}")
    rows = []
    for network, batch, optimizer in itertools.product(args.networks, batches, optimizers):
        first = batch == batches[0]
        epochs = args.epochs if first and optimizer == "sgd" else 0
        for row in measured(network, batch, optimizer, first and not args.no_compile, epochs):
            rows.append(row)
            shown = {
                k: row.get(k)
                for k in ("one_by_one_us", "graph_us", "eager_us", "compile_us", "compile_graph_us", "peak_bytes")
            }
            print(network, batch, optimizer, row["memory"], shown, flush=True)
            args.out.write_text(json.dumps(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
