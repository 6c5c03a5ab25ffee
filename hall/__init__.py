"""The hall: the site, Run and History for many readers, from one process. `python -m hall`; docs/hall.md."""
