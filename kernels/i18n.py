"""The app's texts in the reader's language, by gettext. English is the source; a translation is one .po file in locale/.

* `tr("{title} takes {time}.", title=..., time=...)` translates a sentence and fills the named fields. Numbered fields,
  {0}, stay: a scene fills them at each step.
* `trn("{n} block", "{n} blocks", n)` chooses the plural form for n and fills {n}.
* `mark("a sentence")` marks a constant for extraction. It is translated where it is shown, by `tr(NAME)`.

A language is chosen per reader: `follow` gets a function that returns the language of the current reader. Caches of
translated things are `cached`, which keeps one cache for each language.

Babel extracts the texts of Python, of the player's JavaScript and of its HTML: `make texts` writes
locale/kernel_theatre.pot. The player gets its texts with the scene (visuals/stage/texts.py).
"""

from __future__ import annotations

import gettext
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, lru_cache, wraps
from io import BytesIO
from pathlib import Path
from typing import ParamSpec, TypeVar

from kernels.model.row import Json

SOURCE = "en"
FOLDER = Path(__file__).parents[1] / "locale"
_FIELD = re.compile(r"\{([A-Za-z_]\w*)\}")


def _source_language() -> str:
    return SOURCE


_current: Callable[[], str] = _source_language


def follow(current: Callable[[], str]) -> None:
    """Takes the language of each text from `current()`, one of `languages()`."""
    global _current
    _current = current


@contextmanager
def using(name: str) -> Iterator[None]:
    """Shows all texts in one language while it is open: for a request that belongs to no reader's session."""
    token = _chosen.set(name)
    try:
        yield
    finally:
        _chosen.reset(token)


_chosen: ContextVar[str | None] = ContextVar("language", default=None)


def language() -> str:
    """Returns the language of the current reader: "en", "fr", "pt_BR"."""
    return _chosen.get() or _current()


@cache
def languages() -> tuple[str, ...]:
    """Returns the languages that the app can show: English and one for each .po file."""
    return SOURCE, *sorted(path.stem for path in FOLDER.glob("*.po"))


def best_language(wished: str | None) -> str:
    """Returns the language that fits a wish such as "fr-CA" best: its own, else its first part, else English."""
    name = (wished or "").replace("-", "_")
    return next((known for known in (name, name.partition("_")[0]) if known in languages()), SOURCE)


def tr(message: str, **fields: object) -> str:
    """Returns the message in the reader's language, with its named fields filled."""
    if not message:
        return ""
    name = language()
    return _fill(message if name == SOURCE else _catalog(name).gettext(message), fields)


def trn(one: str, many: str, n: int, **fields: object) -> str:
    """Returns the form of the message for the number n, with its named fields and {n} filled."""
    return _fill(_catalog(language()).ngettext(one, many, n), {"n": decimal(f"{n:,}")} | fields)


def mark(message: str) -> str:
    """Returns the message unchanged. It is extracted for translation."""
    return message


def tr_filled(text: str, messages: Mapping[str, str]) -> str:
    """Returns the translation of a text that was filled some time ago and stored: a figure's origin in a recording.

    `messages`: the template that the text was filled from -> the message that says the same now, with the same named
    fields. A text of no template is a message itself.
    """
    for template, message in messages.items():
        if found := _pattern(template).fullmatch(text):
            return tr(message, **found.groupdict())
    return tr(text)


def decimal(text: str) -> str:
    """Returns an English number, "1,234.5", with the separators of the reader's language."""
    if (chosen := language()) == SOURCE:
        return text
    return text.translate(_separators(chosen))


P = ParamSpec("P")
R = TypeVar("R")


def cached(maxsize: int) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Returns a decorator like functools.lru_cache for results that hold texts: the language is part of the key."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @lru_cache(maxsize=maxsize)
        def of_language(_: str, *args: P.args, **kwargs: P.kwargs) -> R:
            return function(*args, **kwargs)

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            return of_language(language(), *args, **kwargs)

        vars(call).update(cache_clear=of_language.cache_clear, cache_info=of_language.cache_info)
        return call

    return decorate


def browser_catalog(messages: Iterable[str | tuple[str, str]]) -> Json:
    """Returns what a player in the browser needs to show these messages in the reader's language.

    A message with plural forms is (one, many). Returns "language", as HTML names it; "texts", the translation of each
    translated message, or the list of its plural forms under the first of them; "plural", the digits of the form for
    n = 0..199. (Plural rules depend on n up to 99, beyond on n mod 100. The browser cannot run them: they are code.)
    """
    catalog = _catalog(language())
    plural = [catalog.plural(n) for n in range(200)] if isinstance(catalog, gettext.GNUTranslations) else []  # pyright: ignore[reportAttributeAccessIssue]  # set by its parser, not in the stubs
    texts: dict[str, str | list[str]] = {}
    for message in messages:
        if isinstance(message, str):
            if (text := catalog.gettext(message)) != message:
                texts[message] = text
            continue
        forms = [
            catalog.ngettext(*message, plural.index(k)) if k in plural else ""
            for k in range(max(plural, default=0) + 1)
        ]
        if not set(forms) <= {*message, ""}:
            texts[message[0]] = forms
    return {"language": language().replace("_", "-"), "texts": texts, "plural": "".join(map(str, plural))}


def _fill(text: str, fields: dict[str, object]) -> str:
    return _FIELD.sub(lambda m: str(fields[m[1]]) if m[1] in fields else m[0], text) if fields else text


@cache
def _pattern(template: str) -> re.Pattern[str]:
    """Returns the pattern of the texts that a template gives."""
    return re.compile(
        _FIELD.sub(lambda m: f"(?P<{m[1]}>.+)", re.escape(template).replace(r"\{", "{").replace(r"\}", "}"))
    )


@cache
def _catalog(name: str) -> gettext.NullTranslations:
    """Returns the translations of a language. Babel compiles the .po file in memory."""
    if name == SOURCE:
        return gettext.NullTranslations()
    from babel.messages import mofile, pofile

    compiled = BytesIO()
    with (FOLDER / f"{name}.po").open("rb") as file:
        mofile.write_mo(compiled, pofile.read_po(file, locale=name))
    compiled.seek(0)
    return gettext.GNUTranslations(compiled)


@cache
def _separators(name: str) -> dict[int, str]:
    from babel.numbers import get_decimal_symbol, get_group_symbol

    return str.maketrans({",": get_group_symbol(name), ".": get_decimal_symbol(name)})
