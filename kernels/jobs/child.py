"""The process that runs jobs: requests come pickled on stdin, messages go pickled to stdout."""

from __future__ import annotations

import os
import pickle
import sys

from kernels import records
from kernels.engines.timing import Budget
from kernels.ladders import find
from kernels.program import RuleError
from kernels.runner import VerificationError, compare
from kernels.shapes import ShapeError


def serve(requests, answers) -> None:
    def tell(*message) -> None:
        pickle.dump(message, answers)
        answers.flush()

    made_at = records.commit()
    while True:
        try:
            request = pickle.load(requests)
        except EOFError:
            return
        try:
            results = compare(
                request.rungs,
                request.shape,
                request.inputs,
                request.engine,
                request.tiles,
                mode=request.mode,
                budget=Budget(seconds=request.seconds, least=3),
                progress=lambda share, text: tell("progress", share, text),
            )
            tell("rows", [
                records.row(r, find(r.rung).build(r.shape, r.tiles), made_at) for r in results
            ])  # fmt: skip
        except (RuleError, ShapeError, VerificationError) as e:
            tell("error", str(e))
        except MemoryError:
            tell("error", f"{request.shape} does not fit in this machine's memory; take a smaller shape")
        except Exception as e:
            tell("error", f"{type(e).__name__} while running {', '.join(request.rungs)}: {e}")
            if type(e).__module__.startswith("cupy"):
                return  # a CUDA error poisons the context: the next job gets a fresh process


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints goes to stderr, never between the messages
    serve(sys.stdin.buffer, answers)
