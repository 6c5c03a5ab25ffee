"""The parts of the history page: filters, groups and list of runs, the comparison of two runs, import and export."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from html import escape
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import streamlit as st

from kernels import records
from kernels.conv.presets import CONV_PRESETS
from kernels.i18n import cached, decimal, mark, tr, trn
from kernels.ladders import find
from kernels.model.program import RuleError
from kernels.model.row import Json, Row
from kernels.records import link, rows, statistics
from kernels.records.folder import database
from kernels.records.jsontext import RowError, canonical, id_of
from kernels.records.store import HERE, RECORDED, Entry, Filter, Store, StoreError, newest_first, user_store
from pages.parts import address
from pages.parts.component import component
from pages.parts.query import rerun
from pages.parts.text import card_title, paragraph
from visuals import units
from visuals.charts import compare

SCRIPT = Path(__file__).with_name("rows.js")
PER_PAGE = 20
NEWEST_HERE = 5  # runs of this machine above the groups
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
    Field("rung", mark("kernel"), (0,)),
    Field("device", mark("device"), (1, 2)),
    Field("caches", mark("caches"), (3,)),
    Field("origin", mark("from"), (4,)),
)
JOIN = ": "
# The lessons in their order: the ladders whose kernels each measures.
LESSONS = {
    mark("threads"): ("add", "branch", "stride", "banks", "layout"),
    mark("tiling"): ("gemm", "gemm-8bit", "loops"),
    mark("convolution"): ("conv", "conv-fp16"),
    mark("convolution backward"): ("conv-dinput", "conv-dweight", "conv-transpose"),
    mark("softmax"): ("softmax",),
    mark("layers"): (
        "relu",
        "relu-backward",
        "gelu",
        "gelu-backward",
        "bias",
        "bias-backward",
        "residual",
        "residual-backward",
        "max-pool",
        "max-pool-backward",
        "avg-pool",
        "avg-pool-backward",
        "global-avg-pool",
        "global-avg-pool-backward",
        "cross-entropy",
        "cross-entropy-backward",
        "cross-entropy-step",
        "sgd",
        "adam",
        "batch-norm",
        "batch-norm-backward",
        "batch-norm-inference",
        "layer-norm",
        "layer-norm-backward",
        "rms-norm",
        "rms-norm-backward",
        "linear",
        "linear-dinput",
        "linear-dweight",
        "embedding",
        "embedding-backward",
        "split-heads",
        "merge-heads",
        "attention-lse",
    ),
    mark("precision"): ("instruction-rate",),
    mark("attention"): ("attention", "attention-loops"),
    mark("attention backward"): ("attention-backward",),
    mark("fusion"): ("fusion", "fusion-fp16"),
}
OTHERS = mark("others")  # of another version of the app
# What two runs may differ in, as kernels.records.statistics names it.
DIFFERENCES = {
    "rung": mark("kernel"),
    "device": mark("device"),
    "engine": mark("engine"),
    "tile sizes": mark("tile sizes"),
    "the kernel's code": mark("the kernel’s code"),
}


# -- all runs ------------------------------------------------------------------------------------
@cache
def _recordings() -> dict[str, Entry]:
    entries = (Entry(id_of(row), row, RECORDED) for row in records.everything())
    return {e.id: e for e in newest_first(entries)}


@cache
def _recorded_groups() -> dict[tuple[str, str], tuple[int, str]]:
    groups: dict[tuple[str, str], tuple[int, str]] = {}
    for entry in _recordings().values():
        key = entry.row["rung"], canonical(entry.row["shape"])
        number, newest = groups.get(key, (0, ""))
        groups[key] = number + 1, max(newest, rows.measured_at(entry.row))
    return groups


@dataclass(frozen=True)
class Group:
    """The runs of one ladder at one shape."""

    ladder: str
    shape: str  # canonical JSON
    runs: int
    kernels: int
    newest: str

    @property
    def key(self) -> str:
        """Returns the value of ?group= that lists these runs."""
        return f"{self.ladder}.{sha256(self.shape.encode()).hexdigest()[:10]}"

    @property
    def lesson(self) -> str:
        return lesson_of(self.ladder)

    @property
    def shape_text(self) -> str:
        return rows.shape_text({"rung": f"{self.ladder}/", "shape": json.loads(self.shape)})


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
            self.notes.append(str(e))
            self._store = None  # a server that is away: the page waits for it once
            return fallback

    def kinds(self) -> set[tuple[str, ...]]:
        recorded = {
            (*(e.row[n] for n in ("rung", "engine", "device", "mode")), RECORDED) for e in _recordings().values()
        }
        found = self._query_store(lambda s: s.kinds(), set())
        self.notes += self._query_store(lambda s: s.notes(), [])
        return recorded | found

    def groups(self) -> list[Group]:
        """Returns the groups of all runs, the newest first."""
        numbers: dict[tuple[str, str], list] = {}  # (ladder, shape): [runs, rungs, newest]
        stored = self._query_store(lambda s: s.groups(), {})
        for (rung, shape_json), (runs, newest) in [*_recorded_groups().items(), *stored.items()]:
            group = numbers.setdefault((rung.partition("/")[0], shape_json), [0, set(), ""])
            group[0] += runs
            group[1].add(rung)
            group[2] = max(group[2], newest)
        groups = [Group(*key, runs, len(rungs), newest) for key, (runs, rungs, newest) in numbers.items()]
        return sorted(groups, key=lambda group: (group.newest, group.runs), reverse=True)

    def count(self, query: Filter) -> int:
        return len(self._recorded(query)) + self._query_store(lambda s: s.count(query), 0)

    def some(self, query: Filter, limit: int, skip: int = 0) -> list[Entry]:
        """Returns entries of the store and recordings, newest first."""
        recorded = self._recorded(query)
        start = max(0, skip - len(recorded))  # all rows of the store before this index come before the requested ones
        stored = self._query_store(lambda s: s.rows(query, limit + skip - start, start), [])
        return newest_first([*stored, *recorded])[skip - start : skip - start + limit]

    def entry(self, id_: str) -> Entry | None:
        return _recordings().get(id_) or self._query_store(lambda s: s.row(id_), None)

    def take(self, text: str, name: str) -> str:
        """Imports a file and returns a sentence about the result. Raises RowError or StoreError."""
        if self._store is None:
            raise StoreError(self.notes[0])
        got, new = self._store.import_(text, name)
        return trn("{n} row read, {new} new.", "{n} rows read, {new} new.", got, new=decimal(f"{new:,}"))

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
            notes.append(
                tr("No run has {field} {value}. All are listed.", field=tr(field.label), value=address.quoted(value))
            )
        with st.container(key=f"filter_{field.param}"):
            label = tr(field.label)
            got[field.param] = st.selectbox(label, choices, key=field.param, bind="query-params") or ALL
    with st.container(key="filter_shape"):
        text = st.text_input(
            tr("shape"),
            key="shape",
            bind="query-params",
            max_chars=MAX_TEXT_CHARS,
            placeholder=tr("C=64 or 56x56"),
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
            no_run = tr("There is no run {id} here. It may be in another store.", id=address.quoted(id_))
            notes.append(f"{letter}: {no_run}")
        found.append(entry)
    return found, notes


def current_page(pages: int) -> tuple[int, list[str]]:
    value = st.query_params.get("page", "1")
    if value.isascii() and value.isdigit() and len(value) < 9 and 1 <= int(value) <= pages:
        return int(value), []
    return 1, [tr("This list has no page {page}. Page 1 is shown.", page=address.quoted(value))]


def chosen_group(groups: list[Group]) -> tuple[Group | None, list[str]]:
    """Returns the group that the URL names, None if it names none, and a note if there is no such group."""
    key = st.query_params.get("group", "")
    found = next((group for group in groups if group.key == key), None)
    if found or key in ("", ALL):
        return found, []
    return None, [tr("There is no group of runs {group} here. All groups are listed.", group=address.quoted(key))]


# -- texts ---------------------------------------------------------------------------------------
def lesson_of(ladder: str) -> str:
    """Returns the lesson that measures a ladder, translated."""
    return tr(next((lesson for lesson, ladders in LESSONS.items() if ladder in ladders), OTHERS))


def title(row: Row) -> str:
    """Returns a text with the lesson and the kernel: "softmax: three passes"."""
    try:
        name = find(row["rung"]).title_on(row["engine"])
    except RuleError:  # of another version
        return row["rung"]
    return f"{lesson_of(row['rung'].partition('/')[0])}: {name}"


def shape(row: Row) -> str:
    """Returns a text with the shape and tile sizes."""
    tiles = " ".join(f"{n} {v}" for n, v in row["tiles"].items())
    return f"{rows.shape_text(row)}{' · ' if tiles else ''}{tiles}"


def kind(entry: Entry) -> str:
    """Returns "measured" for a run that was measured here, else "recorded"."""
    return "measured" if entry.origin == HERE else "recorded"


def source(entry: Entry) -> str:
    texts = {
        HERE: tr("measured on a machine that shares this history") if database() else tr("measured here"),
        RECORDED: tr("a recording of the app"),
        LINK: tr("from the link"),
    }
    return texts.get(entry.origin) or tr("imported: {file}", file=entry.origin)


def badge(entry: Entry) -> str:
    also = "" if entry.origin in (HERE, RECORDED) else f", {source(entry)}"
    return units.badge(kind(entry), f"{units.provenance(entry.row)}{also}")


# -- the list ------------------------------------------------------------------------------------
def listing(archive: Archive, query: Filter, chosen: list[Entry | None]) -> None:
    """Draws the runs: by lesson and shape, or one page of a group or of the filtered runs, newest first."""
    groups = archive.groups()
    group, notes = chosen_group(groups)
    if group:
        query = replace(query, ladder=group.ladder, exact_shape=group.shape)
    grouped = query == Filter() and st.query_params.get("group") != ALL
    total = archive.count(query)
    pages = 1 if grouped else max(1, math.ceil(total / PER_PAGE))
    page, more_notes = current_page(pages)
    if grouped:
        lines = archive.some(Filter(origin=HERE), NEWEST_HERE)
    else:
        lines = archive.some(query, PER_PAGE, (page - 1) * PER_PAGE)
    with st.container(key="list_head", horizontal=True, vertical_alignment="center"):
        st.html(f'<p class="kt-figures">{escape(_head(total, group, grouped))}</p>')
        _files(archive, query, total)
    for text in [*notes, *more_notes]:
        st.html(f'<p class="kt-note" role="status">{escape(text)}</p>')
    data = {
        "lines": [_line_data(entry) for entry in lines],
        "lessons": _lessons(groups) if grouped else [],
        "back": tr("all lessons") if group or st.query_params.get("group") == ALL else "",
        "all": tr("all runs in one list") if grouped else "",
        "chosen": {side[0]: entry.id if entry else "" for side, entry in zip(SIDES, chosen, strict=True)},
        "page": page,
        "pages": pages,
        "texts": _texts(page, pages),
    }
    if lines or grouped:
        component("runs", SCRIPT)(key="runs", data=data, height="content", on_go_change=_go)


def _head(total: int, group: Group | None, grouped: bool) -> str:
    if not total:
        return tr("No run has these values.")
    if grouped:
        return trn("{n} run, by lesson and shape", "{n} runs, by lesson and shape", total)
    if group is None:
        return trn("{n} run, newest first", "{n} runs, newest first", total)
    name = f"{group.lesson} {group.shape_text}"
    return trn("{n} run of {group}, newest first", "{n} runs of {group}, newest first", total, group=name)


def _lessons(groups: list[Group]) -> list[Json]:
    """Returns each lesson with the groups of its runs, in the order of the lessons."""
    by_lesson: dict[str, list[Group]] = {tr(lesson): [] for lesson in (*LESSONS, OTHERS)}
    for group in groups:
        by_lesson[group.lesson].append(group)
    return [
        {
            "title": lesson,
            "about": trn("{n} shape", "{n} shapes", len(found))
            + " · "
            + trn("{n} run", "{n} runs", sum(group.runs for group in found)),
            "groups": [
                {
                    "key": group.key,
                    "shape": group.shape_text,
                    "about": trn("{n} kernel", "{n} kernels", group.kernels)
                    + " · "
                    + trn("{n} run", "{n} runs", group.runs),
                }
                for group in found
            ],
        }
        for lesson, found in by_lesson.items()
        if found
    ]


def _texts(page: int, pages: int) -> dict[str, str]:
    """Returns the words of the list. {letter} and {run} are filled in the browser."""
    return {
        "pick": tr("compare"),
        "run": tr("run"),
        "where": tr("device, time"),
        "median": tr("median"),
        "newer": tr("newer"),
        "older": tr("older"),
        "pages": tr("pages of the list"),
        "page": tr("page {page} of {pages}", page=page, pages=pages),
        "take": tr("choose as {letter}: {run}"),
        "drop": tr("remove {letter}: {run}"),
        "kinds_measured": tr("measured"),
        "kinds_recorded": tr("recorded"),
        "here": tr("Newest runs of all machines") if database() else tr("Newest runs of this machine"),
    }


def _go() -> None:
    """Changes the URL after a click on a link of the list."""
    change = st.session_state["runs"].get("go")
    for name, value in change.items() if isinstance(change, dict) else ():
        if name not in ("run", "against", "page", "group"):
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
        "disturbed": units.disturbance(row),
        "when": " · ".join(filter(None, (when, also))),
        "time": units.time_(row["median_ms"]),
        "spread": f"{compare.span(row)}, n\u00a0{row['n']}",
    }


# -- two runs ------------------------------------------------------------------------------------
def comparison(chosen: list[Entry | None]) -> None:
    """Draws the chosen runs. For two runs it says whether they differ. B alone is drawn as A."""
    entries = [entry for entry in chosen if entry]
    if not entries:
        how = tr("Choose a run as A to see its samples. Choose another as B to compare the two. For example:")
        st.html(card_title(tr("Compare")) + paragraph(how))
        with st.container(key="chips_examples", horizontal=True):
            for n, (text, *ids) in enumerate(_examples()):
                st.button(
                    text,
                    key=f"example_{n}",
                    on_click=st.query_params.update,
                    args=(dict(zip(("run", "against"), ids, strict=True)),),
                )
        return
    with st.container(key="compared_head", horizontal=True, vertical_alignment="center"):
        st.html(card_title(tr("A and B") if len(entries) == 2 else tr("One run")))
        with st.container(key="chips_link", width="content"), st.popover(tr("link")):
            _link(entries)
    found = statistics.compare(*(e.row for e in entries)) if len(entries) == 2 else None
    texts = [_heading(letter, entry) for (_, _, letter), entry in zip(SIDES, entries, strict=False)]
    if found:
        texts.append(f'<p class="kt-verdict" role="status">{escape(found.sentence)}</p>')
        if found.other_differences:
            names = ", ".join(tr(DIFFERENCES.get(name, name)) for name in found.other_differences)
            texts.append(paragraph(tr("They differ in: {names}.", names=names)))
        if found.low is not None:
            interval = tr(
                "The brackets hold a 95 % interval (bootstrap of these samples). It does not include changes "
                "between runs, such as clocks or other programs."
            )
            texts.append(paragraph(interval))
        sides = [(letter, entry.row) for (_, _, letter), entry in zip(SIDES, entries, strict=True)]
        texts.append(paragraph(units.disturbed_note(sides)))
    pair = [e.row for e in entries]
    if found and found.ratio is None:
        texts += [compare.strips(row) for row in pair]
    else:
        texts.append(compare.strips(*pair))
    texts += [compare.figures_table(*pair), compare.fields_table(*pair, origins=[source(e) for e in entries])]
    st.html("".join(texts))


@cached(4)
def _examples() -> list[tuple[str, str, str]]:
    """Returns (label, A, B) for examples of two recordings, A and B as row ids."""
    large, toy = CONV_PRESETS["resnet50-res2-3x3-n32"].shape, CONV_PRESETS["toy"].shape
    direct, gemm, library = "conv/direct", "conv/im2col-gemm", "conv/im2col-cublas"
    pairs = (
        (tr("direct and cuBLAS, a layer of ResNet-50"), (direct, large, {}), (library, large, {})),
        (tr("direct and cuBLAS, the toy"), (direct, toy, {}), (library, toy, {})),
        (tr("our GEMM, TILE 16 and TILE 32"), (gemm, large, {}), (gemm, large, {"TILE": 32})),
    )
    found = []
    for text, *pair in pairs:
        both = [records.recorded(rung, shape, find(rung).default_tiles | tiles) for rung, shape, tiles in pair]
        a, b = both
        if a and b:
            found.append((text, id_of(a), id_of(b)))
    return found


def _heading(letter: str, entry: Entry) -> str:
    return (
        f'<div class="kt-run"><b class="kt-letter kt-run-{letter}">{letter}</b><div><b>{escape(title(entry.row))}</b> '
        f'<span class="kt-dim">{escape(shape(entry.row))}</span><br>{badge(entry)}</div></div>'
    )


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
    st.caption(tr("Opens this comparison wherever the app runs, also without a GPU. Add &embed=true for a slide."))
    st.code(url.geturl(), language=None)
    if too_large:
        st.caption(tr("This run has too many samples for a link. Export it and send the file."))


# -- files ---------------------------------------------------------------------------------------
def _files(archive: Archive, query: Filter, total: int) -> None:
    def all_() -> list[Row]:
        return [entry.row for entry in Archive().some(query, MAX_EXPORTED)]

    with st.container(key="chips_files", horizontal=True, width="content"):
        if total:
            for name, text, mime in (("CSV", rows.to_csv, "text/csv"), ("JSON", rows.to_json, "application/json")):
                st.download_button(
                    name,
                    lambda text=text: text(all_()).encode(),
                    f"kernel-theatre.{name.lower()}",
                    mime,
                    key=f"export_{name}",
                    on_click="ignore",
                    help=tr("The runs of this list, at most {n}.", n=decimal(f"{MAX_EXPORTED:,}")),
                )
        with st.popover(tr("import"), key="import"):
            _import(archive)


def _import(archive: Archive) -> None:
    st.caption(tr("A JSON file that this app exported, here or on another machine."))
    limit = rows.MAX_BYTES // 2**20
    file = st.file_uploader(
        tr("file"), type=["json", "jsonl"], key="upload", max_upload_size=limit, label_visibility="collapsed"
    )
    if file is None:
        return
    done = st.session_state.get("_imported")
    if not done or done[0] != file.file_id:  # once per file, not at each rerun
        try:
            outcome = True, archive.take(file.getvalue().decode("utf-8"), file.name)
        except UnicodeDecodeError:
            outcome = False, tr("The file is not text in UTF-8.")
        except (RowError, StoreError) as e:
            outcome = False, str(e)
        st.session_state["_imported"] = (file.file_id, *outcome)
        if outcome[0]:
            rerun()  # the list and the filters know the new rows
    _, good, text = st.session_state["_imported"]
    st.html(f'<p class="{"kt-quiet" if good else "kt-note"}" role="status">{escape(text)}</p>')
