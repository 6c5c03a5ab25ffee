"""The kinds of words of CUDA, and that runs cover the whole source."""

import re
import subprocess
import sys
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import sources
from tests.helpers.offenders import over
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


ALL_WORDS = {kind: "|".join(words.split()) for kind, words in WORDS.items()}
PLAIN = r"\d+(?:\.\d+f)?|[A-Z]|x|y|row|col|atomicAdd"  # names and numbers


def kinds_of(found, text, word):
    """Returns the kinds of a word's characters outside comments, strings and directives. `found`: `kinds` of the text."""
    kinds_at = [found[m.start() : m.end()] for m in re.finditer(rf"\b(?:{word})\b", text)]
    return {kind for part in kinds_at for kind in part} - {"comment", "string", "directive"}


def check_runs_cover(text):
    found = runs(text)
    assert sum(length for _, length in found) == len(text)
    assert all(length > 0 and 0 <= kind < len(KINDS) for kind, length in found)
    assert all(a[0] != b[0] for a, b in pairwise(found)), "equal neighbours are one run"
    return [KINDS[kind] for kind, length in found for _ in range(length)]


def test_sources_exist():
    assert len(SOURCES) > 10


@over([(path.name, path) for path in SOURCES])
def test_every_source_is_covered_and_its_words_have_their_kinds(path):
    text = path.read_text()
    found = check_runs_cover(text)
    assert max(text) <= "\uffff"  # so that Python and the browser count characters alike
    for kind, word in [*((kind, words) for kind, words in ALL_WORDS.items()), ("", PLAIN)]:
        assert kinds_of(found, text, word) <= {kind}, word
    for kind, mark in (("comment", r"//[^\n]*"), ("string", r'"C"')):
        for m in re.finditer(mark, text):
            assert set(found[m.start() : m.end()]) == {kind}, m.group()


def test_each_word_is_in_a_kernel():
    every = "".join(path.read_text() for path in SOURCES)
    words = [word for words in WORDS.values() for word in words.split()]
    assert [word for word in words if not re.search(rf"\b{word}\b", every)] == []


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
        text = f"void f() {{ g({word}, {word}); }}"
        assert kinds_of(kinds(text), text, word) == {kind}, word


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


@settings(max_examples=20)
@given(st.lists(st.sampled_from(['"', "'", "/*", "*/", "//", "#", "\\", "\n", "\r\n", "int", "<<<", " ", "é"])))
def test_any_pieces_are_covered(pieces):
    check_runs_cover("".join(pieces))


@settings(max_examples=20)
@given(st.text())
def test_any_text_is_covered(text):
    check_runs_cover(text)


def test_changing_a_result_does_not_change_the_cache():
    runs("int a;").clear()
    assert runs("int a;")


def test_import_does_not_load_pygments():
    code = "import sys, visuals.scene.highlight; sys.exit('pygments' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=sources.ROOT.parent).returncode == 0
