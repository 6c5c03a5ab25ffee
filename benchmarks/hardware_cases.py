"""The kernels and shapes at which the emulator's counters are held against Nsight Compute's: as data.

Every kernel of the project and every teaching kernel, at two shapes or more, ragged ones among them, but for those
named in APART.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np

from kernels import cuda as sources
from kernels.engines.emulator import compile as compiler
from kernels.ladders import conv
from kernels.program import INPUT, Launch
from kernels.runner import seeded_inputs
from kernels.shapes import ConvShape

# What is no case, by how its name begins in kernels/cuda, and why.
APART = {
    "probes/": "they measure the device: no memory counter has anything to count",
    "gemm/": "not yet measured",
    "threads/": "not yet measured",
    **{f"conv/{number:02}_": "not yet measured" for number in range(4, 12)},
}


# -- the cases --------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Case:
    """One launch, its arrays before it (outputs hold NaN or -1 unless the kernel adds to them) and which
    of them it writes. The launch's twin says what must come out."""

    name: str
    shape: str
    launch: Launch
    arrays: Callable[[], dict[str, np.ndarray]]
    outputs: tuple[str, ...]

    @property
    def defines(self) -> tuple[str, ...]:
        return tuple(f"-D{name}={value}" for name, value in self.launch.defines)

    @property
    def digest(self) -> str:
        """Names the text and the defines a measurement was taken of."""
        return compiler.digest(sources.translation_unit(self.launch.source), self.defines)

    def expected(self) -> dict[str, np.ndarray]:
        arrays = {name: a.copy() for name, a in self.arrays().items()}
        self.launch.twin(*(arrays[a] if isinstance(a, str) else a for a in self.launch.args))
        return {name: arrays[name] for name in self.outputs}

    def wrong(self, got: Mapping[str, np.ndarray]) -> str:
        """What is wrong with these outputs; empty where nothing is."""
        for name, want in self.expected().items():
            have = got[name].astype(np.float64)
            limit = 0.0 if want.dtype.kind == "i" else 1e-4 * float(np.abs(want).max())
            bad = ~(np.abs(have - want) <= limit)  # NaN is wrong too
            if bad.any():
                at = tuple(int(i) for i in np.argwhere(bad)[0])
                return f"{name}{list(at)} is {have[at]}, should be {want[at]}; {int(bad.sum())} are wrong"
        return ""

    def describe(self) -> list[str]:
        """The arguments in words: "x float32 [4096]", "int32 7"."""
        arrays = self.arrays()
        return [
            f"{a} {arrays[a].dtype} {list(arrays[a].shape)}" if isinstance(a, str) else f"{a.dtype} {a}"
            for a in self.launch.args
        ]


def _floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def _integers(n: int, below: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, below, n, dtype=np.int32)


def _unwritten(*shape: int) -> np.ndarray:
    return np.full(shape, np.nan, np.float32)


