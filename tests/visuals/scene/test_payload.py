"""What is sent to the browser: the same arrays, few bytes, and the same picture when the player decodes it."""

from __future__ import annotations

import base64
import functools
import itertools
import json
import subprocess
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from kernels.conv.shape import ConvShape
from tests.helpers import scenes
from tests.helpers.histories import histories, scene_of
from tests.helpers.offenders import every
from tests.helpers.shapes import conv_shapes
from visuals.conv.im2col.scene import im2col_scene
from visuals.conv.part import part_of
from visuals.scene.highlight import KINDS
from visuals.scene.parts import Flow, SceneError
from visuals.scene.payload import Block, _read_cells, payload
from visuals.scene.recorder import read_per_step
from visuals.scene.scene import Scene
from visuals.stage import HERE, message

SCENES = {"tiled": scenes.tiled, "softmax": scenes.softmax, "big": scenes.big, "long": scenes.long}


def im2col(s: ConvShape) -> Scene:
    rng, part = np.random.default_rng(2), part_of(s)
    x, w = rng.random((1, part.C, s.H, s.W), "f4"), rng.random((part.K, part.C, s.R, s.S), "f4")
    return im2col_scene(s, part, x, w)


def read(block: bytes, entry: dict) -> np.ndarray:
    assert entry["offset"] % 4 == 0
    sent = np.frombuffer(block, "<" + entry["dtype"], entry["length"], entry["offset"])
    if "from" in entry:
        changes = np.repeat(sent, read(block, entry["runs"])) if "runs" in entry else sent
        with np.errstate(over="ignore"):
            return np.cumsum(np.append(entry["from"], changes), dtype=np.int32)
    return sent[read(block, entry["index"])] if "index" in entry else sent


# -- arrays -----------------------------------------------------------------------------------------
@every(
    ("low", "high", "dtype"),
    [
        (0, 0, "u1"),
        (0, 255, "u1"),
        (0, 256, "u2"),
        (0, 65_535, "u2"),
        (0, 65_536, "i4"),
        (-1, 255, "i2"),
        (-1, 0, "i1"),
        (-128, 127, "i1"),
        (-129, 0, "i2"),
        (-32_768, 32_767, "i2"),
        (-32_769, 0, "i4"),
        (-1, 32_768, "i4"),
        (-(2**31), 2**31 - 1, "i4"),
    ],
)
def test_integers_are_sent_in_the_narrowest_type(low, high, dtype):
    block = Block()
    block.put(np.zeros(3, np.uint8))  # 3 bytes, so that the next array has to be aligned
    entry = block.put(np.array([[low, high]]))
    assert entry == {"dtype": dtype, "offset": 4, "length": 2}
    assert read(bytes(block.bytes), entry).tolist() == [low, high]


def test_integers_over_32_bits_raise():
    for value in (2**31, -(2**31) - 1, 2**40):
        with pytest.raises(SceneError, match="do not fit 32 bits"):
            Block().put(np.array([value]))


def test_floats_none_and_booleans():
    block = Block()
    assert block.put(None) is None
    for array, dtype in ((np.array([0.1, -2]), "f4"), (np.array([True, False]), "u1"), (np.zeros(0), "f4")):
        entry = block.put(array)
        assert entry["dtype"] == dtype
        np.testing.assert_array_equal(read(bytes(block.bytes), entry), array.astype(dtype))


@st.composite
def integers(draw) -> np.ndarray:
    """Returns int64[n]: any numbers of 32 bits, or numbers that change in runs."""
    number = st.integers(-(2**31), 2**31 - 1)
    if draw(st.booleans()):
        return np.array(draw(st.lists(number, max_size=200)), np.int64)
    runs = draw(st.lists(st.tuples(st.integers(-300, 300), st.integers(1, 300)), min_size=1, max_size=20))
    return np.cumsum(np.repeat(*np.array(runs, np.int64).T))


FLOATS = st.floats(width=32, allow_nan=True, allow_infinity=True)
REPEATED = st.builds(np.resize, st.lists(FLOATS, min_size=1, max_size=4), st.integers(0, 500))


