"""Makes two steps of Streamlit 1.67 cheaper that each page takes hundreds of times, without a change of what they do.

* Each number field and text field looks for one key in a copy of the whole session, made for it: of 16 fields in a line
  each copies the values of all the others. Here it looks into the session itself.
* Each message, and each look at the session, asks whether a newer request ends the run: through two locks and an exception
  of a thread that this app does not have. Here the request alone decides.
* Each function is called through another one that asks whether its use is counted, which this app has turned off. Elements
  are called directly here; the others get the answer without a search for it.
* Each look at the state of a component of JavaScript makes a class of its own, which only Python's search for cycles removes:
  two thirds of what that search found. Its purpose is to write to the component's state, which this app does not.
* Each fragment copies the places of all containers around it, several times, by what Python does for any object.
* Each of about one hundred messages of a page wakes the thread that sends them. Here they wait in one queue. The first
  wakes the thread, the next ones follow together after GATHER_S: Streamlit sends at most every 10 ms.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from types import MethodType
from typing import Any

import streamlit as st
from streamlit import config
from streamlit.components.v2.bidi_component import main as bidi_component
from streamlit.cursor import RunningCursor
from streamlit.delta_generator import DeltaGenerator
from streamlit.runtime import metrics_util
from streamlit.runtime.app_session import AppSession
from streamlit.runtime.scriptrunner.script_runner import ScriptRunner
from streamlit.runtime.scriptrunner_utils.script_requests import ScriptRequestType
from streamlit.runtime.state import SessionState
from streamlit.runtime.state.safe_session_state import SafeSessionState

from pages._cheaper_sending import make_sending_cheaper

GATHER_S = 0.005
streamlit_control = ScriptRunner._maybe_handle_execution_control_request
streamlit_presenter = bidi_component.make_bidi_component_presenter


def make_cheaper() -> None:
    SafeSessionState.filtered_state = property(_SessionView)
    AppSession._call_soon_on_event_loop = _call_soon
    RunningCursor.__deepcopy__ = _copied
    bidi_component.make_bidi_component_presenter = _presenter
    ScriptRunner._maybe_handle_execution_control_request = _end_if_outdated
    if not config.get_option("browser.gatherUsageStats"):
        metrics_util.get_script_run_ctx = _no_context
        _call_elements_directly()
    make_sending_cheaper()


def _copied(cursor: RunningCursor, memo: dict[int, Any]) -> RunningCursor:
    """Returns a copy of a place. Its path is a tuple of numbers; a spinner under way has more."""
    made = RunningCursor(cursor._root_container, cursor._parent_path)
    made._index = cursor._index
    if cursor._transient_index is not None:
        made._transient_index = cursor._transient_index
        made._transient_elements = deepcopy(cursor._transient_elements, memo)
    memo[id(cursor)] = made
    return made


def _presenter(presses_id: str, *more: Any) -> Callable[[Any, SessionState], Any]:
    """Returns what shows the state of a component: as it is, unless the reader has pressed something in it."""
    present = streamlit_presenter(presses_id, *more)

    def shown(value: Any, session: SessionState) -> Any:
        pressed = session._new_widget_state.states.get(presses_id)
        is_pressed = pressed is not None and pressed.value is not None
        return present(value, session) if is_pressed else value

    return shown


def _no_context(suppress_warning: bool = True) -> None:
    """Stands for the context of a run where Streamlit counts the use of its functions."""


def _call_elements_directly() -> None:
    """Takes the function that counts the use from before each element: in the class of containers and in `st`."""
    for owner in DeltaGenerator.__mro__:
        for name, found in list(vars(owner).items()):
            if counted := _counted(found):
                setattr(owner, name, counted)
    for name, found in list(vars(st).items()):
        if isinstance(found, MethodType) and (counted := _counted(found.__func__)):
            setattr(st, name, MethodType(counted, found.__self__))


def _counted(found: Any) -> Callable | None:
    """Returns the function whose use is counted by `found`; None if that does not count."""
    code = getattr(found, "__code__", None)
    if code is None or code.co_qualname != "gather_metrics.<locals>.wrapped_func":
        return None
    return dict(zip(code.co_freevars, found.__closure__, strict=True))["non_optional_func"].cell_contents


def _end_if_outdated(runner: ScriptRunner) -> None:
    if runner._requests._state is not ScriptRequestType.CONTINUE:
        streamlit_control(runner)


class _SessionView(Mapping):
    """The values of a session by the keys of its controls, each read at its use."""

    def __init__(self, session: SafeSessionState):
        self._session = session

    def __getitem__(self, key: str) -> Any:
        with self._session._lock:
            return self._session._state[key]

    def __contains__(self, key: object) -> bool:
        with self._session._lock:
            return key in self._session._state

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def _all(self) -> dict[str, Any]:
        with self._session._lock:
            return self._session._state.filtered_state


class _Calls:
    """The calls that wait for the event loop of a session, in their order."""

    def __init__(self):
        self.lock, self.waiting = threading.Lock(), deque()
        self.scheduled = False


def _call_soon(session: AppSession, callback: Callable[[], None]) -> None:
    calls = session.__dict__.setdefault("_kernel_theatre_calls", _Calls())
    with calls.lock:
        calls.waiting.append(callback)
        if calls.scheduled:
            return
        calls.scheduled = True
    _schedule(session, calls)


def _schedule(session: AppSession, calls: _Calls) -> None:
    try:
        session._event_loop.call_soon_threadsafe(_run_all, session, calls)
    except RuntimeError:
        if not session._event_loop.is_closed():
            raise


def _run_all(session: AppSession, calls: _Calls) -> None:
    """Makes the waiting calls, on the event loop. An error in one goes to the loop, and the others follow."""
    with calls.lock:
        if not calls.waiting:
            calls.scheduled = False
            return
    while calls.waiting:
        try:
            calls.waiting.popleft()()
        except BaseException:
            _schedule(session, calls)
            raise
    session._event_loop.call_later(GATHER_S, _run_all, session, calls)
