"""Attention's loops on the CPU: a table of their memory, and flash attention's tile sizes compared with this CPU's caches.
Sentences explain why flash attention is hardly faster here but faster on a GPU. Input: rows (kernels.records.row). Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from kernels import records
from kernels.attention import cpu_ladder as attention_cpu_ladder
from kernels.attention.cpu_traffic import DEEP, traffic
from kernels.attention.presets import ATTENTION_PRESETS
from kernels.attention.shape import AttentionShape
from kernels.gemm.cpu_traffic import FLOAT
from kernels.i18n import decimal, tr
from kernels.ladders import LADDERS
from kernels.machine.memory_levels import Cache
from kernels.model.preset import Preset
from kernels.model.program import OUTPUT, WORKSPACE
from kernels.model.rung import Cost
from kernels.records import files
from kernels.records.statistics import fastest, within_spread
from visuals import units
from visuals.charts.ladder_notes import Row, capitalized, recorded_at
from visuals.charts.tile import Tile

LADDER, ON_GPU = attention_cpu_ladder.LADDER, LADDERS["attention"]
FLASH, BLOCKED = (f"attention-loops/{name}" for name in ("flash", "blocked"))
LONG = ATTENTION_PRESETS["attention-8192"]  # S is larger than any cache
GPU_RUNGS = ("attention/naive", "attention/flash", "attention/flash-registers")
SMALL_SHARE = 0.1  # of a time: below, a difference is called little


def short_title(title: str) -> str:
    """Returns a rung's title up to its first comma or " +"."""
    return title.partition(",")[0].partition(" +")[0]


def rows_with_titles(rows: Iterable[Row]) -> list[tuple[str, Row]]:
    """Returns (title, row) of each rung that has a row, in the order of the ladder."""
    row_of = {row["rung"]: row for row in rows}
    return [(tr(rung.title), row_of[rung.name]) for rung in LADDER.rungs if rung.name in row_of]


# -- memory ----------------------------------------------------------------------------------------
def memory_table(rows: Sequence[Row]) -> str:
    """Returns an HTML table: the bytes of intermediates and output of each rung, measured and predicted; and the bytes on
    the stack of each thread, which no allocator counts."""
    head = "".join(
        f'<th scope="col">{name}</th>'
        for name in (
            tr("intermediates and output, measured"),
            tr("intermediates and output, predicted"),
            tr("in addition, on the stack of each thread"),
        )
    )
    label, unit = tr("Memory"), tr("bytes")
    lines = "".join(_line(title, row) for title, row in rows_with_titles(rows))
    return (
        f'<div class="kt-scroll" tabindex="0" role="region" aria-label="{label}"><table class="kt-table">'
        f"<tr><td>{unit}</td>{head}</tr>{lines}</table></div>"
    )


def _line(title: str, row: Row) -> str:
    measured, predicted = row["workspace_bytes"] + row["output_bytes"], allocated(row)
    stack = attention_cpu_ladder.stack_bytes(row["rung"].partition("/")[2], row["tiles"])
    cells = "".join(f"<td>{decimal(f'{count:,}')}</td>" for count in (measured, predicted, stack))
    return f'<tr><th scope="row">{escape(title)}</th>{cells}</tr>'


def allocated(row: Row) -> int:
    """Returns the bytes of intermediates and output that the program of a row allocates."""
    program = LADDER.rung(row["rung"]).build(_shape(row), row["tiles"])
    return program.nbytes(WORKSPACE, OUTPUT)


def _shape(row: Row) -> AttentionShape:
    return AttentionShape(**row["shape"])


# -- time ------------------------------------------------------------------------------------------
def gain(rows: Sequence[Row]) -> str:
    """Returns a sentence that compares flash attention with each other rung; "" if it was not measured."""
    titled_rows = rows_with_titles(rows)
    flash = next((row for _, row in titled_rows if row["rung"] == FLASH), None)
    if not flash or len(titled_rows) < 2:
        return ""
    first = tr(
        "Flash attention with Br {Br} and Bc {Bc} takes {time} here.",
        Br=flash["tiles"]["Br"],
        Bc=flash["tiles"]["Bc"],
        time=units.time_(flash["median_ms"]),
    )
    against = (_compared(flash, short_title(title), row) for title, row in titled_rows if row is not flash)
    return " ".join([first, *against])


