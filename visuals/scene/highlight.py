"""CUDA C++ in colours: Pygments reads the words, this module says which of the stage's few kinds each is."""

from functools import lru_cache

KINDS = ("", "comment", "keyword", "type", "builtin", "string", "directive")

VARIABLES = frozenset({"threadIdx", "blockIdx", "blockDim", "gridDim", "warpSize"})
# What Pygments takes for plain names.
NUMBERS = frozenset(
    "half half2 __half __half2 __nv_bfloat16 __nv_bfloat162 double3 double4 uchar ushort uint ulong".split()
)


def runs(text: str) -> list[tuple[int, int]]:
    """(index into KINDS, length) of each run, in order; together they are the text, newlines included.

    Lengths count characters: equal to the browser's while no character lies beyond U+FFFF.
    """
    return list(_runs(text))


@lru_cache(maxsize=256)
def _runs(text: str) -> tuple[tuple[int, int], ...]:
    from pygments.lexers.c_like import CudaLexer  # the package's own door breaks where threads meet in it

    # A lexer wants its last line ended; what that adds is cut off again. Its plain entry point leaves
    # the text as it is, where the usual one trims it.
    merged = []
    left = len(text)
    for _, token, piece in CudaLexer().get_tokens_unprocessed(text + "\n"):
        length = min(len(piece), left)
        if not length:
            continue
        left -= length
        kind = KINDS.index(_kind(token, piece))
        if merged and merged[-1][0] == kind:
            length += merged.pop()[1]
        merged.append((kind, length))
    return tuple(merged)


def _kind(token, word: str) -> str:
    from pygments.token import Comment, Keyword, Name, Operator, String

    if word in VARIABLES and token in Name:
        return "builtin"
    if word in NUMBERS and token in Name:
        return "type"
    # Two underscores in front are the compiler's own words: __restrict__, __launch_bounds__, __shfl_down_sync
    if word.startswith("__") and (token in Name or token in Keyword):
        return "keyword"
    if token in Comment.Preproc or token in Comment.PreprocFile:
        return "directive"
    if token in Comment:
        return "comment"
    if token in String:
        return "string"
    if token in Keyword.Type:
        return "type"
    # Name.Builtin without the variables above: true, false, NULL
    if token in Keyword or token is Name.Builtin or token is Operator.Word:
        return "keyword"
    return ""
