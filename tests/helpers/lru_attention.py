"""The loops of kernels/attention/cpu_loops.py on one thread, access by access, for tests.helpers.lru. Not causal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kernels.attention.cpu_traffic import DEEP
from kernels.attention.shape import AttentionShape
from tests.helpers.lru import Access


def accesses(name: str, s: AttentionShape, sides: Mapping[str, int]) -> Iterator[Access]:
    for head in range(s.heads):
        yield from ACCESSES[name](s, head * s.N, **sides)


def _alternating_order(count: int) -> list[int]:
    return [count - 1 - i // 2 if i % 2 else i // 2 for i in range(count)]


def _softmax(array: str, start: int, keys: int, n_passes: int = 3) -> Iterator[Access]:
    for _ in range(n_passes):
        for j in range(keys):
            yield array, start + j, True


def _naive(s: AttentionShape, first: int) -> Iterator[Access]:
    N, d = s.N, s.d
    for i in _alternating_order(N):
        for j in range(N):
            for x in range(d):
                yield "Q", (first + i) * d + x, False
                yield "K", (first + j) * d + x, False
            yield "S", i * N + j, True
    for i in _alternating_order(N):
        yield from _softmax("S", i * N, N)
    for i in _alternating_order(N):
        for x in range(d):
            for j in range(N):
                yield "S", i * N + j, False
                yield "V", (first + j) * d + x, False
            yield "O", (first + i) * d + x, True


def _blocked(s: AttentionShape, first: int, BLOCK: int) -> Iterator[Access]:
    N, d = s.N, s.d
    blocks = [i * BLOCK for i in _alternating_order(-(-N // BLOCK))]
    for i0 in blocks:
        rows = range(i0, min(i0 + BLOCK, N))
        for j0 in range(0, N, BLOCK):
            keys = range(j0, min(j0 + BLOCK, N))
            yield from _score_tile(s, first, rows, keys, BLOCK, lambda i, j: i * N + j)
    for i in _alternating_order(N):
        yield from _softmax("S", i * N, N)
    for i0 in blocks:
        for j0 in range(0, N, BLOCK):
            for i in range(i0, min(i0 + BLOCK, N)):
                for j in range(j0, min(j0 + BLOCK, N)):
                    yield "S", i * N + j, False
                    yield from _weighted_values(first, i, j, d)


def _fused(s: AttentionShape, first: int) -> Iterator[Access]:
    N, d = s.N, s.d
    for i in _alternating_order(N):
        for j in range(N):
            for x in range(d):
                yield "Q", (first + i) * d + x, False
                yield "K", (first + j) * d + x, False
            yield "rows", j, True
        yield from _softmax("rows", 0, N)
        for j in range(N):
            yield "rows", j, False
            yield from _weighted_values(first, i, j, d)


def _flash(s: AttentionShape, first: int, Br: int, Bc: int) -> Iterator[Access]:
    N, d = s.N, s.d
    for i0 in (i * Br for i in _alternating_order(-(-N // Br))):
        rows = range(i0, min(i0 + Br, N))
        for j0 in range(0, N, Bc):
            keys = range(j0, min(j0 + Bc, N))
            yield from _score_tile(s, first, rows, keys, Bc, lambda i, j, i0=i0, j0=j0: (i - i0) * Bc + j - j0)
            for i in rows:
                yield from _softmax("S", (i - i0) * Bc, len(keys), n_passes=2)
                for x in range(d):
                    yield "O", (first + i) * d + x, True
                for j in keys:
                    yield "S", (i - i0) * Bc + j - j0, False
                    yield from _weighted_values(first, i, j, d)


def _score_tile(s: AttentionShape, first: int, rows: range, keys: range, width: int, at) -> Iterator[Access]:
    d = s.d
    for x0 in range(0, d, DEEP):
        columns = range(x0, min(x0 + DEEP, d))
        for j in keys:
            for x in columns:
                yield "K", (first + j) * d + x, False
                yield "Kt", (x - x0) * width + j - keys[0], True
        for i in rows:
            for x in columns:
                yield "Q", (first + i) * d + x, False
                for j in keys:
                    yield "Kt", (x - x0) * width + j - keys[0], False
                    yield "S", at(i, j), True


def _weighted_values(first: int, i: int, j: int, d: int) -> Iterator[Access]:
    for x in range(d):
        yield "V", (first + j) * d + x, False
        yield "O", (first + i) * d + x, True


ACCESSES = {"naive": _naive, "blocked": _blocked, "fused": _fused, "flash": _flash}
