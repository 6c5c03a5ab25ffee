"""What a page waits for: counts of the emulator, the progress of a run. pages/_watch.py is the route that tells its news."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from kernels import i18n
from kernels.model.row import Json, Row

PATH = "stage/watch"

Stop = Callable[[], None]


@dataclass(eq=False)
class Watch:
    """Something that a page waits for.

    state: returns it as JSON, "done" in it at the end. It runs in a thread and may wait for the job service.
    listen: calls a function, in any thread, after each change, until the function that it returns is called.
    due_s: returns the seconds until `state` must be called again without a change, if any.
    at_end: whether only the end is news.
    gone: returns whether its page no longer waits for it. It does not wait for anything.
    """

    state: Callable[[], Row]
    listen: Callable[[Callable[[], None]], Stop]
    due_s: Callable[[], float | None] = lambda: None
    at_end: bool = False
    gone: Callable[[], bool] = lambda: False
    language: str = field(default_factory=i18n.language)
    token: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        _watches[self.token] = self

    @property
    def path(self) -> str:
        """Returns the path of its route, without the app's base path."""
        return f"{PATH}/{self.token}"

    def read(self) -> Json:
        with i18n.using(self.language):
            state = self.state()
        text = json.dumps(state, sort_keys=True)
        return {**state, "tag": hashlib.sha256(text.encode()).hexdigest()[:16]}


# A session holds what its page waits for. With the session it is gone from here.
_watches: WeakValueDictionary[str, Watch] = WeakValueDictionary()


def found(token: str) -> Watch | None:
    """Returns what the page of a token waits for; None if the session has ended."""
    return _watches.get(token)
