"""The teaching kernels (kernels/teaching/cuda) as cases."""

from __future__ import annotations

import re

import numpy as np

from benchmarks.hardware_case import Case, ceil, floats, integers, unwritten
from kernels.model.program import Launch


def teaching(
    file: str, name: str, shape: str, grid, block, args, cpu, arrays, outputs=("y",), entry="", shared=0, **defines
) -> Case:
    entry = entry or re.sub(r"^\d+_", "", file)
    args = tuple(np.int32(a) if isinstance(a, int) else a for a in args)
    grid, block = ((*dim, 1, 1)[:3] for dim in (grid, block))
    launch = Launch(f"teaching/{file}.cu", entry, grid, block, args, cpu, tuple(defines.items()), shared)
    return Case(name, shape, launch, arrays, outputs)


def _strided(n: int, stride: int) -> Case:
    def cpu(x, y, n, stride):
        y[:] = x[::stride]

    return teaching(
        "01_strided_copy",
        f"strided-copy-{n}-stride{stride}",
        f"n={n} stride={stride}",
        (ceil(n, 256),),
        (256,),
        ("x", "y", n, stride),
        cpu,
        lambda: {"x": floats((n - 1) * stride + 1), "y": unwritten(n)},
    )


def _misaligned(n: int, offset: int) -> Case:
    def cpu(x, y, n, offset):
        y[:] = x[offset:]

    return teaching(
        "02_misaligned_copy",
        f"misaligned-copy-{n}-offset{offset}",
        f"n={n} offset={offset}",
        (ceil(n, 256),),
        (256,),
        ("x", "y", n, offset),
        cpu,
        lambda: {"x": floats(n + offset), "y": unwritten(n)},
    )


def _float4(n: int) -> Case:
    def cpu(x, y, n):
        y[:] = x

    return teaching(
        "03_float4_copy",
        f"float4-copy-{n}",
        f"n={n}",
        (ceil(ceil(n, 4), 128),),
        (128,),
        ("x", "y", n),
        cpu,
        lambda: {"x": floats(n), "y": unwritten(n)},
    )


def _scattered(n: int, m: int) -> Case:
    def cpu(x, index, y, n, m):
        y[:] = x[index]

    return teaching(
        "04_scattered_copy",
        f"scattered-copy-{n}-of-{m}",
        f"n={n} m={m}",
        (ceil(n, 256),),
        (256,),
        ("x", "index", "y", n, m),
        cpu,
        lambda: {"x": floats(m), "index": integers(n, m), "y": unwritten(n)},
    )


def _transpose(rows: int, cols: int, pitch: int) -> Case:
    def cpu(x, y, rows, cols):
        y[:] = x.T

    return teaching(
        "05_transpose",
        f"transpose-{rows}x{cols}-pitch{pitch}",
        f"rows={rows} cols={cols} PITCH={pitch}",
        (ceil(cols, 32), ceil(rows, 32)),
        (32, 32),
        ("x", "y", rows, cols),
        cpu,
        lambda: {"x": floats(rows, cols), "y": unwritten(cols, rows)},
        PITCH=pitch,
    )


