"""The rows of flash attention on the stage: a query's s, m, factor, l and o are on one line, with their numbers."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from kernels.attention.shape import AttentionShape
from tests.helpers.attention_scenes import FLASH, MMA, REGISTERS, TILES, scene_at
from tests.helpers.emulated import needs_nvrtc
from visuals.attention.inputs import qkv
from visuals.scene.payload import payload

pytestmark = needs_nvrtc
HERE = Path(__file__).parents[3]
ROW = ("s", "m", "rescale", "l", "o")
# Width and height of the picture, and how much its text is enlarged: at 1440 x 900 a chapter and the whole lesson; at
# 1280 x 720 both again, and at 1440 x 900 a presented chapter.
LARGE = ((733, 444, 1), (922, 397, 1))
SMALL = ((611, 262, 0.8), (816, 250, 0.8), (690, 488, 1.1))
TOY, CAUSAL = AttentionShape(1, 1, 16, 4), AttentionShape(1, 1, 16, 8, causal=1)
CASES = (
    (FLASH, TOY, LARGE + SMALL),
    (FLASH, AttentionShape(1, 1, 8, 4), LARGE + SMALL),
    (FLASH, CAUSAL, LARGE),
    (REGISTERS, TOY, LARGE + SMALL),
    (REGISTERS, CAUSAL, LARGE),
    (MMA, AttentionShape(1, 1, 32, 16, dtype="fp16"), LARGE),  # a row of 16 scores is too wide for a small window
)
SCRIPT = """
import { readFileSync } from "node:fs";
const [decode, layout, draw, colour, picture] = await Promise.all(
  ["visuals/stage/decode", "visuals/stage/layout", "visuals/stage/draw", "visuals/stage/colour", "tests/node/picture"].map((name) => import(`${process.argv[2]}/${name}.js`)));
const [head, block] = [readFileSync(process.argv[3]), readFileSync(process.argv[4])], scene = decode.decodeScene(JSON.parse(head), new Uint8Array(block));
const found = JSON.parse(process.argv[5]).map(([width, height, scale]) => {
  const made = layout.layOut(scene, width, height, (text, bold) => text.length * (bold ? 8 : 7) * scale, scale);
  const ctx = new picture.Pixels(10, 10), widths = { "–": 0.5, ".": 0.32 };
  ctx.measureText = (text) => ({ width: 100 * [...text].reduce((sum, c) => sum + (widths[c] || 0.64), 0) }); // as DejaVu Sans
  new draw.Still(ctx, scene, { ...made, scale }, colour.makeTheme(picture.LIGHT, false), (px) => `${px * scale}px sans-serif`, 0);
  const blocks = Object.fromEntries(Object.entries(made.blocks).map(([name, b]) => [name, { y: b.y, cell: b.cell, h: b.h, numbers: Boolean(b.numbers) }]));
  return { height: made.height, blocks };
});
console.log(JSON.stringify(found));
"""


@pytest.mark.parametrize(("rung", "s", "sizes"), CASES)
def test_a_querys_row_is_on_one_line_with_its_numbers(node, tmp_path, rung, s, sizes):
    scene, _ = scene_at(s, rung, TILES[rung], qkv(s, "whole"))
    assert [g.rows[0] for g in scene.groups if g.aligned] == [ROW]
    meta, block = payload(scene)
    head, body = tmp_path / "head.json", tmp_path / "block"
    head.write_text(json.dumps(meta), "utf-8")
    body.write_bytes(block)
    script = tmp_path / "lay_out.mjs"
    script.write_text(SCRIPT, "utf-8")
    command = [node, script, HERE, head, body, json.dumps(sizes)]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    for size, made in zip(sizes, json.loads(process.stdout), strict=True):
        row = [made["blocks"][name] for name in ROW]
        assert made["height"] <= size[1], size
        assert len({(b["y"], b["cell"], b["h"]) for b in row}) == 1, size
        assert row[0]["cell"] >= 15, (size, row[0]["cell"])
        assert [n for n, b in zip(ROW, row, strict=True) if not b["numbers"]] == [], (size, row[0]["cell"])


@pytest.mark.parametrize("rung", [FLASH, REGISTERS, MMA])
def test_the_scene_stores_every_query_of_a_small_head(rung):
    """Also those queries of the block whose rows are not followed."""
    s = AttentionShape(1, 1, 16, 16, dtype="fp16" if rung == MMA else "fp32")
    scene, _ = scene_at(s, rung, TILES[rung], qkv(s, "whole"))
    assert scene.tensor("m").rows == (2 if rung == MMA else 4)
    assert np.isfinite(scene.cells("O")).all()
