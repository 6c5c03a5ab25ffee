"""The number of scenes that the server caches."""

from __future__ import annotations

MAX_SCENES = 64  # scenes: each at most a megabyte, most about 10 KB
