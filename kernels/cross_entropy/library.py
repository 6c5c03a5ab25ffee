"""PyTorch's cross-entropy and its gradient on arrays of CuPy, on the current stream.

PyTorch takes labels of 64 bits: they are converted once, outside of the timing. It saves log-softmax of all logits for the
backward pass, not the log-sum-exp. Our lse follows from its loss, outside of the timing too.
"""

from __future__ import annotations

from kernels.libraries.torch import Call, Tensor

EACH_ROW = 0  # of at::Reduction: no reduction
NO_LABEL = -100  # the label that PyTorch ignores by default


class Forward(Call):
    """torch.nn.functional.cross_entropy of x [M, N] and labels [M], one loss per row."""

    def prepare(self) -> None:
        self._labels = self.tensors[1].long()

    def run(self) -> Tensor:
        return self.torch.nn.functional.cross_entropy(self.tensors[0], self._labels, reduction="none")

    def copy(self) -> None:
        x, _, loss, lse = self.tensors
        loss.copy_(self.results)
        picked = x.gather(1, self._labels[:, None])[:, 0]
        lse.copy_(self.results.double() + picked.double())


class Backward(Call):
    """What PyTorch's backward pass of cross_entropy runs on x, labels, lse, g and dx: the gradient of the picked logarithms,
    then that of log-softmax.

    Its forward pass saved log-softmax of x, [M, N]. That is computed here, outside of the timing."""

    def prepare(self) -> None:
        x, labels, *_ = self.tensors
        self._labels, self._log_p = labels.long(), self.torch.log_softmax(x, dim=1)
        self._rows = self.torch.ones((), device=x.device)  # total weight, not used for single rows

    def run(self) -> None:
        aten, (_, _, _, g, dx) = self.torch.ops.aten, self.tensors
        picked = aten.nll_loss_backward(g, self._log_p, self._labels, None, EACH_ROW, NO_LABEL, self._rows)
        aten._log_softmax_backward_data.out(picked, self._log_p, 1, self.torch.float32, out=dx)


class Step(Call):
    """Both passes on x, labels, g, loss and dx: log-softmax, its picked elements, then their gradients, as PyTorch's
    autograd runs them."""

    def prepare(self) -> None:
        self._labels = self.tensors[1].long()

    def run(self) -> None:
        aten, (x, _, g, loss, dx) = self.torch.ops.aten, self.tensors
        log_p = self.torch.log_softmax(x, dim=1)
        each, rows = aten.nll_loss_forward(log_p, self._labels, None, EACH_ROW, NO_LABEL)
        picked = aten.nll_loss_backward(g, log_p, self._labels, None, EACH_ROW, NO_LABEL, rows)
        aten._log_softmax_backward_data.out(picked, log_p, 1, self.torch.float32, out=dx)
        loss.copy_(each)
