"""What a page reads beside its code: the parameters of its URL, its session, its surroundings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kernels.model.row import Row


class Query(dict):
    """The parameters of a URL as text, with the methods of st.query_params that pages call."""

    def __setitem__(self, name: str, value: object) -> None:
        super().__setitem__(name, str(value))

    def update(self, other: Mapping[str, object] = {}, **more: object) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]  # a part of dict's
        for name, value in {**other, **more}.items():
            self[name] = value

    def from_dict(self, params: Row) -> None:
        self.clear()
        self.update(params)

    def to_dict(self) -> dict[str, str]:
        return dict(self)


@dataclass(frozen=True)
class Theme:
    type: str = "light"  # charts are recorded in its colours; the browser replaces them by those of its theme


@dataclass(frozen=True)
class Context:
    """The surroundings of a page that nobody looks at: no browser, so that nothing is put off to a second run."""

    url: None = None
    is_embedded: bool = False
    locale: str = "en"
    theme: Theme = field(default_factory=Theme)


@dataclass(frozen=True)
class RunContext:
    """What a page asks its host about the run it is in."""

    fragment_ids_this_run: tuple[str, ...] = ()
    context_info: None = None  # of a browser
    script_requests: None = None  # which a browser sends


class Rerun(BaseException):
    """Ends a run: the page is to run again."""


class Switch(BaseException):
    """Ends a run: another address is to open."""

    def __init__(self, path: str, params: Mapping[str, str]):
        super().__init__(path)
        self.path, self.params = path, dict(params)
