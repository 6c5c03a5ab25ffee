"""JSON text of rows: read with limits, written in one canonical form, named by its digest."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from kernels.model.row import Json, Row


class RowError(ValueError):
    """Why a row or a file of rows is rejected, as a sentence for the page."""


def canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def id_of(row: Row) -> str:
    """Returns 20 hex digits of the row's content: the same row has the same id wherever it came from."""
    import hashlib  # loads OpenSSL: `import kernels` does without

    return hashlib.sha256(canonical(row).encode()).hexdigest()[:20]


def load(text: str) -> Any:
    """Parse JSON. RowError for NaN, infinity, a name given twice, too deep nesting or malformed text."""

    def constant(name: str):
        raise RowError(f"{name} is not a number of JSON")

    def pairs(items: Sequence[tuple[str, object]]) -> Json:
        if len(found := dict(items)) < len(items):
            raise RowError("a name is given twice in one object")
        return found

    try:
        return json.loads(text, parse_constant=constant, object_pairs_hook=pairs)
    except RowError:
        raise
    except json.JSONDecodeError as e:
        raise RowError(f"not JSON: {e.msg} at line {e.lineno}, column {e.colno}") from None
    except (ValueError, RecursionError):  # too many digits or brackets
        raise RowError("not JSON that can be read: a number or its nesting is too long") from None


def _load(text: str) -> Any:
    text = text.removeprefix("\ufeff").strip()
    lines = text.splitlines()
    if len(lines) > 1 and lines[0].startswith("{") and lines[0].endswith("}"):  # as recordings are written
        return [load(line) for line in lines if line.strip()]
    return load(text)