def _shared_read(n: int, share: int, stride: int) -> Case:
    def cpu(x, y, n, share, stride):
        y[:] = x[np.arange(n) % 256 // share * stride % 1024]

    return teaching(
        "06_shared_read",
        f"shared-read-{n}-share{share}-stride{stride}",
        f"n={n} share={share} stride={stride}",
        (ceil(n, 256),),
        (256,),
        ("x", "y", n, share, stride),
        cpu,
        lambda: {"x": floats(1024), "y": unwritten(n)},
    )


def _shared_wide_read(n: int, vector: int, share: int, stride: int = 1) -> Case:
    def cpu(x, y, n, share, stride):
        t = np.arange(n) % 256
        element = (t // share if share > 0 else t & ~-share) * stride % 256
        y[:] = x.reshape(256, vector)[element] @ np.arange(1, vector + 1, dtype=np.float32)

    pattern = (f"share{share}" if share > 0 else f"apart{-share}") + (f"-stride{stride}" if stride > 1 else "")
    return teaching(
        "07_shared_wide_read",
        f"shared-read-float{vector}-{n}-{pattern}",
        f"n={n} share={share} stride={stride} VECTOR={vector}",
        (ceil(n, 256),),
        (256,),
        ("x", "y", n, share, stride),
        cpu,
        lambda: {"x": floats(256 * vector), "y": unwritten(n)},
        VECTOR=vector,
    )


def _broadcast(n: int, terms: int) -> Case:
    def cpu(coefficient, x, y, n, terms):
        y[:] = np.polynomial.polynomial.polyval(x, coefficient)

    return teaching(
        "08_broadcast_global",
        f"broadcast-global-{n}-terms{terms}",
        f"n={n} terms={terms}",
        (ceil(n, 256),),
        (256,),
        ("coefficient", "x", "y", n, terms),
        cpu,
        lambda: {"coefficient": floats(terms), "x": floats(n, seed=1), "y": unwritten(n)},
    )


def _histogram(where: str, n: int, bins: int) -> Case:
    def cpu(value, count, n, bins):
        count += np.bincount(value, minlength=bins).astype(np.int32)

    number = {"global": "09", "shared": "10"}[where]
    return teaching(
        f"{number}_histogram_{where}",
        f"histogram-{where}-{n}-bins{bins}",
        f"n={n} bins={bins}",
        (ceil(n, 256),),
        (256,),
        ("value", "count", n, bins),
        cpu,
        lambda: {"value": integers(n, bins), "count": np.zeros(bins, np.int32)},
        ("count",),
    )


def _reduction(n: int) -> Case:
    blocks = ceil(n, 256)

    def cpu(x, sums, n):
        sums[:] = np.pad(x, (0, blocks * 256 - n)).reshape(blocks, 256).sum(axis=1)

    return teaching(
        "11_reduction",
        f"reduction-{n}",
        f"n={n}",
        (blocks,),
        (256,),
        ("x", "sums", n),
        cpu,
        lambda: {"x": floats(n), "sums": unwritten(blocks)},
        ("sums",),
    )


# -- atomics ---------------------------------------------------------------------------------------------------
_WORDS = ("int32", "float32", "float64")
_NAMES = ("add", "max", "exch", "cas")
_MANY = {0: np.add.at, 1: np.maximum.at}  # the operands of all lanes at one word count


def _update(op: int, y: np.ndarray, words: np.ndarray, values: np.ndarray) -> None:
    """Apply atomics to `y`. Lanes that exchange one word have the same value."""
    if op in _MANY:
        _MANY[op](y, words, values)
    else:
        y[words] = values


def _updates(op: int, dtype: str, words: np.ndarray) -> np.ndarray:
    """Returns the operands: one for each lane of a sum or maximum, one for each word of an exchange."""
    return (np.arange(len(words)) % 7 + 1 if op in _MANY else words % 97 + 1).astype(dtype)


def _shared_atomics(op: int, real: int, share: int, stride: int, n: int = 64, block: int = 32) -> Case:
    blocks, dtype = ceil(n, block), _WORDS[real]
    words = np.arange(n) % block // share * stride % 1024

    def cpu(x, y, n, share, stride):
        y[:] = 0
        _update(op, y.reshape(-1), np.arange(n) // block * 1024 + words, x)

    return teaching(
        "15_shared_atomics",
        f"shared-{_NAMES[op]}-{dtype}-{n}-block{block}-share{share}-stride{stride}",
        f"n={n} share={share} stride={stride} block={block}",
        (blocks,),
        (block,),
        ("x", "y", n, share, stride),
        cpu,
        lambda: {"x": _updates(op, dtype, words), "y": unwritten(blocks, 1024, dtype=dtype)},
        OP=op,
        REAL=real,
    )


def _global_atomics(op: int, real: int, old: int, share: int, stride: int, n: int) -> Case:
    dtype, words = _WORDS[real], np.arange(n) // share * stride

    def cpu(x, y, old, n, share, stride):
        _update(op, y, words, x)

    return teaching(
        "16_global_atomics",
        f"global-{_NAMES[op]}-{dtype}-old{old}-{n}-share{share}-stride{stride}",
        f"n={n} share={share} stride={stride}",
        (ceil(n, 256),),
        (256,),
        ("x", "y", "old", n, share, stride),
        cpu,
        lambda: {
            "x": _updates(op, dtype, words),
            "y": np.zeros(ceil(n, share) * stride, dtype),
            "old": unwritten(n, dtype="int32"),
        },
        OP=op,
        REAL=real,
        OLD=old,
    )


def _sgemm(kind: str, M: int, N: int, K: int, tile: int = 16) -> Case:
    def cpu(A, B, C, M, N, K):
        C[:] = A @ B

    number = {"uncoalesced": "12", "naive": "13", "shared": "14"}[kind]
    grid = (ceil(N, tile), ceil(M, tile))
    defines = {"TILE": tile} if kind == "shared" else {}
    suffix = f"-tile{tile}" if defines else ""
    return teaching(
        f"{number}_sgemm_{kind}",
        f"sgemm-{kind}{suffix}-{M}x{N}x{K}",
        f"M={M} N={N} K={K} block={tile}x{tile}",
        grid[::-1] if kind == "uncoalesced" else grid,
        (tile, tile),
        ("A", "B", "C", M, N, K),
        cpu,
        lambda: {"A": floats(M, K), "B": floats(K, N, seed=1), "C": unwritten(M, N)},
        ("C",),
        **defines,
    )


CASES = (
    *(_strided(4096, stride) for stride in (1, 2, 8, 33)),
    _strided(1000, 3),
    *(_misaligned(4096, offset) for offset in (1, 8)),
    _misaligned(1001, 5),
    *(_float4(n) for n in (4096, 4099, 1021)),
    *(_scattered(n, m) for n, m in ((4096, 4096), (1003, 300))),
    *(_transpose(128, 128, pitch) for pitch in (32, 33)),
    *(_transpose(61, 100, pitch) for pitch in (32, 33)),
    *(_shared_read(2048, share, stride) for share, stride in ((32, 1), (1, 1), (1, 2), (1, 32), (4, 8))),
    _shared_read(1001, 1, 3),
    *(
        _shared_wide_read(2048, vector, share)
        for vector in (2, 4)
        for share in (1, 2, 4, 8, 16, 32, -1, -2, -4, -8, -16)
    ),
    *(_shared_wide_read(2048, vector, 1, stride) for vector in (2, 4) for stride in (2, 3, 4, 8)),
    *(_shared_wide_read(2048, vector, 2, stride) for vector in (2, 4) for stride in (2, 4)),
    *(_shared_wide_read(1001, vector, share) for vector in (2, 4) for share in (1, 2)),
    _broadcast(4096, 16),
    _broadcast(1001, 7),
    *(_histogram(where, n, b) for where in ("global", "shared") for n, b in ((4096, 256), (1003, 17))),
    _reduction(4096),
    _reduction(1001),
    *(_sgemm(kind, *size) for kind in ("uncoalesced", "naive", "shared") for size in ((64, 64, 64), (61, 45, 50))),
    *(_sgemm("shared", *size, tile=t) for t in (8, 32) for size in ((64, 64, 64), (61, 45, 50))),
    *(
        _shared_atomics(0, real, share, stride)
        for real in (0, 1, 2)
        for share, stride in ((1, 1), (2, 1), (4, 8), (8, 1), (32, 1), (1, 2), (1, 32))
    ),
    *(_shared_atomics(0, real, 4, 1, n=50) for real in (0, 1, 2)),
    *(_shared_atomics(0, real, 2, 3, n=256, block=128) for real in (0, 1, 2)),
    _shared_atomics(0, 1, 128, 1, n=128, block=128),  # four warps at one word
    *(
        _shared_atomics(op, real, share, stride)
        for op, real in ((1, 0), (2, 0), (2, 1), (3, 0))
        for share, stride in ((1, 1), (8, 1), (32, 1), (1, 32))
    ),
    *(
        _global_atomics(op, real, old, share, stride, n)
        for op, real, old in ((0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 1, 1), (1, 0, 0), (2, 0, 1), (3, 0, 1))
        for share, stride, n in ((1, 1, 1024), (8, 1, 1001), (1, 3, 1001))
    ),
)
