"""A row: the fields of a recording or of another record by name, as JSON holds them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Row = Mapping[str, Any]
Json = dict[str, Any]  # an object of JSON that is being built, or that its reader owns
