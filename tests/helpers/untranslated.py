"""Finds sentences in source files that do not go through gettext."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from babel.messages.extract import extract
from babel.messages.jslexer import tokenize, unquote_string

from visuals.stage.texts import FUNCTIONS

TRANSLATING = {"tr", "trn", "mark", "Say", "step"}
# Errors for programmers, options of a command line, and calls whose texts are names of things.
FOR_PROGRAMMERS = {
    "SceneError", "ValueError", "AttributeError", "add_argument", "TypeError", "KeyError", "AssertionError", "RuntimeError", "NotImplementedError", "ViewError", "ExpressionError", "MarkError",
    "compile", "sub", "match", "search", "fullmatch", "findall", "finditer", "split", "partition", "rpartition",
    "splitlines", "startswith", "endswith", "removeprefix", "removesuffix", "strip", "lstrip", "rstrip", "find", "index",
    "open", "getLogger", "TypeVar", "only", "getattr", "Work",
}  # fmt: skip
# Calls whose options are no sentences: of a command line, marks in a source.
WITH_OPTIONS = {"add_argument", "step"}
TAG = re.compile(r"<[^<>]*>|<[^<>]*$|^[^<>]*>")
SENTENCE = re.compile(r"(?<![\w-])[A-Za-z]{2,}[,;:]? [A-Za-z]{2,}(?![\w-])|(?<![\w-])[A-Za-z]{2,}[.:] *$")
# In JavaScript: tags and substitutions of a template, the app's name and fonts, the first text of a call.
SUBSTITUTED = re.compile(r"<[^<>]*>|\$\{[^}]*\}")
SYNTAX = re.compile(r"Kernel Theatre|px")
MESSAGE = re.compile(rf"\b(?:{'|'.join(FUNCTIONS)})\(\s*\"((?:[^\"\\]|\\.)*)\"")
LABELS = {"label", "help", "text", "title", "placeholder", "caption", "label_visibility"} - {"label_visibility"}


def untranslated(path: Path) -> list[tuple[int, str]]:
    """Returns (line, text) of each literal that reads like a sentence and is not an argument of tr, trn or mark.

    Docstrings, errors for programmers, keys of dicts, compared texts, arguments of re and CSS do not count.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    exempt = {id(node) for root in _exempt(tree) for node in ast.walk(root)}
    keys = {
        key.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Dict)
        for key in node.keys
        if isinstance(key, ast.Constant) and isinstance(key.value, str)
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in exempt:
            text = TAG.sub(" ", node.value)
            if node.value not in keys and SENTENCE.search(text) and not _is_code(text):
                found.append((node.lineno, node.value))
    return sorted({*found, *_not_extracted(tree)})


def _not_extracted(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yields the texts that Babel does not find: before Python 3.12 an f-string is one token, calls in it included."""
    for outer in ast.walk(tree):
        if isinstance(outer, ast.JoinedStr):
            for node in ast.walk(outer):
                if isinstance(node, ast.Call) and _name(node.func) in TRANSLATING and _constants(node):
                    yield node.lineno, f"within an f-string: {node.args[0].value}"


def _constants(call: ast.Call) -> bool:
    return bool(call.args) and isinstance(call.args[0], ast.Constant)


def _exempt(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            yield node.body[0]
        elif isinstance(node, ast.Call) and (_name(node.func) in TRANSLATING or _name(node.func) in FOR_PROGRAMMERS):
            yield from node.args
            yield from (option.value for option in node.keywords if _name(node.func) in WITH_OPTIONS)
        elif isinstance(node, ast.Compare):
            yield node
        elif isinstance(node, ast.Dict):
            yield from (key for key in node.keys if key is not None)
        elif isinstance(node, ast.Subscript):
            yield node.slice
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node


def _name(function: ast.expr) -> str:
    return getattr(function, "id", getattr(function, "attr", ""))


def _is_code(text: str) -> bool:
    """Returns whether a text is CSS, code or a list of names rather than a sentence."""
    return bool(re.search(r"[{};]\s*$|[a-z-]+: [^.]*;|==|\+=|->|\bextern\b|\bconst\b|\bnew [A-Z]\w*\(", text))


def untranslated_in_script(path: Path) -> list[tuple[int, str]]:
    """Returns (line, text) of each literal of a JavaScript module that reads like a sentence and is not a message. Line 0
    is of messages that Babel does not find: one within the arguments of another, or within a template."""
    code = path.read_text(encoding="utf-8")
    tokens = [token for token in tokenize(code, jsx=False) if "comment" not in token.type]
    found = []
    for n, token in enumerate(tokens):
        if token.type in ("string", "template_string") and not _is_message(tokens, n):
            text = unquote_string(token.value)
            if SENTENCE.search(SUBSTITUTED.sub(" ", text)) and not _is_script_code(tokens, n, text):
                found.append((token.lineno, text))
    return sorted([*found, *_not_extracted_in_script(path, code)])


def _not_extracted_in_script(path: Path, code: str) -> Iterator[tuple[int, str]]:
    with path.open("rb") as file:
        messages = [message for _, message, *_ in extract("javascript", file, keywords=FUNCTIONS)]
    known = tuple(message if isinstance(message, str) else message[0] for message in messages)
    for text in MESSAGE.findall(code):
        if not any(message.startswith(text) for message in known):
            yield 0, f"not extracted: {text}"


def _is_message(tokens: list, n: int) -> bool:
    """Returns whether text n is an argument of a translating function, maybe after other texts and pluses."""
    while n >= 1 and (tokens[n].type == "string" or tokens[n].value in ("+", ",")):
        n -= 1
    return tokens[n].value == "(" and tokens[n - 1].value in FUNCTIONS


def _is_script_code(tokens: list, n: int, text: str) -> bool:
    """Returns whether text n is a list of names, CSS or a font."""
    names = [token.value for token in tokens[n + 1 : n + 3]] == [".", "split"]
    return names or _is_code(text) or bool(SYNTAX.search(text))
