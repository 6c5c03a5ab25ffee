"""A hall: several processes of the app behind HAProxy, and one job service. `python -m hall`; docs/hall.md."""
