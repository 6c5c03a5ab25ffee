"""The parts of the history: which runs are meant, the list of them, two of them compared, files in and out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import streamlit as st

from kernels import records
from kernels.conv.presets import CONV_PRESETS
from kernels.ladders import find
from kernels.model.program import RuleError
from kernels.records import link, rows, statistics
from kernels.records.jsontext import RowError, id_of
from kernels.records.store import HERE, RECORDED, Entry, Filter, Store, StoreError, mine, newest_first
from pages.parts import address as parts_address
from visuals.charts import compare, units

PER_PAGE = 20
MOST_EXPORTED = rows.MOST_ROWS
ALL, LINK = "all", "link"
SIDES = (("run", "result", "A"), ("against", "against_result", "B"))
MOST_TEXT = 80


@dataclass(frozen=True)
class Field:
    """A filter: its parameter, its label, and what of a row's kind it is."""

    param: str
    label: str
    at: tuple[int, ...]  # places in Store.kinds() whose words join to a choice


FIELDS = (
    Field("rung", "rung", (0,)),
    Field("device", "device", (1, 2)),
    Field("caches", "caches", (3,)),
    Field("origin", "from", (4,)),
)
JOIN = ": "


# -- what there is -------------------------------------------------------------------------------
@cache
def _recordings() -> dict[str, Entry]:
    entries = (Entry(id_of(row), row, RECORDED) for row in records.recordings())
    return {e.id: e for e in newest_first(entries)}


class Archive:
    """The store and the recordings as one. Where the store cannot answer, the recordings do, and `notes` says why."""

    def __init__(self):
        self.notes: list[str] = []
        self._store: Store | None = None
        try:
            self._store = mine()
        except StoreError as e:
            self.notes.append(str(e))

    def _ask(self, question, otherwise):
        if self._store is None:
            return otherwise
        try:
            return question(self._store)
        except StoreError as e:
            if str(e) not in self.notes:
                self.notes.append(str(e))
            return otherwise

    def kinds(self) -> set[tuple[str, ...]]:
        ours = {
            (*(e.row[n] for n in ("rung", "engine", "device", "mode")), RECORDED)
            for e in _recordings().values()
        }
        found = self._ask(lambda s: s.kinds(), set())
        self.notes += self._ask(lambda s: s.notes(), [])
        return ours | found

    def count(self, asked: Filter) -> int:
        return len(self._recorded(asked)) + self._ask(lambda s: s.count(asked), 0)

    def some(self, asked: Filter, most: int, skip: int = 0) -> list[Entry]:
        """Entries newest first, recordings among the store's."""
        ours = self._recorded(asked)
        begin = max(
            0, skip - len(ours)
        )  # every row of the store before this one stands before those asked for
        theirs = self._ask(lambda s: s.rows(asked, most + skip - begin, begin), [])
        return newest_first([*theirs, *ours])[skip - begin : skip - begin + most]

    def one(self, id_: str) -> Entry | None:
        return _recordings().get(id_) or self._ask(lambda s: s.row(id_), None)

    def take(self, text: str, name: str) -> str:
        """Import a file; what came of it, in words. RowError, StoreError."""
        if self._store is None:
            raise StoreError(self.notes[0])
        got, new = self._store.import_(text, name)
        return f"{got:,} row{'s' * (got != 1)} read, {new:,} of them new."

    def _recorded(self, asked: Filter) -> list[Entry]:
        if asked.origin not in ("", RECORDED):
            return []
        return [e for e in _recordings().values() if asked.takes(e.row, e.origin)]


# -- what is asked -------------------------------------------------------------------------------
def filters(archive: Archive) -> tuple[Filter, list[str]]:
    """The filters as controls bound to the address, and a note for each value that is no choice."""
    kinds, notes, got = sorted(archive.kinds()), [], {}
    for field in FIELDS:
        choices = [ALL, *dict.fromkeys(JOIN.join(kind[i] for i in field.at) for kind in kinds)]
        told = st.query_params.get(field.param)
        if told is not None and told not in choices:
            notes.append(f"no run has {field.label} {parts_address.shown(told)}: {ALL} are listed")
        with st.container(key=f"filter_{field.param}"):
            got[field.param] = st.selectbox(field.label, choices, key=field.param, bind="query-params") or ALL
    with st.container(key="filter_shape"):
        words = st.text_input(
            "shape",
            key="shape",
            bind="query-params",
            max_chars=MOST_TEXT,
            placeholder="C=64 or 56x56",
            type="search",
        )
    one = {name: "" if value == ALL else value for name, value in got.items()}
    engine, _, device = one["device"].partition(JOIN)
    return Filter(one["rung"], engine, device, one["caches"], one["origin"], words or ""), notes


