"""Syntax highlighting of CUDA C++: Pygments finds the tokens, this module maps them to the stage's few kinds."""

from functools import lru_cache

KINDS = ("", "comment", "keyword", "type", "builtin", "string", "directive")

BUILTINS = frozenset({"threadIdx", "blockIdx", "blockDim", "gridDim", "warpSize"})
# Types that Pygments reports as plain names.
EXTRA_TYPES = frozenset(
    {
        "half",
        "half2",
        "__half",
        "__half2",
        "__nv_bfloat16",
        "__nv_bfloat162",
        "double3",
        "double4",
        "uchar",
        "ushort",
        "uint",
        "ulong",
    }
)


def runs(text: str) -> list[tuple[int, int]]:
    """Returns (index into KINDS, length) of each run, in order; together they are the text, newlines included.

    Lengths count characters. They equal the browser's as long as no character is beyond U+FFFF.
    """
    return list(_runs(text))


@lru_cache(maxsize=256)
def _runs(text: str) -> tuple[tuple[int, int], ...]:
    from pygments.lexers.c_like import CudaLexer  # importing it from pygments.lexers is not thread-safe

    # A lexer needs a newline at the end, which is cut off again. get_tokens_unprocessed leaves the text as it is;
    # get_tokens would trim it.
    merged = []
    remaining = len(text)
    for _, token, piece in CudaLexer().get_tokens_unprocessed(text + "\n"):
        length = min(len(piece), remaining)
        if not length:
            continue
        remaining -= length
        kind = KINDS.index(_kind(token, piece))
        if merged and merged[-1][0] == kind:
            length += merged.pop()[1]
        merged.append((kind, length))
    return tuple(merged)


def _kind(token, word: str) -> str:
    from pygments.token import Comment, Keyword, Name, Operator, String

    if word in BUILTINS and token in Name:
        return "builtin"
    if word in EXTRA_TYPES and token in Name:
        return "type"
    # Two leading underscores mark words of the compiler: __restrict__, __launch_bounds__, __shfl_down_sync
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