def _ceil(a: int, b: int) -> int:
    return -(-a // b)


def _teaching(file: str, name: str, shape: str, grid, block, args, twin, arrays, outputs=("y",), **defines):
    entry = re.sub(r"^\d+_", "", file)
    args = tuple(np.int32(a) if isinstance(a, int) else a for a in args)
    grid, block = ((*dim, 1, 1)[:3] for dim in (grid, block))
    launch = Launch(f"teaching/{file}.cu", entry, grid, block, args, twin, tuple(defines.items()))
    return Case(name, shape, launch, arrays, outputs)


def _strided(n: int, stride: int) -> Case:
    def twin(x, y, n, stride):
        y[:] = x[::stride]

    return _teaching(
        "01_strided_copy", f"strided-copy-{n}-stride{stride}", f"n={n} stride={stride}",
        (_ceil(n, 256),), (256,), ("x", "y", n, stride), twin,
        lambda: {"x": _floats((n - 1) * stride + 1), "y": _unwritten(n)},
    )  # fmt: skip


def _misaligned(n: int, offset: int) -> Case:
    def twin(x, y, n, offset):
        y[:] = x[offset:]

    return _teaching(
        "02_misaligned_copy", f"misaligned-copy-{n}-offset{offset}", f"n={n} offset={offset}",
        (_ceil(n, 256),), (256,), ("x", "y", n, offset), twin,
        lambda: {"x": _floats(n + offset), "y": _unwritten(n)},
    )  # fmt: skip


def _float4(n: int) -> Case:
    def twin(x, y, n):
        y[:] = x

    return _teaching(
        "03_float4_copy", f"float4-copy-{n}", f"n={n}", (_ceil(_ceil(n, 4), 128),), (128,), ("x", "y", n),
        twin, lambda: {"x": _floats(n), "y": _unwritten(n)},
    )  # fmt: skip


def _scattered(n: int, m: int) -> Case:
    def twin(x, index, y, n, m):
        y[:] = x[index]

    return _teaching(
        "04_scattered_copy", f"scattered-copy-{n}-of-{m}", f"n={n} m={m}",
        (_ceil(n, 256),), (256,), ("x", "index", "y", n, m), twin,
        lambda: {"x": _floats(m), "index": _integers(n, m), "y": _unwritten(n)},
    )  # fmt: skip


def _transpose(rows: int, cols: int, pitch: int) -> Case:
    def twin(x, y, rows, cols):
        y[:] = x.T

    return _teaching(
        "05_transpose", f"transpose-{rows}x{cols}-pitch{pitch}", f"rows={rows} cols={cols} PITCH={pitch}",
        (_ceil(cols, 32), _ceil(rows, 32)), (32, 32), ("x", "y", rows, cols), twin,
        lambda: {"x": _floats(rows, cols), "y": _unwritten(cols, rows)}, PITCH=pitch,
    )  # fmt: skip


def _shared_read(n: int, share: int, stride: int) -> Case:
    def twin(x, y, n, share, stride):
        y[:] = x[np.arange(n) % 256 // share * stride % 1024]

    return _teaching(
        "06_shared_read", f"shared-read-{n}-share{share}-stride{stride}",
        f"n={n} share={share} stride={stride}", (_ceil(n, 256),), (256,), ("x", "y", n, share, stride), twin,
        lambda: {"x": _floats(1024), "y": _unwritten(n)},
    )  # fmt: skip


def _shared_wide_read(n: int, vector: int, share: int, stride: int = 1) -> Case:
    def twin(x, y, n, share, stride):
        t = np.arange(n) % 256
        element = (t // share if share > 0 else t & ~-share) * stride % 256
        y[:] = x.reshape(256, vector)[element] @ np.arange(1, vector + 1, dtype=np.float32)

    how = (f"share{share}" if share > 0 else f"apart{-share}") + (f"-stride{stride}" if stride > 1 else "")
    return _teaching(
        "07_shared_wide_read", f"shared-read-float{vector}-{n}-{how}",
        f"n={n} share={share} stride={stride} VECTOR={vector}",
        (_ceil(n, 256),), (256,), ("x", "y", n, share, stride), twin,
        lambda: {"x": _floats(256 * vector), "y": _unwritten(n)}, VECTOR=vector,
    )  # fmt: skip


def _broadcast(n: int, terms: int) -> Case:
    def twin(coefficient, x, y, n, terms):
        y[:] = np.polynomial.polynomial.polyval(x, coefficient)

    return _teaching(
        "08_broadcast_global", f"broadcast-global-{n}-terms{terms}", f"n={n} terms={terms}",
        (_ceil(n, 256),), (256,), ("coefficient", "x", "y", n, terms), twin,
        lambda: {"coefficient": _floats(terms), "x": _floats(n, seed=1), "y": _unwritten(n)},
    )  # fmt: skip


def _histogram(where: str, n: int, bins: int) -> Case:
    def twin(value, count, n, bins):
        count += np.bincount(value, minlength=bins).astype(np.int32)

    number = {"global": "09", "shared": "10"}[where]
    return _teaching(
        f"{number}_histogram_{where}", f"histogram-{where}-{n}-bins{bins}", f"n={n} bins={bins}",
        (_ceil(n, 256),), (256,), ("value", "count", n, bins), twin,
        lambda: {"value": _integers(n, bins), "count": np.zeros(bins, np.int32)}, ("count",),
    )  # fmt: skip


def _reduction(n: int) -> Case:
    blocks = _ceil(n, 256)

    def twin(x, sums, n):
        sums[:] = np.pad(x, (0, blocks * 256 - n)).reshape(blocks, 256).sum(axis=1)

    return _teaching(
        "11_reduction", f"reduction-{n}", f"n={n}", (blocks,), (256,), ("x", "sums", n), twin,
        lambda: {"x": _floats(n), "sums": _unwritten(blocks)}, ("sums",),
    )  # fmt: skip


def _sgemm(kind: str, M: int, N: int, K: int, tile: int = 16) -> Case:
    def twin(A, B, C, M, N, K):
        C[:] = A @ B

    number = {"uncoalesced": "12", "naive": "13", "shared": "14"}[kind]
    grid = (_ceil(N, tile), _ceil(M, tile))
    defines = {"TILE": tile} if kind == "shared" else {}
    told = f"-tile{tile}" if defines else ""
    return _teaching(
        f"{number}_sgemm_{kind}", f"sgemm-{kind}{told}-{M}x{N}x{K}", f"M={M} N={N} K={K} block={tile}x{tile}",
        grid[::-1] if kind == "uncoalesced" else grid, (tile, tile), ("A", "B", "C", M, N, K), twin,
        lambda: {"A": _floats(M, K), "B": _floats(K, N, seed=1), "C": _unwritten(M, N)}, ("C",), **defines,
    )  # fmt: skip


def _conv(rung: str, shape: ConvShape, tiles: Mapping[str, int], step: int) -> Case:
    """One launch of a rung's program; what the steps before it leave is made by their twins."""
    found = conv.LADDER.rung(f"conv/{rung}")
    full = found.check(shape, tiles)
    program = found.build(shape, full)
    launch = program.steps[step]
    output = next(b for b in reversed(launch.args) if isinstance(b, str))

    def arrays() -> dict[str, np.ndarray]:
        held = seeded_inputs(program.of_role(INPUT))
        held |= {b.name: _unwritten(*b.shape) for b in program.buffers if b.role != INPUT}
        for before in program.steps[:step]:
            before.twin(*(held[a] if isinstance(a, str) else a for a in before.args))
        return {a: held[a] for a in launch.args if isinstance(a, str)}

    used = "-".join(f"{name.lower()}{full[name]}" for name in full if (name == "TILE") == (step == 1))
    name = f"conv-{launch.entry}-{used}-{str(shape).replace(' ', '-').replace(',', '.')}"
    return Case(name, f"{shape} {full}", launch, arrays, (output,))


_PLAIN = ConvShape(1, 8, 28, 28, 16, 3, 3, pad=1)
_RAGGED = ConvShape(2, 3, 17, 13, 5, 3, 5, stride=(2, 1), pad=(1, 2), dilation=(2, 1))
_FLIPPED = ConvShape(1, 7, 9, 9, 33, 2, 2, mode="convolution")


@cache
def cases() -> dict[str, Case]:
    """Every case by name, in the order they are launched."""
    listed = (
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
        *(
            _sgemm(kind, *size)
            for kind in ("uncoalesced", "naive", "shared")
            for size in ((64, 64, 64), (61, 45, 50))
        ),
        *(_sgemm("shared", *size, tile=t) for t in (8, 32) for size in ((64, 64, 64), (61, 45, 50))),
        *(_conv("direct", shape, {"BLOCK": 256}, 0) for shape in (_PLAIN, _RAGGED, _FLIPPED)),
        *(_conv("im2col-gemm", shape, {"BLOCK": 256}, 0) for shape in (_PLAIN, _RAGGED, _FLIPPED)),
        *(
            _conv("im2col-gemm", shape, {"TILE": tile}, 1)
            for tile in conv.TILES
            for shape in (_PLAIN, _RAGGED, _FLIPPED)
        ),
    )
    named = {case.name: case for case in listed}
    assert len(named) == len(listed), "two cases bear one name"
    return named
