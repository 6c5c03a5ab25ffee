"""A row: one measurement with its provenance. Checks of rows from elsewhere, import and export.

A row may hold fields that this version does not know; they stay unchanged.
"""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

from kernels.engines.protocol import ALLOCATED, COPIED, total_bytes
from kernels.ladders import LADDERS
from kernels.machine.timing import MODES
from kernels.model.row import Json, Row
from kernels.model.shape import ShapeError
from kernels.records.jsontext import RowError, _load, canonical

FORMAT = "kernel-theatre rows 1"
MAX_BYTES = 32 * 2**20  # of a file, before it is parsed
MAX_ROWS = 10_000  # in one file
MAX_ROW_BYTES = 256 * 2**10
MAX_SAMPLES = 10_000
MAX_TEXT = 300  # characters of a displayed text
MAX_SHAPE_TEXT = 400  # characters: a chain of eight blocks with all their parameters
MAX_DEPTH = 8
MAX_STAGES = 1_000  # of a timeline
MAX_INT = 2**63 - 1
ID = re.compile(r"[0-9a-f]{20}")
_NAME = re.compile(r"[a-z0-9][a-z0-9_.+-]{0,39}")
_RUNG = re.compile(r"[a-z0-9][a-z0-9-]{0,39}/[a-z0-9][a-z0-9_.+-]{0,39}")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,39}")
_MAX_ERRORS = 5  # rows with errors that a message names


# -- texts ---------------------------------------------------------------------------------------
def measured_at(row: Row) -> str:
    """Returns when it was measured: a UTC time, or a day if only that is known."""
    return str(row.get("time") or row.get("date") or "")


@lru_cache(maxsize=4096)
def _shape_text(rung: str, shape: str) -> str:
    params = json.loads(shape)
    ladder = LADDERS.get(rung.partition("/")[0])
    if ladder is not None:
        with suppress(ShapeError, TypeError, ValueError, AttributeError):  # a field of another version
            return str(ladder.shape(**params))
    return " ".join(f"{name}={value}" for name, value in params.items())


def shape_text(row: Row) -> str:
    """Returns the shape as text: "N1 C64 56x56 K64 3x3 pad 1"."""
    return _shape_text(row["rung"], canonical(row["shape"]))


@lru_cache(maxsize=4096)
def matches(text: str, rung: str, shape: str) -> bool:
    """Returns whether a shape (canonical JSON) matches every word of `text`: "C=64" a field's value, any other word a
    part of the shape's text."""
    params = {name.lower(): str(value).lower() for name, value in json.loads(shape).items()}
    shape_text = _shape_text(rung, shape).lower()
    for word in text.lower().replace(",", " ").split():
        name, equals, value = word.partition("=")
        if not (params.get(name) == value if equals else word in shape_text):
            return False
    return True


# -- a row from elsewhere ------------------------------------------------------------------------
def parse(text: str) -> list[Json]:
    """Returns the rows of an export: {"format", "rows"}, a list of rows, or one row per line. RowError says what is
    wrong and where; then no row is imported."""
    if len(text) > MAX_BYTES or len(text.encode("utf-8", "replace")) > MAX_BYTES:
        raise RowError(f"the file is larger than {MAX_BYTES // 2**20} MB")
    data = _load(text)
    if isinstance(data, dict) and "rows" in data:
        if data.get("format") != FORMAT:
            raise RowError(f"the file's format is not {FORMAT!r}; another version may have written it")
        data = data["rows"]
    elif isinstance(data, dict):
        data = [data]
    if not isinstance(data, list):
        raise RowError("the file holds no list of rows")
    if len(data) > MAX_ROWS:
        raise RowError(f"the file holds {len(data):,} rows; at most {MAX_ROWS:,} are taken at once")
    errors = []
    for n, row in enumerate(data, 1):
        try:
            check(row)
        except RowError as e:
            errors.append(f"row {n}: {e}")
    if errors:
        more = f"; and {len(errors) - _MAX_ERRORS:,} more" if len(errors) > _MAX_ERRORS else ""
        raise RowError(f"nothing was taken. {'; '.join(errors[:_MAX_ERRORS])}{more}")
    return data


