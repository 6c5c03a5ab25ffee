"""Tests. This file makes `tests` win over a package of that name that a library installs beside itself."""
