"""The scenes of an embedding: they end with what the kernels stored, whatever the tokens; barriers are those of the kernels."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import sources
from kernels.embedding import ladder as embedding
from kernels.ladders import find, ladder_of
from kernels.model.program import RuleError
from kernels.runner import inputs_of
from visuals.embedding.scene import BLOCKS, embedding_scene
from visuals.embedding.views import VIEWS
from visuals.scene.launch_scene import executed
from visuals.scene.payload import payload

TILES = {"BLOCK": 32, "CHUNK": 4, "ROWS": 4, "WARPS": 1, "LOADS": 1}
SIZES = ((8, 6, 4), (1, 1, 1), (19, 6, 3, "equal"), (2, 2, 136))
every_rung = pytest.mark.parametrize("rung", VIEWS)
every_size = pytest.mark.parametrize("size", SIZES, ids=str)


@cache
def made(rung: str, size: tuple, tokens: tuple[int, ...] | None = None):
    """Returns (scene, executed program, inputs) of a rung."""
    shape = ladder_of(rung).shape(*size)
    tiles = {name: value for name, value in TILES.items() if name in find(rung).tiles}
    inputs = dict(inputs_of(ladder_of(rung), shape, find(rung).build(shape, find(rung).check(shape, tiles))))
    if tokens is not None:
        inputs["tokens"] = np.array(tokens, np.int32)
    return embedding_scene(rung, shape, tiles, inputs), executed(rung, shape, tiles, inputs), inputs


def assert_it_ends_with_what_was_stored(scene, program, inputs) -> None:
    """Every cell that is shown as written has the value that the emulator stored; no cell of a result is missing."""
    for tensor in scene.tensors:
        if tensor.name not in program.last:
            continue
        cells = scene.cells(tensor.name)
        stored = (inputs if tensor.name in inputs else program.last)[tensor.name].ravel()
        written = ~np.isnan(cells)
        np.testing.assert_array_equal(cells[written], stored[written].astype(np.float32), err_msg=tensor.name)
        if tensor.name != "parts":  # only the first position of a run has one
            assert written.all(), tensor.name


def test_every_own_rung_has_a_scene():
    ours = (*embedding.FORWARD_RUNGS, *embedding.BACKWARD_RUNGS)
    assert set(VIEWS) == {rung.name for rung in ours}


@every_rung
@every_size
def test_the_scene_ends_with_what_the_kernels_stored(rung, size):
    assert_it_ends_with_what_was_stored(*made(rung, size))


@every_rung
@settings(max_examples=2)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=20).map(tuple))
def test_any_tokens(rung, tokens):
    assert_it_ends_with_what_was_stored(*made(rung, (len(tokens), 7, 2), tokens))


def test_parts_are_written_where_runs_begin():
    """Tokens 0 0 0 1 1 1 in blocks of four: token 0 is whole, token 1 has two parts, at positions 3 and 4."""
    scene, program, _ = made("embedding-backward/runs", (6, 3, 2), (0, 0, 0, 1, 1, 1))
    parts = scene.cells("parts").reshape(6, 2)
    assert np.flatnonzero(~np.isnan(parts).all(axis=1)).tolist() == [3, 4]
    np.testing.assert_allclose(parts[3] + parts[4], program.last["dtable"][1], rtol=1e-6)


def test_backward_goes_over_the_links_of_forward():
    """A row that forward copies from a row of the table is added to that row of dtable."""
    tokens = (2, 0, 2, 1)
    forward, _, _ = made("embedding/rows", (4, 3, 2), tokens)
    backward, _, _ = made("embedding-backward/atomics", (4, 3, 2), tokens)
    (copies,) = [w for w in forward.writes if w.target == "y"]
    of_row = lambda m: [2 * m, 2 * m + 1]  # noqa: E731
    of_token = lambda m: of_row(tokens[m])  # noqa: E731
    reads = next(read for read in backward.reads if read.source == "dy")
    for m in range(4):
        own = np.resize(copies.steps, len(copies.cells)) == m
        assert copies.cells[own].tolist() == of_row(m)
        assert copies.index[own].tolist() == of_token(m)
        step = m + 1  # step 0 writes zeros
        assert reads.cells[reads.start[step] : reads.start[step + 1]].tolist() == of_row(m)
        changed = backward.cells("dtable", step) != backward.cells("dtable", step - 1)
        assert set(np.flatnonzero(changed)) <= set(of_token(m))


@every_rung
def test_every_barrier_is_a_step(rung):
    """The kernels of one block: each barrier of the source is lit."""
    scene, program, _ = made(rung, (8, 6, 4))
    lit = {}
    for t in range(scene.steps):
        source, line = scene.source_at(t)
        lit.setdefault(source.file, set()).add(line)
    for launch in program.launches:
        lines = sources.text(launch.source).splitlines()
        barriers = {n for n, line in enumerate(lines, 1) if "__syncthreads();" in line}
        assert barriers <= lit[launch.source.rpartition("/")[2]]


@every_rung
@every_size
def test_captions_and_payload(rung, size):
    scene, program, _ = made(rung, size)
    assert 1 + len(scene.next_sources) == len(program.launches)
    for t in range(scene.steps):
        caption = scene.caption(t)
        assert "{" not in caption and "](" not in caption and "NaN" not in caption and len(caption) < 300
    meta, block = payload(scene)
    assert meta["steps"] == scene.steps and len(block) < 100_000


def test_a_table_too_large_is_refused():
    with pytest.raises(RuleError, match="at most 2,048 elements"):
        embedding_scene("embedding/rows", ladder_of("embedding/rows").shape(4, 1000, 4), {}, {})


@pytest.mark.parametrize("rung", ["embedding/rows", "embedding-backward/sorted", "embedding-backward/runs"])
def test_blocks_that_are_not_followed_come_in_one_step(rung):
    """Of 40 rows and 20 tokens so many blocks have steps of their own; the bytes of all blocks are counted."""
    scene, program, inputs = made(rung, (40, 20, 5))
    assert_it_ends_with_what_was_stored(scene, program, inputs)
    assert f"The other blocks ({20 - BLOCKS})" in scene.caption(
        scene.steps - 1
    ) or "of the other blocks" in scene.caption(scene.steps - 1)
    read, written = (reading.values for reading in scene.readings[:2])
    assert (np.diff(read) >= 0).all() and (np.diff(written) >= 0).all()
    assert written[-1] >= program.last[program.program.outputs[0].name].nbytes


def test_an_earlier_row_of_the_same_token_is_named():
    """Rows 0 and 2 have token 2: the second one is added to what the first one has left."""
    scene, _, inputs = made("embedding-backward/atomics", (4, 3, 2), (2, 0, 2, 1))
    again = [scene.caption(t) for t in range(scene.steps) if " too. " in scene.caption(t)]
    assert len(again) == 1 and again[0].startswith("Row 2 of dy has token 2 too.")
    (total,) = scene.cells("dtable", 3)[4:5]
    assert total == np.float32(inputs["dy"][0, 0] + inputs["dy"][2, 0])


def test_a_token_that_occurs_in_several_blocks_is_joined():
    scene, _, _ = made("embedding-backward/runs", (6, 4, 2), (0, 0, 0, 1, 1, 1))
    said = " ".join(scene.caption(t) for t in range(scene.steps))
    assert "all rows of token 0 are in this block (3 in all)" in said
    assert said.count("only some rows of token 1 are in this block") == 2
    assert "block 1 has token 1. Its rows were in 2 blocks." in said
    assert "block 3 has token 3. It does not occur." in said and "Block 3 stores zeros to row 3" in said
