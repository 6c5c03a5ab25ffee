"""Tensor-core instructions: ldmatrix, mma.sync, wmma."""

from __future__ import annotations

BUILDERS: dict = {}
