"""Where a store keeps its rows: an SQLite file of this machine (file.py), or a PostgreSQL database that machines share
(server.py). Both have the same table and the same queries (tables.py) and the same migrations (schema.py).

The modules below import SQLAlchemy, half as long as the import of all kernels: only the first use of a store imports them.
"""

MISSING = "The store needs {name}: pip install -r requirements.txt"


class StoreError(RuntimeError):
    """Why the store could not read or write, as a sentence for the page."""
