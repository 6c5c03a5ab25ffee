"""Each statement of a line has a line number of its own in the build for watching."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from kernels.engines.emulator.watch.statements import PART, spread, statements
from tests.helpers.offenders import every


def pieces(line: str) -> list[str]:
    """Returns the parts of a line, without the numbers between them."""
    return [part.strip() for part in re.split(r"\n#line \d+\n", spread(line).removesuffix("\n#line 2")) if part.strip()]


@every(
    "line, parts",
    [
        ("for (int i = 0; i < n; ++i) sum += x[i];", ["for (int i = 0; i < n; ++i)", "sum += x[i];"]),
        ("if (a) b(); else c();", ["if (a)", "b(); else", "c();"]),
        ("if (a) { b(); } else if (d) c();", ["if (a) {", "b(); } else if (d)", "c();"]),
        ("while (i--) { a[i] = 0; b[i] = 1; }", ["while (i--) {", "a[i] = 0;", "b[i] = 1; }"]),
        ("for (;;) for (int j : x) f(j);", ["for (;;)", "for (int j : x)", "f(j);"]),
        ("do ++i; while (i < 3);", ["do", "++i;", "while (i < 3);"]),
        ("a = 1, b = 2;", ["a = 1, b = 2;"]),
        ("float m = {1, 2}; return {m, 3};", ["float m = {1, 2};", "return {m, 3};"]),
        ("s = \"a; b\"; c = ';';", ['s = "a; b";', "c = ';';"]),
        ("a(); // b(); c();", ["a(); // b(); c();"]),
        ("a(); /* b(); */ c();", ["a(); /* b(); */", "c();"]),
        ("f([&] { return 1; }); g();", ["f([&] { return 1; });", "g();"]),
        ("if constexpr (N > 1) f();", ["if constexpr (N > 1)", "f();"]),
        ("#define F(x) for (;;) x;", ["#define F(x) for (;;) x;"]),
        ("switch (a) { case 1: b(); }", ["switch (a) {", "case 1: b(); }"]),
    ],
)
def test_parts_of_a_line(line, parts):
    assert pieces(line) == parts


def test_numbers_of_lines_go_on():
    text = 'a();\nfor (;;) b();\nc();\n#line 1 "other.cuh"\nif (d) e();\nf();'
    assert spread(text).split("\n") == [
        "a();",
        "for (;;) ",
        f"#line {PART + 2}",
        "b();",
        "#line 3",
        "c();",
        '#line 1 "other.cuh"',
        "if (d) ",
        f"#line {PART + 1}",
        "e();",
        "#line 2",
        "f();",
    ]


def test_a_reference_follows_shared_arrays():
    text = "__shared__ float a[BM][BK + 1], b[8]; __shared__ __align__(16) Tile<4> tiles[2];\nextern __shared__ char all[];"
    first, number, second, _, third = spread(text).split("\n")
    assert first.strip() == "__shared__ float a[BM][BK + 1], b[8]; auto& watched_a = a; auto& watched_b = b;"
    assert (number, second) == (
        f"#line {PART + 1}",
        "__shared__ __align__(16) Tile<4> tiles[2]; auto& watched_tiles = tiles;",
    )
    assert third == "extern __shared__ char all[]; auto& watched_all = all;"


@given(st.text("ab;(){}[]=,\"' \n", max_size=60))
def test_nothing_is_lost(text):
    lines = [line for line in spread(text).split("\n") if not line.startswith("#line")]
    assert "".join(lines) == text.replace("\n", "")


def test_the_statements_of_a_line():
    assert statements("  for (int i = 0; i < n; ++i) sum += x[i];") == ["for (int i = 0; i < n; ++i)", "sum += x[i];"]
    assert statements("a();") == ["a();"] and statements("") == [""]
