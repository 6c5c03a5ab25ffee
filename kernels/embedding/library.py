"""PyTorch's embedding and its gradient on arrays of CuPy, on the current stream."""

from __future__ import annotations

from kernels.libraries.torch import as_tensor, load, on_current_stream

NO_PADDING = -1  # no token is left out


class Forward:
    """torch.index_select of the rows of a table, which torch.nn.functional.embedding calls. It writes to y directly."""

    def __init__(self, tokens, table, y):
        self.torch = load()
        self._tensors = [as_tensor(self.torch, array) for array in (tokens, table, y)]

    def __call__(self) -> None:
        tokens, table, y = self._tensors
        with on_current_stream(self.torch), self.torch.inference_mode():
            self.torch.index_select(table, 0, tokens, out=y)


class Backward:
    """What PyTorch's backward pass of an embedding runs: embedding_dense_backward. Its result is in memory of its own, and
    copy_result() copies it to dtable outside of the timing.

    `workspace_bytes`: allocated besides the result, reported by PyTorch's allocator for the first call."""

    def __init__(self, tokens, dy, dtable):
        self.torch = load()
        self._tokens, self._dy, self._dtable = (as_tensor(self.torch, a) for a in (tokens, dy, dtable))
        self._result = None
        self.workspace_bytes: int | None = None

    def __call__(self) -> None:
        cuda = self.torch.cuda
        with on_current_stream(self.torch), self.torch.inference_mode():
            if self.workspace_bytes is None:
                cuda.reset_peak_memory_stats()
                self._run()
                self.workspace_bytes = cuda.max_memory_allocated() - cuda.memory_allocated()
            else:
                self._run()

    def _run(self) -> None:
        self._result = None  # frees its memory for the next
        self._result = self.torch.ops.aten.embedding_dense_backward(
            self._dy, self._tokens, self._dtable.shape[0], NO_PADDING, False
        )

    def copy_result(self) -> None:
        with on_current_stream(self.torch), self.torch.inference_mode():
            self._dtable.copy_(self._result)
