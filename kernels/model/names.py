"""Sentences about names that do not exist."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

SHOWN = 30  # names in a sentence
CLOSE = 0.5  # difflib's ratio
LONGEST = 100  # characters of a name that are compared
# Names of PyTorch's layers and functions -> the fields that mean the same here.
PYTORCH = {
    "kernel_size": ("R", "S"),
    "output_padding": ("output_pad",),
    "ceil_mode": ("ceil",),
    "count_include_pad": ("include_pad",),
    "in_channels": ("C",),
    "out_channels": ("K",),
    "in_features": ("K",),
    "out_features": ("N",),
    "num_embeddings": ("V",),
    "embedding_dim": ("d",),
    "is_causal": ("causal",),
    "betas": ("beta1", "beta2"),
}


def closest_first(name: object, known: Iterable[str]) -> list[str]:
    """Returns the known names, those close to `name` first. What all rungs of a ladder begin with, "gemm/", is not
    compared."""
    ends = {each: each.rpartition("/")[2] for each in known}
    end = str(name)[:LONGEST].lower().rpartition("/")[2]
    close = difflib.get_close_matches(end, dict.fromkeys(ends.values()), len(ends) or 1, CLOSE)
    return sorted(ends, key=lambda each: close.index(ends[each]) if ends[each] in close else len(close))


def unknown(kind: str, name: object, known: Iterable[str], of: str = "") -> str:
    """Returns the sentence about a name that is none of `known`. It lists these, the closest first."""
    names = closest_first(name, known)
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"no {kind} {name!r}{of and f' of {of}'}; there are: {', '.join(names[:SHOWN])}{more}"


def unknown_field(name: object, known: Iterable[str], of: str = "") -> str:
    """Returns the sentence about a field that a shape lacks, with the name here of one of PyTorch's."""
    names = list(known)
    same = PYTORCH.get(str(name), ())
    hint = f". PyTorch's {name} is {' and '.join(same)} here" if same and {*same} <= {*names} else ""
    return unknown("field", name, names, of) + hint
