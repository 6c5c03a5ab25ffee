"""Rules that several ladders share: limits of CUDA, and generators of sentences about settings that break one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kernels.model.launch import WARP
from kernels.model.program import Tiles
from kernels.model.shape import INT_MAX, Shape

# Limits of CUDA.
MAX_GRID_YZ = 65_535  # blocks along grid.y and grid.z
MAX_THREADS = 1024  # of a block
MAX_REGISTERS = 255  # of a thread
REGISTERS = 65_536  # of an SM
MAX_STATIC_SHARED = 48 * 2**10  # bytes of shared memory that any kernel may declare
MAX_SHARED = 227 * 2**10  # bytes of shared memory that a block may have on sm_90

OTHER_REGISTERS = 32  # addresses and counters of a thread


# -- rules: each yields a sentence for each rule that a shape or a choice of tiles breaks ----------------
def max_rules(rule: str, value: int, limit: int) -> Iterator[str]:
    if value > limit:
        yield f"{rule} <= {limit}, got {value}"


def index_rules(counts: Mapping[str, int], margin: int, name: str = "") -> Iterator[str]:
    """Yields the counts, by their formula, that are not below 2^31 - `margin`: an int index of a thread may be `margin`
    beyond the last element. `name` stands for the margin in the sentence."""
    for formula, count in counts.items():
        if count > INT_MAX - margin:
            below = f" - {name or margin}" if margin else ""
            yield f"{formula} must stay below 2^31{below}, got {count}"


def dtype_rules(s: Shape, *dtypes: str) -> Iterator[str]:
    if s.dtype not in dtypes:
        yield f"dtype must be {' or '.join(dtypes)}, got {s.dtype}"


def thread_rules(rule: str, threads: int) -> Iterator[str]:
    """Yields the rules that a block of `threads` breaks: whole warps, at most 1024. `rule` is that number as a formula of
    the tile sizes."""
    if threads > MAX_THREADS:
        yield f"{rule} threads <= {MAX_THREADS}, got {threads}"
    if threads % WARP or not threads:
        yield f"{rule} threads must be whole warps of {WARP}, got {threads}"


def multiple_rules(tiles: Tiles, *pairs: tuple[str, str | int]) -> Iterator[str]:
    """Yields the pairs that break the rule: the first must be a multiple of the second, a tile size or a number."""
    for name, divisor in pairs:
        number = tiles[divisor] if isinstance(divisor, str) else divisor
        if tiles[name] % number:
            got = f"{tiles[name]} % {number}" if isinstance(divisor, str) else tiles[name]
            yield f"{name} % {divisor} == 0, got {got}"


def fetch_rules(tiles: Tiles, threads: int, rows: str, cols: str, width: int) -> Iterator[str]:
    """Yields the rules that the load of a tile rows x cols breaks: each thread loads `width` elements, all threads take
    part, and each round loads whole rows."""
    across, each = tiles[cols] // width, f"/{width}" if width > 1 else ""
    if tiles[cols] % width or threads % across:
        yield f"threads % ({cols}{each}) == 0, got {threads} % ({tiles[cols]}{each})"
    elif tiles[rows] * across % threads:
        yield f"{rows}*{cols}{each} % threads == 0, got {tiles[rows]}*{tiles[cols]}{each} % {threads}"


def register_rules(tiles: Tiles, threads: int) -> Iterator[str]:
    """Yields the rule on registers if it is broken: sums and their operands must fit, with OTHER_REGISTERS besides."""
    tm, tn = tiles["TM"], tiles["TN"]
    needed, limit = tm * tn + tm + tn + OTHER_REGISTERS, min(MAX_REGISTERS, REGISTERS // max(threads, 1))
    if needed > limit:
        yield f"TM*TN + TM + TN + {OTHER_REGISTERS} registers <= {limit} ({threads} threads), got {needed}"


def shared_rules(formula: str, nbytes: int, limit: int = MAX_STATIC_SHARED) -> Iterator[str]:
    yield from max_rules(f"{formula} bytes of shared memory", nbytes, limit)