def sides(archive: Archive) -> tuple[list[Entry | None], list[str]]:
    """The runs that the address names or carries, A and B, and a note for each that is not there."""
    found, notes = [], []
    for by_id, by_row, letter in SIDES:
        entry = None
        if id_ := st.query_params.get(by_id, ""):
            entry = archive.one(id_) if rows.ID.fullmatch(id_) else None
        if entry is None and (packed := st.query_params.get(by_row)):
            try:
                row = link.unpack(packed)
                entry = archive.one(id_of(row)) or Entry(id_of(row), row, LINK)
            except RowError as e:
                notes.append(f"{letter}: {e}")
        elif id_ and entry is None:
            notes.append(
                f"{letter}: there is no run {parts_address.shown(id_)} here; it may be in another store"
            )
        found.append(entry)
    return found, notes


def page_asked(pages: int) -> tuple[int, list[str]]:
    told = st.query_params.get("page", "1")
    if told.isascii() and told.isdigit() and len(told) < 9 and 1 <= int(told) <= pages:
        return int(told), []
    return 1, [f"there is no page {parts_address.shown(told)} of this list: the first is shown"]


# -- words ---------------------------------------------------------------------------------------
def title(row: Mapping[str, Any]) -> str:
    try:
        name = find(row["rung"]).title_on(row["engine"])
    except RuleError:  # of another version
        name = row["rung"]
    return name


def shape(row: Mapping[str, Any]) -> str:
    """Shape and tile sizes."""
    tiles = " ".join(f"{n} {v}" for n, v in row["tiles"].items())
    return f"{rows.shape_words(row)}{' · ' if tiles else ''}{tiles}"


def kind(entry: Entry) -> str:
    """What this run is to this reader: measured is what was measured here."""
    return "measured" if entry.origin == HERE else "recorded"


def source(entry: Entry) -> str:
    return {HERE: "measured here", RECORDED: "shipped with the app", LINK: "carried by the link"}.get(
        entry.origin, f"imported: {entry.origin}"
    )


def badge(entry: Entry) -> str:
    also = "" if entry.origin in (HERE, RECORDED) else f", {source(entry)}"
    return units.badge(kind(entry), f"{units.provenance(entry.row)}{also}")


# -- the list ------------------------------------------------------------------------------------
@cache
def _component():
    js = Path(__file__).with_name("rows.js").read_text(encoding="utf-8")
    return st.components.v2.component("runs", js=js, isolate_styles=False)


def listing(archive: Archive, asked: Filter, chosen: list[Entry | None]) -> None:
    """The runs that are meant, newest first, a page of them."""
    total = archive.count(asked)
    pages = max(1, math.ceil(total / PER_PAGE))
    page, notes = page_asked(pages)
    lines = archive.some(asked, PER_PAGE, (page - 1) * PER_PAGE)
    with st.container(key="list_head", horizontal=True, vertical_alignment="center"):
        words = f"{total:,} run{'s' * (total != 1)}, newest first" if total else "No run is like that."
        st.html(f'<p class="kt-figures">{words}</p>')
        _files(archive, asked, total)
    for text in notes:
        st.html(f'<p class="kt-note" role="status">{escape(text)}</p>')
    data = {
        "lines": [_told(entry) for entry in lines],
        "chosen": {side[0]: entry.id if entry else "" for side, entry in zip(SIDES, chosen, strict=True)},
        "page": page,
        "pages": pages,
    }
    if lines:
        _component()(key="runs", data=data, height="content", on_go_change=_go)


def _go() -> None:
    """A link of the list was followed: the address is what changes."""
    change = st.session_state["runs"].get("go")
    for name, value in change.items() if isinstance(change, dict) else ():
        if name not in ("run", "against", "page"):
            continue
        for param in (name, *(by_row for by_id, by_row, _ in SIDES if by_id == name)):
            st.query_params.pop(param, None)
        if isinstance(value, str) and value:
            st.query_params[name] = value


def _told(entry: Entry) -> dict[str, str]:
    row = entry.row
    when = rows.made(row).replace("T", " ")[:16]
    also = "" if entry.origin in (HERE, RECORDED) else entry.origin
    return {
        "id": entry.id,
        "what": title(row),
        "shape": shape(row),
        "kind": kind(entry),
        "device": f"{row['device']}, {row['mode']}",
        "when": " · ".join(filter(None, (when, also))),
        "time": units.time_(row["median_ms"]),
        "spread": f"{compare.span(row)}, n\u00a0{row['n']}",
    }


