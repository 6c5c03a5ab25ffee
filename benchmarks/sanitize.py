"""A few ragged shapes through every rung, for compute-sanitizer:

compute-sanitizer --tool memcheck python benchmarks/sanitize.py
compute-sanitizer --tool racecheck python benchmarks/sanitize.py
"""

from __future__ import annotations

from kernels import ConvShape, compare
from kernels.ladders import conv

SHAPES = (
    ConvShape(1, 1, 8, 8, 2, 3, 3),
    ConvShape(2, 3, 17, 13, 5, 3, 5, stride=(2, 1), pad=(1, 2), dilation=(2, 1)),
    ConvShape(3, 7, 9, 9, 33, 2, 2, mode="convolution"),
    ConvShape(1, 40, 7, 7, 50, 1, 1),
)

if __name__ == "__main__":
    for shape in SHAPES:
        for tile in conv.TILES:
            results = compare(
                [r.name for r in conv.LADDER.rungs],
                shape,
                engine="cuda",
                tiles={"TILE": tile},
                measure=False,
            )
            print(shape, tile, [f"{r.error:.1e}" for r in results])
