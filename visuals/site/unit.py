"""One page of the app as a part of the site: every address of it that the site holds, recorded and packed."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from kernels import engines
from kernels.engines import cpu
from kernels.i18n import tr
from kernels.model.row import Json
from visuals.site import counting, crawl
from visuals.site.files import Files, name_of
from visuals.site.host import SHELL, Host, Recording, Switch, install
from visuals.site.pack import Packer, pack_component

ROOT = SHELL.parents[1]
BUILD = ".build"  # the folder of what the next build reads: it is no part of the site
MAX_ADDRESSES = 240  # of one page
REPORT_S = 10  # between two lines on the progress of one page
Report = Callable[[str], None]


class Made(NamedTuple):
    """An address as it was drawn, or why it was not."""

    key: str
    params: Mapping[str, str]
    drawn: Recording | None = None
    failed: str = ""


@dataclass
class Unit:
    """A page on the site. `docs`: the file of each address by its key; `reads`: the digests of the files it was made from."""

    path: str
    title: str
    docs: dict[str, str]
    defaults: dict[str, str]
    texts: list[list[str]]  # for the search: address, title, text
    components: Json
    common: Json
    css: str
    files: list[str]
    reads: dict[str, str]
    failed: dict[str, str]  # why an address is missing
    leads: list[list[Any]] = field(default_factory=list)  # path and parameters of each link to a page, once
    puts: list[dict[str, str]] = field(default_factory=list)  # parameters that show a real size on the stage

    @property
    def has_story(self) -> bool:
        return any(key.startswith(crawl.CHAPTER) for key in self.docs)

    def missing(self, others: Iterable[Unit]) -> list[dict[str, str]]:
        """Returns the parameters of the addresses of this page that other pages link to, and that it lacks."""
        known = set(self.docs) | set(self.failed)
        found = {}
        for path, params in (lead for unit in others if unit.path != self.path for lead in unit.leads):
            if path == self.path and (key := crawl.key_of(params, self.has_story)) not in known:
                found[key] = params
        return list(found.values())


def begin(counted: Path) -> tuple[Host, list[counting.CountsHere], set[str]]:
    """Returns a host whose pages see no GPU and count in this process, the counts (kept in the file `counted`), and the set
    of files that are read."""
    read: set[str] = set()

    def note(event: str, args: tuple) -> None:
        if event == "open" and args and isinstance(args[0], str):
            read.add(args[0])

    sys.addaudithook(note)
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    counted.parent.mkdir(parents=True, exist_ok=True)
    counts = counting.install(counted)
    engines.refusal = lambda *_: ""  # no card says what the machine that builds the site cannot run
    cpu.product_rate = lambda: math.inf  # nor how fast it is
    host = Host()
    install(host)
    return host, counts, read


def listed() -> dict[str, str]:
    """Returns the titles of the app's pages by path, the first screen first."""
    host = Host()
    install(host)
    host.record("glossary", {})
    return {page.url_path: page.title for page in host.listed}


def _fill(unit: Unit, record: _Recorder, recordings: Iterable[Made], packer: Packer, report: Report) -> None:
    """Packs what is recorded into a unit."""
    since = time.monotonic()
    for made in recordings:
        if made.drawn is None:
            unit.failed[made.key] = made.failed
            continue
        doc: Json = {"params": made.drawn.params, "c": packer.pack(made.drawn.elements)}
        if put := _put(record.host, unit.path, made, made.drawn):
            doc["put"] = put
            if put[0] == unit.path and put[1] not in unit.puts:
                unit.puts.append(put[1])
        unit.docs[made.key] = packer.files.put_json(doc)
        unit.texts += _texts(unit.path, made, made.drawn)
        for path, params in crawl.leads(made.drawn.elements):
            if [path, params] not in unit.leads:
                unit.leads.append([path, params])
        if time.monotonic() - since > REPORT_S:
            report(f"{unit.path or 'home'}: {len(unit.docs)} addresses")
            since = time.monotonic()


HISTORY = "history"  # lists the runs of one's own machine


def build(path: str, out: Path, depth: int = 1, report: Report = print) -> Unit:
    """Records and packs a page: its chapters, its controls, and what `depth` choices lead to from there."""
    if path == HISTORY:
        return _history(out)
    return _recorded(
        Unit(path, "", {}, {}, [], {}, {}, "", [], {}, {}),
        out,
        lambda record, unit: _recordings(record, depth, unit),
        report,
    )


def extend(unit: Unit, out: Path, addresses: Iterable[Mapping[str, str]], report: Report = print) -> Unit:
    """Records and packs more addresses of a page."""

    def more(record: _Recorder, unit: Unit) -> Iterator[Made]:
        record.has_story = unit.has_story
        yield from filter(None, map(record, addresses))

    return _recorded(unit, out, more, report)


def _recorded(unit: Unit, out: Path, recordings: Callable[[_Recorder, Unit], Iterable[Made]], report: Report) -> Unit:
    host, counts, read = begin(out / BUILD / f"counts-{unit.path or 'home'}.json")
    if not unit.path:
        engines.available = dict  # the first screen names no engine of the machine that builds the site
    files = Files(out)
    packer = Packer(files)
    record = _Recorder(host, unit.path, {*unit.docs, *unit.failed})
    _fill(unit, record, recordings(record, unit), packer, report)
    unit.title = next(page.title for page in host.listed if page.url_path == unit.path)
    unit.components |= {name: pack_component(files, one) for name, one in host.components.items()}
    unit.common, unit.css = packer.common or unit.common, packer.css or unit.css
    unit.files = sorted(files.used | set(unit.files))
    unit.reads |= digests(read)
    for one in counts:
        one.save()
    return unit