# -- two runs ------------------------------------------------------------------------------------
def comparison(chosen: list[Entry | None]) -> None:
    """What the chosen runs show; of two, whether they differ. B alone stands as A."""
    entries = [entry for entry in chosen if entry]
    if not entries:
        st.html(
            '<h2 class="kt-card">Compare</h2><p class="kt-quiet">Pick a run as A to see its samples and how it was '
            "measured, and another as B to see whether they differ by more than noise. For example:</p>"
        )
        with st.container(key="chips_examples", horizontal=True):
            for n, (words, *ids) in enumerate(_examples()):
                st.button(words, key=f"example_{n}", on_click=st.query_params.update, args=(dict(zip(("run", "against"), ids, strict=True)),))  # fmt: skip
        return
    with st.container(key="compared_head", horizontal=True, vertical_alignment="center"):
        st.html(f'<h2 class="kt-card">{"A and B" if len(entries) == 2 else "One run"}</h2>')
        with st.container(key="chips_link", width="content"), st.popover("link"):
            _link(entries)
    found = statistics.compare(*(e.row for e in entries)) if len(entries) == 2 else None
    texts = [_heading(letter, entry) for (_, _, letter), entry in zip(SIDES, entries, strict=False)]
    if found:
        texts.append(f'<p class="kt-verdict" role="status">{escape(found.words)}</p>')
        if found.unlike:
            texts.append(f'<p class="kt-quiet">Unlike in {escape(_list(found.unlike))}.</p>')
        if found.low is not None:
            texts.append(
                '<p class="kt-quiet">In brackets 95 % of a bootstrap over these samples. What changes from one run '
                "to another, such as clocks and other programs, is not in it.</p>"
            )
    pair = [e.row for e in entries]
    if found and found.ratio is None:
        texts += [compare.strips(row) for row in pair]
    else:
        texts.append(compare.strips(*pair))
    texts += [compare.figured(*pair), compare.explained(*pair, origins=[source(e) for e in entries])]
    st.html("".join(texts))


@cache
def _examples() -> list[tuple[str, str, str]]:
    """(words, A, B) of recordings worth a look."""
    large, toy = CONV_PRESETS["resnet50-res2-3x3-n32"].shape, CONV_PRESETS["toy"].shape
    direct, ours, library = "conv/direct", "conv/im2col-gemm", "conv/im2col-cublas"
    pairs = (
        ("direct and cuBLAS, a layer of ResNet-50", (direct, large, {}), (library, large, {})),
        ("direct and cuBLAS, the toy", (direct, toy, {}), (library, toy, {})),
        ("our GEMM, TILE 16 and TILE 32", (ours, large, {}), (ours, large, {"TILE": 32})),
    )
    found = []
    for words, *pair in pairs:
        both = [
            records.recorded(rung, shape, find(rung).default_tiles | tiles) for rung, shape, tiles in pair
        ]
        if all(both):
            found.append((words, *map(id_of, both)))
    return found


def _heading(letter: str, entry: Entry) -> str:
    return (
        f'<div class="kt-run"><b class="kt-letter kt-run-{letter}">{letter}</b><div><b>{escape(title(entry.row))}</b> '
        f'<span class="kt-dim">{escape(shape(entry.row))}</span><br>{badge(entry)}</div></div>'
    )


def _list(words: tuple[str, ...]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _link(entries: list[Entry]) -> None:
    """The address of just this comparison, for a slide; a run that only this store has travels in it."""
    query, lost = {}, False
    for (by_id, by_row, _), entry in zip(SIDES, entries, strict=False):
        if entry.origin == RECORDED:
            query[by_id] = entry.id
        elif packed := link.pack(entry.row):
            query[by_row] = packed
        else:
            query[by_id], lost = entry.id, True
    place = urlsplit(st.context.url or "")._replace(query=urlencode(query), fragment="")
    st.caption("Shows this wherever the app runs, without a GPU; with &embed=true in a slide.")
    st.code(place.geturl(), language=None)
    if lost:
        st.caption("A run with so many samples does not fit into a link: export it, and send the file.")


# -- files ---------------------------------------------------------------------------------------
def _files(archive: Archive, asked: Filter, total: int) -> None:
    def all_() -> list[Mapping[str, Any]]:
        return [entry.row for entry in Archive().some(asked, MOST_EXPORTED)]

    with st.container(key="chips_files", horizontal=True, width="content"):
        if total:
            for name, text, mime in (
                ("CSV", rows.table, "text/csv"),
                ("JSON", rows.exported, "application/json"),
            ):
                st.download_button(
                    name, lambda text=text: text(all_()).encode(), f"kernel-theatre.{name.lower()}", mime,
                    key=f"export_{name}", on_click="ignore", help=f"the runs listed, at most {MOST_EXPORTED:,}",
                )  # fmt: skip
        with st.popover("import", key="import"):
            _import(archive)


def _import(archive: Archive) -> None:
    st.caption("A JSON file that History or a lesson exported, here or elsewhere.")
    most = rows.MOST_BYTES // 2**20
    file = st.file_uploader(
        "file", type=["json", "jsonl"], key="upload", max_upload_size=most, label_visibility="collapsed"
    )
    if file is None:
        return
    done = st.session_state.get("_imported")
    if not done or done[0] != file.file_id:  # once for a file, not at each rerun
        try:
            said = True, archive.take(file.getvalue().decode("utf-8"), file.name)
        except UnicodeDecodeError:
            said = False, "The file is not text in UTF-8."
        except (RowError, StoreError) as e:
            said = False, str(e)
        st.session_state["_imported"] = (file.file_id, *said)
        if said[0]:
            st.rerun()  # the list and the filters know the new rows
    _, good, words = st.session_state["_imported"]
    st.html(f'<p class="{"kt-quiet" if good else "kt-note"}" role="status">{escape(words)}</p>')
