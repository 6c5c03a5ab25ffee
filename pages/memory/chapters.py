"""The chapters of the lesson on threads and memory, as data."""

from __future__ import annotations

from pages.parts.chapters import Story

STORY = Story()