class _Recorder:
    """Records addresses of a page, each once. `has_story`: whether the page has chapters."""

    def __init__(self, host: Host, path: str, done: set[str]):
        self.host, self.path, self.done = host, path, done
        self.has_story = False

    def __call__(self, params: Mapping[str, str]) -> Made | None:
        """Returns an address as it was drawn; None if it is recorded already, or if the page has enough."""
        if (key := crawl.key_of(params, self.has_story)) in self.done or len(self.done) >= MAX_ADDRESSES:
            return None
        self.done.add(key)
        try:
            return Made(key, params, self.host.record(self.path, params))
        except Switch as away:
            return Made(key, params, failed=tr("leads to {page}", page=away.path))
        except Exception as error:  # one address that fails is named, the others are built
            return Made(key, params, failed=f"{type(error).__name__}: {error}")

    def story(self) -> Iterator[Made]:
        """Yields the chapters of the page; the page itself if it has none."""
        first = self.host.record(self.path, {})
        chapter = crawl.stage_head(first.elements).get("chapter")
        self.has_story = bool(chapter)
        for number in range(1, chapter["count"] + 1) if chapter else ():
            yield from self._once({crawl.VIEW: crawl.STORY, crawl.CHAPTER: str(number)})
        yield from self._once({crawl.VIEW: crawl.EXPLORE} if chapter else {})

    def _once(self, params: Mapping[str, str]) -> Iterator[Made]:
        if made := self(params):
            yield made


def _recordings(record: _Recorder, depth: int, unit: Unit) -> Iterator[Made]:
    """Yields each address of a page: its chapters, then what links and choices lead to from its controls."""
    level: list[Made] = []
    for made in record.story():
        yield made
        level = [made]
    for made in level:
        unit.defaults |= crawl.defaults(made.drawn.elements if made.drawn else [])
    for at in range(depth):
        found = []
        for before in level:
            elements = before.drawn.elements if before.drawn else []
            for params in _next(record.path, before.params, elements, at):
                if not (record.has_story and crawl.is_story(params)) and (made := record(params)):
                    yield made
                    found.append(made)
        level = found
    for params in unit.puts if depth else ():  # those of the addresses above, which are packed by now
        if made := record(params):
            yield made


def _next(path: str, params: Mapping[str, str], elements: list, depth: int) -> Iterator[dict[str, str]]:
    yield from crawl.links(path, elements)
    yield from crawl.choices(params, elements)
    if depth == 0:
        yield from crawl.values(params, elements)


def _put(host: Host, path: str, made: Made, drawn: Recording) -> list | None:
    """Returns the address that shows the real size on the stage, as path and parameters; None if the page has none."""
    for element in crawl.walk(drawn.elements):
        if element["t"] == "component" and element["name"] == "stage":
            sizes = (element["data"]["strip"] or {}).get("sizes", ())
            size = next((size["key"] for size in sizes if size.get("canPut")), None)
            if size is None:
                return None
            try:
                host.record(path, made.params, {element["k"]: {"do": "put", "size": size}})
            except Switch as away:
                return [away.path, away.params]
    return None


def _texts(path: str, made: Made, drawn: Recording) -> list[list[str]]:
    """Returns what the search finds of an address: the title and the text of a chapter, or the idea of a page."""
    if chapter := crawl.stage_head(drawn.elements).get("chapter"):
        text = " ".join([*chapter["text"], (chapter["question"] or {}).get("text", "")])
        return [[f"{path}?{made.key}", crawl.unmarked(chapter["title"]), crawl.unmarked(text)]]
    if made.key == crawl.EXPLORE:
        return [[f"{path}?view=explore" if path else "", title, text] for title, text in crawl.about(drawn.elements)]
    return []


def _history(out: Path) -> Unit:
    """Returns the page that says where the history is: the site runs nothing."""
    host = Host()
    install(host)
    host.record("glossary", {})
    title = next(page.title for page in host.listed if page.url_path == HISTORY)
    about = tr(
        "The history lists the runs of your own machine. This site measures nothing, so it has none: the app keeps it."
    )
    page = host.record("glossary", {}).elements
    bar = [element for element in page if any(inner.get("k") == "nav" for inner in crawl.walk([element]))]
    text = f'<h1 class="kt-title">{title}</h1><p class="kt-idea">{about}</p>'
    files = Files(out)
    packer = Packer(files)
    doc = files.put_json({"params": {}, "c": packer.pack([*bar, {"t": "html", "h": text}])})
    return Unit(HISTORY, title, {"explore": doc}, {}, [], {}, {}, "", sorted(files.used), {}, {})


def digests(paths: set[str]) -> dict[str, str]:
    """Returns the digests of the files of the app among `paths` and the imported modules, by their path within it."""
    modules = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    found = {}
    for text in sorted(paths | {path for path in modules if path}):
        file = Path(text)
        if file.suffix == ".pyc" or not file.is_absolute() or not file.is_relative_to(ROOT) or ".venv" in file.parts:
            continue
        if file.is_file():
            found[str(file.relative_to(ROOT))] = name_of(file.read_bytes())
    return found


def is_current(reads: Mapping[str, str]) -> bool:
    """Returns whether all files that a page was made from are as they were."""
    try:
        return all(name_of((ROOT / path).read_bytes()) == digest for path, digest in reads.items())
    except OSError:
        return False
