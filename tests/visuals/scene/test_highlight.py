"""The kinds of words of CUDA, and that runs cover the whole source."""

import re
import subprocess
import sys
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels import sources
from visuals.scene.highlight import KINDS, runs

SOURCES = [*map(sources.file, sources.paths())]
WORDS = {
    "keyword": "extern const for if return struct inline __global__ __device__ __shared__ __restrict__"
    " __syncthreads __shfl_down_sync",
    "type": "void bool int float size_t",
    "builtin": "threadIdx blockIdx blockDim",
}


def kinds(text):
    """Returns the kind of each character."""
    return [KINDS[kind] for kind, length in runs(text) for _ in range(length)]


def kinds_of(text, word):
    """Returns the kinds of a word's characters outside comments, strings and directives."""
    found = kinds(text)
    kinds_at = [found[m.start() : m.end()] for m in re.finditer(rf"\b(?:{word})\b", text)]
    return {kind for part in kinds_at for kind in part} - {"comment", "string", "directive"}


def check_runs_cover(text):
    found = runs(text)
    assert sum(length for _, length in found) == len(text)
    assert all(length > 0 and 0 <= kind < len(KINDS) for kind, length in found)
    assert all(a[0] != b[0] for a, b in pairwise(found)), "equal neighbours are one run"


def test_sources_exist():
    assert len(SOURCES) > 10


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_runs_cover_every_source(path):
    text = path.read_text()
    check_runs_cover(text)
    assert max(text) <= "\uffff"  # so that Python and the browser count characters alike


@pytest.mark.parametrize(("kind", "word"), [(kind, w) for kind, ws in WORDS.items() for w in ws.split()])
def test_words_of_the_kernels_have_their_kind(kind, word):
    found = set().union(*(kinds_of(path.read_text(), word) for path in SOURCES))
    assert found == {kind}


@pytest.mark.parametrize(("kind", "mark"), [("comment", r"//[^\n]*"), ("string", r'"C"')])
def test_comments_and_strings_of_the_kernels(kind, mark):
    for path in SOURCES:
        text = path.read_text()
        found = kinds(text)
        for m in re.finditer(mark, text):
            assert set(found[m.start() : m.end()]) == {kind}, (path.name, m.group())


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_plain_names_and_numbers_have_no_kind(path):
    text = path.read_text()
    assert kinds_of(text, r"\d+(?:\.\d+f)?|[A-Z]|x|y|row|col|atomicAdd") <= {""}


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("keyword", "__launch_bounds__ __constant__ __forceinline__ __syncwarp template true nullptr"),
        ("type", "half half2 __half float4 dim3 uint32_t unsigned"),
        ("builtin", "gridDim warpSize"),
        ("", "printf halfway int_of float4s"),
    ],
)
def test_words_that_no_kernel_uses_yet(kind, words):
    for word in words.split():
        assert kinds_of(f"void f() {{ g({word}, {word}); }}", word) == {kind}, word


def test_directives():
    text = '#include "conv.cuh"\n#define N 4\nint n = N;\n  #pragma unroll\n'
    found = kinds(text)
    for word in ('#include "', "conv.cuh", "#define", "#pragma unroll"):
        start = text.index(word)
        assert set(found[start : start + len(word)]) <= {"directive", ""}, word
        assert found[start] == "directive"
    assert found[text.index("int")] == "type" and found[text.rindex("N;")] == ""


def test_a_comment_over_lines_is_a_comment_on_each():
    comment = "/* one int\n   two return\n\n   __global__ */"
    found = kinds(f"int a; {comment} int b;")
    assert found[7 : 7 + len(comment)] == ["comment"] * len(comment)
    assert found[0] == found[8 + len(comment)] == "type"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("/* never ends\nint a;", "comment"),
        ("// no newline", "comment"),
        ('"never ends', "string"),
        ("#define A \\", "directive"),
    ],
)
def test_unterminated_tokens(text, kind):
    check_runs_cover(text)
    assert set(kinds(text)) == {kind}


def test_an_unterminated_string_ends_with_its_line():
    assert kinds('"abc\nint b;')[5:8] == ["type"] * 3


@given(st.lists(st.sampled_from(['"', "'", "/*", "*/", "//", "#", "\\", "\n", "\r\n", "int", "<<<", " ", "é"])))
def test_any_pieces_are_covered(pieces):
    check_runs_cover("".join(pieces))


@given(st.text())
def test_any_text_is_covered(text):
    check_runs_cover(text)


def test_changing_a_result_does_not_change_the_cache():
    runs("int a;").clear()
    assert runs("int a;")


def test_import_does_not_load_pygments():
    code = "import sys, visuals.scene.highlight; sys.exit('pygments' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=sources.ROOT.parent).returncode == 0