def check(row: object) -> None:
    """Check a row. RowError if no measurement can have made it."""
    if not isinstance(row, dict):
        raise RowError("is not an object")
    _check_value(row)
    if len(canonical(row)) > MAX_ROW_BYTES:
        raise RowError(f"is larger than {MAX_ROW_BYTES // 2**10} KB")
    _check_text(row, "rung", _RUNG)
    _check_text(row, "engine", _NAME)
    _check_text(row, "device")
    if _required(row, "mode") not in MODES:
        raise RowError(f"mode must be one of {', '.join(MODES)}")
    _check_shape(row)
    tiles = _required(row, "tiles")
    if not (isinstance(tiles, dict) and all(map(_is_whole, tiles.values()))):
        raise RowError("tiles must be whole numbers by name")
    _check_times(row)
    for name in ("peak_bytes", "input_bytes", "output_bytes", "workspace_bytes", "flops"):
        if not _is_whole(_required(row, name)):
            raise RowError(f"{name} must be a whole number, 0 or more")
    if not (_is_finite(_required(row, "error")) and row["error"] >= 0):
        raise RowError("error must be a number, 0 or more")
    for name in ("date", "time", "commit", "kernels"):
        if name in row:
            _check_text(row, name)
    for name, check_field in _OPTIONAL.items():
        if name in row:
            check_field(row)


def _check_shape(row: Row) -> None:
    shape = _required(row, "shape")
    if not (isinstance(shape, dict) and 0 < len(shape) <= 32):
        raise RowError("shape must be an object of fields")
    for name, value in shape.items():
        is_text = isinstance(value, str) and len(value) <= MAX_SHAPE_TEXT and value.isprintable()
        if not (is_text or _is_finite(value)):
            raise RowError(f"the shape's {name} must be a number or a line of words")
    if ladder := LADDERS.get(row["rung"].partition("/")[0]):
        try:
            params = ladder.shape(**shape).params()
        except (ShapeError, TypeError) as e:
            raise RowError(f"shape: {e}") from None
        if params != shape:
            raise RowError(f"shape must name every field: {', '.join(params)}")


def _check_times(row: Row) -> None:
    samples = _required(row, "samples_ms")
    if not (isinstance(samples, list) and 0 < len(samples) <= MAX_SAMPLES):
        raise RowError(f"samples_ms must be a list of 1 to {MAX_SAMPLES:,} times")
    if not all(_is_finite(ms) and ms > 0 for ms in samples):
        raise RowError("samples_ms must be times above 0")
    if not _is_whole(_required(row, "n")) or row["n"] != len(samples):
        raise RowError(f"n must be the number of samples_ms, {len(samples)}")
    ordered = sorted(samples)
    for name, share in (("median_ms", 0.5), ("p20_ms", 0.2), ("p80_ms", 0.8)):
        if not _is_finite(_required(row, name)):
            raise RowError(f"{name} must be a number")
        position = share * (len(ordered) - 1)
        low, high = ordered[math.floor(position)], ordered[math.ceil(position)]
        # Samples are rounded to five digits.
        if not low * 0.999 <= row[name] <= high * 1.001:
            raise RowError(f"{name} is not that of samples_ms")
    if not row["p20_ms"] <= row["median_ms"] <= row["p80_ms"]:
        raise RowError("p20_ms, median_ms and p80_ms must rise in this order")


def _check_timeline(row: Row) -> None:
    stages = row["timeline"]
    if not (isinstance(stages, list) and len(stages) <= MAX_STAGES and all(isinstance(s, dict) for s in stages)):
        raise RowError(f"timeline must be a list of at most {MAX_STAGES} stages")
    for stage in stages:
        _check_text(stage, "at")
        if not all(_is_whole(stage.get(role)) for role in ALLOCATED):
            raise RowError(f"each stage of timeline must tell {', '.join(ALLOCATED)} in whole bytes")
    if stages and max(map(total_bytes, stages)) != row["peak_bytes"]:
        raise RowError("peak_bytes is not the most of timeline")


