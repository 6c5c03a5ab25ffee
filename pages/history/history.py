"""The parts of the history page: filters, the list of runs, the comparison of two runs, import and export."""

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
from kernels.records.store import HERE, RECORDED, Entry, Filter, Store, StoreError, newest_first, user_store
from pages.parts import address
from visuals.charts import compare, units

PER_PAGE = 20
MAX_EXPORTED = rows.MAX_ROWS
ALL, LINK = "all", "link"
SIDES = (("run", "result", "A"), ("against", "against_result", "B"))
MAX_TEXT_CHARS = 80


@dataclass(frozen=True)
class Field:
    """A filter: its URL parameter, its label, and the items of Store.kinds() it refers to."""

    param: str
    label: str
    at: tuple[int, ...]  # indices in an item of Store.kinds(), whose texts are joined to a choice


FIELDS = (
    Field("rung", "rung", (0,)),
    Field("device", "device", (1, 2)),
    Field("caches", "caches", (3,)),
    Field("origin", "from", (4,)),
)
JOIN = ": "


# -- all runs ------------------------------------------------------------------------------------
@cache
def _recordings() -> dict[str, Entry]:
    entries = (Entry(id_of(row), row, RECORDED) for row in records.recordings())
    return {e.id: e for e in newest_first(entries)}


class Archive:
    """The store and the recordings together. If the store fails, only the recordings are used and `notes` has the error."""

    def __init__(self):
        self.notes: list[str] = []
        self._store: Store | None = None
        try:
            self._store = user_store()
        except StoreError as e:
            self.notes.append(str(e))

    def _query_store(self, query_fn, fallback):
        if self._store is None:
            return fallback
        try:
            return query_fn(self._store)
        except StoreError as e:
            if str(e) not in self.notes:
                self.notes.append(str(e))
            return fallback

    def kinds(self) -> set[tuple[str, ...]]:
        recorded = {
            (*(e.row[n] for n in ("rung", "engine", "device", "mode")), RECORDED)
            for e in _recordings().values()
        }
        found = self._query_store(lambda s: s.kinds(), set())
        self.notes += self._query_store(lambda s: s.notes(), [])
        return recorded | found

    def count(self, query: Filter) -> int:
        return len(self._recorded(query)) + self._query_store(lambda s: s.count(query), 0)

    def some(self, query: Filter, limit: int, skip: int = 0) -> list[Entry]:
        """Returns entries of the store and recordings, newest first."""
        recorded = self._recorded(query)
        start = max(
            0, skip - len(recorded)
        )  # all rows of the store before this index come before the requested ones
        stored = self._query_store(lambda s: s.rows(query, limit + skip - start, start), [])
        return newest_first([*stored, *recorded])[skip - start : skip - start + limit]

    def entry(self, id_: str) -> Entry | None:
        return _recordings().get(id_) or self._query_store(lambda s: s.row(id_), None)

    def take(self, text: str, name: str) -> str:
        """Imports a file and returns a sentence about the result. Raises RowError or StoreError."""
        if self._store is None:
            raise StoreError(self.notes[0])
        got, new = self._store.import_(text, name)
        return f"{got:,} row{'s' * (got != 1)} read, {new:,} of them new."

    def _recorded(self, query: Filter) -> list[Entry]:
        if query.origin not in ("", RECORDED):
            return []
        return [e for e in _recordings().values() if query.matches(e.row, e.origin)]


# -- URL parameters ------------------------------------------------------------------------------
def filters(archive: Archive) -> tuple[Filter, list[str]]:
    """Draws the filters as controls bound to the URL. Returns them and a note for each value that is not a choice."""
    kinds, notes, got = sorted(archive.kinds()), [], {}
    for field in FIELDS:
        choices = [ALL, *dict.fromkeys(JOIN.join(kind[i] for i in field.at) for kind in kinds)]
        value = st.query_params.get(field.param)
        if value is not None and value not in choices:
            notes.append(f"no run has {field.label} {address.quoted(value)}: {ALL} are listed")
        with st.container(key=f"filter_{field.param}"):
            got[field.param] = st.selectbox(field.label, choices, key=field.param, bind="query-params") or ALL
    with st.container(key="filter_shape"):
        text = st.text_input(
            "shape",
            key="shape",
            bind="query-params",
            max_chars=MAX_TEXT_CHARS,
            placeholder="C=64 or 56x56",
            type="search",
        )
    chosen_values = {name: "" if value == ALL else value for name, value in got.items()}
    engine, _, device = chosen_values["device"].partition(JOIN)
    return Filter(
        chosen_values["rung"], engine, device, chosen_values["caches"], chosen_values["origin"], text or ""
    ), notes


