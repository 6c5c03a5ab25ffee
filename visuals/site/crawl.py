"""Which addresses of a page the site holds: those that its links and choices lead to, a few clicks deep.

An address is a path and the parameters of a URL. Its key leaves out what the browser handles by itself: the moment of the
stage, how the page is framed, and values that are defaults. site.js makes the same keys (a test compares the two).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from html import unescape
from urllib.parse import parse_qsl, urlencode

from kernels.model.row import Json
from visuals.site.host import Element

Params = Mapping[str, str]

# Parameters that change how a page is shown and not what it shows, or that the stage reads by itself.
FRAME = ("embed", "embed_options", "present", "hide", "lang", "play", "version")
MOMENT = ("step", "speed", "pin", "zoom", "loop", "size")
MACHINE = ("engine",)  # what measures: nothing is run on the site
VIEW, STORY, EXPLORE, CHAPTER, LANGUAGE = "view", "story", "explore", "chapter", "lang"


def is_story(params: Params) -> bool:
    """Returns whether these parameters open the chapters of a lesson, as on the pages."""
    if VIEW in params:
        return params[VIEW] == STORY
    return CHAPTER in params or not set(params) - {LANGUAGE}


def key_of(params: Params, has_story: bool = True) -> str:
    """Returns the key of an address within its page: "chapter=3", "explore", "explore&M=8&rung=naive"."""
    left_out = {*FRAME, *MOMENT, *MACHINE, VIEW}
    rest = {name: value for name, value in params.items() if name not in left_out}
    if has_story and is_story(params):
        rest = {CHAPTER: rest.get(CHAPTER, "1"), **{n: v for n, v in rest.items() if n != CHAPTER}}
        return urlencode([(CHAPTER, rest.pop(CHAPTER)), *sorted(rest.items())])
    rest.pop(CHAPTER, None)
    return "&".join(filter(None, [EXPLORE, urlencode(sorted(rest.items()))]))


def walk(elements: Iterable[Element]) -> Iterator[Element]:
    """Yields every element of a page, a container before its children."""
    for element in elements:
        yield element
        children = element.get("c", [])
        if element["t"] == "tabs":
            for part in children:
                yield from walk(part)
        else:
            yield from walk(children)


def links(path: str, elements: Iterable[Element]) -> Iterator[dict[str, str]]:
    """Yields the parameters of the links of a page to itself, without those of its navigation."""
    for element in walk(outside("nav", elements)):
        if element["t"] == "link" and element["to"][0] == path:
            yield element["to"][1]


def choices(params: Params, elements: Iterable[Element]) -> Iterator[dict[str, str]]:
    """Yields the parameters after each other choice of a page: of its pills, of its boxes, of the orders of its stage."""
    for element in walk(elements):
        if element["t"] in ("pills", "select") and element.get("bound") and element["k"] not in MACHINE:
            for option in element["o"]:
                if option != element["v"]:
                    yield changed(params, element["k"], option, element["d"])
    head = stage_head(elements)
    for n, order in enumerate(head.get("orders", ())):
        yield changed(params, "order", order["name"], order["name"] if n == 0 else "")
    if every := head.get("every"):
        yield changed(params, "steps", "folded" if every["all"] else "all", "folded")


def changed(params: Params, name: str, value: str, default: str | None) -> dict[str, str]:
    """Returns parameters with one value changed; a default is left out. The mode stays the same."""
    rest = {n: v for n, v in params.items() if n != name} | ({} if value == default else {name: value})
    return rest if is_story(rest) == is_story(params) else rest | {VIEW: EXPLORE}


def stage_head(elements: Iterable[Element]) -> Json:
    """Returns the data of a page's stage for the player, without its scene; {} without a stage."""
    for element in walk(elements):
        if element["t"] == "component" and element["name"] == "stage":
            return element.get("data", element)["head"]  # packed, its parts are its own
    return {}


MAX_VALUES = 33  # of a number: one with more is not recorded value by value


def values(params: Params, elements: Iterable[Element]) -> Iterator[dict[str, str]]:
    """Yields the parameters after each other value of the numbers of a page that have few."""
    for element in walk(elements):
        if element["t"] != "number" or not element["bound"] or None in (element["min"], element["max"]):
            continue
        low, high = int(element["min"]), int(element["max"])
        for value in range(low, high + 1) if high - low < MAX_VALUES else ():
            if value != element["v"]:
                default = element["d"]
                yield changed(params, element["k"], str(value), None if default is None else f"{default:g}")


def defaults(elements: Iterable[Element]) -> dict[str, str]:
    """Returns the default of each control of a page that is bound to its URL."""
    found = {}
    for element in walk(elements):
        if element.get("bound") and element["d"] is not None:
            found[element["k"]] = f"{element['d']:g}" if isinstance(element["d"], float) else str(element["d"])
    return found


def outside(key: str, elements: Iterable[Element]) -> list[Element]:
    """Returns the elements without the containers of this key."""
    kept = []
    for element in elements:
        if element.get("k") == key:
            continue
        if element["t"] in ("box", "pop"):
            element = {**element, "c": outside(key, element["c"])}
        kept.append(element)
    return kept


_MARKED = re.compile(r"\[([^\]]*)\]\([/~]?\w+\)")
_TAG = re.compile(r"<[^>]*>")


def unmarked(text: str) -> str:
    """Returns a sentence of a chapter without the marks of its roles, its links and its terms."""
    return _MARKED.sub(r"\1", text)


def about(elements: Iterable[Element]) -> Iterator[tuple[str, str]]:
    """Yields the title of a page with its idea, and each term of the glossary with its meaning."""
    title = ""
    for element in walk(elements):
        if element["t"] != "html":
            continue
        text = element["h"]
        if found := re.search(r'<h1 class="kt-title">(.*?)</h1>', text):
            title = _plain(found[1])
        elif (found := re.search(r'<p class="kt-idea">(.*?)</p>', text, re.DOTALL)) and title:
            yield title, _plain(found[1])
        for term, meaning in re.findall(r"<dt>(.*?)</dt><dd><p>(.*?)</p>", text):
            yield _plain(term), _plain(meaning)


def _plain(html: str) -> str:
    return unescape(_TAG.sub("", html))


_HREF = re.compile(r'href="([^"#:]+)"')
_LESSON = re.compile(r"\[[^\]]*\]\(/(\w+)\)")


def leads(elements: Iterable[Element]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yields the path and the parameters of every link of a page to a page of the app: of its elements, its texts, its
    chapter."""
    for element in walk(elements):
        if element["t"] == "link":
            yield element["to"][0], element["to"][1]
        elif element["t"] == "html":
            yield from map(_split, map(unescape, _HREF.findall(element["h"])))
    chapter = stage_head(elements).get("chapter") or {}
    yield from (_split(href) for _, href in chapter.get("terms", {}).values())
    if onward := chapter.get("onward"):
        yield _split(onward[1])
    for text in chapter.get("text", ()):
        yield from ((path, {VIEW: STORY}) for path in _LESSON.findall(text))


def _split(href: str) -> tuple[str, dict[str, str]]:
    path, _, query = href.partition("?")
    return path.removesuffix("/").removeprefix("."), dict(parse_qsl(query))
