"""The digest of a kernel: comments and layout do not change it, each token of its code does."""

from __future__ import annotations

import json
import random
import re

from kernels import records, sources
from kernels.ladders import LADDERS
from kernels.model.program import Launch
from kernels.model.tokens import tokens
from kernels.records.row import digest_of
from tests.helpers.offenders import every

SOURCE = r"""#define SQUARE(x) ((x) * (x))  // of a number
#pragma unroll 4
__global__ void k(float* y, int n) {  /* y [n] */
  int i = blockIdx.x*blockDim.x + threadIdx.x;
  if (i < n) y[i] = SQUARE(i) + '"' - 0x1Fu + 1.5e-3f + "a // b"[0];
}
"""
SOURCES = sorted(
    {
        step.source
        for ladder in LADDERS.values()
        for rung in ladder.rungs
        for preset in list(ladder.presets.values())[:1]
        if not any(rung.rules(preset.shape, rung.default_tiles))
        for step in rung.build(preset.shape, rung.default_tiles).steps
        if isinstance(step, Launch)
    }
)


@every(
    ("before", "after"),
    [
        ("// of a number", "// squared"),
        ("  // of a number", ""),
        ("/* y [n] */", "\n  // n numbers\n"),
        ("blockIdx.x*blockDim.x + ", "blockIdx.x * blockDim.x\n      +"),
        ("if (i < n) y", "if (i<n)\n    y"),
        ("int i", '#line 7 "other.cu"\n  int i'),
        ("#pragma unroll 4", "# pragma   unroll 4"),
        ("#pragma unroll 4", "#pragma unroll \\\n 4"),
        ("#pragma unroll 4", "#pragma /* in \n turn */ unroll 4"),
    ],
)
def test_comments_and_layout_do_not_count(before, after):
    assert before in SOURCE
    assert tokens(SOURCE.replace(before, after)) == tokens(SOURCE)


@every(
    ("before", "after"),
    [
        ("i < n", "i <= n"),
        ("SQUARE(i) + ", "SQUARE(i) - "),
        ("a // b", "a  // b"),  # within a string
        ("'\"'", "'\\''"),
        ("0x1Fu", "0x1F"),
        ("1.5e-3f", "1.5e-3"),
        ("SQUARE(x) (", "SQUARE (x) ("),  # no longer a macro with an argument
        ("#pragma unroll 4", "#pragma unroll 8"),
        ("#pragma unroll 4", "// #pragma unroll 4"),
        ("int i", "inti"),
        ("float* y", "float** y"),
    ],
)
def test_every_token_counts(before, after):
    assert before in SOURCE
    assert tokens(SOURCE.replace(before, after)) != tokens(SOURCE)


def test_operators_are_not_split_by_spaces():
    assert tokens("a + +b; a<<2; x >>= 1; p->q; s::t; k<<<1, 2>>>();") != tokens(
        "a++b; a<<2; x >>= 1; p->q; s::t; k<<<1, 2>>>();"
    )
    assert tokens("a<<2;a>>=1") == "a << 2 ; a >>= 1"


@every("source", SOURCES)
def test_edited_comments_leave_the_projects_tokens_unchanged(source):
    """Edits of comments and layout do not change the tokens of a kernel; one letter of its code does."""
    rng = random.Random(source)
    text = sources.translation_unit(source)
    edited = re.sub(r"//[^\n]*", lambda m: rng.choice(["", "// other words", "//"]), text)
    assert tokens(edited.replace("\n\n", "\n").replace("  ", "    ")) == sources.code(source)
    declarations = list(re.finditer(r"\bint (\w+) =", sources.code(source)))
    if declarations:
        position = rng.choice(declarations).start(1)
        assert tokens(sources.code(source)[:position] + "z" + sources.code(source)[position:]) != sources.code(source)
    assert tokens(sources.code(source)) == sources.code(source)
    assert (
        "//" not in sources.code(source) and "#line" not in sources.code(source) and ".cu" not in sources.code(source)
    )


def test_older_rows_keep_their_digest_and_id():
    before = json.loads((records.FOLDER / "digests.json").read_text(encoding="utf-8"))
    assert set(map(len, (*before, *before.values()))) == {16} and not before.keys() & set(before.values())
    row = next(row for row in records.recordings() if row["kernels"] in before)
    assert digest_of(row) == before[row["kernels"]] != row["kernels"]
    assert digest_of({"kernels": "0" * 16}) == "0" * 16 and digest_of({}) is None
