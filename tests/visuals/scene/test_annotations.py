"""Annotations of a scene's cells: invalid ones raise, and the player prints them with their numbers."""

from __future__ import annotations

import base64
import json
import subprocess
from dataclasses import replace

import numpy as np
import pytest

from kernels.conv.shape import ConvShape
from tests.helpers.offenders import every
from tests.visuals.conv.fft.test_scene import scene_of
from visuals.scene.parts import Annotation, Captions, SceneError
from visuals.scene.scene import number
from visuals.stage import HERE, message

_, GOOD = scene_of(ConvShape(1, 2, 6, 6, 1, 3, 3))
Y = next(annotation for annotation in GOOD.annotations if annotation.tensor == "Y")
SIZE = GOOD.tensor("Y").size
CAPTIONS = Captions(("{0}",), np.zeros(SIZE, int), np.zeros((SIZE, 1)))


@every(
    ("annotation", "message_part"),
    [
        (Annotation("Z", CAPTIONS), "names no tensor"),
        (Annotation("Y", CAPTIONS, {"Z": np.zeros((SIZE, 1), int)}), "names no tensor"),
        (Annotation("Y", replace(CAPTIONS, kind=np.zeros(SIZE - 1, int))), "captions and cells differ in number"),
        (Annotation("Y", replace(CAPTIONS, kind=np.ones(SIZE, int))), "a cell has no caption"),
        (Annotation("Y", replace(CAPTIONS, templates=("{1}",))), "cannot be filled from 1 numbers"),
        (Annotation("Y", CAPTIONS, {"X": np.full((SIZE, 1), GOOD.tensor("X").size)}), "leaves X"),
        (Annotation("Y", CAPTIONS, {"X": np.full((SIZE, 1), -2)}), "leaves X"),
        (Annotation("Y", CAPTIONS, {"X": np.zeros((SIZE - 1, 1), int)}), "leaves X"),
        (Annotation("Y", CAPTIONS, {"X": np.zeros(SIZE, int)}), "leaves X"),
    ],
)
def test_invalid_annotation_raises(annotation, message_part):
    replace(GOOD, annotations=(Annotation("Y", CAPTIONS, {"X": np.full((SIZE, 1), -1)}),))
    with pytest.raises(SceneError, match=message_part):
        replace(GOOD, annotations=(annotation,))


PLAYER = """
import fs from "node:fs";
const [decode, explain] = await Promise.all(process.argv.slice(1).map((module) => import(module)));
const { message, cells } = JSON.parse(fs.readFileSync(0, "utf8"));
const { meta, block } = decode.unpack(new Uint8Array(Buffer.from(message, "base64")));
const scene = decode.decodeScene(meta, block);
const explained = cells.map(([step, name, i]) => explain.explain(scene, step, name, i));
process.stdout.write(JSON.stringify(explained.map(({ marks, parts }) => ({ marks, text: parts.map((p) => p.text).join("") }))));
"""


def explained(node: str, cells: list[tuple[int, str, int]]) -> list[dict]:
    """Returns the text and marks of stage/explain.js for each (step, tensor, cell)."""
    request = {"message": base64.b64encode(message(GOOD)).decode(), "cells": cells}
    modules = [(HERE / f"{name}.js").as_uri() for name in ("decode", "explain")]
    command = [node, "--input-type=module", "--eval", PLAYER, "--", *modules]
    process = subprocess.run(command, input=json.dumps(request), capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


def test_player_explains_a_cell_and_highlights_its_sources(node):
    last, per_map = GOOD.steps - 1, SIZE
    product, factor, pixel = explained(node, [(last, "Y", 5), (last, "X", per_map + 5), (0, "y", 3)])
    a, b = Y.captions.args[5][:2], Y.captions.args[5][-2:]
    filled = Y.captions.templates[0].format(*(f"<{n}>" for n in range(len(Y.captions.args[5]))))
    assert filled.count("conj") == 2 and product["text"].count("conj") == 2
    assert product["text"].startswith("|Y|[1, 1] = ")
    for value in (*a, *b):
        assert number(np.float32(value)) in product["text"]
    lit = {m["name"]: m["cells"] for m in product["marks"] if m["as"] == "read"}
    assert lit == {"X": [5, per_map + 5], "W": [5, per_map + 5]}
    faint = {m["name"]: m["cells"] for m in factor["marks"] if m.get("faint")}
    assert faint == {"Y": [5]} and "the amount of the wave that repeats 1× down a" in factor["text"]
    assert "not written yet" in pixel["text"] and "It is d[0, 3] / 36." in pixel["text"]