@given(integers() | st.lists(FLOATS, max_size=200).map(lambda v: np.array(v, "f4")) | REPEATED)
def test_an_array_reads_back_bit_by_bit(array):
    block = Block()
    block.put(np.zeros(3, np.uint8))
    entry = block.put(array)
    back = read(bytes(block.bytes), entry)
    if array.dtype.kind == "f":
        assert back.tobytes() == array.astype("<f4").tobytes()
    else:
        assert back.tolist() == array.tolist()


@pytest.mark.parametrize(
    ("array", "most"),
    [
        (np.arange(100_000), 8),  # one run of changes by 1
        (np.repeat(np.arange(1_000), 3), 2_999 + 4),  # no runs: a byte for each change
        (np.tile(np.float32([0.5, -0.0, np.nan]), 1_000), 3_000 + 12),
        (np.random.default_rng(0).integers(0, 256, 5_000), 5_000),  # nothing to gain
    ],
)
def test_regular_arrays_take_few_bytes(array, most):
    block = Block()
    block.put(array)
    assert len(block.bytes) <= most


@settings(max_examples=20)
@given(conv_shapes())
def test_payload_reads_back(s):
    scene = im2col(s)
    meta, block = payload(scene)
    json.dumps(meta)
    np.testing.assert_array_equal(read(block, meta["tensors"][0]["values"]), scene.tensors[0].values)
    np.testing.assert_array_equal(read(block, meta["captions"]["args"]), scene.captions.args.T.ravel())
    n = next(n for n, write in enumerate(scene.writes) if write.target == "y")  # it reshapes the output matrix
    entry = meta["writes"][n]["index"]
    if "row" in entry:  # a sum, which the player expands
        index = np.add.outer(read(block, entry["row"]).astype(int), read(block, entry["col"])).ravel()
        index[read(block, entry["padding"])] = -1
    else:
        index = read(block, entry)
    np.testing.assert_array_equal(index, scene.write("y").index)