def sides(archive: Archive) -> tuple[list[Entry | None], list[str]]:
    """Returns runs A and B, which the URL names or contains (None if missing), and a note for each that is not found."""
    found, notes = [], []
    for by_id, by_row, letter in SIDES:
        entry = None
        if id_ := st.query_params.get(by_id, ""):
            entry = archive.entry(id_) if rows.ID.fullmatch(id_) else None
        if entry is None and (packed := st.query_params.get(by_row)):
            try:
                row = link.unpack(packed)
                entry = archive.entry(id_of(row)) or Entry(id_of(row), row, LINK)
            except RowError as e:
                notes.append(f"{letter}: {e}")
        elif id_ and entry is None:
            notes.append(f"{letter}: there is no run {address.quoted(id_)} here; it may be in another store")
        found.append(entry)
    return found, notes


def current_page(pages: int) -> tuple[int, list[str]]:
    value = st.query_params.get("page", "1")
    if value.isascii() and value.isdigit() and len(value) < 9 and 1 <= int(value) <= pages:
        return int(value), []
    return 1, [f"there is no page {address.quoted(value)} of this list: the first is shown"]


# -- texts ---------------------------------------------------------------------------------------
def title(row: Mapping[str, Any]) -> str:
    try:
        name = find(row["rung"]).title_on(row["engine"])
    except RuleError:  # of another version
        name = row["rung"]
    return name


def shape(row: Mapping[str, Any]) -> str:
    """Returns a text with the shape and tile sizes."""
    tiles = " ".join(f"{n} {v}" for n, v in row["tiles"].items())
    return f"{rows.shape_text(row)}{' · ' if tiles else ''}{tiles}"


def kind(entry: Entry) -> str:
    """Returns "measured" for a run that was measured here, else "recorded"."""
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


def listing(archive: Archive, query: Filter, chosen: list[Entry | None]) -> None:
    """Draws one page of the filtered runs, newest first."""
    total = archive.count(query)
    pages = max(1, math.ceil(total / PER_PAGE))
    page, notes = current_page(pages)
    lines = archive.some(query, PER_PAGE, (page - 1) * PER_PAGE)
    with st.container(key="list_head", horizontal=True, vertical_alignment="center"):
        text = f"{total:,} run{'s' * (total != 1)}, newest first" if total else "No run is like that."
        st.html(f'<p class="kt-figures">{text}</p>')
        _files(archive, query, total)
    for text in notes:
        st.html(f'<p class="kt-note" role="status">{escape(text)}</p>')
    data = {
        "lines": [_line_data(entry) for entry in lines],
        "chosen": {side[0]: entry.id if entry else "" for side, entry in zip(SIDES, chosen, strict=True)},
        "page": page,
        "pages": pages,
    }
    if lines:
        _component()(key="runs", data=data, height="content", on_go_change=_go)


def _go() -> None:
    """Changes the URL after a click on a link of the list."""
    change = st.session_state["runs"].get("go")
    for name, value in change.items() if isinstance(change, dict) else ():
        if name not in ("run", "against", "page"):
            continue
        for param in (name, *(by_row for by_id, by_row, _ in SIDES if by_id == name)):
            st.query_params.pop(param, None)
        if isinstance(value, str) and value:
            st.query_params[name] = value


def _line_data(entry: Entry) -> dict[str, str]:
    row = entry.row
    when = rows.measured_at(row).replace("T", " ")[:16]
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
    """Draws the chosen runs. For two runs it says whether they differ. B alone is drawn as A."""
    entries = [entry for entry in chosen if entry]
    if not entries:
        st.html(
            '<h2 class="kt-card">Compare</h2><p class="kt-quiet">Pick a run as A to see its samples and how it was '
            "measured, and another as B to see whether they differ by more than noise. For example:</p>"
        )
        with st.container(key="chips_examples", horizontal=True):
            for n, (text, *ids) in enumerate(_examples()):
                st.button(text, key=f"example_{n}", on_click=st.query_params.update, args=(dict(zip(("run", "against"), ids, strict=True)),))  # fmt: skip
        return
    with st.container(key="compared_head", horizontal=True, vertical_alignment="center"):
        st.html(f'<h2 class="kt-card">{"A and B" if len(entries) == 2 else "One run"}</h2>')
        with st.container(key="chips_link", width="content"), st.popover("link"):
            _link(entries)
    found = statistics.compare(*(e.row for e in entries)) if len(entries) == 2 else None
    texts = [_heading(letter, entry) for (_, _, letter), entry in zip(SIDES, entries, strict=False)]
    if found:
        texts.append(f'<p class="kt-verdict" role="status">{escape(found.sentence)}</p>')
        if found.other_differences:
            texts.append(f'<p class="kt-quiet">Unlike in {escape(_joined(found.other_differences))}.</p>')
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
    texts += [compare.figures_table(*pair), compare.fields_table(*pair, origins=[source(e) for e in entries])]
    st.html("".join(texts))


