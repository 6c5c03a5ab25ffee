"""The kernels of the optimisers in NumPy, with the same arguments: the cpu engine runs these."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Arrays = tuple[np.ndarray, ...]


def sgd(w: np.ndarray, g: np.ndarray, v: np.ndarray, lr, momentum, weight_decay) -> None:
    """Update w and v in place."""
    gradient = g + weight_decay * w if weight_decay else g
    v *= momentum
    v += gradient
    w -= lr * v


def adam(
    w: np.ndarray, g: np.ndarray, m: np.ndarray, v: np.ndarray, rate, keep1, add1, keep2, add2, root, eps, weight_decay
) -> None:
    """Update w, m and v in place. The factors are those of the kernel: see ladder.adam_factors."""
    gradient = g + weight_decay * w if weight_decay else g
    m *= keep1
    m += add1 * gradient
    v *= keep2
    v += add2 * (gradient * gradient)
    below = np.sqrt(v)
    below *= root
    below += eps
    np.divide(m, below, out=below)
    below *= rate
    w -= below


def of_tensor(update: Callable[..., None], arrays: int) -> Callable[..., None]:
    """Returns the step of a launch for one tensor: (arrays, its first element, its elements, the factors)."""

    def tensor(*args) -> None:
        first, count = int(args[arrays]), int(args[arrays + 1])
        update(*(array[first : first + count] for array in args[:arrays]), *args[arrays + 2 :])

    return tensor


def of_chunks(update: Callable[..., None], arrays: int) -> Callable[..., None]:
    """Returns the step of a launch over all tensors: (arrays, the table of chunks, the factors). A chunk is still in a
    cache when the next operation reads it."""

    def chunks(*args) -> None:
        for first, count in args[arrays].tolist():
            update(*(array[first : first + count] for array in args[:arrays]), *args[arrays + 1 :])

    return chunks
