"""Rules that several ladders share: limits of CUDA, and generators of sentences for settings that break one."""

from __future__ import annotations

from collections.abc import Iterator

from kernels.model.launch import WARP
from kernels.model.program import Tiles
from kernels.model.shape import Shape

MOST_GRID_YZ = 65_535  # CUDA's limit on grid.y and grid.z


MOST_THREADS = 1024  # CUDA's limits from here on


MOST_REGISTERS = 255


REGISTERS = 65_536  # of an SM


OTHER_REGISTERS = 32  # addresses, counters


MOST_STATIC_SHARED = 48 * 2**10  # bytes of shared memory that any kernel may declare


MOST_SHARED = 227 * 2**10  # bytes of shared memory that a block may have on sm_90


def most_rules(rule: str, value: int, most: int) -> Iterator[str]:
    if value > most:
        yield f"{rule} <= {most}, got {value}"


# -- rules: each yields, in words, what a shape or a choice of tiles breaks -----------------------------
def dtype_rules(s: Shape, *dtypes: str) -> Iterator[str]:
    if s.dtype not in dtypes:
        yield f"dtype must be {' or '.join(dtypes)}, got {s.dtype}"


def thread_rules(rule: str, threads: int) -> Iterator[str]:
    """`rule` is the number of threads as a formula of the tile sizes: whole warps, one block's worth."""
    if threads > MOST_THREADS:
        yield f"{rule} threads <= {MOST_THREADS}, got {threads}"
    if threads % WARP or not threads:
        yield f"{rule} threads must be whole warps of {WARP}, got {threads}"


def multiple_rules(tiles: Tiles, *pairs: tuple[str, str | int]) -> Iterator[str]:
    """The first of each pair must be a multiple of its second, a tile size or a number."""
    for name, of in pairs:
        by = tiles[of] if isinstance(of, str) else of
        if tiles[name] % by:
            got = f"{tiles[name]} % {by}" if isinstance(of, str) else tiles[name]
            yield f"{name} % {of} == 0, got {got}"


def fetch_rules(tiles: Tiles, threads: int, rows: str, cols: str, width: int) -> Iterator[str]:
    """A tile rows x cols is fetched `width` elements to a thread, by all threads, in whole rounds of whole rows."""
    across, each = tiles[cols] // width, f"/{width}" if width > 1 else ""
    if tiles[cols] % width or threads % across:
        yield f"threads % ({cols}{each}) == 0, got {threads} % ({tiles[cols]}{each})"
    elif tiles[rows] * across % threads:
        yield f"{rows}*{cols}{each} % threads == 0, got {tiles[rows]}*{tiles[cols]}{each} % {threads}"


def register_rules(tiles: Tiles, threads: int) -> Iterator[str]:
    """Sums and what they are made of must stay in registers; some are needed beside them."""
    tm, tn = tiles["TM"], tiles["TN"]
    need, most = tm * tn + tm + tn + OTHER_REGISTERS, min(MOST_REGISTERS, REGISTERS // max(threads, 1))
    if need > most:
        yield f"TM*TN + TM + TN + {OTHER_REGISTERS} registers <= {most} ({threads} threads), got {need}"


def shared_rules(formula: str, nbytes: int, most: int = MOST_STATIC_SHARED) -> Iterator[str]:
    yield from most_rules(f"{formula} bytes of shared memory", nbytes, most)