@cache
def _examples() -> list[tuple[str, str, str]]:
    """Returns (label, A, B) for examples of two recordings, A and B as row ids."""
    large, toy = CONV_PRESETS["resnet50-res2-3x3-n32"].shape, CONV_PRESETS["toy"].shape
    direct, gemm, library = "conv/direct", "conv/im2col-gemm", "conv/im2col-cublas"
    pairs = (
        ("direct and cuBLAS, a layer of ResNet-50", (direct, large, {}), (library, large, {})),
        ("direct and cuBLAS, the toy", (direct, toy, {}), (library, toy, {})),
        ("our GEMM, TILE 16 and TILE 32", (gemm, large, {}), (gemm, large, {"TILE": 32})),
    )
    found = []
    for text, *pair in pairs:
        both = [
            records.recorded(rung, shape, find(rung).default_tiles | tiles) for rung, shape, tiles in pair
        ]
        if all(both):
            found.append((text, *map(id_of, both)))
    return found


def _heading(letter: str, entry: Entry) -> str:
    return (
        f'<div class="kt-run"><b class="kt-letter kt-run-{letter}">{letter}</b><div><b>{escape(title(entry.row))}</b> '
        f'<span class="kt-dim">{escape(shape(entry.row))}</span><br>{badge(entry)}</div></div>'
    )


def _joined(items: tuple[str, ...]) -> str:
    return " and ".join(filter(None, (", ".join(items[:-1]), items[-1])))


def _link(entries: list[Entry]) -> None:
    """Draws the URL of this comparison, for a slide. The URL contains a run that only this store has."""
    query, too_large = {}, False
    for (by_id, by_row, _), entry in zip(SIDES, entries, strict=False):
        if entry.origin == RECORDED:
            query[by_id] = entry.id
        elif packed := link.pack(entry.row):
            query[by_row] = packed
        else:
            query[by_id], too_large = entry.id, True
    url = urlsplit(st.context.url or "")._replace(query=urlencode(query), fragment="")
    st.caption("Shows this wherever the app runs, without a GPU; with &embed=true in a slide.")
    st.code(url.geturl(), language=None)
    if too_large:
        st.caption("A run with so many samples does not fit into a link: export it, and send the file.")


# -- files ---------------------------------------------------------------------------------------
def _files(archive: Archive, query: Filter, total: int) -> None:
    def all_() -> list[Mapping[str, Any]]:
        return [entry.row for entry in Archive().some(query, MAX_EXPORTED)]

    with st.container(key="chips_files", horizontal=True, width="content"):
        if total:
            for name, text, mime in (
                ("CSV", rows.to_csv, "text/csv"),
                ("JSON", rows.to_json, "application/json"),
            ):
                st.download_button(
                    name, lambda text=text: text(all_()).encode(), f"kernel-theatre.{name.lower()}", mime,
                    key=f"export_{name}", on_click="ignore", help=f"the runs listed, at most {MAX_EXPORTED:,}",
                )  # fmt: skip
        with st.popover("import", key="import"):
            _import(archive)


def _import(archive: Archive) -> None:
    st.caption("A JSON file that History or a lesson exported, here or elsewhere.")
    limit = rows.MAX_BYTES // 2**20
    file = st.file_uploader(
        "file", type=["json", "jsonl"], key="upload", max_upload_size=limit, label_visibility="collapsed"
    )
    if file is None:
        return
    done = st.session_state.get("_imported")
    if not done or done[0] != file.file_id:  # once per file, not at each rerun
        try:
            outcome = True, archive.take(file.getvalue().decode("utf-8"), file.name)
        except UnicodeDecodeError:
            outcome = False, "The file is not text in UTF-8."
        except (RowError, StoreError) as e:
            outcome = False, str(e)
        st.session_state["_imported"] = (file.file_id, *outcome)
        if outcome[0]:
            st.rerun()  # the list and the filters know the new rows
    _, good, text = st.session_state["_imported"]
    st.html(f'<p class="{"kt-quiet" if good else "kt-note"}" role="status">{escape(text)}</p>')
