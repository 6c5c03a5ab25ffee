"""The URL parameters as a page reads and writes them."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from types import ModuleType
from typing import NamedTuple, NoReturn

import streamlit as st

from pages.parts import address, links, sizes
from pages.parts.address import Fields, Value, Values

NOW = "_asked_now"  # what the page's last run read from the URL: pairs of Fields and their values
_CHAPTER = "_set_by_chapter"
_NUMBER = "_chapter_number"  # the number of the chapter in the URL, of this run of a lesson with a story
_PAGE = "_page"  # the URL path of the page of the last run
_MODE, _LAST_MODE = "_mode", "_last_mode"  # of this run, and of the run before on the same page: a `_Mode`
# Choices that some pages or kernels lack. A link to another kernel keeps the order; the engines depend on the machine.
_ELSEWHERE = {
    "order": (
        "explaining",
        "warps",
        "tiled",
        "map",
        "timeline",
        "library",
        "fragments",
        "ring",
        "swizzle",
        "accumulator",
    ),
    "engine": ("cuda", "emulator", "cpu"),
}
_WRONG = "_wrong_choices"  # of this run: notes on values of the URL, by name
_FIXED = (*address.STAGE, address.CHAPTER)
# By parameter: the value of its control as the browser sent it, and the value that the page shows; and the parameters
# that this run has not read yet.
_CONTROLS, _UNREAD = "_controls", "_unread_controls"
_URL = "_url_of_last_run"  # its parameters
_WRITTEN = "_written_url"  # the parameters before and after what a run has written, and when: time.monotonic()
_LATE_S = 5.0  # after that a browser has the URL that a run has written
_STAYS = "_stays_in_explore"  # whether this run is of Explore, though its URL would open the story


class _Mode(NamedTuple):
    """The mode of a run: the lesson, whether it was the story, whether the URL named its mode, whether this module did so."""

    lesson: str
    story: bool
    named: bool
    added: bool = False


def begin_page(page: str) -> None:
    """Forgets what the last run took from its URL and its chapter. If it was of another page, its mode too."""
    state = st.session_state
    state[NOW], state[_STAYS] = [], False
    state.pop(_CHAPTER, None)
    state.pop(_WRONG, None)
    state.pop(_NUMBER, None)
    last = state.pop(_MODE, None)  # None if the last run was cut off before it knew its mode
    if page != state.get(_PAGE):
        state[_LAST_MODE] = None
        state[_CONTROLS] = {}
        state.pop(_WRITTEN, None)
        sizes.forget()
        links.forget()
    elif last:
        state[_LAST_MODE] = last
    _correct_url(page)
    state[_PAGE] = page
    state[_UNREAD] = set(state.setdefault(_CONTROLS, {}))
    _note_url()


def _correct_url(page: str) -> None:
    """Corrects the URL of a link that was drawn before the last change of a control, as `links.pressed` says, and that of
    requests, such as a timer's, which the browser sent before it had what a press has written.

    After Back it sends the browser the URL of this run: what the run before has written may have come after Back."""
    if not in_browser():
        return
    if _request().is_back():
        if page == st.session_state.get(_PAGE):  # else the browser's script restores it (_navigation.js)
            st.query_params.update({})
        return
    given = st.query_params.to_dict()
    before, after, at = st.session_state.get(_WRITTEN, (None, given, 0.0))
    is_late = given == before and time.monotonic() - at < _LATE_S
    found = after if is_late else links.pressed(given, st.session_state.get(_URL, given), _FIXED)
    if found != given:
        _request().put_into_url(dict.fromkeys(given, "") | found)
        st.query_params.update({})  # sends it to the browser


def _note_url() -> None:
    st.session_state[_URL] = st.query_params.to_dict()


def follow_link(key: str, shown: Hashable) -> None:
    """Shows a link to another part of this page in the browser's URL: Streamlit sends the URL only if a run touches it.

    `shown` is what the run shows of the page, `key` the name under which the session keeps it.
    """
    if st.session_state.get(key, shown) != shown:
        st.query_params.update({})
    st.session_state[key] = shown


# -- the mode of a lesson ------------------------------------------------------------------------
def is_story() -> bool:
    """Returns whether the URL opens the story of a lesson."""
    stays = st.session_state.get(_STAYS, False)
    return not stays and address.opens_story(st.query_params, bool(st.context.is_embedded))


def keep_mode(lesson: str) -> None:
    """Keeps a lesson in Explore when its URL loses the last parameter, because a control got its default value.

    Also shows in the browser's URL that a link led to the other mode.
    """
    state, names = st.session_state, {address.VIEW, address.CHAPTER}
    last, named, added = state.get(_LAST_MODE), bool(names & set(st.query_params)), False
    if last and last.lesson == lesson and not last.story and not named and is_story():
        if last.added:  # the browser sent this before it had the URL that names the mode
            state[_STAYS] = added = True
        elif not last.named:
            st.query_params[address.VIEW] = address.EXPLORE
            added = True
    if last and not added and last[:2] == (lesson, not is_story()):
        st.query_params.update({})
    state[_MODE] = _Mode(lesson, is_story(), named, added)
    state[_NUMBER] = _number()


def _number() -> str:
    """Returns the number of the chapter in the URL, which opens the first one without it."""
    return st.query_params.get(address.CHAPTER, "1")


def explored(params: Mapping[str, str]) -> dict[str, str]:
    """Returns the parameters of a link to a lesson's controls. Without any, the link would open the story."""
    return {**params, address.VIEW: address.EXPLORE} if address.opens_story(params) else dict(params)


