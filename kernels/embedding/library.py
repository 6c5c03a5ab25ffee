"""PyTorch's embedding and its gradient on arrays of CuPy, on the current stream."""

from __future__ import annotations

from kernels.libraries.torch import Call, Tensor

NO_PADDING = -1  # no token is left out


class Forward(Call):
    """torch.index_select of the rows of a table, which torch.nn.functional.embedding calls. It writes to y directly."""

    def run(self) -> None:
        tokens, table, y = self.tensors
        self.torch.index_select(table, 0, tokens, out=y)


class Backward(Call):
    """What PyTorch's backward pass of an embedding runs: embedding_dense_backward of tokens and dy. Its result is in
    memory of its own."""

    def run(self) -> Tensor:
        tokens, dy, dtable = self.tensors
        return self.torch.ops.aten.embedding_dense_backward(dy, tokens, dtable.shape[0], NO_PADDING, False)

    def copy(self) -> None:
        self.tensors[2].copy_(self.results)
