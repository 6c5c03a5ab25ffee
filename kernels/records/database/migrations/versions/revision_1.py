"""The table of rows. SQLite files of version 1 from before Alembic have the same."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import sqlite

revision, down_revision = "1", None


def upgrade() -> None:
    is_sqlite = op.get_context().dialect.name == "sqlite"
    text = sa.Text() if is_sqlite else sa.Text(collation="C")
    names = "inserted made rung shape engine device mode".split()
    op.create_table(
        "rows",
        sa.Column("id", text, primary_key=True),
        *(sa.Column(name, text, nullable=False) for name in names),
        sa.Column("median_ms", sqlite.REAL() if is_sqlite else sa.Double(), nullable=False),
        sa.Column("origin", text, nullable=False),
        sa.Column("row", text, nullable=False),
    )
    op.create_index("by_made", "rows", [sa.text("made DESC"), "id"])
    op.create_index("by_origin", "rows", ["origin"])
    if is_sqlite:
        op.create_index("by_kind", "rows", ["rung", "shape", "engine", "device", "mode"])
    else:  # an entry of an index has at most 2,704 bytes; a shape can be longer
        op.create_index("by_rung", "rows", ["rung", "engine", "device", "mode"])