def write(name: str, value: str) -> None:
    """Writes a parameter to the URL of a lesson; "" removes it. The mode of the lesson stays the same."""
    story = is_story()
    before = st.query_params.to_dict()
    if value:
        st.query_params[name] = value
    else:
        st.query_params.pop(name, None)
    st.session_state[_WRITTEN] = before, st.query_params.to_dict(), time.monotonic()
    st.query_params.update(_mode_to_name(story, st.query_params))
    _note_url()


def _mode_to_name(story: bool, params: Mapping[str, str]) -> dict[str, str]:
    """Returns the parameter that names the mode, if a URL of these parameters would open the other one."""
    same = address.opens_story(params, bool(st.context.is_embedded)) == story
    return {} if same else {address.VIEW: address.STORY if story else address.EXPLORE}


# -- reading the URL -----------------------------------------------------------------------------
def _take_change(name: str, default: Value) -> None:
    """Puts a value that the reader has just set into the URL of this run, if it is not there.

    The browser can send a change with the URL from before it: Streamlit sends its own copy of the URL, which it updates
    later than the control. The control would get its old value back. After Back the URL is the newer one. `default`: of a URL
    without the parameter.
    """
    state = st.session_state
    controls, value = state.setdefault(_CONTROLS, {}), state.get(name)
    sent, shown = controls.get(name, (value, value))
    if name in state.setdefault(_UNREAD, set()):
        state[_UNREAD].discard(name)
        controls[name] = value, shown
    if value in (None, sent, shown) or not in_browser():
        return
    if _request().is_back():
        controls[name] = None, shown  # the reader may set the same value again
        return
    controls[name] = value, value
    if url_values().get(name, address.text(default)) != address.text(value):
        _request().put_into_url({name: address.text(value)})  # the browser has it already
        _note_url()


def _shows(name: str, value: object) -> None:
    """Keeps the value that this run shows of a parameter."""
    controls = st.session_state.setdefault(_CONTROLS, {})
    controls[name] = controls.get(name, (st.session_state.get(name),))[0], value


def set_by_chapter(params: Mapping[str, str]) -> None:
    """Takes parameters that the URL may leave out: those of the open chapter, none without a chapter."""
    st.session_state[_CHAPTER] = dict(params)


def url_values() -> dict[str, str]:
    """Returns the URL's parameters, and those of the open chapter that the URL leaves out."""
    return {**st.session_state.get(_CHAPTER, {}), **st.query_params.to_dict()}


Follow = Callable[[Values, Values], Values]


def _unchanged(previous: Values, values: Values) -> Values:
    return values


def in_browser() -> bool:
    """Returns whether a browser shows the page. Without one (tests) the controls are ahead of the URL."""
    return st.context.url is not None


def _request() -> ModuleType:
    """Returns the module that reads Streamlit's request. The site has no Streamlit."""
    from pages.streamlit_patches import request

    return request


