"""The pages in the Python of a browser: an address that the site does not hold is recorded where it is read.

The same host records the same pages as when the site is built. Only what a browser's Python lacks is replaced: the library
that checks figures, and Numba, whose figures need a processor's clock anyway.
"""

from __future__ import annotations

import json
import math
import sys
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from kernels import engines
from kernels.engines import cpu
from kernels.i18n import tr
from kernels.model.row import Json, Row
from visuals.site import counting
from visuals.site.files import HeldFiles
from visuals.site.host import Element, Host, Switch, install
from visuals.site.pack import Packer

if TYPE_CHECKING:
    import numpy as np


class Recorder:
    """Records addresses. There is one in a browser's Python."""

    def __init__(self) -> None:
        _without_plotly()
        self._counts = counting.install(later=True)
        engines.refusal = lambda *_: ""
        cpu.product_rate = lambda: math.inf  # to measure it takes seconds here
        self.host = Host()
        install(self.host)
        self.host.mounted = self._mounted
        self.files = HeldFiles()
        self.early: Callable[[str], None] | None = None  # gets the page so far, as soon as its stage is drawn
        self._is_early = False

    def record(self, path: str, params: str) -> str:
        """Returns JSON: the page at these parameters (a JSON object) with its files in base64; "to" if it leads to another
        address, "error" if it cannot be drawn. "counting": how many rungs are not counted yet, see `count`."""
        for counts in self._counts:
            counts.left.clear()
        self._is_early = self.early is not None
        try:
            drawn = self.host.record(path, json.loads(params))
        except Switch as away:
            return json.dumps({"to": [away.path, away.params]})
        except Exception as error:  # the reader sees what is wrong; the site goes on
            return json.dumps({"error": _words(error)})
        return self._packed(drawn.params, drawn.elements)

    def _packed(self, params: Mapping[str, str], elements: Sequence[Element]) -> str:
        doc = {"params": dict(params), "c": Packer(self.files).pack(elements)}
        files = {name: b64encode(data).decode() for name, data in self.files.taken().items()}
        return json.dumps({"doc": doc, "files": files, "counting": self._left()})

    def _mounted(self, name: str) -> None:
        """Sends the page so far when its stage is drawn: the cards below it may run kernels in the emulator."""
        if name == "stage" and self._is_early and self.early:
            self._is_early = False
            self.early(self._packed(self.host.now.query, self.host.now.root))

    def count(self) -> str:
        """Counts a rung of the page that was recorded last. Returns JSON: "counting" is how many are left.

        The browser calls it again and again, so that a new shape waits for one rung at most.
        """
        if counts := next((counts for counts in self._counts if counts.left), None):
            counts.count_next()
        return json.dumps({"counting": self._left()})

    def _left(self) -> int:
        return sum(len(counts.left) for counts in self._counts)


def _words(error: Exception) -> str:
    """Returns an error in words."""
    if isinstance(error, TypeError) and any(name in str(error) for name in ("bfloat16", "float8")):
        return tr("it needs numbers in BF16 or FP8, and the package for them, ml_dtypes, does not exist for browsers.")
    return f"{type(error).__name__}: {error}"


# -- figures without Plotly ------------------------------------------------------------------------
class _Figure:
    """A figure as data, as visuals.charts.plain_figure makes it."""

    def __init__(self, *_: object, **__: object):
        self._figure: Json = {"data": [], "layout": {}}

    def to_plotly_json(self) -> Json:
        return self._figure

    def to_json(self) -> str:
        return json.dumps(self._figure, default=_listed)


class _NoFigure(_Figure):
    """A figure that only the library can draw. Takes every call, and stays empty."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *_: object, **__: object) -> _NoFigure:
        return self


def _listed(value: np.ndarray | np.generic) -> object:
    """Returns an array or a number of NumPy as JSON can hold it."""
    return value.tolist()


def _without_plotly() -> None:
    """Puts figures as data where the pages import Plotly from."""

    def drawn(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _NoFigure

    parts: Mapping[str, Row] = {
        "plotly": {},
        "plotly.basedatatypes": {"BaseFigure": _Figure},
        "plotly.graph_objects": {"__getattr__": drawn},
        "plotly.subplots": {"make_subplots": _NoFigure()},
    }
    for name, members in parts.items():
        sys.modules[name] = module = ModuleType(name)
        module.__dict__.update(members)
    for name, module in parts.items():
        if module and "." in name:
            setattr(sys.modules["plotly"], name.partition(".")[2], sys.modules[name])
