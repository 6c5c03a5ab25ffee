"""How many drawn scenes the server keeps."""

from __future__ import annotations

MOST_KEPT = 64  # scenes of a megabyte at most, most of them a hundredth of that
