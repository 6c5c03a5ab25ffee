"""Rules that several ladders share: limits of CUDA, and generators of sentences about settings that break one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from kernels.i18n import tr
from kernels.model.launch import WARP
from kernels.model.program import Tiles
from kernels.model.shape import INT_MAX

# Limits of CUDA.
MAX_GRID_YZ = 65_535  # blocks along grid.y and grid.z
MAX_THREADS = 1024  # of a block
MAX_REGISTERS = 255  # of a thread
REGISTERS = 65_536  # of an SM
MAX_STATIC_SHARED = 48 * 2**10  # bytes of shared memory that any kernel may declare
MAX_SHARED = 227 * 2**10  # bytes of shared memory that a block may have on sm_90

OTHER_REGISTERS = 32  # addresses and counters of a thread


# -- rules: each yields a sentence for each rule that a shape or a choice of tiles breaks ----------------
def broken(rule: str, got: object) -> str:
    """Returns the sentence about a broken rule, which is a formula."""
    return tr("{rule}, got {got}", rule=rule, got=got)


def too_many_registers(formula: str, value: int, limit: int, threads: int) -> str:
    return tr(
        "{formula} registers <= {limit} ({threads} threads), got {value}",
        formula=formula,
        limit=limit,
        threads=threads,
        value=value,
    )


def max_rules(rule: str, value: int, limit: int) -> Iterator[str]:
    if value > limit:
        yield broken(f"{rule} <= {limit}", value)


def index_rules(counts: Mapping[str, int], margin: int, name: str = "") -> Iterator[str]:
    """Yields the counts, by their formula, that are not below 2^31 - `margin`: an int index of a thread may be `margin`
    beyond the last element. `name` stands for the margin in the sentence."""
    for formula, count in counts.items():
        if count > INT_MAX - margin:
            limit = f"2^31 - {name or margin}" if margin else "2^31"
            yield tr("{formula} must stay below {limit}, got {count}", formula=formula, limit=limit, count=count)


class _Typed(Protocol):
    """A shape with an element type."""

    @property
    def dtype(self) -> str: ...


def dtype_rules(s: _Typed, *dtypes: str) -> Iterator[str]:
    if s.dtype not in dtypes:
        if len(dtypes) == 1:
            yield tr("dtype must be {dtype}, got {got}", dtype=dtypes[0], got=s.dtype)
        else:
            *first, last = dtypes
            yield tr("dtype must be {first} or {last}, got {got}", first=", ".join(first), last=last, got=s.dtype)


def thread_rules(rule: str, threads: int) -> Iterator[str]:
    """Yields the rules that a block of `threads` breaks: whole warps, at most 1024. `rule` is that number as a formula of
    the tile sizes."""
    if threads > MAX_THREADS:
        yield tr("{formula} threads <= {limit}, got {threads}", formula=rule, limit=MAX_THREADS, threads=threads)
    if threads % WARP or not threads:
        yield tr(
            "{formula} threads must be whole warps of {warp}, got {threads}", formula=rule, warp=WARP, threads=threads
        )


def multiple_rules(tiles: Tiles, *pairs: tuple[str, str | int]) -> Iterator[str]:
    """Yields the pairs that break the rule: the first must be a multiple of the second, a tile size or a number."""
    for name, divisor in pairs:
        number = tiles[divisor] if isinstance(divisor, str) else divisor
        if tiles[name] % number:
            got = f"{tiles[name]} % {number}" if isinstance(divisor, str) else tiles[name]
            yield broken(f"{name} % {divisor} == 0", got)


def extent_multiple_rules(divisor: int, **extents: int) -> Iterator[str]:
    """Yields a rule for each extent of a shape that is no multiple of `divisor`, with the valid ones below and above."""
    for name, extent in extents.items():
        if rest := extent % divisor:
            below, above = extent - rest, extent - rest + divisor
            yield tr(
                "{rule}, got {got} (nearest valid sizes: {sizes})",
                rule=f"{name} % {divisor} == 0",
                got=f"{extent} % {divisor}",
                sizes=f"{below}, {above}" if below else above,
            )


def fetch_rules(tiles: Tiles, threads: int, rows: str, cols: str, width: int) -> Iterator[str]:
    """Yields the rules that the load of a tile rows x cols breaks: each thread loads `width` elements, all threads take
    part, and each round loads whole rows."""
    across, each = tiles[cols] // width, f"/{width}" if width > 1 else ""
    if tiles[cols] % width or threads % across:
        yield broken(f"threads % ({cols}{each}) == 0", f"{threads} % ({tiles[cols]}{each})")
    elif tiles[rows] * across % threads:
        yield broken(f"{rows}*{cols}{each} % threads == 0", f"{tiles[rows]}*{tiles[cols]}{each} % {threads}")


def register_rules(tiles: Tiles, threads: int) -> Iterator[str]:
    """Yields the rule on registers if it is broken: sums and their operands must fit, with OTHER_REGISTERS besides."""
    tm, tn = tiles["TM"], tiles["TN"]
    needed, limit = tm * tn + tm + tn + OTHER_REGISTERS, min(MAX_REGISTERS, REGISTERS // max(threads, 1))
    if needed > limit:
        yield too_many_registers(f"TM*TN + TM + TN + {OTHER_REGISTERS}", needed, limit, threads)


def shared_rules(formula: str, nbytes: int, limit: int = MAX_STATIC_SHARED) -> Iterator[str]:
    if nbytes > limit:
        yield tr("{formula} bytes of shared memory <= {limit}, got {bytes}", formula=formula, limit=limit, bytes=nbytes)
