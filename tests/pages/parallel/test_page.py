"""Tests of the lesson on parallel training without a browser: every way and network, its rules, its comparison."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.parallel import check as checks
from kernels.parallel.check import LIMIT, check, images_of
from kernels.parallel.plan import DATA, GPIPE, ONE_F_ONE_B, TENSOR, WAYS, ZERO_3, Plan
from kernels.training.networks import NETWORKS
from pages.parallel import address, cards
from tests.helpers.page_runner import heads, links, open_page, press, stages, strip, texts
from visuals.parallel.evidence import ParallelEvidence

open_at = partial(open_page, "parallel/page.py")
CARDS = ("What moves, and when", "The same numbers", "Memory of each GPU", "What the prediction assumes", "Recorded on several GPUs")  # fmt: skip


@pytest.mark.parametrize(("network", "way"), [("lenet5", DATA), ("transformer", TENSOR), ("residual", ONE_F_ONE_B)])  # fmt: skip
def test_a_way_shows_its_time_axis_and_every_card(network, way):
    at = open_at(network=network, way=way, batch=64)
    assert stages(at) == [f"{network} {way} 4 64 4 64000 sgd"]
    for card in CARDS:
        assert f'<h2 class="kt-card">{card}</h2>' in texts(at)
    assert set(links(at)) >= {"Story", "**Explore**"}
    assert strip(at)["sizes"][0]["time"]["badge"]["kind"] == "predicted"


@pytest.mark.parametrize("way", [ZERO_3, GPIPE])
def test_the_other_picture_is_what_each_gpu_holds(way):
    at = open_at(way=way, picture="memory", optimizer="adam")
    assert stages(at) == [f"transformer {way} 4 256 4 64000 adam memory"]
    assert heads(at)[0]["meta"]["steps"] == 5


@pytest.mark.parametrize(
    ("params", "rule", "key"),
    [
        ({"gpus": 3}, "256 images cannot be split equally over 3 GPUs", "transformer data 4 256"),
        ({"way": TENSOR, "gpus": 8}, "block1 attention has 4 heads, which 8 GPUs", "transformer tensor 4 256"),
        ({"way": TENSOR, "network": "residual"}, "nothing to split", "residual data 4 256"),
        ({"way": GPIPE, "micro": 3}, "3 equal micro-batches", "transformer gpipe 4 256 4"),
        ({"batch": 16_384, "gpus": 1}, "images * heads &lt;= 65535 (grid.y), got 16384 * 4", "transformer data 1 256"),
        ({"batch": 16_384, "gpus": 4}, "At most 16383 images can run", "transformer data 4 256"),
    ],
)  # fmt: skip
def test_a_broken_rule_is_said_in_words_and_the_fewest_fields_are_reset(params, rule, key):
    at = open_at(**params)
    assert rule in texts(at)
    assert stages(at)[0].startswith(key)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(list(NETWORKS)), st.sampled_from(list(WAYS)), st.integers(1, 8), st.integers(1, 65_536), st.integers(1, 16)
)  # fmt: skip
def test_whatever_the_url_says_a_plan_keeps_the_rules(network, way, gpus, batch, micro):
    raw = {"network": network, "way": way, "gpus": str(gpus), "batch": str(batch), "micro": str(micro)}
    values, notes = address.FIELDS.read(raw)
    plan = address.plan(values)
    assert bool(notes) == any(str(values[name]) != text for name, text in raw.items())
    assert plan.batch == values["batch"]


def test_the_number_of_images_can_be_raised_to_the_limit_of_attention_and_no_further():
    at = open_at(network="transformer", gpus=1, batch=16_383)
    assert stages(at) == ["transformer data 1 16383 4 64000 sgd"]
    images = next(field for field in at.number_input if field.label == "images")
    images.set_value(16_384).run()
    assert not at.exception
    assert "At most 16383 images can run" in texts(at)
    assert stages(at) == ["transformer data 1 256 4 64000 sgd"]


def test_a_step_that_does_not_fit_says_what_sharding_saves():
    values = address.FIELDS.read({"network": "transformer", "bucket": "5"})[0]
    assert address.too_large(values) == ""
    text = address.too_large(values, free=1_000_000)
    assert "a GPU needs" in text and "sharding the weights, gradients and state saves" in text


# -- the comparison --------------------------------------------------------------------------------------
@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_the_comparison_finds_the_numbers_of_one_gpu(way):
    result = check(Plan("lenet5", way, 2, 64, 2))
    assert result.images == 24 and result.right and result.error <= LIMIT
    if way in (GPIPE, ONE_F_ONE_B):
        assert result.parts_error == 0
    else:
        assert (result.parts_error is None) == (way == TENSOR)


def test_the_comparison_tells_that_batch_norm_is_not_the_same():
    plan = Plan("residual", DATA, 2, 64)
    result = check(plan)
    assert not result.right and result.parts_error == 0
    assert "bit by bit" in cards.result_text(ParallelEvidence(plan), result)


def test_a_weight_that_is_no_number_is_infinitely_wrong(monkeypatch):
    real = checks.tensor.train

    def broken(plan, *args, **factors):
        outcome = real(plan, *args, **factors)
        outcome.weights[0][-130] = float("nan")
        return outcome

    monkeypatch.setattr(checks.tensor, "train", broken)
    result = check(Plan("lenet5", TENSOR, 2, 64), seed=7)
    assert result.error == float("inf") and not result.right


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 8), st.integers(1, 16))
def test_a_comparison_has_images_for_every_gpu_and_micro_batch(gpus, micro):
    count = images_of(Plan("lenet5", GPIPE, gpus, 240 * 7 * micro, micro))
    assert count % gpus == 0 and count % micro == 0 and count <= 120


def test_compare_runs_the_step_here_and_shows_the_result():
    at = open_at(way=TENSOR, network="lenet5")
    assert strip(at)["run"] == {"can": True, "running": False, "share": 0.0, "text": "", "error": "", "label": "Compare"}  # fmt: skip
    press(at, "run")
    assert not at.exception
    assert "24 images: the weights differ from one GPU’s float64 step by at most" in texts(at)
    assert strip(at)["run"]["text"].startswith("equal within")
