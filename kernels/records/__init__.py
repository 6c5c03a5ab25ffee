"""Records: measurements as rows. Recordings were made on named devices: those shipped with the app, and this user's own
files. The store holds this user's own runs (kernels.records.store).

Rows are looked up on one card: the one that a ladder is shown from (`shown`), or the one that is named.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import cache, lru_cache

from kernels.ladders import ladder_of
from kernels.model.row import Json, Row
from kernels.model.shape import Shape
from kernels.records import cards, files
from kernels.records import nearest as nearest_module
from kernels.records.cards import Card
from kernels.records.folder import SHIPPED as FOLDER
from kernels.records.nearest import Match
from kernels.records.row import is_current, is_disturbed

__all__ = [
    "FOLDER",
    "Card",
    "Match",
    "cards_of",
    "comparable",
    "covering",
    "everything",
    "nearest",
    "recorded",
    "recordings",
    "shown",
]


# -- rows ------------------------------------------------------------------------------------------
@cache
def everything() -> tuple[Json, ...]:
    """Returns every row of every card. Never compare rows of two cards as if they were of one."""
    return tuple(row_ for _, row_ in files.read())


def recordings(ladder: str = "", card: Card | None = None) -> tuple[Json, ...]:
    """Returns the rows of a ladder on a card, else on the card that the ladder is shown from. Without a ladder: the rows of
    every ladder."""
    if not ladder:
        return tuple(row_ for name in _by_ladder() for row_ in recordings(name, card))
    card = card or shown(ladder)
    return rows_by_card(ladder).get(card, ()) if card else ()


@cache
def rows_by_card(ladder: str) -> Mapping[Card, tuple[Json, ...]]:
    """Returns the rows of a ladder by card. If it has those of several cards or own ones, only rows that the kernels in the
    tree made: a card whose rows are of older kernels has none."""
    found = _by_ladder().get(ladder, {})
    if len(found) == 1 and not any(card.own for card in found):  # a test holds these to the kernels
        return {card: tuple(rows) for card, rows in found.items()}
    kept = {card: tuple(filter(is_current, rows)) for card, rows in found.items()}
    return {card: rows for card, rows in kept.items() if rows}


@cache
def _by_ladder() -> dict[str, dict[Card, list[Json]]]:
    found: dict[str, dict[Card, list[Json]]] = defaultdict(lambda: defaultdict(list))
    in_order = sorted(files.read(), key=lambda pair: is_disturbed(pair[1]))  # of equal settings the first is taken
    for card, row_ in in_order:
        found[row_["rung"].partition("/")[0]][card].append(row_)
    return found


# -- cards -----------------------------------------------------------------------------------------
def shown(*ladders: str) -> Card | None:
    """Returns the card that these ladders are shown from, one for all of them: the reader's if it has rows of each, else the
    default one. None if no card has rows."""
    known = cards_of(*ladders)
    key = cards.chosen()
    return next((card for card in known if key and card.key == key), known[0] if known else None)


@cache
def cards_of(*ladders: str) -> tuple[Card, ...]:
    """Returns the cards that have rows of each of these ladders, the default one first; those of any of them if none has all."""
    having = [set(rows_by_card(name)) for name in ladders]
    known = set.intersection(*having) or set.union(*having)
    if len(known) < 2:
        return tuple(known)
    coverage = {card: sum(covered(name, card) for name in ladders) for card in known}
    first = cards.default(coverage)
    return tuple(sorted(known, key=lambda card: (card != first, -coverage[card], card.key)))


def covered(ladder: str, card: Card) -> int:
    """Returns how many settings of a ladder (kernel, shape, tile sizes, mode) have a row of the card. Presets are a part of
    them: a chapter also needs the small shape on its stage."""
    return len(_by_setting(ladder, card))


def covering(*rungs: str) -> Card | None:
    """Returns the card that covers most of these rungs of one ladder, as `cards.default` says: a lesson on a part of a
    ladder is shown from it. None if no card has a row of them."""
    ladder = rungs[0].partition("/")[0]
    found = {card: sum(key[0] in rungs for key in _by_setting(ladder, card)) for card in rows_by_card(ladder)}
    return cards.default({card: count for card, count in found.items() if count})


@cache
def known_cards() -> Mapping[str, Card]:
    """Returns every card that has a row, by its key."""
    return {card.key: card for card, _ in files.read()}


# -- one row ---------------------------------------------------------------------------------------
def recorded(
    rung: str, shape: Shape, tiles: Mapping[str, int], mode: str = "cold", card: Card | None = None
) -> Json | None:
    """Returns the recording of this rung at exactly this shape, tile sizes and mode, on the card that its ladder is shown
    from, or on the card given; None if there is none."""
    ladder = rung.partition("/")[0]
    return _by_setting(ladder, card or shown(ladder)).get(_setting(rung, shape.params(), tiles, mode))


@cache
def _by_setting(ladder: str, card: Card | None) -> dict[tuple, Json]:
    """Returns the first recording of each setting, as a table: pages look up many at every change of a control."""
    rows_by_key: dict[tuple, Json] = {}
    for row_ in recordings(ladder, card):
        rows_by_key.setdefault(_setting(row_["rung"], row_["shape"], row_["tiles"], row_["mode"]), row_)
    return rows_by_key


def comparable(row_: Row) -> tuple[Json, ...]:
    """Returns every recording of the row's ladder on its device, at its shape and in its cache mode, with any tile sizes."""
    ladder = row_["rung"].partition("/")[0]
    return _by_shape(ladder).get(_of_shape(row_), ())