def cells_of(entry, width: int, block) -> np.ndarray:
    """Returns the cells of reads, also of those that were sent as rectangles."""
    if "cells" in entry:
        return read(block, entry["cells"])
    start, first, cols = (read(block, entry[name]).astype(int) for name in ("start", "first", "cols"))
    steps = [np.arange(stop - at) for at, stop in itertools.pairwise(start)]
    return np.concatenate([f + n // c * width + n % c for f, c, n in zip(first, cols, steps, strict=True)])


@every(
    ("cells", "sent"),
    [
        ([[0, 1, 5, 6], [], [12, 13, 14], [4, 9, 14]], "first"),  # rectangles of a tensor 5 cells wide
        ([[0, 1, 5, 7], [], [12, 13, 14], [4, 9, 14]], "cells"),  # no rectangle
        ([[4, 5], [3], [1, 2, 6, 7, 11, 12]], "cells"),  # a row that goes on in the next row
        ([[6, 5], [3, 2, 1]], "cells"),
        ([[3], [], [], []], "cells"),  # shorter as it is
        ([[], []], "cells"),
    ],
)
def test_reads_of_rectangles_are_sent_as_rectangles(cells, sent):
    block = Block()
    r = read_per_step("A", [np.array(step, int) for step in cells])
    entry = {"start": block.put(r.start)} | _read_cells(r, 5, block.put)
    assert sent in entry
    assert cells_of(entry, 5, block.bytes).tolist() == r.cells.tolist()


def test_every_field_of_the_contract_is_sent():
    scene = scenes.tiled()
    meta, block = payload(scene)
    get = functools.partial(read, block)
    for entry, w in zip(meta["writes"], scene.writes, strict=True):
        assert (entry["target"], entry["source"], entry["reshapes"]) == (w.target, w.source, w.reshapes)
        for name in ("steps", "cells", "values", "index"):
            assert (entry[name] is None) == (getattr(w, name) is None)
            if entry[name]:
                np.testing.assert_array_equal(get(entry[name]), getattr(w, name))
    for entry, r in zip(meta["reads"], scene.reads, strict=True):
        assert get(entry["start"]).tolist() == r.start.tolist()
        assert cells_of(entry, scene.tensor(r.source).cols, block).tolist() == r.cells.tolist()
    for entry, r in zip(meta["readings"], scene.readings, strict=True):
        assert (entry["label"], entry["kind"], entry["role"]) == (r.label, r.kind, r.role)
        np.testing.assert_array_equal(get(entry["values"]), np.asarray(r.values, get(entry["values"]).dtype))
    for entry, group in zip(meta["groups"], scene.groups, strict=True):
        assert entry == {
            "rows": [list(row) for row in group.rows],
            "memorySpace": group.memory_space,
            "title": group.title,
            "table": group.table,
        } | ({"aligned": True} if group.aligned else {})
    assert get(meta["matmuls"][0]["upto"]).tolist() == scene.matmuls[0].upto.tolist()
    assert get(meta["lanes"]["mask"]).tolist() == scene.lanes.mask.tolist()
    assert get(meta["source"]["lines"]).tolist() == scene.source.lines.tolist()
    colours = get(meta["source"]["colours"]).reshape(-1, 2)
    assert colours[:, 1].sum() == len(scene.source.text) and colours[:, 0].max() < len(KINDS)
    assert meta["source"]["notes"] == {str(line): note for line, note in scene.source.notes.items()}
    assert meta["source"]["since"] == 0 and meta["nextSources"] == []
    assert meta["captions"]["width"] == scene.captions.args.shape[1]


def test_every_file_of_a_program_is_sent():
    scene = im2col(ConvShape(1, 1, 8, 8, 2, 3, 3))
    meta, block = payload(scene)
    (entry,), (source,) = meta["nextSources"], scene.next_sources
    assert (entry["file"], entry["since"], entry["text"]) == ("03_gemm.cu", 36, source.text)
    assert read(block, entry["lines"]).tolist() == source.lines.tolist()


def test_flows_are_sent():
    scene = scenes.tiled()
    text, active = np.arange(scene.steps) % 2, np.arange(scene.steps) % 3 // 2
    meta, block = payload(replace(scene, flows=(Flow(1, 0, ("", "8 B"), text, active),)))
    (entry,) = meta["flows"]
    assert (entry["source"], entry["target"], entry["texts"]) == (1, 0, ["", "8 B"])
    assert read(block, entry["text"]).tolist() == text.tolist()
    assert read(block, entry["active"]).tolist() == active.tolist()


def test_a_full_warp_keeps_its_last_lane():
    scene = scenes.tiled()
    lanes = replace(scene.lanes, mask=np.full(scene.steps, 0xFFFF_FFFF, np.uint32))
    meta, block = payload(replace(scene, lanes=lanes))
    assert (read(block, meta["lanes"]["mask"]).astype(np.int64) & 0xFFFF_FFFF == 0xFFFF_FFFF).all()


def test_a_message_is_head_and_block():
    scene = scenes.softmax()
    whole = message(scene, step=3)
    length = int.from_bytes(whole[:4], "little")
    head, (meta, block) = json.loads(whole[8 : 8 + length]), payload(scene)
    assert head["meta"] == json.loads(json.dumps(meta)) and head["step"] == 3
    assert whole[8 + length :] == b"null" + block


# -- bytes ------------------------------------------------------------------------------------------
def test_a_thousand_steps_fit_60_kb():
    scene = scenes.long(1_000)
    assert scene.steps == 1_000 and len(message(scene)) <= 60_000


def test_an_image_of_900_columns_and_its_product_fit_50_kb():
    assert len(message(im2col(ConvShape(1, 1, 32, 32, 2, 3, 3)))) <= 50_000


# -- the browser's picture equals the server's ------------------------------------------------------
# Decodes each message with the player's decoder: every tensor's cells at the requested steps, null if not
# written, and the caption.
DECODER = """
import fs from "node:fs";
const { unpack, decodeScene, isWritten, valueAt, captionOf } = await import(process.argv[1]);
const requests = JSON.parse(fs.readFileSync(0, "utf8"));
const pictures = requests.map(({ message, steps }) => {
  const { meta, block } = unpack(new Uint8Array(Buffer.from(message, "base64")));
  const scene = decodeScene(meta, block);
  return steps.map((step) => ({
    caption: captionOf(scene, step).map((part) => part.text).join(""),
    cells: Object.fromEntries(Object.values(scene.tensors).map((t) => [t.name,
      Array.from({ length: t.size }, (_, i) => (isWritten(t, i, step) ? valueAt(t, i, step) : null))])),
  }));
});
process.stdout.write(JSON.stringify(pictures));
"""


@pytest.fixture(scope="session")
def decoded(node):
    """Returns a function that decodes scenes at some steps with stage/decode.js, in Node."""
    module = (HERE / "decode.js").as_uri()

    def decode(requests: list[tuple[Scene, list[int]]]) -> list[list[dict]]:
        sent = [{"message": base64.b64encode(message(scene)).decode(), "steps": steps} for scene, steps in requests]
        command = [node, "--input-type=module", "--eval", DECODER, "--", module]
        process = subprocess.run(command, input=json.dumps(sent), capture_output=True, text=True, check=False)
        assert process.returncode == 0, process.stderr
        return json.loads(process.stdout)

    return decode


# Many scenes per start of Node; without shrinking, which would start it hundreds of times.
HYPOTHESIS = {"phases": (Phase.explicit, Phase.reuse, Phase.generate)}


def check_same_pictures(decoded, requests: list[tuple[Scene, list[int]]]) -> None:
    for (scene, steps), pictures in zip(requests, decoded(requests), strict=True):
        for step, picture in zip(steps, pictures, strict=True):
            assert picture["caption"] == scene.caption(step)
            assert picture["cells"].keys() == {t.name for t in scene.tensors}
            for name, cells in picture["cells"].items():
                actual = np.array([np.nan if v is None else v for v in cells], "f4")
                np.testing.assert_array_equal(actual, scene.cells(name, step), f"{name} after step {step}")


@pytest.mark.parametrize("key", SCENES)
def test_browser_and_server_give_the_same_picture(decoded, key):
    scene = SCENES[key]()
    last = scene.steps - 1
    steps = range(scene.steps) if last < 50 else sorted({0, 1, last // 3, last // 2, last - 1, last})
    check_same_pictures(decoded, [(scene, list(steps))])


def test_browser_and_server_give_the_same_tiled_product(decoded):
    scene = scenes.tiled(7, 9, 6, 6)  # squares that stick out on every side
    check_same_pictures(decoded, [(scene, list(range(scene.steps)))])


@settings(max_examples=2, **HYPOTHESIS)
@given(shapes=st.lists(conv_shapes(), min_size=8, max_size=12))
def test_browser_and_server_give_the_same_im2col(decoded, shapes):
    drawn = [im2col(s) for s in shapes]
    check_same_pictures(decoded, [(scene, [0, scene.steps // 2, scene.steps - 1]) for scene in drawn])


@st.composite
def scene_lists(draw) -> list[Scene]:
    valid = []
    for history in draw(st.lists(histories(), min_size=20, max_size=30)):
        try:
            valid.append(scene_of(*history))
        except SceneError:  # a copy of a cell that is not written yet
            continue
    return valid


@settings(max_examples=3, **HYPOTHESIS)
@given(drawn=scene_lists())
def test_browser_and_server_give_the_same_for_any_writes(decoded, drawn):
    check_same_pictures(decoded, [(scene, list(range(scene.steps))) for scene in drawn])


def test_browser_and_server_print_the_same_numbers(decoded):
    """Ties, signs, very small and very large ones, and whole numbers as integers and as floats."""
    rng, scene = np.random.default_rng(1), scenes.softmax()
    values = np.concatenate(
        [
            rng.normal(size=120) * 10.0 ** rng.integers(-8, 9, 120),
            rng.integers(-4096, 4096, 40) / 4096,
            [0.0, -0.0, 1.0625, 1.1875, 1e-30, 1e22, 12345.678, 16_777_217.0, 99_999.5, 0.99999, 0.999949, -0.00005],
        ]
    )
    args = np.resize(values, (scene.steps, 12))
    template = " ".join(f"{{{i}}}" for i in range(12)) + " {{}} [sum](output)"
    captions = replace(scene.captions, templates=(template, template), args=args)
    check_same_pictures(decoded, [(replace(scene, captions=captions), list(range(scene.steps)))])