def _compared(flash: Row, title: str, row: Row) -> str:
    ratio = row["median_ms"] / flash["median_ms"]
    name, time = capitalized(title), units.time_(row["median_ms"])
    if within_spread(row, flash):
        return tr("{name} ({time}) does not differ measurably: the spreads overlap.", name=name, time=time)
    if ratio < 1:
        return tr("{name} ({time}) is {ratio}× as fast.", name=name, time=time, ratio=units.ratio(1 / ratio))
    return tr(
        "Flash attention is {ratio}× as fast as {title} ({time}).", ratio=units.ratio(ratio), title=title, time=time
    )


def explain_gain(rows: Sequence[Row], caches: Sequence[Cache]) -> str:
    """Returns the predicted time of S's traffic past the caches, compared with the time of the blocked loops. "" if rows,
    caches or ceilings are missing."""
    row, flash = (next((row for row in rows if row["rung"] == name), None) for name in (BLOCKED, FLASH))
    if not (row and flash and caches and row.get("ceilings")):
        return ""
    s, last, copied = _shape(row), caches[-1], row["ceilings"]["copy_bytes_per_s"]
    S, tiles = FLOAT * s.N**2, {"blocked": row["tiles"], "flash": flash["tiles"]}
    moved = {name: traffic(name, s, last.line_bytes, last.bytes, sizes) for name, sizes in tiles.items()}
    ms = (moved["blocked"] - moved["flash"]) / copied * 1e3
    part = ms / row["median_ms"]
    sizes = {"S": units.bytes_(S), "cache": last.name, "bytes": units.bytes_(last.bytes)}
    if s.bytes // s.heads + S <= last.bytes:
        held = tr("Why: S of a head, {S}, fits in the {cache} of {bytes}.", **sizes)
    else:
        held = tr("Why: S of a head, {S}, does not fit in the {cache} of {bytes}.", **sizes)
    if part < SMALL_SHARE:
        end = tr("So traffic beyond the caches explains little of the time.")
    else:
        end = tr("So traffic beyond the caches explains part of the time.")
    sentences = (
        held,
        tr(
            "Past this cache, the blocked loops move {blocked} and flash attention {flash} (predicted).",
            blocked=units.bytes_(moved["blocked"]),
            flash=units.bytes_(moved["flash"]),
        ),
        tr(
            "One core copies {bandwidth} here. The difference takes {time}, {share} of the time of the blocked loops.",
            bandwidth=units.bandwidth(copied),
            time=units.time_(ms),
            share=units.share(part),
        ),
        end,
        tr(
            "Both kernels compute the same multiply-adds and {count} exponentials, one after the other.",
            count=units.count(s.pairs),
        ),
        tr("NumPy’s BLAS has register tiles too. NumPy’s exponential is vectorized."),
    )
    return " ".join(sentences)


# -- the same on a GPU -----------------------------------------------------------------------------
def on_gpu(measured_row: Row, recorded_row: Row | None) -> str:
    """Returns how long the bytes and the products of naive attention take at LONG, by the formulas of the GPU's ladder. The
    rates are the ceilings of the two rows, measured here and recorded on a GPU; "" if a rate is missing."""
    if not recorded_row or not measured_row.get("ceilings"):
        return ""
    s = LONG.shape
    naive, flash = (_cost(name, s) for name in GPU_RUNGS[:2])
    gpu, cpu = recorded_row["ceilings"], measured_row["ceilings"]
    heads, l2 = 2 * FLOAT * s.N * s.d, gpu["cache_bytes"]
    keys = {"heads": units.bytes_(heads), "cache": units.bytes_(l2)}
    if heads <= l2:
        loaded = tr(
            "It loads K and V of a head, {heads}, once per Br queries. They fit in the L2 cache of {cache}.", **keys
        )
    else:
        loaded = tr(
            "It loads K and V of a head, {heads}, once per Br queries. They do not fit in the L2 cache of {cache}.",
            **keys,
        )
    sentences = (
        tr(
            "On a GPU at {shape}, naive attention moves {naive} through HBM by its formula. It writes and reads S and P.",
            shape=s,
            naive=units.bytes_(naive.bytes),
        ),
        tr("Flash attention moves {flash}.", flash=units.bytes_(flash.bytes)),
        loaded,
        tr(
            "At the rates of {device}, the FP32 multiply-adds of naive attention take {ratio}× the time of moving its bytes ({computed} against "
            "{moved}). Tensor cores shorten the multiply-adds only.",
            device=recorded_row["device"],
            **_rates(naive, gpu),
        ),
        tr(
            "At the rates of this processor (copy of one core, NumPy’s BLAS), the multiply-adds take {ratio}× the time of moving the bytes "
            "({computed} against {moved}).",
            **_rates(naive, cpu),
        ),
    )
    return " ".join(sentences)


