"""The lesson on im2col without a browser: its orders, and the steps that its chapters open."""

from __future__ import annotations

from functools import partial

import pytest

from kernels.conv.presets import CONV_PRESETS
from pages.conv import im2col_chapters, scenes
from pages.conv.address import DEFAULT, ConvQuery
from pages.parts import stage
from tests.helpers.page_runner import heads, open_page, stages

open_at = partial(open_page, "conv/im2col.py")


def test_a_library_s_product_is_on_the_stage_with_the_library_s_time():
    at = open_at(order="library")
    (head,) = heads(at)
    meta = head["meta"]
    assert meta["steps"] == 36 + 1 and stages(at)[0].endswith(" library")
    assert [source["file"] for source in (meta["source"], *meta["nextSources"])] == ["02_im2col.cu", "cublas_sgemm"]
    assert "library" in {order["name"] for order in head["orders"]}


def test_the_library_s_scene_is_measured_as_the_library_s_rung(monkeypatch):
    shown = []
    monkeypatch.setattr(stage.Stage, "draw", lambda self: shown.append((self.scene.key, self.rung.name)))
    for order in ("explaining", "library"):
        open_at(order=order)
    assert [rung for _, rung in shown] == ["conv/im2col-gemm", "conv/im2col-cublas"]
    assert [key.rpartition(" ")[2] for key, _ in shown] == ["explaining", "library"]


def test_the_chapters_open_the_steps_that_they_name():
    scene, _ = scenes.im2col(DEFAULT.inputs(), "explaining")
    assert "loads two tiles into shared memory" in scene.caption(im2col_chapters.LOADED)
    assert "stores its sum" in scene.caption(im2col_chapters.LAST_STORED)
    assert scene.steps - 1 == im2col_chapters.LAST_STORED and scene.write("y").reshapes
    small, _ = scenes.im2col(ConvQuery(DEFAULT.shape.with_(H=4, W=4)).inputs(), "explaining")
    assert "stores its sum" in small.caption(im2col_chapters.SMALL_STORED)
    assert small.steps - 1 == im2col_chapters.SMALL_STORED
    assert small.tensor("C").cols > im2col_chapters.SMALL_PIXEL


@pytest.mark.parametrize("key", CONV_PRESETS)
def test_every_preset_plays_both_acts(key):
    scene, _ = scenes.im2col(ConvQuery(CONV_PRESETS[key].shape).inputs(), "explaining")
    assert [source.file for source in (scene.source, *scene.next_sources)] == ["02_im2col.cu", "03_gemm.cu"]
    assert scene.steps < 2_000