@cache
def _by_shape(ladder: str) -> dict[tuple, tuple[Json, ...]]:
    rows_by_key: dict[tuple, list[Json]] = defaultdict(list)
    for rows in rows_by_card(ladder).values():
        for row_ in rows:
            rows_by_key[_of_shape(row_)].append(row_)
    return {key: tuple(rows) for key, rows in rows_by_key.items()}


def _of_shape(row_: Row) -> tuple:
    params = ladder_of(row_["rung"]).later_fields | row_["shape"]
    return row_["device"], row_["mode"], frozenset(params.items())


def _setting(rung: str, params: Mapping, tiles: Mapping, mode: str) -> tuple:
    return rung, frozenset(params.items()), frozenset(tiles.items()), mode


def nearest(rung: str, shape: Shape, tiles: Mapping[str, int], mode: str = "cold") -> Match | None:
    """Returns the recording at this shape or at the nearest one, with a caption; see kernels.records.nearest."""
    return _nearest(rung, shape, tuple(tiles.items()), mode, shown(rung.partition("/")[0]))


@lru_cache(maxsize=512)
def _nearest(rung: str, shape: Shape, tiles: tuple[tuple[str, int], ...], mode: str, card: Card | None) -> Match | None:
    ladder = ladder_of(rung)
    fields = nearest_module.matching_fields(ladder, vars(shape))
    rows = _by_kernel(ladder.name, card).get((rung, mode, fields), ())
    return nearest_module.nearest(rung, shape, dict(tiles), mode, rows)


@cache
def _by_kernel(ladder: str, card: Card | None) -> dict[tuple, list[Json]]:
    """Returns the recordings grouped by rung, mode and matching fields: a search reads a few of the hundreds."""
    rows_by_key: dict[tuple, list[Json]] = {}
    for row_ in recordings(ladder, card):
        fields = nearest_module.matching_fields(ladder_of(row_["rung"]), row_["shape"])
        rows_by_key.setdefault((row_["rung"], row_["mode"], fields), []).append(row_)
    return rows_by_key


def forget() -> None:
    """Forgets all that was read, so that the next look reads the files anew."""
    files.forget()
    for function in (
        everything,
        rows_by_card,
        _by_ladder,
        cards_of,
        known_cards,
        _by_setting,
        _by_shape,
        _nearest,
        _by_kernel,
    ):
        function.cache_clear()
