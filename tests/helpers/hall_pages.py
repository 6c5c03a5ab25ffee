"""What the hall serves of pages, in a process of its own: there the pages do not draw with Streamlit."""

from __future__ import annotations

import json
from base64 import b64decode
from gzip import decompress
from pathlib import Path
from typing import Any

from hall import pages as hall_pages
from kernels.engines import cpu
from kernels.jobs.worker import Worker
from tests.helpers import shared_recordings

RATE = 1e10  # FLOP/s of this processor, as both sides take it: it is not measured
AGO = ""  # since a run: a minute may pass between the two sides
SESSION = "0" * 32


def begin(site: Path) -> None:
    cpu.product_rate = lambda: RATE
    shared_recordings.install()
    hall_pages.begin(site)
    hall_pages._counting = lambda state: ""  # nothing is counted while pages are compared
    from pages.parts import run_settings

    run_settings.RunResult.ago = AGO


def page(path: str, params: dict[str, str]) -> dict[str, Any]:
    """Returns the parts of a page as a browser of the hall puts them together: of its stage, its texts."""
    answer = json.loads(decompress(hall_pages.call("page", SESSION, path, params)))
    files = {name: b64decode(data) for name, data in answer["files"].items()}
    return parts(answer["doc"]["c"], files)


def parts(elements: list, files: dict[str, bytes]) -> dict[str, Any]:
    found: dict[str, Any] = {"texts": [], "strip": None, "chapter": None, "meta": None, "block": b""}
    _collect(elements, files, found)
    return found


def _collect(elements: list, files: dict[str, bytes], found: dict[str, Any]) -> None:
    for element in elements:
        if isinstance(element, list):
            _collect(element, files, found)
            continue
        match element:
            case {"t": "html", "h": text} if not text.startswith("<style"):
                found["texts"].append(text)
            case {"t": "component", "scene": scene, "head": head, "strip": strip}:
                file = files[scene]
                length = int.from_bytes(file[:4], "little")
                found |= {"strip": strip, "chapter": head.get("chapter")}
                found |= {"meta": json.loads(file[4 : 4 + length]), "block": file[4 + length :]}
            case {"t": "tabs", "front": front, "c": tabs}:
                _collect(tabs[front], files, found)  # the app draws no others
                continue
            case {"t": "component", "name": "live"}:
                found["texts"].append((element.get("data") or json.loads(files[element["ref"]]))["html"])
            case {"t": "ref", "k": "nav"}:
                continue
            case {"t": "ref", "ref": ref}:
                _collect([json.loads(files[ref])], files, found)
                continue
        _collect(element.get("c", []), files, found)


def run(path: str, params: dict[str, str], key: str) -> list[list[dict]]:
    """Presses Run on a stage, and gives the page what a worker in this process measures. Returns the rows of each job."""
    worker, measured = Worker(), []
    pressed = hall_pages.call("press", SESSION, path, params, key, {"do": "run", "size": "stage"})
    while pressed.submitted:
        (submitted,) = pressed.submitted
        rows = worker.submit(submitted.request).result(240)
        measured.append(rows)
        pressed = hall_pages.call("finish", SESSION, path, params, submitted.number, rows, "", 0.0)
    worker.close()
    return measured