def _cost(name: str, s: AttentionShape) -> Cost:
    rung = ON_GPU.rung(name)
    return rung.cost(s, rung.build(s, rung.default_tiles))


def _rates(cost: Cost, ceilings: Mapping) -> dict[str, str]:
    """Returns the times of the multiply-adds and of moving the bytes at these rates, and their ratio, as texts by name."""
    moved, computed = cost.bytes / ceilings["copy_bytes_per_s"], cost.flops / ceilings["fp32_flops_per_s"]
    return {
        "ratio": units.ratio(computed / moved),
        "computed": units.time_(1e3 * computed),
        "moved": units.time_(1e3 * moved),
    }


def gpu_row() -> Row | None:
    """Returns a row that has the ceilings of the GPU that attention is shown from; None if there is none."""
    gpu = records.shown("attention")
    rows = (row for of, row in files.read() if of == gpu and row["engine"] == "cuda")
    return next((r for r in rows if {"cache_bytes", "fp32_flops_per_s"} <= set(r.get("ceilings") or ())), None)


def longest_recording() -> tuple[Preset, str, Row] | None:
    """Returns the longest preset at which naive and flash attention were recorded on a GPU, a sentence with their times,
    and flash attention's row. None if there is none."""
    for preset in sorted(ATTENTION_PRESETS.values(), key=lambda p: (-p.shape.N, -p.shape.heads)):
        rows = recorded_at(preset.shape, GPU_RUNGS)
        naive, flash = rows.pop(GPU_RUNGS[0], None), fastest(rows.values())
        if naive and flash:
            text = tr(
                "At {shape}, naive attention takes {naive}. The kernel “{title}” takes {flash}: it is {ratio}× as fast.",
                shape=preset.shape,
                naive=units.time_(naive["median_ms"]),
                title=tr(ON_GPU.rung(flash["rung"]).title),
                flash=units.time_(flash["median_ms"]),
                ratio=units.ratio(naive["median_ms"] / flash["median_ms"]),
            )
            return preset, text, flash
    return None


# -- tile sizes ------------------------------------------------------------------------------------
def tile(varied: str, s: AttentionShape, tiles: Mapping[str, int]) -> Tile:
    """Returns the tile size Br or Bc (`varied`) of flash attention; the other is fixed. Its bytes are what one tile touches:
    rows of Q and O, of K and V, the transposed keys, the scores, m and l."""

    def at(value: int) -> dict[str, int]:
        return {"Br": tiles["Br"], "Bc": tiles["Bc"]} | {varied: value}

    def taken(value: int) -> int:
        Br, Bc = at(value)["Br"], at(value)["Bc"]
        return FLOAT * (2 * Br * s.d + 2 * Bc * s.d + min(DEEP, s.d) * Bc + Br * Bc + 2 * Br)

    def share(value: int, cache: Cache) -> float:
        cache_sizes = cache.line_bytes, cache.bytes
        return traffic("flash", s, *cache_sizes, at(value)) / traffic("naive", s, *cache_sizes, {})

    return Tile(varied, tr("tiles"), taken, share)
