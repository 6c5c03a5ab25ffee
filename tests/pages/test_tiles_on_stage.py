"""Explore: a stage follows the tile sizes that the reader chooses, in its picture or in its kernel's header."""

import json
from unittest import mock

import pytest

from kernels.ladders import find
from kernels.model.program import Launch
from pages.attention.address import ADDRESS as ATTENTION
from pages.attention.backward.controls import ADDRESS as ATTENTION_BACKWARD
from pages.conv import scenes
from pages.conv.address import DEFAULT
from pages.conv.backward.address import ADDRESSES as BACKWARD
from pages.fusion.address import ADDRESS as FUSION
from pages.gemm.address import ADDRESS as GEMM
from pages.hopper.address import ADDRESS as HOPPER
from pages.parts import tiles
from pages.softmax.address import ADDRESS as SOFTMAX
from tests.helpers.page_runner import heads, open_page
from visuals.scene.compiler import program as compiled

LESSONS = {
    "gemm/page.py": ({}, GEMM),
    "hopper/page.py": ({}, HOPPER),
    "softmax/page.py": ({}, SOFTMAX),
    "attention/page.py": ({}, ATTENTION),
    "attention/backward/page.py": ({}, ATTENTION_BACKWARD),
    "fusion/page.py": ({}, FUSION),
    # The transposed convolution has the kernels of the input's gradient.
    **{
        f"conv/backward/page.py {gradient}": ({"gradient": gradient}, BACKWARD[gradient])
        for gradient in ("input", "filters")
    },
}
# Threads of a block whose picture shows none, and blocks of a grid with fewer tiles: the line of controls names the launch.
ONLY_LAUNCHED = {"BLOCK", "BLOCKS"}


def drawn(page, **params):
    """Returns the scene on the stage as text; None if there is none."""
    (head,) = heads(open_page(page, view="watch", **params))
    return head["meta"] and json.dumps(head["meta"])


class NotRun(Exception):
    """No rule of a kernel: pages keep no scene for it."""


def launched(page, **params):
    """Returns the launches that the stage would show, which do not run, as text; `drawn` of a picture without a recording."""
    found = []

    def record(program, *_):
        steps = [step for step in program.steps if isinstance(step, Launch)]
        found.append(str([(s.source, s.entry, s.grid, s.block, s.shared, s.defines) for s in steps]))
        raise NotRun

    with mock.patch.object(compiled, "record", record):
        try:
            return drawn(page, **params)
        except AssertionError:
            return found[-1:]


def changes(rung, shape, sizes):
    """Yields legal tile sizes in which one size differs, for each size."""
    legal = tiles.legal(rung, shape)
    for name in rung.tiles:
        others = [c for c in legal if c[name] != sizes[name]]
        if others:
            yield name, min(others, key=lambda c: sum(c[n] != sizes[n] for n in c))


@pytest.mark.parametrize("lesson", LESSONS)
def test_each_tile_size_changes_the_stage(lesson):
    (page, *_), (params, address) = lesson.split(), LESSONS[lesson]
    look = drawn if address is FUSION else launched
    deaf = []
    for name, rung in address.rungs.items():
        selection, _ = address.read({"rung": name})
        if selection.broken or rung.library or not (before := look(page, rung=name, **params)):
            continue
        for size, sizes in changes(rung, selection.shape, selection.tiles):
            after = look(page, rung=name, **params, **{n: str(v) for n, v in sizes.items()})
            if after == before and size not in ONLY_LAUNCHED:
                deaf.append((name, size, sizes))
    assert deaf == []


@pytest.mark.parametrize(("tile", "shared", "width"), [(16, "2.05 KB", 16), (8, "512 B", 8), (32, "8.19 KB", 32)])
def test_im2col_has_the_tile_of_its_product(tile, shared, width):
    scene, _ = scenes.im2col(DEFAULT.inputs(), "explaining", (("TILE", tile),))
    (product,) = scene.next_sources
    assert f"{shared} shared memory" in product.detail
    assert scene.tensor("tile_b").cols == width


def test_the_page_of_im2col_gives_its_tile_to_the_stage():
    assert ",TILE=8 " in json.loads(drawn("conv/im2col.py", TILE="8"))["key"]


def test_the_warps_of_a_smaller_block_make_fewer_requests():
    order, block = "warps", find("conv/direct").default_tiles["BLOCK"]
    (large, _), (small, _) = (scenes.direct(DEFAULT.inputs(), order, False, (("BLOCK", n),)) for n in (block, 64))
    assert small.steps < large.steps