def _check_copies(row: Row) -> None:
    copies = row["copies_ms"]
    if not (
        isinstance(copies, dict)
        and all(_is_finite(copies.get(direction)) and copies[direction] > 0 for direction in COPIED)
    ):
        raise RowError(f"copies_ms must tell times above 0 of {', '.join(COPIED)}")
    if not (_is_whole(copies.get("n")) and copies["n"]):
        raise RowError("copies_ms must tell n, a whole number above 0")


def _check_ceilings(row: Row) -> None:
    ceilings = row["ceilings"]
    rates = ("copy_bytes_per_s", "fp32_flops_per_s", "launch_us")
    if not (
        isinstance(ceilings, dict) and all(_is_finite(ceilings.get(rate)) and ceilings[rate] > 0 for rate in rates)
    ):
        raise RowError(f"ceilings must tell numbers above 0 of {', '.join(rates)}")
    for name in ("copy", "fp32", "launch", "device"):
        _check_text(ceilings, name)


def _check_disturbed(row: Row) -> None:
    if row["disturbed"] != "":
        _check_text(row, "disturbed", _NAME)


def _check_others(row: Row) -> None:
    readings = row["others"]
    if not (isinstance(readings, dict) and all(_is_finite(v) and v >= 0 for v in readings.values())):
        raise RowError("others must tell numbers, 0 or more, by name")


# Optional fields: older rows lack them.
_OPTIONAL = {
    "timeline": _check_timeline,
    "copies_ms": _check_copies,
    "ceilings": _check_ceilings,
    "disturbed": _check_disturbed,
    "others": _check_others,
}


def _check_value(value: object, depth: int = 0) -> None:
    """Check a value at any depth. RowError for unbounded numbers, broken text and odd names."""
    if depth > MAX_DEPTH:
        raise RowError(f"is nested deeper than {MAX_DEPTH}")
    if isinstance(value, float) and not math.isfinite(value):
        raise RowError("holds a number that is not finite")
    if isinstance(value, int) and abs(value) > MAX_INT:
        raise RowError("holds a whole number of more than 63 bits")
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise RowError("holds text that is not Unicode") from None
    elif isinstance(value, dict):
        for name, inner in value.items():
            if not (isinstance(name, str) and 0 < len(name) <= 80 and name.isprintable()):
                raise RowError("holds a name that is no word")
            if depth == 0 and not _KEY.fullmatch(name):
                raise RowError(f"has a field that is no name: {name[:40]!r}")
            _check_value(inner, depth + 1)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            _check_value(inner, depth + 1)
    elif not isinstance(value, (int, float)) and value is not None:
        raise RowError(f"holds a {type(value).__name__}, which JSON has not")


def _required(row: Row, name: str) -> Any:
    if name not in row:
        raise RowError(f"{name} is missing")
    return row[name]


def _check_text(row: Row, name: str, form: re.Pattern | None = None) -> None:
    value = _required(row, name)
    if not isinstance(value, str) or not 0 < len(value) <= MAX_TEXT or not value.isprintable():
        raise RowError(f"{name} must be a line of at most {MAX_TEXT} characters")
    if form and not form.fullmatch(value):
        raise RowError(f"{name} is not a name as this app gives it: {value[:40]!r}")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_INT


def _is_finite(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


# -- export --------------------------------------------------------------------------------------
def to_json(rows: Iterable[Row]) -> str:
    """Returns the text of a file that `parse` reads, one row per line."""
    lines = ",\n".join(json.dumps(row, separators=(",", ":"), allow_nan=False) for row in rows)
    return f'{{"format": {json.dumps(FORMAT)}, "rows": [\n{lines}\n]}}\n'


def to_csv(rows: Sequence[Row]) -> str:
    """Returns CSV, one line per row. Shape, tiles, samples and other objects are JSON in their cell."""
    import csv

    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, (dict, list)):
        return json.dumps(value)
    # A text from elsewhere must not run as a formula in a spreadsheet.
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
