"""A recorded page as files: what the browser needs first, and what it loads when it is seen."""

from __future__ import annotations

import re
from collections.abc import Iterable

from kernels.model.row import Json
from visuals.site.crawl import MACHINE
from visuals.site.files import Files, plain
from visuals.site.host import Component, Element
from visuals.stage import player

LARGE = 600  # characters of JSON: more is a file of its own, which pages share
SHARED = ("nav", "cards", "kernels", "autotune")  # keys of containers that many pages have in common
COMMON = ("texts", "tokens")  # data for the player that every page has
_STYLE = re.compile(r"<style>:root\{[^}]*\} (.*)</style>", re.DOTALL)


class Packer:
    """Packs the pages of one build. `css` are the rules of the app's theme, `common` the data of all stages."""

    def __init__(self, files: Files):
        self.files = files
        self.css = ""
        self.common: Json = {}

    def pack(self, elements: Iterable[Element]) -> list[Element]:
        """Returns elements that refer to files for what is large: scenes, charts, listings, tables."""
        return list(filter(None, (self._element(element) for element in elements)))

    def _element(self, element: Element) -> Element | None:
        if element["t"] == "html" and (found := _STYLE.fullmatch(element["h"])):
            self.css = found[1]
            return None
        if element["t"] == "pop" and any(inner.get("k") in MACHINE for inner in element["c"]):
            element = element | {"c": _for_reader(element["c"])}
        match element:
            case {"t": "component", "name": "stage"}:
                return self._stage(element)
            case {"t": "component"} if len(text := plain(element["data"])) > LARGE:
                return {n: v for n, v in element.items() if n != "data"} | {"ref": self.files.put(text)}
            case {"t": "code"}:
                code = {"text": element["text"], "language": element.get("language", "")}
                return {"t": "code", "ref": self.files.put_json(code)}
            case {"t": "chart"}:
                height = element["figure"]["layout"].get("height")
                return {
                    "t": "chart",
                    "k": element["k"],
                    "height": height,
                    "ref": self.files.put_json(element["figure"]),
                }
            case {"t": "tabs"}:
                return element | {"c": [self._part(self.pack(part)) for part in element["c"]]}
            case {"c": children}:
                packed = element | {"c": self.pack(children)}
                return (
                    {"t": "ref", "k": element["k"], "ref": self.files.put_json(packed)}
                    if element.get("k") in SHARED
                    else packed
                )
        return element

    def _part(self, elements: list[Element]) -> list[Element]:
        """Returns the elements of a tab as one that is loaded when the tab is opened."""
        return [{"t": "ref", "ref": self.files.put_json({"t": "box", "c": elements})}]

    def _stage(self, element: Element) -> Element:
        """Returns the element of a stage. Its scene is a file: the JSON of its parts, its length before it, and the block."""
        data = element["data"]
        head = dict(data["head"])
        self.common |= {name: head.pop(name) for name in COMMON}
        meta = plain(data["meta"]).encode()
        scene = len(meta).to_bytes(4, "little") + meta + data["block"]
        found = {n: v for n, v in element.items() if n != "data"}
        return found | {"head": head, "strip": data["strip"], "scene": self.files.put(scene)}


def _for_reader(elements: Iterable[Element]) -> list[Element]:
    """Returns the options of a page without how the machine measures, which is no choice on the site."""
    kept = [element for element in elements if element.get("k") not in MACHINE]
    captions = [element for element in kept if element["t"] == "caption"]
    return [element for element in kept if element not in captions[:1]]  # the first is about the machine's GPU


def pack_component(files: Files, component: Component) -> Json:
    """Returns what the browser needs to mount a component, its script as a file. The stage's is the player itself: the
    app's small loader would ask the app's server for it."""
    js = player() if component.name == "stage" else component.js
    return {"js": files.put(js), "html": component.html, "css": component.css, "isolated": component.isolated}
