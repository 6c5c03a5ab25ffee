"""The stage keeps its place in the page: a stage that moved would be drawn anew beside the old one."""

import pytest

from tests.helpers.page_runner import components, heads, open_page

# A page, and parameters that the page has a note about, above the stage.
NOTES = {
    "gemm/page.py": {"rung": "cublas"},
    "attention/page.py": {"view": "nonsense"},
    "softmax/page.py": {"view": "nonsense"},
    "fusion/page.py": {"view": "nonsense"},
    "conv/im2col.py": {"view": "nonsense"},
    "memory/page.py": {"topic": "nonsense"},
    "precision/page.py": {"view": "nonsense"},
    "layers/page.py": {"view": "nonsense"},
    "train/page.py": {"view": "nonsense"},
}


def place(at) -> list[int]:
    """Returns the number of the stage, and of each block that holds it, within the block above."""
    stage = components(at)[0].proto

    def path(node) -> list[int] | None:
        if getattr(node, "proto", None) is stage:
            return []
        below = ((n, path(child)) for n, child in getattr(node, "children", {}).items())
        return next(([n, *rest] for n, rest in below if rest is not None), None)

    return path(at._tree)


@pytest.mark.parametrize(("page", "params"), NOTES.items(), ids=NOTES)
def test_a_note_above_the_stage_does_not_move_it(page, params):
    with_note, without = open_page(page, **{"view": "explore"} | params), open_page(page, view="explore")
    assert "kt-note" in " ".join(html.value for html in with_note.get("html"))
    assert place(with_note) == place(without)


def test_a_kernel_without_a_stage_is_one_of_them():
    assert heads(open_page("gemm/page.py", view="explore", rung="cublas"))[0]["meta"] is None
