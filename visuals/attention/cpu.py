"""What attention's loops on the processor show: their memory in a table, why flash attention hardly gains time there and
gains it on a GPU, and its tile sizes over this processor's caches. Rows (kernels.records.row) in. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from kernels import records
from kernels.attention import cpu_ladder as attention_cpu_ladder
from kernels.attention.cpu_traffic import DEEP, traffic
from kernels.attention.presets import ATTENTION_PRESETS
from kernels.attention.shape import AttentionShape
from kernels.gemm.cpu_traffic import FLOAT
from kernels.ladders import LADDERS
from kernels.machine.memory_levels import Level
from kernels.model.preset import Preset
from kernels.model.program import OUTPUT, WORKSPACE
from kernels.model.rung import Cost
from visuals.charts import units
from visuals.charts.story import Row, recorded_at
from visuals.charts.tile import Tile

LADDER, ON_GPU = attention_cpu_ladder.LADDER, LADDERS["attention"]
FLASH, BLOCKED, LIBRARY = (f"attention-loops/{name}" for name in ("flash", "blocked", "blas"))
LONG = ATTENTION_PRESETS["attention-8192"]  # where S is longer than any cache
GPU_RUNGS = ("attention/naive", "attention/flash", "attention/flash-registers")
LITTLE = 0.1  # of a time


def brief(title: str) -> str:
    """The head of a rung's title."""
    return title.partition(",")[0].partition(" +")[0]


def titled(rows: Iterable[Row]) -> list[tuple[str, Row]]:
    """(title, row) of each rung that has a row, in the order of the ladder."""
    of = {row["rung"]: row for row in rows}
    return [(rung.title, of[rung.name]) for rung in LADDER.rungs if rung.name in of]


# -- memory ----------------------------------------------------------------------------------------
def account(rows: Sequence[Row]) -> str:
    """HTML: what each rung allocates beside its inputs, intermediates and output, measured and predicted; and the scratch
    that a thread has on its stack, which no allocator sees."""
    head = "".join(
        f'<th scope="col">{name}</th>'
        for name in ("intermediates + output, measured", "predicted", "besides, on the stack of each thread")
    )
    lines = "".join(_line(title, row) for title, row in titled(rows))
    return (
        '<div class="kt-scroll" tabindex="0" role="region" aria-label="Memory"><table class="kt-table">'
        f"<tr><td>bytes</td>{head}</tr>{lines}</table></div>"
    )


def _line(title: str, row: Row) -> str:
    measured, predicted = row["workspace_bytes"] + row["output_bytes"], allocated(row)
    stack = attention_cpu_ladder.stack_bytes(row["rung"].partition("/")[2], row["tiles"])
    cells = "".join(f"<td>{count:,}</td>" for count in (measured, predicted, stack))
    return f'<tr><th scope="row">{escape(title)}</th>{cells}</tr>'


def allocated(row: Row) -> int:
    """Bytes of intermediates and output as the program of a row asks for them."""
    program = LADDER.rung(row["rung"]).build(_shape(row), row["tiles"])
    return program.nbytes(WORKSPACE, OUTPUT)


def _shape(row: Row) -> AttentionShape:
    return AttentionShape(**row["shape"])


# -- time ------------------------------------------------------------------------------------------
def gain(rows: Sequence[Row]) -> str:
    """Flash attention against each other rung of one comparison; "" where it has no time."""
    told = titled(rows)
    flash = next((row for _, row in told if row["rung"] == FLASH), None)
    if not flash or len(told) < 2:
        return ""
    against = "; ".join(_against(flash, brief(title), row) for title, row in told if row is not flash)
    tiles = f"Br {flash['tiles']['Br']} and Bc {flash['tiles']['Bc']}"
    return f"Flash attention with {tiles} takes {units.time_(flash['median_ms'])} here: {against}."


def _against(flash: Row, title: str, row: Row) -> str:
    ratio = row["median_ms"] / flash["median_ms"]
    took = units.time_(row["median_ms"])
    if row["p20_ms"] <= flash["p80_ms"] and flash["p20_ms"] <= row["p80_ms"]:
        return f"no gain on {title} ({took}; their spreads overlap)"
    if ratio < 1:
        return f"it loses to {title} ({took}), which is {units.ratio(1 / ratio)} times as fast"
    return f"{units.ratio(ratio)} times as fast as {title} ({took})"


