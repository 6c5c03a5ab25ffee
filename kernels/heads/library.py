"""PyTorch's copies between rows and heads on arrays of CuPy, on the current stream: one call for each part."""

from __future__ import annotations

from typing import Any

from kernels.libraries.torch import as_tensor, load, on_current_stream


class _Copies:
    """Copies between views [N, h, T, d] of the rows and the heads of each part."""

    def __init__(self, rows: Any, heads: tuple[Any, ...]):
        self.torch = load()
        wide = as_tensor(self.torch, rows)
        self.pairs = [
            (wide[:, :, part].transpose(1, 2), as_tensor(self.torch, array))
            for part, array in enumerate(heads)
        ]

    def __call__(self) -> None:
        with on_current_stream(self.torch), self.torch.inference_mode():
            for rows, heads in self.pairs:
                self.copy(rows, heads)

    def copy(self, rows: Any, heads: Any) -> None:
        raise NotImplementedError


class Split(_Copies):
    def __init__(self, x: Any, *heads: Any):
        super().__init__(x, heads)

    def copy(self, rows: Any, heads: Any) -> None:
        heads.copy_(rows)


class Merge(_Copies):
    def __init__(self, *arrays: Any):
        super().__init__(arrays[-1], arrays[:-1])

    def copy(self, rows: Any, heads: Any) -> None:
        rows.copy_(heads)