def current_values(fields: Fields, visible: bool, follow: Follow = _unchanged) -> tuple[Values, list[str]]:
    """Returns the current values of the parameters, and a note for each one that is not valid.

    In a browser they come from the URL. Without a browser (tests) they come from the controls if these have changed.
    `visible`: the controls are drawn. `follow(previous, values)` changes values that follow from a change by the reader.
    """
    state, key = st.session_state, f"_asked_{fields.lesson}"
    for name in fields.by_name:
        _take_change(name, fields.defaults[name])
    given = {name: value for name, value in url_values().items() if name in fields.by_name}
    widget_values = {name: state.get(name) for name in fields.by_name}
    previous = state.get(key)  # of the last run
    changed = (
        visible
        and previous is not None
        and any((widget_values[n] if n in widget_values else state.get(n)) != v for n, v in previous["values"].items())
    )
    values, notes = fields.read(widget_values if changed and not in_browser() else given)
    if visible and previous:
        values = follow(previous["values"], values)
    if previous is None:
        if notes:  # one entry in the browser's history; the controls would each add their own
            others = {k: v for k, v in st.query_params.items() if k not in fields.by_name}
            kept = others | fields.write(values)
            has_story = _CHAPTER in st.session_state
            st.query_params.from_dict(kept | (_mode_to_name(is_story(), kept) if has_story else {}))
    elif values == previous["values"]:
        notes = notes or previous["notes"]
    elif not changed:
        # A link led to this same page: update the browser's URL, so that Back can return to it.
        # This sends the parameters of this run; after Back the URL already has them.
        st.query_params.update({})
    for name, value in values.items():
        _shows(name, value)
        if visible and widget_values[name] != value:
            state[name] = value
    state[key] = {"values": values, "notes": notes}
    state.setdefault(NOW, []).append((fields, values))
    return values, notes


def rerun(*written: str) -> NoReturn:
    """Runs the page again. `written`: the parameters that this run has written to the URL.

    If the browser has sent a change since this run began, its request runs the page. st.rerun would combine that change
    with the URL of this run, so that the control gets its old value back. The browser may have sent its request before it
    had what this run has written, so that is put into the URL of the request.
    """
    if in_browser():
        _request().end_for_waiting({name: st.query_params.get(name, "") for name in written})
    st.rerun()


def url_is_stale() -> bool:
    """Returns whether a polling fragment must not rerun the page now but wait for its next poll.

    This is so if its URL differs from the page's, also in the chapter alone. It is also so if another fragment is still to
    run, in which a button may have been pressed.
    """
    if not in_browser():
        return False
    given = url_values()
    url_changed = st.session_state.get(_NUMBER, _number()) != _number() or any(
        fields.read(given)[0] != values for fields, values in st.session_state.get(NOW, ())
    )
    return url_changed or _request().has_other_fragments()


def chosen(name: str, choices: Iterable[str]) -> str:
    """Returns the URL's value of `name` if it is one of `choices`, else the first of them.

    The URL is read and not the control, because a control in a closed popover misses changes by a link or Back.
    """
    choices = tuple(choices)
    _take_change(name, choices[0])
    in_url = in_browser() or name not in st.session_state  # without a browser a control is ahead of the URL
    value = url_values().get(name) if in_url else st.session_state.get(name)
    if value and value not in choices and value not in _ELSEWHERE.get(name, ()):
        wrong_value(name, value, choices)
    value = value if value in choices else choices[0]
    _shows(name, value)
    return value


def wrong_value(name: str, value: str, choices: Iterable[str]) -> None:
    """Keeps a value of the URL that is none of its choices for `wrong_choices`; the first choice is used then."""
    note_on(name, address.choice_notes(name, value, tuple(choices)))


def note_on(name: str, notes: Iterable[str]) -> None:
    """Keeps notes on a value of the URL for `wrong_choices`."""
    st.session_state.setdefault(_WRONG, {})[name] = tuple(notes)


def wrong_choices() -> list[str]:
    """Returns a note for each value of the URL that `chosen` did not find among its choices in this run."""
    return [note for notes in st.session_state.get(_WRONG, {}).values() for note in notes]


def others(fields: Fields) -> dict[str, str]:
    """Returns the URL parameters that links keep: neither the lesson's own nor the moment of the stage. A link leads out
    of a chapter, to Explore."""
    left_out = {*fields.by_name, *address.STAGE, address.CHAPTER}
    kept = {k: v for k, v in url_values().items() if k not in left_out}
    return kept | ({address.VIEW: address.EXPLORE} if _CHAPTER in st.session_state and is_story() else {})