def why(rows: Sequence[Row], caches: Sequence[Level]) -> str:
    """What S costs here beyond the caches, against the time of the loops that keep it; "" where that is not known."""
    row, flash = (next((row for row in rows if row["rung"] == name), None) for name in (BLOCKED, FLASH))
    if not (row and flash and caches and row.get("ceilings")):
        return ""
    s, last, copied = _shape(row), caches[-1], row["ceilings"]["copy_bytes_per_s"]
    S, tiles = FLOAT * s.N**2, {"blocked": row["tiles"], "flash": flash["tiles"]}
    moved = {name: traffic(name, s, last.line_bytes, last.bytes, of) for name, of in tiles.items()}
    ms = (moved["blocked"] - moved["flash"]) / copied * 1e3
    part = ms / row["median_ms"]
    fits = "fits in" if s.bytes // s.heads + S <= last.bytes else "does not fit in"
    end = "little" if part < LITTLE else "a part"
    return (
        f"Why: S of a head, {units.bytes_(S)}, {fits} the {last.name} of {units.bytes_(last.bytes)}. Past it the blocked loops are predicted to "
        f"move {units.bytes_(moved['blocked'])} in all, flash attention {units.bytes_(moved['flash'])}; at the {units.bandwidth(copied)} that one "
        f"core copies here the difference takes {units.time_(ms)}, {units.share(part)} of the blocked loops’ time. So memory beyond the caches is {end} of "
        f"what they wait for: both do the same multiply-adds, and {units.count(s.pairs)} exponentials one after the other. NumPy’s BLAS has tiles for "
        "the registers too, and NumPy’s exponential is vectorized."
    )


# -- the same on a GPU -----------------------------------------------------------------------------
def on_gpu(here: Row, there: Row | None) -> str:
    """Naive attention at LONG by the formulas of the GPU's ladder, at the rates measured `here` and recorded `there` (rows
    with ceilings): how long its bytes take, and how long its products; "" where a rate is missing."""
    if not there or not here.get("ceilings"):
        return ""
    s = LONG.shape
    naive, flash = (_cost(name, s) for name in GPU_RUNGS[:2])
    gpu, cpu = there["ceilings"], here["ceilings"]
    heads, l2 = 2 * FLOAT * s.N * s.d, gpu["cache_bytes"]
    kept = "come from its L2 cache" if heads <= l2 else "do not fit in its L2 cache"
    return (
        f"On a GPU: at {s} naive attention moves {units.bytes_(naive.bytes)} through HBM by its formula, S and P written and read, flash attention "
        f"{units.bytes_(flash.bytes)}; K and V of a head, {units.bytes_(heads)}, which it fetches anew for every Br queries, {kept} of {units.bytes_(l2)}, "
        f"and are used from shared memory. At the rates recorded of {there['device']}, {_rates(naive, gpu)}; tensor cores shorten the multiply-adds, not the moving. "
        f"At the rates of this processor, of one core’s copy and of NumPy’s BLAS, {_rates(naive, cpu)}."
    )


def _cost(name: str, s: AttentionShape) -> Cost:
    rung = ON_GPU.rung(name)
    return rung.cost(s, rung.build(s, rung.default_tiles))


def _rates(cost: Cost, ceilings: Mapping) -> str:
    moved, computed = cost.bytes / ceilings["copy_bytes_per_s"], cost.flops / ceilings["fp32_flops_per_s"]
    return (
        f"naive’s multiply-adds in FP32 take {units.ratio(computed / moved)} times as long as moving its bytes "
        f"({units.time_(1e3 * computed)} against {units.time_(1e3 * moved)})"
    )


def gpu_row() -> Row | None:
    """A recording of a GPU with what that does at most; None where none is shipped."""
    rows = (r for r in records.recordings() if r["engine"] == "cuda")
    return next(
        (r for r in rows if {"cache_bytes", "fp32_flops_per_s"} <= set(r.get("ceilings") or ())), None
    )


def recorded() -> tuple[Preset, str, Row] | None:
    """The longest preset at which naive and flash attention were recorded on a GPU, what they took, and a row of it."""
    for preset in sorted(ATTENTION_PRESETS.values(), key=lambda p: (-p.shape.N, -p.shape.heads)):
        rows = recorded_at(preset.shape, GPU_RUNGS)
        naive, flash = rows.pop(GPU_RUNGS[0], None), min(rows.values(), key=_median, default=None)
        if naive and flash:
            took = f"naive {units.time_(naive['median_ms'])}, {ON_GPU.rung(flash['rung']).title} {units.time_(flash['median_ms'])}"
            ratio = units.ratio(naive["median_ms"] / flash["median_ms"])
            return preset, f"At {preset.shape} {took}: {ratio} times as fast.", flash
    return None


def _median(row: Row) -> float:
    return row["median_ms"]


# -- tile sizes ------------------------------------------------------------------------------------
def tile(turned: str, s: AttentionShape, tiles: Mapping[str, int]) -> Tile:
    """Br or Bc of flash attention, `turned` while the other stays: what a step from tile to tile touches (rows of Q and
    O, of K and V, the keys turned round, the scores, m and l)."""

    def at(value: int) -> dict[str, int]:
        return {"Br": tiles["Br"], "Bc": tiles["Bc"]} | {turned: value}

    def taken(value: int) -> int:
        Br, Bc = at(value)["Br"], at(value)["Bc"]
        return FLOAT * (2 * Br * s.d + 2 * Bc * s.d + min(DEEP, s.d) * Bc + Br * Bc + 2 * Br)

    def share(value: int, cache: Level) -> float:
        past = cache.line_bytes, cache.bytes
        return traffic("flash", s, *past, at(value)) / traffic("naive", s, *past, {})

    return Tile(turned, "tiles", taken, share)
