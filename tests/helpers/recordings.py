"""Recordings that a test puts in the place of those shipped with the app."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kernels import records
from kernels.records import Gpu, files, folder, unsupported
from visuals.charts import products, roofline

Row = Mapping[str, Any]


def forget() -> None:
    """Forgets what was read of recordings, and what follows from it."""
    records.forget()
    unsupported.forget()
    roofline.recorded_roofs.cache_clear()
    products.fastest_products.cache_clear()


@contextmanager
def recordings(*rows: Row) -> Iterator[None]:
    """Shows these rows alone, as if shipped, while it is open."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "read", lambda: tuple((Gpu(row["device"]), row) for row in rows))
        patch.setattr(files, "forget", lambda: None)
        forget()
        yield
    forget()


@contextmanager
def own_recordings(path: Path, **rows_by_name: Sequence[Row]) -> Iterator[Path]:
    """Shows the shipped recordings and these own files, by name, in a folder for data at `path`, while it is open."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(folder.VARIABLE, str(path))
        folder.own_recordings().mkdir(parents=True)
        for name, rows in rows_by_name.items():
            text = "".join(f"{json.dumps(row)}\n" for row in rows)
            folder.own_recordings().joinpath(f"{name}.jsonl").write_text(text, encoding="utf-8")
        forget()
        yield folder.own_recordings()
    forget()
