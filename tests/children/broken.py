"""A child that cannot be imported."""

raise ImportError("no such library here")
