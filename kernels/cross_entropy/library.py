"""PyTorch's cross-entropy and its gradient on arrays of CuPy, on the current stream.

PyTorch takes labels of 64 bits: they are converted once, outside of the timing. It saves log-softmax of all logits for the
backward pass, not the log-sum-exp. Our lse follows from its loss, outside of the timing too.
"""

from __future__ import annotations

from typing import Any

from kernels.libraries.torch import as_tensor, load, on_current_stream

EACH_ROW = 0  # of at::Reduction: no reduction
NO_LABEL = -100  # the label that PyTorch ignores by default


class _Call:
    """A call of PyTorch. `workspace_bytes`: allocated besides our arrays, reported by PyTorch's allocator for the first
    call."""

    def __init__(self, labels: Any):
        self.torch = load()
        with on_current_stream(self.torch):
            self._labels = as_tensor(self.torch, labels).long()
        self.workspace_bytes: int | None = None

    def __call__(self) -> None:
        cuda = self.torch.cuda
        with on_current_stream(self.torch), self.torch.inference_mode():
            if self.workspace_bytes is None:
                cuda.reset_peak_memory_stats()
                before = cuda.memory_allocated()
                self._run()
                self.workspace_bytes = cuda.max_memory_allocated() - before
            else:
                self._run()

    def _run(self) -> None:
        raise NotImplementedError


class Forward(_Call):
    """torch.nn.functional.cross_entropy of x [M, N] and labels [M], one loss per row."""

    def __init__(self, x, labels, loss, lse):
        super().__init__(labels)
        self._x, self._loss, self._lse = (as_tensor(self.torch, array) for array in (x, loss, lse))
        self._result = None

    def _run(self) -> None:
        self._result = None  # frees its memory for the next
        self._result = self.torch.nn.functional.cross_entropy(self._x, self._labels, reduction="none")

    def copy_result(self) -> None:
        with on_current_stream(self.torch), self.torch.inference_mode():
            self._loss.copy_(self._result)
            picked = self._x.gather(1, self._labels[:, None])[:, 0]
            self._lse.copy_(self._result.double() + picked.double())


class Backward(_Call):
    """What PyTorch's backward pass of cross_entropy runs: the gradient of the picked logarithms, then that of log-softmax.

    Its forward pass saved log-softmax of x, [M, N]. That is computed here, outside of the timing."""

    def __init__(self, x, labels, lse, g, dx):
        super().__init__(labels)
        self._g, self._dx = as_tensor(self.torch, g), as_tensor(self.torch, dx)
        with on_current_stream(self.torch), self.torch.inference_mode():
            self._log_p = self.torch.log_softmax(as_tensor(self.torch, x), dim=1)
            self._rows = self.torch.ones((), device=self._dx.device)  # total weight, not used for single rows

    def _run(self) -> None:
        aten = self.torch.ops.aten
        picked = aten.nll_loss_backward(
            self._g, self._log_p, self._labels, None, EACH_ROW, NO_LABEL, self._rows
        )
        aten._log_softmax_backward_data.out(picked, self._log_p, 1, self.torch.float32, out=self._dx)


class Step(_Call):
    """Both passes: log-softmax, its picked elements, then their gradients, as PyTorch's autograd runs them."""

    def __init__(self, x, labels, g, loss, dx):
        super().__init__(labels)
        self._x, self._g, self._loss, self._dx = (as_tensor(self.torch, array) for array in (x, g, loss, dx))

    def _run(self) -> None:
        aten = self.torch.ops.aten
        log_p = self.torch.log_softmax(self._x, dim=1)
        loss, rows = aten.nll_loss_forward(log_p, self._labels, None, EACH_ROW, NO_LABEL)
        picked = aten.nll_loss_backward(self._g, log_p, self._labels, None, EACH_ROW, NO_LABEL, rows)
        aten._log_softmax_backward_data.out(picked, log_p, 1, self.torch.float32, out=self._dx)
        self._loss.copy_(loss)
