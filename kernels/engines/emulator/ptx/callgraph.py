"""Which functions of a PTX module need call frames when a kernel runs. All others are inlined at their calls.

A function needs a frame if it calls itself, directly or through others, or if the kernel can call it by pointer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_CALL = re.compile(r"\bcall(?:\.uni)?\s+(?:\([^)]*\)\s*,\s*)?(%?[\w$]+)[^;]*;")
_NAME = re.compile(r"(?<![%\w$.])[A-Za-z_$][\w$]*")
Edges = Mapping[str, Iterable[str]]


def framed(entry: str, bodies: Mapping[str, str], initial: Mapping[str, Iterable[str]]) -> dict[str, bool]:
    """Returns the functions that need frames, callees first, each with whether one thread may be in it twice.

    `bodies`: PTX text of each function; `initial`: symbols in the initial content of each module variable.
    """
    known = {*bodies, *initial}
    called: dict[str, set[str]] = {}
    named: dict[str, set[str]] = {v: set(names) & known for v, names in initial.items()}
    for name, text in bodies.items():
        called[name] = set(_CALL.findall(text))
        named[name] = set(_NAME.findall(_CALL.sub("", text))) & known
    direct = {name: called[name] & set(bodies) for name in bodies}
    reached = _reachable({n: named[n] | direct.get(n, set()) for n in known}, entry) | {entry}
    by_pointer = {n for n in reached if any(c.startswith("%") for c in called.get(n, ()))}
    pointed = {n for r in reached for n in named[r] if n in bodies} - {entry} if by_pointer else set()
    calls = {n: direct[n] | pointed if n in by_pointer else direct[n] for n in bodies}
    needed = pointed | {n for n in _reachable(calls, entry) if n in _reachable(direct, n)}
    return {n: n in _reachable(calls, n) for n in _callees_first(calls, entry) if n in needed}


def _reachable(edges: Edges, start: str) -> set[str]:
    """Returns the names reached from `start` by one edge or more."""
    seen: set[str] = set()
    todo = list(edges[start])
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo.extend(edges[name])
    return seen


def _callees_first(edges: Edges, start: str) -> list[str]:
    """Returns names in post-order of a depth-first search, so that threads in a callee run before those of its
    callers."""
    out: list[str] = []
    seen = {start}
    stack = [(start, iter(sorted(edges[start])))]
    while stack:
        following = next((n for n in stack[-1][1] if n not in seen), None)
        if following is None:
            out.append(stack.pop()[0])
        else:
            seen.add(following)
            stack.append((following, iter(sorted(edges[following]))))
    return out
