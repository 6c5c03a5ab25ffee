"""Where a store keeps its rows: an SQLite file of this machine (file.py), or a PostgreSQL database that machines share
(server.py). Both have the same table and the same queries (tables.py) and the same migrations (schema.py).

The modules below import SQLAlchemy, which takes as long as the rest of the app's kernels: only the first use of a store
imports them.
"""


class StoreError(RuntimeError):
    """Why the store could not read or write, as a sentence for the page."""
