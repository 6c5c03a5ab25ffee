"""The table of rows and the conditions of a filter in SQLAlchemy Core, the same for SQLite and PostgreSQL. The indexes are in
the migrations."""

from __future__ import annotations

import json
from collections.abc import Sequence

from sqlalchemy import (
    JSON,
    REAL,
    Column,
    ColumnElement,
    Connection,
    Double,
    MetaData,
    Select,
    Table,
    Text,
    cast,
    false,
    func,
    select,
)

from kernels.model.row import Json
from kernels.records import rows
from kernels.records.entry import Entry, Filter
from kernels.records.jsontext import canonical

# PostgreSQL sorts by the language of the database: "C" sorts by code points, as SQLite and Python do.
TEXT = Text().with_variant(Text(collation="C"), "postgresql")
METADATA = MetaData()
ROWS = Table(
    "rows",
    METADATA,
    Column("id", TEXT, primary_key=True),
    *(Column(name, TEXT, nullable=False) for name in "inserted made rung shape engine device mode".split()),
    Column("median_ms", Double().with_variant(REAL(), "sqlite"), nullable=False),
    Column("origin", TEXT, nullable=False),
    Column("row", TEXT, nullable=False),
)
c = ROWS.c
ENTRY = select(c.id, c.row, c.origin, c.inserted)


def values(e: Entry) -> Json:
    """Returns the columns of an entry."""
    return {
        "id": e.id,
        "inserted": e.inserted,
        "made": rows.measured_at(e.row),
        "rung": e.row["rung"],
        "shape": canonical(e.row["shape"]),
        "engine": e.row["engine"],
        "device": e.row["device"],
        "mode": e.row["mode"],
        "median_ms": e.row["median_ms"],
        "origin": e.origin,
        "row": json.dumps(e.row, allow_nan=False),
    }


def entry(line: Sequence[str]) -> Entry:
    """Returns the entry of a line of ENTRY."""
    id_, text, origin, inserted = line
    return Entry(id_, json.loads(text), origin, inserted)


def terms(db: Connection, query: Filter) -> list[ColumnElement[bool]]:
    """Returns the conditions of a filter. Only the app knows the text of a shape: it is compared for each different shape,
    not for each row."""
    if not all(map(storable, vars(query).values())):
        return [false()]
    exact = {name: getattr(query, name) for name in ("rung", "engine", "device", "mode", "origin")}
    found = [c[name] == value for name, value in exact.items() if value]
    if query.ladder:
        prefix = f"{query.ladder}/"
        found.append(func.substr(c.rung, 1, len(prefix)) == prefix)
    if query.exact_shape:
        found.append(c.shape == query.exact_shape)
    if query.shape:
        known = db.execute(select(c.rung, c.shape).where(*found).distinct())
        shapes = [f"{rung} {shape}" for rung, shape in known if rows.matches(query.shape, rung, shape)]
        found.append((c.rung + " " + c.shape).in_(_listed(db, shapes)))
    return found


def _listed(db: Connection, texts: Sequence[str]) -> Select:
    """Returns a query of texts that go to the database as one parameter: their number is not limited."""
    if db.dialect.name == "sqlite":
        listed = func.json_each(json.dumps(texts))
    else:
        listed = func.json_array_elements_text(cast(texts, JSON))
    return select(listed.table_valued("value").c.value)


def storable(text: str) -> bool:
    """Returns whether a text can be in a database: PostgreSQL has none with NUL, and no database half a surrogate."""
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)
