"""The levels of memory of the cards of recordings: NAME.levels.json beside a recording."""

from __future__ import annotations

from pathlib import Path

from kernels import records
from kernels.machine import memory_levels
from kernels.machine.memory_levels import Levels
from kernels.records import files
from kernels.records.cards import Card

ENDING = ".levels.json"


def recorded(card: Card | None) -> Levels | None:
    """Returns the levels of a card as its driver reported them; None if no file has them."""
    if card is None:
        return None
    read = (memory_levels.read(path) for path, own in files.paths(ENDING) if own == card.own)
    return next((levels for levels in read if levels and levels.device == card.device), None)


def shown(*ladders: str) -> Levels | None:
    """Returns the levels of the card that these ladders are shown from; those of the first card if no file has them."""
    return recorded(records.shown(*ladders)) or memory_levels.recorded()


def path_beside(out: Path) -> Path:
    """Returns the path of the levels beside a recording."""
    return out.with_suffix(ENDING)
